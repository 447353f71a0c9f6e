"""A network described in a file: edges in CSV, [[node]] and [[edge]] tables in TOML, or GraphML."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.errors import ConfigError, brief, nearest, shown
from sipml_core.fields import read_toml

EDGE_KEYS = ("from", "to", "gbps", "latency_us")
NODE_KEYS = ("name", "gpu")
_GPU = re.compile(r"gpu([0-9]{1,9})")

#: Where in the file an edge or node stands, for messages, and its keys.
Row = tuple[str, Mapping[str, Any]]


@attrs.frozen(kw_only=True)
class Description:
    """What a file says."""

    edges: list[Row]
    nodes: list[Row] = attrs.Factory(list)
    #: Whether edges are one way, where the file itself says so.
    directed: bool | None = None


def read_graph(path: Path, *, directed: bool, default_gbps: float) -> Any:
    """Return the NetworkX graph of a file; edges without `gbps` get the default.

    Nodes named gpu0, gpu1, ... are those GPUs, unless the file marks GPUs itself.

    Raises
    ------
    ConfigError
        The file cannot be read, a key is missing or unknown; the line or table is named.
    """
    import networkx as nx  # only here: it takes longer to import than all the rest

    described = _reader(path)(path)
    if directed and described.directed is False:
        raise ConfigError(f"directed is true, but {path} says that its edges are not")
    graph = nx.MultiDiGraph() if described.directed or directed else nx.MultiGraph()
    for place, row in described.nodes:
        _check_keys(row, f"{path}: {place}", NODE_KEYS, required=("name",))
        name = _name(row, "name", f"{path}: {place}")
        if name in graph:
            raise ConfigError(f"{path}: {place}: the node {shown(name)} has been named before")
        graph.add_node(name, gpu=row.get("gpu", False))
    for place, row in described.edges:
        _check_keys(row, f"{path}: {place}", EDGE_KEYS, required=("from", "to"))
        ends = [_name(row, key, f"{path}: {place}") for key in ("from", "to")]
        attributes = {key: row[key] for key in ("gbps", "latency_us") if key in row}
        graph.add_edge(*ends, **{"gbps": default_gbps, "place": place, **attributes})
    if not any(gpu is not False for _, gpu in graph.nodes(data="gpu", default=False)):
        _number_by_name(graph, path)
    return graph


def _reader(path: Path) -> Callable[[Path], Description]:
    readers = {".csv": read_csv, ".toml": read_tables, ".graphml": read_graphml}
    try:
        return readers[path.suffix.lower()]
    except KeyError:
        raise ConfigError(f"file must end in {', '.join(readers)}, got {shown(str(path))}") from None


def _name(row: Mapping[str, Any], key: str, where: str) -> str:
    """The name of a node as it is written: what is no text is none."""
    if not isinstance(row[key], str):
        raise ConfigError(f"{where}: {key} must be text in quotes, got {shown(row[key])}")
    return str(row[key])


def _number_by_name(graph: Any, path: Path) -> None:
    """Mark the nodes called gpu0, gpu1, ... as GPUs; `ConfigError` if there are none."""
    found = {node: match for node in graph if (match := _GPU.fullmatch(node))}
    for node, match in found.items():
        graph.nodes[node]["gpu"] = int(match[1])
    if not found:
        close = next((node for node in graph if _GPU.fullmatch(node.lower())), None)
        hint = f"; {shown(close)} must be written {close.lower()!r}" if close else ""
        raise ConfigError(f"{path}: no node is a GPU: GPUs are called gpu0, gpu1, ...{hint}")


def read_csv(path: Path) -> Description:
    """Return the edges of a CSV file, whose first line names the columns."""
    reader = csv.reader(_text(path).splitlines(), skipinitialspace=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except csv.Error as error:
        raise ConfigError(f"{path}: line {reader.line_num}: {error}") from None
    if not rows:
        raise ConfigError(f"{path} is empty; its first line must name the columns: {','.join(EDGE_KEYS)}")
    (line, header), *lines = rows
    _check_header(header, f"{path}: line {line}")
    for line, cells in lines:
        if len(cells) != len(header):
            raise ConfigError(f"{path}: line {line} must have {len(header)} values, as the header has")
    return Description(
        edges=[
            (f"line {line}", {key: cell for key, cell in zip(header, cells, strict=True) if cell})
            for line, cells in lines
        ]
    )


def _check_header(header: list[str], where: str) -> None:
    _check_keys(header, where, EDGE_KEYS, required=("from", "to"))
    for key in header:
        if header.count(key) > 1:
            raise ConfigError(f"{where}: the column {key!r} is there twice")


def read_tables(path: Path) -> Description:
    """Return the [[node]] and [[edge]] tables of a TOML file."""
    tables = read_toml(path, "file")
    _check_keys(tables, str(path), ("node", "edge"), required=("edge",))
    return Description(
        nodes=_list(path, "node", tables.get("node", [])), edges=_list(path, "edge", tables["edge"])
    )


def _list(path: Path, key: str, tables: Any) -> list[Row]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: {key} must be a list of tables")
    return [(f"{key}[{i}]", table) for i, table in enumerate(tables)]


def read_graphml(path: Path) -> Description:
    """Return the nodes and edges of a GraphML file; it says itself whether edges are one way.

    Of its attributes `gpu` of nodes, `gbps` and `latency_us` of edges count; tools write others, too.
    """
    from xml.etree.ElementTree import ParseError

    import networkx as nx

    try:
        graph = nx.parse_graphml(_text(path), force_multigraph=True)
    except (nx.NetworkXError, ParseError, KeyError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not GraphML: {brief(reason)}") from None
    return Description(
        nodes=[
            (f"node {shown(node)}", {"name": node, **_among(marks, ("gpu",))})
            for node, marks in graph.nodes(data=True)
        ],
        edges=[
            (
                f"edge {shown(tail)} -> {shown(head)}",
                {"from": tail, "to": head, **_among(marks, ("gbps", "latency_us"))},
            )
            for tail, head, marks in graph.edges(data=True)
        ],
        directed=graph.is_directed(),
    )


def _among(marks: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: marks[key] for key in keys if key in marks}


def _check_keys(row: Iterable[str], where: str, allowed: tuple[str, ...], required: tuple[str, ...]) -> None:
    for key in row:
        if key not in allowed:
            close = nearest(str(key), allowed)
            hint = f"; did you mean {close!r}?" if close else ";"
            raise ConfigError(f"{where}: {shown(key)} is not a known key{hint} allowed: {', '.join(allowed)}")
    for key in required:
        if key not in row:
            raise ConfigError(f"{where}: {key!r} is required")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"file: cannot read {path}: {error.strerror}") from None
    except ValueError:  # no UTF-8, or a null character in the name
        raise ConfigError(f"file: {path} is not UTF-8 text") from None
