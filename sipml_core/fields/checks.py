"""Validators and converters for attrs fields. Messages are one line: name, rule, value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, nearest, shown
from sipml_core.fields.values import frozen

Validator = Callable[[Any, Any, Any], None]


#: Nothing that is counted or measured here is more; so that products of a few of them stay finite.
MOST_INTEGER = 2**63 - 1
MOST_NUMBER = 1e30
#: Where zero is no value: so little that its inverse stays finite in any product, too.
LEAST_POSITIVE = 1e-12
#: Nearly all values that are checked: they need no closer look at what they are.
_PLAIN = (int, float)


def at_least(minimum: float) -> Validator:
    """A finite number not below `minimum`, and not beyond what can be counted with.

    Sizes that a user gives have a stated bound of their own: see `between`.
    """

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value.__class__ in _PLAIN and minimum <= value <= MOST_INTEGER:
            return
        if not _is_number(value) or value < minimum:
            raise ConfigError(f"{attribute.name} must be at least {_bound(minimum)}, got {shown(value)}")
        most = MOST_INTEGER if isinstance(value, int) else MOST_NUMBER
        if value > most:
            raise ConfigError(f"{attribute.name} must be at most {_bound(most)}, got {shown(value)}")

    return check


@frozen
class between:
    """A finite number in the closed interval."""

    minimum: float
    maximum: float

    def __call__(self, _: Any, attribute: Any, value: Any) -> None:
        if not _is_number(value) or not self.minimum <= value <= self.maximum:
            raise ConfigError(f"{attribute.name} must be from {self.interval}, got {shown(value)}")

    @property
    def interval(self) -> str:
        """The interval in words: "1 to 65536"."""
        return f"{_bound(self.minimum)} to {_bound(self.maximum)}"


def interval_of(validator: Any) -> str:
    """Return the interval that a validator allows, of one value or of each of a list; "": it states none."""
    if isinstance(validator, between):
        return validator.interval
    inner = getattr(validator, "validator", None)
    return interval_of(inner) if inner is not None else ""


def positive(_: Any, attribute: Any, value: Any) -> None:
    """A finite number above zero: NaN and infinity are refused, and what is next to them or to zero."""
    if not _is_number(value) or value <= 0:
        raise ConfigError(f"{attribute.name} must be positive, got {shown(value)}")
    if not LEAST_POSITIVE <= value <= MOST_NUMBER:
        raise ConfigError(
            f"{attribute.name} must be from {_bound(LEAST_POSITIVE)} to {_bound(MOST_NUMBER)}, "
            f"got {shown(value)}"
        )


def _bound(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def one_of(*allowed: str) -> Validator:
    """One of a few names; a mistyped one gets the nearest."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value not in allowed:
            close = nearest(str(value), allowed)
            hint = f"; did you mean {close!r}?" if close else ""
            names = ", ".join(allowed)
            raise ConfigError(f"{attribute.name} must be one of {names}, got {shown(value)}{hint}")

    return check


@frozen
class each:
    """A list with at least one item, each of which passes `validator`."""

    validator: Validator

    def __call__(self, instance: Any, attribute: Any, value: Any) -> None:
        if not value:
            raise ConfigError(f"{attribute.name} must not be an empty list")
        for item in value:
            self.validator(instance, attribute, item)


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return isinstance(value, int) or math.isfinite(value)  # no int is infinite, and a long one is no float


def _array(value: Any, dtype: Any, ndim: int) -> NDArray[Any]:
    """A contiguous, read-only array of one type and rank."""
    result = np.ascontiguousarray(value, dtype=dtype)
    if result.ndim != ndim:
        raise ConfigError(f"expected an array of rank {ndim}, got shape {result.shape}")
    if result is value and result.flags.writeable:
        result = result.view()
    result.flags.writeable = False
    return result


# Converters for array fields (named functions, because mypy's attrs plugin understands no others).


def bool_vector(value: Any) -> NDArray[np.bool_]:
    """Converter to a read-only array of truth values [n]."""
    return _array(value, np.bool_, 1)


def int32_vector(value: Any) -> NDArray[np.int32]:
    """Converter to a read-only int32 array [n]."""
    return _array(value, np.int32, 1)


def int64_vector(value: Any) -> NDArray[np.int64]:
    """Converter to a read-only int64 array [n]."""
    return _array(value, np.int64, 1)


def float32_vector(value: Any) -> NDArray[np.float32]:
    """Converter to a read-only float32 array [n]."""
    return _array(value, np.float32, 1)


def float64_vector(value: Any) -> NDArray[np.float64]:
    """Converter to a read-only float64 array [n]."""
    return _array(value, np.float64, 1)


def int32_matrix(value: Any) -> NDArray[np.int32]:
    """Converter to a read-only int32 array [n, m]."""
    return _array(value, np.int32, 2)


def int64_matrix(value: Any) -> NDArray[np.int64]:
    """Converter to a read-only int64 array [n, m]."""
    return _array(value, np.int64, 2)


def float64_matrix(value: Any) -> NDArray[np.float64]:
    """Converter to a read-only float64 array [n, m]."""
    return _array(value, np.float64, 2)
