"""Appendix A.2 as a mixed-integer programme for HiGHS: slow, and independent of the bisection.

Two forms of the same problem:

* compact: an integer number of circuits for each demanded pair, at most Q at every port. Enough,
  because Koenig's theorem turns any such numbers into Q permutations;
* permutations: a binary for every switch, input and output, each switch a partial permutation, as the
  paper has it. Q N^2 binaries: for tiny networks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, unknown
from sipml_core.model import TrafficMatrix
from sipml_core.scheduling.programme import Entries, Solution, maximise
from sipml_ocs.kernel import Problem


def fewest(
    problem: Problem, traffic: TrafficMatrix, formulation: str, time_limit_s: float
) -> tuple[NDArray[np.int32], bool]:
    """Return the fewest circuits that maximise min(circuits / demand) [pairs], and whether HiGHS proved it.

    No GPU may have more peers than switches.
    """
    forms = {"compact": _compact, "permutations": _permutations}
    if formulation not in forms:
        raise ConfigError(unknown("formulation", formulation, forms))
    if traffic.pairs == 0:
        return np.zeros(0, dtype=np.int32), True
    circuits, proved = forms[formulation](problem, traffic, time_limit_s)

    # The programme may give a pair more than its ratio needs: what is left over is for the filling.
    ratio = (circuits / problem.share).min()
    needed = np.ceil(ratio * problem.share * (1 - 1e-12))
    return np.maximum(needed, 1).astype(np.int32), proved


def _compact(problem: Problem, traffic: TrafficMatrix, time_limit_s: float) -> tuple[NDArray[np.int32], bool]:
    """Return circuits of each pair, and whether they are proved to be best.

    Columns: circuits of each pair, then the ratio. Rows: outputs, inputs, then the ratio of each pair.
    """
    pairs, gpus = traffic.pairs, traffic.gpus
    pair, one = (
        np.arange(pairs),
        np.ones(pairs),
    )  # pair: row of the traffic matrix, and column of its circuits
    entries: list[Entries] = [
        (traffic.src.astype(np.int64), pair, one),  # sum of circuits that leave a GPU <= switches
        (gpus + traffic.dst.astype(np.int64), pair, one),  # sum of those that enter it <= switches
        (2 * gpus + pair, pair, one),  # circuits - ratio * share >= 0
        (2 * gpus + pair, np.full(pairs, pairs), -problem.share),
    ]
    solution = maximise(
        objective=_ratio_alone(pairs),
        entries=entries,
        row_lower=np.r_[np.full(2 * gpus, -np.inf), np.zeros(pairs)],
        row_upper=np.r_[np.full(2 * gpus, float(problem.switches)), np.full(pairs, np.inf)],
        lower=np.r_[np.ones(pairs), 0.0],
        upper=np.full(pairs + 1, float(problem.switches)),
        integer=np.arange(pairs + 1) < pairs,
        time_limit_s=time_limit_s,
    )
    return _whole(solution, pair[:, np.newaxis]), solution.optimal


def _permutations(
    problem: Problem, traffic: TrafficMatrix, time_limit_s: float
) -> tuple[NDArray[np.int32], bool]:
    """Return circuits of each pair, and whether they are proved to be best.

    Columns: x[q, i, j], 1 where switch q joins input i to output j, then the ratio. Rows: inputs of each
    switch, outputs of each switch, then the ratio of each pair, then at least one circuit for it.
    """
    pairs, gpus, switches = traffic.pairs, traffic.gpus, problem.switches
    q, i, j = (axis.ravel() for axis in np.indices((switches, gpus, gpus)))  # of each column
    column = np.arange(switches * gpus * gpus)
    ports = 2 * switches * gpus  # rows of inputs and outputs
    pair = np.arange(pairs)
    # [switches, pairs] column of each pair on each switch, and the pair it is of
    of_pair = np.arange(switches)[:, None] * gpus * gpus + traffic.key
    which = np.tile(pair, switches)
    one = np.ones(switches * pairs)

    entries: list[Entries] = [
        (q * gpus + i, column, np.ones(len(column))),
        (switches * gpus + q * gpus + j, column, np.ones(len(column))),
        (ports + which, of_pair.ravel(), one),
        (ports + pair, np.full(pairs, len(column)), -problem.share),
        (ports + pairs + which, of_pair.ravel(), one),
    ]
    solution = maximise(
        objective=_ratio_alone(len(column)),
        entries=entries,
        row_lower=np.r_[np.full(ports, -np.inf), np.zeros(pairs), np.ones(pairs)],
        row_upper=np.r_[np.ones(ports), np.full(2 * pairs, np.inf)],
        upper=np.r_[np.ones(len(column)), float(switches)],
        integer=np.arange(len(column) + 1) < len(column),
        time_limit_s=time_limit_s,
    )
    return _whole(solution, of_pair.T), solution.optimal


def _ratio_alone(columns: int) -> NDArray[np.float64]:
    """Return the objective of a programme whose last column, after `columns` others, is the ratio."""
    return np.r_[np.zeros(columns), 1.0]


def _whole(solution: Solution, columns: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return circuits of each pair, the sum over its columns [pairs, any]; without a solution, one each."""
    if solution.values is None:
        return np.ones(len(columns), dtype=np.int32)
    return np.rint(solution.values[columns]).sum(axis=1).astype(np.int32)
