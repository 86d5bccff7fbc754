"""`edgc bench coding`: what it prints is of the exchange that was asked for."""

from __future__ import annotations

import pytest

from edgc.core.base.errors import UserError
from edgc.suite.training.bench import coding


def test_collectives_and_bytes_are_those_of_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    coding.run("gpt2-pico", ["powersgd", "powersgd_4_4"], ranks=2, rank=4, rounds=2)
    title, dense, coded = capsys.readouterr().out.splitlines()
    assert title.startswith("gpt2-pico, rank 4, 2 ranks")
    assert "1.00 ×, 2 collectives" in dense
    assert "3 collectives" in coded


def test_a_method_that_has_no_rank_is_refused() -> None:
    with pytest.raises(UserError, match="int4 is told no rank"):
        coding.run("gpt2-pico", ["int4"], ranks=2, rank=4, rounds=1)
