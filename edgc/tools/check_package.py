"""`edgc check PACKAGE`: the conformance suite on the parts and methods of an outside package or folder."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from edgc.core.base.errors import EXIT_BAD_INPUT, UserError
from edgc.core.settings import outside


def check(name: str) -> int:
    """The exit code: 0 if all laws are kept, 1 if one is broken. In a process of its own, which imports it first.

    `name`: an installed package's, or a folder, which need not be in `EDGC_METHODS`.
    """
    for package in ("pytest", "hypothesis"):
        if find_spec(package) is None:
            raise UserError(f"edgc check: {package} is not installed; pip install pytest hypothesis")
    folders = [each for each in os.environ.get(outside.VARIABLE, "").split(os.pathsep) if each]
    name = next((each for each in folders if Path(each).resolve() == Path(name).resolve()), name)
    if Path(name).is_dir() and name not in (*folders, *(each.name for each in outside.FOUND)):
        folders.append(name)
    environment = os.environ | {outside.VARIABLE: os.pathsep.join(folders), "EDGC_CHECK": name}
    return subprocess.run([sys.executable, "-m", __name__], env=environment, check=False).returncode


def _main() -> int:
    import pytest

    try:
        from edgc.tools.laws.scope import ONLY, defaults

        for word in ONLY.parts if ONLY else ():
            defaults(word)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    assert ONLY is not None
    brought = {f"{word}s": sorted(kinds) for word, kinds in ONLY.parts.items()} | {"methods": sorted(ONLY.methods)}
    print(f"{ONLY.name} {ONLY.version}:", "; ".join(f"{what} {', '.join(n)}" for what, n in brought.items() if n))
    folder = Path(__file__).parent / "laws"
    files = [str(folder / f"{word}_laws.py") for word, kinds in ONLY.parts.items() if kinds or ONLY.methods]
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "-W", "ignore"]
    return int(pytest.main([*options, *files]))


if __name__ == "__main__":
    sys.exit(_main())
