"""What circuits are planned for, on whole jobs: bytes, gating pairs, the best of four rules, the schedule.

    python benchmarks/circuit_demand.py [--workers P] [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

circuit_demand.csv: the iteration with `demand = "bytes"`, "gating" and "auto", and that with bytes and the
estimator `oracle`, and the rule that "auto" kept. Transformer, V100, mixed precision, a sample for each GPU,
direct exchange; SiP-Ring with a reach of 16 (6 of 16 GPUs), SiP-OCS with 16 switches, re-planned every 100 us
with 20 us of dark, and set once; SiP-Ring with 256 GPUs as well. A job that a network cannot carry is left
out. Two minutes of a core.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import Registry, load

WAYS = {
    "bytes_us": {},
    "gating_us": {"demand": "gating"},
    "auto_us": {"demand": "auto"},
    "oracle_us": {"estimator": "oracle"},
}
KEPT = "circuits are planned "
NETWORKS = ("SiP-Ring", "SiP-OCS", "SiP-OCS, set once")
#: Network, GPUs, degree of model parallelism, bandwidth. [Gbps]
Job = tuple[str, int, int, float]
JOBS: list[Job] = [
    *product(NETWORKS, (64, 16), (2, 4, 8), (125, 500, 2000, 8000)),
    *product(("SiP-Ring",), (256,), (2, 4), (1024, 2000, 8000)),
]


def network_of(name: str, gpus: int) -> dict[str, object]:
    if name == "SiP-Ring":
        return {"name": "sip-ring", "reach_hops": 16 if gpus > 16 else 6}
    ocs = {"name": "sip-ocs", "switches": 16}
    return ocs if name.endswith("set once") else {**ocs, "interval_us": 100, "reconfiguration_us": 20}


@cache
def registry() -> Registry:
    return load()


def row_of(job: Job) -> tuple[object, ...] | None:
    """Return a job's row of the table; None: not all of its ways can run."""
    network, gpus, mp, gbps = job
    tables = {
        "title": "circuit-demand",
        "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
        "workload": {"name": "transformer"},
        "plan": {"mp": mp, "global_batch": gpus, "exchange": "direct", "layout": "auto"},
        "topology": [{**network_of(network, gpus), **keys, "label": way} for way, keys in WAYS.items()],
    }
    cases = {case.topology: case for case in run_experiment(read_experiment(tables, registry())).cases}
    if not all(case.ran for case in cases.values()):
        return None
    kept = next(note for note in cases["auto_us"].notes if note.startswith(KEPT))
    return (*job, *(cases[way].iteration_us for way in WAYS), kept.removeprefix(KEPT))


def rows_of(workers: int) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the jobs that can run, in their order."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from filter(None, pool.map(row_of, JOBS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    with (asked.out / "circuit_demand.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("network", "gpus", "mp", "bandwidth_gbps", *WAYS, "kept"))
        for row in rows_of(asked.workers):
            table.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
