"""Circuits set once, re-planned by interval, between phases, and between those of stages, on whole jobs.

    python benchmarks/circuit_phases.py [--reconfiguration-us US ...] [--out FOLDER]

circuit_phases.csv, the table of docs/circuit-planning.md: iteration and number of plans of each job for
several dark times. SiP-OCS, V100, mixed precision, direct exchange; by interval every 5 r, 20 us at least;
and of one job on SiP-Ring, as it is by default.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load

WAYS = ("interval", "phase", "stage")
#: Workload, GPUs, bandwidth [Gbps], switches, and how GPUs share the job.
JOBS = (
    ({"name": "gpt", "layers": 6}, 16, 250, 4, {"mp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2}),
    ({"name": "gpt", "layers": 6}, 16, 1000, 4, {"mp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2}),
    ({"name": "transformer"}, 16, 250, 4, {"mp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2}),
    ({"name": "transformer"}, 16, 250, 4, {"mp": 4, "global_batch": 16}),
    ({"name": "gpt", "layers": 8}, 64, 250, 8, {"mp": 4, "pp": 4, "global_batch": 64, "micro_batch": 2}),
)


def rows_of(registry: Registry, job: int, latencies_us: list[float]) -> tuple[CaseResult, ...]:
    workload, gpus, gbps, switches, plan = JOBS[job]
    ocs: dict[str, object] = {"name": "sip-ocs", "switches": switches}
    networks = [{**ocs, "label": "once"}]
    for replan in WAYS:
        for r in latencies_us:
            times = {"reconfiguration_us": r, "interval_us": max(20.0, 5 * r)}
            networks.append({**ocs, **times, "replan": replan, "label": f"{replan} {r:g}"})
    tables = {
        "title": "circuit-phases",
        "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
        "workload": workload,
        "plan": {**plan, "exchange": "direct", "layout": "auto"},
        "topology": networks,
    }
    return run_experiment(read_experiment(tables, registry)).cases


def rows_on_ring(registry: Registry) -> tuple[CaseResult, ...]:
    """Return a GPT on SiP-Ring, by interval and by phase."""
    ways = WAYS[:2]
    tables = {
        "title": "circuit-phases",
        "cluster": {"gpus": 16, "bandwidth_gbps": 250},
        "workload": {"name": "gpt", "layers": 4},
        "plan": {"mp": 4, "global_batch": 16, "exchange": "direct", "layout": "auto"},
        "topology": [{"name": "sip-ring", "replan": way, "label": way} for way in ways],
    }
    return run_experiment(read_experiment(tables, registry)).cases


def told(job: int) -> str:
    """A job in words."""
    workload, gpus, gbps, switches, plan = JOBS[job]
    name = f"GPT, {workload['layers']} layers" if "layers" in workload else "Transformer"
    degrees = ", ".join(f"{key} {plan[key]}" for key in ("mp", "pp") if key in plan)
    return f"{name}, {gpus} GPUs, {degrees}, batch {plan['global_batch']}, {switches} switches, {gbps} Gbps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reconfiguration-us", type=float, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    latencies_us, registry = asked.reconfiguration_us, load()
    with (asked.out / "circuit_phases.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("job", "replan", "reconfiguration_us", "iteration_us", "plans"))
        for number in range(len(JOBS)):
            ways = [("once", 0.0), *((way, r) for way in WAYS for r in latencies_us)]
            for (way, r), row in zip(ways, rows_of(registry, number, latencies_us), strict=True):
                table.writerow((told(number), way, r, row.iteration_us or "", row.decisions or ""))
                file.flush()
        for row in rows_on_ring(registry):
            job = "SiP-Ring: GPT, 4 layers, 16 GPUs, mp 4, batch 16, 250 Gbps"
            table.writerow((job, row.topology, 25.0, row.iteration_us, row.decisions))


if __name__ == "__main__":
    main()
