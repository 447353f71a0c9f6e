"""Time to build, compile and run one job on every network at 1024 and 4096 GPUs, memory, and how both grow.

python benchmarks/fabrics.py [GPUS GPUS]

Each network at each size is a process of its own, whose peak of memory counts. All variants (exchanges and
all-reduces that suit the network) are simulated, and the iteration time is that of the fastest, as in `run`.
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import sys
import time
from typing import Any

from sipml_core.cases import Case, Clock, Reuse, compile_case, simulate_case
from sipml_core.errors import SipmlError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

#: Name and options of each network.
NETWORKS: tuple[dict[str, Any], ...] = (
    {"name": "elect-flat"},
    {"name": "elect-cluster"},
    {"name": "fat-tree", "label": "fat-tree, hashed"},
    {"name": "fat-tree", "label": "fat-tree, sprayed", "routing": "spray"},
    {"name": "fat-tree", "label": "fat-tree, rails", "server_gpus": 8, "card_gbps": 400, "wiring": "rails"},
    {"name": "dgx", "label": "dgx (H100)"},
    {"name": "dragonfly"},
    {"name": "torus"},
    {"name": "sip-torus"},
    {"name": "sip-ocs"},
    {"name": "sip-ocs-clos"},
    {"name": "sip-ocs-bcube"},
    {"name": "sip-rails"},
    {"name": "sip-khop", "label": "sip-khop, cards", "card_gbps": 100},
    {"name": "hybrid"},
    {"name": "sip-ring"},
    {"name": "sip-ring-2d"},
)

Measured = dict[str, Any]


def main() -> None:
    sizes = [int(each) for each in sys.argv[1:]] or [1024, 4096]
    print(f"Transformer, {' and '.join(map(str, sizes))} GPUs of 2 Tbps, mp 8: processor time, peak memory\n")
    columns = ["build", "compile", "run", "memory", "iteration", "simulated"]
    head = ["network", *(f"{gpus}: {column}" if column == "build" else column for gpus in sizes
                         for column in columns), "growth"]  # fmt: skip
    print("| " + " | ".join(head) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for network in NETWORKS:
        found = [measured_apart(gpus, network) for gpus in sizes]
        cells = [cell for each in found for cell in cells_of(each)]
        label = network.get("label", network["name"])
        print("| " + " | ".join([label, *cells, growth(sizes, found)]) + " |", flush=True)


def measured_apart(gpus: int, network: dict[str, Any]) -> Measured:
    """Return what one network takes, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (gpus, network))


def measured(gpus: int, network: dict[str, Any]) -> Measured:
    """Return the seconds of each step, the peak of memory, and the fastest variant's iteration."""
    tables = {
        "title": "scale",
        "cluster": {"gpus": gpus, "bandwidth_gbps": "2 Tbps"},
        "workload": [{"name": "transformer", "plan": {"mp": 8, "global_batch": gpus, "layout": "tensor"}}],
        "topology": [network],
    }
    try:
        experiment = read_experiment(tables, load())
        (job,), (interconnect,) = experiment.jobs, experiment.interconnects
        began = time.process_time()
        interconnect.topology.build(interconnect.cluster)
        built = time.process_time()
        variants = compile_case(Case.of(experiment, job, interconnect, job.plan(gpus)), Reuse())
        compiled = time.process_time()
        rows = [(simulate_case(each, Clock(600.0)).row.measured_us, len(each.simulated)) for each in variants]
        ran = time.process_time()
    except SipmlError as error:
        return {"refused": str(error)}
    iteration_us, simulated = min(rows)
    return {
        "build": built - began,
        "compile": compiled - built,
        "run": ran - compiled,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "iteration_ms": iteration_us / 1e3,
        "simulated": simulated,
    }


def cells_of(found: Measured) -> list[str]:
    """Return the cells of one size."""
    if "refused" in found:
        return [found["refused"][:60], *[""] * 5]
    seconds = [f"{found[name]:.{digits}f} s" for name, digits in (("build", 2), ("compile", 1), ("run", 1))]
    return [
        *seconds, f"{found['memory_mb']:.0f} MB", f"{found['iteration_ms']:.1f} ms", str(found["simulated"])
    ]  # fmt: skip


def growth(sizes: list[int], found: list[Measured]) -> str:
    """Return p of the N^p with which time grows between two sizes; none where it hardly grows."""
    totals = [sum(each.get(name, 0.0) for name in ("build", "compile", "run")) for each in found]
    if len(sizes) < 2 or min(totals) < 0.1 or totals[-1] < 1.5 * totals[0]:
        return ""
    return f"N^{math.log(totals[-1] / totals[0]) / math.log(sizes[-1] / sizes[0]):.1f}"


if __name__ == "__main__":
    main()
