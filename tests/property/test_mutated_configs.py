"""Whatever a file under configs/ holds, it loads, or one screen says what is wrong with it: never a traceback.

Every shipped file is changed in one place at a time: a value of another type, out of range or not a number; a setting
that is missing, unknown, misspelt or another file's; lists and groups swapped, nested, null; YAML that is cut off,
refers to itself or is none. `python -m tests.property.test_mutated_configs` tries all changes, the tests a sample.
"""

from __future__ import annotations

import copy
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from edgc.core.base.errors import UserError
from edgc.report.at_scale import AtScale
from edgc.report.reference_values import EDGC, TAGC, Reference, load_reference
from edgc.suite.config import (
    KINDS,
    Cluster,
    Corpus,
    Experiment,
    Method,
    Model,
    Named,
    Task,
    Variants,
    available,
    load,
    load_experiment,
    paths,
    shared_variants,
)

CONFIGS = Path(__file__).parents[2] / "configs"
SAMPLE = 10  # changes of a file that a test tries
ROWS, COLUMNS = 24, 120  # of a screen

#: Every kind of file with its shipped names. reference/megatron-sc21.yaml is a table, and no command reads it.
FILES = [(kind, path.stem) for kind in (*KINDS, AtScale) for path in sorted({*paths(kind, CONFIGS).values()})]
FILES += [(Reference, EDGC), (Reference, TAGC)]
#: How many of a kind are in tier `check`, and in `test`.
FEW = {"check": 1, "test": 4}

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.5, 2**62, 10**30, 10**400, 1e308, 5e-324, -0.0, float("nan"), float("inf"),
    "", "1", "none", "nope", "../smoke", "a/b", "a\nb\n" * 40, "x" * 5000, "\0", "\ud800", "10**400", b"\xff", {3},
    date(2024, 2, 29), [], {}, [None], [[]], ["nope", "nope"], [1, 1], {"name": "nope"}, {"name": None},
    {"name": "fixed"}, {"name": "lowrank", "rank": 4}, {"of": "nope"}, {"of": []}, {"of": "topk", "title": 3},
    {"method": True}, {"method": {"name": "x"}, "training": {}}, {"training": None}, {"nope": {"nope": {"nope": 1}}},
    {1: 2}, {None: None}, {True: [1]}, {(1, 2): 3},
]  # fmt: skip

