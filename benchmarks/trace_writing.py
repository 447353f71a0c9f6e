"""Time and size of a trace of a million slices, and what `run --details` adds to a run.

python benchmarks/trace_writing.py            the trace: made-up transfers of 64 GPUs
python benchmarks/trace_writing.py FILE       seconds of `run FILE` without and with details, best of three
"""

from __future__ import annotations

import argparse
import time

import attrs
import numpy as np

from sipml_core.cases import ExperimentRun
from sipml_core.details import CaseDetails, trace_bytes, trace_size
from sipml_core.engine import Recording, simulate
from sipml_core.experiment import open_experiment
from sipml_core.model import CaseRecord, Fabric, Network, Routes, TaskBuilder
from sipml_core.plugin import load
from sipml_core.report.detailfiles import csv_parts

GPUS = 64


def ports(src, dst):
    """An egress and an ingress port."""
    return Routes(links=np.stack([src, GPUS + dst], axis=1), latency_us=np.zeros(len(src)))


def made_up(transfers=400_000, tasks=200_000, seed=0):
    """Tasks one after the other on each GPU, each sending to two others what tasks there wait for."""
    rng = np.random.default_rng(seed)
    builder = TaskBuilder(GPUS, ("op",))
    gpu = np.arange(tasks) % GPUS
    nodes = builder.tasks(gpu, rng.exponential(5.0, tasks), np.arange(tasks) // GPUS, 0)
    made = rng.integers(0, tasks - 10 * GPUS, transfers)
    used = made + rng.integers(GPUS, 10 * GPUS, transfers)
    used[gpu[used] == gpu[made]] += 1
    sends = builder.transfers(gpu[made], gpu[used], rng.exponential(1e5, transfers), 0)
    builder.depend(nodes[made], sends)
    builder.depend(sends, nodes[used])
    builder.depend(nodes[:-GPUS], nodes[GPUS:])
    graph = builder.build()
    network = Network.of(Fabric(gpus=GPUS, link_gbps=np.full(2 * GPUS, 400.0), route=ports), graph)
    none = np.full(graph.compute_tasks, -1)
    return CaseRecord(
        workload="made-up", topology="ports", queue="pair", iterations=1, tasks=graph, network=network,
        timeline=simulate(graph, network, recording=Recording()), replica=np.zeros(GPUS, int),
        stage=np.zeros(GPUS, int), device=np.arange(GPUS), op=none, op_names=(), micro_batch=none,
        pass_kind=none, part=none, bucket=np.full(graph.transfers, -1),
        link_name=str, link_tail=None, link_head=None, decisions=(), images=None,
    )  # fmt: skip


def time_trace() -> None:
    """Write one trace and print a line."""
    details = CaseDetails(record=made_up())
    started_s = time.process_time()
    content = trace_bytes(details)
    spent_s = time.process_time() - started_s
    slices, stated = trace_size(details)
    size_mb, stated_mb = len(content) / 1e6, stated / 1e6
    print(f"trace: {slices} slices in {spent_s:.2f} s, {size_mb:.1f} MB (stated {stated_mb:.1f} MB)")
    started_s = time.process_time()
    size_mb = sum(map(len, csv_parts(details.flows()))) / 1e6
    spent_s = time.process_time() - started_s
    print(f"flows.csv: {details.record.tasks.transfers} rows in {spent_s:.2f} s, {size_mb:.1f} MB")


def time_runs(file: str) -> None:
    """Run an experiment without and with details, and print a line for each."""
    experiment = open_experiment(file, load())
    for details in (False, True):
        best_s = np.inf
        for _ in range(3):
            started_s = time.process_time()
            ExperimentRun(attrs.evolve(experiment), details=details).go()
            best_s = min(best_s, time.process_time() - started_s)
        print(f"{file}: {'with' if details else 'without'} details {best_s:.2f} s")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", help="an experiment")
    file = parser.parse_args().file
    if file:
        time_runs(file)
    else:
        time_trace()


if __name__ == "__main__":
    main()
