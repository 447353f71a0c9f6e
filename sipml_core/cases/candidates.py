"""Which plans of a workload there are to choose from, on N GPUs.

`run` takes its choice from them where the degrees are left out, `search` tries batches, layouts and
placers as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.experiment import Job, divisors
from sipml_core.model import Plan

#: Batches tried where none are named: powers of two, from the default batch up and down by this factor.
BATCH_RANGE = 16
#: Where fewer than two of those are measured, the range is this, and what is not measured is marked.
NARROW_BATCH_RANGE = 4


@attrs.frozen(kw_only=True)
class Candidate:
    """A plan to try; or, with a `refusal`, why these numbers are none."""

    #: With the layout and the placer to try.
    job: Job
    mp: int
    dp: int
    global_batch: int
    plan: Plan | None = None
    refusal: str = ""

    @property
    def checked_plan(self) -> Plan:
        """The plan; `InfeasibleError` with the refusal if there is none."""
        if self.plan is None:
            raise InfeasibleError(self.refusal)
        return self.plan

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
    """What `search` tries: batches x degrees x layouts x placers of [search].

    Numbers that do not go together stay in the list, with the reason; so does pure data parallelism,
    whatever degrees are named. Of candidates with mp = 1, which have nothing to cut or place, there is
    one for each batch.

    Raises
    ------
    InfeasibleError
        None of the named degrees divides the number of GPUs.
    """
    wanted = divisors(_stage_gpus(job, gpus))
    if job.search.mp is not None:
        wanted = [mp for mp in wanted if mp in job.search.mp]
    if not wanted:
        raise InfeasibleError(
            f"{job.label}: none of search.mp = {list(job.search.mp or ())} divides {gpus} GPUs"
        )
    found = []
    for batch in batches(job, gpus):
        found.append(_candidate(job, gpus, 1, batch))
        for mp in wanted:
            if mp > 1:
                found += [_candidate(variant, gpus, mp, batch) for variant in _variants(job)]
    return found


def _stage_gpus(job: Job, gpus: int) -> int:
    """Return the GPUs of one stage and part of a sequence; `ConfigError` if these do not divide N."""
    left = gpus
    for name in ("pp", "cp"):
        degree = getattr(job.table, name)
        if left % degree:
            raise ConfigError(f"{name} must divide {left} GPUs, got {degree}")
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
