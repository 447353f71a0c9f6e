"""``--set section.key=value``: changes to the tables of an experiment before they are checked."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from sipml_core.errors import ConfigError


def apply_overrides(tables: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of `tables` with every ``path=value`` set.

    The value is read as TOML, or as text if it is none. In a list of tables (``topology``,
    ``workload``) the next part of the path is a label or name that selects one table, or a number;
    without it, all tables of the list are changed.
    """
    changed = copy.deepcopy(dict(tables))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"--set must look like section.key=value, got {assignment!r}")
        _assign(changed, path.strip().split("."), _value(text.strip()), path.strip())
    return changed


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(node: Any, parts: list[str], value: Any, path: str) -> None:
    head, *rest = parts
    if isinstance(node, list):
        chosen = _select(node, head)
        targets, parts = (chosen, rest) if chosen else (node, parts)
        if not parts:
            raise ConfigError(f"--set {path}: names a table, not a key in it")
        for target in targets:
            _assign(target, parts, value, path)
    elif not isinstance(node, dict):
        raise ConfigError(f"--set {path}: there is no table to set {head!r} in")
    elif rest:
        _assign(node.setdefault(head, {}), rest, value, path)
    else:
        node[head] = value


def _select(tables: list[Any], key: str) -> list[Any]:
    if key.isdigit() and int(key) < len(tables):
        return [tables[int(key)]]
    return [t for t in tables if isinstance(t, dict) and key in (t.get("label"), t.get("name"))]
