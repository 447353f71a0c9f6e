"""Measured throughput of V100 clusters against whole simulations: `python benchmarks/cluster_validation.py`.

Prints two markdown tables: the measured rows, and what each of our assumptions is worth. The
cases are those of examples/v100_cluster.toml and examples/v100_server.toml. Nothing is fitted to them: GPU
efficiencies come from single GPUs (docs/gpu-models.md), bandwidths from data sheets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import sipml_core as sipml
from sipml_core.cases import Case, Reuse, compile_case
from sipml_core.engine import simulate

#: Values by path, as of `sipml.run`.
Changes = Mapping[str, Any]

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
    all_reduce: str


def predict(label: str, changes: Changes = {}, all_reduce: str | None = None) -> Prediction:  # noqa: B006
    """Throughput of one case of the examples, as `run` has it.

    Parameters
    ----------
    changes
        Of the file, by path.
    all_reduce
        The all-reduce; None: the faster one.
    """
    experiment = sipml.load(EXAMPLES / FILE[label], set=changes)
    job = next(job for job in experiment.jobs if job.label == label)
    interconnect = experiment.interconnects[0]
    plan = job.plan(interconnect.cluster.gpus)
    variants = compile_case(Case.of(experiment, job, interconnect, plan), Reuse())
    runs = [
        Prediction(
            rate=plan.global_batch * 1e6 / simulate(compiled.tasks, compiled.network).total_us,
            all_reduce=compiled.plan.all_reduce,
        )
        for compiled in variants
        if all_reduce in (None, compiled.plan.all_reduce)
    ]
    return max(runs, key=lambda run: run.rate)


def error(label: str, rate: float) -> float:
    """Signed, relative to the nearer framework; 0 between the two."""
    low, high = MEASURED[label]
    return rate / min(max(rate, low), high) - 1.0


def table() -> list[str]:
    """Measured and predicted, one line per row."""
    lines = ["| case | measured /s | predicted /s | error | all-reduce |", "|---|--:|--:|--:|---|"]
    for label, (low, high) in MEASURED.items():
        run = predict(label)
        all_reduce = run.all_reduce if label != "MP 8" else ""
        lines.append(
            f"| {NAME.get(label, label + ', one server')} | {low} - {high} | {run.rate:.1f} "
            f"| {error(label, run.rate):+.1%} | {all_reduce} |"
        )
    return lines


def ablations() -> list[str]:
    """The same cases with one assumption changed."""
    slow_uplink, slow_nvlink = {"topology.uplink_gbps": 80}, {"cluster.bandwidth_gbps": "120 GB/s"}
    cases: list[tuple[str, str, Changes, str | None]] = [
        ("at the end", "flat ring only", {}, "flat"),
        ("at the end", "InfiniBand at 80 Gb/s", slow_uplink, None),
        ("at the end", "NVLink at 120 GB/s", slow_nvlink, None),
        ("overlapped", "flat ring only", {}, "flat"),
        ("overlapped", "InfiniBand at 80 Gb/s", slow_uplink, None),
    ]
    for label in ("MP 8", "DP 2 x MP 4"):
        layouts = [{"strategy.layout": layout} for layout in ("tensor", "auto")]
        cases += [
            (label, "layout `tensor`: norms, dropout, residuals divided", layouts[0], None),
            (label, "NVLink at 120 GB/s", slow_nvlink, None),
            (label, "the layout sipml chooses", layouts[1], None),
        ]
    lines = ["| case | changed | predicted /s | error |", "|---|---|--:|--:|"]
    for label, what, changes, all_reduce in cases:
        rate = predict(label, changes, all_reduce).rate
        name = label if label in ("MP 8", "DP 2 x MP 4") else f"DP 16, {label}"
        lines.append(f"| {name} | {what} | {rate:.1f} | {error(label, rate):+.1%} |")
    return lines


def main() -> None:
    """Print both tables."""
    print("\n".join([*table(), "", *ablations()]))


if __name__ == "__main__":
    main()
