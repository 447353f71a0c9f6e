"""Circuits set once, re-planned by interval, and between phases, on whole jobs and for several dark times.

    python benchmarks/circuit_phases.py [--reconfiguration-us US ...]

Of each job: the iteration with circuits that are set once [ms], then with those that change, as time [ms] and
number of plans. SiP-OCS, V100, mixed precision, direct exchange; by interval every 5 r, 20 us at least.
"""

from __future__ import annotations

import argparse

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load

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
    for replan in ("interval", "phase"):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reconfiguration-us", type=float, nargs="+", default=[10, 100, 1000, 10_000])
    latencies_us = parser.parse_args().reconfiguration_us
    registry = load()
    for job, (workload, gpus, gbps, switches, plan) in enumerate(JOBS):
        once, *rows = rows_of(registry, job, latencies_us)
        told = f"set once {once.measured_us / 1e3:.1f} ms" if once.ran else "set once: pairs are left out"
        print(f"{workload}, {gpus} GPUs, {plan}, {switches} switches, {gbps} Gbps: {told}")
        for k, replan in enumerate(("interval", "phase")):
            part = rows[k * len(latencies_us) : (k + 1) * len(latencies_us)]
            cells = (f"{row.measured_us / 1e3:.1f}, {row.decisions}" for row in part)
            print(f"| {replan} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
