"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_bytes, format_number, format_us
from sipml_core.model import CaseResult, Result
from sipml_core.report.fitting import fitted
from sipml_core.report.languagetable import language_table

_COLUMNS = (
    "interconnect", "mp x dp", "iteration", "bound", "compute", "largest", "exposed", "dark", "idle",
    "sent / GPU", "tokens/s", "to {goal}", "speed-up",
)  # fmt: skip

#: Left out one by one, in this order, where the terminal is too narrow.
_DROPPED = ("sent / GPU", "bound", "largest", "idle", "dark", "compute", "tokens/s", "exposed", "mp x dp")
#: Width of the tables where nobody says another one.
_WIDTH = 160


def result_tables(result: Result, width: int = _WIDTH) -> Iterable[Table]:
    """One table for each workload, two of a language model; in a narrow terminal the main columns."""
    for workload in dict.fromkeys(case.workload for case in result.cases):
        rows = [case for case in result.cases if case.workload == workload]
        yield _workload_table(rows, result, width)
        language = language_table(rows, width)
        if language is not None:
            yield language


def _workload_table(rows: list[CaseResult], result: Result, width: int) -> Table:
    goal = next((row.goal for row in rows if row.ran), "accuracy")
    headings = _headings(goal)
    if not any(row.tokens_per_s for row in rows) or goal == "accuracy":
        headings.remove("tokens/s")
    cells = [dict(zip(_headings(goal), _cells(row, result.baseline), strict=True)) for row in rows]
    batches = sorted({row.global_batch for row in rows if row.global_batch})
    batch = f", global batch {' or '.join(map(str, batches))}" if batches else ""
    table = fitted(
        f"{rows[0].workload}: {rows[0].gpus} GPUs{batch}", headings, cells,
        width=width, drop=_DROPPED, left=("interconnect",),
    )  # fmt: skip
    lines = [f"{row.topology}: {row.status}: {row.reason}" for row in rows if not row.ran]
    if len(table.columns) < len(headings):
        lines.append("all columns are in summary.csv, and here in a wider terminal")
    if lines:
        table.caption = Text("\n".join(lines))
    return table


def _headings(goal: str) -> list[str]:
    return [heading.format(goal=goal) for heading in _COLUMNS]


def _cells(row: CaseResult, baseline: str) -> list[str]:
    mark = "*" if row.extrapolated else ""
    if row.topology == baseline:
        speedup = "baseline"
    else:
        speedup = "-" if row.speedup is None else f"{row.speedup:.2f}x"
    sent = None if row.network_bytes is None else row.network_bytes / row.gpus
    return [
        row.topology,
        "-" if row.mp is None else f"{row.mp} x {row.dp}" + (f" (pp {row.pp})" if (row.pp or 1) > 1 else ""),
        format_us(row.iteration_us) if row.iteration_us is not None else row.status,
        *map(_time, (row.lower_bound_us, row.compute_us, row.compute_max_us)),
        *map(_time, (row.exposed_us, row.dark_us, row.idle_us)),
        "-" if sent is None else format_bytes(sent),
        "-" if row.tokens_per_s is None else format_number(row.tokens_per_s),
        "-" if row.time_to_goal_s is None else format_us(row.time_to_goal_s * 1e6) + mark,
        speedup,
    ]


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else format_us(time_us)


def footnotes(result: Result) -> list[str]:
    """What a reader must know beside the tables."""
    lines = []
    for case in result.cases:
        lines += [f"{case.workload} on {case.topology}: {note}" for note in case.notes]
    if any(case.extrapolated for case in result.cases):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    lines += [
        f"{workload}: no convergence curve was measured for this model; time for {goal} instead"
        for workload, goal in dict.fromkeys((case.workload, case.goal) for case in result.cases if case.ran)
        if goal != "accuracy"
    ]
    return list(dict.fromkeys(lines))
