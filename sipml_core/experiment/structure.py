"""TOML tables into attrs models, with the path of every error.

cattrs does the work; here it is made strict (no "3" for 3, no 1.5 for an integer, no unknown key) and
its error trees are turned into single lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, get_origin

import attrs
from cattrs import Converter
from cattrs.errors import (
    BaseValidationError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)

from sipml_core.errors import ConfigError, brief, nearest, shown

T = TypeVar("T")


def structure(table: Any, model: type[T], path: str, elsewhere: Mapping[str, type[Any]] | None = None) -> T:
    """An instance of `model` from a TOML table.

    Parameters
    ----------
    elsewhere
        Models of other sections: an unknown key that is known there is told so.

    Raises
    ------
    ConfigError
        One line: the path of the first key at fault, what was found, what is allowed.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path} must be a table, got {shown(table)}")
    if not table:  # most tables of most files: for defaults cattrs need not write a function
        with suppress(Exception):  # which it does to say what is wrong
            return model()
    try:
        return _CONVERTER.structure(table, model)
    except BaseValidationError as error:
        raise ConfigError(_explain(error, path, model, elsewhere or {})) from None


def _explain(error: BaseException, path: str, model: Any, elsewhere: Mapping[str, type[Any]]) -> str:
    """The first fault in a cattrs error tree, in words."""
    if isinstance(error, ClassValidationError):
        with_notes, without = error.group_exceptions()
        if without:
            return _explain(without[0], path, error.cl, elsewhere)
        inner, note = with_notes[0]
        return _explain(inner, f"{path}.{note.name}", note.type, {})
    if isinstance(error, IterableValidationError):
        elements, others = error.group_exceptions()
        if elements:
            inner, index = elements[0]
            return _explain(inner, f"{path}[{index.index}]", index.type, {})
        return _explain(others[0], path, model, {})
    if isinstance(error, ForbiddenExtraKeysError):
        return _unknown_key(sorted(error.extra_fields)[0], path, keys(error.cl), elsewhere)
    if isinstance(error, KeyError):
        return f"{path} is required"
    if isinstance(error, ConfigError) and attrs.has(model):
        return f"{path}.{error}"
    if isinstance(error, AttributeError):
        return f"{path} must be a table"
    return f"{path} {error}"


def _unknown_key(key: str, path: str, allowed: Iterable[str], elsewhere: Mapping[str, type[Any]]) -> str:
    named = brief(f"{path}.{key}")
    home = next((section for section, model in elsewhere.items() if key in keys(model)), None)
    if home is not None:
        return f"{named} is not a known key; {key} belongs in [{home}]"
    names = sorted(allowed)
    close = nearest(key, names)
    hint = f"; did you mean {close!r}?" if close else ";"
    return f"{named} is not a known key{hint} allowed: {', '.join(names) or 'none'}"


def refuse_unknown_keys(table: Iterable[str], path: str, allowed: Iterable[str]) -> None:
    """`ConfigError` naming the first key of a table that is not allowed, and the nearest that is."""
    known = list(allowed)
    for key in table:
        if key not in known:
            raise ConfigError(_unknown_key(key, path, known, {}))


def keys(model: type[Any]) -> list[str]:
    """Keys that a table of this model may have."""
    return [field.name for field in attrs.fields(model) if field.init]


def _strict(allowed: tuple[type, ...], what: str) -> Any:
    def hook(value: Any, _: Any) -> Any:
        if isinstance(value, bool) and bool not in allowed:
            raise ConfigError(f"must be {what}, got {shown(value)}")
        if not isinstance(value, allowed):
            raise ConfigError(f"must be {what}, got {shown(value)}")
        return value

    return hook


def _float(value: Any, _: Any) -> float:
    number = _strict((int, float), "a number")(value, _)
    try:
        return float(number)
    except OverflowError:
        raise ConfigError(f"must be a number below 1.8e308, got {shown(value)}") from None


def _text(value: Any, _: Any) -> str:
    return str(_strict((str,), "text in quotes")(value, _))


def _lenient_about_lists() -> Converter:
    converter = Converter(forbid_extra_keys=True, prefer_attrib_converters=True)
    converter.register_structure_hook(bool, _strict((bool,), "true or false"))
    converter.register_structure_hook(int, _strict((int,), "an integer"))
    converter.register_structure_hook(float, _float)
    converter.register_structure_hook(str, _text)
    return converter


def _converter() -> Converter:
    """Lists must be lists: text is a sequence too, but not of what the user meant."""
    items = _lenient_about_lists()

    def list_hook(target: Any) -> Any:
        structure_items = items.get_structure_hook(target)

        def hook(value: Any, _: Any) -> Any:
            if not isinstance(value, (list, tuple)):
                raise ConfigError(f"must be a list, got {shown(value)}")
            return structure_items(value, target)

        return hook

    converter = _lenient_about_lists()
    converter.register_structure_hook_factory(_is_tuple, list_hook)
    return converter


def _is_tuple(target: Any) -> bool:
    origin: Any = get_origin(target)
    return origin is tuple


_CONVERTER = _converter()
