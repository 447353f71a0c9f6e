"""Writes what the pages say of results, from the results in docs/results.

python docs/results.py            write it
python docs/results.py --check    say which pages are stale; exit status 1 if any is

A page holds the text of a block between `<!-- results: NAME -->` and `<!-- end of results -->`. The CSV files
come from `python -m sipml_core reproduce ... --out docs/results` and from scripts in benchmarks/.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PAGES = (
    "which-network.md", "validation.md", "communication.md", "reproduction.md", "electrical.md", "sharing.md",
)  # fmt: skip
BLOCK = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end of results -->)", re.S)

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    """Return the rows of a CSV file of docs/results, none if it is not there."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(header: Iterable[str], lines: Iterable[Iterable[str]], numbers_from: int = 1) -> str:
    """Return a table in Markdown; columns from `numbers_from` on are flush right."""
    head = list(header)
    rule = ["---" if column < numbers_from else "--:" for column in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"


def signed(ratio: float) -> str:
    """Return a deviation in percent.

    >>> signed(1.034), signed(0.9), signed(1.0)
    ('+3.4 %', '-10.0 %', '+0.0 %')
    """
    return f"{ratio - 1:+.1%}".replace("%", " %")


def missing(study: str) -> str:
    """Return what a page says of a study whose results are not in the repository."""
    return f"No results of `{study}` are in docs/results yet.\n"


# Validation against measured clusters


def measured() -> dict[str, Row]:
    """Return the measured rows by case."""
    with (DOCS.parent / "benchmarks" / "dlperf_v100.csv").open(newline="", encoding="utf-8") as file:
        return {row["case"]: row for row in csv.DictReader(file)}


def case_name(row: Row) -> str:
    """Return what the pages call a measured case."""
    gpus = {1: "one GPU", 8: "one server", 16: "two servers"}[int(row["gpus"])]
    degrees = [f"{kind} {row[key]}" for kind, key in (("DP", "dp"), ("MP", "mp")) if int(row[key]) > 1]
    return (
        f"{row['hidden']} x {row['layers']}, {' x '.join(degrees) or 'batch ' + row['global_batch']}, {gpus}"
    )


def errors(row: Row, per_s: float) -> list[str]:
    """Return the deviation from either framework."""
    return [signed(per_s / float(row[f"{name}_per_s"])) for name in ("megatron_lm", "oneflow")]


def validation() -> str:
    """Return measured and predicted throughput, with the errors to both frameworks."""
    known, lines = measured(), []
    for row in rows("validation"):
        base = row["assumed"].startswith("as wired")
        if base or row["assumed"].startswith("gradients overlapped"):
            case, per_s = known[row["case"]], float(row["per_s"])
            when = {True: "at the end", False: "overlapped"}[base] if int(case["dp"]) > 1 else ""
            lines.append(
                [case_name(case), when, case["megatron_lm_per_s"], case["oneflow_per_s"], f"{per_s:.2f}",
                 *errors(case, per_s), ", ".join(filter(None, (row["exchange"], row["all_reduce"])))]
            )  # fmt: skip
    head = [
        "GPT, cut, GPUs",
        "gradients",
        "Megatron-LM /s",
        "OneFlow /s",
        "ours /s",
        "to Megatron-LM",
        "to OneFlow",
    ]
    return table([*head, "exchange, all-reduce"], lines, numbers_from=2)


def assumptions() -> str:
    """Return what every case becomes with one assumption changed."""
    known = measured()
    lines = [
        [case_name(known[row["case"]]), row["assumed"], f"{float(row['per_s']):.2f}",
         *errors(known[row["case"]], float(row["per_s"]))]
        for row in rows("validation")
        if int(known[row["case"]]["gpus"]) > 1
    ]  # fmt: skip
    return table(["case", "assumed", "ours /s", "to Megatron-LM", "to OneFlow"], lines, numbers_from=2)


def validation_summary() -> str:
    """Return the spread of the errors inside one server and over two."""
    known, found = measured(), {1: [], 8: [], 16: []}
    for row in rows("validation"):
        if row["assumed"].startswith("as wired"):
            case = known[row["case"]]
            for name in ("megatron_lm", "oneflow"):
                found[int(case["gpus"])].append(float(row["per_s"]) / float(case[f"{name}_per_s"]))
    spread = {gpus: f"{signed(min(ratios))} to {signed(max(ratios))}" for gpus, ratios in found.items()}
    return (
        f"Errors as wired, gradients at the end, to either framework: one GPU {spread[1]} (the rows that the "
        f"GPU's efficiencies come from), one server {spread[8]}, two servers {spread[16]}.\n"
    )


# Bandwidth doublings


def doublings() -> str:
    """Return the doublings after which a job is more than 2 % slower."""
    found = rows("doublings")
    slower = [row for row in found if float(row["fast_us"]) > 1.02 * float(row["slow_us"])]
    lines = [
        [row["network"], f"{row['job']}, mp {row['mp']}, layout `{row['layout']}`",
         f"{float(row['gbps']):g} to {2 * float(row['gbps']):g} Gbps", f"{float(row['slow_us']) / 1e3:.2f}",
         f"{float(row['fast_us']) / 1e3:.2f}", signed(float(row["fast_us"]) / float(row["slow_us"]))]
        for row in slower
    ]  # fmt: skip
    head = ["network", "job", "bandwidth", "ms before", "ms after", ""]
    return f"Of {len(found)} doublings {len(slower)}:\n\n" + table(head, lines, numbers_from=3)


# The paper's evaluation


def by_point(study: str) -> dict[tuple[str, str, float], Row]:
    """Return the rows of a study by workload, series and place on the axis."""
    return {(row["workload"], row["series"], float(row["x"])): row for row in rows(study)}


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
        return missing(study)
    places = sorted({x for *_, x in found})
    names = list(dict.fromkeys((workload, series) for workload, series, _ in found))
    names.sort(key=lambda name: [workload for workload, *_ in found].index(name[0]))
    lines = [
        [f"{workload}: {series}", *(cell(found.get((workload, series, x)), column, unit) for x in places)]
        for workload, series in names
    ]
    return table(["", *(f"{x:g}" for x in places)], lines)


def fig5() -> str:
    """Return the times of Fig. 5. [h]"""
    return grid("fig5", "time_to_accuracy_s", 3600.0)


def fig6() -> str:
    """Return the degrees of the best plans."""
    return grid("fig6", "mp", 1.0)


def claims() -> str:
    """Return the verdicts."""
    lines = []
    for row in rows("claims"):
        ours = f"{float(row['smallest']):.3g}x to {float(row['largest']):.3g}x" if row["smallest"] else "-"
        lines.append([row["claim"], row["paper"], ours, row["verdict"]])
    return table(["claim", "paper", "ours", "verdict"], lines, numbers_from=9) if lines else missing("claims")


def memory() -> str:
    """Return the study of memory, iteration times and degrees. [ms]"""
    found = by_point("memory")
    if not found:
        return missing("memory")
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
        + table(["", *(f"{x:g}" for x in sizes_gb)], ratios)
    )


