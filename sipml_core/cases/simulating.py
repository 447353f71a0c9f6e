"""One case simulated: its variants, the fastest of which is its result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from sipml_core.cases.accounting import account, bound_result
from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.compilation import CompiledCase, compile_case
from sipml_core.cases.culprits import blamed
from sipml_core.cases.darkness import DarkCapacity
from sipml_core.cases.reuse import Reuse
from sipml_core.engine import lower_bound_us, simulate
from sipml_core.errors import LimitError, StalledError, TooSlowError
from sipml_core.model import SILENT, CaseResult, Progress, Timeline, UnsharedFabric
from sipml_core.plugin import Component


@attrs.frozen(kw_only=True, eq=False)
class SimulatedCase:
    """The row of a case that ran, and when everything ran (None where only a bound is known)."""

    row: CaseResult
    timeline: Timeline | None


def compiled_variants(case: Case, reuse: Reuse) -> list[CompiledCase]:
    """Return what `compile_case` does; an error in a plugin's code names it.

    Raises
    ------
    InfeasibleError
        See `compile_case`.
    PluginError
        The code of a component raised something else.
    """
    with blamed(*components(case)):
        return compile_case(case, reuse)


def components(case: Case) -> tuple[Component | None, ...]:
    """Return the components whose code a case runs, the topology last."""
    interconnect = case.interconnect
    return (
        case.job.workload, case.job.placer, case.gpu, *case.job.exchanges, *case.job.all_reduces,
        case.communication,
        interconnect.scheduler, interconnect.estimator, interconnect.topology,
    )  # fmt: skip


def simulate_case(
    compiled: CompiledCase,
    clock: Clock,
    progress: Progress = SILENT,
    faster_than: CaseResult | None = None,
) -> SimulatedCase:
    """Return one compiled case, simulated.

    Raises
    ------
    TooSlowError
        It takes longer than `engine.max_time_us`, or than one iteration of `faster_than`.
    """
    if isinstance(compiled.fabric, UnsharedFabric):
        return SimulatedCase(row=bound_result(compiled), timeline=None)
    limits_us = [compiled.case.engine.max_time_us or math.inf]
    if faster_than is not None and compiled.plan.iterations == 1:
        limits_us.append(faster_than.measured_us)
    left_s = clock.left_s()
    driver = DarkCapacity(compiled.circuits) if compiled.circuits else None
    try:
        with blamed(*components(compiled.case)):
            timeline = simulate(
                compiled.tasks,
                compiled.network,
                driver=driver,
                queue=compiled.case.engine.queue,
                max_time_us=min(limits_us),
                max_wall_s=left_s,
                progress=progress,
            )
    except LimitError:
        raise clock.reached() from None
    return SimulatedCase(row=account(compiled, timeline, driver), timeline=timeline)


def fastest_variant(
    variants: Sequence[CompiledCase], clock: Clock, progress: Progress = SILENT
) -> SimulatedCase:
    """Return the fastest of some variants of a case.

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    best: SimulatedCase | None = None
    for number, compiled in enumerate(variants):
        if best is not None and _cannot_beat(compiled, best.row):
            continue
        try:
            found = simulate_case(
                compiled, clock, progress.part(number, of=len(variants)), best.row if best else None
            )
        except (StalledError, TooSlowError) as error:
            failure = error
        else:
            best = min(best or found, found, key=lambda each: each.row.measured_us)
    if best is None:
        raise failure
    return best


def _cannot_beat(compiled: CompiledCase, best: CaseResult) -> bool:
    """Return whether no run of a case can end sooner than one that is known, whatever its circuits do."""
    if compiled.plan.iterations > 1:
        return False
    return lower_bound_us(compiled.tasks, compiled.network) >= best.measured_us


def simulate_variants(case: Case, reuse: Reuse, clock: Clock, progress: Progress = SILENT) -> SimulatedCase:
    """Return the fastest variant of a case.

    Raises
    ------
    InfeasibleError
        See `compile_case`.
    StalledError, TooSlowError
        See `fastest_variant`.
    """
    return fastest_variant(compiled_variants(case, reuse), clock, progress)
