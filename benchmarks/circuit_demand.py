"""What circuits are planned for, on whole jobs: bytes, gating pairs, the best of four rules, the schedule.

    python benchmarks/circuit_demand.py [--workers P] [--files NAME ...] [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

circuit_demand.csv: the iteration with `demand = "bytes"`, "gating" and "auto", and that with bytes and the
estimator `oracle`, and the rule that "auto" kept. Transformer, V100, mixed precision, a sample for each GPU,
direct exchange; SiP-Ring with a reach of 16 (6 of 16 GPUs), SiP-OCS with 16 switches, re-planned every 100 us
with 20 us of dark, and set once; SiP-Ring with 256 GPUs as well. A job that a network cannot carry is left
out. Two minutes of a core.

circuit_demand_more.csv: "bytes" and "auto" along chains on 64 GPUs, and direct on 256 GPUs of SiP-OCS. Half
a minute.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
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
#: Along chains, and direct.
CHAINS: list[Job] = [*product(NETWORKS, (64,), (4,), (500, 2000))]
DIRECT: list[Job] = [*product(("SiP-OCS", "SiP-OCS, set once"), (256,), (4,), (2000, 8000))]


def network_of(name: str, gpus: int) -> dict[str, object]:
    """Return a network, with one layout, that of ports, so that only circuits differ."""
    if name == "SiP-Ring":
        return {"name": "sip-ring", "reach_hops": 16 if gpus > 16 else 6, "rounds": 1}
    ocs = {"name": "sip-ocs", "switches": 16, "rounds": 1}
    return ocs if name.endswith("set once") else {**ocs, "interval_us": 100, "reconfiguration_us": 20}


@cache
def registry() -> Registry:
    return load()


def row_of(job: Job, exchange: str, names: tuple[str, ...]) -> tuple[object, ...] | None:
    """Return a job's row of the table, with some of `WAYS`; None: not all of them can run."""
    ways = {name: WAYS[name] for name in names}
    network, gpus, mp, gbps = job
    tables = {
        "title": "circuit-demand",
        "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
        "workload": {"name": "transformer"},
        "plan": {"mp": mp, "global_batch": gpus, "exchange": exchange, "layout": "auto"},
        "topology": [{**network_of(network, gpus), **keys, "label": way} for way, keys in ways.items()],
    }
    cases = {case.topology: case for case in run_experiment(read_experiment(tables, registry())).cases}
    if not all(case.ran for case in cases.values()):
        return None
    kept = next(note for note in cases["auto_us"].notes if note.startswith(KEPT))
    return (*job, *(cases[way].iteration_us for way in ways), kept.removeprefix(KEPT))


def rows_of(
    workers: int, jobs: list[Job], exchange: str = "direct", ways: tuple[str, ...] = tuple(WAYS)
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the jobs that can run, in their order."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from filter(None, pool.map(partial(row_of, exchange=exchange, names=ways), jobs))


def written(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    """Write rows as they come."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        for row in rows:
            table.writerow(row)
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    files = ("circuit_demand", "circuit_demand_more")
    parser.add_argument("--files", nargs="*", default=files, choices=files)
    asked = parser.parse_args()
    job = ("network", "gpus", "mp", "bandwidth_gbps")
    if files[0] in asked.files:
        header = (*job, *WAYS, "kept")
        written(asked.out / f"{files[0]}.csv", header, rows_of(asked.workers, JOBS))
    if files[1] in asked.files:
        both = ("bytes_us", "auto_us")
        rows = (
            (*row, exchange)
            for exchange, jobs in (("chain", CHAINS), ("direct", DIRECT))
            for row in rows_of(asked.workers, jobs, exchange, both)
        )
        written(asked.out / f"{files[1]}.csv", (*job, *both, "kept", "exchange"), rows)


if __name__ == "__main__":
    main()
