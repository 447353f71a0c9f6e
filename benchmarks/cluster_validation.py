"""Measured throughput of V100 clusters against whole simulations: `python benchmarks/cluster_validation.py`.

Prints two markdown tables: the measured rows, and what each of our assumptions is worth. The
cases are those of examples/v100_cluster.toml and examples/v100_server.toml. Nothing is fitted to them: GPU
efficiencies come from single GPUs (docs/gpu-models.md), bandwidths from data sheets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sipml_core.config import read_experiment, read_tables
from sipml_core.engine.simulate import simulate
from sipml_core.gpus import op_times_us
from sipml_core.interfaces import GpuModel
from sipml_core.model.balanced import Placement
from sipml_core.model.network import Network
from sipml_core.model.opgraph import Split
from sipml_core.overrides import apply_overrides
from sipml_core.parallel.lowering import lower
from sipml_core.plugins import Registry, load
from sipml_core.prepare import Prepared, Workbench

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

#: Sequences/s of Megatron-LM and OneFlow (Oneflow-Inc/DLPerf, GPT report).
MEASURED = {"at the end": (48.16, 65.35), "overlapped": (48.16, 65.35)}
MEASURED |= {"MP 8": (23.11, 24.92), "DP 2 x MP 4": (27.75, 29.65)}

FILE = {"at the end": "v100_cluster.toml", "overlapped": "v100_cluster.toml"}
FILE |= {"MP 8": "v100_server.toml", "DP 2 x MP 4": "v100_server.toml"}

NAME = {"at the end": "DP 16, two servers, all-reduce at the end"}
NAME |= {"overlapped": "DP 16, two servers, all-reduce overlapped"}


@attrs.frozen(kw_only=True)
class Prediction:
    """One simulated case."""

    #: [sequences/s]
    rate: float
    collective: str


def predict(
    registry: Registry, label: str, *overrides: str, duplicated: bool = True, collective: str | None = None
) -> Prediction:
    """Throughput of one case of the examples.

    Parameters
    ----------
    overrides
        Changes to the file, as of `run --set`.
    duplicated
        Tensor parallelism as measured: what is not split by features is done by every GPU in full.
    collective
        The form of all-reduce; None: the faster one.
    """
    tables: dict[str, Any] = apply_overrides(read_tables(EXAMPLES / FILE[label]), overrides)
    tables["workload"] = [table for table in tables["workload"] if table["label"] == label]
    experiment = read_experiment(tables, registry)
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    strategy = job.strategy(interconnect.cluster.gpus)
    forms = Workbench(experiment=experiment).prepare(job, interconnect, strategy)
    runs = [
        Prediction(
            rate=strategy.global_batch * 1e6 / iteration_us(form, experiment.gpu, duplicated=duplicated),
            collective=form.collective,
        )
        for form in forms
        if collective in (None, form.collective)
    ]
    return max(runs, key=lambda run: run.rate)


def iteration_us(case: Prepared, gpu: GpuModel, *, duplicated: bool) -> float:
    """Time of the case's iteration. [us]"""
    tasks, network = case.tasks, case.network
    if duplicated and case.strategy.mp > 1:
        placement = with_duplicates(case.placement, gpu)
        tasks = lower(placement, case.strategy, case.interconnect.cluster)
        network = Network.of(case.fabric, tasks)
    return simulate(tasks, network).total_us


def with_duplicates(placement: Placement, gpu: GpuModel) -> Placement:
    """The placement with ops that are cut along samples as slow as the whole op.

    The frameworks measured do not divide what lies between two all-reduces (norms, dropout, residual
    sums): every GPU does all of it (Shoeybi et al. 2019, "Megatron-LM", section 3). The bytes are the same:
    an all-reduce is a reduce-scatter to the parts and an all-gather from them.
    """
    graph = placement.graph
    by_sample = np.array(
        [
            dim is not None and op.splits[dim] is Split.SAMPLE
            for op, dim in zip(graph.graph.ops, graph.split_dim, strict=True)
        ]
    )
    whole_us = op_times_us(graph.graph, gpu)
    op = graph.subop_op
    duration_us = np.where(by_sample[op], whole_us[op], graph.duration_us)
    return attrs.evolve(placement, graph=attrs.evolve(graph, duration_us=duration_us))


def error(label: str, rate: float) -> float:
    """Signed, relative to the nearer framework; 0 between the two."""
    low, high = MEASURED[label]
    return rate / min(max(rate, low), high) - 1.0


def table(registry: Registry) -> list[str]:
    """Measured and predicted, one line per row."""
    lines = ["| case | measured /s | predicted /s | error | all-reduce |", "|---|--:|--:|--:|---|"]
    for label, (low, high) in MEASURED.items():
        run = predict(registry, label)
        collective = run.collective if label != "MP 8" else ""
        lines.append(
            f"| {NAME.get(label, label + ', one server')} | {low} - {high} | {run.rate:.1f} "
            f"| {error(label, run.rate):+.1%} | {collective} |"
        )
    return lines


def ablations(registry: Registry) -> list[str]:
    """The same cases with one assumption changed."""
    slow_uplink, slow_nvlink = "topology.uplink_gbps=80", "cluster.bandwidth_gbps='120 GB/s'"
    changes: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = [
        ("at the end", "flat ring only", (), {"collective": "ring"}),
        ("at the end", "InfiniBand at 80 Gb/s", (slow_uplink,), {}),
        ("at the end", "NVLink at 120 GB/s", (slow_nvlink,), {}),
        ("overlapped", "flat ring only", (), {"collective": "ring"}),
        ("overlapped", "InfiniBand at 80 Gb/s", (slow_uplink,), {}),
    ]
    for label in ("MP 8", "DP 2 x MP 4"):
        changes += [
            (label, "norms, dropout and residuals divided", (), {"duplicated": False}),
            (label, "NVLink at 120 GB/s", (slow_nvlink,), {}),
            (label, "the layout sipml chooses", ("strategy.layout=auto",), {"duplicated": False}),
        ]
    lines = ["| case | changed | predicted /s | error |", "|---|---|--:|--:|"]
    for label, what, overrides, options in changes:
        rate = predict(registry, label, *overrides, **options).rate
        name = label if label in ("MP 8", "DP 2 x MP 4") else f"DP 16, {label}"
        lines.append(f"| {name} | {what} | {rate:.1f} | {error(label, rate):+.1%} |")
    return lines


def main() -> None:
    """Print both tables."""
    registry = load()
    print("\n".join([*table(registry), "", *ablations(registry)]))


if __name__ == "__main__":
    main()
