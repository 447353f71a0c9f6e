"""Iteration time under the two queue disciplines: one transfer at a time per pair, or per sending GPU.

    python benchmarks/queue_disciplines.py [--out FOLDER]
    python docs/results.py                  # the table in docs/model.md

queue_disciplines.csv: 64 V100s, mp 8 x dp 8. About 20 s.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

import sipml_core as sipml
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

TOPOLOGIES = ("elect-flat", "elect-cluster", "sip-ocs", "sip-ring")
BATCHES = {"resnet50": 512, "transformer": 64}


def times_us(model: str, layout: str, bandwidth_gbps: float, queue: str) -> list[float]:
    """Return the iteration on each network. [us]"""
    strategy = {"mp": 8, "dp": 8, "global_batch": BATCHES[model], "layout": layout}
    tables = {
        "title": "queues",
        "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
        "engine": {"queue": queue},
        "workload": {"name": model, "strategy": strategy},
        "topology": [{"name": name, "rounds": 1} for name in TOPOLOGIES],
    }
    return [case.iteration_us for case in sipml.run(read_experiment(tables, load())).cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    with (asked.out / "queue_disciplines.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("model", "layout", "bandwidth_gbps", "network", "pair_us", "source_us"))
        for job in product(BATCHES, ("auto", "tensor"), (200, 2000)):
            both = zip(TOPOLOGIES, *(times_us(*job, queue) for queue in ("pair", "source")), strict=True)
            table.writerows((*job, *found) for found in both)
            file.flush()


if __name__ == "__main__":
    main()
