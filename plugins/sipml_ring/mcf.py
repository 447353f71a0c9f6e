"""``ring-mcf``: the paper's min-cost flow with rounding, with the faults of its public code mended."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.planning import assemble, circuits_of, waits
from sipml_ring.programs import Entries, covers, solve
from sipml_ring.ringplan import RingPlan

#: Circuits at which the value of one more changes: a piecewise linear logarithm.
STEPS = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192]
)


def ring_mcf(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> RingPlan:
    """Flow around the ring of greatest value, rounded down, then filled.

    W units flow around each direction of the ring, over segments (idle) or over pairs (circuits). The
    k-th circuit of a pair is worth demand (log k - log(k - 1)), so that a large demand comes first but
    not alone (the public code's cost of -1/demand starves it); arcs that pass GPU 0 load the segments
    that they cover; every pair has one circuit reserved while there is room, longest waiting first.
    On a circle such a flow need not be integral. It is rounded down and the rest filled by lowest
    circuits / demand.
    """
    waited = waits(traffic, previous)
    counts = np.zeros((traffic.pairs, 2), np.int32)
    if traffic.pairs:
        counts = _rounded_flow(control, traffic, _reserve(control, traffic, waited))
    before = circuits_of(previous)
    planned = kernel.colour(control, traffic, counts, waited, before)
    return assemble("ring-mcf", control, traffic, planned, before, waited)


def _reserve(
    control: RingCircuits, traffic: TrafficMatrix, waited: NDArray[np.int32] | None
) -> NDArray[np.int32]:
    """One circuit for each pair while there is room. [traffic pairs, 2]"""
    hops, allowed = control.hops(traffic.src, traffic.dst), control.allowed(traffic.src, traffic.dst)
    room = np.repeat([[control.clockwise], [control.counterclockwise]], control.gpus, axis=1)
    result = np.zeros((traffic.pairs, 2), np.int32)
    shortest = np.where(allowed, hops, control.gpus).min(axis=1)
    waiting = np.zeros(traffic.pairs) if waited is None else waited
    for pair in np.lexsort((-traffic.demand, shortest, -waiting)):
        for direction in np.argsort(hops[pair], kind="stable"):
            start = (traffic.src, traffic.dst)[direction][pair]
            arc = (start + np.arange(hops[pair, direction])) % control.gpus
            if allowed[pair, direction] and room[direction, arc].min() > 0:
                room[direction, arc] -= 1
                result[pair, direction] = 1
                break
    return result


def _rounded_flow(
    control: RingCircuits, traffic: TrafficMatrix, reserved: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Circuits of each pair in each direction, reserved ones included. [traffic pairs, 2]

    Variables: circuits beyond the reserved one clockwise, counter-clockwise, then each pair's total cut
    at `STEPS`. Rows: segments in both directions, then circuits = total for each pair.
    """
    pairs, gpus, limits = traffic.pairs, control.gpus, (control.clockwise, control.counterclockwise)
    each, most = np.arange(pairs), sum(limits)
    steps = np.append(STEPS[most > STEPS], most)
    steps = steps[steps >= 1] if most > 1 else np.array([1, 2])
    worth = np.diff(np.log(steps)) / np.diff(steps)
    pieces = len(worth)
    entries: list[Entries] = []
    room = np.concatenate([np.full(gpus, limit, float) for limit in limits])
    for direction in (0, 1):
        segment, pair = covers(control, traffic.src, traffic.dst, direction)
        entries.append((direction * gpus + segment, direction * pairs + pair, np.ones(len(pair))))
        entries.append((2 * gpus + each, direction * pairs + each, np.ones(pairs)))
        room -= np.bincount(direction * gpus + segment, reserved[pair, direction], 2 * gpus)
    total = 2 * pairs + np.arange(pairs * pieces)
    entries.append((2 * gpus + np.repeat(each, pieces), total, np.full(len(total), -1.0)))
    served = reserved.any(axis=1)
    allowed = control.allowed(traffic.src, traffic.dst) & served[:, np.newaxis]
    answer = solve(
        objective=np.concatenate(
            [np.zeros(2 * pairs), np.outer(traffic.demand / traffic.demand.max(), worth).ravel()]
        ),
        entries=entries,
        lower=np.repeat([-np.inf, 0.0], [2 * gpus, pairs]),
        upper=np.concatenate([room, np.zeros(pairs)]),
        highest=np.concatenate(
            [
                *(allowed[:, d] * float(limits[d]) for d in (0, 1)),
                np.tile(np.diff(steps).astype(float), pairs),
            ]
        ),
    )
    flow = answer.values[: 2 * pairs].reshape(2, pairs).T
    return reserved + np.floor(flow + 1e-7).astype(np.int32)
