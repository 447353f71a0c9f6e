"""From an experiment to its result: simulates every case and sums it up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from sipml_core import __version__
from sipml_core.cases.candidates import Candidate, run_candidates
from sipml_core.cases.compiler import CompiledCase, Compiler
from sipml_core.engine import lower_bound_us, simulate
from sipml_core.errors import InfeasibleError, LimitError, StalledError, TooSlowError
from sipml_core.experiment import Experiment, Interconnect, Job
from sipml_core.model import CaseResult, Result, Timeline

#: progress(case, fraction of it done)
Progress = Callable[[str, float], None]


def cases(experiment: Experiment) -> Iterator[tuple[Job, Interconnect, list[Candidate]]]:
    """Every workload on every interconnect, with the strategies to try."""
    for job in experiment.jobs:
        for interconnect in experiment.interconnects:
            yield job, interconnect, run_candidates(job, interconnect.cluster.gpus)


@attrs.define
class Clock:
    """Wall-clock limit of a whole run."""

    limit_s: float | None
    started: float = attrs.Factory(time.monotonic)

    def left_s(self) -> float | None:
        if self.limit_s is None:
            return None
        left = self.limit_s - (time.monotonic() - self.started)
        if left <= 0:
            raise self.reached()
        return left

    def reached(self) -> LimitError:
        return LimitError(f"the wall-clock limit of {self.limit_s:g} s was reached; nothing was written")


def run_case(
    compiler: Compiler,
    job: Job,
    interconnect: Interconnect,
    candidates: list[Candidate],
    clock: Clock,
    progress: Progress,
) -> CaseResult:
    """The fastest of the candidates; `InfeasibleError` if none can run."""
    results, refusals = [], []
    for done, candidate in enumerate(candidates):

        def report(fraction: float, _: int, done: int = done) -> None:
            progress(f"{job.label} on {interconnect.label}", (done + fraction) / len(candidates))

        try:
            results.append(simulate_candidate(compiler, candidate, interconnect, clock, report))
        except InfeasibleError as error:
            refusals.append(error)
    if not results:
        raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1]}")
    best = min(results, key=lambda result: result.iteration_us)
    if len(candidates) > 1:
        tried = f"fastest of {len(candidates)} (mp, dp) pairs, {len(refusals)} of them infeasible"
        best = attrs.evolve(best, notes=(*best.notes, tried))
    return best


def simulate_candidate(
    compiler: Compiler,
    candidate: Candidate,
    interconnect: Interconnect,
    clock: Clock,
    progress: Callable[[float, int], None] = lambda fraction, events: None,
) -> CaseResult:
    """The candidate with the fastest form of exchange and of all-reduce.

    Raises
    ------
    InfeasibleError
        It is refused, or see `Compiler.prepare`.
    StalledError, TooSlowError
        All forms stall, or exceed `engine.max_time_us`.
    """
    if candidate.plan is None:
        raise InfeasibleError(candidate.refusal)
    best: CaseResult | None = None
    forms = compiler.prepare(candidate.job, interconnect, candidate.plan)
    for done, compiled in enumerate(forms):

        def report(fraction: float, events: int, done: int = done) -> None:
            progress((done + fraction) / len(forms), events)

        try:
            result = simulate_case(compiler.experiment, compiled, clock, report, faster_than=best)
        except (StalledError, TooSlowError) as error:
            failure = error
        else:
            best = min(best or result, result, key=lambda result: result.iteration_us)
    if best is None:
        raise failure
    return best


def simulate_case(
    experiment: Experiment,
    compiled: CompiledCase,
    clock: Clock,
    progress: Callable[[float, int], None],
    faster_than: CaseResult | None = None,
) -> CaseResult:
    """Simulate one prepared case.

    Raises
    ------
    TooSlowError
        It takes longer than `engine.max_time_us`, or than one iteration of `faster_than`.
    """
    limits_us = [experiment.engine.max_time_us or math.inf]
    if faster_than is not None and compiled.plan.iterations == 1:
        limits_us.append(faster_than.iteration_us)
    if compiled.fabric.sharing == "bound":
        return _bound_result(compiled)
    left_s = clock.left_s()
    try:
        timeline = simulate(
            compiled.tasks,
            compiled.network,
            driver=compiled.circuits,
            queue=experiment.engine.queue,
            max_time_us=min(limits_us),
            max_wall_s=left_s,
            progress=progress,
        )
    except TooSlowError:
        raise
    except LimitError:
        raise clock.reached() from None
    return _result(compiled, timeline)


def _bound_result(compiled: CompiledCase) -> CaseResult:
    """Where transfers do not share links a run takes its lower bound, and nothing else is known of it."""
    bound_us = lower_bound_us(compiled.tasks, compiled.network) / compiled.plan.iterations
    compute_us = compiled.tasks.duration_us.sum() / len(compiled.simulated) / compiled.plan.iterations
    times = {"compute_us": compute_us, "exposed_us": 0.0, "dark_us": 0.0, "idle_us": bound_us - compute_us}
    mean = ", mean over iterations" if compiled.plan.iterations > 1 else ""
    return _case(compiled, bound_us, bound_us, times, (f"physical lower bound{mean}, not a simulation",))


def _result(compiled: CompiledCase, timeline: Timeline) -> CaseResult:
    """Accounts of the last iteration, as means over GPUs."""
    last = compiled.plan.iterations - 1

    def of_last(account: np.ndarray[Any, Any]) -> float:
        before = account[last - 1] if last else np.zeros_like(account[last])
        return float(np.mean(account[last] - before))

    times = {
        name: of_last(getattr(timeline, name)[:, compiled.simulated])
        for name in ("compute_us", "exposed_us", "dark_us", "idle_us")
    }
    since_us = float(timeline.snapshot_us[last - 1]) if last else 0.0
    bound_us = lower_bound_us(compiled.tasks, compiled.network, timeline, since_us)
    return _case(compiled, of_last(timeline.snapshot_us), bound_us, times, (), decisions=timeline.decisions)


def _case(
    compiled: CompiledCase,
    iteration_us: float,
    bound_us: float,
    times: dict[str, float],
    notes: tuple[str, ...],
    decisions: int = 0,
) -> CaseResult:
    job, plan, tasks = compiled.job, compiled.plan, compiled.tasks
    convergence = job.workload.convergence(plan.global_batch)
    scheduler = compiled.interconnect.scheduler
    return CaseResult(
        workload=job.label,
        topology=compiled.interconnect.label,
        gpus=plan.gpus,
        bandwidth_gbps=compiled.interconnect.cluster.bandwidth_gbps,
        mp=plan.mp,
        dp=plan.dp,
        global_batch=plan.global_batch,
        scheduler=scheduler.name if scheduler and compiled.circuits else "",
        all_reduce=compiled.all_reduce,
        exchange=plan.exchange,
        iteration_us=iteration_us,
        **times,
        lower_bound_us=bound_us,
        network_bytes=float(tasks.size_bytes.sum()) * compiled.repeats / plan.iterations,
        gradient_bytes=compiled.traffic.gradients,
        memory_bytes=compiled.memory_bytes,
        decisions=decisions,
        steps_to_accuracy=convergence.steps,
        time_to_accuracy_s=iteration_us * 1e-6 * convergence.steps,
        extrapolated=convergence.extrapolated,
        speedup=float("nan"),
        notes=(*compiled.notes, *_unused(compiled), *notes),
    )


def _unused(compiled: CompiledCase) -> Iterator[str]:
    """A note where the experiment chose an estimator that is never asked."""
    interconnect, control = compiled.interconnect, compiled.fabric.circuits
    name = interconnect.estimator.name if interconnect.estimator else None
    usual = interconnect.scheduler.estimator if interconnect.scheduler else None
    if name != usual and (control is None or control.interval_us is None):
        why = "there are no circuits" if control is None else "circuits are set once, for the whole traffic"
        yield f"estimator {name!r} is not used: {why}"


def run_experiment(
    experiment: Experiment,
    *,
    max_wall_s: float | None = None,
    progress: Progress = lambda case, fraction: None,
) -> Result:
    """Every case of an experiment.

    Raises
    ------
    InfeasibleError
        A case cannot run; the message names it.
    StalledError, LimitError
        The simulation could not end.
    """
    compiler, clock = Compiler(experiment=experiment), Clock(limit_s=max_wall_s)
    rows = [
        run_case(compiler, job, interconnect, candidates, clock, progress)
        for job, interconnect, candidates in cases(experiment)
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
    """Prepare every case as `run_experiment` would, and say of each what would run."""
    compiler = Compiler(experiment=experiment)
    for job, interconnect, candidates in cases(experiment):
        ready, refusals = [], []
        for candidate in candidates:
            if candidate.plan is not None:
                try:
                    ready.append(compiler.prepare(candidate.job, interconnect, candidate.plan)[0])
                except InfeasibleError as error:
                    refusals.append(str(error))
        if not ready:
            raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1]}")
        degrees = ", ".join(f"{case.plan.mp} x {case.plan.dp}" for case in ready)
        yield f"{job.label} on {interconnect.label}: mp x dp = {degrees}"
