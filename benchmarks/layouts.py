"""Layouts compared: by cost, along samples, and as tensor parallelism cuts.

    python benchmarks/layouts.py [--out FOLDER]
    python docs/results.py                  # the table in docs/parallelization.md

layouts.csv: iterations on Elect-Flat, 64 V100s, mp 8 x dp 8. Ten seconds.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

import sipml_core as sipml
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

BATCHES = {"resnet50": 512, "transformer": 64}


def iteration_us(model: str, bandwidth_gbps: float, layout: str) -> float | None:
    """Return how long an iteration is. [us]"""
    tables = {
        "title": "layouts",
        "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
        "workload": {"name": model},
        "strategy": {
            "mp": 8,
            "dp": 8,
            "global_batch": BATCHES[model],
            "layout": layout,
            "placer": "algorithm1",
        },
        "topology": {"name": "elect-flat"},
    }
    return sipml.run(read_experiment(tables, load())).cases[0].iteration_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    with (asked.out / "layouts.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("model", "bandwidth_gbps", "layout", "iteration_us"))
        for job in product(BATCHES, (200, 2000, 8000), ("auto", "sample", "tensor")):
            table.writerow((*job, iteration_us(*job)))
            file.flush()


if __name__ == "__main__":
    main()
