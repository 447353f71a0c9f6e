"""What folding saves: Transformer on 1024 GPUs, mp 8 x dp 128, one representative against all groups.

Run it from the repository: `python benchmarks/folding.py`.
"""

from __future__ import annotations

import time
from typing import Any

from sipml_core.cases import (
    Case,
    Clock,
    Reuse,
    balanced_graph,
    compile_case,
    op_graph,
    op_layout,
    simulate_case,
)
from sipml_core.experiment import read_experiment
from sipml_core.model import Prices
from sipml_core.plugin import load

TOPOLOGIES = [
    {"name": "elect-flat"},
    {"name": "elect-cluster"},
    {"name": "elect-cluster", "label": "elect-cluster, servers of 32", "server_gpus": 32},
    {"name": "sip-ocs"},
    {"name": "sip-ring"},
]


def tables(fold: str) -> dict[str, Any]:
    """The experiment, folded or not."""
    return {
        "title": "folding",
        "cluster": {"gpus": 1024, "bandwidth_gbps": "2 Tbps"},
        "workload": [{"name": "transformer", "strategy": {"mp": 8, "dp": 128, "global_batch": 1024}}],
        "topology": TOPOLOGIES,
        "engine": {"fold": fold},
    }


def timed(case: Case, reuse: Reuse) -> tuple[float, float, float, str]:
    """Seconds to lower and to simulate all variants; the fastest iteration [us]; groups of the first one."""
    started = time.perf_counter()
    forms = compile_case(case, reuse)
    lowered = time.perf_counter()
    results = [simulate_case(form, Clock()) for form in forms]
    simulated = time.perf_counter()
    groups = case.plan.dp // forms[0].repeats
    best = min(result.row.measured_us for result in results)
    return lowered - started, simulated - lowered, best, f"{groups} of {case.plan.dp}"


def main() -> None:
    """Print one line per interconnect and mode; graphs, cuts and placements are shared and not counted."""
    registry = load()
    print(f"{'interconnect':30} {'groups':>10} {'lower s':>8} {'simulate s':>10} {'iteration us':>16}")
    iterations: dict[str, float] = {}
    for fold in ("never", "require"):
        experiment = read_experiment(tables(fold), registry)
        reuse = Reuse()
        job = experiment.jobs[0]
        plan = job.plan(1024)
        for interconnect in experiment.interconnects:
            case = Case.of(experiment, job, interconnect, plan)
            graph = reuse(op_graph, job.workload, plan.local_batch, case.precision)
            prices = Prices.flat(interconnect.cluster.bandwidth_gbps)
            layout = reuse(op_layout, graph, job.table.layout, case.gpu, interconnect.cluster, plan, prices)
            reuse(balanced_graph, graph, layout, case.gpu, interconnect.cluster, plan)
            lower_s, simulate_s, iteration_us, groups = timed(case, reuse)
            label = interconnect.label
            print(f"{label:30} {groups:>10} {lower_s:8.3f} {simulate_s:10.3f} {iteration_us:16.6f}")
            error = abs(iteration_us / iterations.setdefault(label, iteration_us) - 1)
            assert error < 1e-9, f"{label}: {error}"


if __name__ == "__main__":
    main()
