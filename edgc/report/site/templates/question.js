// The question form: looks an answer up among the forecasts that were computed beforehand.
const form = document.querySelector("#question");
if (form) {
  const data = await held(document.querySelector("#forecasts"));
  const asked = ["model", "cluster", "nodes", "link", "latency_ms", "precision"];
  const out = document.querySelector("#answer");
  const place = document.querySelector("#answer-table");
  const minus = (text) => text.replaceAll("-", "−");
  const percent = (value) => `${minus(value.toFixed(1))} %`;
  const digits = (value) => (value >= 100 ? value.toFixed(0) : minus(String(Number(value.toPrecision(3)))));
  const element = (tag, text, kind) => Object.assign(document.createElement(tag), { textContent: text ?? "", className: kind ?? "" });

  const read = (found, known) => found.rows.map((row, index) => row && {
    method: data.methods[index], title: data.titles[data.methods[index]], candidate: found.candidates.includes(index),
    step: row[0], saved: row[1], low: row[2], high: row[3], below: row[4], known: known[index],
  }).filter(Boolean);
  const kept = (each, margin) => each.known.kept[margin];
  const verdict = (each) => (each.high < data.clear ? "does not pay" : each.low >= data.clear ? "pays" : "undecided");
  const kinds = { pays: "good", "does not pay": "bad", undecided: "open" };
  const below = (each) => (each.below === null ? "is faster on no link" : each.below === "inf" ? "is faster on every link" : `is faster on links below ${digits(each.below)} Gbit/s`);

  // As `edgc recommend` chooses.
  function choose(choices, margin) {
    const fastest = choices.filter((each) => each.candidate).sort((a, b) => a.step - b.step);
    return [fastest.find((each) => kept(each, margin) === "yes") ?? null, fastest[0] ?? null];
  }

  function lines(texts) {
    const list = element("ul", "", "evidence");
    texts.forEach((text) => list.append(element("li", text)));
    return list;
  }

  function sentence(each, margin, lead) {
    const line = element("p");
    line.append(element("span", verdict(each), `chip ${kinds[verdict(each)]}`), ` ${each.title} is ${lead}: it saves ${percent(each.low)} to ${percent(each.high)} of the time and ${below(each)}. `);
    line.append(`Loss: ${each.known.verdict[margin]}.`);
    return [line, lines(each.known.evidence)];
  }

  function table(choices, margin) {
    const box = element("div", "", "scroll");
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Forecasts of every method");
    box.tabIndex = 0;
    const shown = element("table");
    shown.append(element("caption", "Forecasts of every method", "hidden"));
    const headings = ["Method", "Step (s)", "Saved", "If rates are a fifth off", "Pays below", "Within your loss gap?", "Nearest loss gaps (nats)"];
    const head = element("tr");
    headings.forEach((text) => head.append(Object.assign(element("th", text), { scope: "col" })));
    const top = element("thead");
    top.append(head);
    const body = element("tbody");
    [...choices].sort((a, b) => a.step - b.step).forEach((each) => {
      const row = element("tr");
      row.append(Object.assign(element("th", each.title), { scope: "row" }));
      const dense = !each.candidate;
      [digits(each.step), percent(each.saved), `${percent(each.low)} to ${percent(each.high)}`,
        dense || each.below === null ? "–" : each.below === "inf" ? "any link" : `${digits(each.below)} Gbit/s`,
        dense ? "–" : kept(each, margin) + (each.known.near[margin] || kept(each, margin) === "not known" ? "" : ", but not known at this size and length"),
      ].forEach((text) => row.append(element("td", text)));
      const cell = element("td", dense ? "–" : "");
      if (!dense) cell.append(lines(each.known.evidence));
      row.append(cell);
      body.append(row);
    });
    shown.append(top, body);
    box.append(shown);
    return box;
  }

  function command(text) {
    const line = element("p", "Ask the planner yourself: ");
    const copy = element("button", "Copy");
    copy.type = "button";
    copy.addEventListener("click", async () => {
      await navigator.clipboard?.writeText(text);
      copy.textContent = "Copied";
    });
    line.append(element("code", text), " ", copy);
    return line;
  }

  function answer() {
    const key = asked.map((name) => form.elements[name].value).join("|");
    const margin = form.elements.margin.selectedIndex;
    const found = data.points[key];
    out.replaceChildren();
    place.replaceChildren();
    if (!found) {
      const [model, cluster, nodes, link, latency, precision] = key.split("|");
      out.append(element("p", "Not known: this was not computed beforehand."));
      out.append(command(`edgc plan --model ${model} --cluster ${cluster} --nodes ${nodes} --link ${link}${latency && ` --latency ${latency}`} --precision ${precision}`));
      return;
    }
    if (found.note) {
      out.append(element("p", `No answer: ${found.note}.`), command(found.command));
      return;
    }
    const [model, cluster, nodes] = key.split("|");
    const choices = read(found, data.known[[model, cluster, nodes].join("|")]);
    const [safe, fastest] = choose(choices, margin);
    if (safe) out.append(...sentence(safe, margin, safe.known.near[margin] ? "the fastest that is known to keep the loss" : "the fastest that keeps the loss where that was measured, which is not at this size and length"));
    else out.append(element("p", "No method is known to keep the loss so closely."));
    if (safe && verdict(safe) === "does not pay") out.append(element("p", "None that keeps the loss saves time here: stay with a dense exchange."));
    if (fastest && fastest !== safe) out.append(...sentence(fastest, margin, "the fastest of all"));
    out.append(element("p", `Forecast for ${found.layout}, with ${found.source} rates. Nothing was measured on such a cluster.`, "sure"), command(found.command));
    place.append(table(choices, margin));
  }

  // Only precisions that the chosen GPUs have.
  function precisions() {
    const there = new Set(Object.keys(data.points).map((key) => key.split("|")).filter((key) => key[1] === form.elements.cluster.value).map((key) => key[5]));
    [...form.elements.precision.options].forEach((option) => { option.disabled = option.hidden = !there.has(option.value); });
    if (form.elements.precision.selectedOptions[0].disabled) form.elements.precision.value = [...there][0];
  }

  form.addEventListener("change", () => { precisions(); answer(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.margin.value = [...form.elements.margin.options][2].value;
  precisions();
  answer();
}
