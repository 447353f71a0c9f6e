"""A sweep as a table of one row for each run, and the figure that it asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from sipml_core.fields import format_number
from sipml_core.report.fitting import fitted
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
    """Write NAME.csv, then the figure that the sweep asks for; each file appears whole or not at all."""
    written = [folder / f"{name}.csv"]
    write_atomically(written[0], sweep_csv(result).encode())  # there even if drawing fails
    asked, drawn = result.sweep.figure, result.drawn()
    if picture and asked is not None and drawn:
        figure = draw_sweep(result.sweep, drawn)
        for kind in asked.formats:
            written.append(folder / f"{name}.{kind}")
            write_atomically(written[-1], figure_bytes(figure, kind))
    return written


def sweep_tables(result: SweepResult, name: str, width: int) -> Iterable[Table]:
    """Yield the rows of a sweep for `width` characters: axes, what runs on what, and the times."""
    axes = list(dict.fromkeys(key for row in result.rows for key in row.point.columns()))
    line = "series" if result.sweep.series else "network"
    rows = [_cells(row, axes, line) for row in result.rows[:SHOWN_ROWS]]
    headings = [*map(_heading, axes), "workload", line, "plan", "iteration [ms]", "to goal [h]", "speed-up"]
    one_workload = len({row.result.workload for row in result.rows}) == 1
    drop = [*(["workload"] if one_workload else []), "to goal [h]", "plan", "speed-up"]
    title = result.sweep.title or name
    yield fitted(title, headings, rows, width=width, drop=drop, left=("workload", line))


def _cells(row: SweepRow, axes: list[str], line: str) -> dict[str, str]:
    found, place = row.result, row.point.columns()
    iteration_us, goal_s, speedup = found.iteration_us, found.time_to_goal_s, getattr(found, "speedup", None)
    ran = row.ran and iteration_us is not None
    return {
        **{_heading(key): _short(place.get(key, "")) for key in axes},
        "workload": found.workload,
        line: row.series if line == "series" else found.topology,
        "plan": f"{found.mp} x {found.dp}" if found.mp else "",
        "iteration [ms]": format_number(iteration_us / 1e3)
        if ran and iteration_us is not None
        else found.status,
        "to goal [h]": format_number(goal_s / 3600) if ran and goal_s is not None else "",
        "speed-up": f"{speedup:.3g}" if ran and speedup is not None else "",
    }


def _heading(key: str) -> str:
    r"""Return the key of an axis on lines that need little width.

    >>> _heading("topology.sip-ring.reach_hops")
    'topology.\nsip-ring.\nreach_hops'
    """
    return key.replace(".", ".\n")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_footnotes(result: SweepResult, name: str) -> list[str]:
    """Return what a reader must know beside the table: what was left out, and why runs did not run."""
    lines = []
    if len(result.rows) > SHOWN_ROWS:
        lines.append(f"{len(result.rows) - SHOWN_ROWS} more rows are in {name}.csv")
    if result.sweep.figure is not None and not result.drawn():
        lines.append("no run is of a series of the figure: nothing to draw")
    reasons = dict.fromkeys(row.result.reason for row in result.rows if not row.ran)
    for reason in list(reasons)[:8]:
        count = sum(row.result.reason == reason and not row.ran for row in result.rows)
        lines.append(f"{count} of {len(result.rows)} runs: {reason}")
    return lines
