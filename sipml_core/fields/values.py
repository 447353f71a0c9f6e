"""Classes of values: attrs classes that are made at half the time.

Half of what attrs makes for a class, as text that Python compiles, is `__repr__`, `__eq__` and `__hash__`. A
short command loads some 180 classes and calls few of these. Here all classes share one of each, which does
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter, eq
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:  # so that type checkers know that these are attrs classes
    from attrs import frozen as frozen
else:

    def frozen(cls=None, **options):
        """Make a frozen attrs class, as `attrs.frozen` does.

        Fields say as ever whether they are compared, hashed and shown; a function that compares one is not
        called. Of options only `kw_only` and `eq` are known: for others, and for exceptions, take attrs' own.

        Examples
        --------
        >>> @frozen(kw_only=True)
        ... class Link:
        ...     gbps: float
        ...     ends: tuple[int, int] = (0, 1)
        >>> Link(gbps=400)
        Link(gbps=400, ends=(0, 1))
        >>> Link(gbps=400) == Link(gbps=400.0), {Link(gbps=400): "fast"}[Link(gbps=400.0)]
        (True, 'fast')
        """
        if cls is None:
            return lambda each: frozen(each, **options)
        if other := set(options) - {"kw_only", "eq"}:
            raise TypeError(f"frozen knows kw_only and eq, not {', '.join(sorted(other))}: use attrs.frozen")
        # attrs makes none of the methods that a class has.
        if "__repr__" not in vars(cls):
            cls.__repr__ = _shown
        if options.get("eq", True) and not {"__eq__", "__hash__"} & set(vars(cls)):
            cls.__eq__, cls.__hash__ = _equal, _hashed
        return attrs.frozen(cls, **options)


@recursive_repr("...")
def _shown(self: Any) -> str:
    """Return the class and its fields, as attrs shows them."""
    values = []
    for field in attrs.fields(type(self)):
        if field.repr:
            shown = repr if field.repr is True else field.repr
            values.append(f"{field.name}={shown(getattr(self, field.name))}")
    return f"{type(self).__qualname__.rsplit('>.', 1)[-1]}({', '.join(values)})"


def _equal(self: Any, other: object) -> Any:
    """Return whether both are of one class and their fields are equal."""
    if other.__class__ is not self.__class__:
        return NotImplemented
    kind: Any = self.__class__
    compared = _compared(kind)
    return all(map(eq, compared(self), compared(other)))


def _hashed(self: Any) -> int:
    """Return the hash of the class and its fields."""
    kind: Any = self.__class__
    return hash((kind, _hashed_with(kind)(self)))


@cache
def _compared(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the fields of a value of a class that are compared."""
    return _values_of([field.name for field in attrs.fields(cls) if field.eq])


@cache
def _hashed_with(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the fields that are hashed: those that are compared, unless they say otherwise."""
    fields = attrs.fields(cls)
    return _values_of([field.name for field in fields if (field.eq if field.hash is None else field.hash)])


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])
