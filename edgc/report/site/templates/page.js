// Charts are drawn when they come into sight, tables sort and filter, the picker says a method's sentence.
const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// What the page holds compressed, as text.
async function unpacked(element) {
  const packed = Uint8Array.from(atob(element.dataset.packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// What an element holds: inside of it, or compressed.
async function held(element) {
  return JSON.parse(element.dataset.packed ? await unpacked(element) : one("script", element).textContent);
}

// Vega's scripts run when there is something to draw.
let vega;
const drawn = (...asked) => (vega ??= unpacked(one("#vega")).then((text) => new Function(`"use strict";${text}`)())).then(() => vegaEmbed(...asked));

// A chart's data come by column.
function rows(columns) {
  const names = Object.keys(columns);
  return (columns[names[0]] ?? []).map((_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
}

// How a chart looks in so many pixels: its legend is below, in as many columns as have room for the longest name.
const look = (width, longest) => ({
  background: "#fff", font: "system-ui, DejaVu Sans, sans-serif", view: { stroke: null },
  axis: { labelFontSize: 12, titleFontSize: 12, gridColor: "#e5e5e5", titleFontWeight: 500, labelLimit: width < 460 ? 130 : 300 },
  legend: {
    orient: "bottom", columns: Math.max(1, Math.floor(width / (40 + 7 * longest))), labelLimit: 0, symbolOpacity: 1,
    labelFontSize: width < 460 ? 10.5 : 12, symbolSize: width < 460 ? 60 : 90,
  },
});

async function draw(box) {
  const plot = document.createElement("div");
  plot.className = "plot";
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", `${box.dataset.label}. The numbers are in the tables.`);
  const inner = document.createElement("div"); // its marks have roles of their own, which say less than the label
  inner.setAttribute("aria-hidden", "true");
  inner.style.width = "100%";
  plot.append(inner);
  box.append(plot);
  const panels = await held(box);
  const names = Object.keys(panels);
  const panel = (name) => {
    const spec = structuredClone(panels[name]);
    const width = inner.clientWidth;
    for (const [data, columns] of Object.entries(spec.datasets)) spec.datasets[data] = rows(columns);
    for (const view of spec.vconcat ?? []) view.width = width - 90; // only one view alone takes its container's
    const config = look(width, spec.usermeta.longest);
    return drawn(inner, spec, { actions: false, renderer: "svg", config, tooltip: { theme: "light" } });
  };
  if (names.length > 1) {
    const choice = document.createElement("label");
    const list = document.createElement("select");
    names.forEach((name) => list.add(new Option(name)));
    list.addEventListener("change", () => panel(list.value));
    choice.append("Show ", list);
    box.prepend(choice);
  }
  await panel(names[0]);
  box.dataset.drawn = "yes";
}

function show(box) {
  if (box.dataset.begun) return;
  box.dataset.begun = "yes";
  draw(box);
}
const seen = new IntersectionObserver((found) => found.filter((each) => each.isIntersecting).forEach((each) => show(each.target)), { rootMargin: "200px" });
addEventListener("beforeprint", () => all("details[open] .chart, .answer .chart").forEach(show));

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.csv");
  if (!button) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await held(button)], { type: "text/csv" }));
  link.download = button.dataset.file;
  link.click();
  URL.revokeObjectURL(link.href);
});

// A number where a cell begins with one, else its words; what has no value comes last.
function value(cell) {
  const text = cell.textContent.trim();
  if (text === "–" || text === "not known" || text === "") return null;
  const found = text.replaceAll("−", "-").match(/^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/);
  const units = { "Mbit/s": 1, "Gbit/s": 1e3, "kbit/s": 1e-3 };
  const unit = units[text.split(" ")[1]] ?? 1;
  return text === "inf" ? Infinity : found ? Number(found[0]) * unit : text.toLowerCase();
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function sortable(table) {
  all("thead th", table).forEach((head, column) => one("button", head).addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    all("thead th", table).forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = one("tbody", table);
    const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
    const missing = ([key]) => key === null;
    rows.sort((a, b) => (missing(a) || missing(b) ? compare(a[0], b[0]) : falling ? compare(b[0], a[0]) : compare(a[0], b[0])));
    body.append(...rows.map(([, row]) => row));
  }));
}

function filterable(box) {
  const input = one("input", box);
  input?.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    all("tbody tr", box).forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
  });
}

function columns(box) {
  const table = one("table", box);
  all("[data-show]", box).forEach((button) => button.addEventListener("click", () => {
    all("[data-show]", box).forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    table.dataset.shown = button.dataset.show;
  }));
}

function ready(part) {
  all(".box", part).forEach((box) => { sortable(one("table", box)); filterable(box); columns(box); });
  all(".chart", part).forEach((box) => seen.observe(box));
}
ready(document);

// An experiment's pictures and tables are put into the page when it is opened: most never are.
const unfold = (details) => (details.unfolded ??= unpacked(details).then((text) => {
  details.insertAdjacentHTML("beforeend", text);
  ready(details);
}));
all("details[data-packed]").forEach((details) => {
  if (details.open) unfold(details);
  details.addEventListener("toggle", () => unfold(details), { once: true });
});

const picker = one("#picker");
if (picker) {
  const cells = JSON.parse(one("#cells").textContent);
  const say = () => {
    const found = cells.find((each) => each.method === picker.method_.value && each.rate === picker.rate.value);
    const out = one("#picked");
    out.textContent = "";
    if (!found) { out.textContent = "Not measured."; return; }
    const chip = document.createElement("span");
    chip.className = `chip ${found.kind}`;
    chip.textContent = found.verdict;
    const sure = document.createElement("span");
    sure.className = "sure";
    sure.textContent = ` Measured: ${found.sure}.`;
    out.append(chip, ` ${found.sentence}`, sure);
  };
  picker.method_ = one("select[name=method]", picker); // a form's own `method` is something else
  picker.addEventListener("change", say);
  picker.addEventListener("submit", (event) => event.preventDefault());
  say();
}

// A link to an experiment, or to a table in it, opens it.
async function open() {
  const id = decodeURIComponent(location.hash.slice(1));
  await Promise.all(all("details[data-packed]").filter((each) => id.startsWith(`t-${each.id.slice(2)}-`)).map(unfold));
  const target = id && document.getElementById(id);
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", open);
open();
