"""What joining consecutive tasks of a GPU would save: GPT-3 on an ideal switch, joined and not.

    python benchmarks/joined_tasks.py

Tasks of one pass that follow one another on their GPU become one: where the second waits for the first
alone, which nobody else waits for (exact); or where the second waits for nothing from elsewhere, and nobody
elsewhere waits for the first (a GPU that is strictly in order). Dependencies that the order of passes implies
are dropped. Takes a minute.
"""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import numpy as np

from sipml_core.cases import Case, Reuse, compile_case
from sipml_core.engine import simulate
from sipml_core.experiment import open_experiment
from sipml_core.lowering import Lowering, task_origins
from sipml_core.model import TaskGraph, sorted_unique
from sipml_core.plugin import load

EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt3_175b.toml"


def joined(lowering: Lowering, tasks: TaskGraph, *, exact: bool) -> TaskGraph:
    """Return the tasks of one replica, consecutive ones as one."""
    origin, count = task_origins(lowering, tasks, 1), tasks.compute_tasks
    before = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    after = tasks.successors.astype(np.int64)

    # Pass of each task, -1 of the optimizer's and of barriers; edges inside a GPU, of which those between
    # passes are implied.
    run = (origin.part.astype(np.int64) * 4 + origin.pass_kind) * lowering.plan.micro_batches
    run = np.where((origin.pass_kind < 0) | (origin.pass_kind > 2), -1, run + origin.micro_batch)
    gpu = np.concatenate([tasks.gpu, np.full(tasks.transfers, -1, dtype=np.int32)])
    inside = (gpu[before] == gpu[after]) & (gpu[before] >= 0)
    implied = inside.copy()
    first, second = run[before[inside]], run[after[inside]]
    implied[inside] = (first >= 0) & (second >= 0) & (first != second)
    before, after, inside = before[~implied], after[~implied], inside[~implied]

    # Each task joins the one before it on its GPU, in one pass, if it waits for nothing from elsewhere and
    # nobody elsewhere waits for that one.
    order = np.lexsort((tasks.priority[:count], tasks.gpu))
    one, next_one = order[:-1], order[1:]
    joins = (tasks.gpu[one] == tasks.gpu[next_one]) & (run[one] == run[next_one]) & (run[one] >= 0)
    counted = np.ones(len(before), dtype=np.bool_) if exact else ~inside
    goes = np.bincount(before[counted], minlength=tasks.nodes)
    comes = np.bincount(after[counted], minlength=tasks.nodes)
    joins &= (goes[one] == exact) & (comes[next_one] == exact)
    if exact:  # the one that comes is the one that goes
        leads_to = np.full(tasks.nodes, -1)
        leads_to[before] = after
        joins &= leads_to[one] == next_one
    head = np.arange(tasks.nodes)
    head[next_one[joins]] = one[joins]
    while (head[head] != head).any():
        head = head[head]
    number = np.cumsum(head == np.arange(tasks.nodes)) - 1
    kept = head[:count] == np.arange(count)
    duration_us = np.bincount(head[:count], tasks.duration_us, minlength=count)[kept]
    before, after = number[head[before]], number[head[after]]
    edges = sorted_unique((before << 32 | after)[before != after])
    before, after = edges >> 32, edges & 0xFFFFFFFF
    counts = np.bincount(before, minlength=int(number[-1]) + 1)
    return attrs.evolve(
        tasks,
        gpu=tasks.gpu[kept],
        duration_us=duration_us,
        priority=np.concatenate([tasks.priority[:count][kept], tasks.priority[count:]]),
        label=tasks.label[kept],
        marks=number[tasks.marks],
        succ_start=np.concatenate([[0], np.cumsum(counts)]),
        successors=after,
    )


def measured(name: str, tasks: TaskGraph, simulated: tuple[float, float]) -> str:
    size = sum(v.nbytes for v in attrs.asdict(tasks, recurse=False).values() if isinstance(v, np.ndarray))
    seconds, total_us = simulated
    return (
        f"| {name} | {tasks.compute_tasks:,} | {tasks.transfers:,} | {len(tasks.successors):,} "
        f"| {size / 1e6:.0f} MB | {seconds:.2f} s | {total_us:.6f} us |"
    )


def run(tasks: TaskGraph, network: object) -> tuple[float, float]:
    """Return processor seconds and the end of the run."""
    begun = time.process_time()
    total_us = simulate(tasks, network).total_us  # type: ignore[arg-type]
    return time.process_time() - begun, total_us


def main() -> None:
    experiment = open_experiment(EXAMPLE, load())
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
    (compiled,) = compile_case(case, Reuse())
    print("| GPT-3, one replica, Elect-Flat | tasks | transfers | dependencies | graph | engine | end |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(measured("as they are", compiled.tasks, run(compiled.tasks, compiled.network)))
    for name, exact in (("joined, exact", True), ("joined, as if strictly in order", False)):
        fewer = joined(compiled.lowering, compiled.tasks, exact=exact)
        print(measured(name, fewer, run(fewer, compiled.network)))


if __name__ == "__main__":
    main()
