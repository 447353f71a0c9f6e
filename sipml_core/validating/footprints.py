"""Memory of the fullest GPU against what others published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sipml_core.cases import Reuse, compile_case
from sipml_core.fields import frozen
from sipml_core.plugin import Registry
from sipml_core.validating.rows import (
    MeasuredRow,
    column,
    degrees_text,
    gpt_workload,
    read_csv,
    training_tables,
)
from sipml_core.validating.runnable import case_of
from sipml_core.validating.trainingrows import SIMUMAX

_GIB = 2.0**30

#: By the first part of a row's name: what tables call the source.
_SOURCES = {"simumax-b200": "SimuMax, B200", "zero": "ZeRO"}


@frozen(kw_only=True)
class Footprint:
    """Memory held against what was published. The fields are columns of footprints.csv."""

    name: str = column("row")
    published_by: str = column("where it was published, in short")
    source: str = column("where it was published")
    gpus: int = column("GPUs")
    setup: str = column("what ran, and how it was divided")
    counted: str = column("all: what is allocated; states: parameters, gradients and optimizer state")
    published_bytes: float = column("of the fullest GPU", "bytes")
    predicted_bytes: float = column("of the fullest GPU", "bytes")

    @property
    def error(self) -> float:
        """Return predicted over published, less 1."""
        return self.predicted_bytes / self.published_bytes - 1.0


def footprint_rows() -> Iterator[tuple[MeasuredRow, str, float]]:
    """Yield rows that can be compiled, what is counted of each, and what was published [bytes]."""
    for row in read_csv("memory.csv"):
        degrees = {key: int(row[key]) for key in ("tp", "pp", "cp", "dp")}
        degrees["ep"] = degrees["dp"] if row["model"].startswith("deepseek") else 1
        yield (
            MeasuredRow(
                name=row["id"],
                family=_SOURCES[row["id"].partition("/")[0]],
                source=row["source"],
                gpu=row["gpu"],
                gpus=int(row["gpus"]),
                setup=f"{row['model']}, {row['layers']} layers, {row['sequence']} tokens, "
                f"{degrees_text(**degrees)}"
                + (f", ZeRO-{row['zero']}" if row["counted"] == "states" else ""),
                measured_us=0.0,
                tables=_tables(row, degrees),
            ),
            row["counted"],
            float(row["published_gib"]) * _GIB,
        )


def _tables(row: dict[str, str], degrees: dict[str, int]) -> dict[str, Any]:
    """Return the experiment: Megatron-LM's plan, sequence-parallel, as many micro-batches as stages."""
    batches = max(degrees["pp"], 2)
    plan = {
        "mp": degrees["tp"], "pp": degrees["pp"], "dp": degrees["dp"], "micro_batch": 1,
        "global_batch": batches * degrees["dp"], "zero": int(row["zero"]),
        "fp32_gradients": row["fp32_gradients"] == "true", "layout": "tensor",
    }  # fmt: skip
    if degrees["cp"] > 1:
        plan["cp"] = degrees["cp"]
    if degrees["ep"] > 1:
        plan["ep"] = degrees["ep"]
    model = row["model"]
    workload = (
        SIMUMAX[model](int(row["layers"]), int(row["sequence"]))
        if model in SIMUMAX
        else gpt_workload(row["layers"], "4096", "32", row["sequence"], 51200)
    )
    return training_tables(
        gpu=row["gpu"], gpus=int(row["gpus"]), port_gbytes_per_s=300.0, server_gbps=1600.0, plan=plan,
        workload=workload,
    )  # fmt: skip


def footprint(row: MeasuredRow, counted: str, published_bytes: float, registry: Registry) -> Footprint:
    """Return what the fullest GPU of a row needs, beside what was published."""
    with case_of(row, registry) as case:
        memory = compile_case(case, Reuse())[0].variant.memory
    states = memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes
    predicted = memory.total_bytes if counted == "all" else states
    return Footprint(
        name=row.name, published_by=row.family, source=row.source, gpus=row.gpus, setup=row.setup,
        counted=counted, published_bytes=published_bytes, predicted_bytes=float(predicted.max()),
    )  # fmt: skip


def footprints(registry: Registry) -> list[Footprint]:
    """Return every published footprint with ours."""
    return [footprint(*each, registry) for each in footprint_rows()]
