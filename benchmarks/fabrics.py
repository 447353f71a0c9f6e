"""Time to build, compile and run one job on every network at 1024 and 4096 GPUs.

python benchmarks/fabrics.py [GPUS ...]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from sipml_core.cases import Case, Clock, Reuse, compile_case, simulate_case
from sipml_core.errors import SipmlError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

#: Name and options of each network; a table of options by the number of GPUs where they differ.
NETWORKS: tuple[dict[str, Any], ...] = (
    {"name": "elect-flat"},
    {"name": "elect-cluster"},
    {"name": "fat-tree"},
    {"name": "fat-tree", "label": "fat-tree, sprayed", "routing": "spray"},
    {"name": "fat-tree", "label": "fat-tree, rails", "server_gpus": 8, "card_gbps": 400, "wiring": "rails"},
    {"name": "dgx"},
    {"name": "dragonfly"},
    {"name": "torus"},
    {"name": "sip-torus"},
    {"name": "sip-ocs"},
    {"name": "sip-ocs-clos"},
    {"name": "sip-ocs-bcube"},
    {"name": "sip-rails"},
    {"name": "sip-khop", "card_gbps": 100},
    {"name": "hybrid"},
    {"name": "sip-ring"},
    {"name": "sip-ring-2d"},
)


def main() -> None:
    registry = load()
    for gpus in [int(each) for each in sys.argv[1:]] or [1024, 4096]:
        print(f"\nTransformer, {gpus} GPUs of 2 Tbps, mp 8: processor time\n")
        print("| network | build | compile | run | iteration | simulated |")
        print("|---|--:|--:|--:|--:|--:|")
        for network in NETWORKS:
            print(row(gpus, network, registry), flush=True)


def row(gpus: int, network: dict[str, Any], registry: Any) -> str:
    """Return a line of the table."""
    label = network.get("label", network["name"])
    tables = {
        "title": "scale",
        "cluster": {"gpus": gpus, "bandwidth_gbps": "2 Tbps"},
        "workload": [{"name": "transformer", "plan": {"mp": 8, "global_batch": gpus, "layout": "tensor"}}],
        "topology": [network],
    }
    try:
        experiment = read_experiment(tables, registry)
        (job,), (interconnect,) = experiment.jobs, experiment.interconnects
        began = time.process_time()
        interconnect.topology.build(interconnect.cluster)
        built = time.process_time()
        reuse = Reuse()
        variants = compile_case(Case.of(experiment, job, interconnect, job.plan(gpus)), reuse)
        compiled = time.process_time()
        simulated = simulate_case(variants[0], Clock(300.0))
        ran = time.process_time()
    except SipmlError as error:
        return f"| {label} | {str(error)[:90]} | | | | |"
    return (
        f"| {label} | {built - began:.2f} s | {compiled - built:.1f} s | {ran - compiled:.1f} s | "
        f"{simulated.row.measured_us / 1e3:.1f} ms | {len(variants[0].simulated)} GPUs |"
    )


if __name__ == "__main__":
    main()
