"""A search as a person looks at it, and its files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_bytes, format_us
from sipml_core.model import CaseResult
from sipml_core.report.fitting import fitted
from sipml_core.report.limiting import bound_by
from sipml_core.report.resultfiles import Inputs, plain_row, to_csv, to_json, write_atomically
from sipml_core.searching import SearchResult, SearchRow

#: Rows shown in the terminal for each workload and interconnect, beside pure data parallelism.
SHOWN = 8
_COLUMNS = (
    "mp x dp", "plan", "batch", "layout", "placer", "memory", "estimate", "simulated", "error", "to {goal}",
)  # fmt: skip

_WINNER_COLUMNS = (
    "workload", "interconnect", "mp x dp", "plan", "batch", "iteration", "to {goal}", "speed-up", "pure DP",
    "bound by",
)  # fmt: skip
#: Left out one by one, in this order, where the terminal is too narrow.
_DROPPED = ("placer", "memory", "error", "layout", "estimate", "plan")
#: Left out before these, and said below the table, where all rows have the same.
_PERHAPS_ALIKE = ("placer", "layout", "batch")
#: From so many characters on reasons stand in the table, shortened.
_WIDE = 100


def search_tables(result: SearchResult, width: int = 160, shown: int | None = SHOWN) -> Iterator[Table]:
    """One table for each workload on each interconnect, the best first; `shown` None shows all rows."""
    for workload, topology in dict.fromkeys((row.workload, row.topology) for row in result.rows):
        rows = sorted(result.of(workload, topology), key=_rank)
        worth = list(_worth_showing(rows, shown))
        headings = [heading.format(goal=rows[0].goal) for heading in _COLUMNS]
        several = len({_plan(row) for row in rows}) > 1
        cells = [dict(zip(headings, _cells(row, width), strict=True)) for row in worth]
        alike = [head for head in _PERHAPS_ALIKE if len(cells) > 1 and len({row[head] for row in cells}) == 1]
        table = fitted(
            f"{workload} on {topology}: {rows[0].gpus} GPUs, {_counts(rows)}",
            [heading for heading in headings if several or heading != "plan"],
            cells,
            width=width,
            drop=[*alike, *_DROPPED],
            bold=[row.best for row in worth],
        )
        kept = {str(column.header) for column in table.columns}
        same = [f"{heading} {cells[0][heading]}" for heading in alike if heading not in kept]
        lines = [f"all rows: {', '.join(same)}"] if same else []
        if len(worth) < len(rows):
            lines.append(f"{len(rows)} candidates in all; every one is in search.csv")
        table.caption = Text("\n".join(lines)) if lines else None
        yield table


def _rank(row: SearchRow) -> tuple[float, float]:
    """Simulated ones by what was simulated, then the others by the estimate, then infeasible ones."""
    return (
        math.inf if row.time_to_goal_s is None else row.time_to_goal_s,
        math.inf if row.estimate_s is None or row.reason else row.estimate_s,
    )


def _counts(rows: list[SearchRow]) -> str:
    kinds = [row.status for row in rows]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _worth_showing(rows: list[SearchRow], shown: int | None) -> Iterable[SearchRow]:
    """The first few, and the best of pure data parallelism wherever it stands."""
    if shown is None:
        return rows
    pure = [row for row in rows if row.mp == row.pp == 1][:1]
    return [*rows[:shown], *(row for row in pure if row not in rows[:shown])]


def _plan(row: SearchRow) -> str:
    """Return what a search may vary of a plan beside degrees, batch, layout and placer."""
    parts = [row.schedule] if row.schedule else []
    parts += [f"micro-batch {row.micro_batch}"] if row.micro_batch else []
    parts += [f"zero {row.zero}"] if row.zero else []
    parts += [f"recompute {row.recompute}"] if row.recompute != "none" else []
    return ", ".join(parts)


def _degrees(mp: int | None, dp: int | None, pp: int | None) -> str:
    return f"{mp} x {dp}" + (f" (pp {pp})" if (pp or 1) > 1 else "")


def _cells(row: SearchRow, width: int) -> list[str]:
    if row.reason:
        shortened = row.reason if len(row.reason) < 40 else f"{row.reason[:38]}.."
        outcome = [row.status, shortened, "", ""] if width >= _WIDE else ["", row.status, "", ""]
    else:
        outcome = [
            _time(row.estimate_us),
            _time(row.iteration_us),
            "" if row.error is None else f"{row.error:+.1%}",
            _seconds(row) + ("*" if row.extrapolated else ""),
        ]
    memory = "" if row.memory_bytes is None else format_bytes(row.memory_bytes)
    return [
        _degrees(row.mp, row.dp, row.pp), _plan(row), str(row.global_batch), row.layout, row.placer,
        memory + ("!" if row.tight_memory else ""), *outcome,
    ]  # fmt: skip


def _time(time_us: float | None) -> str:
    return "" if time_us is None else format_us(time_us)


def _seconds(row: SearchRow) -> str:
    if row.time_to_goal_s is not None:
        return format_us(row.time_to_goal_s * 1e6)
    return "" if row.estimate_s is None else f"~{format_us(row.estimate_s * 1e6)}"


def winners_tables(result: SearchResult, width: int = 160) -> Iterator[Table]:
    """The best strategy of every workload on every interconnect, side by side; one table for each goal."""
    for goal in dict.fromkeys(case.goal for case in result.best):
        headings = [heading.format(goal=goal) for heading in _WINNER_COLUMNS]
        title = "least time-to-accuracy" if goal == "accuracy" else f"least time for {goal}"
        several = len({_plan(row) for row in result.rows}) > 1
        yield fitted(
            title, [heading for heading in headings if several or heading != "plan"],
            [
                dict(zip(headings, _winner_cells(result, case), strict=True))
                for case in result.best if case.goal == goal
            ],
            width=width, drop=("pure DP", "iteration", "bound by", "plan"), left=("workload", "interconnect"),
        )  # fmt: skip


def _winner_cells(result: SearchResult, case: CaseResult) -> list[str]:
    ratio = "-" if case.speedup is None else f"{case.speedup:.2f}x"
    return [
        case.workload,
        case.topology,
        _degrees(case.mp, case.dp, case.pp),
        next((_plan(row) for row in result.of(case.workload, case.topology) if row.best), ""),
        str(case.global_batch),
        format_us(case.measured_us),
        format_us((case.time_to_goal_s or 0.0) * 1e6) + ("*" if case.extrapolated else ""),
        "baseline" if case.topology == result.baseline else ratio,
        _pure_data_parallelism(result, case.workload, case.topology),
        bound_by(case),
    ]


def _pure_data_parallelism(result: SearchResult, workload: str, topology: str) -> str:
    times = [
        row.time_to_goal_s
        for row in result.of(workload, topology)
        if row.mp == row.pp == 1 and row.time_to_goal_s is not None
    ]
    return format_us(min(times) * 1e6) if times else "infeasible"


def search_footnotes(result: SearchResult) -> list[str]:
    """What a reader must know beside the tables."""
    lines = []
    without = dict.fromkeys((row.workload, row.topology) for row in result.rows)
    for workload, topology in without:
        if result.winner(workload, topology) is None:
            rows = result.of(workload, topology)
            reasons = [row.reason for row in rows if row.status == "infeasible"]
            # What broke says more than what was asked for in vain.
            broken = [reason for reason in reasons if reason.startswith(("failed: ", "stalled: "))]
            last = (broken or reasons)[-1]
            lines.append(f"{workload} on {topology}: no candidate can run; the last one: {last}")
    for case in without:
        lines += _beyond_top(result, *case)
    gains = {case: result.gain_of_rounds(*case) for case in without}
    told = [
        f"{workload} on {topology} {f'{gain:.1%} less' if gain else 'no gain'}"
        for (workload, topology), gain in gains.items()
        if gain is not None
    ]
    if told:
        lines.append(f"layout and circuits in turn, against one pass: {', '.join(told)}")
    if any(row.extrapolated for row in result.rows):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    if any(row.tight_memory for row in result.rows):
        lines.append("! needs more than 95 % of the device memory")
    if any(row.time_to_goal_s is None and row.estimate_s is not None for row in result.rows):
        lines.append("~ estimated only")
    return lines


def _beyond_top(result: SearchResult, workload: str, topology: str) -> Iterator[str]:
    """Yield how many were simulated because their estimates beat the winner, and what was left."""
    tried, doubts = result.further(workload, topology), result.doubted_by(workload, topology)
    simulated = sum(row.status == "simulated" for row in tried)
    if simulated:
        yield (
            f"{workload} on {topology}: beyond the best by estimate {simulated} more simulated, whose "
            "estimates beat the best so far"
        )
    if doubts:
        yield (
            f"{workload} on {topology}: by estimate {len(doubts)} more beat the winner, and were not "
            f"simulated; search.further = {len(tried) + len(doubts)} simulates them"
        )


def write_search(result: SearchResult, folder: Path) -> list[Path]:
    """search.csv has every candidate, search.json also the winners in full."""
    columns = [field.name for field in attrs.fields(SearchRow)]
    files = {
        "search.csv": to_csv([plain_row(attrs.asdict(row)) for row in result.rows], columns),
        "search.json": to_json(Inputs.of(result).document(attrs.asdict(result))),
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]
