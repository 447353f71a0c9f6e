"""``ring-ilp``: the integer program of the paper's appendix A.1, by HiGHS."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ring import kernel
from sipml_ring.circuits import RingCircuits
from sipml_ring.planning import assemble, circuits_of, waits
from sipml_ring.programs import Answer, Entries, covers, solve
from sipml_ring.ringplan import RingPlan

#: Largest program with a variable for each wavelength that is tried. [variables]
MOST_BINARIES = 20000


def ring_ilp(
    control: RingCircuits,
    traffic: TrafficMatrix,
    previous: RingPlan | None,
    *,
    time_limit_s: float = 60.0,
) -> RingPlan:
    """Exact maximum of the minimum, over the pairs that ``ring-fast`` serves.

    First the program without the continuity rule, in circuits per pair and direction. If ``ring-fast``
    reaches its optimum, or its solution can be coloured, that is the answer; else the program with one
    binary for each pair, direction and wavelength. `proved` of the plan says whether HiGHS, within
    `time_limit_s` in all, showed that no plan has a larger minimum.
    """
    deadline = time.monotonic() + time_limit_s
    old = circuits_of(previous)
    waited = waits(traffic, previous)
    best = kernel.fast(control, traffic, waited, old)
    if traffic.pairs == 0:
        return assemble("ring-ilp", control, traffic, best, old, waited, proved=True)
    served = np.ones(traffic.pairs, bool)
    served[best.unserved] = False
    counts, bound = _counts(control, traffic, served, best, deadline)
    if counts is not None and _minimum(best, served, traffic) < bound * (1 - 1e-9):
        coloured = kernel.colour(control, traffic, counts, None, old)
        best = max(best, coloured, key=lambda planned: _minimum(planned, served, traffic))
    if control.wavelength == "continuous" and _minimum(best, served, traffic) < bound * (1 - 1e-9):
        exact, bound = _by_wavelength(control, traffic, served, best, bound, deadline)
        if exact is not None:
            best = kernel.complete(control, traffic, exact, old)
    proved = _minimum(best, served, traffic) >= bound * (1 - 1e-6)
    return assemble("ring-ilp", control, traffic, best, old, waited, proved=proved)


def _minimum(planned: kernel.Planned, served: NDArray[np.bool_], traffic: TrafficMatrix) -> float:
    """Least circuits / demand over the served pairs."""
    return float((_per_pair(planned, traffic).sum(axis=1)[served] / traffic.demand[served]).min())


def _per_pair(planned: kernel.Planned, traffic: TrafficMatrix) -> NDArray[np.int32]:
    """Circuits of each demanded pair. [traffic pairs, 2]"""
    result = np.zeros((traffic.pairs, 2), np.int32)
    asked = planned.demand > 0
    key = planned.circuits.src.astype(np.int64) * traffic.gpus + planned.circuits.dst
    result[np.searchsorted(traffic.key, key[asked])] = planned.count[asked]
    return result


def _counts(
    control: RingCircuits,
    traffic: TrafficMatrix,
    served: NDArray[np.bool_],
    incumbent: kernel.Planned,
    deadline: float,
) -> tuple[NDArray[np.int32] | None, float]:
    """Circuits per pair and direction without the continuity rule, and the bound on their minimum.

    Variables: t, then circuits clockwise, then counter-clockwise. Rows: segments clockwise, then
    counter-clockwise, then circuits - t demand >= 0 for each served pair.
    """
    pairs, gpus, scale = traffic.pairs, control.gpus, float(traffic.demand.max())
    each = np.arange(pairs)
    entries: list[Entries] = [(2 * gpus + each, np.zeros(pairs, int), -traffic.demand * served / scale)]
    for direction in (0, 1):
        segment, pair = covers(control, traffic.src, traffic.dst, direction)
        column = 1 + direction * pairs
        entries.append((direction * gpus + segment, column + pair, np.ones(len(pair))))
        entries.append((2 * gpus + each, column + each, np.ones(pairs)))
    limits = [control.clockwise, control.counterclockwise]
    allowed = control.allowed(traffic.src, traffic.dst) & served[:, np.newaxis]
    have = _per_pair(incumbent, traffic) * served[:, np.newaxis]
    answer = solve(
        objective=np.concatenate([[1.0], np.zeros(2 * pairs)]),
        entries=entries,
        lower=np.repeat([-np.inf, 0.0], [2 * gpus, pairs]),
        upper=np.repeat([*limits, np.inf], [gpus, gpus, pairs]),
        highest=np.concatenate([[np.inf], *(allowed[:, d] * limits[d] for d in (0, 1))]),
        integer=np.arange(1 + 2 * pairs) > 0,
        start=np.concatenate([[_minimum(incumbent, served, traffic) * scale], have[:, 0], have[:, 1]]),
        time_limit_s=max(0.1, deadline - time.monotonic()),
    )
    if len(answer.values) == 0:
        return None, answer.bound / scale
    return np.rint(answer.values[1:]).astype(np.int32).reshape(2, pairs).T, answer.bound / scale


def _by_wavelength(
    control: RingCircuits,
    traffic: TrafficMatrix,
    served: NDArray[np.bool_],
    incumbent: kernel.Planned,
    ceiling: float,
    deadline: float,
) -> tuple[kernel.Circuits | None, float]:
    """Circuits with their wavelengths, and the bound on their minimum: A.1 as it stands.

    Variables: t, then one binary for each served pair, allowed direction and wavelength. Rows: each
    segment, direction and wavelength at most once; then circuits - t demand >= 0 for each pair.
    """
    limits, gpus, scale = (control.clockwise, control.counterclockwise), control.gpus, traffic.demand.max()
    rows = gpus * sum(limits)
    entries: list[Entries] = []
    lists: list[tuple[NDArray[np.int64], int, NDArray[np.int64]]] = []
    column = 1
    for direction, limit in enumerate(limits):
        may = np.flatnonzero(control.allowed(traffic.src, traffic.dst)[:, direction] & served)
        segment, which = covers(control, traffic.src[may], traffic.dst[may], direction)
        for wavelength in range(limit):
            first_row = gpus * (direction * limits[0] + wavelength)
            entries.append((first_row + segment, column + which, np.ones(len(which))))
            entries.append((rows + may, column + np.arange(len(may)), np.ones(len(may))))
            lists.append((may, direction, np.full(len(may), wavelength)))
            column += len(may)
    if column > MOST_BINARIES:
        return None, ceiling
    each = np.arange(traffic.pairs)
    entries.append((rows + each, np.zeros(traffic.pairs, int), -traffic.demand * served / scale))
    answer = solve(
        objective=(np.arange(column) == 0).astype(float),
        entries=entries,
        lower=np.repeat([-np.inf, 0.0], [rows, traffic.pairs]),
        upper=np.repeat([1.0, np.inf], [rows, traffic.pairs]),
        highest=np.concatenate([[ceiling * scale], np.ones(column - 1)]),
        integer=np.arange(column) > 0,
        start=_as_binaries(incumbent, traffic, served, lists, _minimum(incumbent, served, traffic) * scale),
        time_limit_s=max(0.1, deadline - time.monotonic()),
    )
    return _lit(traffic, lists, answer), min(ceiling, answer.bound / scale)


def _as_binaries(
    incumbent: kernel.Planned,
    traffic: TrafficMatrix,
    served: NDArray[np.bool_],
    lists: list[tuple[NDArray[np.int64], int, NDArray[np.int64]]],
    throughput: float,
) -> NDArray[np.float64]:
    """The incumbent as a start of the program by wavelength."""
    circuits = incumbent.circuits
    key = circuits.src.astype(np.int64) * traffic.gpus + circuits.dst
    held = set(
        zip(key[circuits.pair].tolist(), circuits.direction.tolist(), circuits.index.tolist(), strict=True)
    )
    lit = [
        (key, direction, wavelength) in held
        for may, direction, wavelengths in lists
        for key, wavelength in zip(traffic.key[may].tolist(), wavelengths.tolist(), strict=True)
    ]
    return np.concatenate([[throughput], np.array(lit, float)])


def _lit(
    traffic: TrafficMatrix, lists: list[tuple[NDArray[np.int64], int, NDArray[np.int64]]], answer: Answer
) -> kernel.Circuits | None:
    if len(answer.values) == 0:
        return None
    on = np.rint(answer.values[1:]).astype(bool)
    pair = np.concatenate([may for may, _, _ in lists])[on]
    direction = np.concatenate([np.full(len(may), d) for may, d, _ in lists])[on]
    wavelength = np.concatenate([w for _, _, w in lists])[on]
    return kernel.Circuits(
        src=traffic.src,
        dst=traffic.dst,
        pair=pair.astype(np.int32),
        direction=direction.astype(np.int32),
        index=wavelength.astype(np.int32),
    )