def script() -> str:
    """Return the ratios that the public script's arithmetic gives, beside ours."""
    found = by_point("script")
    if not found:
        return missing("script")

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
    return table(head, lines)


def ablations() -> str:
    """Return iteration times with one assumption changed. [ms]"""
    found = rows("ablations")
    if not found:
        return missing("ablations")
    series = list(dict.fromkeys(row["series"] for row in found))
    names = dict.fromkeys((row["workload"], row["label"]) for row in found)
    of = {(row["workload"], row["label"], row["series"]): row for row in found}
    lines = [
        [f"{workload}: {label}", *(cell(of.get((workload, label, s)), "iteration_us", 1e3) for s in series)]
        for workload, label in names
    ]
    return table(["[ms]", *series], lines)


# Rows that others measured, predicted by `reproduce validation`


def predicted() -> list[Row]:
    """Return the rows that were run."""
    return [row for row in rows("measured") if row["predicted_us"]]


def spread(found: Iterable[Row]) -> list[str]:
    """Return rows, median and 90th percentile of absolute errors, worst and median error, as cells."""
    errors_found = sorted((float(row["error"]) for row in found), key=abs)
    if not errors_found:
        return ["0", "", "", "", ""]
    sizes = [abs(error) for error in errors_found]
    quantiles = [sizes[0]] * 9 if len(sizes) == 1 else statistics.quantiles(sizes, n=10, method="inclusive")
    return [
        str(len(sizes)), f"{statistics.median(sizes):.1%}".replace("%", " %"),
        f"{quantiles[8]:.1%}".replace("%", " %"), signed(1 + errors_found[-1]),
        signed(1 + statistics.median(errors_found)),
    ]  # fmt: skip


