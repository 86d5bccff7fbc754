"""How methods look in figures."""

import pytest

from edgc.report.style import look
from edgc.suite.config import load_experiment


@pytest.mark.parametrize("name", ["sharded", "sharded-parameters", "sharded-quality"])
def test_a_method_has_one_colour_in_all_layouts_and_no_two_look_alike(name: str) -> None:
    methods = load_experiment(name).methods
    looks = {method: look(method) for method in methods}
    assert len({*looks.values()}) == len(methods), "a legend tells them apart"
    for method, own in looks.items():
        plain = method.removeprefix("fsdp_").removeprefix("zero1_")
        assert own.colour == look(plain).colour
