"""What a run reports: one row for each workload on each interconnect."""

from __future__ import annotations

from typing import Any

import attrs


def _column(doc: str, unit: str = "", default: Any = attrs.NOTHING) -> Any:
    return attrs.field(default=default, metadata={"doc": doc, "unit": unit})


@attrs.frozen(kw_only=True)
class CaseResult:
    """One workload on one interconnect with one strategy. The fields are the columns of summary.csv."""

    workload: str = _column("model that is trained")
    topology: str = _column("interconnect, as labelled in the experiment")
    gpus: int = _column("GPUs in the cluster")
    bandwidth_gbps: float = _column("network bandwidth of one GPU, each direction", "Gbps")
    mp: int = _column("model-parallel degree: GPUs that hold one replica")
    dp: int = _column("data-parallel degree: replicas")
    global_batch: int = _column("samples in one iteration, all replicas together")
    scheduler: str = _column("circuit scheduler, empty on packet networks")
    all_reduce: str = _column("algorithm that synchronises gradients: one flat ring, or two-tier")
    exchange: str = _column("how a group exchanges: direct, or from device to device along a chain")
    iteration_us: float = _column("time of one training iteration", "us")
    compute_us: float = _column("of it, a GPU computes: mean over GPUs", "us")
    exposed_us: float = _column("of it, a GPU only communicates: mean over GPUs", "us")
    dark_us: float = _column("of it, a GPU only waits for dark circuits: mean over GPUs", "us")
    idle_us: float = _column("the rest: mean over GPUs", "us")
    lower_bound_us: float = _column(
        "no network of this bandwidth can end this iteration sooner: busiest port, GPU or path", "us"
    )
    network_bytes: float = _column("bytes sent by all GPUs in one iteration", "bytes")
    gradient_bytes: float = _column("of them, for gradient synchronisation", "bytes")
    memory_bytes: float = _column("device memory the fullest GPU needs", "bytes")
    decisions: int = _column("circuit plans made while the job ran")
    steps_to_accuracy: float = _column("iterations to the target accuracy")
    time_to_accuracy_s: float = _column("iteration time x iterations", "s")
    extrapolated: bool = _column("the batch lies outside the measured convergence data")
    speedup: float = _column("time-to-accuracy of the baseline divided by this one")
    notes: tuple[str, ...] = _column("what the reader should know of this row")
    pp: int = _column("pipeline stages of a replica", default=1)
    micro_batch: int | None = _column(
        "samples that a replica passes through at once; empty in results that were written without it",
        default=None,
    )
    schedule: str = _column(
        "order of the passes of a stage; empty where there is nothing to order", default=""
    )
    zero: int = _column("what replicas share: nothing (0), optimizer state (1), gradients too (2)", default=0)


@attrs.frozen(kw_only=True)
class Result:
    """A finished experiment."""

    title: str
    seed: int
    version: str
    baseline: str
    #: The resolved configuration, as plain tables.
    experiment: dict[str, Any]
    cases: tuple[CaseResult, ...]
    #: Where each workload's iterations-to-accuracy come from.
    sources: dict[str, str]