def is_training(row: Row) -> bool:
    """Return whether a row is a training step, not a collective."""
    return row["family"] not in ("NCCL on H100", "bus bandwidths")


def measured_summary() -> str:
    """Return the errors by source, rows that constants were fitted to apart."""
    found = predicted()
    if not found:
        return missing("validation")
    lines = []
    for family in dict.fromkeys(row["family"] for row in found):
        for fitted in ("true", "false"):
            mine = [row for row in found if row["family"] == family and row["fitted"] == fitted]
            if mine:
                lines.append([family, "fitted" if fitted == "true" else "nothing fitted", *spread(mine)])
    held = [row for row in found if row["fitted"] == "false"]
    lines.append(["**all training steps**", "nothing fitted", *spread(filter(is_training, held))])
    lines.append(["**all collectives**", "nothing fitted", *spread(r for r in held if not is_training(r))])
    head = ["measured by", "", "rows", "median", "90th percentile", "worst", "bias"]
    return table(head, lines, numbers_from=2)


def measured_rows() -> str:
    """Return every training row that is not of vTrain: measured, predicted, error."""
    lines = [
        [row["family"], row["gpus"], row["setup"], f"{float(row['measured_us']) / 1e3:.1f}",
         f"{float(row['predicted_us']) / 1e3:.1f}",
         signed(1 + float(row["error"])) + ("*" if row["fitted"] == "true" else ""), row["assumed"]]
        for row in predicted()
        if is_training(row) and not row["family"].startswith("vTrain")
    ]  # fmt: skip
    head = ["measured by", "GPUs", "what ran", "measured [ms]", "predicted [ms]", "error", "assumed"]
    return table(head, lines, numbers_from=3) if lines else missing("validation")


def measured_vtrain() -> str:
    """Return the median error of vTrain's rows by tensor-parallel degree and micro-batch."""
    of: dict[tuple[int, int], list[float]] = {}
    for row in predicted():
        if row["family"] == "vTrain, one server" and row["fitted"] == "false":
            degree = re.search(r"TP (\d+)", row["setup"])
            batch = re.search(r"mb (\d+)", row["setup"])
            assert batch
            key = (int(degree[1]) if degree else 1, int(batch[1]))
            of.setdefault(key, []).append(float(row["error"]))
    batches = sorted({batch for _, batch in of})
    lines = [
        [
            f"TP {degree}",
            *(signed(1 + statistics.median(of[degree, b])) if (degree, b) in of else "" for b in batches),
        ]
        for degree in sorted({degree for degree, _ in of})
    ]
    return table(["", *(f"mb {batch}" for batch in batches)], lines) if lines else missing("validation")


def measured_worst() -> str:
    """Return the ten training rows with the largest errors, of those that nothing was fitted to."""
    held = [row for row in predicted() if is_training(row) and row["fitted"] == "false"]
    worst = sorted(held, key=lambda row: -abs(float(row["error"])))[:10]
    lines = [[row["family"], row["gpus"], row["setup"], signed(1 + float(row["error"]))] for row in worst]
    return table(["measured by", "GPUs", "what ran", "error"], lines, numbers_from=3)


def measured_not_run() -> str:
    """Return why rows were not run, and how many."""
    reasons: dict[str, list[str]] = {}
    for row in rows("measured"):
        if row["reason"]:
            reasons.setdefault(re.sub(r"about \d+", "some", row["reason"]), []).append(row["family"])
    lines = [
        [str(len(families)), ", ".join(dict.fromkeys(families)), reason]
        for reason, families in reasons.items()
    ]
    return table(["rows", "measured by", "why they are not run"], lines, numbers_from=3)


