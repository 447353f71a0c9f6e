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
from sipml_ring.lightpaths import Lightpaths
from sipml_ring.ring_plan import RingPlan

#: Demands closer than this, relatively, are images of each other but for rounding.
SAME_DEMAND = 1e-9


def planned_period(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> int:
    """Return the least of `control.periods` after which demands, and the plan in force, repeat. [GPUs]"""
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
    images = control.segments // period
    rows = traffic.pairs // images  # pairs of one image, if all have as many
    if rows * images != traffic.pairs:
        return False
    src, dst, demand = (values.reshape(images, rows) for values in (traffic.src, traffic.dst, traffic.demand))
    if rows == 0:
        return True
    turns = _Turns(src[0], dst[0], gpus=control.gpus, period=period, images=images)
    if src[0, -1] >= period or (src != turns.src()).any() or (dst != turns.dst()).any():
        return False
    expected = turns.each(demand[0])
    return bool((np.abs(demand - expected) <= SAME_DEMAND * expected).all())


def first_period(traffic: TrafficMatrix, period: int) -> TrafficMatrix:
    """Return the demands of the first GPUs; the rest are their images."""
    rows = int(np.searchsorted(traffic.src, period))
    return TrafficMatrix(
        gpus=traffic.gpus, src=traffic.src[:rows], dst=traffic.dst[:rows], demand=traffic.demand[:rows]
    )


def first_circuits(circuits: Lightpaths | None, period: int) -> Lightpaths | None:
    """Return the circuits of pairs whose source is one of the first GPUs."""
    if circuits is None:
        return None
    rows = int(np.searchsorted(circuits.src, period))
    count = int(np.searchsorted(circuits.pair, rows))
    return Lightpaths(
        src=circuits.src[:rows],
        dst=circuits.dst[:rows],
        pair=circuits.pair[:count],
        direction=circuits.direction[:count],
        index=circuits.index[:count],
    )


class _Turns:
    """The images of sorted pairs under every turn by a period, each image sorted by (src, dst).

    A turn takes pair (src, dst) to (src + period, dst + period), modulo the ring. Destinations that pass
    GPU 0 come first in their row instead of last, and none reaches further than a period. So there are
    three orders: of the first image, of the last, and of all in between.
    """

    def __init__(
        self, src: NDArray[np.int32], dst: NDArray[np.int32], *, gpus: int, period: int, images: int
    ) -> None:
        self._src, self._dst, self._gpus, self.images = src, dst, gpus, images
        #: GPUs by which each image is turned. [images, 1]
        self._turn = np.arange(0, images * period, period, dtype=np.int32)[:, np.newaxis]
        #: Rows of the first image in the order of the second (and those after it), and of the last. [pairs]
        self.middle, self.last = (np.lexsort(((dst + k * period) % gpus, src)) for k in (1, images - 1))

    def src(self) -> NDArray[np.int32]:
        """Return the source of each pair of each image. [images, pairs]"""
        return self._src + self._turn

    def dst(self) -> NDArray[np.int32]:
        """Return the destination of each pair of each image. [images, pairs]"""
        dst = self.each(self._dst) + self._turn
        dst -= (dst >= self._gpus) * np.int32(self._gpus)
        return dst

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of pairs [pairs, ...] for each pair of each image. [images, pairs, ...]"""
        return self.spread(values, values[self.middle], values[self.last])

    def spread(self, first: NDArray[Any], middle: NDArray[Any], last: NDArray[Any]) -> NDArray[Any]:
        """Return values of the first image, of each in between and of the last. [images, ...]"""
        result = np.empty((self.images, *first.shape), first.dtype)
        result[0], result[1:-1], result[-1] = first, middle, last
        return result


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
    turns = _Turns(plan.src, plan.dst, gpus=control.gpus, period=period, images=images)

    # Circuits follow their pairs. rows: [circuits] row of the pair in the image's order, ascending;
    # order: [circuits] the circuits of the first image in that order.
    rows, orders = [plan.circuit_pair], [slice(None)]
    for order in (turns.middle, turns.last):
        row = np.empty(len(order), np.int32)
        row[order] = np.arange(len(order), dtype=np.int32)
        pair = row[plan.circuit_pair]
        orders.append(np.argsort(pair, kind="stable"))
        rows.append(pair[orders[-1]])
    circuit_pair = turns.spread(*rows)
    circuit_pair += np.arange(images, dtype=np.int32)[:, np.newaxis] * len(plan.src)

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
        circuit_pair=flat(circuit_pair),
        circuit_direction=flat(turns.spread(*(plan.circuit_direction[order] for order in orders))),
        circuit_index=flat(turns.spread(*(plan.circuit_index[order] for order in orders))),
        unserved=unserved,
        waited=waited,
    )
