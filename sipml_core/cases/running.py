"""From an experiment to its result: every case prepared, then every case simulated and summed up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core import __version__
from sipml_core.cases.clock import Clock
from sipml_core.cases.comparing import Attempt, Comparison, comparisons
from sipml_core.cases.goals import goal_of
from sipml_core.cases.provenance import hashes_of_files, versions
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.simulating import fastest_of_case, prepared_variants
from sipml_core.errors import ConfigError, LimitError, SipmlError
from sipml_core.experiment import Experiment, resolved_tables
from sipml_core.model import (
    SILENT,
    CaseResult,
    Network,
    Progress,
    RelayedTasks,
    Result,
    TaskGraph,
)

#: Tasks that were made to prepare cases are kept until their turn up to so much; beyond it they are made
#: again. [bytes]
KEPT_BYTES = 1e9


class Earlier(Protocol):
    """What is kept of earlier runs, and keeps those of this one."""

    def find(self, comparison: Comparison, attempt: Attempt) -> Mapping[str, Any] | None:
        """Return what was found about an attempt, None if it must be simulated."""

    def keep(self, comparison: Comparison, attempt: Attempt, outcome: Mapping[str, Any]) -> None:
        """Keep what was found."""


class ExperimentRun:
    """An experiment while it runs: `result` can be asked for at any time, whatever ended `go`.

    Parameters
    ----------
    max_wall_s
        What has not run by then is unfinished. [s]
    earlier
        Earlier runs, whose results are taken over, without their timelines; None: everything is simulated.
    ended
        Called with the name of each case and its row, when all its plans have been tried.
    details
        Keep what `Result.details` needs of the fastest plan of each case.
    timelines
        Keep when everything ran, for `Result.timelines`.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        max_wall_s: float | None = None,
        progress: Progress = SILENT,
        earlier: Earlier | None = None,
        ended: Callable[[str, CaseResult], None] = lambda name, row: None,
        details: bool = False,
        timelines: bool = True,
    ) -> None:
        self._details = details
        self._timelines = timelines
        self.experiment = experiment
        self.comparisons = comparisons(experiment)
        self._clock = Clock(max_wall_s)
        self._progress = progress
        self._earlier = earlier
        self._ended = ended
        self._reuse = Reuse()

    def go(self) -> None:
        """Prepare every case, or the first of its plans where several are tried; then simulate every case.

        Raises
        ------
        ConfigError
            A case asks for what cannot be: nothing has been simulated then.
        """
        attempts = [(comparison, each) for comparison in self.comparisons for each in comparison.attempts]
        self._take_over(attempts)
        try:
            with self._clock.bounding():
                for comparison in self.comparisons:
                    # Of several plans the first: what cannot be with it cannot be with the others.
                    for attempt in comparison.attempts[:1]:
                        if not attempt.ended:
                            self._prepare(attempt)
        except LimitError as error:
            self._end_all(error)
            return
        for number, (comparison, attempt) in enumerate(attempts):
            if not attempt.ended:
                progress = self._progress.part(number, of=len(attempts)).named(comparison.name)
                try:
                    self._simulate(attempt, progress)
                    comparison.forget_slower()
                except LimitError as error:
                    self._end_all(error)
                    return
                if self._earlier and attempt.found:
                    self._earlier.keep(comparison, attempt, attrs.asdict(attempt.found.row))
            if attempt is comparison.attempts[-1]:
                self._ended(comparison.name, comparison.row())

    def _take_over(self, attempts: list[tuple[Comparison, Attempt]]) -> None:
        """Settle the attempts that ran before."""
        for comparison, attempt in attempts:
            if self._earlier and not attempt.ended:
                outcome = self._earlier.find(comparison, attempt)
                if outcome is not None:
                    attempt.settle(outcome, comparison.interconnect)

    def _prepare(self, attempt: Attempt) -> None:
        """Prepare an attempt, and keep what was made while there is room for it."""
        if attempt.case is None:
            return
        try:
            variants = prepared_variants(attempt.case, self._reuse)
        except (ConfigError, LimitError):
            raise
        except SipmlError as error:
            attempt.end(error)
        else:
            attempt.variants = variants
            if self._kept_bytes() > KEPT_BYTES:
                attempt.variants = None

    def _kept_bytes(self) -> int:
        """What all prepared cases hold; arrays that several share count once."""
        arrays = {
            id(array): array.nbytes
            for comparison in self.comparisons
            for attempt in comparison.attempts
            for prepared in attempt.variants or ()
            if prepared.made
            for part in (prepared.made.work, prepared.made.work_network)
            for array in _arrays(part)
        }
        return sum(arrays.values())

    def _simulate(self, attempt: Attempt, progress: Progress) -> None:
        try:
            with self._clock.bounding():
                if attempt.variants is None:
                    self._prepare_again(attempt)
            if attempt.variants is not None:
                variants, attempt.variants = attempt.variants, None
                attempt.found = fastest_of_case(
                    variants, self._reuse, self._clock, progress,
                    details=self._details, timeline=self._timelines,
                )  # fmt: skip
        except LimitError:
            raise
        except SipmlError as error:
            attempt.end(error)

    def _prepare_again(self, attempt: Attempt) -> None:
        assert attempt.case is not None
        attempt.variants = prepared_variants(attempt.case, self._reuse)

    def settled_by(self, work: Callable[[], object]) -> None:
        """Let somebody else settle the attempts of `comparisons`, until the wall-clock limit.

        Raises
        ------
        ConfigError
            As `go`.
        """
        try:
            with self._clock.bounding():
                work()
        except LimitError as error:
            self._end_all(error)

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
            recorded=tuple(found.details if found else None for found in best),
        )


def _arrays(model: TaskGraph | RelayedTasks | Network) -> list[NDArray[Any]]:
    if isinstance(model, RelayedTasks):
        return [*_arrays(model.rows), model.ways.start, model.way, model.place, model.priority]
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
    experiment: Experiment,
    *,
    max_wall_s: float | None = None,
    progress: Progress = SILENT,
    details: bool = False,
) -> Result:
    """Return the rows of every case of an experiment; what cannot run or did not end says why.

    Raises
    ------
    ConfigError
        A case asks for what cannot be.
    """
    running = ExperimentRun(experiment, max_wall_s=max_wall_s, progress=progress, details=details)
    running.go()
    return running.result()