TEXTS: dict[str, Callable[[str], str | bytes]] = {
    "nothing": lambda text: "",
    "a comment": lambda text: "# nothing else",
    "a list": lambda text: "".join(f"- {line}\n" for line in text.splitlines() if line and line[0].isalpha()),
    "a number": lambda text: "7",
    "a word": lambda text: "name",
    "two documents": lambda text: f"{text}\n---\n{text}",
    "twice": lambda text: f"{text}\n{text}",
    "in itself": lambda text: f"{text}\nvariants: &a {{x: *a}}\noverrides: *a\n",
    "a list in itself": lambda text: f"{text}\nmethods: &a [*a]\n",
    "all of it in itself": lambda text: f"&a\n{text}\ntraining: *a\noverrides: {{dense: *a}}\n",
    "an anchor twice": lambda text: f"{text}\nseeds: &a [1]\nmethods: &a [dense]\nmodels: *a\n",
    "an unknown alias": lambda text: f"{text}\ntitle: *nowhere\n",
    "aliases of aliases": lambda text: f"{text}\noverrides:\n{_aliases(30)}",
    "merged with nothing": lambda text: f"{text}\n<<: 3\n",
    "a hundred levels": lambda text: f"{text}\noverrides: {'{a: ' * 100}1{'}' * 100}\n",
    "ten thousand levels": lambda text: f"{text}\noverrides: {'[' * 10_000}",
    "an endless number": lambda text: f"{text}\nseeds: [{'9' * 5000}]\n",
    "an endless hexadecimal number": lambda text: f"{text}\nseeds: [0x{'f' * 5000}]\n",
    "no date": lambda text: f"{text}\ntitle: 2024-13-45\n",
    "a number that is none": lambda text: f"{text}\nminutes: !!int none\n",
    "yes or no that is neither": lambda text: f"{text}\nminutes: !!bool perhaps\n",
    "a time that is none": lambda text: f"{text}\nminutes: !!timestamp none\n",
    "an object of Python's": lambda text: f"{text}\ntitle: !!python/object/apply:os.getcwd []\n",
    "a group as a key": lambda text: f"{text}\n? {{a: 1}}\n: 2\n",
    "a tab": lambda text: text.replace(": ", ":\t\t", 3).replace("\n", "\n\t", 2),
    "a control character": lambda text: f"{text}\ntitle: \a\n",
    "not UTF-8": lambda text: f"{text}\ntitle: é\n".encode("latin-1", "replace"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "bytes": lambda text: bytes(range(256)),
}


class Change(NamedTuple):
    """A changed file: what was done to it, and what makes it so."""

    what: str
    text: Callable[[], str | bytes]


def changes(kind: type[Named], name: str) -> Iterator[Change]:
    """All changes of a file, always the same ones in the same order."""
    text = paths(kind, CONFIGS)[name].read_text(encoding="utf-8")
    yield from (Change(what, partial(change, text)) for what, change in TEXTS.items())
    yield from (Change(f"cut off at {at}", lambda at=at: text[:at]) for at in range(1, len(text), 7))
    yield from (
        Change(f"without {text[at]!r} at {at}", lambda at=at: text[:at] + text[at + 1 :]) for at in _marks(text)
    )
    values = _plain(kind, name)
    for place in _places(values):
        yield from _changed(values, place)
    for other in available(kind, CONFIGS):
        for key, value in _plain(kind, other).items():
            yield Change(f"{key} of {other}", partial(_dumped, values, (key,), value))


@cache
def _plain(kind: type[Named], name: str) -> dict[str, Any]:
    return yaml.safe_load(paths(kind, CONFIGS)[name].read_text(encoding="utf-8"))


def _aliases(levels: int) -> str:
    return "  a0: &a0 {x: 1}\n" + "".join(f"  a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, levels))


def _marks(text: str) -> list[int]:
    return [at for at, character in enumerate(text) if character in ":{}[],\"'-"][::3]


def _places(values: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    entries = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in entries:
        yield from _places(value, (*above, key))


def _changed(values: Any, place: tuple[Any, ...]) -> Iterator[Change]:
    """All changes of what is at a place."""
    at = ".".join(map(str, place)) or "everything"
    value = values
    for key in place:
        value = value[key]
    others = {f"= {each!r:.40}": each for each in VALUES}
    others |= {"in a list": [value], "in a group": {"name": value}, "twice": [value, value], "as text": str(value)}
    if isinstance(value, dict):
        others |= {
            "as a list": [*value.values()],
            "as names": [*value],
            "turned": {str(v): k for k, v in value.items()},
        }
        others |= {f"and an unknown one = {new!r:.40}": value | {"nope": new} for new in (1, {}, {"nope": 1})}
        others |= {f"less {key}": {k: v for k, v in value.items() if k != key} for key in value}
        others |= {f"{key} misspelt": {f"{k}x" if k == key else k: v for k, v in value.items()} for key in value}
    if isinstance(value, list):
        others |= {"as a group": {str(n): each for n, each in enumerate(value)}, "backwards": value[::-1]}
        others |= {"and more": [*value, "nope"], "doubled": value * 2}
    yield from (Change(f"{at} {what}", partial(_dumped, values, place, other)) for what, other in others.items())


def _dumped(values: Any, place: tuple[Any, ...], value: Any) -> str:
    """The values as YAML, with another one at a place."""
    return yaml.dump(_replaced(values, place, value), Dumper=_Dumper, sort_keys=False)


def _replaced(values: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    changed = copy.copy(values)
    inner = changed.get(place[0]) if isinstance(changed, dict) else changed[place[0]]
    changed[place[0]] = _replaced(inner, place[1:], value)
    return changed


class _Dumper(yaml.SafeDumper):
    """Writes also what a safe file cannot hold."""


_Dumper.add_representer(
    tuple, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)
)


def read(kind: type[Named], name: str, configs: Path) -> None:
    """Load a file as the commands do. Raises `UserError` as they do."""
    if kind is Experiment:
        experiment = load_experiment(name, configs)
        assert len({spec.run_id for spec in experiment.runs(configs)}) >= len(experiment.names)
    elif kind is Reference:
        load_reference(name, configs)
    else:
        load(kind, name, configs)


@cache
def user(kind: type[Named], name: str) -> str | None:
    """The smallest experiment that reads a file, too, if there is one."""
    for e in experiments():
        variants = shared_variants(CONFIGS) | e.variants
        methods = [*e.methods, *(method for layout in e.layouts for method in layout.methods)]
        of = [variants[method]["of"] for method in methods if method in variants]
        named = {Method: (*methods, *of), Variants: available(Variants, CONFIGS), Model: e.models, Task: e.tasks}
        named |= {Cluster: (e.cluster,), Corpus: (e.corpus,), Experiment: (e.of, *e.predict_from)}
        if name in named.get(kind, ()):
            return e.name
    return None


@cache
def experiments() -> list[Experiment]:
    """Those of few methods first."""
    found = [load(Experiment, name, CONFIGS) for name in available(Experiment, CONFIGS)]
    return sorted(found, key=lambda e: len(e.names) * max(1, len(e.learning_rates)))


def complaints(kind: type[Named], name: str, change: Change, configs: Path) -> list[str]:
    """What is to be said of how a changed file is received; nothing, if it loads or is refused on one screen."""
    path = paths(kind, configs)[name]
    before, text = path.read_bytes(), change.text()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    readers = [(kind, name)] + [(Experiment, other) for other in [user(kind, name)] if other]
    try:
        return [said for reader in readers if (said := _complaint(*reader, configs))]
    finally:
        path.write_bytes(before)


def _complaint(kind: type[Named], name: str, configs: Path) -> str:
    try:
        read(kind, name, configs)
    except UserError as error:
        text = str(error)
        rows = sum(1 + len(line) // COLUMNS for line in text.splitlines())
        named = str(configs) in text or f"experiment {name}" in text
        return "" if named and rows <= ROWS else f"{rows} rows, {'named' if named else 'not named'}: {text[:3000]}"
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(CONFIGS, tmp_path_factory.mktemp("project") / "configs"))


def files() -> list[Any]:
    params, seen = [], Counter[type[Named]]()
    for kind, name in FILES:
        tier = next((tier for tier, few in FEW.items() if seen[kind] < few), "all")
        seen[kind] += 1
        params.append(pytest.param(kind, name, id=f"{kind.folder}/{name}", marks=pytest.mark.tier(tier)))
    return params


@pytest.mark.parametrize(("kind", "name"), files())
def test_a_changed_file_loads_or_is_refused_on_one_screen(kind: type[Named], name: str, configs: Path) -> None:
    every = list(changes(kind, name))
    chosen = random.Random(f"{kind.folder}/{name}").sample(every, min(SAMPLE, len(every)))
    assert {change.what: said for change in chosen if (said := complaints(kind, name, change, configs))} == {}


@pytest.mark.parametrize("what", TEXTS)
def test_a_file_that_is_no_yaml_or_no_settings_is_refused_on_one_screen(what: str, configs: Path) -> None:
    path = paths(Experiment, CONFIGS)["smoke"]
    change = Change(what, partial(TEXTS[what], path.read_text(encoding="utf-8")))
    assert complaints(Experiment, "smoke", change, configs) == []


def main(share: float) -> None:
    """Try this share of all changes of every file, and print what is wrong."""
    rng = random.Random(1)
    tried = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copytree(CONFIGS, Path(folder) / "configs"))
        for kind, name in FILES:
            for change in changes(kind, name):
                if rng.random() < share:
                    tried += 1
                    if said := complaints(kind, name, change, copied):
                        wrong += 1
                        print(f"{kind.folder}/{name}, {change.what}:", *said, sep="\n", flush=True)
    print(f"{tried} changed files, {wrong} received badly")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
