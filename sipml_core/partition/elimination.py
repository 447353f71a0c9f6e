"""Least sum of costs that each depend on one or two choices, by variable elimination.

A dynamic programme for graphs that are not quite chains: variables are eliminated one by one, the
one that leaves the smallest table first, and the best choice is kept for every setting of its
neighbours. On a chain that is the usual recurrence; residual branches only widen the tables
(Bertele & Brioschi 1972, "Nonserial Dynamic Programming").
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]


@attrs.frozen(eq=False)
class _Factor:
    """A cost over a few variables, ascending: one axis of the table for each."""

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
    """
    return _Elimination(single, pairs, max_table).solve()


class _Elimination:
    def __init__(
        self, single: Sequence[Table], pairs: Mapping[tuple[int, int], Table], max_table: int
    ) -> None:
        self.choices = [len(table) for table in single]
        self.max_table = max_table
        #: Factors that mention a variable not yet eliminated.
        self.factors: dict[int, list[_Factor]] = {v: [] for v in range(len(single))}
        for variable, table in enumerate(single):
            self._add(_Factor((variable,), np.asarray(table, dtype=np.float64)))
        for variables, table in sorted(pairs.items()):
            self._add(_Factor(variables, np.asarray(table, dtype=np.float64)))

    def solve(self) -> list[int]:
        """Eliminate forwards, then read the choices off backwards."""
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
                variable = max(size, key=lambda v: (len(self._neighbours(v)), -v))
                neighbours, best = self._fix(variable)
            else:
                neighbours, best = self._eliminate(variable)
            decisions.append((variable, () if best.ndim == 0 else neighbours, best))
            del size[variable]
            for neighbour in neighbours:
                size[neighbour] = self._table_size(neighbour)
                heapq.heappush(smallest, (size[neighbour], neighbour))
        chosen = [0] * len(self.choices)
        for variable, neighbours, best in reversed(decisions):
            chosen[variable] = int(best[tuple(chosen[v] for v in neighbours)])
        return chosen

    def _add(self, factor: _Factor) -> None:
        for variable in factor.variables:
            self.factors[variable].append(factor)

    def _take(self, variable: int) -> list[_Factor]:
        """Remove and return all factors that mention a variable."""
        taken = self.factors.pop(variable)
        for neighbour in {v for factor in taken for v in factor.variables} - {variable}:
            self.factors[neighbour] = [f for f in self.factors[neighbour] if variable not in f.variables]
        return taken

    def _neighbours(self, variable: int) -> tuple[int, ...]:
        return tuple(sorted({v for factor in self.factors[variable] for v in factor.variables} - {variable}))

    def _table_size(self, variable: int) -> int:
        return math.prod(self.choices[v] for v in (variable, *self._neighbours(variable)))

    def _eliminate(self, variable: int) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Replace the variable's factors by one over its neighbours; its best choice given theirs."""
        neighbours = self._neighbours(variable)
        scope = (*neighbours, variable)
        total = np.zeros([self.choices[v] for v in scope])
        for factor in self._take(variable):
            total += _expand(factor, scope)
        if neighbours:
            self._add(_Factor(neighbours, np.min(total, axis=-1)))
        return neighbours, np.asarray(total.argmin(axis=-1))

    def _fix(self, variable: int) -> tuple[tuple[int, ...], NDArray[np.int64]]:
        """Settle a variable by what each of its factors costs at best; neighbours see it as constant."""
        neighbours = self._neighbours(variable)
        taken = self._take(variable)
        estimate = np.zeros(self.choices[variable])
        for factor in taken:
            axis = factor.variables.index(variable)
            estimate += np.moveaxis(factor.table, axis, 0).reshape(len(estimate), -1).min(axis=1)
        best = int(estimate.argmin())
        for factor in taken:
            rest = tuple(v for v in factor.variables if v != variable)
            if rest:
                axis = factor.variables.index(variable)
                self._add(_Factor(rest, np.take(factor.table, best, axis=axis)))
        return neighbours, np.asarray(best)


def _expand(factor: _Factor, scope: tuple[int, ...]) -> Table:
    """Return the factor's table with one axis for each variable of `scope`, to be broadcast."""
    axes = sorted(range(len(factor.variables)), key=lambda a: scope.index(factor.variables[a]))
    shape = [1] * len(scope)
    for axis in axes:
        shape[scope.index(factor.variables[axis])] = factor.table.shape[axis]
    return factor.table.transpose(axes).reshape(shape)
