"""What the search's estimate is worth: every candidate, estimated and simulated, by interconnect.

    python benchmarks/search_estimates.py [--networks NAME ...] [--out FOLDER]
    python docs/results.py                  # the table in docs/search.md

search_estimates.csv: 64 V100s, ResNet-50 and Transformer, mp 1 to 16, 256 Gbps and 2 Tbps. Times are those to
accuracy. On circuits, layouts of up to six rounds; of two in the estimates. Ten minutes of a core. With
`--networks` the rows of others stay.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from sipml_core.experiment import read_experiment
from sipml_core.plugin import load
from sipml_core.searching import SearchRow, search

TOPOLOGIES = {
    "Elect-Flat": {"name": "elect-flat"},
    "Elect-Cluster": {"name": "elect-cluster"},
    "SiP-OCS, set once": {"name": "sip-ocs"},
    "SiP-OCS, re-planned every 100 us": {"name": "sip-ocs", "interval_us": 100, "reconfiguration_us": 20},
    "SiP-Ring": {"name": "sip-ring"},
}
BATCHES = {"resnet50": [256, 1024], "transformer": [64, 256]}
DEGREES = [1, 2, 4, 8, 16]
BANDWIDTHS_GBPS = (256, 2048)


def rows(topology: str) -> list[SearchRow]:
    """Return every candidate at every bandwidth, estimated and simulated."""
    registry = load()
    experiments = [
        read_experiment(
            {
                "title": "estimates",
                "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
                "engine": {"fold": "auto"},
                "search": {"mp": DEGREES, "top": len(DEGREES) * len(batches)},
                "workload": {"name": name, "search": {"global_batches": batches}},
                "topology": TOPOLOGIES[topology],
            },
            registry,
        )
        for bandwidth_gbps in BANDWIDTHS_GBPS
        for name, batches in BATCHES.items()
    ]
    found = search(experiments, jobs=1)
    return [row for result in found for row in result.rows if row.error is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="*", default=list(TOPOLOGIES), choices=list(TOPOLOGIES))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    path = asked.out / "search_estimates.csv"
    known: list[list[str]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            known = list(csv.reader(file))[1:]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        job = ("network", "workload", "bandwidth_gbps", "mp", "global_batch")
        table.writerow((*job, "estimate_s", "simulated_s"))
        for topology in TOPOLOGIES:
            if topology not in asked.networks:
                table.writerows(row for row in known if row[0] == topology)
                continue
            for row in rows(topology):
                job = (topology, row.workload, row.bandwidth_gbps, row.mp, row.global_batch)
                table.writerow((*job, row.estimate_s, row.time_to_accuracy_s))
            file.flush()


if __name__ == "__main__":
    main()
