"""The studies of the paper's evaluation."""

from __future__ import annotations

from collections.abc import Callable

from result_tables import common
from result_tables.common import Row


def by_point(study: str) -> dict[tuple[str, str, float], Row]:
    """Return the rows of a study by workload, series and place on the axis."""
    return {(row["workload"], row["series"], float(row["x"])): row for row in common.rows(study)}


def cell(row: Row | None, column: str, unit: float) -> str:
    """Return one quantity of a row, a dash where nothing runs, and `*` where it is extrapolated."""
    if row is None or not row[column]:
        return "-"
    value = float(row[column]) / unit
    extrapolated = row["extrapolated"].lower() in ("true", "yes", "1")
    return f"{value:.{0 if value >= 1000 else 3}{'f' if value >= 1000 else 'g'}}" + "*" * extrapolated


def grid(study: str, column: str, unit: float) -> str:
    """Return one quantity of a study: a line for each workload and series, a column for each point."""
    found = by_point(study)
    if not found:
        return common.missing(study)
    places = sorted({x for *_, x in found})
    names = list(dict.fromkeys((workload, series) for workload, series, _ in found))
    names.sort(key=lambda name: [workload for workload, *_ in found].index(name[0]))
    lines = [
        [f"{workload}: {series}", *(cell(found.get((workload, series, x)), column, unit) for x in places)]
        for workload, series in names
    ]
    return common.table(["", *(f"{x:g}" for x in places)], lines)


def fig5() -> str:
    """Return the times of Fig. 5. [h]"""
    return grid("fig5", "time_to_accuracy_s", 3600.0)


def fig6() -> str:
    """Return the degrees of the best plans."""
    return grid("fig6", "mp", 1.0)


def claims() -> str:
    """Return the verdicts."""
    lines = []
    for row in common.rows("claims"):
        ours = f"{float(row['smallest']):.3g}x to {float(row['largest']):.3g}x" if row["smallest"] else "-"
        lines.append([row["claim"], row["paper"], ours, row["verdict"]])
    return (
        common.table(["claim", "paper", "ours", "verdict"], lines, numbers_from=9)
        if lines
        else common.missing("claims")
    )


def memory() -> str:
    """Return the study of memory, iteration times and degrees. [ms]"""
    found = by_point("memory")
    if not found:
        return common.missing("memory")
    sizes_gb = sorted({x for _, _, x in found})

    def over(workload: str, cluster: str) -> list[str]:
        """Return times on a cluster over those on SiP-OCS, by memory."""
        pairs = [(found[workload, cluster, x], found[workload, "SiP-OCS", x]) for x in sizes_gb]
        return [
            f"{float(ours['iteration_us']) / float(theirs['iteration_us']):.2f}x" for ours, theirs in pairs
        ]

    names = [
        (workload, f"Elect-Cluster {gbps} Gbps")
        for workload in sorted({w for w, _, _ in found})
        for gbps in (200, 400)
    ]
    ratios = [[f"{workload}: {cluster}", *over(workload, cluster)] for workload, cluster in names]
    return (
        grid("memory", "iteration_us", 1e3)
        + "\nDegree of model parallelism:\n\n"
        + grid("memory", "mp", 1.0)
        + "\nTimes on the clusters over those on SiP-OCS:\n\n"
        + common.table(["", *(f"{x:g}" for x in sizes_gb)], ratios)
    )


def script() -> str:
    """Return the ratios that the public script's arithmetic gives, beside ours."""
    found = by_point("script")
    if not found:
        return common.missing("script")

    def ms(workload: str, series: str, x: float) -> float:
        return float(found[workload, series, x]["iteration_us"]) / 1e3

    lines = []
    for workload, x in sorted({(workload, x) for workload, _, x in found}):
        times = [ms(workload, "Ideal, by the script", x), ms(workload, "Elect-Flat", x)]
        ratios = [
            ms(workload, f"Cluster {gbps} Gbps, by the script", x) / times[0] for gbps in (200, 400)
        ] + [
            ms(workload, f"Elect-Cluster {gbps} Gbps", x) / ms(workload, "SiP-OCS", x) for gbps in (200, 400)
        ]
        lines.append([f"{workload}, {x:g} Gbps", f"{times[1]:.1f}", *(f"{ratio:.2f}x" for ratio in ratios)])
    head = [
        "",
        "Elect-Flat, mp 8 [ms]",
        "script: 200 Gbps",
        "400 Gbps",
        "simulated, over SiP-OCS: 200",
        "400 Gbps",
    ]
    return common.table(head, lines)


def ablations() -> str:
    """Return iteration times with one assumption changed. [ms]"""
    found = common.rows("ablations")
    if not found:
        return common.missing("ablations")
    series = list(dict.fromkeys(row["series"] for row in found))
    names = dict.fromkeys((row["workload"], row["label"]) for row in found)
    of = {(row["workload"], row["label"], row["series"]): row for row in found}
    lines = [
        [f"{workload}: {label}", *(cell(of.get((workload, label, s)), "iteration_us", 1e3) for s in series)]
        for workload, label in names
    ]
    return common.table(["[ms]", *series], lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "fig5": fig5,
    "fig6": fig6,
    "claims": claims,
    "memory": memory,
    "script": script,
    "ablations": ablations,
    "fig1": lambda: grid("fig1", "time_to_accuracy_s", 3600.0),
    "degree": lambda: grid("degree", "time_to_accuracy_s", 3600.0),
    "latency": lambda: grid("latency", "time_to_accuracy_s", 3600.0),
    "scale": lambda: grid("scale", "time_to_accuracy_s", 3600.0),
}
