"""Where the files are that an experiment names: beside the experiment file, not where the command runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.errors import ConfigError
from sipml_core.plugin import Registry


def absolute_files(tables: Mapping[str, Any], registry: Registry, folder: Path) -> dict[str, Any]:
    """A copy of the tables in which the relative names of files count from `folder`."""
    changed = copy.deepcopy(dict(tables))
    for table, key, _ in _named_files(changed, registry):
        table[key] = str(folder.absolute() / table[key])
    return changed


def refuse_missing_files(tables: Mapping[str, Any], registry: Registry) -> None:
    """`ConfigError` naming the key and the file if one that the tables name is not there."""
    for table, key, path in _named_files(tables, registry):
        if not Path(table[key]).exists():
            raise ConfigError(
                f"{path}.{key}: there is no file {table[key]}; relative names count from the folder of the "
                "experiment file, in --set from the working directory"
            )


def _named_files(tables: Mapping[str, Any], registry: Registry) -> Iterator[tuple[Any, str, str]]:
    """Tables, keys in them whose values name files, and what errors call the table."""
    for role, table, path in _offer_tables(tables):
        name = table.get("name")
        entry = registry.entries[role].get(name) if isinstance(name, str) else None
        for field in attrs.fields(entry.component.Options) if entry else ():
            endings, value = field.metadata.get("files", ()), table.get(field.name)
            if isinstance(value, str) and value.lower().endswith(endings):
                yield table, field.name, path


def _offer_tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every table that names an offer, with its role; what is no table is left to the checks of `config`."""
    found = [
        ("gpu", tables, "gpu", ""),
        ("topology", tables, "topology", ""),
        ("workload", tables, "workload", ""),
    ]
    for place, path in _tables(tables, "topology", ""):
        found.append(("scheduler", place, "scheduler", path))
    for place, path in [(tables, ""), *_tables(tables, "workload", "")]:
        found += [("placer", plan, "placer", at) for plan, at in _tables(place, "strategy", path)]
        found += [("placer", search, "placers", at) for search, at in _tables(place, "search", path)]
    for role, place, key, path in found:
        for table, at in _tables(place, key, path):
            yield role, table, at


def _tables(place: Mapping[str, Any], key: str, path: str) -> list[tuple[Mapping[str, Any], str]]:
    """The table, or the list of tables, under a key, each with the path errors name it by."""
    value = place.get(key)
    at = f"{path}.{key}" if path else key
    if not isinstance(value, list):
        return [(value, at)] if isinstance(value, Mapping) else []
    return [
        (table, at if len(value) == 1 else f"{at}[{i}]")
        for i, table in enumerate(value)
        if isinstance(table, Mapping)
    ]
