"""The linear bound on max-min throughput of a ring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_ring.circuits import RingCircuits


def lp_bound(
    control: RingCircuits, src: NDArray[np.int32], dst: NDArray[np.int32], demand: NDArray[np.float64]
) -> float:
    """Return the largest minimum over pairs of circuits / demand with divisible circuits.

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
    """Return the sum of `weight` over the pairs whose arc in `direction` covers each segment. [segments]

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
    """Return the bound where the given pairs may use both directions and others load segments by `fixed`.

    Columns: t, and the clockwise share y of each pair (the rest, t demand - y, goes the other way). Rows:
    segments clockwise, counter-clockwise, then y <= t demand. `fixed`: load per t. [2 gpus]
    """
    from sipml_core.scheduling.programme import maximise  # HiGHS takes long to import

    pairs, gpus, scale = len(src), control.gpus, float(demand.max())
    demand, fixed = demand / scale, fixed / scale
    fixed[gpus:] += segment_load(control, src, dst, demand, 1)
    each, t_column = np.arange(pairs), np.zeros(2 * gpus + pairs, np.int64)  # of t

    entries = [(np.arange(2 * gpus + pairs), t_column, np.concatenate([fixed, -demand]))]
    for direction, sign in ((0, 1.0), (1, -1.0)):
        segment, pair = control.covers(src, dst, direction)
        entries.append((direction * gpus + segment, 1 + pair, np.full(len(pair), sign)))
    entries.append((2 * gpus + each, 1 + each, np.ones(pairs)))

    solution = maximise(
        objective=np.concatenate([[1.0], np.zeros(pairs)]),
        entries=entries,
        row_lower=np.full(2 * gpus + pairs, -np.inf),
        row_upper=np.repeat([control.clockwise, control.counterclockwise, 0.0], [gpus, gpus, pairs]),
        upper=np.full(1 + pairs, np.inf),
    )
    return solution.bound / scale
