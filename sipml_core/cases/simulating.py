"""One case simulated: its variants, the fastest of which is its result."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from sipml_core.cases.accounting import account, bound_result
from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.compilation import CompiledCase, compile_case, compiled_by_rules
from sipml_core.cases.culprits import blamed
from sipml_core.cases.darkness import DarkCapacity
from sipml_core.cases.recording import DecisionLog, case_record, recording_of
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.variants import Variant
from sipml_core.engine import lower_bound_us, simulate
from sipml_core.errors import LimitError, StalledError, TooSlowError
from sipml_core.model import SILENT, CaseResult, Progress, Timeline, UnsharedFabric
from sipml_core.plugin import Component

if TYPE_CHECKING:
    from sipml_core.details import CaseDetails


@attrs.frozen(kw_only=True, eq=False)
class SimulatedCase:
    """The row of a case that ran, and when everything ran (None where only a bound is known)."""

    row: CaseResult
    timeline: Timeline | None
    #: Where details were asked for.
    details: CaseDetails | None = None
    #: What tells its circuits from others that were tried; None: there are none.
    choice: Hashable = None
    #: See `CompiledCase.round`.
    round: int = 1


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
    *,
    details: bool = False,
) -> SimulatedCase:
    """Return one compiled case, simulated; with `details`, recorded too.

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
    log = DecisionLog(compiled.circuits) if details and compiled.circuits else None
    driver = DarkCapacity(log or compiled.circuits) if compiled.circuits else None
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
                recording=recording_of(compiled) if details else None,
            )
    except LimitError:
        raise clock.reached() from None
    choice = compiled.circuits.choice if compiled.circuits else None
    found = _details_of(compiled, timeline, log) if details else None
    row = account(compiled, timeline, driver)
    return SimulatedCase(row=row, timeline=timeline, choice=choice, details=found, round=compiled.round)


def _details_of(compiled: CompiledCase, timeline: Timeline, log: DecisionLog | None) -> CaseDetails:
    from sipml_core.details import CaseDetails  # here: most runs do without

    return CaseDetails(record=case_record(compiled, timeline, log))


def fastest_variant(
    variants: Sequence[CompiledCase], clock: Clock, progress: Progress = SILENT, *, details: bool = False
) -> SimulatedCase:
    """Return the fastest of some variants of a case.

    Of several iterations, one is simulated to choose by which rule circuits are planned in each variant.

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    variants = with_chosen_rules(variants, clock)
    best: SimulatedCase | None = None
    first: SimulatedCase | None = None
    for number, compiled in enumerate(variants):
        if best is not None and _cannot_beat(compiled, best.row):
            continue
        try:
            found = simulate_case(
                compiled,
                clock,
                progress.part(number, of=len(variants)),
                best.row if best else None,
                details=details,
            )
        except (StalledError, TooSlowError) as error:
            failure = error
        else:
            best = min(best or found, found, key=lambda each: each.row.measured_us)
            first = best if compiled.round == 1 else first
    if best is None:
        raise failure
    return _with_gain(best, first) if variants[-1].round > 1 else best


def _with_gain(best: SimulatedCase, first: SimulatedCase | None) -> SimulatedCase:
    """Return the fastest, with a note of what it gained over the fastest of the first round."""
    note = "layouts that were chosen with what circuits give are no faster"
    if best.round > 1:
        gain = (
            f": {1 - best.row.measured_us / first.row.measured_us:.1%} less than in one round"
            if first
            else ""
        )
        note = f"layout and circuits were chosen in turn, {best.round} rounds{gain}"
    return attrs.evolve(best, row=attrs.evolve(best.row, notes=(*best.row.notes, note)))


def with_chosen_rules(variants: Sequence[CompiledCase], clock: Clock) -> list[CompiledCase]:
    """Return variants of several iterations with the one rule that is the fastest in the first of them.

    Those of one iteration are all returned: to run them is to choose.
    """
    chosen: list[CompiledCase] = []
    for _, same in groupby(variants, lambda compiled: id(compiled.variant)):
        ruled = list(same)
        if len(ruled) > 1 and ruled[0].plan.iterations > 1:
            ruled = [_fastest_rule(ruled, clock)]
        chosen += ruled
    return chosen


def _fastest_rule(ruled: Sequence[CompiledCase], clock: Clock) -> CompiledCase:
    """Return which of some rules of a variant is the fastest in one iteration; the first if none ends."""
    trials = compiled_by_rules(_first_iteration(ruled[0].variant), Reuse())
    try:
        best = fastest_variant(trials, clock)
    except (StalledError, TooSlowError):
        return ruled[0]
    return next((each for each in ruled if each.circuits and each.circuits.choice == best.choice), ruled[0])


def _first_iteration(variant: Variant) -> Variant:
    """Return the variant with one iteration instead of several."""
    case = attrs.evolve(variant.case, plan=attrs.evolve(variant.case.plan, iterations=1))
    return attrs.evolve(variant, case=case, plan=attrs.evolve(variant.plan, iterations=1))


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


def fastest_compiled(variants: Sequence[CompiledCase], clock: Clock) -> tuple[CompiledCase, float]:
    """Return the fastest of some variants of a case, and how long it takes. [us]

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    best: tuple[CompiledCase, CaseResult] | None = None
    for compiled in with_chosen_rules(variants, clock):
        if best is not None and _cannot_beat(compiled, best[1]):
            continue
        try:
            row = simulate_case(compiled, clock, faster_than=best[1] if best else None).row
        except (StalledError, TooSlowError) as error:
            failure = error
            continue
        if best is None or row.measured_us < best[1].measured_us:
            best = compiled, row
    if best is None:
        raise failure
    return best[0], best[1].measured_us
