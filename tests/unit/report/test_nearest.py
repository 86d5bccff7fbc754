"""Whose number is nearest to a question, how far it is, and what a verdict says that rests on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgc.cli import app
from edgc.report.at_scale import at_scale
from edgc.report.gaps import Gap, least_favourable
from edgc.report.nearest import Cited, Known, nearest, published_by_others
from edgc.report.regime import UNKNOWN, Regime, count
from edgc.suite.cluster.question import SITE_METHODS, Question
from edgc.suite.config import CONFIGS, Method, load

ROOT = Path(__file__).parents[3]
FILES = at_scale(CONFIGS)
NANO = Regime(1_071_872, 0.57, 600, replicas=4, period=30)
LARGE = Regime(345_000_000, 20.0, 20_000, replicas=8, period=30)


@pytest.mark.parametrize(
    ("other", "distance", "beyond"),
    [
        (LARGE, 0, []),
        (Regime(690_000_000, 20.0, 20_000, replicas=8, period=30), 1, []),
        (Regime(345_000_000, 2.5, 5_000, replicas=4, period=30), 3 + 2 + 1, ["tokens_a_parameter"]),
        (Regime(345_000_000, 20.0, 20_000, replicas=8, period=240), 3, ["period"]),
        (Regime(345_000_000, 20.0, 20_000, replicas=2, period=30), 2, ["replicas"]),
        (Regime(345_000_000, 20.0, replicas=8, period=30), UNKNOWN, []),  # far, and nothing against it
        (Regime(345_000_000, 20.0, 2_000, replicas=1, period=30, rank_share=0.1), 3.32 + 3, ["steps", "replicas"]),
    ],
)
def test_a_distance_is_in_doublings_over_the_axes_that_matter(
    other: Regime, distance: float, beyond: list[str]
) -> None:
    assert LARGE.distance(other) == pytest.approx(distance, abs=0.01)
    assert LARGE.beyond(other) == beyond


@pytest.mark.parametrize(
    ("method", "regime", "words"),
    [
        ("diloco", LARGE, "335M parameters, 20 tokens a parameter, M = 8, H = 30: +0.057 (paper: arXiv 2503.09799"),
        ("diloco", Regime(10**9, replicas=16, period=30), "914M parameters, M = 16, H = 30: +0.082 (authors: arXiv"),
        ("diloco", Regime(150 * 10**6, replicas=8, period=500), "150M parameters, M = 8, H = 500: +0.020 (paper"),
        # between two sizes that were trained, the law is nearer than either; outside them it is not
        (
            "diloco", Regime(750_000_000, 20.0, replicas=8, period=30),
            "law of 35M to 2.4B parameters, 750M parameters, 20 tokens a parameter, M = 8, H = 30: +0.043 (paper",
        ),
        ("diloco", Regime(35 * 10**8, 20.0, replicas=8, period=30), "2.4B parameters, 20 tokens a parameter, M = 8"),
        ("streaming_diloco", Regime(10**9, 25.0, replicas=2, period=100), "1B parameters, 25 tokens a parameter, M ="),
        ("muloco", Regime(400 * 10**6, replicas=16, period=30), "416M parameters, M = 16, H = 30: +0.072 (authors"),
        # of other methods, where there is none of its own: a family, the same local steps
        ("powersgd", Regime(130 * 10**6, rank_share=1 / 24), "GreedyLoRE under Muon, 130M parameters"),
        ("diloco_int4", LARGE, "DiLoCo, 335M parameters"),
    ],
)  # fmt: skip
def test_the_nearest_number_of_others(method: str, regime: Regime, words: str) -> None:
    first = published_by_others(load(Method, method), regime, FILES)[0]
    assert first.words.startswith(words)
    assert first.judged is not bool(first.other)


@pytest.mark.parametrize("method", ["topk", "int4", "dense_bf16", "localsgd"])
def test_of_most_methods_nobody_published_a_controlled_gap(method: str) -> None:
    assert not any(each.judged for each in published_by_others(load(Method, method), LARGE, FILES))


def test_a_law_carried_outside_its_sizes_says_so_and_nothing_is_judged_by_it() -> None:
    (file,) = (file for file in FILES if file.name == "diloco-laws-2503.09799")
    alone = file.model_copy(update={"gaps": ()})
    (found,) = published_by_others(load(Method, "diloco"), Regime(10**6, replicas=4, period=30), [alone])
    assert found.words.startswith("law, carried from 35M to 1M parameters")
    assert found.gap == pytest.approx(0.160, abs=0.001)
    assert not found.judged


def test_third_party_notes_and_other_baselines_judge_nothing() -> None:
    for file in FILES:
        notes = file.model_copy(update={"kind": "third_party"})
        for gap in (gap for gap in file.gaps if gap.method in SITE_METHODS):
            found = published_by_others(load(Method, gap.method), gap.regime, [notes])
            assert not any(each.judged for each in found)
    (first,) = (file for file in FILES if file.name == "diloco-2311.08105")
    assert [gap.gap for gap in first.gaps if gap.controlled] == [0.0202], "the others saw less data, or were not tuned"


def _own(gap: float, low: float, high: float, regime: Regime = NANO, method: str = "diloco", of: str = "") -> Gap:
    return Gap(method, "gpt2-nano", "peers", gap, low, high, 3, "", "", "", of, bool(of), regime)


def _theirs(gap: float, regime: Regime = LARGE, controlled: bool = True, law: str = "") -> Cited:
    return Cited(gap, gap - 0.001, gap + 0.001, regime, "paper: arXiv 1, Table 1", controlled, law=law)


AT_NANO = (
    "at 1.07M parameters, 0.57 tokens a parameter, 600 steps, M = 4; "
    "not known at 345M parameters, 20 tokens a parameter, 20000 steps, M = 16"
)


@pytest.mark.parametrize(
    ("ours", "theirs", "kept", "verdict"),
    [
        (None, (), "not known", "not known: nobody published it"),
        (None, (_theirs(0.0, controlled=False),), "not known", "not known: none of the numbers is controlled"),
        (_own(0.0, -0.01, 0.01), (), "yes", f"keeps the loss {AT_NANO}"),
        (_own(0.9, 0.8, 1.0), (), "no", f"loses more than 0.02 nats {AT_NANO}"),
        (_own(0.0, -0.1, 0.1), (), "open", f"is not decided against 0.02 nats {AT_NANO}"),
        (_own(0.9, 0.8, 1.0), (_theirs(0.01),), "yes", "keeps the loss at 335M parameters"),
        (_own(0.0, -0.01, 0.01), (_theirs(0.057),), "no", "loses more than 0.02 nats at 335M parameters"),
        (_own(0.0, -0.01, 0.01), (_theirs(0.057, controlled=False),), "yes", f"keeps the loss {AT_NANO}"),
        (_own(0.0, -0.1, 0.1, LARGE), (_theirs(0.057),), "no", "loses more than 0.02 nats at 335M parameters"),
        (None, (_theirs(0.01, law="law of 35M to 2.4B parameters"),), "yes",
         "keeps the loss at 335M parameters by a law of 35M to 2.4B parameters"),
    ],
)  # fmt: skip
def test_a_margin_is_judged_by_the_nearest_controlled_number_and_says_where(
    ours: Gap | None, theirs: tuple[Cited, ...], kept: str, verdict: str
) -> None:
    asked = Regime(345_000_000, 20.0, 20_000, replicas=16, period=30)
    at = Regime(335_000_000, 20.0, replicas=8, period=30)
    theirs = tuple(Cited(**{**vars(each), "regime": at}) for each in theirs)
    known = Known(asked, ours, theirs)
    assert (known.kept(0.02), known.verdict(0.02)) == (kept, verdict)
    assert known.reaches(0.02) == ("not known" not in verdict)


def test_of_ours_the_nearest_counts_and_a_variant_of_another_rank_or_period_is_one() -> None:
    found = [
        (_own(0.5, 0.4, 0.6), True),
        (_own(0.05, 0.04, 0.06, Regime(1_071_872, 20.0, 20_000, replicas=4, period=30)), True),
        (_own(0.1, 0.0, 0.2, Regime(1_071_872, 20.0, 20_000, replicas=4, period=250), "rare", "diloco"), True),
    ]
    asked = Regime(345_000_000, 20.0, 20_000, replicas=4, period=500)
    assert least_favourable(found, asked={"diloco": asked})["diloco"].method == "rare"
    near = Regime(345_000_000, 20.0, 20_000, replicas=4, period=30)
    assert least_favourable(found, asked={"diloco": near})["diloco"].gap == 0.05
    assert least_favourable(found)["diloco"].gap == 0.5, "without a question: the least favourable"


@pytest.mark.parametrize(("margin", "judged"), [(0.02, "far"), (0.1, "near")])
def test_of_ours_one_that_decides_the_margin_that_is_asked_goes_first(
    margin: float, judged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Question("gpt2-345m", "h100x64").scenario()
    near = Gap("topk", "m", "near", 0.03, 0.01, 0.05, 3, "", "", "", "", False, Regime(345_000_000, 20.0, 20_000))
    far = replace(near, experiment="far", gap=0.5, low=0.4, high=0.6, regime=Regime(1_071_872, 0.57, 600))
    monkeypatch.setattr("edgc.report.nearest.published_measured", lambda *_: [(near, False), (far, True)])
    ours = nearest(scenario, ["topk"], ROOT, margin)["topk"].ours
    assert ours is not None
    assert ours.experiment == judged


def test_between_eight_sites_diloco_is_judged_by_what_was_published_at_scale() -> None:
    scenario = Question("gpt2-345m", "internet-a100x32", link="1gbit", latency_ms=20, sites=8).scenario()
    known = nearest(scenario, SITE_METHODS, ROOT / "results" / "published", 0.02)
    said = " ".join(known["diloco"].evidence)
    assert "335M parameters, 20 tokens a parameter, M = 8, H = 30: +0.057 (paper: arXiv 2503.09799" in said
    assert known["diloco"].judge(0.02) in known["diloco"].theirs
    assert "not known at 355M parameters" in known["int4"].verdict(0.02)
    assert known["diloco_int4"].judge(0.02) is known["diloco_int4"].ours, "DiLoCo's numbers are not its own"


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "–"), (950, "950"), (8192, "8.19k"), (999_400, "999k"), (999_600, "1M"), (999.6e6, "1B"), (35e6, "35M")],
)
def test_a_count_is_three_digits_and_a_unit(number: float, words: str) -> None:
    assert count(number) == words


def test_a_plan_without_our_numbers_says_so(tmp_path: Path) -> None:
    asked = ["plan", "--model", "gpt2-345m", "--cluster", "h100x64", "--method", "powersgd", "--results"]
    without, beside = (CliRunner().invoke(app, [*asked, str(of)]).output for of in (tmp_path, ROOT / "results"))
    assert f"Note: no published results under {tmp_path}/published: our own loss gaps are missing" in without
    assert "our own loss gaps are missing" not in beside


@pytest.mark.tier("test")
def test_recommend_prints_it_and_its_json_has_it() -> None:
    asked = ["recommend", "--model", "gpt2-345m", "--sites", "8", "--link", "1gbit", "--latency", "20"]
    asked += ["--iterations", "30000", "--global-batch", "256"]
    run = CliRunner(env={"COLUMNS": "80"})
    text, plain = run.invoke(app, asked).output, json.loads(run.invoke(app, [*asked, "--json"]).output)
    flat = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "355M parameters, 22 tokens a parameter, 30000 steps" in flat
    assert "No loss was measured at this size and length." in flat
    methods = {each["method"]: each for each in plain["methods"]}
    assert [each["gap"] for each in methods["diloco"]["published"]] == [0.057, 0.01]
    assert all(each["words"] in flat for each in methods["diloco"]["published"])
    assert methods[plain["keeps_the_loss"]]["within_margin"] == "yes"
    assert methods[plain["keeps_the_loss"]]["reaches"] is False
