"""What circuits are planned for, and when; matrices over switches in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from result_tables import common

#: Networks of the study `reconfiguration`, and ways in which their circuits change.
NETWORKS, WAYS = ("SiP-OCS", "SiP-Ring"), ("by interval", "by phase")
#: A gain of so much counts.
PAYS = 1.05

#: Time of an iteration [us], by model, bandwidth [Gbps], series and latency [us].
Times = dict[tuple[str, float, str, float], float]


def reconfiguration_times() -> Times:
    """Return the iterations of the study; a run that was stopped has none."""
    found: Times = {}
    for row in common.rows("reconfiguration"):
        model, _, value = row["workload"].partition(", bandwidth_gbps ")
        if row["iteration_us"]:
            found[model, float(value), row["series"], float(row["x"])] = float(row["iteration_us"])
    return found


def gains(times: Times, network: str) -> dict[tuple[str, float, float], float]:
    """Return set once over the faster of the ways to change, where set once can run.

    By model, bandwidth and latency.
    """
    found = {}
    for (model, gbps, series, latency_us), once_us in times.items():
        if series == f"{network}, set once":
            changed = [times.get((model, gbps, f"{network}, {way}", latency_us)) for way in WAYS]
            if least := min((us for us in changed if us is not None), default=None):
                found[model, gbps, latency_us] = once_us / least
    return found


def reconfiguration() -> str:
    """Return iterations set once, and what each way to change takes of them."""
    times = reconfiguration_times()
    if not times:
        return common.missing("reconfiguration")
    latencies = sorted({key[3] for key in times})
    lines = []
    for network in NETWORKS:
        for model, gbps in dict.fromkeys((model, gbps) for model, gbps, *_ in times):
            once_us = times.get((model, gbps, f"{network}, set once", latencies[0]))
            cells = []
            for latency_us in latencies:
                changed = [times.get((model, gbps, f"{network}, {way}", latency_us)) for way in WAYS]
                cells.append(", ".join(_of(us, once_us) for us in changed))
            once = "pairs wait" if once_us is None else f"{once_us / 1e3:.1f}"
            lines.append([f"{network}, {model}, {gbps:g} Gbps", once, *cells])
    header = ["", "set once [ms]", *(f"r = {_latency(latency_us)}" for latency_us in latencies)]
    return common.table(header, lines)


def _of(time_us: float | None, once_us: float | None) -> str:
    if time_us is None:
        return "-"
    return f"{time_us / 1e3:.1f} ms" if once_us is None else f"{time_us / once_us:.2f}"


def _latency(latency_us: float) -> str:
    return f"{latency_us:g} us" if latency_us < 1000 else f"{latency_us / 1000:g} ms"


def largest_gains() -> str:
    """Return the largest gain of the three models, by network, bandwidth and latency."""
    times = reconfiguration_times()
    if not times:
        return common.missing("reconfiguration")
    latencies, lines = sorted({key[3] for key in times}), []
    for network in NETWORKS:
        found = gains(times, network)
        for gbps in sorted({key[1] for key in times}):
            mine = [_largest(found, lambda key, at=at, gbps=gbps: key[1:] == (gbps, at)) for at in latencies]
            cells = ("-" if best is None else f"{best:.2f}x" for best in mine)
            lines.append([f"{network}, {gbps:g} Gbps", *cells])
    return common.table(["", *(f"r = {_latency(each)}" for each in latencies)], lines)


def _largest(
    found: dict[tuple[str, float, float], float], which: Callable[[tuple[str, float, float]], bool]
) -> float | None:
    return max((gain for key, gain in found.items() if which(key)), default=None)


def verdict() -> str:
    """Return where changing circuits within a job pays, and what becomes of ACTINA's claim."""
    times = reconfiguration_times()
    if not times:
        return common.missing("reconfiguration")
    found = gains(times, "SiP-OCS")
    until = []
    for gbps in sorted({key[1] for key in found}):
        paid = [key[2] for key, gain in found.items() if key[1] == gbps and gain >= PAYS]
        until.append(f"{gbps:g} Gbps: " + (f"up to {_latency(max(paid))}" if paid else "nowhere"))
    both = {network: gains(times, network) for network in NETWORKS}
    fast = [_best(both[network], lambda key: key[2] <= 100) for network in NETWORKS]
    slow = [_best(both[network], lambda key: key[2] >= 1000) for network in NETWORKS]
    much = _best(found, lambda key: key[1] >= 4000)
    lines = [
        f"* **It pays where bandwidth is short.** On SiP-OCS re-planning gains {PAYS - 1:.0%} or more, on "
        f"at least one of three models, at {'; at '.join(until)}.".replace("5%", "5 %"),
        "* ACTINA reports gains only below about 100 us, up to 2.3x, and little with much bandwidth. Here: "
        f"up to {fast[0]:.2f}x on SiP-OCS and {fast[1]:.2f}x on SiP-Ring up to 100 us; from 1 ms on up to "
        f"{slow[0]:.2f}x and {slow[1]:.2f}x; from 4 Tbps on at most {much:.2f}x on SiP-OCS. So the claim "
        + _judged(fast[0], slow[0], much),
    ]
    return "\n".join(lines)


