"""Methods that are another with changes, by name: an experiment's own, and those of several (configs/variants/).

Those in a layout, too: of the axis `layouts`, they run once more where the optimizer, or everything, is sharded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from edgc.core.base.errors import UserError
from edgc.core.base.settings import Settings
from edgc.core.exchange.parameter_gather import ParameterWire
from edgc.core.settings.reading import CONFIGS, Named, available, load


def _each_names_its_method(variants: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name, changes in variants.items():
        if not isinstance(changes.get("of"), str) or "title" not in changes or "name" in changes:
            raise ValueError(f"variants.{name} needs `of`, a file in configs/methods, and a title; its name is {name}")
    return variants


ByName = Annotated[dict[str, dict[str, Any]], AfterValidator(_each_names_its_method)]


class Variants(Named):
    """Variants of methods that any experiment may name among its `methods` (configs/variants/)."""

    folder: ClassVar[str] = "variants"

    variants: ByName = Field(
        description="By a new name: the file in configs/methods that each is a variant `of`, its title, and what else "
        "differs, e.g. {powersgd_r8: {of: powersgd, title: PowerSGD r = 8, policy: {rank: 8}}}",
    )


def shared_variants(configs: Path = CONFIGS) -> dict[str, dict[str, Any]]:
    """All of them. Raises `UserError` if two files define one."""
    found: dict[str, dict[str, Any]] = {}
    for file in available(Variants, configs):
        variants = load(Variants, file, configs).variants
        if twice := sorted(found.keys() & variants):
            raise UserError(f"variants {file}: {twice[0]} is in another file there, too; leave one of them")
        found |= variants
    return found


#: What a method's name begins with, what its title says, and the loop and `training.shard` that make the layout.
ZERO1, FSDP2 = ("zero1", "ZeRO-1", "megatron", "optimizer"), ("fsdp", "FSDP2", "ddp", "full")
PARAMETERS = {"both": ", parameters too", "bf16": ", parameters in bf16", "int8": ", parameters in eight"}


class InLayout(Settings):
    """Methods in a layout: int8 becomes zero1_int8 or fsdp_int8, with int8 parameters zero1_int8_both."""

    layout: Literal["zero1", "fsdp2"] = Field(
        description="zero1: training.shard optimizer under loop megatron; fsdp2: training.shard full under loop ddp"
    )
    parameter_wire: ParameterWire = Field("exact", description="training.parameter_wire there")
    methods: tuple[str, ...] = Field(min_length=1, description="As in the experiment's `methods`")

    @property
    def _makes(self) -> tuple[str, str, str, str]:
        return ZERO1 if self.layout == "zero1" else FSDP2

    def _wire(self, method: str) -> str:
        """What a name ends with: both, where gradients travel as parameters do."""
        return "both" if method.endswith(self.parameter_wire) else self.parameter_wire.removeprefix("exact")

    def called(self, method: str) -> str:
        """The method's name in this layout."""
        return f"{self._makes[0]}_{method}_{self._wire(method)}".removesuffix("_")

    def applied(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What a method changes of a run, and what the layout does."""
        _, title, loop, shard = self._makes
        name, plain = changes["method"]["name"], changes["method"]["title"]
        added = title + PARAMETERS.get(self._wire(name), "")
        longer = f"{plain[:-1]}, {added})" if plain.endswith(")") else f"{plain} ({added})"
        method = changes["method"] | {"name": self.called(name), "title": longer}
        training = changes["training"] | {"shard": shard, "parameter_wire": self.parameter_wire}
        return {"method": method, "training": training, "loop": loop}

    def loses_as(self, method: str) -> str:
        """Name of what has the same losses: owners get the same parts under FSDP2."""
        return self.model_copy(update={"layout": "fsdp2"}).called(method)
