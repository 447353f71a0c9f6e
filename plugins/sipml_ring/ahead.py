"""Circuits for traffic that comes later, on wavelengths that a plan leaves idle."""

from __future__ import annotations

import heapq

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring.circuits import RingCircuits
from sipml_ring.kernel import Planned
from sipml_ring.lightpaths import Lightpaths


def with_later(control: RingCircuits, made: Planned, traffic: TrafficMatrix, later: TrafficMatrix) -> Planned:
    """Return what was planned for some traffic, with circuits for later traffic on idle wavelengths.

    A wavelength is idle on a segment if no circuit is on it there. The pair with the least circuits / demand
    comes first, again and again, and takes the first index that is idle all the way, on its shorter way if
    there is one. All that was planned stays as it is; also circuits that nobody asks for now: they were asked
    for before, and phases come again.

    Examples
    --------
    Four GPUs, a wavelength each way. 0 sends to 1 clockwise; later 1 to 2 and 0 to 2, whose way is taken.

    >>> from sipml_ring import kernel
    >>> ring = RingCircuits.of(4, 2, circuit_gbps=25.0, reach_hops=2)
    >>> now = TrafficMatrix.from_pairs(4, [0], [1], [1.0])
    >>> later = TrafficMatrix.from_pairs(4, [0, 1], [2, 2], [1.0, 1.0])
    >>> found = with_later(ring, kernel.fast(ring, now, None, None), now, later)
    >>> list(zip(found.circuits.src.tolist(), found.circuits.dst.tolist(), found.count.tolist()))
    [(0, 1, [1, 0]), (0, 2, [0, 1]), (1, 2, [1, 0])]
    """
    lit = made.circuits
    key = lit.src.astype(np.int64) * control.gpus + lit.dst
    idle = _idle(control, lit)

    # Pairs of later traffic alone, and the ways they can take, the shorter first. [pairs], [pairs, 2]
    rows = np.flatnonzero(~np.isin(later.key, traffic.key))
    src, dst = later.src[rows], later.dst[rows]
    hops = np.where(control.allowed(src, dst), control.hops(src, dst), control.gpus)
    ways = np.argsort(hops, axis=1, kind="stable")
    count = dict(zip(key.tolist(), made.count.sum(axis=1).tolist(), strict=True))
    queue = [
        (has / demand, -demand, pair, has)
        for pair, demand in enumerate(later.demand[rows].tolist())
        for has in [count.get(int(later.key[rows[pair]]), 0)]
    ]
    heapq.heapify(queue)

    new: list[tuple[int, int, int]] = []
    while queue:
        _, less, pair, has = heapq.heappop(queue)
        for way in ways[pair].tolist():
            if hops[pair, way] >= control.gpus:
                continue
            segments, _ = control.covers(src[pair : pair + 1], dst[pair : pair + 1], way)
            free = idle[way][:, segments % control.segments].all(axis=1)
            if free.any():
                index = int(free.argmax())
                idle[way][index, segments % control.segments] = False
                new.append((pair, way, index))
                heapq.heappush(queue, ((has + 1) / -less, less, pair, has + 1))
                break
    if not new:
        return made
    return _joined(control, made, (src, dst), np.array(new, dtype=np.int32))


def _idle(control: RingCircuits, lit: Lightpaths) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which wavelengths are idle on which segments, in either direction. [wavelengths, segments]"""
    found = []
    for direction, wavelengths in enumerate((control.clockwise, control.counterclockwise)):
        idle = np.ones((wavelengths, control.segments), dtype=np.bool_)
        mine = np.flatnonzero(lit.direction == direction)
        segment, which = control.covers(lit.src[lit.pair[mine]], lit.dst[lit.pair[mine]], direction)
        idle[lit.index[mine][which], segment % control.segments] = False
        found.append(idle)
    return found[0], found[1]


def _joined(
    control: RingCircuits,
    made: Planned,
    ends: tuple[NDArray[np.int32], NDArray[np.int32]],
    new: NDArray[np.int32],
) -> Planned:
    """Return what was planned with new circuits (pair of `ends`, way, index)."""
    lit = made.circuits
    before = lit.src.astype(np.int64) * control.gpus + lit.dst
    more = (ends[0].astype(np.int64) * control.gpus + ends[1])[new[:, 0]]
    pairs, row = np.unique(np.concatenate([before[lit.pair], more]), return_inverse=True)
    direction = np.concatenate([lit.direction, new[:, 1]])
    index = np.concatenate([lit.index, new[:, 2]])
    order = np.argsort(row, kind="stable")

    # Where pairs that were there stand among those of now.
    place = np.searchsorted(pairs, before)
    demand, kept = np.zeros(len(pairs)), np.zeros(len(pairs), np.int32)
    demand[place], kept[place] = made.demand, made.kept
    count = np.zeros((len(pairs), 2), np.int32)
    np.add.at(count, (row, direction), 1)
    return attrs.evolve(
        made,
        circuits=Lightpaths(
            src=(pairs // control.gpus).astype(np.int32),
            dst=(pairs % control.gpus).astype(np.int32),
            pair=row[order].astype(np.int32),
            direction=direction[order],
            index=index[order],
        ),
        demand=demand,
        count=count,
        kept=kept,
        same=False,
    )
