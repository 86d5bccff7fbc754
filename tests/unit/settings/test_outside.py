"""Methods from outside: what works is beside the built-in ones, what is broken is left out by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.limits import HANG

ROOT = Path(__file__).parents[3]
METHOD = (
    "name: {name}\ntitle: T\nsource: S\nsummary: A sentence.\naggregator: {{name: {of}}}\npolicy: {{name: fixed}}\n"
)
AGGREGATOR = """
from typing import Literal
from edgc.core.aggregators.dense import Dense, DenseSettings

class MineSettings(DenseSettings):
    name: Literal["{name}"]

class Mine(Dense):
    Settings = {settings}
"""
FILES = {
    "good/mine.py": AGGREGATOR.format(name="mine", settings="MineSettings"),
    "good/test_mine.py": "raise SystemExit",
    "good/deeper/mine.yaml": METHOD.format(name="mine", of="mine"),
    "good/of_builtin.yaml": METHOD.format(name="of_builtin", of="dense"),
    "faulty/faulty.py": "import no_such_package",
    "faulty/faulty.yaml": METHOD.format(name="faulty", of="dense"),
    "leaves/leaves.py": "raise SystemExit(7)",
    "taken/taken.py": AGGREGATOR.format(name="topk", settings="MineSettings"),
    "twice/twice.py": AGGREGATOR.format(name="mine", settings="MineSettings"),
    "file_taken/powersgd.yaml": METHOD.format(name="powersgd", of="dense"),
    "bare/bare.py": AGGREGATOR.format(name="bare", settings="None"),
    "unread/unread.yaml": METHOD.format(name="unread", of="nothing_has_this_name"),
}
#: What is said of each that is broken.
SAID = {
    "faulty": "ModuleNotFoundError: No module named 'no_such_package'",
    "leaves": "SystemExit: 7",
    "taken": "aggregator topk (Mine): the name is a built-in one's",
    "twice": "aggregator mine (Mine): the name is that of one in edgc_methods_0.mine",
    "file_taken": "the name is a built-in one's",
    "bare": "Settings must be a subclass of AggregatorSettings",
    "unread": "nothing_has_this_name",
    "not_there": "no folder",
}


def edgc(*arguments: str, folder: Path, outside: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "edgc", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "EDGC_METHODS": outside}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("outside")
    for name, text in FILES.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (made / "good/.#mine.py").symlink_to("nowhere")  # an editor's lock, and a folder that is called like a file
    (made / "good/old.yaml").mkdir()
    return made


def test_what_is_broken_is_named_and_the_rest_is_listed(folder: Path) -> None:
    done = edgc("methods", "--json", folder=folder, outside=":".join(["good", *SAID]))
    assert done.returncode == 2
    rows: dict[str, Any] = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["mine"]["from"].startswith("good ")
    assert "from" not in rows["powersgd"]
    assert len(rows) >= 80
    assert not rows.keys() & {"faulty", "unread"}
    said = done.stderr.split("error: ")[1:]
    assert len(said) == len(SAID)
    for name, why in SAID.items():
        (of_it,) = [each for each in said if each.startswith(f"methods of {name}")]
        assert why in of_it


@pytest.mark.tier("test")
def test_what_no_law_could_be_asked_of_is_not_called_right(folder: Path) -> None:
    own = AGGREGATOR.format(name="needy", settings="MineSettings")
    needy = own.replace('    name: Literal["needy"]\n', '    name: Literal["needy"]\n    width: int\n')
    (folder / "needy").mkdir()
    (folder / "needy/needy.py").write_text(needy, encoding="utf-8")
    done = edgc("check", "needy", folder=folder, outside="")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "aggregator needy: width: no default, and no method gives it; bring a YAML file" in done.stderr


@pytest.mark.tier("test")
def test_it_is_found_wherever_methods_are(folder: Path) -> None:
    program = """if True:
        import json
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        import torch
        import edgc.torch_ddp
        from edgc.suite.config import Method
        from edgc.suite.config.provenance import code_base
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
        exchange = edgc.torch_ddp.compress(ddp, method="mine", iterations=3)
        schema = json.dumps(Method.model_json_schema())
        try:
            edgc.torch_ddp.compress(ddp, method="faulty", iterations=3)
        except edgc.UserError as error:
            print(json.dumps([type(exchange.synchronisation.exchange.aggregator).__module__, "MineSettings" in schema,
                              list(code_base()["outside"]), str(error)]))
    """
    env = os.environ | {"PYTHONPATH": str(ROOT), "EDGC_METHODS": "good:faulty"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    module, in_schema, versions, refusal = json.loads(done.stdout.splitlines()[-1])
    assert module == "edgc_methods_0.mine"
    assert in_schema
    assert versions == ["good", "faulty"]
    assert "methods of faulty are left out: ModuleNotFoundError" in refusal
    asked = ("plan", "--model", "gpt2-2.5b", "--cluster", "h100x64", "--method", "mine", "--json")
    planned = edgc(*asked, folder=folder, outside="good")
    assert planned.returncode == 0, planned.stderr
