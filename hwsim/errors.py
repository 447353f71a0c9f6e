"""The one error of hwsim, and the checks that raise it."""

import difflib
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["HwsimError", "check", "choice", "each_within", "whole", "within"]


class HwsimError(ValueError):
    """A parameter or a request that is refused; the message names it, its value and what is allowed."""


def _bounds(above: float | None, at_least: float | None, below: float | None, at_most: float | None) -> str:
    parts = [
        f"{word} {bound:g}"
        for word, bound in (
            ("above", above),
            ("at least", at_least),
            ("below", below),
            ("at most", at_most),
        )
        if bound is not None
    ]
    return " and ".join(parts)


def check(
    name: str,
    value: ArrayLike,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> NDArray[np.float64]:
    """Return `value` as float64, or `HwsimError` when any element is no finite number within the bounds."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise HwsimError(f"{name} must be a number, got {value!r}") from None
    good = np.isfinite(array)
    with np.errstate(invalid="ignore"):
        if above is not None:
            good &= array > above
        if at_least is not None:
            good &= array >= at_least
        if below is not None:
            good &= array < below
        if at_most is not None:
            good &= array <= at_most
    if not good.all():
        wrong = array[~good].ravel()[0]
        allowed = _bounds(above, at_least, below, at_most)
        raise HwsimError(f"{name} must be finite{' and ' + allowed if allowed else ''}, got {wrong:g}")
    return array


def whole(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Return `value` as an int, or `HwsimError` when it is not a whole number within the bounds."""
    if (
        isinstance(value, bool | np.bool_)
        or not isinstance(value, int | np.integer)
        or value < at_least
        or (at_most is not None and value > at_most)
    ):
        allowed = _bounds(None, at_least, None, at_most)
        raise HwsimError(f"{name} must be a whole number of {allowed}, got {value!r}")
    return int(value)


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return `value` when it is one of `known`, else raise `HwsimError` with the nearest known name."""
    if value in known:
        return str(value)
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise HwsimError(f"{name} must be one of {', '.join(known)}, got {value!r}; {hint}".rstrip("; "))


def each_within(**bounds: float) -> Callable[[Any, "attrs.Attribute[Any]", Any], None]:
    """Return a validator for an attrs field that holds a number, or numbers, within `bounds`."""

    def validate(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        check(f"{type(instance).__name__}.{attribute.name}", value, **bounds)

    return validate


def within(**bounds: float) -> Callable[[Any, "attrs.Attribute[Any]", Any], None]:
    """Return a validator for an attrs field that holds one number within `bounds`."""
    validate_each = each_within(**bounds)

    def validate(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        validate_each(instance, attribute, value)
        if np.ndim(value) > 0:
            raise HwsimError(f"{type(instance).__name__}.{attribute.name} must be one number, got {value!r}")

    return validate