def measured_collectives() -> str:
    """Return the errors of collectives by kind, of both halves."""
    found = [row for row in predicted() if not is_training(row)]
    if not found:
        return missing("validation")
    lines = []
    for family in dict.fromkeys(row["family"] for row in found):
        for kind in dict.fromkeys(row["setup"].split()[0] for row in found if row["family"] == family):
            for fitted in ("true", "false"):
                mine = [
                    row for row in found
                    if row["family"] == family and row["setup"].split()[0] == kind and row["fitted"] == fitted
                ]  # fmt: skip
                if mine:
                    lines.append([family, kind, "fitted" if fitted == "true" else "", *spread(mine)])
    head = ["measured by", "collective", "", "rows", "median", "90th percentile", "worst", "bias"]
    return table(head, lines, numbers_from=3)


def which_network() -> str:
    """Return iteration times of three jobs on all networks, and over those of the ideal switch."""
    found = {(row["network"], row["job"]): float(row["iteration_us"]) for row in rows("which_network")}
    if not found:
        return missing("which_network")
    networks, jobs = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    lines = [
        [
            network,
            *(
                f"{found[network, job] / 1e3:.1f} ms, {found[network, job] / found['elect-flat', job]:.2f}x"
                for job in jobs
            ),
        ]
        for network in networks
    ]
    return table(["network", *jobs], lines)


# Jobs that share a cluster


def fragmentation() -> str:
    """Return what becomes of jobs on each network, by how GPUs are given to them."""
    lines = [
        [row["setting"], row["topology"], f"{float(row['makespan_us']) / 1e6:.0f} s",
         *(f"{float(row[column]):.0%}".replace("%", " %") for column in ("utilisation", "fragmentation")),
         f"{float(row['waited_us']) / 1e6:.1f} s", f"{float(row['slowdown']):.3f}x",
         f"{float(row['slowest']):.2f}x"]
        for row in rows("fragmentation")
    ]  # fmt: skip
    head = ["GPUs of a job", "network", "makespan", "used", "split", "waited", "slow-down", "slowest"]
    return table(head, lines, numbers_from=2) if lines else missing("fragmentation")


def fragmentation_claims() -> str:
    """Return what was held against these results."""
    lines = [
        [row["claim"], f"{float(row['ratio']):.3g}x" if row["ratio"] else "-", row["verdict"]]
        for row in rows("fragmentation_claims")
    ]
    return table(["claim", "ratio", "verdict"], lines, numbers_from=9) if lines else missing("fragmentation")


def many_jobs() -> str:
    """Return how long many jobs on a large cluster take to simulate."""
    lines = [
        [row["allocator"], row["topology"], f"{float(row['makespan_us']) / 1e6:.0f} s",
         f"{float(row['utilisation']):.0%}".replace("%", " %"), f"{float(row['slowdown']):.3f}x",
         row["simulated_together"], f"{float(row['cpu_s']):.0f} s"]
        for row in rows("many_jobs")
    ]  # fmt: skip
    head = ["allocator", "network", "makespan", "used", "slow-down", "simulated together", "processor time"]
    return table(head, lines, numbers_from=2) if lines else missing("many_jobs")


BLOCKS: dict[str, Callable[[], str]] = {
    "measured": measured_summary,
    "measured-rows": measured_rows,
    "measured-vtrain": measured_vtrain,
    "measured-worst": measured_worst,
    "measured-not-run": measured_not_run,
    "collectives": measured_collectives,
    "validation": validation,
    "validation-summary": validation_summary,
    "assumptions": assumptions,
    "doublings": doublings,
    "which-network": which_network,
    "fragmentation": fragmentation,
    "fragmentation-claims": fragmentation_claims,
    "many-jobs": many_jobs,
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


def filled(text: str) -> str:
    """Return a page with its blocks written anew."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], text)


def stale() -> Iterator[Path]:
    """Yield the pages whose blocks are not what the results say."""
    for name in PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        if filled(text) != text:
            yield DOCS / name


def main() -> None:
    """Write the pages, or say which are stale."""
    found = list(stale())
    for path in found:
        if "--check" not in sys.argv:
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{'stale' if '--check' in sys.argv else 'wrote'}: {path.relative_to(DOCS.parent)}")
    if found and "--check" in sys.argv:
        sys.exit("run python docs/results.py")


if __name__ == "__main__":
    main()
