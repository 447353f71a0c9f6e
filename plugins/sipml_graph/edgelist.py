"""A network described in a file: a list of edges in CSV, or [[node]] and [[edge]] tables in TOML."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError, nearest

EDGE_KEYS = ("from", "to", "gbps", "latency_us")
NODE_KEYS = ("name", "gpu")
_GPU = re.compile(r"gpu(\d+)")

#: Where in the file an edge or node stands, for messages, and its keys.
Row = tuple[str, Mapping[str, Any]]


def read_graph(path: Path, *, directed: bool, default_gbps: float) -> Any:
    """The NetworkX graph of a file; edges without `gbps` get the default.

    Nodes named gpu0, gpu1, ... are those GPUs, unless a [[node]] table names GPUs otherwise.

    Raises
    ------
    ConfigError
        The file cannot be read, a key is missing or unknown; the line or table is named.
    """
    import networkx as nx  # only here: it takes longer to import than all the rest

    nodes: list[Row] = []
    if path.suffix == ".csv":
        edges = list(_csv_rows(path))
    elif path.suffix == ".toml":
        nodes, edges = _toml_rows(path)
    else:
        raise ConfigError(f"file must end in .csv or .toml, got {str(path)!r}")
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    for place, row in nodes:
        _check_keys(row, f"{path}: {place}", NODE_KEYS, required=("name",))
        graph.add_node(str(row["name"]), gpu=row.get("gpu", False))
    for place, row in edges:
        _check_keys(row, f"{path}: {place}", EDGE_KEYS, required=("from", "to"))
        attributes = {key: row[key] for key in ("gbps", "latency_us") if key in row}
        graph.add_edge(
            str(row["from"]), str(row["to"]), **{"gbps": default_gbps, "place": place, **attributes}
        )
    if not any(gpu is not False for _, gpu in graph.nodes(data="gpu", default=False)):
        _number_by_name(graph)
    return graph


def _number_by_name(graph: Any) -> None:
    for node in graph:
        match = _GPU.fullmatch(node)
        if match:
            graph.nodes[node]["gpu"] = int(match[1])


def _csv_rows(path: Path) -> Iterator[Row]:
    reader = csv.DictReader(_text(path).splitlines(), skipinitialspace=True)
    for row in reader:
        place = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise ConfigError(
                f"{path}: {place} must have {len(reader.fieldnames or ())} values, as the header has"
            )
        yield place, {key: value.strip() for key, value in row.items() if value.strip()}


def _toml_rows(path: Path) -> tuple[list[Row], list[Row]]:
    try:
        tables = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    _check_keys(tables, str(path), ("node", "edge"), required=("edge",))
    return _list(path, "node", tables.get("node", [])), _list(path, "edge", tables["edge"])


def _list(path: Path, key: str, tables: Any) -> list[Row]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: {key} must be a list of tables")
    return [(f"{key}[{i}]", table) for i, table in enumerate(tables)]


def _check_keys(
    row: Mapping[str, Any], where: str, allowed: tuple[str, ...], required: tuple[str, ...]
) -> None:
    for key in row:
        if key not in allowed:
            close = nearest(str(key), allowed)
            hint = f"; did you mean {close!r}?" if close else ";"
            raise ConfigError(f"{where}: {key!r} is not a known key{hint} allowed: {', '.join(allowed)}")
    for key in required:
        if key not in row:
            raise ConfigError(f"{where}: {key!r} is required")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"file: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"file: {path} is not UTF-8 text") from None
