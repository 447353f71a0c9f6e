"""One case simulated: its variants, the fastest of which is its result."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from sipml_core.cases.accounting import account, bound_result
from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.compilation import layout_of, prepare_case, prepared_by_rules
from sipml_core.cases.culprits import blamed
from sipml_core.cases.darkness import DarkCapacity
from sipml_core.cases.preparation import CompiledCase, PreparedCase
from sipml_core.cases.recording import DecisionLog, case_record, recording_of
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.variants import Variant
from sipml_core.engine import lower_bound_us, simulate
from sipml_core.errors import LimitError, StalledError, TooSlowError
from sipml_core.fields import frozen
from sipml_core.lowering import NoSymmetryError
from sipml_core.model import SILENT, CaseResult, Progress, Timeline, UnsharedFabric
from sipml_core.plugin import Component

if TYPE_CHECKING:
    from sipml_core.details import CaseDetails


@frozen(kw_only=True, eq=False)
class SimulatedCase:
    """The row of a case that ran, and when everything ran (None: only a bound is known, or nobody asked)."""

    row: CaseResult
    timeline: Timeline | None
    #: Where details were asked for.
    details: CaseDetails | None = None
    #: What tells its circuits from others that were tried; None: there are none.
    choice: Hashable = None
    #: See `CompiledCase.round`.
    round: int = 1


def prepared_variants(case: Case, reuse: Reuse) -> list[PreparedCase]:
    """Return what `prepare_case` does; an error in a plugin's code names it.

    Raises
    ------
    InfeasibleError
        See `prepare_case`.
    PluginError
        The code of a component raised something else.
    """
    with blamed(*components(case)):
        return prepare_case(case, reuse)


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
    timeline: bool = True,
) -> SimulatedCase:
    """Return one compiled case, simulated; with `details`, recorded too; its timeline only if asked for.

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
    if details or timeline:
        compiled = compiled.explicit()
    left_s = clock.left_s()
    log = DecisionLog(compiled.circuits) if details and compiled.circuits else None
    driver = DarkCapacity(log or compiled.circuits) if compiled.circuits else None
    try:
        with blamed(*components(compiled.case)):
            times = simulate(
                compiled.work,
                compiled.work_network,
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
    found = _details_of(compiled, times, log) if details else None
    row = account(compiled, times, driver)
    kept = times if timeline else None
    return SimulatedCase(row=row, timeline=kept, choice=choice, details=found, round=compiled.round)


def _details_of(compiled: CompiledCase, timeline: Timeline, log: DecisionLog | None) -> CaseDetails:
    from sipml_core.details import CaseDetails  # here: most runs do without

    return CaseDetails(record=case_record(compiled, timeline, log))


def fastest_variant(
    variants: Sequence[PreparedCase],
    clock: Clock,
    progress: Progress = SILENT,
    *,
    details: bool = False,
    timeline: bool = True,
) -> SimulatedCase:
    """Return the fastest of some variants of a case; their tasks are there while they are simulated.

    Of several iterations, one is simulated to choose by which rule circuits are planned in each variant.
    `details` and `timeline` as in `simulate_case`.

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    variants = with_chosen_rules(variants, clock)
    best, first, _ = _fastest(variants, clock, progress, details=details, timeline=timeline)
    return _with_gain(best, first, variants)


def fastest_of_case(
    variants: Sequence[PreparedCase],
    reuse: Reuse,
    clock: Clock,
    progress: Progress = SILENT,
    *,
    details: bool = False,
    timeline: bool = True,
) -> SimulatedCase:
    """Return the fastest of all variants of a case, those that `prepare_case` returns.

    Where every GPU is to be simulated and folding would be exact, that is done for the variant which is the
    fastest when folded, alone: it is the fastest of all.

    Raises
    ------
    StalledError, TooSlowError
        As `fastest_variant`.
    """
    variants = with_chosen_rules(variants, clock)
    folded = _folded_variants(variants, reuse, clock)
    if folded:
        with suppress(StalledError, TooSlowError):
            _, once, number = _fastest(folded, clock, SILENT, details=False, timeline=False)
            found = _simulated(variants[number], clock, progress, None, details=details, timeline=timeline)
            assert found is not None
            return _with_gain(found, once, variants)
    return fastest_variant(variants, clock, progress, details=details, timeline=timeline)


def _folded_variants(variants: Sequence[PreparedCase], reuse: Reuse, clock: Clock) -> Sequence[PreparedCase]:
    """Return the same variants, folded; none where every GPU is not asked for, or not all of them fold."""
    case = variants[0].variant.case
    if len(variants) == 1 or case.engine.fold != "never" or case.plan.replicas == 1:
        return ()
    case = attrs.evolve(case, engine=attrs.evolve(case.engine, fold="require"))
    try:
        with clock.bounding(), blamed(*components(case)):
            folded = with_chosen_rules(prepare_case(case, reuse), clock)
    except NoSymmetryError:
        return ()
    alike = len(folded) == len(variants) and all(
        _told_apart(one) == _told_apart(other) for one, other in zip(folded, variants, strict=True)
    )
    return folded if alike else ()


def _told_apart(prepared: PreparedCase) -> tuple[Hashable, ...]:
    """Return what tells the variants of a case apart, folded or not."""
    variant, circuits = prepared.variant, prepared.circuits
    choice = circuits.choice if circuits else None
    return prepared.round, variant.exchange.name, variant.plan.all_reduce, choice, layout_of(prepared)


def _fastest(
    variants: Sequence[PreparedCase], clock: Clock, progress: Progress, *, details: bool, timeline: bool
) -> tuple[SimulatedCase, SimulatedCase | None, int]:
    """Return the fastest of some variants, the fastest with layouts of the first round, and its number.

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    best: SimulatedCase | None = None
    first: SimulatedCase | None = None
    place = 0
    for number, prepared in enumerate(variants):
        try:
            part = progress.part(number, of=len(variants))
            row = best.row if best else None
            found = _simulated(prepared, clock, part, row, details=details, timeline=timeline)
        except (StalledError, TooSlowError) as error:
            failure = error.with_traceback(None)  # whose frames hold the tasks
            continue
        if found is None:
            continue
        if best is None or found.row.measured_us < best.row.measured_us:
            best, place = found, number
        first = best if prepared.round == 1 else first
    if best is None:
        raise failure
    return best, first, place


def _simulated(
    prepared: PreparedCase,
    clock: Clock,
    progress: Progress,
    faster_than: CaseResult | None,
    *,
    details: bool,
    timeline: bool,
) -> SimulatedCase | None:
    """Return a variant, simulated; None: it cannot be faster than `faster_than`."""
    with clock.bounding(), blamed(*components(prepared.variant.case)):
        compiled = prepared.compiled(relayed=not (details or timeline))
    if faster_than is not None and _cannot_beat(compiled, faster_than):
        return None
    return simulate_case(compiled, clock, progress, faster_than, details=details, timeline=timeline)


def _with_gain(
    best: SimulatedCase, first: SimulatedCase | None, variants: Sequence[PreparedCase]
) -> SimulatedCase:
    """Return the fastest of some variants, with the time of the first round's fastest, and the gain noted."""
    if variants[-1].round == 1:
        return best
    notes: tuple[str, ...] = ()
    if best.round > 1:
        gain = (
            f": {1 - best.row.measured_us / first.row.measured_us:.1%} less than in one round"
            if first
            else ""
        )
        notes = (f"layout and circuits were chosen in turn, {best.round} rounds{gain}",)
    elif variants[0].variant.case.interconnect.circuit_keys.rounds:
        notes = ("layouts that were chosen with what circuits give are no faster",)
    once = best if best.round == 1 else first
    once_us = once.row.iteration_us if once else None
    row = attrs.evolve(best.row, notes=(*best.row.notes, *notes), one_round_us=once_us)
    return attrs.evolve(best, row=row)


def with_chosen_rules(variants: Sequence[PreparedCase], clock: Clock) -> list[PreparedCase]:
    """Return variants of several iterations with the one rule that is the fastest in the first of them.

    Those of one iteration are all returned: to run them is to choose.
    """
    chosen: list[PreparedCase] = []
    for _, same in groupby(variants, lambda prepared: id(prepared.variant)):
        ruled = list(same)
        if len(ruled) > 1 and ruled[0].plan.iterations > 1:
            ruled = [_fastest_rule(ruled, clock)]
        chosen += ruled
    return chosen


def _fastest_rule(ruled: Sequence[PreparedCase], clock: Clock) -> PreparedCase:
    """Return which of some rules of a variant is the fastest in one iteration; the first if none ends."""
    trials = prepared_by_rules(_first_iteration(ruled[0].variant), Reuse())
    try:
        best = fastest_variant(trials, clock, timeline=False)
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
    return lower_bound_us(compiled.work, compiled.work_network) >= best.measured_us


def simulate_variants(case: Case, reuse: Reuse, clock: Clock, progress: Progress = SILENT) -> SimulatedCase:
    """Return the fastest variant of a case, without its timeline.

    Raises
    ------
    InfeasibleError
        See `prepare_case`.
    StalledError, TooSlowError
        See `fastest_variant`.
    """
    return fastest_of_case(prepared_variants(case, reuse), reuse, clock, progress, timeline=False)


def fastest_prepared(variants: Sequence[PreparedCase], clock: Clock) -> tuple[PreparedCase, float]:
    """Return the fastest of some variants of a case, and how long it takes. [us]

    Raises
    ------
    StalledError, TooSlowError
        All variants stall, or exceed `engine.max_time_us`.
    """
    best: tuple[PreparedCase, CaseResult] | None = None
    for prepared in with_chosen_rules(variants, clock):
        row = best[1] if best else None
        try:
            found = _simulated(prepared, clock, SILENT, row, details=False, timeline=False)
        except (StalledError, TooSlowError) as error:
            failure = error.with_traceback(None)
            continue
        if found is not None and (row is None or found.row.measured_us < row.measured_us):
            best = prepared, found.row
    if best is None:
        raise failure
    return best[0], best[1].measured_us
