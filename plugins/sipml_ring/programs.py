"""Linear and integer programs on a ring, by HiGHS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import highspy
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sipml_ring.circuits import RingCircuits

#: Row, column and value of the entries of a sparse matrix.
Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


@attrs.frozen(kw_only=True, eq=False)
class Answer:
    """What HiGHS found."""

    #: Empty if it found nothing.
    values: NDArray[np.float64]
    #: No better solution exists.
    optimal: bool
    #: No solution is better than this.
    bound: float


def covers(
    control: RingCircuits, src: NDArray[np.int32], dst: NDArray[np.int32], direction: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(segment, pair) wherever the arc of a pair in `direction` covers a segment."""
    hops = control.hops(src, dst)[:, direction]
    start = np.asarray(src if direction == 0 else dst, np.int64)
    pair = np.repeat(np.arange(len(start)), hops)
    step = np.arange(len(pair)) - np.repeat(np.cumsum(hops) - hops, hops)
    return (start[pair] + step) % control.gpus, pair


def solve(
    *,
    objective: NDArray[np.float64],
    entries: list[Entries],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    highest: NDArray[np.float64],
    integer: NDArray[np.bool_] | None = None,
    start: NDArray[np.float64] | None = None,
    time_limit_s: float | None = None,
) -> Answer:
    """Maximise objective x subject to lower <= A x <= upper, 0 <= x <= highest.

    Entries of A at the same place are added. Single-threaded and with a fixed seed: the same input
    gives the same answer, unless the time limit ends the search.
    """
    rows, columns = len(upper), len(objective)
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    key, inverse = np.unique(row * columns + column, return_inverse=True)
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows, columns
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = objective
    model.col_lower_, model.col_upper_ = np.zeros(columns), highest
    model.row_lower_, model.row_upper_ = lower, upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(key // columns, np.arange(rows + 1)).astype(np.int32)
    model.a_matrix_.index_ = (key % columns).astype(np.int32)
    model.a_matrix_.value_ = np.bincount(inverse, value, len(key))
    if integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(flag)] for flag in integer]
    return _run(model, start, time_limit_s)


class _Silent(highspy.Highs):
    """Quiet before it prints its banner, which version 1.16 does as it enables callbacks."""

    def enableCallbacks(self) -> None:
        self.silent()
        super().enableCallbacks()


def _run(model: Any, start: NDArray[np.float64] | None, time_limit_s: float | None) -> Answer:
    highs = _Silent()
    for name, value in (("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0)):
        highs.setOptionValue(name, value)
    if time_limit_s is not None:
        highs.setOptionValue("time_limit", float(time_limit_s))
    highs.passModel(model)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        highs.setSolution(solution)
    highs.run()
    info = highs.getInfo()
    mixed = len(model.integrality_) > 0
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Answer(
        values=np.array(highs.getSolution().col_value) if found else np.empty(0),
        optimal=highs.getModelStatus() == highspy.HighsModelStatus.kOptimal,
        bound=float(info.mip_dual_bound if mixed else info.objective_function_value),
    )
