"""From a simulated case to its row: where the time went, what was sent, what it means for the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from sipml_core.cases.compilation import CompiledCase
from sipml_core.engine import lower_bound_us
from sipml_core.model import CaseResult, Timeline


@attrs.frozen(kw_only=True)
class IterationTimes:
    """One iteration: its time, and what a GPU does in it in the mean. [us]"""

    iteration_us: float
    compute_us: float
    exposed_us: float
    dark_us: float
    idle_us: float
    #: No network of this bandwidth can end it sooner.
    lower_bound_us: float
    #: Circuit plans made while the job ran.
    decisions: int = 0


def account(compiled: CompiledCase, timeline: Timeline) -> CaseResult:
    """Return the row of a simulated case: accounts of the last iteration, as means over GPUs."""
    last = compiled.plan.iterations - 1

    def of_last(account: np.ndarray[Any, Any]) -> float:
        before = account[last - 1] if last else np.zeros_like(account[last])
        return float(np.mean(account[last] - before))

    since_us = float(timeline.snapshot_us[last - 1]) if last else 0.0
    simulated = compiled.simulated
    times = IterationTimes(
        iteration_us=of_last(timeline.snapshot_us),
        compute_us=of_last(timeline.compute_us[:, simulated]),
        exposed_us=of_last(timeline.exposed_us[:, simulated]),
        dark_us=of_last(timeline.dark_us[:, simulated]),
        idle_us=of_last(timeline.idle_us[:, simulated]),
        lower_bound_us=lower_bound_us(compiled.tasks, compiled.network, timeline, since_us),
        decisions=timeline.decisions,
    )
    return _row(compiled, times)


def bound_result(compiled: CompiledCase) -> CaseResult:
    """Return the row where transfers do not share links: a run takes its lower bound, no more is known."""
    iterations = compiled.plan.iterations
    bound_us = lower_bound_us(compiled.tasks, compiled.network) / iterations
    compute_us = float(compiled.tasks.duration_us.sum()) / len(compiled.simulated) / iterations
    times = IterationTimes(
        iteration_us=bound_us,
        compute_us=compute_us,
        exposed_us=0.0,
        dark_us=0.0,
        idle_us=bound_us - compute_us,
        lower_bound_us=bound_us,
    )
    mean = ", mean over iterations" if iterations > 1 else ""
    return _row(compiled, times, f"physical lower bound{mean}, not a simulation")


def _row(compiled: CompiledCase, times: IterationTimes, *notes: str) -> CaseResult:
    job, plan, interconnect = compiled.case.job, compiled.plan, compiled.case.interconnect
    convergence = job.workload.convergence(plan.global_batch)
    scheduler = interconnect.scheduler
    return CaseResult(
        workload=job.label,
        topology=interconnect.label,
        gpus=plan.gpus,
        bandwidth_gbps=interconnect.cluster.bandwidth_gbps,
        mp=plan.mp,
        dp=plan.dp,
        global_batch=plan.global_batch,
        scheduler=scheduler.name if scheduler and compiled.circuits else "",
        all_reduce=compiled.variant.all_reduce,
        exchange=plan.exchange,
        **attrs.asdict(times),
        network_bytes=float(compiled.tasks.size_bytes.sum()) * compiled.repeats / plan.iterations,
        gradient_bytes=compiled.traffic.gradients,
        memory_bytes=compiled.variant.memory_bytes,
        steps_to_accuracy=convergence.steps,
        time_to_accuracy_s=times.iteration_us * 1e-6 * convergence.steps,
        extrapolated=convergence.extrapolated,
        speedup=float("nan"),
        notes=(*compiled.notes, *_unused(compiled), *notes),
        pp=plan.pp,
        micro_batch=plan.micro_samples,
        schedule=plan.schedule if plan.pp > 1 or plan.micro_batches > 1 else "",
        zero=plan.zero,
    )


def _unused(compiled: CompiledCase) -> Iterator[str]:
    """Yield a note where the experiment chose an estimator that is never asked."""
    interconnect, control = compiled.case.interconnect, compiled.fabric.circuits
    name = interconnect.estimator.name if interconnect.estimator else None
    usual = interconnect.scheduler.estimator if interconnect.scheduler else None
    if name != usual and (control is None or control.interval_us is None):
        why = "there are no circuits" if control is None else "circuits are set once, for the whole traffic"
        yield f"estimator {name!r} is not used: {why}"
