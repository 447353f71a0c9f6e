"""``ring-ilp``: the integer programme of the paper's appendix A.1, by HiGHS."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_core.scheduling.programme import Entries, maximise
from sipml_ring import kernel
from sipml_ring.assembling import assemble, circuits_of, waits
from sipml_ring.circuits import RingCircuits
from sipml_ring.lightpaths import Lightpaths
from sipml_ring.ring_plan import RingPlan

#: Largest programme with a variable for each wavelength that is tried. [variables]
MOST_BINARIES = 20000


def ring_ilp(
    control: RingCircuits,
    traffic: TrafficMatrix,
    previous: RingPlan | None,
    *,
    time_limit_s: float = 60.0,
) -> RingPlan:
    """Return a plan with the largest minimum of circuits / demand over the pairs that ``ring-fast`` serves.

    First the programme without the continuity rule, in circuits per pair and direction. If ``ring-fast``
    reaches its optimum, or its solution can be coloured, that is the answer; else the programme with one
    binary for each pair, direction and wavelength. `proved` of the plan says whether HiGHS, within
    `time_limit_s` in all, showed that no plan has a larger minimum.

    Examples
    --------
    Three GPUs, each sending to the one before it, two wavelengths in each direction. Counter-clockwise
    the arcs have one segment each and do not meet: 2 circuits for everybody. Clockwise they have two of
    the three segments and any two meet: 2 of the 3 pairs get a third circuit. The minimum stays 2.

    >>> ring = RingCircuits.of(3, 4, circuit_gbps=25.0, reach_hops=2)
    >>> traffic = TrafficMatrix.from_pairs(3, [0, 1, 2], [2, 0, 1], [1.0, 1.0, 1.0])
    >>> made = ring_ilp(ring, traffic, None)
    >>> sorted(made.count.tolist()), made.minimum_ratio, made.proved
    ([[0, 2], [1, 2], [1, 2]], 50.0, True)
    """
    deadline = time.monotonic() + time_limit_s
    before, waited = circuits_of(previous), waits(traffic, previous)
    best = kernel.fast(control, traffic, waited, before)
    if traffic.pairs == 0:
        return assemble("ring-ilp", control, traffic, best, before, waited, proved=True)
    served = np.ones(traffic.pairs, bool)  # [traffic pairs]
    served[best.unserved] = False

    # Circuits by number alone: coloured, they may be a plan.
    counts, bound = _by_number(control, traffic, served, best, deadline)
    if counts is not None and _minimum(best, served, traffic) < bound * (1 - 1e-9):
        coloured = kernel.colour(control, traffic, counts, None, before)
        best = max(best, coloured, key=lambda planned: _minimum(planned, served, traffic))

    # Circuits by wavelength, where their number promises more than could be coloured.
    if control.wavelength == "continuous" and _minimum(best, served, traffic) < bound * (1 - 1e-9):
        exact, bound = _by_wavelength(control, traffic, served, best, bound, deadline)
        if exact is not None:
            best = kernel.complete(control, traffic, exact, before)

    proved = bool(_minimum(best, served, traffic) >= bound * (1 - 1e-6))
    return assemble("ring-ilp", control, traffic, best, before, waited, proved=proved)


def _minimum(planned: kernel.Planned, served: NDArray[np.bool_], traffic: TrafficMatrix) -> float:
    """Return the least circuits / demand over the served pairs."""
    return float((_per_pair(planned, traffic).sum(axis=1)[served] / traffic.demand[served]).min())


def _per_pair(planned: kernel.Planned, traffic: TrafficMatrix) -> NDArray[np.int32]:
    """Return the circuits of each demanded pair. [traffic pairs, 2]"""
    result = np.zeros((traffic.pairs, 2), np.int32)
    asked = planned.demand > 0
    key = planned.circuits.src.astype(np.int64) * traffic.gpus + planned.circuits.dst
    result[np.searchsorted(traffic.key, key[asked])] = planned.count[asked]
    return result


def _by_number(
    control: RingCircuits,
    traffic: TrafficMatrix,
    served: NDArray[np.bool_],
    incumbent: kernel.Planned,
    deadline: float,
) -> tuple[NDArray[np.int32] | None, float]:
    """Return circuits per pair and direction without the continuity rule, and the bound on their minimum.

    Columns: t, then circuits clockwise, then counter-clockwise. Rows: segments clockwise, then
    counter-clockwise, then circuits - t demand >= 0 for each served pair.
    """
    pairs, gpus, scale = traffic.pairs, control.gpus, float(traffic.demand.max())
    each = np.arange(pairs)  # row of the traffic matrix
    limits = [control.clockwise, control.counterclockwise]

    entries: list[Entries] = [(2 * gpus + each, np.zeros(pairs, int), -traffic.demand * served / scale)]
    for direction in (0, 1):
        segment, pair = control.covers(traffic.src, traffic.dst, direction)
        column = 1 + direction * pairs  # of the first pair's circuits in this direction
        entries.append((direction * gpus + segment, column + pair, np.ones(len(pair))))
        entries.append((2 * gpus + each, column + each, np.ones(pairs)))

    allowed = control.allowed(traffic.src, traffic.dst) & served[:, np.newaxis]
    have = _per_pair(incumbent, traffic) * served[:, np.newaxis]
    solution = maximise(
        objective=np.concatenate([[1.0], np.zeros(2 * pairs)]),
        entries=entries,
        row_lower=np.repeat([-np.inf, 0.0], [2 * gpus, pairs]),
        row_upper=np.repeat([*limits, np.inf], [gpus, gpus, pairs]),
        upper=np.concatenate([[np.inf], *(allowed[:, d] * limits[d] for d in (0, 1))]),
        integer=np.arange(1 + 2 * pairs) > 0,
        start=np.concatenate([[_minimum(incumbent, served, traffic) * scale], have[:, 0], have[:, 1]]),
        time_limit_s=deadline - time.monotonic(),
    )
    if solution.values is None:
        return None, solution.bound / scale
    return np.rint(solution.values[1:]).astype(np.int32).reshape(2, pairs).T, solution.bound / scale


def _by_wavelength(
    control: RingCircuits,
    traffic: TrafficMatrix,
    served: NDArray[np.bool_],
    incumbent: kernel.Planned,
    ceiling: float,
    deadline: float,
) -> tuple[Lightpaths | None, float]:
    """Return circuits with their wavelengths, and the bound on their minimum: A.1 as it stands.

    Columns: t, then one binary for each `_candidates`. Rows: each segment, direction and wavelength at
    most once; then circuits - t demand >= 0 for each pair. None: too many binaries, or no solution in time.
    """
    candidates = _candidates(control, traffic, served)
    binaries = len(candidates.pair)
    if 1 + binaries > MOST_BINARIES:
        return None, ceiling
    gpus, scale = control.gpus, traffic.demand.max()
    rows = gpus * (control.clockwise + control.counterclockwise)  # of segments, directions and wavelengths
    each, column = np.arange(traffic.pairs), np.arange(1, 1 + binaries)

    entries: list[Entries] = [(rows + each, np.zeros(traffic.pairs, int), -traffic.demand * served / scale)]
    entries.append((rows + candidates.pair, column, np.ones(binaries)))
    for direction in (0, 1):
        mine = np.flatnonzero(candidates.direction == direction)  # candidates in this direction
        pair, first_row = (
            candidates.pair[mine],
            gpus * (direction * control.clockwise + candidates.index[mine]),
        )
        segment, which = control.covers(traffic.src[pair], traffic.dst[pair], direction)
        entries.append((first_row[which] + segment, column[mine[which]], np.ones(len(which))))

    held = np.isin(candidates.identity(gpus), incumbent.circuits.identity(gpus))
    solution = maximise(
        objective=(np.arange(1 + binaries) == 0).astype(float),
        entries=entries,
        row_lower=np.repeat([-np.inf, 0.0], [rows, traffic.pairs]),
        row_upper=np.repeat([1.0, np.inf], [rows, traffic.pairs]),
        upper=np.concatenate([[ceiling * scale], np.ones(binaries)]),
        integer=np.arange(1 + binaries) > 0,
        start=np.concatenate([[_minimum(incumbent, served, traffic) * scale], held]),
        time_limit_s=deadline - time.monotonic(),
    )
    if solution.values is None:
        return None, min(ceiling, solution.bound / scale)
    return candidates.chosen(solution.values[1:] > 0.5), min(ceiling, solution.bound / scale)


def _candidates(control: RingCircuits, traffic: TrafficMatrix, served: NDArray[np.bool_]) -> Lightpaths:
    """Return every circuit that a served pair could have, by direction, then wavelength, then pair."""
    allowed = control.allowed(traffic.src, traffic.dst) & served[:, np.newaxis]
    columns = []
    for direction, limit in enumerate((control.clockwise, control.counterclockwise)):
        pair = np.flatnonzero(allowed[:, direction])
        index = np.repeat(np.arange(limit), len(pair))
        columns.append((np.tile(pair, limit), np.full(len(index), direction), index))
    pair, direction, index = (np.concatenate(part).astype(np.int32) for part in zip(*columns, strict=True))
    return Lightpaths(src=traffic.src, dst=traffic.dst, pair=pair, direction=direction, index=index)
