"""Pictures of a whole result: where the time of each case goes; and what a search traded for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.model import CaseResult
from sipml_core.report.casepictures import PictureLook, time_unit
from sipml_core.report.drawing import plain_frame
from sipml_core.report.plots import new_figure
from sipml_core.report.seriesstyles import series_styles

#: Column, name, colour (Okabe and Ito 2008) and hatch of each part of an iteration.
TIMES = (
    ("compute_us", "compute", "#0072B2", ""),
    ("exposed_us", "exposed communication", "#E69F00", "////"),
    ("dark_us", "waiting for dark circuits", "#000000", ""),
    ("idle_us", "idle", "#DDDDDD", ".."),
)


def times_picture(cases: Sequence[CaseResult], look: PictureLook) -> Any:
    """Return stacked bars: of an iteration of each case, what a GPU does in the mean.

    Raises
    ------
    ConfigError
        No case ran.
    """
    ran = [case for case in cases if case.ran and case.iteration_us is not None]
    if not ran:
        raise ConfigError("no case of this result ran")
    workloads = list(dict.fromkeys(case.workload for case in ran))
    figure = new_figure(look.width, 1.0 + 0.32 * len(ran) + 0.55 * len(workloads))
    heights = [sum(case.workload == workload for case in ran) + 1.2 for workload in workloads]
    panels = figure.subplots(len(workloads), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, workload in zip(panels, workloads, strict=True):
        mine = [case for case in ran if case.workload == workload]
        worth, unit = time_unit(max(case.measured_us for case in mine))
        left = np.zeros(len(mine))
        for column, name, colour, hatch in TIMES:
            widths = np.array([getattr(case, column) or 0.0 for case in mine]) / worth
            axes.barh(
                range(len(mine)), widths, left=left, color=colour, hatch=hatch or None, edgecolor="white",
                linewidth=0.5, label=name, height=0.72,
            )  # fmt: skip
            left += widths
        axes.set_yticks(range(len(mine)), [case.topology for case in mine])
        axes.invert_yaxis()
        axes.set_title(workload, fontsize=look.small + 1, loc="left")
        axes.set_xlabel(f"one iteration [{unit}]", fontsize=look.small)
        plain_frame(axes)
        axes.tick_params(labelsize=look.small)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 if look.width < 4.5 else 4, frameon=False,
        fontsize=look.small,
    )  # fmt: skip
    return look.finish(figure, "Where the time of an iteration goes, mean over GPUs")


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return which points no other is better than in both, in order of the first; less is better.

    >>> front([(1.0, 5.0), (2.0, 6.0), (3.0, 1.0), (1.0, 7.0)])
    [0, 2]
    """
    order = sorted(range(len(points)), key=lambda k: points[k])
    kept: list[int] = []
    for k in order:
        if not kept or points[k][1] < points[kept[-1]][1]:
            kept.append(k)
    return kept


def pareto_picture(rows: Sequence[Mapping[str, Any]], look: PictureLook) -> Any:
    """Return candidates of a search: memory of a GPU against time to the goal; the front is joined by a line.

    Parameters
    ----------
    rows
        Of search.csv: `workload`, `topology`, `memory_bytes`, `time_to_goal_s` or else `estimate_s`.

    Raises
    ------
    ConfigError
        No candidate can run.
    """
    known = [(row, _goal_h(row)) for row in rows if row.get("memory_bytes") is not None]
    there = [(row, hours) for row, hours in known if hours is not None]
    if not there:
        raise ConfigError("no candidate of this search can run: there is nothing to draw")
    workloads = list(dict.fromkeys(row["workload"] for row, _ in there))
    styles = series_styles(row["topology"] for row, _ in there)
    narrow = look.width / len(workloads) < 2.2
    shape = (len(workloads), 1) if narrow else (1, len(workloads))
    figure = new_figure(look.width, 0.8 + 2.4 * shape[0])
    for axes, workload in zip(figure.subplots(*shape, squeeze=False).flat, workloads, strict=True):
        for topology, style in styles.items():
            mine = [
                (r, hours) for r, hours in there if (r["workload"], r["topology"]) == (workload, topology)
            ]
            points = [(row["memory_bytes"] / 1e9, hours) for row, hours in mine]
            simulated = [row.get("time_to_goal_s") is not None for row, _ in mine]
            for chosen, size, alpha in ((False, 3, 0.45), (True, 6, 1.0)):
                some = [point for point, is_so in zip(points, simulated, strict=True) if is_so == chosen]
                axes.plot(
                    *np.array(some).reshape(-1, 2).T, style.marker, color=style.colour, markersize=size,
                    alpha=alpha, markeredgecolor="none",
                )  # fmt: skip
            best = np.array([points[k] for k in front(points)]).reshape(-1, 2)
            axes.plot(
                *best.T, color=style.colour, linestyle=style.dashes, marker=style.marker, markersize=6,
                drawstyle="steps-post", label=topology,
            )  # fmt: skip
        axes.set_yscale("log")
        axes.set_xlabel("memory of the fullest GPU [GB]", fontsize=look.small + 1)
        axes.set_ylabel("time to the goal [h]", fontsize=look.small + 1)
        axes.set_title(workload, fontsize=look.small + 1)
        plain_frame(axes)
        axes.tick_params(labelsize=look.small, which="both")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 if look.width < 4.5 else 4, frameon=False,
        fontsize=look.small,
    )  # fmt: skip
    return look.finish(figure, "Plans: the front is joined, large are simulated, small estimated")


def _goal_h(row: Mapping[str, Any]) -> float | None:
    """Return the time to the goal, simulated or else estimated; None where the plan cannot run. [h]"""
    if row.get("reason"):
        return None
    seconds = row.get("time_to_goal_s")
    seconds = row.get("estimate_s") if seconds is None else seconds
    return None if seconds is None else float(seconds) / 3600
