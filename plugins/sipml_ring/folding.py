"""Traffic that repeats round the ring is planned for one period, and the plan turned round.

All of a job's groups usually want the same at the same time. A plan for one period, its circuits turned
by every multiple of the period, is a plan of the whole ring: no two images of a circuit meet, for none
reaches further than a period. By symmetry its bound (`RingPlan.bound_ratio`) is that of the whole ring.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.ringplan import RingPlan

#: Demands closer than this, relatively, are images of each other but for rounding.
SAME_DEMAND = 1e-9


def planned_period(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> int:
    """The least of `control.periods` after which demands, and the plan in force, repeat. [GPUs]"""
    least = 1 if previous is None else previous.period
    for period in control.periods:
        if period % least == 0 and repeats(control, traffic, period):
            return period
    return control.segments


def repeats(control: RingCircuits, traffic: TrafficMatrix, period: int) -> bool:
    """Whether a turn by `period` GPUs takes the demands to themselves."""
    images, src = control.segments // period, traffic.src
    pairs = np.bincount(src, minlength=control.segments).reshape(images, period)
    sent = np.bincount(src, traffic.demand, control.segments).reshape(images, period)
    if (pairs != pairs[0]).any() or not _same(sent):
        return False
    ahead = (traffic.dst - src) % control.gpus
    order = np.lexsort((ahead, src))
    ahead = ahead[order].reshape(images, -1)
    return bool((ahead == ahead[0]).all()) and _same(traffic.demand[order].reshape(images, -1))


def _same(values: NDArray[np.float64]) -> bool:
    return bool((np.abs(values - values[0]) <= SAME_DEMAND * values[0]).all())


def first_period(traffic: TrafficMatrix, period: int) -> TrafficMatrix:
    """Demands of the first GPUs; the rest are their images."""
    rows = int(np.searchsorted(traffic.src, period))
    return TrafficMatrix(
        gpus=traffic.gpus, src=traffic.src[:rows], dst=traffic.dst[:rows], demand=traffic.demand[:rows]
    )


def first_circuits(circuits: kernel.Circuits | None, period: int) -> kernel.Circuits | None:
    """Circuits that start at the first GPUs."""
    if circuits is None:
        return None
    rows = int(np.searchsorted(circuits.src, period))
    count = int(np.searchsorted(circuits.pair, rows))
    return kernel.Circuits(
        src=circuits.src[:rows],
        dst=circuits.dst[:rows],
        pair=circuits.pair[:count],
        direction=circuits.direction[:count],
        index=circuits.index[:count],
    )


def turned_round(plan: RingPlan, control: RingCircuits, traffic: TrafficMatrix) -> RingPlan:
    """A plan of one period as a plan for `control`, whose traffic is `traffic`."""
    images = control.segments // plan.control.segments
    turn = np.arange(images)[:, None] * plan.control.segments

    def keys(src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
        """src * gpus + dst of all images. [images * pairs]"""
        return ((src + turn) * control.gpus + (dst + turn) % control.gpus).reshape(-1)

    def each(values: NDArray[np.generic]) -> NDArray[np.generic]:
        """The same value for all images, in the order of their pairs."""
        return np.tile(values, (images,) + (1,) * (values.ndim - 1))[order]

    key = keys(plan.src, plan.dst)
    order = np.argsort(key, kind="stable")
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    pair = row[(np.arange(images)[:, None] * len(plan.src) + plan.circuit_pair).reshape(-1)]
    by_pair = np.argsort(pair, kind="stable")
    old = plan.traffic
    unserved = np.searchsorted(traffic.key, keys(old.src[plan.unserved], old.dst[plan.unserved]))
    by_row = np.argsort(unserved)
    return attrs.evolve(
        plan,
        src=key[order] // control.gpus,
        dst=key[order] % control.gpus,
        gbps=each(plan.gbps),
        kept_gbps=each(plan.kept_gbps),
        dark_us=each(plan.dark_us),
        control=control,
        traffic=traffic,
        demand=each(plan.demand),
        count=each(plan.count),
        circuit_pair=pair[by_pair],
        circuit_direction=np.tile(plan.circuit_direction, images)[by_pair],
        circuit_index=np.tile(plan.circuit_index, images)[by_pair],
        unserved=unserved[by_row],
        waited=np.tile(plan.waited, images)[by_row],
    )
