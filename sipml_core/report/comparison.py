"""Two results on disk, held against each other: what differs in input, then in result."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError, brief
from sipml_core.fields import frozen

#: Columns that say what a row is about.
_ABOUT = ("workload", "topology", "point", "label", "x", "series", "claim", "case")
#: Of candidates of a search, what tells them apart besides.
_CANDIDATE = ("mp", "dp", "global_batch", "layout", "placer")
#: Columns that neither ask nor answer.
_NEITHER = ("hash", "version", "options")
#: What moved most is shown of the first of these that there is.
_MAIN = ("iteration_us", "time_to_goal_s", "time_to_accuracy_s")

Key = tuple[str, ...]
Row = dict[str, Any]


@frozen(kw_only=True)
class Written:
    """A result as it was written: what was asked, and the rows that came out."""

    name: str
    kind: str
    #: What was asked, by dotted key; of a CSV file it stands in the rows.
    inputs: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def columns(self) -> list[str]:
        """All columns of the rows."""
        return list(dict.fromkeys(column for row in self.rows for column in row))

    def is_input(self, column: str) -> bool:
        """Return whether a column says what was asked."""
        told_apart = self.kind == "search" and column in _CANDIDATE
        return "." in column or column in _ABOUT or column == "seed" or told_apart


@frozen(kw_only=True)
class ColumnChange:
    """A column of the result that differs."""

    column: str
    #: Rows in which it differs, of those that are in both.
    changed: int
    of: int
    #: Where it differs most: the row, and what stands there in either. Text differs anywhere.
    at: Key
    before: Any
    after: Any

    @property
    def ratio(self) -> float | None:
        """After by before, None where one is no number or is 0."""
        return ratio_of(self.before, self.after)


@frozen(kw_only=True)
class Differences:
    """What differs between two results."""

    first: Written
    second: Written
    #: Columns that tell rows apart.
    key: tuple[str, ...]
    #: Key of the input -> its values in either.
    inputs: Mapping[str, tuple[Any, Any]]
    columns: tuple[ColumnChange, ...]
    #: Rows that moved most, in the main column: its name, the row, before, after.
    moved: tuple[tuple[str, Key, float, float], ...]
    only_first: tuple[Key, ...]
    only_second: tuple[Key, ...]
    #: Columns that only one of them has.
    other_columns: tuple[str, ...]
    matched: int

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.inputs or self.columns or self.only_first or self.only_second)


def result_pairs(first: Path, second: Path) -> list[tuple[Written, Written]]:
    """Return the results of two files or folders, matched; of folders of CSV files those of equal names.

    Raises
    ------
    ConfigError
        There is none, it is of an older format, or one is of another kind.
    """
    names = _files(first), _files(second)
    common = [name for name in names[0] if name in names[1]]
    if not (first.is_dir() and second.is_dir()):
        found = [(next(iter(names[0].values())), next(iter(names[1].values())))]
    elif common:
        found = [(names[0][name], names[1][name]) for name in common]
    else:
        raise ConfigError(
            f"{first} and {second} have no results of the same name; name a file of each: "
            f"{', '.join(names[0])}; {', '.join(names[1])}"
        )
    read = [(read_written(a), read_written(b)) for a, b in found]
    for a, b in read:
        if a.kind != b.kind:
            raise ConfigError(f"{a.name} is of a {a.kind} and {b.name} of a {b.kind}; compare like with like")
    return read


def _files(path: Path) -> dict[str, Path]:
    """The files of a result by name; result.json or search.json has all that is beside it."""
    if not path.is_dir():
        return {path.name: path}
    for name in ("result.json", "search.json"):
        if (path / name).exists():
            return {name: path / name}
    found = {file.name: file for file in sorted(path.glob("*.csv"))}
    if not found:
        raise ConfigError(f"{path} has no result: neither result.json nor search.json nor a CSV file")
    return found


def read_written(path: Path) -> Written:
    """Return a result of a file; `ConfigError` if it is none, or of a format that is too old."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"cannot read {brief(str(path))}: {reason}") from None
    return _from_json(path, text) if path.suffix == ".json" else _from_csv(path, text)


def _from_json(path: Path, text: str) -> Written:
    try:
        document = json.loads(text)
    except ValueError:
        raise ConfigError(f"{path} is no JSON") from None
    rows = "rows" if isinstance(document, dict) and "best" in document else "cases"
    missing = [key for key in (rows, "experiment", "seed") if key not in (document or ())]
    if missing or not isinstance(document[rows], list):
        by = f" (sipml {document['version']})" if isinstance(document, dict) and "version" in document else ""
        raise ConfigError(
            f"{path} is no result, or of an older format{by}: it has no {missing[0] if missing else rows!r}; "
            "run its experiment.toml again"
        )
    asked = {key: document.get(key) for key in ("experiment", "seed", "version", "versions", "files")}
    return Written(
        name=str(path),
        kind="search" if rows == "rows" else "run",
        inputs=dict(_flat(asked, "")),
        rows=[{key: _cell(value) for key, value in row.items()} for row in document[rows]],
    )


