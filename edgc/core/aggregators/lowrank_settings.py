"""PowerSGD's options."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from edgc.core.aggregators.aggregator import AggregatorSettings
from edgc.core.aggregators.factor_means import FactorWire
from edgc.core.aggregators.wire import WireDtype

BLOCK = 128


class LowRankSettings(AggregatorSettings):
    """PowerSGD's options; the rank itself comes from the policy."""

    name: Literal["lowrank"]
    error_feedback: bool = Field(True, description="Add what a step lost to the next step's gradient")
    warm_start: bool = Field(
        True, description="Start from the last step's right factor Q; false: a random Q every step"
    )
    min_compression_ratio: float = Field(
        1.0,
        ge=0,
        description="A matrix travels dense unless rank·(m+n)·this < m·n (PyTorch's hook uses 2); 0: always compressed",
    )
    error_dtype: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Precision of the error feedback memory. fp32: never below the gradient's own; "
        "bf16: half the memory, the residual is rounded up or down at random",
    )
    wire_dtype: WireDtype = Field(
        "fp32",
        description="Precision of all that is sent. fp32: never below the gradient's own; bf16: half the bytes; what "
        "a matrix loses by it stays in the error feedback memory, what travels dense is rounded for good",
    )
    left_wire: FactorWire | None = Field(
        None,
        exclude_if=lambda wire: wire is None,
        description="Integers with block scales for P, averaged in two shots; null: P travels in wire_dtype",
    )
    right_wire: FactorWire | None = Field(
        None, exclude_if=lambda wire: wire is None, description="The same for Q; its rounding stays in the residual"
    )
    block: PositiveInt = Field(
        BLOCK,
        exclude_if=lambda block: block == BLOCK,
        description="Elements of a factor's column that share a scale, for left_wire and right_wire",
    )
    orthogonalise: Literal["cholesky", "householder"] = Field(
        "cholesky",
        description="cholesky: Cholesky-QR twice, and where ill-conditioned Householder (on a GPU with "
        "Triton: Gram–Schmidt); householder: always",
    )

    @property
    def keeps_residual(self) -> bool:
        return self.error_feedback

    @property
    def tells_errors(self) -> bool:
        return True
