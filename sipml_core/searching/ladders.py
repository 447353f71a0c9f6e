"""Estimates of a search in rounds: what is needless where something else fits is not estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sipml_core.cases import Candidate
from sipml_core.searching.workers import Trial

_Answers = dict[Trial, dict[str, Any]]


def estimates_in_rounds(
    trials: Sequence[Trial],
    candidate_of: Callable[[Trial], Candidate],
    ask: Callable[[Sequence[Trial]], _Answers],
) -> _Answers:
    """Return an answer to each trial: what `ask` says, or that there was no need to ask.

    A candidate is asked about when all are answered that make it needless (see `Candidate.needless_after`),
    on the same interconnect, and none of them fits.

    Examples
    --------
    Three candidates, each needless after those before it. The first does not fit, the second does.

    >>> trials = [Trial(0, 0, number, 0) for number in range(3)]
    >>> after = {trial: tuple(range(number)) for number, trial in enumerate(trials)}
    >>> class Fake:
    ...     def __init__(self, trial):
    ...         self.needless_after, self.plan = after[trial], None
    >>> def ask(some):
    ...     print("asked", [trial.candidate for trial in some])
    ...     return {t: {"iteration_us": 1.0} if t.candidate else {"infeasible": "no room"} for t in some}
    >>> answers = estimates_in_rounds(trials, Fake, ask)
    asked [0]
    asked [1]
    >>> answers[trials[2]]
    {'infeasible': 'left out: a plan with less recomputed or shared fits', 'left_out': True}
    """
    answers: _Answers = {}
    waiting = list(trials)
    while waiting:
        after = {trial: _makes_needless(trial, candidate_of(trial)) for trial in waiting}
        fits = {trial for trial, answer in answers.items() if "infeasible" not in answer}
        for trial in waiting:
            if any(other in fits for other in after[trial]):
                answers[trial] = {
                    "infeasible": "left out: a plan with less recomputed or shared fits", "left_out": True
                }  # fmt: skip
        waiting = [trial for trial in waiting if trial not in answers]
        ready = [trial for trial in waiting if all(other in answers for other in after[trial])]
        answers |= ask(ready) if ready else {}
        waiting = [trial for trial in waiting if trial not in answers]
    return {trial: answers[trial] for trial in trials}


def _makes_needless(trial: Trial, candidate: Candidate) -> list[Trial]:
    """Return the trials that make one needless where they fit."""
    return [attrs.evolve(trial, candidate=number) for number in candidate.needless_after]
