"""What a training works towards: the accuracy its curve was measured for, or a number of tokens."""

from __future__ import annotations

import attrs

from sipml_core.plugin import Workload

#: The name of the usual goal.
ACCURACY = "accuracy"
#: Where a model has neither a curve nor tokens: so many samples.
SAMPLES = 1e6


@attrs.frozen(kw_only=True)
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
        name, samples = f"{counted(tokens)} tokens", tokens / sample_tokens
    else:
        name, samples = f"{counted(SAMPLES)} samples", SAMPLES
    return Goal(
        name=name,
        steps=samples / global_batch,
        extrapolated=False,
        source=f"{name}: no convergence curve was measured for this model",
    )


def counted(number: float) -> str:
    """Return a large number in words.

    >>> counted(300e9), counted(1e6), counted(1.5e12), counted(500)
    ('300 billion', '1 million', '1.5 trillion', '500')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.4g} {word}"
    return f"{number:g}"
