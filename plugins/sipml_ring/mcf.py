"""``ring-mcf``: the paper's min-cost flow with rounding, with the faults of its public code mended."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_core.scheduling.programme import Entries, maximise
from sipml_ring import kernel
from sipml_ring.assembling import assemble, circuits_of, waits
from sipml_ring.circuits import RingCircuits
from sipml_ring.ring_plan import RingPlan

#: Circuits at which the value of one more changes: a piecewise linear logarithm.
STEPS = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192]
)


def ring_mcf(control: RingCircuits, traffic: TrafficMatrix, previous: RingPlan | None) -> RingPlan:
    """Return the flow around the ring of greatest value, rounded down, then filled.

    W units flow around each direction of the ring, over segments (idle) or over pairs (circuits). The
    k-th circuit of a pair is worth demand (log k - log(k - 1)), so that a large demand comes first but
    not alone (the public code's cost of -1/demand starves it); arcs that pass GPU 0 load the segments
    that they cover; every pair has one circuit reserved while there is room, longest waiting first.
    On a circle such a flow need not be integral. It is rounded down and the rest filled by lowest
    circuits / demand.

    Examples
    --------
    Demands of 1.0, 0.5 and 0.1 share a segment of 10 wavelengths. One circuit each is reserved. The most
    valuable of the next are, for 1.0: log 2, log 3/2, log 4/3 and then, as the logarithm is cut at 4, 6
    and 8, twice log(6/4) / 2; for 0.5: half of log 2 and of log 3/2. That is 10 in all: 6, 3 and 1.

    >>> ring = RingCircuits.of(40, 20, circuit_gbps=25.0, reach_hops=16)
    >>> traffic = TrafficMatrix.from_pairs(40, [0, 1, 0], [3, 2, 2], [1.0, 0.5, 0.1])
    >>> made = ring_mcf(ring, traffic, None)
    >>> list(zip(made.src.tolist(), made.dst.tolist(), made.count.tolist()))
    [(0, 2, [1, 0]), (0, 3, [6, 0]), (1, 2, [3, 0])]
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
    """Return one circuit for each pair while there is room. [traffic pairs, 2]"""
    hops, allowed = control.hops(traffic.src, traffic.dst), control.allowed(traffic.src, traffic.dst)
    result = np.zeros((traffic.pairs, 2), np.int32)
    # room: wavelengths left in each direction on each segment. [2, segments]
    room = np.repeat([[control.clockwise], [control.counterclockwise]], control.gpus, axis=1)

    # Longest waiting first, then fewest segments, then largest demand.
    shortest = np.where(allowed, hops, control.gpus).min(axis=1)
    waiting = np.zeros(traffic.pairs) if waited is None else waited
    for pair in np.lexsort((-traffic.demand, shortest, -waiting)):
        for direction in np.argsort(hops[pair], kind="stable"):
            start = (traffic.src, traffic.dst)[direction][pair]
            arc = (start + np.arange(hops[pair, direction])) % control.gpus  # segments that it covers
            if allowed[pair, direction] and room[direction, arc].min() > 0:
                room[direction, arc] -= 1
                result[pair, direction] = 1
                break
    return result


def _rounded_flow(
    control: RingCircuits, traffic: TrafficMatrix, reserved: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the circuits of each pair in each direction, reserved ones included. [traffic pairs, 2]

    Columns: circuits beyond the reserved one clockwise, counter-clockwise, then each pair's total cut
    at `STEPS`. Rows: segments in both directions, then circuits = total for each pair.
    """
    pairs, gpus, limits = traffic.pairs, control.gpus, (control.clockwise, control.counterclockwise)
    each = np.arange(pairs)  # row of the traffic matrix
    steps, worth = _logarithm(sum(limits))
    pieces = len(worth)

    # What flows over each segment; room: what the reserved circuits leave of it. [2 segments]
    entries: list[Entries] = []
    room = np.concatenate([np.full(gpus, limit, float) for limit in limits])
    for direction in (0, 1):
        segment, pair = control.covers(traffic.src, traffic.dst, direction)
        entries.append((direction * gpus + segment, direction * pairs + pair, np.ones(len(pair))))
        entries.append((2 * gpus + each, direction * pairs + each, np.ones(pairs)))
        room -= np.bincount(direction * gpus + segment, reserved[pair, direction], 2 * gpus)
    piece = 2 * pairs + np.arange(pairs * pieces)  # columns of each pair's total, piece by piece
    entries.append((2 * gpus + np.repeat(each, pieces), piece, np.full(len(piece), -1.0)))

    # Only pairs with a reserved circuit, only in directions that reach, only as much as a piece is long.
    allowed = control.allowed(traffic.src, traffic.dst) & reserved.any(axis=1)[:, np.newaxis]
    most = [allowed[:, d] * float(limits[d]) for d in (0, 1)]
    solution = maximise(
        objective=np.concatenate(
            [np.zeros(2 * pairs), np.outer(traffic.demand / traffic.demand.max(), worth).ravel()]
        ),
        entries=entries,
        row_lower=np.repeat([-np.inf, 0.0], [2 * gpus, pairs]),
        row_upper=np.concatenate([room, np.zeros(pairs)]),
        upper=np.concatenate([*most, np.tile(np.diff(steps).astype(float), pairs)]),
    )
    assert solution.values is not None  # no time limit
    flow = solution.values[: 2 * pairs].reshape(2, pairs).T
    return reserved + np.floor(flow + 1e-7).astype(np.int32)


def _logarithm(most: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return numbers of circuits from 1 to `most`, and the worth of one more between them.

    Examples
    --------
    >>> steps, worth = _logarithm(6)
    >>> steps.tolist(), worth.round(3).tolist()
    ([1, 2, 3, 4, 6], [0.693, 0.405, 0.288, 0.203])
    """
    steps = np.append(STEPS[most > STEPS], most)
    steps = steps[steps >= 1] if most > 1 else np.array([1, 2])
    return steps, np.diff(np.log(steps)) / np.diff(steps)
