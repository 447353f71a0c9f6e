"""Time and quality of ring plans: six traffic shapes, 16 to 4096 GPUs, three schedulers, both rules.

    python benchmarks/ring_planning.py [--gpus N ...] [--wavelengths W] [--shapes SHAPE ...]
                                       [--algorithms NAME ...] [--rule continuous|converted]

Each time is that of the fastest of five whole `plan` calls (one where a call takes over a second).
Columns:

* plan: without a previous plan; again: the same demand, continuing; drift: each demand changed by up
  to 10 %, continuing [ms];
* of bound: least capacity / demand over its LP bound;
* total: capacity of all pairs [Tbps];
* stay: capacity that the drifted plan leaves lit.

The last lines give, for each scheduler and shape, the growth of the time with N: the exponent between the
two largest sizes. `ring-ilp` and `ring-mcf` are left out where they would not end in seconds.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import attrs
import numpy as np
from sipml_ring import RingPlan, plan

from sipml_core.model import TrafficMatrix

HEADINGS = "| shape | scheduler | N | pairs | plan | again | drift | of bound | total | stay |"

#: Largest ring that each scheduler is tried on.
MOST_GPUS = {"ring-fast": 4096, "ring-mcf": 256, "ring-ilp": 16}

REACH_HOPS = 16


def at_distances(gpus, distances, weight):
    """Every GPU sends to those at some signed distances; weights of 0 are left out. [gpus, distances]"""
    src = np.repeat(np.arange(gpus), len(distances))
    dst = (src + np.tile(distances, gpus)) % gpus
    keep = (src != dst) & (np.ravel(weight) > 0)
    return TrafficMatrix.from_pairs(gpus, src[keep], dst[keep], np.ravel(weight)[keep])


def both_ways(gpus, most):
    """Distances up to `most` in both directions; the opposite GPU once."""
    most = min(most, gpus // 2)
    back = most - 1 if 2 * most == gpus else most
    return np.concatenate([np.arange(1, most + 1), -np.arange(1, back + 1)])


def sparse(gpus, rng):
    """Half of the neighbours within reach, uniform demands."""
    distances = both_ways(gpus, REACH_HOPS)
    size = (gpus, len(distances))
    return at_distances(gpus, distances, rng.uniform(0.05, 1, size) * (rng.random(size) < 0.5))


def full(gpus, rng):
    """All neighbours within reach, uniform demands: one circuit each takes 136 of 160 wavelengths."""
    distances = both_ways(gpus, REACH_HOPS)
    return at_distances(gpus, distances, rng.uniform(0.05, 1, (gpus, len(distances))))


def band(gpus, rng):
    """Algorithm 1: near neighbours on both sides, nearer ones more, and a data-parallel ring."""
    distances = np.append(both_ways(gpus, 4), max(1, min(REACH_HOPS, gpus // 4)))
    weight = rng.uniform(0.1, 1, (gpus, len(distances))) / np.abs(distances)
    weight[:, -1] = 1.0
    return at_distances(gpus, distances, weight)


def groups(gpus, rng):
    """Log-normal demands inside groups of a model-parallel job, and a data-parallel ring between them."""
    size = max(2, min(REACH_HOPS, gpus // 4))
    src, other = np.divmod(np.arange(gpus * size), size)
    dst = src // size * size + other
    keep = (src != dst) & (rng.random(len(src)) < 0.4)
    ring = np.arange(gpus)
    return TrafficMatrix.from_pairs(
        gpus,
        np.concatenate([src[keep], ring]),
        np.concatenate([dst[keep], (ring + size) % gpus]),
        np.concatenate([rng.lognormal(0, 1, keep.sum()), np.full(gpus, 2.0)]),
    )


def alike(gpus, rng):
    """The same demands inside and from every group: planned once and turned round the ring."""
    size = max(2, min(REACH_HOPS, gpus // 4))
    weight = rng.lognormal(0, 1, (size, size))
    src, other = np.divmod(np.arange(gpus * size), size)
    keep = src % size != other
    ring = np.arange(gpus)
    return TrafficMatrix.from_pairs(
        gpus,
        np.concatenate([src[keep], ring]),
        np.concatenate([(src // size * size + other)[keep], (ring + size) % gpus]),
        np.concatenate([np.tile(weight.reshape(-1), gpus // size)[keep], np.full(gpus, 2.0)]),
    )


def hot(gpus, rng):
    """Log-normal demands to neighbours, four times as much in one eighth of the ring."""
    distances = both_ways(gpus, 8)
    size = (gpus, len(distances))
    weight = rng.lognormal(0, 1, size) * (rng.random(size) < 0.6)
    weight[: gpus // 8] *= 4
    return at_distances(gpus, distances, weight)


SHAPES: dict[str, Callable[..., TrafficMatrix]] = {
    "sparse": sparse, "full": full, "band": band, "groups": groups, "alike": alike, "hot": hot,
}  # fmt: skip


def drift(traffic: TrafficMatrix, rng: np.random.Generator, alike: bool) -> np.ndarray:
    """Factors from 0.9 to 1.1; `alike`: the same for all groups. [pairs]"""
    if not alike:
        return rng.uniform(0.9, 1.1, traffic.pairs)
    factors = rng.uniform(0.9, 1.1, (REACH_HOPS, traffic.gpus))
    return factors[traffic.src % REACH_HOPS, (traffic.dst - traffic.src) % traffic.gpus]


def timed(call: Callable[[], RingPlan]) -> tuple[RingPlan, float]:
    """The plan, and the time of the fastest call. [ms]"""
    times_ms: list[float] = []
    while len(times_ms) < 5 and sum(times_ms) < 1e3:
        start = time.process_time()
        made = call()
        times_ms.append(1e3 * (time.process_time() - start))
    return made, min(times_ms)


def measure(shape: str, algorithm: str, gpus: int, wavelengths: int, rule: str) -> dict[str, object]:
    rng = np.random.default_rng(1)
    traffic = SHAPES[shape](gpus, rng)
    drifted = attrs.evolve(traffic, demand=traffic.demand * drift(traffic, rng, shape == "alike"))
    options = {"time_limit_s": 10.0} if algorithm == "ring-ilp" else {}

    def planned(demand: TrafficMatrix, previous: RingPlan | None) -> tuple[RingPlan, float]:
        return timed(
            lambda: plan(
                demand,
                wavelengths=wavelengths,
                reach_hops=REACH_HOPS,
                algorithm=algorithm,
                wavelength=rule,
                previous=previous,
                **options,
            )
        )

    first, first_ms = planned(traffic, None)
    _, again_ms = planned(traffic, first)
    later, drift_ms = planned(drifted, first)
    return {
        "shape": shape,
        "scheduler": algorithm + (" (proved)" if first.proved else ""),
        "N": gpus,
        "pairs": traffic.pairs,
        "plan": first_ms,
        "again": again_ms,
        "drift": drift_ms,
        "of bound": first.minimum_ratio / first.bound_ratio,
        "total": first.total_gbps / 1e3,
        "stay": later.kept_gbps.sum() / later.gbps.sum(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--wavelengths", type=int, default=320, help="of one GPU, both directions together")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--algorithms", nargs="+", choices=MOST_GPUS, default=list(MOST_GPUS))
    parser.add_argument("--rule", choices=["continuous", "converted"], default="continuous")
    asked = parser.parse_args()
    print(HEADINGS)
    print("|" + "---|" * HEADINGS.count(" |"))
    growth = []
    for shape in asked.shapes:
        for algorithm in asked.algorithms:
            sizes = [gpus for gpus in sorted(asked.gpus) if gpus <= MOST_GPUS[algorithm]]
            times_ms = []
            for gpus in sizes:
                row = measure(shape, algorithm, gpus, asked.wavelengths, asked.rule)
                times_ms.append(row["plan"])
                cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
                print("| " + " | ".join(cells) + " |", flush=True)
            if len(sizes) > 1:
                power = math.log(times_ms[-1] / times_ms[-2]) / math.log(sizes[-1] / sizes[-2])
                growth.append(f"{shape}, {algorithm}: N^{power:.2f} from {sizes[-2]} to {sizes[-1]}")
    print("\n".join(["", *growth]))


if __name__ == "__main__":
    main()
