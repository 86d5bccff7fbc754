"""`edgc bench ring`: what a ring that sums in bf16 loses with the number of ranks. Simulated in this process.

A rank's gradient is what all ranks have in common and its own noise, both of Student's t with three degrees of freedom,
times a scale an element whose logarithm is normal: tails and scales as gradients have them. The same numbers on every
machine, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
import typer
from torch import Tensor

from edgc.core.base.files import write_json, write_text
from edgc.suite.config.provenance import manifest_base

RANKS = (2, 4, 8, 16, 32, 64, 128, 256)
ELEMENTS, SEEDS, SPREAD = 2**15, 4, 1.0  #: SPREAD: standard deviation of the logarithm of elements' scales
NOISE = {"mostly noise (10 to 1)": 10.0, "as much noise (1 to 1)": 1.0, "mostly alike (1 to 10)": 0.1}

#: In which wire, and how: sums over the first dimension of [ranks, elements].
Sum = Callable[[Tensor], Tensor]


def ring(gradients: Tensor) -> Tensor:
    """What a rank receives and its own gradient, rounded at every rank that a sum passes."""
    total = gradients[0].clone()
    for own in gradients[1:]:
        total += own
    return total


def tree(gradients: Tensor) -> Tensor:
    """Pairs, then pairs of pairs: rounded as often as two divides the number of ranks."""
    while len(gradients) > 1:
        gradients = gradients[0::2] + gradients[1::2]
    return gradients[0]


WIRES: dict[str, Sum] = {
    "fp32 ring": ring,
    "bf16 ring": lambda g: ring(g.bfloat16()),
    "bf16 tree": lambda g: tree(g.bfloat16()),
    "bf16 sent, fp32 sum": lambda g: ring(g.bfloat16().float()),
}


def gradients(ranks: int, noise: float, seed: int) -> Tensor:
    """[ranks, ELEMENTS] in fp32; noise: its size, where what ranks have in common has 1."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, ELEMENTS, generator=draw)

    def student(*shape: int) -> Tensor:
        return normal(*shape) / normal(3, *shape).square().mean(0).sqrt()

    return (SPREAD * normal()).exp() * (student() + noise * student(ranks))


def measured() -> pd.DataFrame:
    """A row for each kind of gradients and number of ranks: each wire's error, as a share of the exact sum."""
    rows = []
    for kind, noise in NOISE.items():
        for ranks in RANKS:
            errors = dict.fromkeys(WIRES, 0.0)
            for seed in range(SEEDS):
                sent = gradients(ranks, noise, seed)
                exact = sent.double().sum(0)
                for wire, total in WIRES.items():
                    errors[wire] += float((exact - total(sent).double()).norm() / exact.norm()) / SEEDS
            rows.append({"gradients": kind, "ranks": ranks, **errors})
    return pd.DataFrame(rows)


def markdown(numbers: pd.DataFrame) -> str:
    """Sentences, the table, and what its columns are."""
    said = []
    for kind, own in numbers.groupby("gradients", sort=False):
        few, many = own.iloc[0], own.iloc[-1]
        said.append(
            f"- {kind}: a bf16 ring loses {100 * few['bf16 ring']:.2f} % with {few['ranks']} ranks and "
            f"{100 * many['bf16 ring']:.2f} % with {many['ranks']}; sent in bf16 and summed in fp32, "
            f"{100 * few['bf16 sent, fp32 sum']:.2f} % and {100 * many['bf16 sent, fp32 sum']:.2f} %."
        )
    heads = ["Gradients", "Ranks", *WIRES]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for kind, ranks, fp32, *others in numbers.itertuples(index=False):
        cells = [f"{fp32:.0e}", *(f"{100 * value:.2f} %" for value in others)]
        lines.append(f"| {kind} | {ranks} | {' | '.join(cells)} |")
    captions = [
        "- Gradients: how large a rank's own noise is against what all ranks have in common.",
        "- Wires: ‖sum − exact sum‖ / ‖exact sum‖ of one element's owner, mean over seeds; the exact one is in fp64.",
    ]
    setting = f"{ELEMENTS} elements, {SEEDS} seeds, simulated in one process; nothing was sent."
    return "\n".join([*said, "", *lines, "", *captions, "", setting, ""])


def run(out: Path | None) -> None:
    """Print the table; with `out`, a CSV, also write it, the table and a manifest beside it."""
    if out is not None:
        write_json(out.with_suffix(".manifest.json"), manifest_base("cpu"))
    numbers = measured()
    typer.echo(markdown(numbers))
    if out is not None:
        write_text(out, numbers.to_csv(index=False, float_format="%.4g"))
        write_text(out.with_suffix(".md"), markdown(numbers))
