"""What is wrong with a dry run, in sentences that name file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgc.suite.config import RunSpec
from edgc.tools.dry import tables
from edgc.tools.dry.collectives import disagreements
from edgc.tools.dry.job import Records

#: Where the host may wait for the device inside a step, by file, kind and region, and how often a step at the most.
#: A window is two steps here, so what happens at its end counts half. Replicas that share a process may each do so.
ALLOWED = {
    # the gradients' norm, to stop where it diverged; a second one for what is clipped, where a method updates the rest
    ("edgc/suite/backends/megatron/optimizer.py", "item", "optimizer"): 2,
    ("edgc/hooks/torch_replica.py", "item", "other"): 2,  # the same
    (
        "edgc/core/comm/telemetry.py",
        "synchronize",
        "end",
    ): 1.5,  # a step's end; and two checkpoints of what is on its way
    # a device's clock, where a method reads how long things took: at a window's end, or with an exchange
    ("edgc/core/comm/telemetry.py", "synchronize", "other"): 0.5,
    ("edgc/core/exchange/wire_time.py", "tolist", "entropy"): 0.5,
    ("edgc/core/exchange/observation.py", "tolist", "entropy"): 4,  # a window's end: what all ranks agreed on
    ("edgc/core/exchange/relative_error.py", "tolist", "entropy"): 0.5,
    ("edgc/core/exchange/relative_error.py", "tolist", "observe"): 0.5,
    ("edgc/core/synchronisation/gossip.py", "item", "other"): 1,  # whether a neighbour diverged
    # whether a replica diverged, and how long things took, with an exchange; whether any did, in gossip's last step
    ("edgc/core/synchronisation/synchronisation.py", "tolist", "other"): 1,
}


def needless_waits(specs: Sequence[RunSpec], records: Records) -> dict[str, float]:
    """Places where the host waits inside a step, and how often a step, where it need not, or not so often."""
    found: Counter[tuple[str, str, str]] = Counter()
    places: dict[tuple[str, str, str], str] = {}
    for row in tables.waits(specs, records).itertuples():
        key = str(row.place).rpartition(":")[0], str(row.what), str(row.region)
        found[key] += float(row.a_step)  # type: ignore[arg-type]
        places[key] = str(row.place)
    replicas = max(spec.parallel.data if spec.loop == "stacked" else 1 for spec in specs)
    return {places[key]: times for key, times in found.items() if times > replicas * ALLOWED.get(key, 0)}


def findings(spec: RunSpec, records: Records) -> list[str]:
    """All that is wrong with a run; empty: nothing."""
    of = records[spec.run_id]
    found = [record["error"] for record in of.values() if record["error"]]
    for record in of.values():
        late = [one for one in record["launches"] if one["compiles"] and one["when"]["step"]]
        first = [one for one in record["collectives"] if one["first"] and one["when"]["step"]]
        found += [f"{one['when']['place']}: {one['kernel']} is compiled in step {one['when']['step']}" for one in late]
        found += [f"{one['when']['place']}: a group connects in step {one['when']['step']}" for one in first]
    if not found:
        found += [
            f"{place}: the host waits {times:g} times a step"
            for place, times in needless_waits([spec], records).items()
        ]
        found += disagreements({rank: record["collectives"] for rank, record in of.items()})
    return found
