"""Least squares by trying factors: for a few positive constants, without derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

#: Factors tried around the best value so far, in rounds that become finer.
_FACTORS = (2.0, 1.3, 1.1, 1.03, 1.01)


def fitted(
    start: Mapping[str, float],
    most: Mapping[str, float],
    loss: Callable[[Mapping[str, float]], float],
    factors: tuple[float, ...] = _FACTORS,
) -> dict[str, float]:
    """Return constants that make the loss small: each by turns times or over a factor, while that helps.

    Parameters
    ----------
    most
        Largest value of constants that have one.

    Examples
    --------
    >>> found = fitted({"a": 1.0, "b": 1.0}, {"b": 3.0}, lambda c: abs(c["a"] - 8.0) + abs(c["b"] - 5.0))
    >>> abs(found["a"] - 8.0) < 0.1, found["b"]
    (True, 3.0)
    """
    best, least = dict(start), loss(start)
    for factor in factors:
        improved = True
        while improved:
            improved = False
            for name in best:
                for times in (factor, 1.0 / factor):
                    tried = {**best, name: min(best[name] * times, most.get(name, np.inf))}
                    value = loss(tried)
                    if value < least * (1 - 1e-9):
                        best, least, improved = tried, value, True
    return best
