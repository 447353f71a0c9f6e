"""From a simulated case to its row: where the time went, what was sent, what it means for the training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sipml_core.cases.candidates import Candidate
from sipml_core.cases.darkness import DarkCapacity
from sipml_core.cases.exposure import host_wait_us
from sipml_core.cases.goals import goal_of
from sipml_core.cases.modelspeed import language_columns, traffic_columns
from sipml_core.cases.preparation import CompiledCase
from sipml_core.engine import lower_bound_us
from sipml_core.experiment import Interconnect, Job, files_of
from sipml_core.fields import format_us, frozen
from sipml_core.model import CaseResult, Plan, TaskGraph, Timeline, op_work
from sipml_core.plugin import Component, GpuModel

#: A largest compute time of so many times the mean is said.
IMBALANCED = 1.5
#: Dark capacity of so much of an iteration is said where `dark` does not show it.
HIDDEN_PART = 0.02


@frozen(kw_only=True)
class IterationTimes:
    """One iteration: its time, and what a GPU does in it in the mean. [us]"""

    iteration_us: float
    compute_us: float
    #: That of the GPU which computes longest.
    compute_max_us: float
    exposed_us: float
    dark_us: float
    #: Circuits were dark, weighted with their capacity.
    dark_capacity_us: float
    idle_us: float
    #: No network of this bandwidth can end it sooner.
    lower_bound_us: float
    #: Circuit plans made while the job ran.
    decisions: int = 0


def account(compiled: CompiledCase, timeline: Timeline, dark: DarkCapacity | None = None) -> CaseResult:
    """Return the row of a simulated case: accounts of the last iteration, as means over GPUs."""
    last = compiled.plan.iterations - 1

    def of_last(account: np.ndarray[Any, Any], over: Any = np.mean) -> float:
        before = account[last - 1] if last else np.zeros_like(account[last])
        return float(over(account[last] - before))

    since_us = float(timeline.snapshot_us[last - 1]) if last else 0.0
    simulated = compiled.simulated
    until_us = float(timeline.snapshot_us[last])
    times = IterationTimes(
        iteration_us=of_last(timeline.snapshot_us),
        compute_us=of_last(timeline.compute_us[:, simulated]),
        compute_max_us=of_last(timeline.compute_us[:, simulated], np.max),
        exposed_us=of_last(timeline.exposed_us[:, simulated]),
        dark_us=of_last(timeline.dark_us[:, simulated]),
        dark_capacity_us=dark.between(since_us, until_us) if dark else 0.0,
        idle_us=of_last(timeline.idle_us[:, simulated]),
        lower_bound_us=lower_bound_us(
            compiled.work, compiled.work_network, timeline, since_us, link_share=compiled.link_share
        ),
        decisions=timeline.decisions - (compiled.circuits.kept if compiled.circuits else 0),
    )
    others: dict[str, Any] = traffic_columns(compiled, timeline, since_us, times.exposed_us)
    framework = compiled.case.framework
    if framework.op_us or framework.collective_us:
        waited_us = host_wait_us(compiled.tasks, timeline, simulated, since_us)
        others["host_wait_us"] = min(waited_us, times.idle_us)
    return attrs.evolve(_row(compiled, times), **others)


def bound_result(compiled: CompiledCase) -> CaseResult:
    """Return the row where transfers do not share links: a run takes its lower bound, no more is known."""
    iterations = compiled.plan.iterations
    bound_us = (
        lower_bound_us(compiled.work, compiled.work_network, link_share=compiled.link_share) / iterations
    )
    tasks = compiled.work if isinstance(compiled.work, TaskGraph) else compiled.work.rows
    gpus = compiled.simulated
    computes = tasks.gpu >= 0
    busy_us = np.bincount(tasks.gpu[computes], tasks.duration_us[computes], minlength=tasks.gpus)
    each_us = busy_us[gpus] / iterations
    compute_us = float(each_us.mean())
    times = IterationTimes(
        iteration_us=bound_us,
        compute_us=compute_us,
        compute_max_us=float(each_us.max()),
        exposed_us=0.0,
        dark_us=0.0,
        dark_capacity_us=0.0,
        idle_us=bound_us - compute_us,
        lower_bound_us=bound_us,
    )
    mean = ", mean over iterations" if iterations > 1 else ""
    return _row(compiled, times, f"physical lower bound{mean}, not a simulation")


def _row(compiled: CompiledCase, times: IterationTimes, *notes: str) -> CaseResult:
    job, plan, interconnect = compiled.case.job, compiled.plan, compiled.case.interconnect
    goal = goal_of(job.workload, plan.global_batch)
    scheduler = interconnect.scheduler
    samples_per_s = plan.global_batch / (times.iteration_us * 1e-6)
    sample_tokens = job.workload.sample_tokens
    return CaseResult(
        **_labels(job, interconnect),
        mp=plan.mp,
        dp=plan.dp,
        global_batch=plan.global_batch,
        scheduler=scheduler.name if scheduler and compiled.circuits else "",
        all_reduce=plan.all_reduce,
        exchange=plan.exchange,
        **attrs.asdict(times),
        network_bytes=_network_bytes(compiled),
        gradient_bytes=compiled.traffic.gradients,
        memory_bytes=compiled.variant.memory_bytes,
        samples_per_s=samples_per_s,
        tokens_per_s=samples_per_s * sample_tokens if sample_tokens else None,
        goal=goal.name,
        steps_to_accuracy=goal.steps_to_accuracy,
        time_to_accuracy_s=goal.accuracy_s(times.iteration_us),
        time_to_goal_s=goal.time_s(times.iteration_us),
        extrapolated=goal.extrapolated,
        **language_columns(compiled, times.iteration_us),
        notes=(*job.workload.notes, *compiled.notes, *_notes(compiled, times), *notes),
        **_stages(plan),
    )


def _network_bytes(compiled: CompiledCase) -> float:
    """Return what one iteration sends, without what a communication library adds on the wire. [bytes]"""
    if not compiled.case.communication.free:
        return compiled.traffic.total
    return compiled.work.total_bytes * compiled.repeats / compiled.plan.iterations


def _notes(compiled: CompiledCase, times: IterationTimes) -> Iterator[str]:
    """Yield what a reader of the row should know of how the case ran."""
    yield from _unused(compiled)
    yield from _imbalance(times)
    yield from _hidden_darkness(times)
    yield from _unmeasured(compiled)


def unfit_row(
    job: Job, interconnect: Interconnect, candidate: Candidate | None, status: str, reason: str
) -> CaseResult:
    """Return the row of a case that did not run; without numbers, for there are none.

    `candidate` is the one plan that was tried; None: several.
    """
    return CaseResult(
        **_labels(job, interconnect),
        status=status,
        reason=reason,
        mp=candidate.mp if candidate else None,
        dp=candidate.dp if candidate else None,
        global_batch=candidate.global_batch if candidate else None,
        **(_stages(candidate.plan) if candidate and candidate.plan else {}),
    )


def _stages(plan: Plan) -> dict[str, Any]:
    """What a row says of stages, micro-batches and shared states."""
    return {
        "pp": plan.pp,
        "micro_batch": plan.micro_samples,
        "schedule": plan.schedule if plan.pp > 1 or plan.micro_batches > 1 else "",
        "zero": plan.zero,
        "bubble": plan.bubble,
    }


def _labels(job: Job, interconnect: Interconnect) -> dict[str, Any]:
    """What a row says of its case whatever becomes of it."""
    return {
        "workload": job.label,
        "topology": interconnect.label,
        "options": options_text(interconnect.topology),
        "gpus": interconnect.cluster.gpus,
        "bandwidth_gbps": interconnect.cluster.bandwidth_gbps,
    }


def options_text(component: Component) -> str:
    """Return the options of a component, defaults included, in one line; of files only the name."""
    options, files = component.options, files_of(component)
    if not attrs.has(type(options)):
        return ""
    values = {field.name: getattr(options, field.name) for field in attrs.fields(type(options))}
    return "; ".join(
        f"{name} = {Path(value).name if value in files else value}"
        for name, value in values.items()
        if value is not None
    )


def _imbalance(times: IterationTimes) -> Iterator[str]:
    """Yield a note where the mean over GPUs hides how long one of them computes."""
    if times.compute_max_us >= IMBALANCED * times.compute_us > 0:
        yield (
            f"compute is uneven: {format_us(times.compute_max_us)} on the GPU that computes longest, "
            f"{format_us(times.compute_us)} in the mean"
        )


def _hidden_darkness(times: IterationTimes) -> Iterator[str]:
    """Yield a note where circuits were dark for much longer than GPUs waited for them alone."""
    dark_us = times.dark_capacity_us
    if dark_us >= HIDDEN_PART * times.iteration_us and dark_us >= 2 * times.dark_us:
        yield (
            f"reconfiguration takes {format_us(dark_us)} of all circuit capacity in an iteration, of which "
            f"dark, the time that GPUs wait for nothing else, shows {format_us(times.dark_us)}"
        )


def _unmeasured(compiled: CompiledCase) -> Iterator[str]:
    """Yield a note where op times lie outside what the GPU model was measured at."""
    gpu, graph = compiled.case.gpu, compiled.variant.placement.graph
    if type(gpu).extrapolation is GpuModel.extrapolation:
        return
    cuts = zip(graph.graph.ops, graph.split_dim, graph.parts.tolist(), graph.duplicated, strict=True)
    factor = max(
        gpu.extrapolation(op_work(graph.graph, op, dim, 1 if whole else parts, 0))
        for op, dim, parts, whole in cuts
    )
    if factor > 1:
        yield f"op times are extrapolated, up to {factor:.3g} times beyond what {gpu.name!r} was measured at"


def _unused(compiled: CompiledCase) -> Iterator[str]:
    """Yield a note for the estimator, and each key about circuits, that the experiment chose in vain."""
    interconnect, control = compiled.case.interconnect, compiled.fabric.circuits
    keys, layout = interconnect.circuit_keys, compiled.case.job.table.layout
    name = interconnect.estimator.name if interconnect.estimator else None
    usual = interconnect.scheduler.estimator if interconnect.scheduler else None
    none = "there are no circuits"
    replanned = control is not None and control.interval_us is not None
    if name != usual and not replanned:
        why = none if control is None else "circuits are set once, for the whole traffic"
        yield f"estimator {name!r} is not used: {why}"
    elif name != usual and keys.replan not in ("interval", "auto"):
        yield f"estimator {name!r} is not used: circuits are planned for the traffic of each phase"
    if not replanned:
        why = none if control is None else "circuits are set once; give interval_us"
        if keys.replan != "interval":
            yield f"replan {keys.replan!r} is not used: {why}"
        if keys.replan_above:
            yield f"replan_above {keys.replan_above:g} is not used: {why}"
    if keys.demand != "bytes" and control is None:
        yield f"demand {keys.demand!r} is not used: {none}"
    if (keys.rounds or 1) > 1 and (control is None or layout != "auto" or compiled.plan.mp == 1):
        chosen = "mp is 1" if compiled.plan.mp == 1 else f"layout {layout!r} is not chosen by prices"
        yield f"rounds {keys.rounds} is not used: {none if control is None else chosen}"
