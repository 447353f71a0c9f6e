"""Appendix A.2 as a mixed-integer programme for HiGHS: slow, and independent of the bisection.

Two forms of the same problem:

* compact: an integer number of circuits for each demanded pair, at most Q at every port. Enough,
  because Koenig's theorem turns any such numbers into Q permutations;
* permutations: a binary for every switch, input and output, each switch a partial permutation, as the
  paper has it. Q N^2 binaries: for tiny networks.
"""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, unknown
from sipml_core.model import TrafficMatrix
from sipml_ocs.kernel import Problem

Entries = list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]


def fewest(
    problem: Problem, traffic: TrafficMatrix, formulation: str, time_limit_s: float
) -> tuple[NDArray[np.int32], bool]:
    """The fewest circuits that maximise min(circuits / demand), and whether HiGHS proved it. [pairs]

    No GPU may have more peers than switches.
    """
    forms = {"compact": _compact, "permutations": _permutations}
    if formulation not in forms:
        raise ConfigError(unknown("formulation", formulation, forms))
    if traffic.pairs == 0:
        return np.zeros(0, dtype=np.int32), True
    circuits, proved = forms[formulation](problem, traffic, time_limit_s)
    ratio = (circuits / problem.share).min()
    needed = np.ceil(ratio * problem.share * (1 - 1e-12))
    return np.maximum(needed, 1).astype(np.int32), proved


def _compact(problem: Problem, traffic: TrafficMatrix, time_limit_s: float) -> tuple[NDArray[np.int32], bool]:
    """Columns: circuits of each pair, then the ratio. Rows: outputs, inputs, then the ratio of each pair."""
    pairs, gpus = traffic.pairs, traffic.gpus
    pair, one = np.arange(pairs), np.ones(pairs)
    entries: Entries = [
        (traffic.src.astype(np.int64), pair, one),
        (gpus + traffic.dst.astype(np.int64), pair, one),
        (2 * gpus + pair, pair, one),
        (2 * gpus + pair, np.full(pairs, pairs), -problem.share),
    ]
    values, proved = _solve(
        entries,
        lower=np.r_[np.ones(pairs), 0.0],
        upper=np.full(pairs + 1, float(problem.switches)),
        row_lower=np.r_[np.full(2 * gpus, -np.inf), np.zeros(pairs)],
        row_upper=np.r_[np.full(2 * gpus, float(problem.switches)), np.full(pairs, np.inf)],
        time_limit_s=time_limit_s,
    )
    return (np.ones(pairs, dtype=np.int32) if values is None else values[:pairs]), proved


def _permutations(
    problem: Problem, traffic: TrafficMatrix, time_limit_s: float
) -> tuple[NDArray[np.int32], bool]:
    """Columns: x[q, i, j], then the ratio. Rows: inputs and outputs of each switch, then each pair."""
    pairs, gpus, switches = traffic.pairs, traffic.gpus, problem.switches
    q, i, j = (axis.ravel() for axis in np.indices((switches, gpus, gpus)))
    column = np.arange(switches * gpus * gpus)
    ports = 2 * switches * gpus
    of_pair = (np.arange(switches)[:, None] * gpus * gpus + traffic.key).ravel()
    pair = np.arange(pairs)
    entries: Entries = [
        (q * gpus + i, column, np.ones(len(column))),
        (switches * gpus + q * gpus + j, column, np.ones(len(column))),
        (ports + np.tile(pair, switches), of_pair, np.ones(len(of_pair))),
        (ports + pair, np.full(pairs, len(column)), -problem.share),
        (ports + pairs + np.tile(pair, switches), of_pair, np.ones(len(of_pair))),
    ]
    values, proved = _solve(
        entries,
        lower=np.zeros(len(column) + 1),
        upper=np.r_[np.ones(len(column)), float(switches)],
        row_lower=np.r_[np.full(ports, -np.inf), np.zeros(pairs), np.ones(pairs)],
        row_upper=np.r_[np.ones(ports), np.full(2 * pairs, np.inf)],
        time_limit_s=time_limit_s,
    )
    if values is None:
        return np.ones(pairs, dtype=np.int32), proved
    return values[of_pair].reshape(switches, pairs).sum(axis=0).astype(np.int32), proved


class _QuietHighs(highspy.Highs):
    """Silent from the start: highspy 1.16 prints a banner while it is constructed."""

    def enableCallbacks(self) -> None:
        self.silent()
        super().enableCallbacks()


def _solve(
    entries: Entries,
    *,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    row_lower: NDArray[np.float64],
    row_upper: NDArray[np.float64],
    time_limit_s: float,
) -> tuple[NDArray[np.int32] | None, bool]:
    """Maximise the last column, all others integer. None if no solution was found in time."""
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    order = np.lexsort((columns, rows))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(lower), len(row_lower)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.r_[np.zeros(len(lower) - 1), 1.0]
    model.col_lower_, model.col_upper_ = lower, upper
    model.row_lower_, model.row_upper_ = row_lower, row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(len(row_lower) + 1))
    model.a_matrix_.index_ = columns[order]
    model.a_matrix_.value_ = values[order]
    integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    model.integrality_ = [integer] * (len(lower) - 1) + [real]
    solver = _QuietHighs()
    # Every HiGHS of a process must have the same threads; one thread gives the same answer every time.
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("time_limit", time_limit_s)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.0)
    solver.passModel(model)
    solver.run()
    proved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None, proved
    return np.rint(solver.getSolution().col_value[:-1]).astype(np.int32), proved
