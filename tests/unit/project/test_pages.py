"""The pages say what is so: their numbers are the published ones, their links and commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.ledger import write_page
from edgc.report.reference_values import EDGC, TAGC, load_reference
from edgc.report.site.answers import by_rate
from edgc.report.site.contents import one
from edgc.report.tables.links import PAYS
from edgc.suite.cluster.parameters import stage_count, vocabulary
from edgc.suite.config import Experiment, Method, available, load_experiment
from tests.fixtures.pages import PAGES, ROOT, commands, folder
from tests.fixtures.quoted import missing, quotes, quotes_of

#: Snakemake takes seconds to plan; that what it plans exists is tested by itself.
COMMANDS = [
    pytest.param(command, marks=pytest.mark.tier("all" if "snakemake" in command else "test"))
    for command in sorted({command for page in PAGES for command in commands(page)})
]
PUBLISHED = ROOT / "results/published"
AT_MOST = 8_000  #: bytes of README.md: what is read in a minute


def rows(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")]


def test_readme_is_short() -> None:
    assert len(PAGES["README.md"].encode()) <= AT_MOST


def test_tables_are_the_published_ones() -> None:
    blocks = [
        block
        for text in PAGES.values()
        for block in re.findall(r"<!-- (results/published/\S+\.md) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    ]
    assert blocks
    for path, quoted in blocks:
        assert rows(quoted) == rows((ROOT / path).read_text(encoding="utf-8")), path


def test_answers_are_those_that_the_published_numbers_give() -> None:
    answers = re.findall(r"<!-- answer: (\S+) -->\n(.*?)<!-- end -->", PAGES["README.md"], re.DOTALL)
    assert answers
    for name, told in answers:
        said = []
        for rate in by_rate(one(ROOT / "results" / "published" / name, name)):
            do = rate.title if rate.answer.verdict == PAYS else f"{rate.title}, no compression"
            said.append(f"| {rate.spoken} | {do} | {rate.saved} | {rate.gap} |")
        assert rows(told)[2:] == said


def test_the_papers_page_is_what_edgc_site_ledger_writes(tmp_path: Path) -> None:
    page = tmp_path / "edgc.md"
    page.write_text(PAGES["edgc.md"], encoding="utf-8")
    write_page([load_reference(EDGC), load_reference(TAGC)], PUBLISHED, page)
    assert page.read_text(encoding="utf-8") == PAGES["edgc.md"], "edgc site ledger"


def test_numbers_of_the_ledger_are_in_what_it_shows() -> None:
    for entry in load_reference().ledger:
        files = [f"[x](../results/published/{path})" for path in entry.shown]
        for found in quotes_of("edgc.md", f"{entry.ours} {' '.join(files)}"):
            assert not missing(found), entry.ours
        for word in (entry.command or "").split():
            assert "/" not in word or (ROOT / word).exists(), word


@pytest.mark.parametrize("experiment", ["peers-every-step", "peers-muon"])
def test_readme_says_above_its_tables_what_was_trained(experiment: str) -> None:
    spec = load_experiment(experiment).runs()[0]
    model, steps, batch = spec.model, spec.training.iterations, spec.training.global_batch
    parameters = stage_count(model, vocabulary(spec), 1, 1, 0)
    told = " ".join(PAGES["README.md"].partition("<!-- answer")[0].split())
    assert f"{parameters / 1e6:.2f} million parameters (`{model.name}`) trains for {steps} steps of" in told
    assert f"of {batch} sequences × {model.seq_length} tokens" in told
    assert f"{steps * batch * model.seq_length / parameters:.2f} tokens a parameter" in told
    assert f"below +{load_experiment(experiment).judgement.margin_nats} nats" in told


@pytest.mark.parametrize("page", PAGES)
def test_measured_numbers_in_prose_are_in_the_published_file_beside_them(page: str) -> None:
    found = [each for each in quotes() if each.page == page]
    wrong = {each.text: missing(each) for each in found if missing(each)}
    assert not wrong, "link the published table that has these numbers, or leave them out"


def test_a_number_that_no_published_file_has_is_noticed() -> None:
    quoted = next(each for each in quotes() if each.page == "README.md" and each.files)
    assert not missing(quoted)
    assert missing(quoted._replace(numbers=["85.2"])) == ["85.2"]
    assert missing(quoted._replace(files=frozenset())) == quoted.numbers


def test_durations_are_the_same_in_the_makefile_the_pages_and_the_experiments() -> None:
    said = dict(re.findall(r"^\| `(make .+?)` \| .*? \| (.*?) \|$", PAGES["first-run.md"], re.MULTILINE))
    makefile = dict(re.findall(r"^([a-z-]+):.*## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for command, duration in said.items():
        assert duration in makefile[command.split()[1]], command
    words: dict[float, str] = {2: "two minutes", 8: "eight minutes"}
    assert said["make smoke"] == words[load_experiment("smoke").minutes]
    assert said["make smoke EXPERIMENT=smoke-short"] == words[load_experiment("smoke-short").minutes]


def test_the_smoke_trains_what_the_first_page_says() -> None:
    page, smoke, short = PAGES["first-run.md"], load_experiment("smoke"), load_experiment("smoke-short")
    published = rows((ROOT / "results/published/smoke/tables/accuracy.md").read_text(encoding="utf-8"))[2:]
    assert len(smoke.methods) == len(published) == 5
    assert "train five methods" in page
    assert f"the same with two methods, {short.training.iterations} steps" in page
    assert len(short.methods) == 2
    assert f"trains `gpt2-nano` for {smoke.training.iterations} steps" in page


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[page]) if not t.startswith("http")]
    for target in targets:
        assert (folder(page) / target).exists(), target


def test_every_page_can_be_reached() -> None:
    assert {f"docs/{page}" for page in PAGES if page != "README.md"} <= set(
        re.findall(r"\]\((docs/[^)#]+)", PAGES["README.md"])
    )


def test_methods_and_experiments_exist() -> None:
    names = set(get_command(app).commands)  # type: ignore[attr-defined]
    for text in PAGES.values():
        assert set(re.findall(r"`edgc ([a-z-]+)", text)) <= names
        assert set(re.findall(r"experiment=([a-z0-9-]+)", text)) - {"yours"} <= set(available(Experiment))
    listed = re.search(r"\| method \|.*?\n\n", PAGES["methods.md"], re.DOTALL)
    assert listed
    rows = re.findall(r"^\| (`.*?`) \|", listed[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(available(Method)), "and no other"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_work(command: str) -> None:
    """`edgc plan` for real; what takes long, or needs root or a GPU, as far as it goes without running a job."""
    program, *words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    if program == "edgc" and words[:3] == ["lab", "run", "--"]:
        program, *words = words[3:]
    if program == "edgc":
        done = CliRunner().invoke(app, [*words, *([] if words[0] == "plan" else ["--help"])])  # options are read first
        assert done.exit_code == 0, done.output
    elif program == "make":
        run("make", "--dry-run", *words)
    elif program == "snakemake":
        words = [word for word in words if word not in ("--profile", "slurm")]  # which asks SLURM
        run(sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "all", *words)
    else:
        assert (program, *words[:2]) == (".venv/bin/python", "-m", "pytest"), command
        assert all((ROOT / word).exists() for word in words[2:])


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
