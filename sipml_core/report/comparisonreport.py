"""A comparison of two results for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from sipml_core.errors import brief
from sipml_core.report.comparison import Differences, Key, ratio_of

#: Lines that one table shows.
SHOWN_LINES = 30


def comparison_tables(comparison: Differences) -> Iterable[Table]:
    """Yield what differs in input, then each column that differs, then the rows that moved most."""
    if comparison.inputs:
        table = _table("what was asked", "key", "first", "second")
        for key, (before, after) in list(comparison.inputs.items())[:SHOWN_LINES]:
            table.add_row(*map(Text, (key, _word(before), _word(after))))
        yield table
    if comparison.columns:
        table = _table("what came out", "column", "rows", "most: first", "second", "change", "in row")
        # Names of columns are not broken where room is short; rows, which are words, are.
        table.columns[0].min_width = min(30, max(len(change.column) for change in comparison.columns))
        for change in comparison.columns:
            cells = (
                change.column, f"{change.changed} of {change.of}", _word(change.before),
                _word(change.after), percent(change.before, change.after), _name(change.at),
            )  # fmt: skip
            table.add_row(*map(Text, cells))
        yield table
    if len(comparison.moved) > 1:
        table = _table(f"what moved most: {comparison.moved[0][0]}", "row", "first", "second", "change")
        for _, name, before, after in comparison.moved:
            table.add_row(*map(Text, (_name(name), _word(before), _word(after), percent(before, after))))
        yield table


def comparison_lines(comparison: Differences) -> list[str]:
    """Return what a reader must know beside the tables: rows and columns that only one of them has."""
    first, second = comparison.first.name, comparison.second.name
    lines = [f"{first} and {second}: {comparison.matched} rows in both"]
    if comparison.same:
        lines[0] += ", and nothing differs"
    for name, only in ((first, comparison.only_first), (second, comparison.only_second)):
        if only:
            more = f" and {len(only) - 5} more" if len(only) > 5 else ""
            lines.append(f"only in {name}: {'; '.join(_name(key) for key in only[:5])}{more}")
    if len(comparison.inputs) > SHOWN_LINES:
        lines.append(f"{len(comparison.inputs) - SHOWN_LINES} more keys of the input differ")
    if comparison.other_columns:
        lines.append(f"columns that only one has: {', '.join(comparison.other_columns)}")
    return lines


def percent(before: Any, after: Any) -> str:
    """Return a change in percent, or as a factor where it is large; nothing where there is no ratio.

    >>> percent(2.0, 3.0), percent(1.0, 12.0), percent("ok", "failed")
    ('+50 %', '12x', '')
    """
    ratio = ratio_of(before, after)
    if ratio is None:
        return ""
    return f"{ratio:.3g}x" if ratio >= 10 else f"{100 * (ratio - 1):+.3g} %"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _name(key: Key) -> str:
    return ", ".join(filter(None, key)) or "the only row"


def _word(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return brief(f"{value:.6g}" if isinstance(value, float) else str(value))
