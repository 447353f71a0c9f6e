"""What a sweep costs beside its simulations: overhead a run, and many small runs on all cores.

python benchmarks/sweeps.py [RUNS] [JOBS]      default 1000 runs, one process for each CPU
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from sipml_core.cases import Case, Clock, Reuse, run_candidates, simulate_variants
from sipml_core.executing import executor_for
from sipml_core.plugin import load
from sipml_core.store import ResultStore
from sipml_core.sweeping import carry_out_sweep, read_sweep

#: A GPT of one layer on 8 GPUs: a run of milliseconds.
EXPERIMENT = {
    "title": "small",
    "cluster": {"gpus": 8, "bandwidth_gbps": 400},
    "workload": [
        {
            "name": "gpt",
            "layers": 1,
            "hidden": 128,
            "heads": 4,
            "sequence": 32,
            "vocabulary": 500,
            "plan": {"mp": 2, "global_batch": 16},
        }
    ],
    "topology": [{"name": "elect-flat"}],
}


def sweep(runs: int):
    """Return a sweep of so many runs, each at a bandwidth of its own."""
    axis = [400 + 0.25 * number for number in range(runs)]
    return read_sweep({"experiment": EXPERIMENT, "axes": {"cluster.bandwidth_gbps": axis}})


def seconds(work) -> float:
    """Return how long a call takes. [s]"""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def own_seconds(work) -> float:
    """Return how long this process works at a call, whoever else has the machine. [s]"""
    began = time.process_time()
    work()
    return time.process_time() - began


def processor_seconds() -> float:
    """Return how long this process and those that it has started and ended have worked. [s]"""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def simulated(runs: int) -> None:
    """Simulate the runs of a sweep, and do nothing else."""
    reuse = Reuse()
    for _, experiment in asked[:runs]:
        (job,), (interconnect,) = experiment.jobs, experiment.interconnects
        (candidate,) = run_candidates(job, interconnect.cluster.gpus)
        case = Case.of(experiment, job, interconnect, candidate.checked_plan)
        simulate_variants(case, reuse, Clock())


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count() or 1
    few = min(count, 500)
    registry = load()
    asked = list(sweep(few).experiments(registry))
    simulated(20)
    alone_s = own_seconds(lambda: simulated(few)) / few
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(Path(folder) / "one")
        one = own_seconds(lambda: carry_out_sweep(sweep(few), registry, executor_for(), store)) / few
        kept = own_seconds(lambda: carry_out_sweep(sweep(few), registry, executor_for(), store)) / few
        print(f"one process, {few} runs: simulation alone {1e3 * alone_s:.2f} ms a run")
        print(f"in a sweep {1e3 * one:.2f} ms: overhead {1e3 * (one - alone_s):.2f} ms a run")
        print(f"all in the store already: {1e3 * kept:.2f} ms a run")
        many = ResultStore(Path(folder) / "many")
        before_s = processor_seconds()
        total_s = seconds(lambda: carry_out_sweep(sweep(count), registry, executor_for(jobs=jobs), many))
        each_s = (processor_seconds() - before_s) / count
        print(f"{count} runs in {jobs} processes: {total_s:.1f} s, {1e3 * each_s:.2f} ms of a core each")
        print(f"{3600 / each_s:.0f} runs an hour and core")
