"""Constants of a GPU and its host fitted to measured training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sipml_core.calibrating.descent import fitted
from sipml_core.calibrating.measurements import MeasuredStep
from sipml_core.cases import Case, Clock, Reuse, simulate_variants
from sipml_core.errors import ConfigError, unknown
from sipml_core.experiment import apply_overrides, open_experiment
from sipml_core.fields import frozen
from sipml_core.plugin import Registry

#: Constant -> path in an experiment file, where a fit begins, and its largest value.
_CONSTANTS = {
    "matmul": ("gpu.compute_efficiency.matmul", 0.6, 1.0),
    "other": ("gpu.bandwidth_efficiency.other", 0.6, 1.0),
    "host_us": ("framework.host_us", 20.0, 1000.0),
}
_FACTORS = (1.5, 1.15, 1.05, 1.02)


@frozen(kw_only=True)
class StepFit:
    """Fitted constants of [gpu] and [framework], and how far each measurement is from them."""

    matmul: float
    other: float
    host_us: float
    #: Predicted over measured, less 1. [steps]
    residuals: tuple[float, ...]

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the tables of an experiment file."""
        return {
            "gpu": {
                "compute_efficiency": {"matmul": self.matmul},
                "bandwidth_efficiency": {"other": self.other},
            },
            "framework": {"host_us": self.host_us},
        }


def fit_steps(
    steps: Sequence[MeasuredStep], registry: Registry, communication: Mapping[str, Any] | None = None
) -> StepFit:
    """Return constants with the least squares of logarithms of predicted over measured times.

    One step tells one constant, two tell two: the others keep where they begin, the host's last.

    Parameters
    ----------
    communication
        Table that takes the place of [communication] in the files; None: as they say.
    """
    if not steps:
        raise ConfigError("there are no steps to fit [gpu] to")
    names = list(_CONSTANTS)[: len(steps)]
    known: dict[tuple[tuple[str, float], ...], list[float]] = {}

    def residuals(constants: Mapping[str, float]) -> list[float]:
        key = tuple(sorted(constants.items()))
        if key not in known:
            known[key] = [
                step_us(step, constants, registry, communication) / step.time_us - 1 for step in steps
            ]
        return known[key]

    def loss(constants: Mapping[str, float]) -> float:
        return float((np.log1p(residuals(constants)) ** 2).sum())

    start = {name: _CONSTANTS[name][1] for name in names}
    found = fitted(start, {name: _CONSTANTS[name][2] for name in names}, loss, _FACTORS)
    rounded = {name: float(f"{value:.3g}") for name, value in found.items()}
    all_of_them = {
        name: rounded.get(name, 0.0 if name == "host_us" else begin[1]) for name, begin in _CONSTANTS.items()
    }
    return StepFit(**all_of_them, residuals=tuple(residuals(rounded)))


def step_us(
    step: MeasuredStep,
    constants: Mapping[str, float],
    registry: Registry,
    communication: Mapping[str, Any] | None,
) -> float:
    """Return the time of a step's iteration, simulated with these constants. [us]"""

    def changed(tables: dict[str, Any]) -> dict[str, Any]:
        values = {**step.set, **{_CONSTANTS[name][0]: repr(value) for name, value in constants.items()}}
        tables = apply_overrides(tables, [f"{key}={value}" for key, value in values.items()])
        return tables if communication is None else {**tables, "communication": dict(communication)}

    try:
        experiment = open_experiment(step.experiment, registry, change=changed)
        job = _named("workload", step.workload, experiment.jobs)
        interconnect = _named("topology", step.topology, experiment.interconnects)
        case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
        return float(simulate_variants(case, Reuse(), Clock()).row.measured_us)
    except ConfigError as error:
        raise ConfigError(f"{step.where}: {error}") from None


def _named(what: str, label: str | None, known: Sequence[Any]) -> Any:
    if label is None:
        return known[0]
    by_label = {each.label: each for each in known}
    if label not in by_label:
        raise ConfigError(unknown(what, label, by_label))
    return by_label[label]
