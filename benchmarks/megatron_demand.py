"""What circuits are planned for in all 40 layers of Megatron: bytes, or the fastest of four rules.

    python benchmarks/megatron_demand.py [--networks NAME ...] [--gbps B ...] [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

megatron_demand.csv: the iteration with `demand = "bytes"` and "auto", the rule that "auto" kept, or why it
cannot run. 1024 V100s, mixed precision, mp 16, batch 1024, recomputed in full, layout "auto", the faster of
both exchanges, as in the study `demand`, which has 4 layers. Rows that are not asked for stay. SiP-OCS takes
a minute; SiP-Ring, with 50 000 plans and more in an iteration, some minutes for each bandwidth.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

NETWORKS = {"SiP-OCS": "sip-ocs", "SiP-Ring": "sip-ring"}
KEPT = "circuits are planned "
COLUMNS = ("bytes_us", "auto_us", "kept", "reason")


def row_of(network: str, gbps: float) -> tuple[object, ...]:
    """Return what the file has of one network: `COLUMNS`."""
    tables = {
        "title": "megatron-demand",
        "cluster": {"gpus": 1024, "bandwidth_gbps": gbps},
        "workload": {"name": "megatron"},
        "plan": {"mp": 16, "global_batch": 1024, "layout": "auto", "recompute": "full"},
        "topology": [
            {"name": NETWORKS[network], "label": way, "demand": way, "rounds": 1} for way in ("bytes", "auto")
        ],
    }
    by_bytes, best = run_experiment(read_experiment(tables, load())).cases
    kept = next((note.removeprefix(KEPT) for note in best.notes if note.startswith(KEPT)), "")
    times = ("" if case.iteration_us is None else case.iteration_us for case in (by_bytes, best))
    return *times, kept, best.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--gbps", type=float, nargs="*", default=[512.0, 2048.0, 8192.0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    path, columns = asked.out / "megatron_demand.csv", ("network", "bandwidth_gbps", *COLUMNS)
    known: dict[tuple[str, float], list[str]] = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            known = {(row[0], float(row[1])): row[2:] for row in list(csv.reader(file))[1:]}
    for place in product(asked.networks, asked.gbps):
        known[place] = [str(value) for value in row_of(*place)]
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(columns)
            table.writerows((*key, *known[key]) for key in sorted(known))


if __name__ == "__main__":
    main()
