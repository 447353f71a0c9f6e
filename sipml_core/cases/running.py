"""From an experiment to its result: every case compiled, then every case simulated and summed up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core import __version__
from sipml_core.cases.accounting import unfit_row
from sipml_core.cases.candidates import Candidate, run_candidates
from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.compilation import CompiledCase
from sipml_core.cases.goals import goal_of
from sipml_core.cases.provenance import hashes_of_files, versions
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.simulating import SimulatedCase, compiled_variants, fastest_variant
from sipml_core.errors import ConfigError, InfeasibleError, LimitError, SipmlError, TooSlowError
from sipml_core.experiment import Experiment, Interconnect, Job, resolved_tables
from sipml_core.model import (
    FAILED,
    INFEASIBLE,
    SILENT,
    UNFINISHED,
    CaseResult,
    Network,
    Progress,
    Result,
    TaskGraph,
)

#: Compiled cases are kept until their turn up to so much; beyond it they are compiled again. [bytes]
KEPT_BYTES = 1e9


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """One plan on one interconnect: compiled, then simulated, or the reason why not."""

    case: Case | None
    candidate: Candidate
    #: Compiled variants that wait to be simulated; None: not compiled, or compiled again at their turn.
    variants: list[CompiledCase] | None = None
    found: SimulatedCase | None = None
    status: str = ""
    reason: str = ""

    def end(self, error: SipmlError) -> None:
        """Take note that an error ended the attempt."""
        self.reason = str(error)
        if isinstance(error, InfeasibleError):
            self.status = INFEASIBLE
        elif isinstance(error, (LimitError, TooSlowError)):
            self.status = UNFINISHED
        else:
            self.status = FAILED


@attrs.frozen(kw_only=True, eq=False)
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

    def row(self) -> CaseResult:
        """Return the row of the fastest attempt, or one that says why there is none."""
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
        return attrs.evolve(best.row, notes=(*best.row.notes, f"{tried}; all are in candidates.csv"))

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


class ExperimentRun:
    """An experiment while it runs: `result` can be asked for at any time, whatever ended `go`.

    Parameters
    ----------
    max_wall_s
        What has not run by then is unfinished. [s]
    """

    def __init__(
        self, experiment: Experiment, *, max_wall_s: float | None = None, progress: Progress = SILENT
    ) -> None:
        self.experiment = experiment
        self.comparisons = comparisons(experiment)
        self._clock = Clock(max_wall_s)
        self._progress = progress
        self._reuse = Reuse()

    def go(self) -> None:
        """Compile every case, then simulate every case.

        Raises
        ------
        ConfigError
            A case asks for what cannot be: nothing has been simulated then.
        """
        attempts = [(comparison, each) for comparison in self.comparisons for each in comparison.attempts]
        try:
            with self._clock.bounding():
                for comparison, attempt in attempts:
                    if len(comparison.attempts) == 1:
                        self._compile(attempt)
        except LimitError as error:
            self._end_all(error)
            return
        for number, (comparison, attempt) in enumerate(attempts):
            if not attempt.status:
                progress = self._progress.part(number, of=len(attempts)).named(comparison.name)
                try:
                    self._simulate(attempt, progress)
                except LimitError as error:
                    self._end_all(error)
                    return

    def _compile(self, attempt: Attempt) -> None:
        """Compile an attempt, and keep what was made while there is room for it."""
        if attempt.case is None:
            return
        try:
            variants = compiled_variants(attempt.case, self._reuse)
        except (ConfigError, LimitError):
            raise
        except SipmlError as error:
            attempt.end(error)
        else:
            attempt.variants = variants
            if self._kept_bytes() > KEPT_BYTES:
                attempt.variants = None

    def _kept_bytes(self) -> int:
        """What all compiled cases hold; arrays that several share count once."""
        arrays = {
            id(array): array.nbytes
            for comparison in self.comparisons
            for attempt in comparison.attempts
            for compiled in attempt.variants or ()
            for part in (compiled.tasks, compiled.network)
            for array in _arrays(part)
        }
        return sum(arrays.values())

    def _simulate(self, attempt: Attempt, progress: Progress) -> None:
        try:
            with self._clock.bounding():
                if attempt.variants is None:
                    self._compile_again(attempt)
            if attempt.variants is not None:
                variants, attempt.variants = attempt.variants, None
                attempt.found = fastest_variant(variants, self._clock, progress)
        except LimitError:
            raise
        except SipmlError as error:
            attempt.end(error)

    def _compile_again(self, attempt: Attempt) -> None:
        assert attempt.case is not None
        attempt.variants = compiled_variants(attempt.case, self._reuse)

    def _end_all(self, error: LimitError) -> None:
        """The limit is reached: whatever has not run is unfinished."""
        for comparison in self.comparisons:
            for attempt in comparison.attempts:
                attempt.variants = None
                if attempt.found is None and not attempt.status:
                    attempt.end(error)

    @property
    def anything(self) -> bool:
        """Whether any case has run."""
        return any(comparison.best() for comparison in self.comparisons)

    def result(self) -> Result:
        """Return what ran, and why the rest did not."""
        rows = with_speedups([comparison.row() for comparison in self.comparisons], self.experiment.baseline)
        best = [comparison.best() for comparison in self.comparisons]
        searched = [comparison for comparison in self.comparisons if len(comparison.attempts) > 1]
        return Result(
            title=self.experiment.title,
            seed=self.experiment.seed,
            version=__version__,
            baseline=self.experiment.baseline,
            experiment=resolved_tables(self.experiment),
            cases=tuple(rows),
            candidates=tuple(row for comparison in searched for row in comparison.attempt_rows()),
            sources=_sources(self.experiment, rows),
            versions=versions(self.experiment),
            files=hashes_of_files(self.experiment),
            timelines=tuple(found.timeline if found else None for found in best),
        )


def _arrays(model: TaskGraph | Network) -> list[NDArray[Any]]:
    values = (getattr(model, field.name) for field in attrs.fields(type(model)))
    return [value for value in values if isinstance(value, np.ndarray)]


def with_speedups(rows: list[CaseResult], baseline: str) -> list[CaseResult]:
    """Return rows with the time to the goal of the baseline by their own, where both are known."""
    base_s = {row.workload: row.time_to_goal_s for row in rows if row.topology == baseline}
    return [
        attrs.evolve(row, speedup=base / row.time_to_goal_s)
        if (base := base_s.get(row.workload)) is not None and row.time_to_goal_s
        else row
        for row in rows
    ]


def _sources(experiment: Experiment, rows: list[CaseResult]) -> dict[str, str]:
    batches = {row.workload: row.global_batch for row in rows if row.global_batch}
    return {
        job.label: goal_of(job.workload, batches[job.label]).source
        for job in experiment.jobs
        if job.label in batches
    }


def run_experiment(
    experiment: Experiment, *, max_wall_s: float | None = None, progress: Progress = SILENT
) -> Result:
    """Return the rows of every case of an experiment; what cannot run or did not end says why.

    Raises
    ------
    ConfigError
        A case asks for what cannot be.
    """
    running = ExperimentRun(experiment, max_wall_s=max_wall_s, progress=progress)
    running.go()
    return running.result()


@attrs.frozen(kw_only=True)
class Check:
    """What `check_experiment` found about one workload on one interconnect."""

    name: str
    #: Degrees that can run.
    degrees: tuple[tuple[int, int], ...]
    #: Why the last of the others cannot.
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether any plan can run."""
        return bool(self.degrees)

    @property
    def line(self) -> str:
        """Return the finding as a sentence."""
        if not self.fits:
            return f"{self.name}: cannot run: {self.reason}"
        return f"{self.name}: mp x dp = {', '.join(f'{mp} x {dp}' for mp, dp in self.degrees)}"


def check_experiment(experiment: Experiment) -> Iterator[Check]:
    """Compile every case as `run_experiment` would, and yield what would run.

    Raises
    ------
    ConfigError
        As `run_experiment`.
    """
    reuse = Reuse()
    for comparison in comparisons(experiment):
        ready: list[tuple[int, int]] = []
        for attempt in comparison.attempts:
            if attempt.case is None:
                continue
            try:
                plan = compiled_variants(attempt.case, reuse)[0].plan
                ready.append((plan.mp, plan.dp))
            except ConfigError:
                raise
            except SipmlError as error:
                attempt.end(error)
        reasons = [attempt.reason for attempt in comparison.attempts if attempt.reason]
        yield Check(
            name=comparison.name,
            degrees=tuple(ready),
            reason=reasons[-1] if reasons and not ready else "",
        )
