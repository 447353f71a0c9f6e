"""The linear bound on max-min throughput of a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sipml_ring.circuits import RingCircuits


def lp_bound(
    control: RingCircuits, src: NDArray[np.int32], dst: NDArray[np.int32], demand: NDArray[np.float64]
) -> float:
    """Largest min over pairs of circuits / demand with divisible circuits.

    Closed form where every pair has one direction only (the segment with the least wavelengths per
    demand); else a linear program in the pairs that have a choice, by HiGHS. 0 without demand.
    """
    if len(src) == 0:
        return 0.0
    allowed = control.allowed(src, dst)
    choice = allowed.all(axis=1)
    load = [segment_load(control, src, dst, np.where(allowed[:, d] & ~choice, demand, 0), d) for d in (0, 1)]
    if not choice.any():
        return _closed(control, load)
    return _program(control, src[choice], dst[choice], demand[choice], np.concatenate(load))


def segment_load(
    control: RingCircuits,
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    weight: NDArray[np.float64],
    direction: int,
) -> NDArray[np.float64]:
    """Sum of `weight` over the pairs whose arc in `direction` covers each segment. [segments]

    On a folded ring, over the arcs of their images too.
    """
    start, end = (src, dst) if direction == 0 else (dst, src)
    first, period = start % control.segments, control.segments
    change = np.bincount(first, weight, period) - np.bincount(end % period, weight, period)
    return np.cumsum(change) + weight[first + (end - start) % control.gpus >= period].sum()


def _closed(control: RingCircuits, load: list[NDArray[np.float64]]) -> float:
    wavelengths = (control.clockwise, control.counterclockwise)
    return float(min(w / top.max() for w, top in zip(wavelengths, load, strict=True) if top.max() > 0))


def _program(
    control: RingCircuits,
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    demand: NDArray[np.float64],
    fixed: NDArray[np.float64],
) -> float:
    """Variables: t, and the clockwise share y of each pair with a choice (the rest, t demand - y, goes
    the other way). Rows: segments clockwise, counter-clockwise, then y <= t demand."""
    from sipml_ring.programs import covers, solve

    pairs, gpus, scale = len(src), control.gpus, float(demand.max())
    demand, fixed = demand / scale, fixed / scale
    fixed[gpus:] += segment_load(control, src, dst, demand, 1)
    each, nothing = np.arange(pairs), np.zeros(2 * gpus + pairs, np.int64)
    entries = [(np.arange(2 * gpus + pairs), nothing, np.concatenate([fixed, -demand]))]
    for direction, sign in ((0, 1.0), (1, -1.0)):
        segment, pair = covers(control, src, dst, direction)
        entries.append((direction * gpus + segment, 1 + pair, np.full(len(pair), sign)))
    entries.append((2 * gpus + each, 1 + each, np.ones(pairs)))
    answer = solve(
        objective=np.concatenate([[1.0], np.zeros(pairs)]),
        entries=entries,
        lower=np.full(2 * gpus + pairs, -np.inf),
        upper=np.repeat([control.clockwise, control.counterclockwise, 0.0], [gpus, gpus, pairs]),
        highest=np.full(1 + pairs, np.inf),
    )
    return float(answer.values[0]) / scale
