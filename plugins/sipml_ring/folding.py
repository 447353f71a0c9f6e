"""Traffic that repeats round the ring is planned for one period, and the plan turned round.

All of a job's groups usually want the same at the same time. A plan for one period, its circuits turned
by every multiple of the period, is a plan of the whole ring: no two images of a circuit meet, for none
reaches further than a period. By symmetry its bound (`RingPlan.bound_ratio`) is that of the whole ring.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring.circuits import RingCircuits
from sipml_ring.ring_plan import RingPlan
from sipml_ring.turning import Turns, turn_into_themselves

#: Demands closer than this, relatively, are images of each other but for rounding.
SAME_DEMAND = 1e-9


def planned_period(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> int:
    """Return the least of `control.periods` after which demands, and the plan in force, repeat. [GPUs]"""
    if not control.periods:
        return control.segments
    least = 1 if previous is None else previous.period
    sent = np.bincount(traffic.src, traffic.demand, control.segments)  # by each GPU
    for period in control.periods:
        first, second = sent[:period], sent[period : 2 * period]
        if period % least or (np.abs(second - first) > 2 * SAME_DEMAND * first).any():
            continue  # before anything is sorted
        if repeats(control, traffic, period):
            return period
    return control.segments


def repeats(control: RingCircuits, traffic: TrafficMatrix, period: int) -> bool:
    """Return whether a turn by `period` GPUs takes the demands to themselves."""
    return turn_into_themselves(
        traffic.src,
        traffic.dst,
        traffic.demand,
        gpus=control.gpus,
        period=period,
        segments=control.segments,
        tolerance=SAME_DEMAND,
    )


def first_period(traffic: TrafficMatrix, period: int) -> TrafficMatrix:
    """Return the demands of the first GPUs; the rest are their images."""
    rows = int(np.searchsorted(traffic.src, period))
    return TrafficMatrix(
        gpus=traffic.gpus, src=traffic.src[:rows], dst=traffic.dst[:rows], demand=traffic.demand[:rows]
    )


def turned_round(plan: RingPlan, control: RingCircuits, traffic: TrafficMatrix) -> RingPlan:
    """Return a plan of one period as a plan for `control`, whose traffic is `traffic`.

    Examples
    --------
    Four GPUs send to their neighbours, those with even numbers three times as much as the others to the
    next one. A period is two GPUs; the pairs of GPU 0, turned by it, are (2, 3) and (2, 1).

    >>> from sipml_ring.fast import ring_fast
    >>> ring = RingCircuits.of(4, 8, circuit_gbps=25.0, reach_hops=1)
    >>> src, dst = [0, 0, 1, 1, 2, 2, 3, 3], [1, 3, 0, 2, 1, 3, 0, 2]
    >>> demand = [3.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0]
    >>> traffic = TrafficMatrix.from_pairs(4, src, dst, demand)
    >>> planned_period(ring, traffic, None)
    2
    >>> one = ring_fast(ring.over(2), first_period(traffic, 2), None)
    >>> list(zip(one.src.tolist(), one.dst.tolist(), one.count.tolist()))
    [(0, 1, [4, 0]), (0, 3, [0, 4]), (1, 0, [0, 4]), (1, 2, [4, 0])]
    >>> whole = turned_round(one, ring, traffic)
    >>> list(zip(whole.src.tolist(), whole.dst.tolist(), whole.count.tolist()))[4:]
    [(2, 1, [0, 4]), (2, 3, [4, 0]), (3, 0, [4, 0]), (3, 2, [0, 4])]
    """
    period, images = plan.control.segments, control.segments // plan.control.segments
    turns = Turns(plan.src, plan.dst, gpus=control.gpus, period=period, images=images)

    # Rows of `traffic` whose pairs wait, in all images.
    unserved, waited = np.empty(0, np.int64), np.empty(0, np.int32)
    if len(plan.unserved):
        old, turn = plan.traffic, np.arange(images)[:, np.newaxis] * period
        src, dst = old.src[plan.unserved] + turn, (old.dst[plan.unserved] + turn) % control.gpus
        unserved = np.searchsorted(traffic.key, (src * control.gpus + dst).reshape(-1))
        by_row = np.argsort(unserved)
        unserved, waited = unserved[by_row], np.tile(plan.waited, images)[by_row]

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        """Return values of pairs of all images one after the other. [images * pairs, ...]"""
        return values.reshape(-1, *values.shape[2:])

    return attrs.evolve(
        plan,
        src=flat(turns.src()),
        dst=flat(turns.dst()),
        gbps=flat(turns.each(plan.gbps)),
        kept_gbps=flat(turns.each(plan.kept_gbps)),
        dark_us=flat(turns.each(plan.dark_us)),
        control=control,
        traffic=traffic,
        demand=flat(turns.each(plan.demand)),
        count=flat(turns.each(plan.count)),
        unserved=unserved,
        waited=waited,
    )
