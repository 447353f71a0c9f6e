"""Rules of what circuits are planned for that need a run before: slack on the critical path, and waiting.

    python benchmarks/demand_rules.py [--out FOLDER]
    python docs/results.py                  # the table in docs/circuit-planning.md

demand_rules.csv, for eight of the jobs of circuit_demand.py on 64 GPUs: the iteration by bytes; with the
demand of each pair weighted by the slack of its transfers in that run, as a weight and as a standing demand;
with weights by the time that was waited for the pair per byte, made three times, each from the run before,
half of the old weight kept (geometric mean). A run that takes twice as long as by bytes is stopped: no entry.
Also the part of pairs with a transfer without slack, and how much slack weights differ. A minute of a core.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from circuit_demand import Job, network_of
from numpy.typing import NDArray

from sipml_core.cases import Case, CompiledCase, Reuse, compile_case
from sipml_core.cases.steps import circuits_for
from sipml_core.engine import simulate
from sipml_core.errors import TooSlowError
from sipml_core.experiment import read_experiment
from sipml_core.model import BARRIER, PairIndex, TaskGraph, Timeline
from sipml_core.plugin import Registry, load
from sipml_core.scheduling import BYTES, DemandRule

JOBS: list[Job] = [
    ("SiP-Ring", 64, 2, 2000),
    ("SiP-Ring", 64, 4, 500),
    ("SiP-Ring", 64, 4, 8000),
    ("SiP-Ring", 64, 8, 125),
    ("SiP-OCS", 64, 2, 125),
    ("SiP-OCS", 64, 4, 125),
    ("SiP-OCS", 64, 4, 2000),
    ("SiP-OCS", 64, 8, 2000),
]
INTERVAL_US = 100.0
WAITING_ROUNDS = 3
#: A run is stopped at so many times the iteration by bytes.
TOO_SLOW = 2.0
Array = NDArray[np.float64]


@attrs.frozen(kw_only=True, eq=False)
class WeightedPairs(DemandRule):
    """Demands by a weight for each pair, the largest 1: times it, or never below it times the largest."""

    summary: str = "by weights"
    #: [circuits]
    weights: Array
    standing: bool = False

    def weighted(self, demand: Array, gates: NDArray[np.bool_], interval_bytes: float) -> Array:
        """Return the demands to plan for. [circuits]"""
        if self.standing:
            return np.maximum(demand, self.weights * demand.max(initial=0.0))
        return demand * self.weights


def slack_us(tasks: TaskGraph, run: Timeline) -> Array:
    """Return how much later each node could have ended with no later end of the run. [nodes] [us]

    All that came after it takes as long as it took; tasks of a GPU keep their order.

    Examples
    --------
    Task 0 lasts 1 us and feeds task 1 on another GPU, which lasts 1 us; task 2 lasts 5 us, for itself.

    >>> from types import SimpleNamespace
    >>> from sipml_core.model import TaskBuilder
    >>> builder = TaskBuilder(3)
    >>> nodes = builder.tasks([0, 1, 2], [1.0, 1.0, 5.0], 0, 0)
    >>> builder.depend(nodes[0], nodes[1])
    >>> start, end = np.array([0.0, 1.0, 0.0]), np.array([1.0, 2.0, 5.0])
    >>> slack_us(builder.build(), SimpleNamespace(start_us=start, end_us=end, total_us=5.0)).tolist()
    [3.0, 3.0, 0.0]
    """
    ends, last = run.end_us, run.end_us.copy()
    last[:] = run.total_us
    took = ends - run.start_us

    # Edges: what waits for what, and the next task of the same GPU. [edges]
    first = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    compute = np.flatnonzero(tasks.gpu != BARRIER)
    in_order = compute[np.lexsort((run.start_us[compute], tasks.gpu[compute]))]
    same = tasks.gpu[in_order[1:]] == tasks.gpu[in_order[:-1]]
    first = np.concatenate((first, in_order[:-1][same]))
    then = np.concatenate((tasks.successors, in_order[1:][same]))

    # From the end of the run on: an edge is looked at when all that follows its second node is known.
    order = np.lexsort((-run.start_us[then], -ends[then]))
    late, takes = last.tolist(), took.tolist()
    for before, after in zip(first[order].tolist(), then[order].tolist(), strict=True):
        late[before] = min(late[before], late[after] - takes[after])
    return np.maximum(np.array(late) - ends, 0.0)


def waited_us(tasks: TaskGraph, run: Timeline) -> Array:
    """Return for how long GPUs were idle until each transfer, the last one, arrived. [transfers] [us]"""
    first = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    then = tasks.successors
    # Of each node, the one that it waited for longest. [nodes]; -1: none
    order = np.lexsort((run.end_us[first], then))
    latest = np.full(tasks.nodes, -1)
    latest[then[order]] = first[order]

    compute = np.flatnonzero(tasks.gpu != BARRIER)
    in_order = compute[np.lexsort((run.start_us[compute], tasks.gpu[compute]))]
    idle_us = run.start_us[in_order[1:]] - run.end_us[in_order[:-1]]
    idle_us[tasks.gpu[in_order[1:]] != tasks.gpu[in_order[:-1]]] = 0.0
    cause = latest[in_order[1:]] - tasks.compute_tasks
    by_transfer = cause >= 0
    return np.bincount(
        cause[by_transfer], weights=np.maximum(idle_us[by_transfer], 0.0), minlength=tasks.transfers
    )


def row_of(job: Job, registry: Registry) -> dict[str, object]:
    """Return the row of a job."""
    network, gpus, mp, gbps = job
    tables = {
        "title": "demand-rules",
        "cluster": {"gpus": gpus, "bandwidth_gbps": gbps},
        "workload": {"name": "transformer"},
        "plan": {"mp": mp, "global_batch": gpus, "exchange": "direct", "layout": "auto"},
        "engine": {"fold": "never"},
        "topology": network_of(network, gpus),
    }
    experiment = read_experiment(tables, registry)
    interconnect = experiment.interconnects[0]
    plan = experiment.jobs[0].plan(gpus)
    (compiled,) = compile_case(Case.of(experiment, experiment.jobs[0], interconnect, plan), Reuse())
    tasks = compiled.tasks

    # Circuit of each transfer [transfers], and what each circuit carries. [circuits] [bytes]
    keys = PairIndex(gpus).key(compiled.network.circuit_src, compiled.network.circuit_dst)
    circuit = np.searchsorted(keys, PairIndex(gpus).key(tasks.src, tasks.dst))
    carried = np.bincount(circuit, weights=tasks.size_bytes, minlength=len(keys))

    by_bytes = _run(compiled, BYTES)
    assert by_bytes is not None
    most_us = TOO_SLOW * by_bytes.total_us
    slack = slack_us(tasks, by_bytes)[tasks.compute_tasks :]
    urgent = np.bincount(circuit, weights=tasks.size_bytes / (slack + INTERVAL_US), minlength=len(keys))
    weights = urgent / carried / (urgent / carried).max()
    found: dict[str, object] = dict(
        zip(("network", "gpus", "mp", "bandwidth_gbps"), job, strict=True), bytes_us=by_bytes.total_us
    )
    found["slack_weight_us"] = _time_us(_run(compiled, WeightedPairs(weights=weights), most_us))
    standing = WeightedPairs(weights=weights, standing=True)
    found["slack_standing_us"] = _time_us(_run(compiled, standing, most_us))

    run: Timeline | None = by_bytes
    weights_waited = np.ones(len(keys))
    for number in range(1, WAITING_ROUNDS + 1):
        if run is not None:
            waited = np.bincount(circuit, weights=waited_us(tasks, run), minlength=len(keys)) / carried
            target = np.maximum(waited / max(waited.max(), 1e-30), 0.01)
            weights_waited = np.sqrt(weights_waited * target)
            weights_waited /= weights_waited.max()
            run = _run(compiled, WeightedPairs(weights=weights_waited), most_us)
        found[f"waiting_{number}_us"] = _time_us(run)

    without = np.zeros(len(keys), dtype=np.bool_)
    without[circuit[slack < 1e-6 * by_bytes.total_us]] = True
    low, high = np.quantile(weights, (0.1, 0.9))
    found["pairs_without_slack"] = round(float(without.mean()), 4)
    found["slack_weights_spread"] = round(float(high / low), 4)
    return found


def _run(compiled: CompiledCase, rule: DemandRule, most_us: float = np.inf) -> Timeline | None:
    """Return the run with circuits planned by a rule; None: it takes too long."""
    driven = circuits_for(compiled.case.interconnect, compiled.fabric, compiled.tasks, rule=rule)
    try:
        return simulate(
            compiled.tasks,
            driven.network,
            driver=driven.circuits,
            queue=compiled.case.engine.queue,
            max_time_us=most_us,
        )
    except TooSlowError:
        return None


def _time_us(run: Timeline | None) -> float | str:
    return "" if run is None else run.total_us


def rows() -> Iterator[dict[str, object]]:
    """Yield the rows of all jobs."""
    registry = load()
    for job in JOBS:
        yield row_of(job, registry)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = parser.parse_args()
    with (asked.out / "demand_rules.csv").open("w", encoding="utf-8", newline="") as file:
        for number, row in enumerate(rows()):
            table = csv.DictWriter(file, list(row), lineterminator="\n")
            if number == 0:
                table.writeheader()
            table.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
