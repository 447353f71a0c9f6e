"""One circuit plan, as a person looks at it: a table of what it achieves, its records, a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from sipml_core.model import CircuitPlan, TrafficMatrix
from sipml_core.report.plots import figure_bytes, new_figure
from sipml_core.report.resultfiles import to_csv, write_atomically

#: Pairs shown in the terminal; all are in the files.
SHOWN = 12


def plan_summary(plan: CircuitPlan, traffic: TrafficMatrix) -> dict[str, Any]:
    """What the plan achieves. Ratios are capacity over demand [Gbps per unit of demand]."""
    ratio = _ratios(plan, traffic)
    served = ratio > 0
    return {
        "gpus": traffic.gpus,
        "demanded_pairs": traffic.pairs,
        "unserved_pairs": [[int(traffic.src[i]), int(traffic.dst[i])] for i in np.flatnonzero(~served)],
        "minimum_gbps_per_demand": float(ratio.min()) if len(ratio) else None,
        "minimum_of_served_gbps_per_demand": float(ratio[served].min()) if served.any() else None,
        "bound_gbps_per_demand": plan.bound_ratio,
        "demanded_gbps": float(plan.capacity_gbps(traffic.src, traffic.dst).sum()),
        "total_gbps": float(plan.gbps.sum()),
    }


def _ratios(plan: CircuitPlan, traffic: TrafficMatrix) -> NDArray[np.float64]:
    return plan.capacity_gbps(traffic.src, traffic.dst) / traffic.demand


def plan_table(plan: CircuitPlan, traffic: TrafficMatrix, title: str) -> Table:
    """The pairs that are served worst, which decide how long the traffic takes."""
    ratio = _ratios(plan, traffic)
    table = Table(title=Text(title), title_justify="left")
    for column in ("from", "to", "demand", "capacity [Gbps]", "capacity / demand"):
        table.add_column(column, justify="right")
    capacity = plan.capacity_gbps(traffic.src, traffic.dst)
    for i in np.argsort(ratio, kind="stable")[:SHOWN]:
        table.add_row(
            str(traffic.src[i]),
            str(traffic.dst[i]),
            f"{traffic.demand[i]:.6g}",
            f"{capacity[i]:g}",
            f"{ratio[i]:.4g}",
        )
    if traffic.pairs > SHOWN:
        table.caption = f"the {SHOWN} worst served of {traffic.pairs} pairs; all are in plan.csv"
    return table


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The same numbers in sentences."""
    demanded_gbps, total_gbps = summary["demanded_gbps"], summary["total_gbps"]
    lines = [f"total capacity {demanded_gbps:g} Gbps over {summary['demanded_pairs']} demanded pairs"]
    if total_gbps > demanded_gbps * (1 + 1e-9):
        lines[0] += f", and {total_gbps - demanded_gbps:g} Gbps between pairs that ask for nothing"
    least, bound = summary["minimum_gbps_per_demand"], summary["bound_gbps_per_demand"]
    if least is not None:
        share = f", {least / bound:.1%} of the bound {bound:.4g}" if bound else ""
        lines.append(f"least capacity / demand {least:.4g}{share}")
    unserved = summary["unserved_pairs"]
    if unserved:
        named = ", ".join(f"{src}->{dst}" for src, dst in unserved[:8])
        more = ", ..." if len(unserved) > 8 else ""
        lines.append(f"{len(unserved)} pairs get no circuit in this plan: {named}{more}")
    return lines


def write_plan(plan: CircuitPlan, traffic: TrafficMatrix, folder: Path, picture: bool) -> list[Path]:
    """plan.csv, plan.json and, if asked for, plan.png in `folder`."""
    rows = list(plan.rows())
    columns = list(rows[0]) if rows else ["src", "dst", "capacity_gbps"]
    files = {
        "plan.csv": to_csv(rows, columns).encode(),
        "plan.json": (json.dumps(plan_summary(plan, traffic), indent=1) + "\n").encode(),
    }
    for name, content in files.items():
        write_atomically(folder / name, content)
    drawn = folder / "plan.png"
    if not picture:
        drawn.unlink(missing_ok=True)  # of an earlier plan
        return [folder / name for name in files]
    write_atomically(drawn, plan_picture(plan, traffic))
    return [*(folder / name for name in files), drawn]


def plan_picture(plan: CircuitPlan, traffic: TrafficMatrix) -> bytes:
    """Demand beside capacity as heat maps, and the circuits as the plan draws itself. [PNG]"""
    figure = new_figure(15, 5)
    demand, capacity, circuits = figure.subplots(1, 3)
    _heat_map(demand, traffic.dense(), "demand", " [unit of the matrix]")
    dense = np.zeros((traffic.gpus, traffic.gpus))
    dense[plan.src, plan.dst] = plan.gbps
    _heat_map(capacity, dense, "capacity of circuits [Gbps]", "")
    plan.draw(circuits)
    return figure_bytes(figure)


def _heat_map(axes: Any, dense: NDArray[np.float64], label: str, unit: str) -> None:
    image = axes.imshow(np.ma.masked_equal(dense, 0), cmap="viridis", interpolation="nearest")
    axes.set_facecolor("0.92")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("to GPU")
    axes.set_ylabel("from GPU")
    axes.set_title(label, fontsize="medium")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label=f"{label}{unit}")