def _best(
    found: dict[tuple[str, float, float], float], which: Callable[[tuple[str, float, float]], bool]
) -> float:
    return _largest(found, which) or 1.0


def _judged(fast: float, slow: float, much: float) -> str:
    """Return the parts of the claim that hold and those that do not.

    >>> _judged(1.7, 1.02, 1.01), _judged(1.7, 1.2, 1.2)[:39]
    ('holds.\\n', 'does not hold as it stands: switches of')
    """
    wrong = []
    if slow >= PAYS:
        wrong.append("switches of 1 ms pay too, where circuits change with the phases of the job")
    if much >= PAYS:
        wrong.append("it pays with much bandwidth as well")
    if fast < PAYS:
        wrong.append("it does not pay with fast switches either")
    return f"does not hold as it stands: {'; '.join(wrong)}.\n" if wrong else "holds.\n"


def demand() -> str:
    """Return what demand by need takes of iterations by bytes, with the settings of fig5."""
    found = {(row["workload"], row["series"], float(row["x"])): row for row in common.rows("demand")}
    if not found:
        return common.missing("demand")
    places = sorted({key[2] for key in found})
    lines = []
    for workload in dict.fromkeys(key[0] for key in found):
        flat = [_iteration(found, workload, "Elect-Flat", x) for x in places]
        lines.append([f"{workload}: Elect-Flat", *(_plain(each) for each in flat)])
        for network in NETWORKS:
            cells = []
            for x in places:
                by_bytes = _iteration(found, workload, f"{network}, by bytes", x)
                by_need = _iteration(found, workload, f"{network}, the fastest of four", x)
                ratio = f", {by_need[0] / by_bytes[0]:.3f}" if by_need and by_bytes else ""
                degree = f" (mp {by_need[1]})" if by_need and by_bytes and by_need[1] != by_bytes[1] else ""
                cells.append(_plain(by_bytes) + ratio + degree)
            lines.append([f"{workload}: {network}", *cells])
    return common.table(["", *(f"{x:g} Gbps" for x in places)], lines)


def _iteration(
    found: dict[tuple[str, str, float], common.Row], workload: str, series: str, x: float
) -> tuple[float, str] | None:
    row = found.get((workload, series, x))
    return (float(row["iteration_us"]), row["mp"]) if row and row["iteration_us"] else None


def _plain(iteration: tuple[float, str] | None) -> str:
    return f"{iteration[0] / 1e3:.1f} ms (mp {iteration[1]})" if iteration else "-"


#: Ways to plan in circuit_phases.csv, each tried beside those before it but for the first.
PLANNED = ("interval", "phase", "stage", "kind")


def phases() -> str:
    """Return iterations and plans of jobs whose circuits are set once, or change in one of four ways."""
    found = common.rows("circuit_phases")
    if not found:
        return common.missing("circuit_phases")
    latencies = _latencies_of(found)
    lines = []
    for job in dict.fromkeys(row["job"] for row in found):
        mine = {(row["replan"], row["reconfiguration_us"]): row for row in found if row["job"] == job}
        told = ""
        for row in (row for row in mine.values() if row["replan"] == "once"):
            us = row["iteration_us"]
            told = f": set once {float(us) / 1e3:.1f} ms" if us else ": set once, pairs are left out"
        shown = [PLANNED[0]]
        for way in PLANNED[1:]:
            # A way that is never another run than the one before has no line.
            cells = [[_with_plans(mine[each, latency]) for latency in latencies] for each in (way, shown[-1])]
            if cells[0] != cells[1]:
                shown.append(way)
        for way in shown:
            cells_of = (_with_plans(mine[way, latency]) for latency in latencies)
            lines.append([f"{job}{told}" if way == PLANNED[0] else "", way, *cells_of])
    header = ["job", "", *(f"r = {_latency(float(latency))}" for latency in latencies)]
    return common.table(header, lines, numbers_from=2)


