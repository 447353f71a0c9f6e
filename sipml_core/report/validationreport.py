"""Predictions against measurements: a table by source, CSV, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.report.plots import figure_bytes, new_figure
from sipml_core.report.resultfiles import plain_row, prepare_folder, to_csv, write_atomically
from sipml_core.validating import ErrorSummary, Footprint, Prediction

#: Names of the files.
CSV_FILE, MEMORY_FILE, PICTURE = "measured.csv", "footprints.csv", "measured.png"


def write_predictions(
    found: Sequence[Prediction], memory: Sequence[Footprint], folder: Path, picture: bool
) -> list[Path]:
    """Write measured.csv, footprints.csv if there are any, measured.png with `picture`; return the files."""
    prepare_folder(folder)
    contents = {CSV_FILE: _csv(found, Prediction)}
    if memory:
        contents[MEMORY_FILE] = _csv(memory, Footprint)
    if picture:
        contents[PICTURE] = figure_bytes(_drawn(found), "png")
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def _csv(found: Sequence[Prediction] | Sequence[Footprint], kind: type[Any]) -> bytes:
    columns = [*(field.name for field in attrs.fields(kind)), "error"]
    rows = [{**plain_row(attrs.asdict(each)), "error": _rounded(each.error)} for each in found]
    return to_csv(rows, columns).encode()


def memory_line(memory: Sequence[Footprint]) -> str:
    """Return how far memory is from what was published."""
    sizes = sorted(abs(each.error) for each in memory)
    worst = max(memory, key=lambda each: abs(each.error))
    return (
        f"memory of the fullest GPU, {len(memory)} published footprints: median error "
        f"{100 * sizes[len(sizes) // 2]:.1f} %, worst {100 * worst.error:+.1f} % ({worst.setup})"
    )


def _rounded(error: float | None) -> float | None:
    return None if error is None else round(error, 4)


def validation_table(found: Sequence[Prediction]) -> Table:
    """Return the errors by source, rows that constants were fitted to apart."""
    title = "predicted over measured time, less 1"
    table = Table(title=title, title_justify="left")
    for column in ("measured by", "rows", "", "median", "90th percentile", "worst", "bias"):
        right = column in ("rows", "median", "90th percentile", "worst", "bias")
        table.add_column(column, justify="right" if right else "left")
    for family in (*dict.fromkeys(each.family for each in found), None):
        for fitted in (True, False):
            mine = [p for p in found if p.fitted is fitted and (family is None or p.family == family)]
            summary = ErrorSummary.of(mine)
            if summary is None:
                continue
            shown = (f"{100 * value:.1f} %" for value in (summary.median, summary.percentile90))
            signed = (f"{100 * value:+.1f} %" for value in (summary.worst, summary.bias))
            kind = "fitted" if fitted else "nothing fitted"
            table.add_row(*map(Text, (family or "all", str(summary.rows), kind, *shown, *signed)))
    return table


def validation_lines(found: Sequence[Prediction]) -> list[str]:
    """Return what could not be run, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in found:
        if each.reason:
            reasons.setdefault(each.reason, []).append(each.name)
    return [f"{len(names)} not run ({names[0]}, ...): {reason}" for reason, names in reasons.items()]


def _drawn(found: Sequence[Prediction]) -> Any:
    """Return predicted against measured, one colour for each source; hollow: a constant was fitted to it."""
    figure = new_figure(7.5, 6.5)
    axes = figure.subplots()
    for number, family in enumerate(dict.fromkeys(each.family for each in found)):
        mine = [each for each in found if each.family == family and each.predicted_us and each.measured_us]
        for fitted in (False, True):
            some = [each for each in mine if each.fitted is fitted]
            axes.plot(
                [each.measured_us for each in some], [each.predicted_us for each in some], linestyle="",
                marker="os^v"[number // 10 % 4], markersize=4, color=f"C{number % 10}",
                markerfacecolor="none" if fitted else f"C{number % 10}",
                label=None if fitted and len(some) < len(mine) else family,
            )  # fmt: skip
    known = [value for p in found for value in (p.measured_us, p.predicted_us) if value]
    ends = [min(known, default=1.0), max(known, default=10.0)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (0.75, 1.25):
        axes.plot(ends, [factor * end for end in ends], color="#999999", linewidth=0.6, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured [us]")
    axes.set_ylabel("predicted [us]")
    axes.set_title("Predicted and measured times (dashed: 25 % off; hollow: fitted)", fontsize=10)
    axes.legend(fontsize=7, frameon=False)
    return figure
