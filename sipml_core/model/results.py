"""What a run reports: one row for each workload on each interconnect."""

from __future__ import annotations

from typing import Any, Protocol

import attrs
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model.caserecord import CaseRecord
from sipml_core.model.timeline import Timeline

#: What became of a case: it ran / it cannot run / a limit or an interrupt ended it / something broke.
OK, INFEASIBLE, UNFINISHED, FAILED = "ok", "infeasible", "unfinished", "failed"
#: Mark of columns that only language models have.
LANGUAGE = "language"
#: Mark of columns that only cases have whose [framework] takes time of the host.
HOST = "host"
#: Mark of columns that only cases have whose layout and circuits were chosen in turn.
ROUNDS = "rounds"


def _column(doc: str, unit: str = "", default: Any = attrs.NOTHING) -> Any:
    return attrs.field(default=default, metadata={"doc": doc, "unit": unit})


def _number(doc: str, unit: str = "") -> Any:
    """A column that is empty where the case did not run."""
    return _column(doc, unit, None)


def _of_language(doc: str, unit: str = "") -> Any:
    """A column that only language models have; files without one leave it out."""
    return attrs.field(
        default=None, metadata={"doc": f"{doc}, of a language model", "unit": unit, LANGUAGE: True}
    )


@frozen(kw_only=True)
class CaseResult:
    """One workload on one interconnect with one plan. The fields are the columns of summary.csv."""

    workload: str = _column("model that is trained")
    topology: str = _column("interconnect, as labelled in the experiment")
    options: str = _column("options of the interconnect, defaults included", default="")
    status: str = _column(
        "ok, infeasible, unfinished or failed; numbers stand only in rows that are ok", default=OK
    )
    reason: str = _column("why it is not ok, with the numbers", default="")
    gpus: int = _column("GPUs in the cluster")
    bandwidth_gbps: float = _column("network bandwidth of one GPU, each direction", "Gbps")
    mp: int | None = _number("model-parallel degree: GPUs that hold one replica")
    dp: int | None = _number("data-parallel degree: replicas")
    global_batch: int | None = _number("samples in one iteration, all replicas together")
    scheduler: str = _column("circuit scheduler, empty on packet networks", default="")
    all_reduce: str = _column("algorithm that synchronises gradients: one flat ring, or two-tier", default="")
    exchange: str = _column(
        "how a group exchanges: direct, or from device to device along a chain", default=""
    )
    iteration_us: float | None = _number("time of one training iteration", "us")
    compute_us: float | None = _number("of it, a GPU computes: mean over GPUs", "us")
    compute_max_us: float | None = _number("of it, the GPU that computes longest computes", "us")
    exposed_us: float | None = _number("of it, a GPU only communicates: mean over GPUs", "us")
    dark_us: float | None = _number("of it, a GPU only waits for dark circuits: mean over GPUs", "us")
    dark_capacity_us: float | None = _number(
        "of it, circuits were dark, weighted with their capacity; whether a GPU waited for them or not", "us"
    )
    idle_us: float | None = _number("the rest: mean over GPUs", "us")
    lower_bound_us: float | None = _number(
        "no network of this bandwidth can end this iteration sooner: busiest port, GPU or path", "us"
    )
    network_bytes: float | None = _number("bytes sent by all GPUs in one iteration", "bytes")
    gradient_bytes: float | None = _number("of them, for gradient synchronisation", "bytes")
    memory_bytes: float | None = _number("device memory the fullest GPU needs", "bytes")
    decisions: int | None = _number("circuit plans made while the job ran")
    samples_per_s: float | None = _number("samples trained in a second", "1/s")
    tokens_per_s: float | None = _number("tokens trained in a second, of a language model", "1/s")
    goal: str = _column("what the training works towards: accuracy, or a number of tokens", default="")
    steps_to_accuracy: float | None = _number("iterations to the target accuracy, where it was measured")
    time_to_accuracy_s: float | None = _number("iteration time x iterations", "s")
    time_to_goal_s: float | None = _number("time to the goal, accuracy or not", "s")
    extrapolated: bool = _column("the batch lies outside the measured convergence data", default=False)
    speedup: float | None = _number("time to the goal of the baseline divided by this one")
    notes: tuple[str, ...] = _column("what the reader should know of this row", default=())
    pp: int | None = _column("pipeline stages of a replica", default=None)
    micro_batch: int | None = _column(
        "samples that a replica passes through at once; empty in results that were written without it",
        default=None,
    )
    schedule: str = _column(
        "order of the passes of a stage; empty where there is nothing to order", default=""
    )
    zero: int | None = _column(
        "what replicas share: nothing (0), optimizer state (1), gradients too (2), parameters too (3)",
        default=None,
    )
    bubble: float | None = _column(
        "part of an iteration in which GPUs wait for their pipeline, with equal stages and a free network: "
        "(p - 1) / (m + p - 1) for p stages and m micro-batches; idle_us / iteration_us is what there was",
        default=None,
    )

    host_wait_us: float | None = attrs.field(
        default=None,
        metadata={
            "doc": "of idle_us, a GPU could go on if the host had issued its next op, where `[framework]` "
            "takes time of the host: mean over GPUs",
            "unit": "us",
            HOST: True,
        },
    )
    one_round_us: float | None = attrs.field(
        default=None,
        metadata={
            "doc": "time of one iteration with the fastest layout of the first round, where layout and "
            "circuits were chosen in turn",
            "unit": "us",
            ROUNDS: True,
        },
    )
    tokens_per_s_gpu: float | None = _of_language("tokens trained in a second by one GPU", "1/s")
    model_tflops_gpu: float | None = _of_language(
        "model FLOPs of one GPU in a second, attention in full, nothing that runs again", "TFLOP/s"
    )
    mfu: float | None = _of_language("these as a part of the GPU's peak (MFU)")
    mfu_needed: float | None = _of_language("the same, attention counted where masks and windows leave it")
    hfu: float | None = _of_language("MFU with what runs again while going backward (HFU)")
    tensor_exposed_us: float | None = _of_language("of exposed_us, waiting for parts of ops", "us")
    pipeline_exposed_us: float | None = _of_language("of exposed_us, waiting for other stages", "us")
    expert_exposed_us: float | None = _of_language("of exposed_us, waiting for rows of experts", "us")
    context_exposed_us: float | None = _of_language(
        "of exposed_us, waiting for other parts of a sequence", "us"
    )
    gradient_exposed_us: float | None = _of_language("of exposed_us, waiting for what replicas share", "us")
    tensor_bytes: float | None = _of_language("of network_bytes, parts of ops", "bytes")
    pipeline_bytes: float | None = _of_language("of network_bytes, between stages", "bytes")
    expert_bytes: float | None = _of_language("of network_bytes, to and from experts", "bytes")
    context_bytes: float | None = _of_language("of network_bytes, between parts of a sequence", "bytes")
    memory_parameters_bytes: float | None = _of_language("of memory_bytes, parameters", "bytes")
    memory_gradients_bytes: float | None = _of_language("of memory_bytes, their gradients", "bytes")
    memory_optimizer_bytes: float | None = _of_language("of memory_bytes, states of the optimizer", "bytes")
    memory_activations_bytes: float | None = _of_language(
        "of memory_bytes, the batch and what is kept for going backward", "bytes"
    )
    training_days: float | None = _of_language("time for its training_tokens", "days")
    training_gpu_hours: float | None = _of_language("that times the GPUs", "GPU-hours")

    @property
    def ran(self) -> bool:
        """Whether the case was simulated to its end."""
        return self.status == OK

    @property
    def measured_us(self) -> float:
        """The iteration time of a case that ran; `ValueError` with the reason otherwise. [us]"""
        if self.iteration_us is None:
            raise ValueError(f"{self.workload} on {self.topology} is {self.status}: {self.reason}")
        return self.iteration_us


