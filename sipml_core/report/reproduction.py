"""A reproduced study as figures, numbers and verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.fields import format_number
from sipml_core.report.drawing import AXES, SeriesLook, draw_series
from sipml_core.report.plots import figure_bytes
from sipml_core.report.resultfiles import plain_row, to_csv, write_atomically
from sipml_core.reproduce import Finding, Verdict
from sipml_core.sweeping import FigureTable, Number, Sweep


def draw(finding: Finding) -> Any:
    """The figure of a study."""
    return draw_sweep(finding.study, [number.record() for number in finding.numbers])


def draw_sweep(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Any:
    """One column of panels for each workload, one row for each quantity, as the sweep's [figure] asks."""
    asked = sweep.figure or FigureTable()
    look = SeriesLook(
        panel="workload",
        x_label=asked.x_label or sweep.x_key(),
        title=sweep.title if asked.title is None else asked.title,
        subtitle=_subtitle(rows) if asked.title != "" else "",
        width_in=asked.width_in,
    )
    return draw_series(rows, "x", asked.y, "series", look)


def _subtitle(rows: Sequence[Mapping[str, Any]]) -> str:
    gpus = sorted({row["gpus"] for row in rows})
    parts = [f"{gpus[0]} GPUs" if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]} GPUs"]
    if any(row["extrapolated"] for row in rows):
        parts.append("hollow: batch outside the measured convergence data")
    if any(row["tight_memory"] for row in rows):
        parts.append("ringed: memory at the limit")
    return "; ".join(parts)


def _points(numbers: list[Number]) -> dict[float, str]:
    """Places on the axis, and what is written there."""
    return {number.x: number.label or f"{number.x:g}" for number in sorted(numbers, key=lambda n: n.x)}


def write_finding(finding: Finding, folder: Path, picture: bool) -> list[Path]:
    """The files of one study: NAME.csv, and NAME.png and NAME.svg if it has a figure."""
    contents: dict[str, bytes] = {}
    if finding.numbers and not finding.verdicts:
        columns = [field.name for field in attrs.fields(Number)]
        rows = [plain_row(attrs.asdict(number)) for number in finding.numbers]
        contents[f"{finding.name}.csv"] = to_csv(rows, columns).encode()
        if picture:
            figure = draw(finding)
            for kind in (finding.study.figure or FigureTable()).formats:
                contents[f"{finding.name}.{kind}"] = figure_bytes(figure, kind)
    if finding.verdicts:
        columns = [field.name for field in attrs.fields(Verdict)]
        rows = [_verdict_row(verdict) for verdict in finding.verdicts]
        contents[f"{finding.name}.csv"] = to_csv(rows, columns).encode()
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {**plain_row(attrs.asdict(verdict)), "by_workload": json.dumps(verdict.by_workload)}


def finding_tables(finding: Finding) -> Iterable[Table]:
    """The numbers of a study for a terminal, or the verdicts on its claims."""
    if finding.verdicts:
        yield verdict_table(finding)
        return
    for workload in dict.fromkeys(number.workload for number in finding.numbers):
        for quantity in (finding.study.figure or FigureTable()).y:
            mine = [number for number in finding.numbers if number.workload == workload]
            yield _quantity_table(finding, workload, mine, quantity)


def _quantity_table(finding: Finding, workload: str, numbers: list[Number], quantity: str) -> Table:
    """A row for each series; or for each point, where points have names."""
    table = Table(title=Text(f"{finding.name}, {workload}: {AXES[quantity]}"), title_justify="left")
    table.add_column(Text(finding.study.figure.x_label if finding.study.figure else ""))
    points, series = _points(numbers), dict.fromkeys(number.series for number in numbers)
    cells = {(n.series, n.x): _cell(n, quantity) for n in numbers}
    if any(number.label for number in numbers):
        for label in series:
            table.add_column(Text(label), justify="right")
        for x, name in points.items():
            table.add_row(Text(name), *(cells.get((label, x), "") for label in series))
        return table
    for name in points.values():
        table.add_column(Text(name), justify="right", no_wrap=True)
    for label in series:
        table.add_row(Text(label), *(cells.get((label, x), "") for x in points))
    return table


def _cell(number: Number, quantity: str) -> str:
    value = getattr(number, quantity)
    if value is None:
        return "-"
    marks = ("*" if number.extrapolated else "") + ("!" if number.tight_memory else "")
    return f"{format_number(value)}{marks}"


def verdict_table(finding: Finding) -> Table:
    """The paper's number, ours, and whether the claim holds."""
    table = Table(title=Text(finding.study.title), title_justify="left", show_lines=True)
    for column in ("claim", "paper", "ours", "each workload", "verdict"):
        table.add_column(column, overflow="fold")
    for verdict in finding.verdicts:
        each = (f"{name} {_range(*ends)}" for name, ends in verdict.by_workload.items())
        ours = _range(verdict.smallest, verdict.largest) + ("*" if verdict.extrapolated else "")
        unjudged = f"\n{verdict.unjudged} points without a time" if verdict.unjudged else ""
        cells = (verdict.claim, verdict.paper, ours, "\n".join(each), verdict.verdict + unjudged)
        table.add_row(*map(Text, cells))
    return table


def _range(smallest: float | None, largest: float | None) -> str:
    return "-" if smallest is None or largest is None else f"{smallest:.2f}x to {largest:.2f}x"


def reproduction_footnotes(findings: Iterable[Finding]) -> list[str]:
    """What a reader must know beside the tables."""
    numbers = [number for finding in findings for number in finding.numbers]
    lines = []
    if any(number.extrapolated for number in numbers):
        lines.append("* the batch lies outside the measured convergence data: extrapolated")
    if any(number.tight_memory for number in numbers):
        lines.append("! needs more than 95 % of the device memory")
    for workload, series in dict.fromkeys((n.workload, n.series) for n in numbers if n.reason):
        reason = next(n.reason for n in numbers if (n.workload, n.series) == (workload, series) and n.reason)
        lines.append(f"{workload}, {series}: {reason}")
    return lines
