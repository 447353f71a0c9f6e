"""A search as a person looks at it, and its files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table

from sipml_core.fields import format_bytes, format_us
from sipml_core.report.resultfiles import to_csv, write_atomically
from sipml_core.search import SearchResult, SearchRow

#: Rows shown in the terminal for each workload and interconnect, beside pure data parallelism.
SHOWN = 8
_COLUMNS = (
    "mp x dp", "batch", "layout", "placer", "memory", "estimate", "simulated", "error", "to accuracy",
)  # fmt: skip

_WINNER_COLUMNS = (
    "workload", "interconnect", "mp x dp", "batch", "iteration", "to accuracy", "speed-up", "pure DP",
)  # fmt: skip


def search_tables(result: SearchResult, shown: int | None = SHOWN) -> Iterator[Table]:
    """One table for each workload on each interconnect, the best first; None shows all rows."""
    for workload, topology in dict.fromkeys((row.workload, row.topology) for row in result.rows):
        rows = sorted(result.of(workload, topology), key=_rank)
        table = Table(
            title=f"{workload} on {topology}: {rows[0].gpus} GPUs, {_counts(rows)}", title_justify="left",
            caption_justify="left",
        )  # fmt: skip
        for column in _COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for row in _worth_showing(rows, shown):
            table.add_row(*_cells(row), style="bold" if row.best else None)
        if shown is not None and len(rows) > shown:
            table.caption = f"{len(rows)} candidates in all; every one is in search.csv"
        yield table


def _rank(row: SearchRow) -> tuple[float, float]:
    """Simulated ones by what was simulated, then the others by the estimate, then infeasible ones."""
    return (
        math.inf if row.time_to_accuracy_s is None else row.time_to_accuracy_s,
        math.inf if row.estimate_s is None or row.reason else row.estimate_s,
    )


def _counts(rows: list[SearchRow]) -> str:
    kinds = [row.status for row in rows]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _worth_showing(rows: list[SearchRow], shown: int | None) -> Iterable[SearchRow]:
    """The first few, and the best of pure data parallelism wherever it stands."""
    if shown is None:
        return rows
    pure = [row for row in rows if row.mp == 1][:1]
    return [*rows[:shown], *(row for row in pure if row not in rows[:shown])]


def _cells(row: SearchRow) -> list[str]:
    if row.reason:
        outcome = ["infeasible", row.reason if len(row.reason) < 40 else f"{row.reason[:38]}..", "", ""]
    else:
        outcome = [
            _time(row.estimate_us),
            _time(row.iteration_us),
            "" if row.error is None else f"{row.error:+.1%}",
            _seconds(row) + ("*" if row.extrapolated else ""),
        ]
    memory = "" if row.memory_bytes is None else format_bytes(row.memory_bytes)
    return [
        f"{row.mp} x {row.dp}", str(row.global_batch), row.layout, row.placer,
        memory + ("!" if row.tight_memory else ""), *outcome,
    ]  # fmt: skip


def _time(time_us: float | None) -> str:
    return "" if time_us is None else format_us(time_us)


def _seconds(row: SearchRow) -> str:
    if row.time_to_accuracy_s is not None:
        return format_us(row.time_to_accuracy_s * 1e6)
    return "" if row.estimate_s is None else f"~{format_us(row.estimate_s * 1e6)}"


def winners_table(result: SearchResult) -> Table:
    """The best strategy of every workload on every interconnect, side by side."""
    table = Table(title="least time-to-accuracy", title_justify="left")
    columns = (
        "workload",
        "interconnect",
        "mp x dp",
        "batch",
        "iteration",
        "to accuracy",
        "speed-up",
        "pure DP",
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for case in result.best:
        speedup = "baseline" if case.topology == result.baseline else f"{case.speedup:.2f}x"
        table.add_row(
            case.workload,
            case.topology,
            f"{case.mp} x {case.dp}",
            str(case.global_batch),
            format_us(case.iteration_us),
            format_us(case.time_to_accuracy_s * 1e6) + ("*" if case.extrapolated else ""),
            "-" if math.isnan(case.speedup) else speedup,
            _pure_data_parallelism(result, case.workload, case.topology),
        )
    return table


def _pure_data_parallelism(result: SearchResult, workload: str, topology: str) -> str:
    times = [
        row.time_to_accuracy_s
        for row in result.of(workload, topology)
        if row.mp == 1 and row.time_to_accuracy_s is not None
    ]
    return format_us(min(times) * 1e6) if times else "infeasible"


def search_footnotes(result: SearchResult) -> list[str]:
    """What a reader must know beside the tables."""
    lines = []
    without = dict.fromkeys((row.workload, row.topology) for row in result.rows)
    for workload, topology in without:
        if result.winner(workload, topology) is None:
            reason = next(row.reason for row in reversed(result.of(workload, topology)) if row.reason)
            lines.append(f"{workload} on {topology}: no candidate can run; the last one: {reason}")
    if any(row.extrapolated for row in result.rows):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    if any(row.tight_memory for row in result.rows):
        lines.append("! needs more than 95 % of the device memory")
    if any(row.time_to_accuracy_s is None and row.estimate_s is not None for row in result.rows):
        lines.append("~ estimated only")
    return lines


def write_search(result: SearchResult, folder: Path) -> list[Path]:
    """search.csv has every candidate, search.json also the winners in full."""
    columns = [field.name for field in attrs.fields(SearchRow)]
    files = {
        "search.csv": to_csv([plain_row(attrs.asdict(row)) for row in result.rows], columns),
        "search.json": json.dumps(_finite(attrs.asdict(result)), indent=1, sort_keys=True, allow_nan=False)
        + "\n",
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Values as CSV has them: lower-case truth values, nothing for what is not known."""
    return {
        key: "" if value is None else str(value).lower() if isinstance(value, bool) else value
        for key, value in row.items()
    }


def _finite(value: Any) -> Any:
    """NaN, a speed-up over a baseline that cannot run, becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
