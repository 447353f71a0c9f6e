"""Validators and converters for attrs fields. Messages are one line: name, rule, value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sipml_core.errors import ConfigError, unknown

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
            raise ConfigError(unknown(attribute.name, str(value), allowed))

    return check


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return math.isfinite(value)


def array(dtype: Any, ndim: int = 1) -> Callable[[Any], np.ndarray]:
    """Converter to a contiguous, read-only array of one type and rank."""

    def convert(value: Sequence[Any] | np.ndarray) -> np.ndarray:
        result = np.ascontiguousarray(value, dtype=dtype)
        if result.ndim != ndim:
            raise ConfigError(f"expected an array of rank {ndim}, got shape {result.shape}")
        if result is value and result.flags.writeable:
            result = result.view()
        result.flags.writeable = False
        return result

    return convert
