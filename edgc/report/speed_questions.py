"""Published speeds as questions to the cluster model: what each was run on, and what had to be assumed of it.

A file in configs/predictions/ is about the numbers of the file of that name in configs/reference/at-scale/.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from edgc.core.base.errors import UserError
from edgc.core.base.settings import Settings, merge, validate
from edgc.report.at_scale import Bandwidth, Speed
from edgc.suite.cluster.forecasts import Forecasts, forecast
from edgc.suite.cluster.parameters import GPT2_VOCABULARY
from edgc.suite.cluster.question import Scenario
from edgc.suite.config import CONFIGS, Calibration, Cluster, Method, Model, Named, RunSpec, load

ASKED = "asked"  #: name of what no file in configs/ has
TINY_S = 1e-9  #: compute of a step whose exchange alone is asked for
EXCHANGES = 10  #: of a run that is forecast: more of them change no mean


class Rule(Settings):
    """What holds of published numbers that have certain fields."""

    to: dict[str, Any] = Field({}, description="Fields of a published number, with their values; none: all numbers")
    assumed: str = Field("", description="What the source does not say, in words")
    ask: dict[str, Any] = Field({}, description="Settings of `AskedSetup`, laid over those of earlier rules")


class AskedSetup(Settings):
    """What is asked of the cluster model."""

    model: dict[str, Any] = Field(description="As in a file of configs/models")
    vocabulary: PositiveInt = Field(GPT2_VOCABULARY, description="Rows of the embedding, which is tied")
    cluster: dict[str, Any] = Field(description="As in a file of configs/clusters")
    calibration: dict[str, Any] = Field(description="As in a file of configs/calibrations, or changes `of` one")
    precision: Literal["fp32", "tf32", "fp16", "bf16"] = Field(description="Of compute")
    micro_batch: PositiveInt = Field(1, description="Sequences a device and step")
    compute_s: PositiveFloat | Literal["baseline", "rates"] = Field(
        description="Forward and backward of a step (s); baseline: what the baseline's measured step leaves when its "
        "predicted exchange is taken off; rates: as the calibration's rates say"
    )
    method: dict[str, Any] = Field(description="Changes `of` a file in configs/methods")
    baseline: dict[str, Any] = Field({"of": "dense"}, description="The same of what the source compares with")
    baseline_s: PositiveFloat | None = Field(None, description="Its measured step (s), if in another of the numbers")


class SpeedQuestions(Named):
    """Questions about one source's numbers (configs/predictions/)."""

    folder: ClassVar[str] = "predictions"

    name: str = Field(description="Name of the file in configs/reference/at-scale")
    rules: tuple[Rule, ...] = Field(
        min_length=1, description="In order. A number is asked for if the first one fits it and one gives a method"
    )

    def setup(self, number: Speed | Bandwidth) -> tuple[AskedSetup, str] | None:
        """What is asked for a number, and what was assumed. None: it is not asked for.

        What the number itself says is in no rule: period, rank, bits, rate of the link, compute of a step.
        """
        fields = number.model_dump()
        own = [rule for rule in self.rules if all(fields.get(key) == value for key, value in rule.to.items())]
        asked: dict[str, Any] = {}
        for rule in own:
            asked = merge(asked, rule.ask)
        if self.rules[0] not in own or "method" not in asked:
            return None
        asked = merge(asked, _said(fields, asked["method"].get("policy", {})))
        where = f"{self.name}: {number.words}, {number.where}"
        return validate(AskedSetup, asked, where), "; ".join(rule.assumed for rule in own if rule.assumed)


def _said(fields: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a number itself gives."""
    method = {"synchronisation": {"every": fields["period"]}} if fields["period"] else {}
    amounts = {name: int(fields[name]) for name in ("rank", "bits") if name in policy and fields[name]}
    said: dict[str, Any] = {"method": method | ({"policy": amounts} if amounts else {})}
    if fields.get("link_gbit"):
        said["cluster"] = {"link_gbit": fields["link_gbit"]}
    return said | ({"compute_s": fields["step_s"]} if fields.get("step_s") else {})


def answer(
    setup: AskedSetup, baseline_s: float = math.nan, configs: Path = CONFIGS
) -> tuple[Forecasts, Method, Method]:
    """Forecasts of a set-up, its method and its baseline.

    `baseline_s`: the baseline's measured step, which may give the compute. Raises `UserError` where that takes less
    than its predicted exchange.
    """
    own, baseline = _method(setup.method, configs), _method(setup.baseline, configs)
    methods = [*{each.name: each for each in (load(Method, "dense", configs), baseline, own)}.values()]
    compute = setup.compute_s
    if compute == "baseline":
        exchange = forecast(_scenario(setup, own, TINY_S, configs), methods).by_name(baseline.name).iteration_s
        compute = baseline_s - exchange
        if not compute > 0:
            raise UserError(f"{baseline.title}: a measured step of {baseline_s} s leaves nothing of {exchange:.3g} s")
    return forecast(_scenario(setup, own, compute, configs), methods), own, baseline


def _scenario(setup: AskedSetup, method: Method, compute: float | str, configs: Path) -> Scenario:
    """A run, of `dense`, that takes some exchanges of `method`."""
    rates, machines = dict(setup.calibration), {"name": ASKED} | setup.cluster
    if "of" in rates:
        rates = load(Calibration, rates.pop("of"), configs).model_dump() | rates
    rates = {"source": "assumed", "origin": ASKED, "device_model": ASKED} | rates | {"name": ASKED}
    if not isinstance(compute, str):
        timed = {"forward_s": [compute / 3], "backward_s": [compute * 2 / 3], "optimizer_s": [TINY_S]}
        told = {"model": ASKED, "micro_batch": setup.micro_batch, "precision": setup.precision}
        rates["stages"] = [told | timed]
    devices = validate(Cluster, machines, "cluster").processes
    batches = {"micro_batch": setup.micro_batch, "global_batch": setup.micro_batch * devices}
    own = setup.vocabulary != GPT2_VOCABULARY
    tokenizer = {"kind": "bpe", "vocab_size": setup.vocabulary} if own else {"kind": "gpt2"}
    spec = validate(
        RunSpec,
        {
            "model": validate(Model, {"name": ASKED} | setup.model, "model").model_dump(),
            "method": load(Method, "dense", configs).model_dump(),
            "corpus": {"name": ASKED, "source": "stdlib", "tokenizer": tokenizer},
            "cluster": machines,
            "parallel": {"data": devices},
            "training": {"iterations": EXCHANGES * method.synchronisation.period, **batches},
            "seed": 1,
        },
        "run",
    )
    return Scenario(spec, validate(Calibration, rates, "calibration"), setup.precision)


def _method(changes: Mapping[str, Any], configs: Path) -> Method:
    """A method of configs/methods; with changes it has a name of its own."""
    plain, rest = load(Method, changes["of"], configs).model_dump(), {k: v for k, v in changes.items() if k != "of"}
    name = {"name": f"{changes['of']}_{ASKED}"} if rest else {}
    return validate(Method, merge(plain, rest) | name, f"method {changes['of']}")
