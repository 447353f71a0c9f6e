"""All rows predicted, in several processes, and the errors summed up."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sipml_core.cases import Case, Clock, CollectiveBench, Reuse, simulate_variants
from sipml_core.errors import SipmlError
from sipml_core.executing import Executor
from sipml_core.experiment import read_communication, read_experiment, read_interconnect, structure
from sipml_core.model import SILENT, Cluster, Progress
from sipml_core.plugin import Registry, load
from sipml_core.validating.rows import MeasuredRow, busbw_rows, nccl_rows, vtrain_rows
from sipml_core.validating.trainingrows import training_rows

#: Longest that one row may take. [s]
MAX_WALL_S = 300.0


def _column(doc: str, unit: str = "") -> Any:
    return attrs.field(metadata={"doc": doc, "unit": unit})


@attrs.frozen(kw_only=True)
class Prediction:
    """One row held against its measurement. The fields are columns of measured.csv."""

    name: str = _column("row")
    family: str = _column("where it was measured, in short")
    source: str = _column("where it was measured")
    gpu: str = _column("GPU, as the source calls it")
    gpus: int = _column("GPUs")
    setup: str = _column("what ran, and how it was divided")
    fitted: bool = _column("a constant was fitted to it")
    measured_us: float | None = _column("time of an iteration or a collective", "us")
    predicted_us: float | None = _column("the same, simulated", "us")
    assumed: str = _column("what the source does not say")
    reason: str = _column("why it was not run")

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
    predicted_us, reason = None, row.reason
    if not reason:
        try:
            predicted_us = _collective_us(row, registry) if row.collective else _iteration_us(row, registry)
        except SipmlError as error:
            reason = str(error)
    return Prediction(
        name=row.name, family=row.family, source=row.source, gpu=row.gpu, gpus=row.gpus, setup=row.setup,
        fitted=row.fitted, measured_us=row.measured_us or None, predicted_us=predicted_us,
        assumed=row.assumed, reason=reason,
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


def _iteration_us(row: MeasuredRow, registry: Registry) -> float:
    assert row.tables is not None
    tables = dict(row.tables)
    with tempfile.TemporaryDirectory() as folder:
        if "configuration" in tables["workload"]:
            workload = dict(tables["workload"])
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(workload.pop("configuration")), encoding="utf-8")
            tables["workload"] = {"name": "hf", "file": str(file), **workload}
        experiment = read_experiment(tables, registry)
        job, interconnect = experiment.jobs[0], experiment.interconnects[0]
        case = Case.of(experiment, job, interconnect, job.plan(row.gpus))
        return float(simulate_variants(case, Reuse(), Clock(MAX_WALL_S)).row.measured_us)


_registry: list[Registry] = []


def _predict_here(row: MeasuredRow) -> Prediction:
    """Predict in a worker process, which loads plugins once."""
    if not _registry:
        _registry.append(load())
    return predict(row, _registry[0])


def predictions(
    rows: Sequence[MeasuredRow], executor: Executor, progress: Progress = SILENT
) -> list[Prediction]:
    """Return all rows predicted, in their order, wherever that is done."""
    found: dict[int, Prediction] = {}

    def received(number: int, prediction: Prediction) -> None:
        found[number] = prediction
        progress.at(len(found) / len(rows))

    executor.each(_predict_here, rows, received)
    return [found[number] for number in range(len(rows))]


@attrs.frozen(kw_only=True)
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
