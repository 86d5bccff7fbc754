"""The page says what the published files say: all of it, nothing else, in one file."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from edgc.core.base.errors import UserError
from edgc.report import pictures
from edgc.report.figures import exposed
from edgc.report.site import answers, page
from edgc.report.site.contents import Kept, one, published
from edgc.report.style import LEGEND
from tests.fixtures.pictures import legend
from tests.fixtures.site_page import unfolded, words

pytestmark = pytest.mark.tier("test")
ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "results" / "published"
REPORT = ROOT / "edgc" / "report"


@pytest.fixture(autouse=True)
def _no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vega's scripts say nothing of the results, and take seconds to put together."""
    monkeypatch.setattr(page, "_bundle", lambda folder: "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of everything that is published."""
    results = tmp_path_factory.mktemp("results")
    (results / "published").symlink_to(PUBLISHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_bundle", lambda folder: "")
        target, _ = page.write_site(results)
    return target.read_text(encoding="utf-8")


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Results of which a timing, its losses and a forecast are published."""
    for name in ("links-nano", "quality", "paper-v100-simulated"):
        for part in ("tables", "figures"):
            shutil.copytree(PUBLISHED / name / part, tmp_path / "published" / name / part)
    return tmp_path


def read(results: Path) -> str:
    """What a reader sees of the page, without markup."""
    target, _ = page.write_site(results)
    return words(target.read_text(encoding="utf-8"))


def change(path: Path, where: dict[str, object], **values: object) -> None:
    """Set values in the rows of a CSV where columns have these values."""
    table = pd.read_csv(path)
    rows = (table[list(where)] == pd.Series(where)).all(axis=1)
    assert rows.any()
    for column, value in values.items():
        table.loc[rows, column] = value
    table.to_csv(path, index=False)


def test_every_published_experiment_is_there_with_all_its_tables_and_pictures(whole: str) -> None:
    text, told = unfolded(whole), words(whole)
    for each in published(PUBLISHED):
        assert f'id="e-{each.slug}"' in text
        assert each.title in told
        for table in each.tables:
            assert f'id="t-{each.slug}-{table.name}"' in text, table.csv
        for picture in each.pictures:
            assert f'data-file="{picture.name}.csv"' in text


def test_the_page_is_one_small_file_that_loads_nothing(whole: str) -> None:
    assert len(whole.encode()) < page.MOST_BYTES - 420_000, "with Vega's scripts, which have 0.4 MB, it must fit"
    markup = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", unfolded(whole), flags=re.DOTALL)
    assert not re.findall(r"""(?:src|srcset)\s*=|<link(?! rel="icon" href="data:,")|@import|url\(""", markup)
    assert "default-src 'none'" in markup, "so that a script cannot load anything either"


def test_vegas_scripts_come_out_of_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    made = page._bundle(tmp_path)
    assert "window.vegaEmbed=" in made
    assert page._bundle(tmp_path) == made


def test_a_changed_table_changes_the_page(few: Path) -> None:
    before = read(few)
    assert "37.7 %" not in before
    links = few / "published/links-nano/tables/links.csv"
    change(links, {"method": "edgc_measured_bf16_overlap", "rate": "200mbit"}, step_dense_percent=37.7, step_s=0.001)
    change(few / "published/quality/tables/accuracy.csv", {"method": "edgc"}, loss=4.3217)
    change(few / "published/paper-v100-simulated/tables/claims.csv", {"method": "edgc"}, ours=87.654)
    after = read(few)
    assert "it takes 37.7 % less time" in after, "the first answer"
    assert "4.3217" in after, "a table"
    assert "87.7" in after, "a claim"


def test_a_changed_figure_changes_its_chart(few: Path) -> None:
    path = few / "published/quality/figures/pareto_bytes.csv"
    change(path, {"method": "edgc"}, paired=4.3217)
    page.write_site(few)
    text = unfolded((few / "site/index.html").read_text())
    label = '<div class="chart" data-label="Final loss against bytes">'
    assert "4.3217" in re.search(label + r"<script[^>]*>(.*?)</script>", text)[1]  # type: ignore[index]


@pytest.mark.parametrize("template", sorted(REPORT.glob("site/templates/*.j2")), ids=lambda path: path.name)
def test_no_number_is_typed_into_a_template(template: Path) -> None:
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", template.read_text(), flags=re.DOTALL)
    shown = words(re.sub(r"<code>.*?</code>", "", text))
    assert not re.findall(r"\S*\d\S*", shown.replace("Apache-2.0", ""))


@pytest.mark.parametrize("script", sorted(REPORT.glob("site/templates/*.js")), ids=lambda path: path.name)
def test_no_number_is_typed_into_a_sentence_of_a_script(script: Path) -> None:
    told = re.findall(r'"([^"\n]*)"|`([^`]*)`', re.sub(r"\$\{[^}]*\}", "", script.read_text()))
    assert told
    assert not [one or other for one, other in told if re.search(r"\d", one + other) and " " in (one + other).strip()]


@pytest.mark.parametrize("module", ["site/answers", "site/overviews", "site/form", "site/compare", "recommend"])
def test_no_number_is_typed_into_a_sentence(module: str) -> None:
    tree = ast.parse((REPORT / f"{module}.py").read_text())
    own = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    documented = {id(node.body[0].value) for node in own if isinstance(node.body[0], ast.Expr)}
    told = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]
    assert not [text for text in told if re.search(r"\d", text) and " " in text.strip()]


def test_a_table_shows_eight_columns_at_most_and_all_on_demand(whole: str) -> None:
    wide = 0
    tables = unfolded(whole)
    for table in re.findall(r"<table.*?</thead>", tables, re.DOTALL):
        groups = [re.search(r'class="g(\d+)"', head) for head in re.findall(r"<th scope=\"col\"[^>]*>", table)]
        shown = [group for group in groups if group is None or group[1] == "0"]
        assert len(shown) <= page.COLUMNS
        wide += len(groups) > page.COLUMNS
    assert wide > 10
    assert tables.count('data-show="all"') == wide


def test_a_file_that_lacks_a_younger_column_is_shown_without_it(few: Path) -> None:
    path = few / "published/links-nano/tables/links.csv"
    pd.read_csv(path).drop(columns=["exposed_s", "gap", "gap_sd", "gap_n"]).to_csv(path, index=False)
    table = one(path.parents[1], "links-nano").tables[0]
    assert not {"Exposed (ms)", "Loss gap (nats)"} & set(table.shown.columns)
    assert {"Verdict", "Step (ms)"} <= set(table.shown.columns)
    assert any(sentence.startswith("Exposed communication is unknown") for sentence in table.words)


@pytest.mark.parametrize("name", [path.parents[1].name for path in sorted(PUBLISHED.glob("*/tables/links.csv"))])
def test_every_published_timing_is_told_in_sentences_with_its_negative_control(name: str) -> None:
    told = next(table.words for table in one(PUBLISHED / name, name).tables if table.name == "links")
    assert any("egative control" in sentence for sentence in told)


def test_one_experiment_has_a_page_of_its_own(few: Path) -> None:
    shutil.copytree(few / "published/quality", few / "quality")
    target, headline = page.write_page("quality", few)
    assert target == few / "quality/index.html"
    assert headline in words(target.read_text())
    with pytest.raises(UserError, match="run the experiment first"):
        page.write_page("smoke", few)


def test_what_pays_but_loses_too_much_is_not_recommended(few: Path) -> None:
    timing = Kept("links-nano", few / "published/links-nano", one(few, "links-nano").experiment)
    path = timing.folder / "tables/links.csv"
    table = pd.read_csv(path)
    first = answers.by_rate(timing)[0]
    assert first.answer.verdict == "pays"
    assert table.set_index(["method", "rate"]).loc[(first.method, "20mbit"), "preserved"]
    table.assign(preserved=False).to_csv(path, index=False)
    assert {each.answer.verdict for each in answers.by_rate(timing)} <= {"it depends", "does not pay"}
    assert answers.of_timing(timing).sentence.startswith("No")


def test_the_headline_is_of_the_slowest_and_the_fastest_rate_in_whatever_order_they_stand(few: Path) -> None:
    timing = Kept("links-nano", few / "published/links-nano", one(few, "links-nano").experiment)
    path = timing.folder / "tables/links.csv"
    table = pd.read_csv(path)
    said = answers.of_timing(timing)
    assert " at 20 Mbit/s to " in said.sentence
    table.iloc[::-1].to_csv(path, index=False)
    assert answers.of_timing(timing).sentence == said.sentence
    rates = [each.rate for each in answers.by_rate(timing) if each.answer.verdict == "pays"]
    table[table["rate"].isin(rates)].to_csv(path, index=False)
    assert answers.of_timing(timing).sentence.startswith("Yes, at every rate: ")
    assert answers.of_timing(timing).verdict == "pays"
    table[table["rate"] == rates[0]].assign(noise_points=float("nan")).to_csv(path, index=False)
    assert "nan" not in answers.of_timing(timing).sentence


def test_each_layout_has_its_own_headline(few: Path) -> None:
    path = few / "published/links-nano/tables/choice.csv"
    rows = [
        ("tiny", "DDP", "50mbit", "Four bits", 53.1, "sure"),
        ("tiny", "DDP", "200mbit", "Top-K", 9.2, "one of several"),
        ("tiny", "DDP", "1gbit", "Dense", 0.0, "dense"),
        ("tiny", "FSDP2", "50mbit", "Dense (FSDP2)", 0.0, "dense"),
    ]
    names = ["model", "layout", "rate", "title", "step_dense_percent", "sure"]
    pd.DataFrame(rows, columns=names).assign(device="CPU").to_csv(path, index=False)
    timing = one(few / "published/links-nano", "links-nano")
    assert answers.lead([timing]) is None
    found = answers.headline(timing)
    assert found is not None
    assert found.verdict == "it depends"
    assert "DDP: Four bits 53.1 % at 50 Mbit/s, Top-K 9.2 % at 200 Mbit/s." in found.sentence
    assert found.sentence.endswith("pays with FSDP2.")


@pytest.mark.parametrize("column", ["model", "device"])
def test_seconds_of_several_models_or_machines_recommend_no_method(few: Path, column: str) -> None:
    timing = one(few / "published/links-nano", "links-nano")
    assert answers.lead([timing]) is timing
    path = timing.folder / "tables/links.csv"
    table = pd.read_csv(path)
    pd.concat([table, table.assign(**{column: "another"})]).to_csv(path, index=False)
    assert answers.lead([timing]) is None
    found = answers.headline(timing)
    assert found is None or found.sentence.startswith("Methods that pay")


def test_nothing_is_said_of_a_rate_where_nothing_is_dense_and_nothing_pays(few: Path) -> None:
    timing = Kept("links-nano", few / "published/links-nano", one(few, "links-nano").experiment)
    rates = [each.rate for each in answers.by_rate(timing)]
    path = timing.folder / "tables/links.csv"
    table = pd.read_csv(path)
    slow = table["rate"] == "20mbit"
    table[~slow | ((table["role"] == "other") & ~table["preserved"])].to_csv(path, index=False)
    assert [each.rate for each in answers.by_rate(timing)] == rates[1:]


def test_a_timing_without_a_verdict_has_no_headline(few: Path) -> None:
    timing = Kept("links-nano", few / "published/links-nano", one(few, "links-nano").experiment)
    assert answers.headline(timing)
    path = timing.folder / "tables/links.csv"
    pd.read_csv(path).assign(preserved=False, verdict="too few rounds").to_csv(path, index=False)
    assert answers.headline(timing) is None


def test_a_training_is_told_by_its_verdicts_however_many_methods_have_one(few: Path) -> None:
    """Not by table `credit`, whose first row is one method's against another."""
    training = Kept("quality", few / "published/quality", one(few, "quality").experiment)
    path = training.folder / "tables/accuracy.csv"
    table = pd.read_csv(path)
    baseline, judged = table[table["verdict"] == "baseline"], table[table["verdict"] != "baseline"]
    crowd = [judged.iloc[[1]].assign(method=f"m{n}", title=f"M{n}", verdict="worse") for n in range(9)]
    pd.concat([baseline, judged.iloc[[0]], *crowd]).to_csv(path, index=False)
    shutil.copy(PUBLISHED / "delay-sweep/tables/credit.csv", path.parent)
    found = answers.headline(training)
    assert found is not None
    first = judged.iloc[0]
    assert found.sentence.startswith(f"Loss, {first['verdict']}: {first['title']}; worse: 9 methods.")


def test_a_method_has_one_colour_in_every_chart(few: Path) -> None:
    colours: dict[str, set[str]] = {}
    for each in published(few / "published"):
        for picture in each.pictures:
            for views in pictures.panels(picture.figure, picture.data).values():
                for title, look in pictures._looks([views]).items():
                    if title in set(picture.data.get("title", [])):
                        colours.setdefault(title, set()).add(look.colour)
    assert len(colours) > 5
    assert all(len(own) == 1 for own in colours.values())


@pytest.mark.parametrize("name", ["links", "exposed"])
def test_the_answers_chart_names_dense_and_a_few_methods_that_keep_their_loss(name: str) -> None:
    links = pd.read_csv(PUBLISHED / "links-every-step/tables/links.csv")
    data = pd.read_csv(next((PUBLISHED / "links-every-step").glob(f"*/{name}.csv")))
    (views,) = (exposed.on_links(data) if name == "links" else pictures.panels(exposed.EXPOSED, data)).values()
    named = set(legend(views)) - {exposed.REST}
    choice = pd.read_csv(PUBLISHED / "links-every-step/tables/choice.csv")
    keeping = set(links[links.preserved].title)
    assert set(choice.loc[choice["sure"] != "dense", "title"]) <= named - {exposed.DENSE} <= keeping
    assert exposed.DENSE in named
    assert len(named) < LEGEND, "the range of the others has the last entry"


def test_a_chart_tells_n_and_hardware_on_hover(few: Path) -> None:
    charts = pictures.charts(exposed.on_links(pd.read_csv(few / "published/links-nano/tables/links.csv")))
    told = {
        field["title"]
        for spec in charts.values()
        for layer in spec["layer"]
        for field in layer["encoding"].get("tooltip", [])
    }
    assert {"n (steps)", "n (rounds)", "Hardware", "± noise (points)"} <= told


def test_a_click_in_the_legend_leaves_one_method_strong(few: Path) -> None:
    (spec,) = pictures.charts(exposed.on_links(pd.read_csv(PUBLISHED / "links-every-step/tables/links.csv"))).values()
    assert [param["bind"] for layer in spec["layer"] for param in layer.get("params", [])] == ["legend"]
    faint = [layer["encoding"]["opacity"]["value"] for layer in spec["layer"] if "opacity" in layer["encoding"]]
    assert faint
    assert max(faint) < 0.2
