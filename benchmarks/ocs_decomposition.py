"""Weighted permutations on parallel switches: makespan over the bound, planning time, and on the engine.

    python benchmarks/ocs_decomposition.py [--gpus N ...] [--drained N ...] [--mp M ...] [--out FOLDER]

decomposition.csv: five shapes of traffic; `delay` is the time to set a switch, as a part of the time that the
busiest port needs on all its links. Columns: makespan over `Decomposition.bound_us`, configurations, and the
processor time of a whole `decompose` call and of one `ocs_match` of it, the least of three [ms].

draining.csv: every pair's bytes of a matrix ready at the start, sent on the engine over 4 switches that are
re-planned every 100 us and dark for 20 us: time until the last byte has left, over the bound, by scheduler
and estimator, and the plans that were made.

decomposed_jobs.csv: whole jobs, the Transformer on 32 V100s with a sample each, the faster of both exchanges,
switches re-planned as above: an iteration with `ocs-exact`, and with `ocs-decompose` in every plan
(`always = true`). Three minutes.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sipml_ocs import decompose
from sipml_ocs.decomposition import makespan_bound_us, transfer_times_us
from sipml_ocs.kernel import match

from sipml_core.cases import run_experiment
from sipml_core.engine import simulate
from sipml_core.experiment import read_experiment
from sipml_core.model import Cluster, Network, TaskBuilder, TrafficMatrix
from sipml_core.plugin import load
from sipml_core.scheduling import ScheduledCircuits, job_bytes

LINK_GBPS = 100.0
Matrix = NDArray[np.float64]


def dense(gpus: int, rng: np.random.Generator) -> Matrix:
    """Everybody to everybody, log-normal."""
    return rng.lognormal(0, 1, (gpus, gpus))


def sparse(gpus: int, rng: np.random.Generator) -> Matrix:
    """Eight random peers each, log-normal."""
    found = np.zeros((gpus, gpus))
    for gpu in range(gpus):
        others = np.delete(np.arange(gpus), gpu)
        found[gpu, rng.choice(others, min(8, gpus - 1), replace=False)] = rng.lognormal(
            0, 1, min(8, gpus - 1)
        )
    return found


def experts(gpus: int, rng: np.random.Generator) -> Matrix:
    """Tokens of each GPU to experts on all, in random shares."""
    return rng.dirichlet(np.full(gpus, 2.0), gpus)


def ring(gpus: int, rng: np.random.Generator) -> Matrix:
    """Both neighbours."""
    found, each = np.zeros((gpus, gpus)), np.arange(gpus)
    found[each, (each + 1) % gpus] = found[each, (each - 1) % gpus] = 1.0
    return found


def groups(gpus: int, rng: np.random.Generator) -> Matrix:
    """All-to-all in groups of eight, and a ring over the groups."""
    found, each = np.zeros((gpus, gpus)), np.arange(gpus)
    for first in range(0, gpus, 8):
        found[first : first + 8, first : first + 8] = rng.uniform(0.5, 1, (8, 8))
    found[each, (each + 8) % gpus] += 2.0
    return found


SHAPES: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    "dense": dense, "sparse": sparse, "experts": experts, "ring": ring, "groups": groups,
}  # fmt: skip


def traffic_of(shape: str, gpus: int) -> TrafficMatrix:
    """The matrix of a shape, its busiest port sending 10 ms on one link."""
    matrix = SHAPES[shape](gpus, np.random.default_rng(0))
    np.fill_diagonal(matrix, 0.0)
    busiest = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
    return TrafficMatrix.from_dense(matrix / busiest * 10_000.0 * LINK_GBPS * 125.0)


def least_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - start))
    return min(times)


def decomposed(shape: str, gpus: int, switches: int, delay: float) -> dict[str, object]:
    traffic = traffic_of(shape, gpus)
    options = {
        "switches": switches, "link_gbps": LINK_GBPS, "reconfiguration_us": delay * 10_000.0 / switches,
    }  # fmt: skip
    made = decompose(traffic, **options)
    made.check()
    order = np.argsort(-traffic.demand, kind="stable")
    src, dst = traffic.src[order], traffic.dst[order]
    degree = int(max(np.bincount(src).max(), np.bincount(dst).max()))
    return {
        "shape": shape,
        "gpus": gpus,
        "switches": switches,
        "delay": delay,
        "of_bound": round(made.makespan_us / made.bound_us, 6),
        "configurations": made.configurations,
        "decompose_ms": round(least_ms(lambda: decompose(traffic, **options)), 3),
        "match_ms": round(least_ms(lambda: match(gpus, src, dst, degree)), 3),
    }


def drained(shape: str, gpus: int, switches: int = 4) -> Iterable[dict[str, object]]:
    """The matrix sent on the engine, by each scheduler with each of two estimators."""
    registry, traffic = load(), traffic_of(shape, gpus)
    builder = TaskBuilder(gpus)
    builder.transfers(traffic.src, traffic.dst, traffic.demand, 0)
    tasks = builder.build()
    ocs = registry.find("topology", "sip-ocs")
    topology = ocs(ocs.Options(switches=switches, interval_us=100.0, reconfiguration_us=20.0))
    fabric = topology.build(Cluster(gpus=gpus, bandwidth_gbps=switches * LINK_GBPS))
    network = Network.of(fabric, tasks)
    bound_us = makespan_bound_us(traffic, transfer_times_us(traffic, LINK_GBPS), switches, 20.0)
    for scheduler in ("ocs-exact", "ocs-decompose"):
        for estimator in ("window", "backlog"):
            made, seen = registry.find("scheduler", scheduler), registry.find("estimator", estimator)
            driver = ScheduledCircuits(
                control=fabric.circuits,
                scheduler=made(made.Options()),
                estimator=seen(seen.Options()).start(network, tasks),
                network=network,
                total_bytes=job_bytes(network, tasks),
            )
            timeline = simulate(tasks, network, driver=driver)
            yield {
                "shape": shape,
                "gpus": gpus,
                "scheduler": scheduler,
                "estimator": estimator,
                "of_bound": round(timeline.total_us / bound_us, 6),
                "plans": driver.plans,
            }


def on_a_job(mp: int, switches: int, gbps: float) -> dict[str, object]:
    """An iteration with either scheduler."""
    ocs = {"name": "sip-ocs", "switches": switches, "interval_us": 100, "reconfiguration_us": 20, "rounds": 1}
    cycles = {"name": "ocs-decompose", "always": True}
    tables = {
        "title": "decomposed-jobs",
        "cluster": {"gpus": 32, "bandwidth_gbps": gbps},
        "workload": {"name": "transformer"},
        "plan": {"mp": mp, "global_batch": 32, "layout": "auto"},
        "topology": [{**ocs, "label": "exact"}, {**ocs, "label": "cycles", "scheduler": cycles}],
    }
    exact, decomposed_job = run_experiment(read_experiment(tables, load())).cases
    return {
        "mp": mp,
        "switches": switches,
        "bandwidth_gbps": gbps,
        "exact_us": exact.iteration_us,
        "decompose_us": decomposed_job.iteration_us,
    }


def written(path: Path, rows: Iterable[dict[str, object]]) -> None:
    """Write rows as they come, to a file and to the terminal."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, row in enumerate(rows):
            for target in (file, sys.stdout):
                table = csv.DictWriter(target, list(row), lineterminator="\n")
                if number == 0:
                    table.writeheader()
                table.writerow(row)
                target.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="*", default=[64, 256, 1024])
    parser.add_argument("--drained", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--mp", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    if asked.gpus:
        points = itertools.product(SHAPES, asked.gpus, (4, 16), (0.01, 0.1))
        written(asked.out / "decomposition.csv", (decomposed(*point) for point in points))
    if asked.drained:
        drains = itertools.product(SHAPES, asked.drained)
        written(asked.out / "draining.csv", (row for point in drains for row in drained(*point)))
    if asked.mp:
        jobs = itertools.product(asked.mp, (4, 8, 16), (500, 2000))
        written(asked.out / "decomposed_jobs.csv", (on_a_job(*job) for job in jobs))


if __name__ == "__main__":
    main()
