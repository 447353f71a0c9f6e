"""Draws what re-planned circuits take of circuits that are set once, from the CSV of reconfiguration.toml.

python benchmarks/reconfiguration_figure.py CSV FIGURE
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

BANDWIDTH, LATENCY = "cluster.bandwidth_gbps", "topology.ocs by interval.reconfiguration_us"
ONCE, NETWORKS = "SiP-OCS, set once", ("SiP-OCS", "SiP-Ring")


def least_ratios(path: Path) -> dict[tuple[str, str, float], dict[float, float]]:
    """Of (model, network, bandwidth): latency -> the faster of interval and phase, over set once."""
    times: dict[tuple[str, float, float], dict[str, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["iteration_us"]:
                at = row["workload"], float(row[BANDWIDTH]), float(row[LATENCY])
                times[at][row["series"]] = float(row["iteration_us"])
    found: dict[tuple[str, str, float], dict[float, float]] = defaultdict(dict)
    for (model, gbps, latency_us), by_series in times.items():
        for network in NETWORKS:
            tried = [us for name, us in by_series.items() if name.startswith(network) and name != ONCE]
            if tried and ONCE in by_series:
                found[model, network, gbps][latency_us] = min(tried) / by_series[ONCE]
    return found


def main() -> None:
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "reconfiguration"})
    found = least_ratios(Path(sys.argv[1]))
    models = list(dict.fromkeys(model for model, _, _ in found))
    figure, panels = plt.subplots(
        1, len(models), figsize=(3.6 * len(models), 3.4), sharey=True, squeeze=False
    )
    for axes, model in zip(panels[0], models, strict=True):
        lines = [(key, values) for key, values in found.items() if key[0] == model]
        for (_, network, gbps), values in sorted(lines, key=lambda line: (line[0][1], line[0][2])):
            points = sorted(values.items())
            axes.plot(
                [latency_us for latency_us, _ in points],
                [ratio for _, ratio in points],
                marker="o" if network == NETWORKS[0] else "s",
                linestyle="-" if network == NETWORKS[0] else ":",
                color=f"C{sorted({key[2] for key in found}).index(gbps)}",
                label=f"{network}, {gbps:g} Gbps",
            )
        axes.axhline(1.0, color="0.5", linewidth=0.8)
        axes.set(xscale="log", yscale="log", title=model, xlabel="reconfiguration latency r [us]")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.set_yticks([0.6, 0.8, 1, 2, 4])
    panels[0][0].set_ylabel("iteration / set once")
    figure.legend(*panels[0][0].get_legend_handles_labels(), ncols=4, loc="lower center", fontsize="small")
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.savefig(sys.argv[2], metadata={"Date": None} if sys.argv[2].endswith(".svg") else None)


if __name__ == "__main__":
    main()
