"""From an experiment to its result: every case compiled, simulated and summed up."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import attrs

from sipml_core import __version__
from sipml_core.cases.accounting import account, bound_result
from sipml_core.cases.candidates import Candidate, run_candidates
from sipml_core.cases.case import Case
from sipml_core.cases.compilation import CompiledCase, compile_case, compiled_one_by_one
from sipml_core.cases.reuse import Reuse
from sipml_core.engine import lower_bound_us, simulate
from sipml_core.errors import InfeasibleError, LimitError, StalledError, TooSlowError
from sipml_core.experiment import Experiment, Interconnect, Job
from sipml_core.model import SILENT, CaseResult, Progress, Result, UnsharedFabric


def cases(experiment: Experiment) -> Iterator[tuple[Job, Interconnect, list[Candidate]]]:
    """Yield every workload on every interconnect, with the plans to try."""
    for job in experiment.jobs:
        for interconnect in experiment.interconnects:
            yield job, interconnect, run_candidates(job, interconnect.cluster.gpus)


@attrs.define
class Clock:
    """Wall-clock limit of a whole run."""

    limit_s: float | None = None
    started: float = attrs.Factory(time.monotonic)

    def left_s(self) -> float | None:
        """Return the time that is left, None without a limit; `LimitError` if there is none left. [s]"""
        if self.limit_s is None:
            return None
        left = self.limit_s - (time.monotonic() - self.started)
        if left <= 0:
            raise self.reached()
        return left

    def reached(self) -> LimitError:
        """Return the error that the limit was reached."""
        return LimitError(f"the wall-clock limit of {self.limit_s:g} s was reached; nothing was written")


def simulate_case(
    compiled: CompiledCase,
    clock: Clock,
    progress: Progress = SILENT,
    faster_than: CaseResult | None = None,
) -> CaseResult:
    """Return the row of one compiled case.

    Raises
    ------
    TooSlowError
        It takes longer than `engine.max_time_us`, or than one iteration of `faster_than`.
    """
    if isinstance(compiled.fabric, UnsharedFabric):
        return bound_result(compiled)
    limits_us = [compiled.case.engine.max_time_us or math.inf]
    if faster_than is not None and compiled.plan.iterations == 1:
        limits_us.append(faster_than.iteration_us)
    left_s = clock.left_s()
    try:
        timeline = simulate(
            compiled.tasks,
            compiled.network,
            driver=compiled.circuits,
            queue=compiled.case.engine.queue,
            max_time_us=min(limits_us),
            max_wall_s=left_s,
            progress=progress,
        )
    except LimitError:
        raise clock.reached() from None
    return account(compiled, timeline)


def simulate_variants(case: Case, reuse: Reuse, clock: Clock, progress: Progress = SILENT) -> CaseResult:
    """Return the row of the fastest variant of a case.

    Raises
    ------
    InfeasibleError
        See `compile_case`.
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    best: CaseResult | None = None
    for number, compiled in enumerate(compiled_one_by_one(case, reuse)):
        if best is not None and _cannot_beat(compiled, best):
            continue
        try:
            # Each variant is half of what is left: how many will come is not known.
            part = progress.part(2**number - 1, of=2**number).part(0, of=2)
            row = simulate_case(compiled, clock, part, faster_than=best)
        except (StalledError, TooSlowError) as error:
            failure = error
        else:
            best = min(best or row, row, key=lambda row: row.iteration_us)
    if best is None:
        raise failure
    return best


def _cannot_beat(compiled: CompiledCase, best: CaseResult) -> bool:
    """Return whether no run of a case can end sooner than one that is known, whatever its circuits do."""
    if compiled.plan.iterations > 1:
        return False
    return lower_bound_us(compiled.tasks, compiled.network) >= best.iteration_us


def fastest_candidate(
    experiment: Experiment,
    interconnect: Interconnect,
    candidates: list[Candidate],
    reuse: Reuse,
    clock: Clock,
    progress: Progress = SILENT,
) -> CaseResult:
    """Return the row of the fastest of some plans; `InfeasibleError` if none can run."""
    job = candidates[0].job
    progress = progress.named(f"{job.label} on {interconnect.label}")
    rows: list[CaseResult] = []
    refusals: list[InfeasibleError] = []
    for number, candidate in enumerate(candidates):
        try:
            case = Case.of(experiment, candidate.job, interconnect, candidate.checked_plan)
            rows.append(simulate_variants(case, reuse, clock, progress.part(number, of=len(candidates))))
        except InfeasibleError as error:
            refusals.append(error)
    if not rows:
        raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1]}")
    best = min(rows, key=lambda row: row.iteration_us)
    if len(candidates) > 1:
        tried = f"fastest of {len(candidates)} (mp, dp) pairs, {len(refusals)} of them infeasible"
        best = attrs.evolve(best, notes=(*best.notes, tried))
    return best


def run_experiment(
    experiment: Experiment, *, max_wall_s: float | None = None, progress: Progress = SILENT
) -> Result:
    """Return the rows of every case of an experiment.

    Raises
    ------
    InfeasibleError
        A case cannot run; the message names it.
    StalledError, LimitError
        The simulation could not end.
    """
    reuse, clock = Reuse(), Clock(max_wall_s)
    rows = [
        fastest_candidate(experiment, interconnect, candidates, reuse, clock, progress)
        for _, interconnect, candidates in cases(experiment)
    ]
    baseline = {row.workload: row.time_to_accuracy_s for row in rows if row.topology == experiment.baseline}
    return Result(
        title=experiment.title,
        seed=experiment.seed,
        version=__version__,
        baseline=experiment.baseline,
        experiment=dict(experiment.tables),
        cases=tuple(
            attrs.evolve(row, speedup=baseline[row.workload] / row.time_to_accuracy_s) for row in rows
        ),
        sources={
            row.workload: job.workload.convergence(row.global_batch).source
            for job in experiment.jobs
            for row in rows
            if row.workload == job.label
        },
    )


def check_experiment(experiment: Experiment) -> Iterator[str]:
    """Compile every case as `run_experiment` would, and yield what would run."""
    reuse = Reuse()
    for job, interconnect, candidates in cases(experiment):
        ready: list[CompiledCase] = []
        refusals: list[str] = []
        for candidate in candidates:
            if candidate.plan is not None:
                case = Case.of(experiment, candidate.job, interconnect, candidate.plan)
                try:
                    ready.append(compile_case(case, reuse)[0])
                except InfeasibleError as error:
                    refusals.append(str(error))
        if not ready:
            raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1]}")
        degrees = ", ".join(f"{compiled.plan.mp} x {compiled.plan.dp}" for compiled in ready)
        yield f"{job.label} on {interconnect.label}: mp x dp = {degrees}"