def phases_verdict() -> str:
    """Return what phases of kinds gain over those without, over intervals and over both, by latency."""
    found = common.rows("circuit_phases")
    if not found:
        return common.missing("circuit_phases")
    lines = []
    for latency in _latencies_of(found):
        us: dict[str, dict[str, float]] = {}
        for row in found:
            if row["reconfiguration_us"] in (latency, "0") and row["iteration_us"]:
                us.setdefault(row["job"], {})[row["replan"]] = float(row["iteration_us"])
        cells = []
        for others in (("stage",), ("interval",), ("interval", "stage", "once")):
            ratios = [
                mine["kind"] / min(mine[each] for each in others if each in mine) for mine in us.values()
            ]
            mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
            cells.append(f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        lines.append([f"r = {_latency(float(latency))}", *cells])
    return common.table(["kinds take of", "stages", "intervals", "the best of these and set once"], lines)


def _latencies_of(found: list[common.Row]) -> list[str]:
    return list(dict.fromkeys(row["reconfiguration_us"] for row in found if row["replan"] != "once"))


def _with_plans(row: common.Row) -> str:
    if not row["iteration_us"]:
        return "-"
    return f"{float(row['iteration_us']) / 1e3:.1f}, {float(row['plans']):.0f}"


def decomposition() -> str:
    """Return makespans over their bounds, configurations and times of decompositions."""
    found = common.rows("decomposition")
    if not found:
        return common.missing("decomposition")
    lines = []
    for shape, gpus in dict.fromkeys((row["shape"], row["gpus"]) for row in found):
        mine = [row for row in found if (row["shape"], row["gpus"]) == (shape, gpus)]
        of_bound = {(float(row["delay"]), float(row["switches"])): row["of_bound"] for row in mine}
        delays = sorted({delay for delay, _ in of_bound})
        cells = (
            ", ".join(f"{float(of_bound[key]):.3f}" for key in sorted(of_bound) if key[0] == delay)
            for delay in delays
        )
        lines.append(
            [shape, gpus, *cells, _span(mine, "configurations", "g"), _span(mine, "decompose_ms", ".2g")]
        )
    header = ["traffic", "N", *(f"delay {delay:g}" for delay in delays), "configurations", "call [ms]"]
    return common.table(header, lines)


def _span(rows: Iterable[common.Row], column: str, form: str) -> str:
    values = sorted(float(row[column]) for row in rows)
    ends = dict.fromkeys(f"{float(format(value, form)):g}" for value in (values[0], values[-1]))
    return " to ".join(ends)


def draining() -> str:
    """Return the time of matrices sent on the engine, over its bound, by scheduler and estimator."""
    found = common.rows("draining")
    if not found:
        return common.missing("draining")
    ways = list(dict.fromkeys((row["scheduler"], row["estimator"]) for row in found))
    lines = []
    for shape, gpus in dict.fromkeys((row["shape"], row["gpus"]) for row in found):
        mine = {
            (row["scheduler"], row["estimator"]): f"{float(row['of_bound']):.2f} ({float(row['plans']):.0f})"
            for row in found
            if (row["shape"], row["gpus"]) == (shape, gpus)
        }
        lines.append([shape, gpus, *(mine[way] for way in ways)])
    return common.table(["shape", "N", *(", ".join(way) for way in ways)], lines)


def _run(name: str) -> str:
    """Return iterations of a run of several models, each with the time in which a GPU waited in the dark."""
    found = {(row["topology"], row["workload"]): row for row in common.rows(name)}
    if not found:
        return common.missing(name)
    networks, models = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    lines = [[f"`{name}`", *(_waited(found[name, model]) for model in models)] for name in networks]
    return common.table(["", *models], lines)


def _waited(row: common.Row) -> str:
    time = f"{float(row['iteration_us']) / 1e3:.4g} ms"
    if not float(row["decisions"]):
        return time
    chains = ", chains" if row["exchange"] == "chain" else ""
    return f"{time} ({float(row['dark_us']) / 1e3:.2f} ms{chains})"


def ocs_estimators() -> str:
    """Return what a re-planned OCS loses to reconfiguration, by estimator."""
    return _run("ocs_estimators")


def ring_dark_time() -> str:
    """Return what a ring loses to reconfiguration, by how long it takes."""
    return _run("ring_dark_time")


def replan_above() -> str:
    """Return iterations and plans where the scheduler is asked only when so much of the demand has moved."""
    found = common.rows("replan_above")
    if not found:
        return common.missing("replan_above")
    parts = list(dict.fromkeys(row["replan_above"] for row in found))
    lines = [
        [network, *(_with_plans(row) for row in found if row["network"] == network)]
        for network in dict.fromkeys(row["network"] for row in found)
    ]
    return common.table(["replan_above", *parts], lines)


#: Signs of the rules that `demand = "auto"` tries, by how their notes begin.
RULES = {
    "with gating pairs never below the largest": " a",
    "with gating pairs never below": " b",
    "with gating pairs 64 times": " c",
}


def _demands() -> tuple[list[common.Row], list[common.Row]]:
    """Return the jobs of `circuit_demand` on clusters that are there with every network, and the others."""
    found = common.rows("circuit_demand")
    networks = {row["network"] for row in found}
    on = {
        gpus: {row["network"] for row in found if row["gpus"] == gpus} for gpus in {r["gpus"] for r in found}
    }
    every = [row for row in found if on[row["gpus"]] == networks]
    return every, [row for row in found if on[row["gpus"]] != networks]


def circuit_demand() -> str:
    """Return iterations by bytes, and what the fastest of four rules and `gating` take of them.

    Of the largest cluster that is there with every network.
    """
    found, _ = _demands()
    if not found:
        return common.missing("circuit_demand")
    largest = max((row["gpus"] for row in found), key=float)
    cells = {
        (row["network"], row["mp"], row["bandwidth_gbps"]): _by_rule(row)
        for row in found
        if row["gpus"] == largest
    }
    bandwidths = sorted({key[2] for key in cells}, key=float)
    lines = [
        [network, mp, *(cells.get((network, mp, gbps), "-") for gbps in bandwidths)]
        for network, mp in dict.fromkeys(key[:2] for key in cells)
    ]
    return common.table(["network", "mp", *(f"{float(gbps):g} Gbps" for gbps in bandwidths)], lines, 2)


def _by_rule(row: common.Row) -> str:
    """Return a job's iteration by bytes, and what `auto`, with its rule, and `gating` take of it.

    >>> times = {"bytes_us": "2000", "auto_us": "1000", "gating_us": "4000"}
    >>> _by_rule({**times, "kept": "with gating pairs 64 times their bytes"})
    '2.000, 0.500 c (2.00)'
    """
    rule = next((sign for start, sign in RULES.items() if row["kept"].startswith(start)), "")
    auto, gating = (_of_bytes(row, way) for way in ("auto", "gating"))
    return f"{float(row['bytes_us']) / 1e3:#.4g}, {auto:.3f}{rule} ({gating:.2f})"


def _of_bytes(row: common.Row, way: str) -> float:
    return float(row[f"{way}_us"]) / float(row["bytes_us"])


def circuit_demand_means() -> str:
    """Return what the fastest of four rules takes of bytes over all jobs, and what `gating` does."""
    every, more = _demands()
    if not every or not more:
        return common.missing("circuit_demand")
    networks, gpus = (", ".join(sorted({row[column] for row in more})) for column in ("network", "gpus"))
    return (
        f"Over these and the same on fewer GPUs, {len(every)} jobs, of bytes: {_over(every, 'auto')} with "
        f"`auto`; {_over(every, 'gating')} with `gating` alone. "
        f"On {gpus} GPUs of {networks}, {len(more)} jobs: {_over(more, 'auto')} with `auto`.\n"
    )


def circuit_oracle_means() -> str:
    """Return what the estimator `oracle` takes of `window` over all jobs."""
    every, _ = _demands()
    if not every:
        return common.missing("circuit_demand")
    return f"Over the {len(every)} jobs above `oracle` takes of `window` {_over(every, 'oracle')}.\n"


def _over(rows: Iterable[common.Row], way: str) -> str:
    return _spread([_of_bytes(row, way) for row in rows])


def _spread(ratios: list[float]) -> str:
    """Return the geometric mean of some ratios, with the least and the largest.

    >>> _spread([0.5, 2.0])
    '1.000 in the geometric mean, 0.500 at best and 2.000 at worst'
    """
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.3f} in the geometric mean, {min(ratios):.3f} at best and {max(ratios):.3f} at worst"


BLOCKS: dict[str, Callable[[], str]] = {
    "circuit-demand": circuit_demand,
    "circuit-demand-means": circuit_demand_means,
    "circuit-oracle-means": circuit_oracle_means,
    "replan-above": replan_above,
    "ocs-estimators": ocs_estimators,
    "ring-dark-time": ring_dark_time,
    "reconfiguration": reconfiguration,
    "reconfiguration-gains": largest_gains,
    "reconfiguration-verdict": verdict,
    "demand": demand,
    "circuit-phases": phases,
    "circuit-phases-verdict": phases_verdict,
    "decomposition": decomposition,
    "draining": draining,
}
