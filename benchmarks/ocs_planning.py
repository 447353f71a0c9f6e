"""Time and quality of OCS plans: five traffic shapes, 16 to 4096 GPUs, 4 to 32 switches.

    python benchmarks/ocs_planning.py [--gpus N ...] [--switches Q ...] [--shapes SHAPE ...]

Each time is that of the fastest of five whole `plan` calls. Columns:

* plan: without a previous plan; again: the same demand, continuing; drift: each demand changed by up
  to 25 %, continuing [ms];
* of bound: least capacity / demand over its LP bound, both for the pairs that have a circuit;
* circuits: of the N Q that there are; unserved: of the demanded pairs;
* stay: circuits that the drifted plan leaves alone, of those that both plans have.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import attrs
import numpy as np
from sipml_ocs import OcsPlan, plan

from sipml_core.model import TrafficMatrix
from sipml_core.scheduling import port_bound

LINK_GBPS = 100.0
HEADINGS = "| shape | N | Q | pairs | plan | again | drift | of bound | circuits | unserved | stay |"


def from_shifts(gpus, shifts, weight):
    """Every GPU sends to those at some distances along the order."""
    shifts = np.array(shifts)
    src = np.repeat(np.arange(gpus), len(shifts))
    dst = (src + np.tile(shifts, gpus)) % gpus
    keep = src != dst
    return TrafficMatrix.from_pairs(gpus, src[keep], dst[keep], np.ravel(weight)[keep])


def band(gpus, switches, rng):
    """Algorithm 1: neighbours in the order on both sides, nearer ones more, and a data-parallel ring."""
    side = max(1, switches // 4)
    shifts = [*range(1, side + 1), *range(-side, 0), max(gpus // 4, 1)]
    weight = rng.uniform(0.1, 1, (gpus, len(shifts))) / np.abs(np.r_[shifts[:-1], 1])
    return from_shifts(gpus, shifts, weight)


def ring(gpus, switches, rng):
    """Pure data parallelism: one neighbour, all the same."""
    return from_shifts(gpus, [1], np.ones(gpus))


def random_peers(gpus, switches, rng):
    """Q/2 random peers each way, log-normal demands."""
    peers = max(1, switches // 2)
    dst = np.concatenate([rng.permutation(gpus) for _ in range(peers)])
    src = np.tile(np.arange(gpus), peers)
    keep = src != dst
    return TrafficMatrix.from_pairs(gpus, src[keep], dst[keep], rng.lognormal(0, 1, keep.sum()))


def groups_of(gpus, size, rng):
    src, other = np.divmod(np.arange(gpus * size), size)
    dst = src // size * size + other
    keep = (src != dst) & (dst < gpus)
    return TrafficMatrix.from_pairs(gpus, src[keep], dst[keep], rng.uniform(0.5, 1, keep.sum()))


def groups(gpus, switches, rng):
    """All-to-all in groups of Q/2: as many peers as half the links."""
    return groups_of(gpus, max(2, switches // 2), rng)


def crowded(gpus, switches, rng):
    """All-to-all in groups of 2 Q: more peers than links."""
    return groups_of(gpus, 2 * switches, rng)


SHAPES: dict[str, Callable[..., TrafficMatrix]] = {
    "band": band, "ring": ring, "random": random_peers, "groups": groups, "crowded": crowded,
}  # fmt: skip


def timed(call: Callable[[], OcsPlan]) -> tuple[OcsPlan, float]:
    """The plan, and the time of the fastest of five calls. [ms]"""
    times_ms = []
    for _ in range(5):
        start = time.process_time()
        made = call()
        times_ms.append(1e3 * (time.process_time() - start))
    return made, min(times_ms)


def served_by(made: OcsPlan) -> TrafficMatrix:
    """The demanded pairs that have a circuit."""
    demand = made.traffic
    served = made.capacity_gbps(demand.src, demand.dst) > 0
    return TrafficMatrix.from_pairs(
        demand.gpus, demand.src[served], demand.dst[served], demand.demand[served]
    )


def measure(shape: str, gpus: int, switches: int) -> dict[str, float | str | int]:
    rng = np.random.default_rng(0)
    traffic = SHAPES[shape](gpus, switches, rng)
    drifted = attrs.evolve(traffic, demand=traffic.demand * rng.uniform(0.8, 1.25, traffic.pairs))

    def planned(demand: TrafficMatrix, previous: OcsPlan | None) -> tuple[OcsPlan, float]:
        return timed(lambda: plan(demand, switches=switches, link_gbps=LINK_GBPS, previous=previous))

    first, first_ms = planned(traffic, None)
    _, again_ms = planned(traffic, first)
    later, drift_ms = planned(drifted, first)
    for made in (first, later):
        made.check()
    in_both = np.minimum(later.circuits, first.capacity_gbps(later.src, later.dst) / LINK_GBPS).sum()
    return {
        "shape": shape,
        "N": gpus,
        "Q": switches,
        "pairs": traffic.pairs,
        "plan": first_ms,
        "again": again_ms,
        "drift": drift_ms,
        "of bound": first.served_ratio / port_bound(served_by(first), LINK_GBPS * switches),
        "circuits": first.circuits.sum() / (gpus * switches),
        "unserved": len(first.unserved_src) / traffic.pairs,
        "stay": later.kept.sum() / max(in_both, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--switches", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    asked = parser.parse_args()
    print(HEADINGS)
    print("|" + "---|" * HEADINGS.count(" |"))
    for shape in asked.shapes:
        for gpus in asked.gpus:
            for switches in asked.switches:
                row = measure(shape, gpus, switches)
                cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
