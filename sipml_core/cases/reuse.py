"""Results that several cases share, found again by the values they were made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


@attrs.define
class Reuse:
    """Calls pure functions and keeps the last few results of each.

    A result is found again by the values of all arguments, so two calls that differ in anything a function
    can read are two results. Graphs and placements are equal only to themselves, components by class and
    options.

    >>> calls = []
    >>> def double(number):
    ...     calls.append(number)
    ...     return 2 * number
    >>> reuse = Reuse()
    >>> reuse(double, 3), reuse(double, 3), reuse(double, 4)
    (6, 6, 8)
    >>> calls
    [3, 4]
    """

    _kept: dict[Callable[..., Any], dict[Hashable, Any]] = attrs.Factory(lambda: defaultdict(dict))

    def __call__(self, function: Callable[..., T], *arguments: Hashable, keep: int = 8) -> T:
        """Return ``function(*arguments)``, from the last `keep` results of it if it is there."""
        kept = self._kept[function]
        if arguments not in kept:
            while len(kept) >= keep:
                del kept[next(iter(kept))]
            kept[arguments] = function(*arguments)
        result: T = kept[arguments]
        return result

    def forget(self, *, but: Collection[Callable[..., Any]]) -> None:
        """Drop the results of all functions but these.

        >>> reuse = Reuse()
        >>> reuse(abs, -3), reuse(len, "abc")
        (3, 3)
        >>> reuse.forget(but=[len])
        >>> [function.__name__ for function in reuse._kept]
        ['len']
        """
        for function in [function for function in self._kept if function not in but]:
            del self._kept[function]
