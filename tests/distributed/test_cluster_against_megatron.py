"""What the cluster model believes of a job, against the job itself."""

from __future__ import annotations

import pytest

from edgc.suite.cluster.parameters import stage_parameters, vocabulary
from edgc.suite.cluster.step_model import StepModel
from edgc.suite.cluster.transfers import global_rank
from edgc.suite.config import Calibration, RunSpec, load
from tests.distributed.ranks import on_ranks


@pytest.mark.parametrize("degrees", [(1, 1, 1), (2, 2, 1), (1, 2, 2)])
def test_stages_hold_what_the_model_says_on_the_ranks_it_says(degrees: tuple[int, int, int]) -> None:
    tensor, pipeline, data = degrees
    report = on_ranks("stage_shapes.py", tensor * pipeline * data, *map(str, degrees))
    spec = job(*degrees)
    for stage in range(pipeline):
        known = stage_parameters(spec.model, vocabulary(spec), tensor, pipeline, stage)
        assert {name: list(shape) for name, shape in known.items()} == report["stages"][str(stage)]
    for rank, (stage, t, d) in enumerate(report["places"]):
        assert global_rank(stage, d, t, data=data, tensor=tensor) == rank


def test_buckets_are_those_of_megatron() -> None:
    report = on_ranks("engine_losses.py", 2, "1", "1", "2", "dense:overlap")
    spec = job(1, 1, 2)
    overlapped = spec.model_copy(update={"method": spec.method.model_copy(update={"overlap": True})})
    model = StepModel(overlapped, load(Calibration, "v100"))
    assert len(model._cut(model.shapes[0])) == report["dense:overlap"]["buckets"]


def job(tensor: int, pipeline: int, data: int) -> RunSpec:
    """The job of these programs, on nodes with a link."""
    from tests.distributed.programs.common import run_spec

    spec = run_spec(tensor, pipeline, data, "dense")
    return spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"link_gbit": 1.0})})
