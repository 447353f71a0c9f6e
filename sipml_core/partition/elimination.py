"""Least sum of costs that each depend on one or two choices, by variable elimination.

A dynamic programme for graphs that are not quite chains: variables are eliminated one by one, the
one that leaves the smallest table first, and the best choice is kept for every setting of its
neighbours. On a chain that is the usual recurrence; residual branches only widen the tables
(Bertele & Brioschi 1972, "Nonserial Dynamic Programming").
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen

Table = NDArray[np.float64]


@frozen(eq=False)
class _Factor:
    """A cost over a few variables, ascending: an axis of the table for each, after one for the problems.

    The first axis has length 1 where the cost is the same in all problems.
    """

    variables: tuple[int, ...]
    table: Table


def minimise(
    single: Sequence[Table], pairs: Mapping[tuple[int, int], Table], *, max_table: int = 1 << 20
) -> list[int]:
    """Return the choice of every variable that makes the sum of all costs least.

    Parameters
    ----------
    single
        Cost of each choice of each variable. [variables][choices]
    pairs
        Cost of each pair of choices of two variables (u, v), u < v. [choices of u, choices of v]
    max_table
        Largest table to fill. The result is exact unless the graph is so entangled that more
        would be needed; then its most connected variable is fixed first, at the choice that
        looks best with each neighbour alone.

    Returns
    -------
    list of int
        One choice for each variable; of equally good choices the first, deterministically.

    Examples
    --------
    Two variables that cost least where they differ; the first would rather be at 1:

    >>> minimise([np.array([2.0, 0.0]), np.array([0.0, 0.0])], {(0, 1): np.eye(2)})
    [1, 0]
    """
    return minimise_each([single], pairs, max_table=max_table)[0]


def minimise_each(
    singles: Sequence[Sequence[Table]], pairs: Mapping[tuple[int, int], Table], *, max_table: int = 1 << 20
) -> list[list[int]]:
    """Return what `minimise` returns for each of several problems that differ in single costs only.

    The order of elimination depends on which variables have a cost together, so it is the same in all.

    >>> minimise_each([[np.array([2.0, 0.0])], [np.array([0.0, 1.0])]], {})
    [[1], [0]]
    """
    return _Elimination(singles, pairs, max_table).solve()


class _Elimination:
    def __init__(
        self,
        singles: Sequence[Sequence[Table]],
        pairs: Mapping[tuple[int, int], Table],
        max_table: int,
    ) -> None:
        self.choices = [len(table) for table in singles[0]]
        self.problems = len(singles)
        self.max_table = max_table
        #: Factors that mention a variable not yet eliminated, and the other variables that these mention.
        self.factors: dict[int, list[_Factor]] = {v: [] for v in range(len(self.choices))}
        self.neighbours: dict[int, set[int]] = {v: set() for v in range(len(self.choices))}
        for variable, tables in enumerate(zip(*singles, strict=True)):
            self._add(_Factor((variable,), np.array(tables, dtype=np.float64)))
        for variables, table in sorted(pairs.items()):
            # Who has one choice is no variable: what a pair costs depends on the other alone, if on any.
            # Its axis would widen tables, and an array has 64 at most.
            free = tuple(v for v in variables if self.choices[v] > 1)
            shape = (1, *(self.choices[v] for v in free))
            self._add(_Factor(free, np.asarray(table, dtype=np.float64).reshape(shape)))

    def solve(self) -> list[list[int]]:
        """Eliminate forwards, then read the choices of each problem off backwards."""
        size = {variable: self._table_size(variable) for variable in self.factors}
        # (size, variable): an entry counts while it is the variable's present size.
        smallest = [(entries, variable) for variable, entries in size.items()]
        heapq.heapify(smallest)
        decisions: list[tuple[int, tuple[int, ...], NDArray[np.int64]]] = []
        while size:
            entries, variable = smallest[0]
            if size.get(variable) != entries:
                heapq.heappop(smallest)
                continue
            if entries > self.max_table:
                variable = max(size, key=lambda v: (len(self.neighbours[v]), -v))
                neighbours = tuple(sorted(self.neighbours[variable]))
                decisions.append((variable, (), self._fix(variable)))
            else:
                neighbours = tuple(sorted(self.neighbours[variable]))
                decisions.append((variable, neighbours, self._eliminate(variable, neighbours)))
            del size[variable]
            for neighbour in neighbours:
                size[neighbour] = self._table_size(neighbour)
                heapq.heappush(smallest, (size[neighbour], neighbour))
        return [self._read_off(decisions, problem) for problem in range(self.problems)]

    def _read_off(
        self, decisions: list[tuple[int, tuple[int, ...], NDArray[np.int64]]], problem: int
    ) -> list[int]:
        """Return the choices of one problem."""
        chosen = [0] * len(self.choices)
        for variable, neighbours, best in reversed(decisions):
            chosen[variable] = int(best[(problem, *(chosen[v] for v in neighbours))])
        return chosen

    def _add(self, factor: _Factor) -> None:
        for variable in factor.variables:
            self.factors[variable].append(factor)
            self.neighbours[variable].update(factor.variables)
            self.neighbours[variable].discard(variable)

    def _take(self, variable: int) -> list[_Factor]:
        """Remove and return all factors that mention a variable."""
        for neighbour in self.neighbours.pop(variable):
            self.factors[neighbour] = [f for f in self.factors[neighbour] if variable not in f.variables]
            self.neighbours[neighbour].discard(variable)
        return self.factors.pop(variable)

    def _table_size(self, variable: int) -> int:
        entries = self.choices[variable]
        for neighbour in self.neighbours[variable]:
            entries *= self.choices[neighbour]
        return entries

    def _eliminate(self, variable: int, neighbours: tuple[int, ...]) -> NDArray[np.int64]:
        """Replace the variable's factors by one over its neighbours; return its best choice given theirs.

        [problems, choices of each neighbour]
        """
        scope = (*neighbours, variable)
        total = np.zeros([self.problems, *(self.choices[v] for v in scope)])
        for factor in self._take(variable):
            total += _expand(factor, scope)
        if neighbours:
            self._add(_Factor(neighbours, total.min(axis=-1)))
        return np.asarray(total.argmin(axis=-1))

    def _fix(self, variable: int) -> NDArray[np.int64]:
        """Settle a variable by what each of its factors costs at best; neighbours see it as constant.

        Returns the choice in each problem. [problems]
        """
        taken = self._take(variable)
        # Each factor with the variable's axis second. [problems or 1, choices, ...]
        first = [np.moveaxis(f.table, 1 + f.variables.index(variable), 1) for f in taken]
        estimate = np.zeros((self.problems, self.choices[variable]))
        for table in first:
            estimate += table.reshape(*table.shape[:2], -1).min(axis=2)
        best = estimate.argmin(axis=1)
        for factor, table in zip(taken, first, strict=True):
            rest = tuple(v for v in factor.variables if v != variable)
            if rest:
                each = np.broadcast_to(table, (self.problems, *table.shape[1:]))
                self._add(_Factor(rest, each[np.arange(self.problems), best]))
        return np.asarray(best)


def _expand(factor: _Factor, scope: tuple[int, ...]) -> Table:
    """Return the factor's table with an axis for each variable of `scope`, to be broadcast.

    `scope` has the variable to eliminate last and the others ascending, so only that one moves.
    """
    variables, table, last = factor.variables, factor.table, scope[-1]
    if variables[-1] != last:
        at = 1 + variables.index(last)
        table = table.transpose(*range(at), *range(at + 1, table.ndim), at)
    # Length of the axis of each variable in the table, by variable.
    length = dict(zip([v for v in variables if v != last] + [last], table.shape[1:], strict=True))
    return table.reshape(len(table), *(length.get(v, 1) for v in scope))
