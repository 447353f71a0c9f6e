"""Validators and converters for attrs fields. Messages are one line: name, rule, value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, nearest

Validator = Callable[[Any, Any, Any], None]


def at_least(minimum: float) -> Validator:
    """A finite number not below `minimum`."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if not _is_number(value) or value < minimum:
            raise ConfigError(f"{attribute.name} must be at least {minimum:g}, got {value!r}")

    return check


def between(minimum: float, maximum: float) -> Validator:
    """A finite number in the closed interval."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if not _is_number(value) or not minimum <= value <= maximum:
            raise ConfigError(f"{attribute.name} must be from {minimum:g} to {maximum:g}, got {value!r}")

    return check


def positive(_: Any, attribute: Any, value: Any) -> None:
    """A finite number above zero: NaN and infinity are refused."""
    if not _is_number(value) or value <= 0:
        raise ConfigError(f"{attribute.name} must be positive, got {value!r}")


def one_of(*allowed: str) -> Validator:
    """One of a few names; a mistyped one gets the nearest."""

    def check(_: Any, attribute: Any, value: Any) -> None:
        if value not in allowed:
            close = nearest(str(value), allowed)
            hint = f"; did you mean {close!r}?" if close else ""
            raise ConfigError(f"{attribute.name} must be one of {', '.join(allowed)}, got {value!r}{hint}")

    return check


def each(check: Validator) -> Validator:
    """A list with at least one item, each of which passes `check`."""

    def check_all(instance: Any, attribute: Any, value: Any) -> None:
        if not value:
            raise ConfigError(f"{attribute.name} must not be an empty list")
        for item in value:
            check(instance, attribute, item)

    return check_all


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return math.isfinite(value)


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
