"""The points of a sweep: all combinations of the values of its axes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import frozen, option

#: A factor of the product: values that belong together, as changes by key, or a named point.
Choice = tuple[dict[str, Any], "Point | None"]


@frozen(kw_only=True)
class Point:
    """A point that is written out, with a name: changes to every experiment of the sweep."""

    x: float = option(doc="place on the axis of the figure")
    set: tuple[str, ...] = option(doc="SECTION.KEY=VALUE, as for --set")
    quick: bool = option(False, doc="also a point of --quick")
    label: str = option("", doc="what stands there instead of x; x gives the order")


@frozen(kw_only=True)
class SweepPoint:
    """One combination of values."""

    #: Value of each axis, by its key.
    values: Mapping[str, Any]
    #: The named point that is part of it, None without one.
    named: Point | None = None

    @property
    def about(self) -> str:
        """Return the combination in words."""
        parts = [f"{key} = {shown(value)}" for key, value in self.values.items()]
        if self.named is not None:
            parts.append(self.named.label or f"x = {self.named.x:g}")
        return ", ".join(parts)

    def columns(self) -> dict[str, Any]:
        """Return the values as a table has them: lists and tables as JSON."""
        cells = {key: plain(value) for key, value in self.values.items()}
        return cells if self.named is None else {**cells, "point": self.named.label or self.named.x}


def plain(value: Any) -> Any:
    """Return a value as a cell of a table has it.

    >>> plain([1, 2]), plain("400 Gbps")
    ('[1, 2]', '400 Gbps')
    """
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def factors_of(
    axes: Mapping[str, Any], zips: Sequence[Mapping[str, Any]], points: Sequence[Point]
) -> list[list[Choice]]:
    """Return what is combined: the choices of each axis, of each zip, and the named points.

    Raises
    ------
    ConfigError
        An axis has no values or stands twice, or axes of a zip have not equally many.
    """
    factors: list[list[Choice]] = []
    seen: set[str] = set()
    for place, group in [*((None, {key: values}) for key, values in axes.items()), *enumerate(zips)]:
        at = "axes" if place is None else f"zip[{place}]"
        for key, values in group.items():
            if not isinstance(values, (list, tuple)) or not values:
                raise ConfigError(f'{at}."{key}" must be a list of values, got {shown(values)}')
            if key in seen:
                raise ConfigError(f'{at}."{key}" is an axis already; give it once')
            seen.add(key)
        lengths = {key: len(values) for key, values in group.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{key} {count}" for key, count in lengths.items())
            raise ConfigError(f"{at}: the keys of a zip need equally many values, got {counts}")
        rows = zip(*group.values(), strict=True)
        factors.append([(dict(zip(group, row, strict=True)), None) for row in rows])
    if points:
        factors.append([({}, point) for point in points])
    return [factor for factor in factors if factor]


def count_of(factors: Sequence[Sequence[Choice]]) -> int:
    """Return how many combinations there are."""
    return math.prod(len(factor) for factor in factors)


def combined(factors: Sequence[Sequence[Choice]]) -> Iterator[SweepPoint]:
    """Yield every combination, the last factor changing fastest.

    >>> factors = factors_of({"a": [1, 2]}, [{"b": [3, 4], "c": [5, 6]}], [])
    >>> [dict(point.values) for point in combined(factors)][1:3]
    [{'a': 1, 'b': 4, 'c': 6}, {'a': 2, 'b': 3, 'c': 5}]
    """
    for choices in itertools.product(*factors):
        values: dict[str, Any] = {}
        for changes, _ in choices:
            values |= changes
        named = [point for _, point in choices if point is not None]
        yield SweepPoint(values=values, named=named[0] if named else None)
