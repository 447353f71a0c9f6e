"""``--set section.key=value``: changes to the tables of an experiment before they are checked."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sipml_core.errors import ConfigError, brief, nearest, shown, unknown
from sipml_core.fields import parse_toml

#: Sections that a [[workload]] may have for itself, and under which names; there its keys win.
_DEFAULTS = {"plan": ("plan", "strategy"), "strategy": ("plan", "strategy"), "search": ("search",)}
#: Keys in one path; no table of an experiment lies as deep.
_MOST_KEYS = 10


def apply_overrides(tables: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `tables` with every ``path=value`` set.

    The value is read as TOML, or as text if it is none. In a list of tables (``topology``,
    ``workload``) the next part of the path is a label or name that selects one table, or a number;
    without it, all tables of the list are changed.

    Raises
    ------
    ConfigError
        There is no such place, or what is set there would not count: a workload has its own.
    """
    changed = copy.deepcopy(dict(tables))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        path = path.strip()
        if not equals or not path:
            raise ConfigError(f"--set must look like section.key=value, got {shown(assignment)}")
        _set(changed, path, override_value(text.strip(), path), text.strip())
    return changed


def apply_values(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `tables` with each value at its path, as `apply_overrides` understands paths.

    >>> apply_values({"cluster": {"gpus": 8}}, {"cluster.gpus": 16})
    {'cluster': {'gpus': 16}}
    """
    changed = copy.deepcopy(dict(tables))
    for path, value in values.items():
        _set(changed, path, value, str(value))
    return changed


def _set(tables: dict[str, Any], path: str, value: Any, text: str) -> None:
    keys = path.split(".")
    if len(keys) > _MOST_KEYS:
        raise ConfigError(f"--set {brief(path)}: has {len(keys)} keys, and no table lies that deep")
    _refuse_hidden(tables, keys, path, text)
    _assign(tables, keys, value, path)


def override_value(text: str, path: str) -> Any:
    """Return the value that a text of ``--set`` means: TOML, or the text itself if it is none."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError as error:
        if "nested" in str(error) or "digits" in str(error):
            raise ConfigError(f"--set {brief(path)}: {error}") from None
        return text


def _refuse_hidden(tables: Mapping[str, Any], keys: list[str], path: str, text: str) -> None:
    """`ConfigError` if workloads have the key in a section of their own, which hides the one set."""
    if len(keys) < 2 or keys[0] not in _DEFAULTS:
        return
    section, key = keys[:2]
    workloads = tables.get("workload", [])
    workloads = workloads if isinstance(workloads, list) else [workloads]
    names_of = _DEFAULTS[section]
    own = [table for table in workloads if any(key in _section(table, name) for name in names_of)]
    if own:
        names = ", ".join(shown(table.get("label", table.get("name"))) for table in own)
        raise ConfigError(
            f"--set {brief(path)}: changes nothing for {names}, which has a {brief(key)} of its own; "
            f"--set {brief(f'workload.{path}={text}')} changes it in every workload"
        )


def _section(table: Any, section: str) -> Mapping[str, Any]:
    own = table.get(section) if isinstance(table, Mapping) else None
    return own if isinstance(own, Mapping) else {}


def _assign(node: Any, keys: list[str], value: Any, path: str) -> None:
    head, *rest = keys
    if isinstance(node, list):
        chosen = _select(node, head)
        if rest and not chosen:
            _refuse_absent(node, head, path)
        targets, keys = (chosen, rest) if chosen else (node, keys)
        if not keys:
            raise ConfigError(f"--set {brief(path)}: names a table, not a key in it")
        for target in targets:
            _assign(target, keys, value, path)
    elif not isinstance(node, dict):
        raise ConfigError(f"--set {brief(path)}: there is no table to set {shown(head)} in")
    elif rest:
        _assign(node.setdefault(head, {}), rest, value, path)
    else:
        node[head] = value


def _refuse_absent(tables: list[Any], key: str, path: str) -> None:
    """`ConfigError` if `key` looks like the name of a table of this list, and there is none.

    Names have hyphens (sip-ring), or are nearly those of a table that is there; keys are neither.
    """
    found = [table for table in tables if isinstance(table, dict)]
    names = [str(table[at]) for table in found for at in ("label", "name") if at in table]
    if any(key in table for table in found) or not ("-" in key or nearest(key, names)):
        return
    kind = path.partition(".")[0]
    raise ConfigError(f"--set {brief(path)}: {unknown(kind, key, dict.fromkeys(names))}")


def _select(tables: list[Any], key: str) -> list[Any]:
    if re.fullmatch("[0-9]{1,9}", key) and int(key) < len(tables):
        return [tables[int(key)]]
    return [t for t in tables if isinstance(t, dict) and key in (t.get("label"), t.get("name"))]