def _flat(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    """Leaves of nested tables; tables in a list are called by their label or name."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{path}.{item.get('label') or item.get('name') or number}")
    elif value is not None:
        yield path.removeprefix("experiment."), value


def _from_csv(path: Path, text: str) -> Written:
    reader = csv.DictReader(text.splitlines())
    columns = reader.fieldnames or []
    if not set(columns) & set(_ABOUT):
        raise ConfigError(
            f"{path} is no table of results, or of an older format: it has none of the columns "
            f"{', '.join(_ABOUT)}"
        )
    kind = (
        "search" if {"estimate_us", "best", "placer"} <= set(columns) and "hash" not in columns else "table"
    )
    rows = [{key: _cell(value) for key, value in row.items() if key} for row in reader]
    return Written(name=str(path), kind=kind, inputs={}, rows=rows)


def _cell(value: Any) -> Any:
    """A number as a number, other things as the text that a table has."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, list):
        return "; ".join(map(str, value))
    try:
        return float(value)
    except (TypeError, ValueError):
        return "" if value is None else str(value)


def compared(first: Written, second: Written) -> Differences:
    """Return what differs between two results of one kind."""
    shared = [column for column in first.columns if column in second.columns]
    asked = [column for column in shared if first.is_input(column)]
    key = telling_apart((first, second), asked)
    ours, theirs = (_by_key(written, key) for written in (first, second))
    both = [name for name in ours if name in theirs]
    inputs = {
        name: (first.inputs.get(name), second.inputs.get(name))
        for name in dict.fromkeys([*first.inputs, *second.inputs])
        if first.inputs.get(name) != second.inputs.get(name)
    }
    for column in asked:
        values = {(str(ours[name].get(column)), str(theirs[name].get(column))) for name in both}
        changed = sorted(pair for pair in values if pair[0] != pair[1])
        if column not in (*key, *_ABOUT) and changed:
            inputs[column] = changed[0]
    answers = [c for c in shared if not first.is_input(c) and c not in _NEITHER]
    changes = [change for column in answers if (change := _change(column, both, ours, theirs))]
    main = next((column for column in _MAIN if column in answers), "")
    return Differences(
        first=first,
        second=second,
        key=key,
        inputs=inputs,
        columns=tuple(sorted(changes, key=lambda change: -_size(change.before, change.after))),
        moved=tuple(_moved(main, both, ours, theirs)),
        only_first=tuple(name for name in ours if name not in theirs),
        only_second=tuple(name for name in theirs if name not in ours),
        other_columns=tuple(sorted(set(first.columns) ^ set(second.columns))),
        matched=len(both),
    )


def telling_apart(results: Sequence[Written], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the first few columns, of what was asked, by which no two rows of a result are alike.

    What a reader would name a row by comes first: model, network, point, then axes and options.
    """
    order = [column for column in _ABOUT if column in columns]
    named = [column for column in order if column != "series"]
    rest = [column for column in columns if column not in order]
    key: list[str] = []
    for column in (*named, *rest, *(("series",) if "series" in order else ())):
        before, after = (
            sum(len({tuple(str(row.get(c, "")) for c in tried) for row in each.rows}) for each in results)
            for tried in (key, [*key, column])
        )
        if after > before or column in ("workload", "topology"):
            key.append(column)
    return tuple(key)


def _by_key(written: Written, key: Sequence[str]) -> dict[Key, Row]:
    """Rows by what they are about; rows that are about the same are numbered."""
    seen: Counter[Key] = Counter()
    found = {}
    for row in written.rows:
        name = tuple(_word(row.get(column, "")) for column in key)
        seen[name] += 1
        found[name if seen[name] == 1 else (*name, f"no. {seen[name]}")] = row
    return found


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _change(
    column: str, names: Sequence[Key], ours: Mapping[Key, Row], theirs: Mapping[Key, Row]
) -> ColumnChange | None:
    ends = {name: (ours[name].get(column, ""), theirs[name].get(column, "")) for name in names}
    changed = [name for name, (before, after) in ends.items() if before != after]
    if not changed:
        return None
    at = max(changed, key=lambda name: _size(*ends[name]))
    return ColumnChange(
        column=column, changed=len(changed), of=len(names), at=at, before=ends[at][0], after=ends[at][1]
    )


def _moved(
    column: str, names: Sequence[Key], ours: Mapping[Key, Row], theirs: Mapping[Key, Row], most: int = 10
) -> list[tuple[str, Key, float, float]]:
    """The rows whose main column moved most, the largest first."""
    moved = [
        (column, name, ours[name][column], theirs[name][column])
        for name in names
        if column and ours[name].get(column) != theirs[name].get(column)
    ]
    moved = [row for row in moved if ratio_of(row[2], row[3]) is not None]
    return sorted(moved, key=lambda row: -_size(row[2], row[3]))[:most]


def ratio_of(before: Any, after: Any) -> float | None:
    """Return after by before, None where one of them is no number or is 0.

    >>> ratio_of(2.0, 3.0), ratio_of(0.0, 3.0), ratio_of("ok", 3.0)
    (1.5, None, None)
    """
    numbers = all(isinstance(value, (int, float)) for value in (before, after))
    return after / before if numbers and before and after else None


def _size(before: Any, after: Any) -> float:
    """How large a move is, up or down alike; what is no ratio comes last, but before no move."""
    ratio = ratio_of(before, after)
    return 1e-300 if ratio is None or ratio <= 0 else abs(math.log(ratio))
