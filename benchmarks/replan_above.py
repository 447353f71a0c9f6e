"""What is lost, and how many plans are saved, where the scheduler is asked only when demand has moved.

    python benchmarks/replan_above.py [--gpus N] [--out FOLDER]

replan_above.csv, the table of docs/circuit-planning.md: iteration and plans of the Transformer, mp 4, direct
exchange, V100s at 2 Tbps, a sample for each GPU; SiP-Ring, by bytes and with the fastest of four rules, and
SiP-OCS re-planned every 100 us with 20 us of dark.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

PARTS = (0, 0.02, 0.05, 0.1, 0.2, 0.5)
NETWORKS = {
    "SiP-Ring": {"name": "sip-ring", "rounds": 1},
    'SiP-Ring, `demand = "auto"`': {"name": "sip-ring", "demand": "auto", "rounds": 1},
    "SiP-OCS": {"name": "sip-ocs", "interval_us": 100, "reconfiguration_us": 20, "rounds": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked, registry = parser.parse_args(), load()
    with (asked.out / "replan_above.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("network", "replan_above", "iteration_us", "plans"))
        for network, keys in NETWORKS.items():
            tables = {
                "title": "replan-above",
                "cluster": {"gpus": asked.gpus, "bandwidth_gbps": 2000},
                "workload": {"name": "transformer"},
                "plan": {"mp": 4, "global_batch": asked.gpus, "exchange": "direct"},
                "topology": [{**keys, "replan_above": part, "label": str(part)} for part in PARTS],
            }
            for row in run_experiment(read_experiment(tables, registry)).cases:
                table.writerow((network, row.topology, row.iteration_us, row.decisions))
                file.flush()


if __name__ == "__main__":
    main()
