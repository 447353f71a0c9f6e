"""All rows predicted, in several processes, and the errors summed up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sipml_core.cases import Clock, CollectiveBench, Reuse, simulate_variants
from sipml_core.errors import SipmlError
from sipml_core.executing import Executor
from sipml_core.experiment import read_communication, read_interconnect, structure
from sipml_core.fields import frozen
from sipml_core.model import SILENT, Cluster, Progress
from sipml_core.plugin import Registry, load
from sipml_core.store import Record, ResultStore, code_fingerprint
from sipml_core.validating.rows import MeasuredRow, busbw_rows, column, nccl_rows, vtrain_rows
from sipml_core.validating.runnable import case_of
from sipml_core.validating.trainingrows import training_rows

#: Columns of `Prediction` that a run gives.
TIMES = ("predicted_us", "compute_us", "exposed_us", "tensor_exposed_us")

#: Longest that one row may take. [s]
MAX_WALL_S = 300.0


@frozen(kw_only=True)
class Prediction:
    """One row held against its measurement. The fields are columns of measured.csv."""

    name: str = column("row")
    family: str = column("where it was measured, in short")
    source: str = column("where it was measured")
    gpu: str = column("GPU, as the source calls it")
    gpus: int = column("GPUs")
    setup: str = column("what ran, and how it was divided")
    fitted: bool = column("a constant was fitted to it")
    measured_us: float | None = column("time of an iteration or a collective", "us")
    predicted_us: float | None = column("the same, simulated", "us")
    compute_us: float | None = column("of it, a GPU computes in the mean; none of a collective", "us")
    exposed_us: float | None = column("of it, a GPU only communicates in the mean", "us")
    tensor_exposed_us: float | None = column("of that, for parts of tensors", "us")
    assumed: str = column("what the source does not say")
    reason: str = column("why it was not run")

    @property
    def error(self) -> float | None:
        """Return predicted over measured, less 1; None: it was not run."""
        if self.predicted_us is None or not self.measured_us:
            return None
        return self.predicted_us / self.measured_us - 1.0


def measured_rows() -> list[MeasuredRow]:
    """Return every row of the data that comes with sipml."""
    return [*nccl_rows(), *busbw_rows(), *vtrain_rows(), *training_rows()]


def predict(row: MeasuredRow, registry: Registry) -> Prediction:
    """Return one row simulated, or why it cannot be."""
    times: dict[str, float | None] = dict.fromkeys(TIMES)
    reason = row.reason
    if not reason:
        try:
            if row.collective:
                times["predicted_us"] = _collective_us(row, registry)
            else:
                times.update(_iteration(row, registry))
        except SipmlError as error:
            reason = str(error)
    return _prediction(row, times, reason)


def _prediction(row: MeasuredRow, times: Mapping[str, float | None], reason: str = "") -> Prediction:
    return Prediction(
        name=row.name, family=row.family, source=row.source, gpu=row.gpu, gpus=row.gpus, setup=row.setup,
        fitted=row.fitted, measured_us=row.measured_us or None, assumed=row.assumed, reason=reason, **times,
    )  # fmt: skip


def _collective_us(row: MeasuredRow, registry: Registry) -> float:
    assert row.tables is not None
    assert row.collective is not None
    kind, size_bytes, algorithm = row.collective
    cluster = structure(row.tables["cluster"], Cluster, "cluster")
    bench = CollectiveBench(
        interconnect=read_interconnect(dict(row.tables["topology"]), "topology", cluster, registry),
        communication=read_communication(dict(row.tables["communication"]), registry),
        exchanges=[cls(cls.Options()) for cls in registry.classes("exchange")],
        all_reduces=[cls(cls.Options()) for cls in registry.classes("all_reduce")],
    )
    return bench.time(kind, size_bytes, algorithm).time_us


def _iteration(row: MeasuredRow, registry: Registry) -> dict[str, float | None]:
    """Return the time of an iteration and its parts, as `Prediction` calls them. [us]"""
    with case_of(row, registry) as case:
        found = simulate_variants(case, Reuse(), Clock(MAX_WALL_S)).row
    return {
        "predicted_us": float(found.measured_us),
        "compute_us": found.compute_us,
        "exposed_us": found.exposed_us,
        "tensor_exposed_us": found.tensor_exposed_us,
    }


_registry: list[Registry] = []


def _predict_here(row: MeasuredRow) -> Prediction:
    """Predict in a worker process, which loads plugins once."""
    if not _registry:
        _registry.append(load())
    return predict(row, _registry[0])


def predictions(
    rows: Sequence[MeasuredRow], executor: Executor, store: ResultStore, progress: Progress = SILENT
) -> list[Prediction]:
    """Return all rows predicted, in their order, wherever that is done; what `store` has is not run again."""
    keys = [_key(row) for row in rows]
    found: dict[int, Prediction] = {}
    for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
        record = store.get(key)
        if record is not None:
            found[number] = _prediction(row, record.answer)
    left = [number for number in range(len(rows)) if number not in found]

    def received(place: int, prediction: Prediction) -> None:
        number = left[place]
        found[number] = prediction
        if prediction.predicted_us is not None:
            answer = {name: getattr(prediction, name) for name in TIMES}
            store.put(keys[number], Record(kind="validation", answer=answer, about=rows[number].name))
        progress.at(len(found) / len(rows))

    executor.each(_predict_here, [rows[number] for number in left], received)
    return [found[number] for number in range(len(rows))]


def _key(row: MeasuredRow) -> str:
    """Return the key of a row's prediction: a hash of what is run and of the code that runs it."""
    ran = {"tables": row.tables, "collective": row.collective, "code": code_fingerprint(("sipml_core",))}
    return hashlib.sha256(json.dumps(ran, sort_keys=True, default=repr).encode()).hexdigest()


@frozen(kw_only=True)
class ErrorSummary:
    """Errors of some rows: predicted over measured, less 1."""

    rows: int
    #: Of absolute errors.
    median: float
    percentile90: float
    worst: float
    #: Median with its sign.
    bias: float

    @classmethod
    def of(cls, rows: Iterable[Prediction]) -> ErrorSummary | None:
        """Return the summary of the rows that were run; None: there are none.

        >>> texts = ("name", "family", "source", "gpu", "setup", "assumed", "reason")
        >>> of = {**dict.fromkeys(texts, ""), "gpus": 1, "fitted": False, "measured_us": 100.0}
        >>> of.update(compute_us=None, exposed_us=None, tensor_exposed_us=None)
        >>> rows = [Prediction(predicted_us=100.0 + off, **of) for off in (-20, 5, 10)]
        >>> ErrorSummary.of(rows)
        ErrorSummary(rows=3, median=0.1, percentile90=0.18, worst=-0.2, bias=0.05)
        """
        errors = np.array([row.error for row in rows if row.error is not None])
        if not len(errors):
            return None
        sizes = np.abs(errors)
        return cls(
            rows=len(errors),
            median=round(float(np.median(sizes)), 6),
            percentile90=round(float(np.quantile(sizes, 0.9)), 6),
            worst=round(float(errors[int(sizes.argmax())]), 6),
            bias=round(float(np.median(errors)), 6),
        )
