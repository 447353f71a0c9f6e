"""How a plugin declares an option: a default, a check, a unit and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from sipml_core.errors import ConfigError


def option(
    default: Any = attrs.NOTHING,
    *,
    doc: str,
    unit: str = "",
    validator: Any = None,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """A field of an `Options` class.

    Parameters
    ----------
    default
        Left out: the option must be given.
    doc, unit
        What ``python -m sipml_core plugins NAME`` and the configuration reference print.
    validator
        See `sipml_core.fields.checks`: `at_least`, `between`, `positive`, `one_of`.
    converter
        See `sipml_core.fields.units`: `parse_gbps`, `parse_us`, `parse_bytes` accept numbers and text.
    """
    return attrs.field(
        default=default,
        validator=validator,
        converter=_named(converter) if converter else None,
        metadata={"doc": doc, "unit": unit},
    )


def _named(converter: Callable[[Any], Any]) -> Any:
    """The same converter, whose refusals begin with the name of the option."""

    def convert(value: Any, field: attrs.Attribute[Any]) -> Any:
        try:
            return converter(value)
        except ConfigError as error:
            raise ConfigError(f"{field.name} {error}") from None

    return attrs.Converter(convert, takes_field=True)
