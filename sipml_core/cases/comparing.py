"""Every workload on every interconnect, with the plans that are tried and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sipml_core.cases.accounting import options_text, unfit_row
from sipml_core.cases.candidates import Candidate, run_candidates
from sipml_core.cases.case import Case
from sipml_core.cases.preparation import PreparedCase
from sipml_core.cases.simulating import SimulatedCase
from sipml_core.errors import (
    ConfigError,
    InfeasibleError,
    LimitError,
    PluginError,
    SipmlError,
    StalledError,
    TooSlowError,
)
from sipml_core.experiment import Experiment, Interconnect, Job
from sipml_core.fields import frozen
from sipml_core.model import FAILED, INFEASIBLE, UNFINISHED, CaseResult


def status_of(error: SipmlError) -> str:
    """Return what an error makes of the case that it ended."""
    if isinstance(error, InfeasibleError):
        return INFEASIBLE
    return UNFINISHED if isinstance(error, (LimitError, TooSlowError)) else FAILED


def outcome_of(error: SipmlError) -> dict[str, Any]:
    """Return what is kept of a case that an error ended, as plain values.

    >>> outcome_of(StalledError("task 3 waits"))
    {'infeasible': 'stalled: task 3 waits', 'status': 'failed', 'reason': 'task 3 waits'}
    """
    kind = {StalledError: "stalled: ", PluginError: "failed: "}.get(type(error), "")
    outcome: dict[str, Any] = {
        "infeasible": f"{kind}{error}",
        "status": status_of(error),
        "reason": str(error),
    }
    if isinstance(error, TooSlowError):
        outcome["too_slow"] = True
    if isinstance(error, ConfigError):
        outcome["refused"] = True
    return outcome


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """One plan on one interconnect: compiled, then simulated, or the reason why not."""

    case: Case | None
    candidate: Candidate
    #: Variants that wait to be simulated; None: not prepared, or prepared again at their turn.
    variants: list[PreparedCase] | None = None
    found: SimulatedCase | None = None
    status: str = ""
    reason: str = ""

    def end(self, error: SipmlError) -> None:
        """Take note that an error ended the attempt."""
        self.status, self.reason = status_of(error), str(error)

    def settle(self, outcome: Mapping[str, Any], topology: Interconnect) -> None:
        """Take over what is kept of an earlier run of the same case, under the labels that it has here."""
        if "infeasible" in outcome:
            self.status = str(outcome.get("status", INFEASIBLE))
            self.reason = str(outcome.get("reason", outcome["infeasible"]))
            return
        row = CaseResult(**{**outcome, "notes": tuple(outcome["notes"])})
        self.found = SimulatedCase(
            row=attrs.evolve(
                row,
                workload=self.candidate.job.label,
                topology=topology.label,
                options=options_text(topology.topology),
            ),
            timeline=None,
        )

    @property
    def ended(self) -> bool:
        """Whether there is a result, or a reason why not."""
        return self.found is not None or bool(self.status)


@frozen(kw_only=True, eq=False)
class Comparison:
    """One workload on one interconnect: all plans that are tried, the fastest of which is the result."""

    job: Job
    interconnect: Interconnect
    attempts: list[Attempt]

    @property
    def name(self) -> str:
        """What messages and progress call it."""
        return f"{self.job.label} on {self.interconnect.label}"

    def best(self) -> SimulatedCase | None:
        """Return the fastest attempt so far, None if none has run."""
        found = [attempt.found for attempt in self.attempts if attempt.found]
        return min(found, key=lambda each: each.row.measured_us) if found else None

    def forget_slower(self) -> None:
        """Let go of timelines and recordings of all attempts but the fastest."""
        best = self.best()
        for attempt in self.attempts:
            if attempt.found and attempt.found is not best:
                attempt.found = attrs.evolve(attempt.found, details=None, timeline=None)

    def best_attempt(self) -> Attempt:
        """Return the fastest attempt; where none has run, the last one."""
        best = self.best()
        return next((each for each in self.attempts if best and each.found is best), self.attempts[-1])

    def row(self, listed: str = "candidates.csv") -> CaseResult:
        """Return the row of the fastest attempt, or one that says why there is none.

        Parameters
        ----------
        listed
            File that has a row for each attempt, for the note; empty: none has.
        """
        best = self.best()
        if best is None:
            return self._unfit()
        if len(self.attempts) == 1:
            return best.row
        counts = {
            status: sum(attempt.status == status for attempt in self.attempts)
            for status in (INFEASIBLE, UNFINISHED, FAILED)
        }
        unrun = [f"{count} of them {status}" for status, count in counts.items() if count]
        tried = ", ".join([f"fastest of {len(self.attempts)} (mp, dp) pairs", *unrun])
        note = f"{tried}; all are in {listed}" if listed else tried
        return attrs.evolve(best.row, notes=(*best.row.notes, note))

    def _unfit(self) -> CaseResult:
        ended = [attempt for attempt in self.attempts if attempt.status]
        tellings = [attempt for attempt in ended if attempt.status != INFEASIBLE] or ended
        only = self.attempts[0].candidate if len(self.attempts) == 1 else None
        if not tellings or not all(attempt.status for attempt in self.attempts):
            return unfit_row(self.job, self.interconnect, only, UNFINISHED, "the run ended before")
        last = tellings[-1]
        return unfit_row(self.job, self.interconnect, only, last.status, last.reason)

    def attempt_rows(self) -> list[CaseResult]:
        """Return the row of each attempt."""
        return [
            attempt.found.row
            if attempt.found
            else unfit_row(
                self.job, self.interconnect, attempt.candidate,
                attempt.status or UNFINISHED, attempt.reason or "the run ended before",
            )
            for attempt in self.attempts
        ]  # fmt: skip


def comparisons(experiment: Experiment) -> list[Comparison]:
    """Return every workload on every interconnect, with the plans to try.

    Raises
    ------
    ConfigError
        No plan of a workload goes together with its batch.
    """
    return [
        Comparison(
            job=job,
            interconnect=interconnect,
            attempts=[
                Attempt(
                    candidate=candidate,
                    case=Case.of(experiment, candidate.job, interconnect, candidate.plan)
                    if candidate.plan
                    else None,
                    status="" if candidate.plan else INFEASIBLE,
                    reason=candidate.refusal,
                )
                for candidate in run_candidates(job, interconnect.cluster.gpus)
            ],
        )
        for job in experiment.jobs
        for interconnect in experiment.interconnects
    ]
