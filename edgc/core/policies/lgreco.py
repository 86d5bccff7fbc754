"""L-GreCo: the amounts with the fewest bytes whose errors together stay within a budget (arXiv 2210.17357).

At the end of every window each parameter l has a table of its error e_l(c) = ‖M − C_c(M)‖² at every candidate amount c,
and of the bytes b_l(c) that it sends. With the default amount d of all parameters the problem is

    minimise Σ_l b_l(c_l)   so that   Σ_l e_l(c_l) ≤ α · Σ_l e_l(d),

solved by dynamic programming over the parameters, with the budget split in `bins`. Here errors are rounded up to bins,
so that the budget always holds. What rounding may cost is bounded: the best uniform amount within the budget is taken
where it sends less. Where no choice keeps the budget (a small α), each parameter has its smallest error.

The paper lets one rank decide; here all agree on the tables and solve the same problem. Its tables are of gradients
accumulated over a window, ours of what the window's last step compressed, so that nothing as large as the gradient is
kept. That errors are added as squares and α = 1 are unconfirmed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgc.core.policies.amounts import Amount, Bits, Rank, Ratio, plain
from edgc.core.policies.ladder import AmountListSettings, LadderPolicy, given
from edgc.core.policies.policy import Context, Observation

Array = NDArray[np.float64]
WIDTHS = (1, 2, 4, 8)  #: bits that codes have


class LGrecoSettings(AmountListSettings):
    """A default amount, and which others may take its place."""

    name: Literal["lgreco"]
    rank: int | None = Field(None, ge=1, description="Default rank: its error is the budget; or give ratio or bits")
    ratio: float | None = Field(None, gt=0, le=1, description="Default share of the elements that travel")
    bits: int | None = Field(None, ge=1, le=32, description="Default bits of every element")
    candidates: None = Field(
        None, description="null: the candidates are the default, and `choices` from `lowest` to `highest`"
    )
    choices: int = Field(
        13, ge=2, description="Ranks in equal steps, or ratios in equal factors; of bits all of 1, 2, 4 and 8 count"
    )
    lowest: float = Field(0.5, gt=0, le=1, description="Smallest candidate, as a multiple of the default")
    highest: float = Field(2.0, ge=1, description="Largest candidate, as a multiple of the default")
    window: int = Field(100, ge=1, description="Steps from one choice to the next")
    alpha: float = Field(1.0, gt=0, description="α: budget of the error, as a multiple of that at the default amount")
    error: Literal["squared"] = Field("squared", description="What is added up: ‖E‖², the whole gradient's error")
    bins: int = Field(10_000, ge=1, description="Steps that the budget is split in")
    start_step: int = Field(0, ge=0, description="Exchanges before this travel dense")
    reads_errors: ClassVar[bool] = True

    def refusals(self) -> Iterator[str]:
        name = given(self, "rank", "ratio", "bits")
        if self.bits and self.bits not in WIDTHS:
            yield f"bits {self.bits}: must be one of {', '.join(map(str, WIDTHS))}"
        if len(self.amounts) < 2:  # which also makes every amount, and so refuses what is none
            yield f"there is nothing to choose: the only candidate is the default, {name}"

    @property
    def default(self) -> Amount:
        """The amount whose error is the budget."""
        return self._amount(self.rank or self.ratio or self.bits or 0)

    @property
    def amounts(self) -> Sequence[Amount]:
        """All candidates, rising, the default among them."""
        middle = self.rank or self.ratio or self.bits or 0
        return [self._amount(value) for value in sorted({middle, *self._values(middle)})]

    def _amount(self, value: float) -> Amount:
        return Ratio(value) if self.ratio else Rank(int(value)) if self.rank else Bits(int(value))

    def _values(self, middle: float) -> Sequence[float]:
        low, high = self.lowest * middle, self.highest * middle
        if self.bits:
            return [width for width in WIDTHS if low <= width <= high]
        if self.ratio:
            return [float(value) for value in np.geomspace(low, min(1.0, high), self.choices)]
        return [max(1, round(value)) for value in np.linspace(low, high, self.choices)]


class LGreco(LadderPolicy):
    """Uniform until the first tables are there. A parameter whose table is not finite keeps its amount."""

    Settings = LGrecoSettings

    def __init__(self, settings: LGrecoSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.candidates = self._amounts
        self._default = self.candidates.index(settings.default)
        self._chosen: dict[str, int] = {}  # index of the candidate, by parameter that was ever measured

    def _place(self, name: str) -> int:
        return self._chosen.get(name, self._default)

    def observe(self, observation: Observation) -> None:
        """Choose anew for all parameters with a table."""
        tables = {name: self._errors(observation.squared_error.get(name, ())) for name in self._names}
        known = {name: errors for name, errors in tables.items() if errors is not None}
        if not known:
            return
        costs = [np.array(observation.payload[name], dtype=np.float64) for name in known]
        found = choose([*known.values()], costs, self._default, self._settings.alpha, self._settings.bins)
        self._chosen |= dict(zip(known, found, strict=True))

    def _errors(self, table: Sequence[float]) -> Array | None:
        """What each candidate adds to the sum that is budgeted; None: not measured, not finite, or all zero."""
        whole, *squares = table or (math.nan,)
        if len(squares) != len(self.candidates) or not all(map(math.isfinite, table)) or whole <= 0:
            return None
        return np.maximum(squares, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"chosen": {name: plain(self.candidates[index]) for name, index in self._chosen.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        places = {plain(amount): index for index, amount in enumerate(self.candidates)}
        self._chosen = {name: places[amount] for name, amount in state["chosen"].items()}


def choose(errors: Sequence[Array], costs: Sequence[Array], default: int, alpha: float, bins: int) -> list[int]:
    """Per layer the index of its candidate; `errors` and `costs` have one value a candidate, as many in every layer.

    The budget is α times the error at index `default` everywhere. The sum of costs is no more than that of any uniform
    choice within the budget; nor than the optimum for a budget smaller by one bin a layer. Layers are equal on all
    ranks, and so is what is chosen: of equal costs the smaller index.
    """
    by_layer, prices = np.array(errors), np.array(costs)
    budget = alpha * by_layer[:, default].sum()
    found = cheapest(errors, costs, budget, bins)
    uniform = [np.full(len(errors), index) for index in range(by_layer.shape[1])]
    layers = np.arange(len(errors))
    within = [c for c in uniform if by_layer[layers, c].sum() <= budget]
    options = [*within] if found is None else [np.array(found), *within]
    if not options:
        return [int(index) for index in by_layer.argmin(axis=1)]
    best = min(options, key=lambda c: (prices[layers, c].sum(), by_layer[layers, c].sum()))
    return [int(index) for index in best]


def cheapest(errors: Sequence[Array], costs: Sequence[Array], budget: float, bins: int) -> list[int] | None:
    """A candidate a layer with the least Σ cost and Σ error ≤ `budget`, errors rounded up to budget/bins; None: none.

    Dynamic programming over layers: least[b] is the least cost of the layers so far with at most b bins of error.
    """
    least = np.zeros(bins + 1)
    taken: list[NDArray[np.int16]] = []  # by layer: the candidate that `least` has there
    used = [_bins(each, budget, bins) for each in errors]
    for own_bins, own_costs in zip(used, costs, strict=True):
        total, which = np.full(bins + 1, np.inf), np.zeros(bins + 1, dtype=np.int16)
        for index, (needed, cost) in enumerate(zip(own_bins, own_costs, strict=True)):
            if needed > bins:
                continue
            offered = least[: bins + 1 - needed] + cost
            better = offered < total[needed:]
            total[needed:][better] = offered[better]
            which[needed:][better] = index
        least = total
        taken.append(which)
    if not math.isfinite(least[-1]):
        return None
    left, found = bins, []
    for own_bins, which in zip(reversed(used), reversed(taken), strict=True):
        found.append(int(which[left]))
        left -= int(own_bins[found[-1]])
    return found[::-1]


def _bins(errors: Array, budget: float, bins: int) -> NDArray[np.int64]:
    """Errors in bins, rounded up; more than all of them where the budget cannot hold it."""
    if budget <= 0:
        return np.where(errors > 0, bins + 1, 0)
    return np.ceil(np.minimum(errors / budget, 2.0) * bins).astype(np.int64)
