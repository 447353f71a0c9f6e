"""Which plans of a workload there are to choose from, on N GPUs.

`run` takes its choice from them where the degrees are left out, `search` tries batches, layouts and
placers as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from sipml_core.cases.planchoices import PlanChoice, plan_choices, stage_counts
from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.experiment import Job, divisors
from sipml_core.fields import frozen
from sipml_core.model import Plan

#: Batches tried where none are named: powers of two, from the default batch up and down by this factor.
BATCH_RANGE = 16
#: Where fewer than two of those are measured, the range is this, and what is not measured is marked.
NARROW_BATCH_RANGE = 4


@frozen(kw_only=True)
class Candidate:
    """A plan to try; or, with a `refusal`, why these numbers are none."""

    #: With the layout and the placer to try.
    job: Job
    mp: int
    dp: int
    global_batch: int
    plan: Plan | None = None
    refusal: str = ""
    #: Places in the list of those that make this one needless where they fit.
    needless_after: tuple[int, ...] = ()

    @property
    def checked_plan(self) -> Plan:
        """The plan; `InfeasibleError` with the refusal if there is none."""
        if self.plan is None:
            raise InfeasibleError(self.refusal)
        return self.plan

    @property
    def pp(self) -> int:
        """Stages of the plan, or of what was meant to be one."""
        return self.job.table.pp

    @property
    def layout(self) -> str:
        return self.job.table.layout

    @property
    def placer(self) -> str:
        return self.job.placer.name


def run_candidates(job: Job, gpus: int) -> list[Candidate]:
    """What `run` tries: the batch, layout and placer of [strategy], and its degrees or all divisors.

    Raises `ConfigError` if no degree divides the batch.
    """
    if not job.searched:
        plan = job.plan(gpus)
        return [_accepted(job, plan)]
    batch = job.table.global_batch or job.workload.default_global_batch
    tried = [_candidate(job, gpus, mp, batch) for mp in divisors(_stage_gpus(job, gpus))]
    possible = [candidate for candidate in tried if candidate.plan]
    if not possible:
        raise ConfigError(tried[-1].refusal)
    return possible


def search_candidates(job: Job, gpus: int) -> list[Candidate]:
    """What `search` tries: batches x degrees x plans x layouts x placers of [search].

    Numbers that do not go together stay in the list, with the reason; so does pure data parallelism,
    whatever degrees are named. Of candidates with mp = 1, which have nothing to cut or place, there is
    one for each batch and plan.

    Raises
    ------
    InfeasibleError
        None of the named degrees divides the number of GPUs.
    """
    degrees = [(pp, mp) for pp in stage_counts(job, gpus) for mp in _wanted(job, gpus, pp)]
    if not any(job.search.mp is None or mp in job.search.mp for _, mp in degrees):
        raise InfeasibleError(
            f"{job.label}: none of search.mp = {list(job.search.mp or ())} divides {gpus} GPUs"
        )
    found: list[Candidate] = []
    for batch in batches(job, gpus):
        for pp, mp in degrees:
            choices = list(plan_choices(job, pp, _stage_gpus(job, gpus, pp) // mp, batch))
            for variant in _variants(job) if mp > 1 else [job]:
                found += _choices_of(variant, gpus, mp, batch, choices, first=len(found))
    return found


def _wanted(job: Job, gpus: int, pp: int) -> list[int]:
    """Return mp degrees to try with `pp` stages, 1 always; `ConfigError` if the stages do not divide N."""
    all_degrees = divisors(_stage_gpus(job, gpus, pp))
    return [mp for mp in all_degrees if mp == 1 or job.search.mp is None or mp in job.search.mp]


def _choices_of(
    job: Job, gpus: int, mp: int, batch: int, choices: list[PlanChoice], first: int
) -> list[Candidate]:
    """Return a candidate for each choice; the first of them is at place `first` of the whole list."""
    found = []
    for choice in choices:
        candidate = _candidate(choice.of(job), gpus, mp, batch)
        if job.search.searches_stages and candidate.plan:
            candidate = _with_small_bubble(candidate, candidate.plan, job.search.max_bubble)
        if job.search.whole_plan:
            after = [first + at for at, other in enumerate(choices) if choice.needless_after(other)]
            candidate = attrs.evolve(candidate, needless_after=tuple(after))
        found.append(candidate)
    return found


def _with_small_bubble(candidate: Candidate, plan: Plan, max_bubble: float) -> Candidate:
    """Return the candidate, refused if its pipeline leaves GPUs waiting for too long."""
    if plan.bubble <= max_bubble:
        return candidate
    reason = (
        f"{plan.micro_batches} micro-batches in {plan.pp} stages leave a GPU waiting for {plan.bubble:.0%} "
        f"of an iteration, search.max_bubble is {max_bubble:.0%}"
    )
    return attrs.evolve(candidate, plan=None, refusal=reason)


def _stage_gpus(job: Job, gpus: int, pp: int | None = None) -> int:
    """Return the GPUs of one stage and part of a sequence; `ConfigError` if these do not divide N."""
    left = gpus
    for name, degree in (("pp", pp or job.table.pp), ("cp", job.table.cp)):
        if left % degree:
            near = [each for each in divisors(left) if each < degree][-1:]
            near += [each for each in divisors(left) if each > degree][:1]
            raise ConfigError(
                f"{name} must divide {left} GPUs, got {degree}; nearest: {' or '.join(map(str, near))}"
            )
        left //= degree
    return left


def batches(job: Job, gpus: int) -> list[int]:
    """Global batches to try, ascending.

    Where none are named: powers of two times the default batch, within a factor of `BATCH_RANGE`, that
    lie inside the measured convergence data; rounded to a multiple of the GPUs where there is a sample
    for each, so that pure data parallelism divides them. Without a convergence curve, the default batch
    alone: nothing would say what a larger one costs.
    """
    if job.search.global_batches is not None:
        return sorted(set(job.search.global_batches))
    default = job.table.global_batch or job.workload.default_global_batch
    if job.workload.convergence(default) is None:
        return [_rounded(default, gpus)]
    near = _powers(default, NARROW_BATCH_RANGE, gpus)
    measured = [b for b in _powers(default, BATCH_RANGE, gpus) if not _extrapolated(job, b)]
    return measured if len(measured) > 1 else near


def _powers(default: int, factor: int, gpus: int) -> list[int]:
    exponents = range(1 - factor.bit_length(), factor.bit_length())
    found = {default} | {int(default * 2.0**exponent) for exponent in exponents}
    return sorted({_rounded(batch, gpus) for batch in found if batch >= 1})


def _rounded(batch: int, gpus: int) -> int:
    return batch if batch < gpus else max(1, round(batch / gpus)) * gpus


def _extrapolated(job: Job, batch: int) -> bool:
    convergence = job.workload.convergence(batch)
    return convergence is None or convergence.extrapolated


def _variants(job: Job) -> Iterable[Job]:
    for layout in job.search.layouts or (job.table.layout,):
        for placer in job.placers or (job.placer,):
            yield attrs.evolve(job.with_layout(layout), placer=placer)


def _candidate(job: Job, gpus: int, mp: int, batch: int) -> Candidate:
    try:
        return _accepted(job, job.plan(gpus, mp, batch))
    except ConfigError as error:
        return Candidate(
            job=job, mp=mp, dp=_stage_gpus(job, gpus) // mp, global_batch=batch, refusal=str(error)
        )


def _accepted(job: Job, plan: Plan) -> Candidate:
    return Candidate(job=job, mp=plan.mp, dp=plan.dp, global_batch=plan.global_batch, plan=plan)
