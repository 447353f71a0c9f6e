"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from sipml_core.fields import format_bytes, format_us
from sipml_core.model import CaseResult, Result

_COLUMNS = (
    "interconnect", "mp x dp", "iteration", "compute", "exposed", "dark", "idle",
    "sent / GPU", "to accuracy", "speed-up",
)  # fmt: skip

#: Columns that a narrow terminal has room for, and the width from which all have.
_NARROW = ("interconnect", "mp x dp", "iteration", "exposed", "to accuracy", "speed-up")
_WIDE = 124


def result_tables(result: Result, width: int = _WIDE) -> Iterable[Table]:
    """One table for each workload; in fewer than 124 characters, with the main columns only."""
    columns = _COLUMNS if width >= _WIDE else _NARROW
    for workload in dict.fromkeys(case.workload for case in result.cases):
        rows = [case for case in result.cases if case.workload == workload]
        yield _workload_table(workload, rows, result.baseline, columns)


def _workload_table(workload: str, rows: list[CaseResult], baseline: str, columns: tuple[str, ...]) -> Table:
    batch, gpus = rows[0].global_batch, rows[0].gpus
    table = Table(title=f"{workload}: {gpus} GPUs, global batch {batch}", title_justify="left")
    if columns != _COLUMNS:
        table.caption = "all columns are in summary.csv, and here in a wider terminal"
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        cells = dict(zip(_COLUMNS, _cells(row, baseline), strict=True))
        table.add_row(*(cells[column] for column in columns))
    return table


def _cells(row: CaseResult, baseline: str) -> list[str]:
    marked = "*" if row.extrapolated else ""
    return [
        row.topology,
        f"{row.mp} x {row.dp}" + (f" (pp {row.pp})" if row.pp > 1 else ""),
        format_us(row.iteration_us),
        format_us(row.compute_us),
        format_us(row.exposed_us),
        format_us(row.dark_us),
        format_us(row.idle_us),
        format_bytes(row.network_bytes / row.gpus),
        format_us(row.time_to_accuracy_s * 1e6) + marked,
        "baseline" if row.topology == baseline else f"{row.speedup:.2f}x",
    ]


def footnotes(result: Result) -> list[str]:
    """What a reader must know beside the tables."""
    lines = []
    for case in result.cases:
        lines += [f"{case.workload} on {case.topology}: {note}" for note in case.notes]
    if any(case.extrapolated for case in result.cases):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    return list(dict.fromkeys(lines))
