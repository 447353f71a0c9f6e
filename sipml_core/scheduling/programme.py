"""Linear and integer programmes, solved by HiGHS: what schedulers are checked against."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import frozen

#: Row, column and value of each of some coefficients; coefficients at the same place are added.
Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


@frozen(kw_only=True, eq=False)
class Solution:
    """What HiGHS found."""

    #: [columns]; None if the time was over before it found any.
    values: NDArray[np.float64] | None
    #: No better solution exists.
    optimal: bool
    #: No solution has a larger objective than this.
    bound: float


def maximise(
    *,
    objective: NDArray[np.float64],
    entries: list[Entries],
    row_lower: NDArray[np.float64],
    row_upper: NDArray[np.float64],
    upper: NDArray[np.float64],
    lower: NDArray[np.float64] | None = None,
    integer: NDArray[np.bool_] | None = None,
    start: NDArray[np.float64] | None = None,
    time_limit_s: float | None = None,
) -> Solution:
    """Return the x of largest objective with row_lower <= A x <= row_upper and lower <= x <= upper.

    One thread and a fixed seed: the same input gives the same answer, unless the time limit ends the
    search. Integer programmes are solved to optimality, without the gap that HiGHS leaves by default.

    Parameters
    ----------
    objective
        Value of each column. [columns]
    entries
        Coefficients of A, in any order.
    row_lower, row_upper
        Limits of A x; infinite where there is none. [rows]
    lower, upper
        Limits of x; without `lower`, 0. [columns]
    integer
        Columns that must be whole numbers; None: none. [columns]
    start
        A solution to begin with. [columns]
    time_limit_s
        Time after which the best solution so far is returned; None: no limit. [s]

    Raises
    ------
    SipmlError
        There is no solution, or no largest one.

    Examples
    --------
    Two products, 24 units of one material and 6 of another. In fractions 3 and 1.5 are best, worth 21;
    whole numbers reach 20.

    >>> entries = [(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([6.0, 4.0, 1.0, 2.0]))]
    >>> found = maximise(
    ...     objective=np.array([5.0, 4.0]),
    ...     entries=entries,
    ...     row_lower=np.full(2, -np.inf),
    ...     row_upper=np.array([24.0, 6.0]),
    ...     upper=np.full(2, np.inf),
    ...     integer=np.array([True, True]),
    ... )
    >>> [float(value) for value in found.values], found.optimal, found.bound
    ([4.0, 0.0], True, 20.0)
    """
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = len(row_upper), len(objective)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = objective
    model.col_lower_ = np.zeros(len(objective)) if lower is None else lower
    model.col_upper_ = upper
    model.row_lower_, model.row_upper_ = row_lower, row_upper
    _set_matrix(model, entries)
    if integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(flag)] for flag in integer]
    return _run(model, start, time_limit_s)


def _set_matrix(model: Any, entries: list[Entries]) -> None:
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    columns = model.num_col_
    # key: place of each coefficient that is named, row by row; place: index into key of each entry.
    key, place = np.unique(row * columns + column, return_inverse=True)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(key // columns, np.arange(model.num_row_ + 1)).astype(np.int32)
    model.a_matrix_.index_ = (key % columns).astype(np.int32)
    model.a_matrix_.value_ = np.bincount(place, value, len(key))


_HIGHS: Any = highspy.Highs


def _enable_quietly(solver: Any) -> None:
    solver.silent()
    _HIGHS.enableCallbacks(solver)


#: Quiet before it prints its banner, which version 1.16 does as it enables callbacks.
_QuietHighs: Any = type("_QuietHighs", (_HIGHS,), {"enableCallbacks": _enable_quietly})


def _run(model: Any, start: NDArray[np.float64] | None, time_limit_s: float | None) -> Solution:
    solver = _QuietHighs()
    # Every HiGHS of a process must have the same number of threads; with one, answers repeat.
    settings = {"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    if time_limit_s is not None:
        solver.setOptionValue("time_limit", max(0.0, float(time_limit_s)))
    solver.passModel(model)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        solver.setSolution(solution)
    solver.run()

    status, info = solver.getModelStatus(), solver.getInfo()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if not optimal and status != highspy.HighsModelStatus.kTimeLimit:
        raise SipmlError(
            f"HiGHS cannot solve a programme of {model.num_row_} rows and {model.num_col_} columns: "
            f"{solver.modelStatusToString(status).lower()}"
        )
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    bound = np.inf
    if len(model.integrality_):
        bound = info.mip_dual_bound
    elif optimal:
        bound = info.objective_function_value
    return Solution(
        values=np.array(solver.getSolution().col_value) + 0.0 if found else None,  # + 0.0: no -0.0
        optimal=optimal,
        bound=float(bound),
    )