class Details(Protocol):
    """The tables of one case, each as columns: see `sipml_core.details`."""

    @property
    def record(self) -> CaseRecord: ...

    def gpus(self) -> dict[str, NDArray[Any]]:
        """Return where the time of each GPU went."""

    def links(self) -> dict[str, NDArray[Any]]:
        """Return what each link carried."""

    def traffic(self) -> dict[str, NDArray[Any]]:
        """Return the bytes of each pair, by kind."""

    def flows(self) -> dict[str, NDArray[Any]]:
        """Return the course of each transfer."""

    def circuits(self) -> dict[str, NDArray[Any]]:
        """Return what each decision on circuits changed."""

    def to_frame(self, table: str) -> Any:
        """Return a table as a pandas DataFrame."""


@frozen(kw_only=True)
class Result:
    """A finished experiment."""

    title: str
    seed: int
    version: str
    baseline: str
    #: The resolved configuration, as plain tables; `read_experiment` makes an equal experiment of them.
    experiment: dict[str, Any]
    cases: tuple[CaseResult, ...]
    #: Where degrees are left out: all that were tried, best or not.
    candidates: tuple[CaseResult, ...] = ()
    #: Where each workload's iterations-to-accuracy come from.
    sources: dict[str, str]
    #: Versions: of Python and the packages that decide results, and of the distribution of each plugin.
    versions: dict[str, str] = attrs.Factory(dict)
    #: SHA-256 of each file that the experiment names, by its absolute name.
    files: dict[str, str] = attrs.Factory(dict)
    #: When everything ran, for each case in order; None where it was not simulated. Not written to disk.
    timelines: tuple[Timeline | None, ...] = attrs.field(default=(), eq=False, repr=False)
    #: What happened in each case, where details were asked for. Not written to disk with the result.
    recorded: tuple[Details | None, ...] = attrs.field(default=(), eq=False, repr=False)

    @property
    def complete(self) -> bool:
        """Whether every case ran."""
        return all(case.ran for case in self.cases)

    def case(self, workload: str, topology: str) -> CaseResult:
        """Return the row of one workload on one interconnect; `KeyError` if there is none."""
        for case in self.cases:
            if (case.workload, case.topology) == (workload, topology):
                return case
        raise KeyError((workload, topology))

    def details(self, workload: str | None = None, topology: str | None = None) -> Details:
        """Return what happened in one case; names may be left out where one case is left.

        Raises
        ------
        ConfigError
            The result was made without ``details=True``; or not exactly one case that ran is called so.
        """
        found = {
            f"{case.workload} on {case.topology}": recorded
            for case, recorded in zip(self.cases, self.recorded, strict=False)
            if recorded is not None
            and workload in (None, case.workload)
            and topology in (None, case.topology)
        }
        if not any(self.recorded):
            raise ConfigError("the result has no details: run again with details=True, or run --details")
        if len(found) != 1:
            known = [f"{case.workload} on {case.topology}" for case in self.cases if case.ran]
            raise ConfigError(
                f"details are of one case; name it by workload and topology, of: {'; '.join(found or known)}"
            )
        return next(iter(found.values()))

    def rows(self) -> list[dict[str, Any]]:
        """Return one record for each case, its keys the columns of summary.csv."""
        return [attrs.asdict(case) for case in self.cases]

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        ConfigError
            pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_frame needs pandas: python -m pip install pandas") from None
        return pandas.DataFrame(self.rows(), columns=[field.name for field in attrs.fields(CaseResult)])
