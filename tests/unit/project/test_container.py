"""The images' definitions: what can be held against them without building one."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from typer.main import get_command

from edgc.cli import app
from edgc.suite.config import Experiment, available

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "slurm" / "container"
DOCKERFILE, DEFINITION, IGNORED, INSTALL, CHECK, README = (
    (FOLDER / name).read_text(encoding="utf-8")
    for name in ("Dockerfile", "edgc.def", "Dockerfile.dockerignore", "install.sh", "check.sh", "README.md")
)
TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
WANTED = [path for path in TRACKED if not path.startswith("results/") and (ROOT / path).is_file()]
HOME = "/opt/edgc"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(name, arguments) of every instruction, continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def sections(definition: str) -> dict[str, list[str]]:
    """Lines of every section of an Apptainer definition, without comments; those before the first are `header`."""
    found: dict[str, list[str]] = {"header": []}
    name = "header"
    for line in map(str.strip, definition.splitlines()):
        if line.startswith("%"):
            name = line[1:]
            found[name] = []
        elif line and not line.startswith("#"):
            found[name].append(line)
    return found


def test_the_dockerfile_pins_its_image_copies_what_is_there_and_does_not_run_as_root() -> None:
    steps = instructions(DOCKERFILE)
    assert re.fullmatch(r"[a-z./-]+:(?!latest)[\w.-]+", dict(steps)["FROM"])
    copied = [path for name, rest in steps if name == "COPY" for path in rest.split()[:-1]]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    assert dict(steps)["USER"] not in ("root", "0")  # the last one counts
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert steps[-1][0] == "CMD"
    assert json.loads(steps[-1][1])[0] in scripts


def test_the_definition_has_the_same_image_and_copies_all_that_git_tracks() -> None:
    parts = sections(DEFINITION)
    assert parts["header"] == ["Bootstrap: docker", f"From: {dict(instructions(DOCKERFILE))['FROM']}"]
    copied = dict(line.split() for line in parts["files"])
    assert copied == {path: f"{HOME}/{path}" for path in copied}
    assert copied.keys() >= {path.split("/")[0] for path in WANTED}
    assert all((ROOT / path).exists() for path in copied)


def test_both_install_and_check_with_the_same_scripts() -> None:
    runs = [rest for name, rest in instructions(DOCKERFILE) if name == "RUN"]
    assert runs == ['slurm/container/install.sh "$BUILD"', "slurm/container/check.sh"]
    parts = sections(DEFINITION)
    tracked = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for link in re.findall(r"^120000 \S+ 0\t(.*)$", tracked, re.MULTILINE):
        assert f"rm -r {link} && ln -s {(ROOT / link).readlink()} {link}" in parts["post"]
    assert parts["post"][-1] == "slurm/container/install.sh {{ BUILD }}"
    assert parts["test"] == [f"{HOME}/slurm/container/check.sh"]
    assert parts["environment"] == [f"export PATH={HOME}/.venv/bin:$PATH"]
    assert ("ENV", f"PATH={HOME}/.venv/bin:$PATH") in instructions(DOCKERFILE)
    for script in ("install.sh", "check.sh"):
        assert (FOLDER / script).stat().st_mode & 0o111, f"{script} can be executed"
        subprocess.run(["sh", "-n", str(FOLDER / script)], check=True)


def test_what_is_installed_is_what_the_readme_asks_for() -> None:
    asked = re.search(r"needs only git, make, a C compiler and Python ≥ 3\.11", (ROOT / "README.md").read_text("utf-8"))
    assert asked, "then install.sh has to change, too"
    install = re.sub(r"\\\n\s*", " ", INSTALL)
    packages = re.findall(r"apt-get install (.*)", install)
    assert len(packages) == 1
    assert {"--yes", "--no-install-recommends"} <= set(packages[0].split())
    assert {"git", "make", "gcc", "libc6-dev", "python3-venv", "python3-dev"} <= set(packages[0].split())
    assert "rm -rf /var/lib/apt/lists/*" in install.splitlines()
    targets = re.findall(r"^(.*)make (\w+) BUILD=", install, re.MULTILINE)
    assert targets == [("PIP_NO_CACHE_DIR=1 ", "setup")]
    assert re.search(r"^setup:.*BUILD=cpu\|cuda", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"^edgc (\w+)", CHECK, re.MULTILINE)) <= set(get_command(app).commands)  # type: ignore[attr-defined]


def ignored(path: str) -> bool:
    """Whether a path or a folder it is in is left out of Docker's context."""
    patterns = [line for line in IGNORED.splitlines() if line and not line.startswith("#")]
    whole = "|".join(re.escape(p).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*") for p in patterns)
    return re.fullmatch(f"(?:{whole})(?:/.*)?", path) is not None


def test_docker_copies_what_git_tracks_and_nothing_else() -> None:
    """Else git would find files missing in the image, and its manifests would say that it was changed."""
    assert [path for path in WANTED if ignored(path)] == []
    untracked = [line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()]
    for pattern in untracked:
        if not pattern.startswith(("#", "!")):
            assert ignored(pattern.replace("*", "x")), pattern
    assert all(
        map(ignored, ("results/published/smoke", "edgc/core/ops/__pycache__/x.pyc", ".git/config", ".venv/bin/python"))
    )
    assert not ignored(".git/HEAD")
    removed = next(line for line in sections(DEFINITION)["post"] if line.startswith("rm -rf"))
    assert all(map(ignored, shlex.split(removed)[2:])), "the definition leaves out the same parts of .git"


def test_the_readme_names_what_exists() -> None:
    for path in re.findall(r"slurm/container/[\w.]+", README):
        assert (ROOT / path).is_file(), path
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (FOLDER / target).exists(), target
    assert set(re.findall(r"experiment=([a-z0-9-]+)", README)) <= set(available(Experiment))
    rule = (ROOT / "workflow/rules/container.smk").read_text("utf-8")
    assert 'os.environ.get("EDGC_CONTAINER", "edgc.sif")' in rule
    assert "EDGC_CONTAINER" in README
    assert "edgc.sif slurm/container/edgc.def" in README, "what it builds is what the workflow looks for"
