"""A reproduced study as figures, numbers and verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sipml_core.report.plots import figure_bytes, new_figure
from sipml_core.report.resultfiles import plain_row, to_csv, write_atomically
from sipml_core.reproduce import Finding, Verdict
from sipml_core.sweeping import FigureTable, Number, Sweep

#: Okabe and Ito 2008, colours that are told apart whatever one's colour vision; then marker, dashes.
_STYLES = (
    ("#CC79A7", "+", ":"),
    ("#56B4E9", "v", "--"),
    ("#0072B2", "^", "--"),
    ("#999999", "x", ":"),
    ("#000000", "s", "-"),
    ("#D55E00", "o", "-"),
    ("#009E73", "D", "-"),
)
#: Style of each series by name, so that it looks the same in every figure.
_ORDER = ("Cluster, DP only", "200 Gbps", "400 Gbps", "DP only", "Elect-Flat", "OCS", "")
_AXES = {
    "time_to_accuracy_h": "time to accuracy [h]",
    "iteration_ms": "iteration [ms]",
    "throughput_per_s": "samples per second",
    "mp": "model-parallel degree",
    "dp": "data-parallel degree",
}


def draw(finding: Finding) -> Any:
    """The figure of a study."""
    return draw_numbers(finding.study, finding.numbers)


def draw_numbers(sweep: Sweep, numbers: Sequence[Number]) -> Any:
    """One column of panels for each workload, one row for each quantity, as the sweep's [figure] asks."""
    asked = sweep.figure or FigureTable()
    workloads = list(dict.fromkeys(number.workload for number in numbers))
    rows, columns = len(asked.y), len(workloads)
    figure = new_figure(1.2 + 3.6 * columns, 0.9 + 2.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for row, quantity in enumerate(asked.y):
        for column, workload in enumerate(workloads):
            mine = [number for number in numbers if number.workload == workload]
            _draw_panel(panels[row][column], mine, quantity)
        panels[row][0].set_ylabel(_AXES[quantity])
    for column, workload in enumerate(workloads):
        panels[0][column].set_title(workload, fontsize=11)
        panels[-1][column].set_xlabel(asked.x_label or sweep.x_key())
    handles = {
        line.get_label(): line for line in panels[0][0].get_lines() if not line.get_label().startswith("_")
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    title = sweep.title if asked.title is None else asked.title
    figure.suptitle(f"{title}\n{_subtitle(numbers)}", fontsize=11)
    return figure


def _subtitle(numbers: Sequence[Number]) -> str:
    gpus = sorted({number.gpus for number in numbers})
    parts = [f"{gpus[0]} GPUs" if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]} GPUs"]
    if any(number.extrapolated for number in numbers):
        parts.append("hollow: batch outside the measured convergence data")
    if any(number.tight_memory for number in numbers):
        parts.append("ringed: memory at the limit")
    return "; ".join(parts)


def _draw_panel(axes: Any, numbers: list[Number], quantity: str) -> None:
    labels = list(dict.fromkeys(number.series for number in numbers))
    named = any(number.label for number in numbers)
    for label, size in zip(labels, _sizes(len(labels)), strict=True):
        known = [n for n in numbers if n.series == label and getattr(n, quantity) is not None]
        colour, marker, dashes = _style(label)
        axes.plot(
            [n.x for n in known], [getattr(n, quantity) for n in known], linestyle="" if named else dashes,
            color=colour, linewidth=1.6, alpha=0.85, label=label, marker=marker, markersize=size,
        )  # fmt: skip
        hollow = [n for n in known if n.extrapolated]
        _mark(axes, hollow, quantity, marker, size, facecolor="white", edgecolor=colour)
        tight = [n for n in known if n.tight_memory]
        _mark(axes, tight, quantity, "o", size + 6, facecolor="none", edgecolor=colour)
    _scales(axes, numbers, quantity)


def _sizes(count: int) -> list[float]:
    """Later markers are smaller, so that those of equal values are all seen."""
    return [9.0 - 5.0 * place / max(1, count - 1) for place in range(count)]


def _mark(axes: Any, numbers: list[Number], quantity: str, marker: str, size: float, **colours: str) -> None:
    axes.plot(
        [n.x for n in numbers], [getattr(n, quantity) for n in numbers], linestyle="", marker=marker,
        markersize=size, markerfacecolor=colours["facecolor"], markeredgecolor=colours["edgecolor"],
    )  # fmt: skip


def _style(label: str) -> tuple[str, str, str]:
    return _STYLES[next(place for place, part in enumerate(_ORDER) if part in label)]


def _points(numbers: list[Number]) -> dict[float, str]:
    """Places on the axis, and what is written there."""
    return {number.x: number.label or f"{number.x:g}" for number in sorted(numbers, key=lambda n: n.x)}


def _scales(axes: Any, numbers: list[Number], quantity: str) -> None:
    """Logarithmic on both sides, with the values themselves at the ticks; named points stand side by side."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    points = _points(numbers)
    if any(number.label for number in numbers):
        axes.set_xticks(list(points), list(points.values()), fontsize=8, rotation=35, ha="right")
        axes.set_xlim(min(points) - 0.5, max(points) + 0.5)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(points), list(points.values()), fontsize=8)
    degrees = sorted(
        {getattr(number, quantity) or 1 for number in numbers} if quantity in ("mp", "dp") else ()
    )
    axes.set_yscale("log", base=2 if degrees else 10)
    if degrees:
        axes.set_yticks(degrees)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    _at_least_a_factor(axes, 2.0)
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _at_least_a_factor(axes: Any, factor: float) -> None:
    """Small differences look small: the scale spans `factor` or more."""
    low, high = axes.get_ylim()
    missing = factor / (high / low)
    if missing > 1:
        axes.set_ylim(low / missing**0.5, high * missing**0.5)


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
    table = Table(title=escape(f"{finding.name}, {workload}: {_AXES[quantity]}"), title_justify="left")
    table.add_column(escape(finding.study.figure.x_label if finding.study.figure else ""))
    points, series = _points(numbers), dict.fromkeys(number.series for number in numbers)
    cells = {(n.series, n.x): _cell(n, quantity) for n in numbers}
    if any(number.label for number in numbers):
        for label in series:
            table.add_column(escape(label), justify="right")
        for x, name in points.items():
            table.add_row(escape(name), *(cells.get((label, x), "") for label in series))
        return table
    for name in points.values():
        table.add_column(name, justify="right", no_wrap=True)
    for label in series:
        table.add_row(escape(label), *(cells.get((label, x), "") for x in points))
    return table


def _cell(number: Number, quantity: str) -> str:
    value = getattr(number, quantity)
    if value is None:
        return "-"
    marks = ("*" if number.extrapolated else "") + ("!" if number.tight_memory else "")
    return f"{value:.4g}{marks}"


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
