"""A sweep as a table of one row for each run, and the figure that it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from sipml_core.report.plots import figure_bytes
from sipml_core.report.reproduction import draw_sweep
from sipml_core.report.resultfiles import plain_row, to_csv, write_atomically
from sipml_core.sweeping import SweepResult, SweepRow

#: Rows that a terminal shows; all are in the CSV file.
SHOWN_ROWS = 60


def sweep_csv(result: SweepResult) -> str:
    """Return one line for each run: axes, series, result, seed, version, hash, every resolved option."""
    records = result.records()
    columns = list(records[0]) if records else []
    return to_csv([plain_row(record) for record in records], columns)


def write_sweep(result: SweepResult, name: str, folder: Path, picture: bool) -> list[Path]:
    """Write NAME.csv, and the figure that the sweep asks for; each file appears whole or not at all."""
    contents: dict[str, bytes] = {f"{name}.csv": sweep_csv(result).encode()}
    asked = result.sweep.figure
    if picture and asked is not None:
        figure = draw_sweep(result.sweep, result.drawn())
        contents |= {f"{name}.{kind}": figure_bytes(figure, kind) for kind in asked.formats}
    for file, content in contents.items():
        write_atomically(folder / file, content)
    return [folder / file for file in contents]


def sweep_tables(result: SweepResult, name: str) -> Iterable[Table]:
    """Yield the rows of a sweep for a terminal: axes, what runs on what, and the times."""
    axes = list(dict.fromkeys(key for row in result.rows for key in row.point.columns()))
    table = Table(title=Text(result.sweep.title or name), title_justify="left")
    for key in axes:
        table.add_column(Text(key), justify="right", overflow="fold")
    for column in ("workload", "series" if result.sweep.series else "network"):
        table.add_column(column, overflow="fold")
    for column in ("plan", "iteration [ms]", "to goal [h]", "speed-up"):
        table.add_column(column, justify="right")
    for row in result.rows[:SHOWN_ROWS]:
        line = row.series if result.sweep.series else row.result.topology
        table.add_row(*map(Text, _cells(row, axes, line)))
    yield table


def _cells(row: SweepRow, axes: list[str], line: str) -> list[str]:
    found, place = row.result, row.point.columns()
    cells = [_short(place.get(key, "")) for key in axes]
    cells += [found.workload, line, f"{found.mp} x {found.dp}" if found.mp else ""]
    if not row.ran or found.iteration_us is None or found.time_to_goal_s is None:
        return [*cells, found.status, "", ""]
    speedup = getattr(found, "speedup", None)
    return [
        *cells,
        f"{found.iteration_us / 1e3:.4g}",
        f"{found.time_to_goal_s / 3600:.4g}",
        "" if speedup is None else f"{speedup:.3g}",
    ]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_footnotes(result: SweepResult, name: str) -> list[str]:
    """Return what a reader must know beside the table: what was left out, and why runs did not run."""
    lines = []
    if len(result.rows) > SHOWN_ROWS:
        lines.append(f"{len(result.rows) - SHOWN_ROWS} more rows are in {name}.csv")
    reasons = dict.fromkeys(row.result.reason for row in result.rows if not row.ran)
    for reason in list(reasons)[:8]:
        count = sum(row.result.reason == reason and not row.ran for row in result.rows)
        lines.append(f"{count} of {len(result.rows)} runs: {reason}")
    return lines
