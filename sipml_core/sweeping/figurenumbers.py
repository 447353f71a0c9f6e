"""What a figure of a sweep shows: one number for each series at each point."""

from __future__ import annotations

from typing import Any

import attrs

from sipml_core.fields import frozen
from sipml_core.model import OK, CaseResult
from sipml_core.searching import SearchRow
from sipml_core.sweeping.seriesrows import seconds_of

#: What studies draw over an axis.
QUANTITIES = ("time_to_accuracy_h", "iteration_ms", "throughput_per_s", "mp", "dp")
#: What else a sweep can draw: the numbers of its rows.
DRAWABLE = {
    *QUANTITIES,
    *(
        field.name
        for model in (CaseResult, SearchRow)
        for field in attrs.fields(model)
        if any(kind in str(field.type) for kind in ("int", "float"))
    ),
}


def _column(doc: str, unit: str = "") -> Any:
    return attrs.field(metadata={"doc": doc, "unit": unit})


@frozen(kw_only=True)
class Number:
    """One point of one series. The fields are the columns of a study's CSV file."""

    workload: str = _column("model that is trained")
    series: str = _column("line of the figure")
    x: float = _column("place on the axis")
    label: str = _column("what stands there instead of x")
    gpus: int = _column("GPUs in the cluster")
    mp: int | None = _column("model-parallel degree of the best strategy")
    dp: int | None = _column("data-parallel degree")
    global_batch: int | None = _column("samples in one iteration")
    iteration_us: float | None = _column("time of one iteration, simulated", "us")
    steps_to_accuracy: float | None = _column("iterations to the target accuracy")
    time_to_accuracy_s: float | None = _column("iteration time x iterations", "s")
    estimate_error: float | None = _column("the search's estimate over the simulation, less 1")
    extrapolated: bool = _column("the batch lies outside the measured convergence data")
    tight_memory: bool = _column("needs more than 95 % of the device memory")
    reason: str = _column("why no strategy can run")

    @property
    def time_to_accuracy_h(self) -> float | None:
        return None if self.time_to_accuracy_s is None else self.time_to_accuracy_s / 3600

    @property
    def iteration_ms(self) -> float | None:
        return None if self.iteration_us is None else self.iteration_us / 1e3

    @property
    def throughput_per_s(self) -> float | None:
        """Samples trained in a second."""
        if self.global_batch is None or self.iteration_us is None:
            return None
        return self.global_batch / (self.iteration_us * 1e-6)

    def record(self) -> dict[str, Any]:
        """Return the number by column, with what figures show beside it."""
        return attrs.asdict(self) | {
            quantity: getattr(self, quantity)
            for quantity in ("time_to_accuracy_h", "iteration_ms", "throughput_per_s")
        }


def number_of(row: CaseResult | SearchRow, series: str, x: float, label: str) -> Number:
    """Return what a figure shows of one row."""
    if isinstance(row, CaseResult):
        ran, error, tight = row.status == OK, None, False
        seconds = row.time_to_goal_s if row.time_to_accuracy_s is None else row.time_to_accuracy_s
    else:
        seconds, error, tight = seconds_of(row), row.error, row.tight_memory
        ran = seconds is not None
    return Number(
        workload=row.workload,
        series=series,
        x=x,
        label=label,
        gpus=row.gpus,
        mp=row.mp if ran else None,
        dp=row.dp if ran else None,
        global_batch=row.global_batch if ran else None,
        iteration_us=row.iteration_us if ran else None,
        steps_to_accuracy=row.steps_to_accuracy if ran else None,
        time_to_accuracy_s=seconds if ran else None,
        estimate_error=error if ran else None,
        extrapolated=row.extrapolated if ran else False,
        tight_memory=tight if ran else False,
        reason="" if ran else row.reason,
    )
