"""What a training works towards: the accuracy its curve was measured for, or a number of tokens."""

from __future__ import annotations

from sipml_core.fields import format_count, frozen
from sipml_core.plugin import Workload

#: The name of the usual goal.
ACCURACY = "accuracy"
#: Where a model has neither a curve nor tokens: so many samples.
SAMPLES = 1e6


@frozen(kw_only=True)
class Goal:
    """Iterations until a goal is reached at one global batch."""

    name: str
    steps: float
    #: The batch lies outside the measured convergence data.
    extrapolated: bool
    source: str

    @property
    def steps_to_accuracy(self) -> float | None:
        """The steps, if the goal is accuracy."""
        return self.steps if self.name == ACCURACY else None

    def time_s(self, iteration_us: float) -> float:
        """Return the time to the goal. [s]"""
        return iteration_us * 1e-6 * self.steps

    def accuracy_s(self, iteration_us: float) -> float | None:
        """Return the time to accuracy; None where the goal is another one. [s]"""
        return self.time_s(iteration_us) if self.name == ACCURACY else None


def goal_of(workload: Workload, global_batch: int) -> Goal:
    """Return what a workload is trained to: accuracy where somebody measured it for this very model."""
    convergence = workload.convergence(global_batch)
    if convergence is not None:
        return Goal(
            name=ACCURACY,
            steps=convergence.steps,
            extrapolated=convergence.extrapolated,
            source=convergence.source,
        )
    tokens, sample_tokens = workload.training_tokens, workload.sample_tokens
    if tokens and sample_tokens:
        name, samples = f"{format_count(tokens)} tokens", tokens / sample_tokens
    else:
        name, samples = f"{format_count(SAMPLES)} samples", SAMPLES
    return Goal(
        name=name,
        steps=samples / global_batch,
        extrapolated=False,
        source=f"{name}: no convergence curve was measured for this model",
    )
