"""Figures of circuits that change within a job, drawn from results."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

from result_tables import circuits, common


def digest(name: str) -> str:
    """Return what tells the rows of a result from those of another; the figure has it as description."""
    return hashlib.sha256(repr(common.rows(name)).encode()).hexdigest()[:16]


def reconfiguration() -> str:
    """Return the SVG of the faster of interval and phase, over circuits set once, by latency."""
    times = circuits.reconfiguration_times()
    models = list(dict.fromkeys(model for model, *_ in times))
    bandwidths = sorted({gbps for _, gbps, *_ in times})
    plt, figure, panels = _panels(len(models))
    for axes, model in zip(panels, models, strict=True):
        for network in circuits.NETWORKS:
            found = circuits.gains(times, network)
            for number, gbps in enumerate(bandwidths):
                points = sorted((key[2], 1 / gain) for key, gain in found.items() if key[:2] == (model, gbps))
                axes.plot(
                    [latency_us for latency_us, _ in points],
                    [ratio for _, ratio in points],
                    marker="o" if network == circuits.NETWORKS[0] else "s",
                    linestyle="-" if network == circuits.NETWORKS[0] else ":",
                    color=f"C{number}",
                    label=f"{network}, {gbps:g} Gbps",
                )
        axes.axhline(1.0, color="0.5", linewidth=0.8)
        axes.set(xscale="log", title=model, xlabel="reconfiguration latency r [us]", ylim=(0.5, 1.1))
    panels[0].set_ylabel("iteration / set once")
    return _svg(plt, figure, panels, "reconfiguration")


def demand() -> str:
    """Return the SVG of iterations with demand by need, over those by bytes, with the settings of fig5."""
    found = {(row["workload"], row["series"], float(row["x"])): row for row in common.rows("demand")}
    models = list(dict.fromkeys(key[0] for key in found))
    places = sorted({key[2] for key in found})
    plt, figure, panels = _panels(len(models))
    for axes, model in zip(panels, models, strict=True):
        for network, style in zip(circuits.NETWORKS, ("-", ":"), strict=True):
            ratios = []
            for x in places:
                both = [
                    float(found[model, f"{network}, {way}", x]["iteration_us"] or "nan")
                    for way in ("the fastest of four", "by bytes")
                ]
                ratios.append(both[0] / both[1])
            axes.plot(places, ratios, marker="o", linestyle=style, color="C0", label=network)
        axes.axhline(1.0, color="0.5", linewidth=0.8)
        axes.set(xscale="log", title=model, xlabel="network bandwidth per GPU [Gbps]", ylim=(0.5, 1.05))
    panels[0].set_ylabel("iteration / by bytes")
    return _svg(plt, figure, panels, "demand")


def _panels(count: int) -> tuple[Any, Any, Any]:
    import matplotlib.pyplot as plt  # here: the tables do without

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "circuits"})
    figure, panels = plt.subplots(1, count, figsize=(3.6 * count, 3.4), sharey=True, squeeze=False)
    return plt, figure, panels[0]


def _svg(plt: Any, figure: Any, panels: Any, name: str) -> str:
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, ncols=4, loc="lower center", fontsize="small")
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Description": digest(name)})
    plt.close(figure)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


#: Results, and the figure of each, in a file of docs that is called like them.
FIGURES: dict[str, Callable[[], str]] = {"reconfiguration": reconfiguration, "demand": demand}
