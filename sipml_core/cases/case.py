"""One workload, one plan, one interconnect: the value that passes through all steps."""

from __future__ import annotations

import attrs

from sipml_core.communication import Ideal
from sipml_core.experiment import EngineTable, Experiment, Interconnect, Job
from sipml_core.fields import frozen
from sipml_core.model import Framework, Plan
from sipml_core.plugin import Communication, GpuModel


@frozen(kw_only=True)
class Case:
    """Everything that one result depends on."""

    #: The workload, its layout and its placer.
    job: Job
    interconnect: Interconnect
    plan: Plan
    gpu: GpuModel
    #: Number format of the training step, a name in `PRECISIONS`.
    precision: str
    #: Seed of everything random.
    seed: int
    engine: EngineTable
    communication: Communication = attrs.Factory(lambda: Ideal(Ideal.Options()))
    framework: Framework = attrs.Factory(Framework)

    @classmethod
    def of(cls, experiment: Experiment, job: Job, interconnect: Interconnect, plan: Plan) -> Case:
        """Return the case of one job of an experiment, on one of its interconnects, under `plan`."""
        return cls(
            job=job,
            interconnect=interconnect,
            plan=plan,
            gpu=experiment.gpu,
            precision=experiment.precision,
            seed=experiment.seed,
            engine=experiment.engine,
            communication=experiment.communication,
            framework=experiment.framework,
        )

    @property
    def name(self) -> str:
        """What messages and progress call it."""
        return f"{self.job.label} on {self.interconnect.label}"
