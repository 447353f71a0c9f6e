"""Which plans of one batch a search tries: stages, micro-batches, schedules, shared states, recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import attrs

from sipml_core.experiment import Job, divisors
from sipml_core.fields import frozen
from sipml_core.model import RECOMPUTE

#: Schedules tried where the whole plan is: GPipe takes as long as 1F1B and holds more micro-batches.
_SCHEDULES = ("1f1b", "interleaved", "zb-h1")
#: Chunks of a stage where `interleaved` is tried and the plan names none.
_CHUNKS = 2


@frozen(kw_only=True)
class PlanChoice:
    """What of a plan a search changes beside mp, dp, batch, layout and placer."""

    pp: int
    micro_batch: int | None
    schedule: str
    chunks: int
    zero: int
    recompute: str

    def of(self, job: Job) -> Job:
        """Return the job with this plan."""
        return attrs.evolve(job, table=attrs.evolve(job.table, **attrs.asdict(self)))

    def needless_after(self, other: PlanChoice) -> bool:
        """Return whether there is no point in this one where the other fits: it only does or sends more.

        Recomputation repeats work, and sharing more than optimizer states sends more, for nothing but memory.
        """
        mine, others = RECOMPUTE.index(self.recompute), RECOMPUTE.index(other.recompute)
        less_again = others <= mine and (self.zero == other.zero or 1 <= other.zero <= self.zero)
        same = attrs.evolve(self, zero=other.zero, recompute=other.recompute) == other
        return same and less_again and self != other


def stage_counts(job: Job, gpus: int) -> list[int]:
    """Return the numbers of stages to try: those that are named, or all divisors of N, or the plan's."""
    if job.search.pp is not None:
        return sorted({pp for pp in job.search.pp if gpus % pp == 0}) or sorted(set(job.search.pp))
    return divisors(gpus) if job.search.whole_plan else [job.table.pp]


def plan_choices(job: Job, pp: int, dp: int, batch: int) -> Iterator[PlanChoice]:
    """Yield what to try with `pp` stages and `dp` replicas, the least recomputed and shared first.

    What is named in [search] is tried as it is; of the rest, with `whole_plan`, all that can be, else what
    [plan] says.
    """
    search, table = job.search, job.table
    whole = search.whole_plan
    micro_batches: Sequence[int | None] = search.micro_batches or (
        _micro_batches(batch, dp) if whole else (table.micro_batch,)
    )
    schedules = search.schedules or (_whole_schedules(pp) if whole else (table.schedule,))
    levels = search.zero or ((0, 1, 2, 3) if whole and dp > 1 else (0,) if whole else (table.zero,))
    again = search.recompute or (RECOMPUTE if whole else (table.recompute,))
    for micro_batch, schedule, zero, recompute in product(micro_batches, schedules, levels, again):
        in_chunks = schedule == "interleaved"
        if in_chunks and whole and not search.schedules and not _divides(batch, dp, micro_batch, pp):
            continue
        chunks = max(table.chunks, _CHUNKS) if in_chunks and schedule != table.schedule else table.chunks
        yield PlanChoice(
            pp=pp,
            micro_batch=micro_batch,
            schedule=schedule,
            chunks=chunks if in_chunks else 1,
            zero=zero,
            recompute=recompute,
        )


def _micro_batches(batch: int, dp: int) -> list[int]:
    """Return powers of two that divide the samples of a replica, and all of them.

    >>> _micro_batches(24, dp=2)
    [1, 2, 4, 12]
    """
    samples = batch // dp
    if batch % dp:
        return [1]
    powers = {2**exponent for exponent in range(samples.bit_length())}
    return sorted({size for size in powers if samples % size == 0} | {samples})


def _divides(batch: int, dp: int, micro_batch: int | None, pp: int) -> bool:
    """Return whether micro-batches come in multiples of the stages.

    >>> _divides(24, dp=2, micro_batch=3, pp=2), _divides(24, dp=2, micro_batch=4, pp=2)
    (True, False)
    """
    samples = batch // dp
    return batch % dp == 0 and samples % ((micro_batch or samples) * pp) == 0


def _whole_schedules(pp: int) -> tuple[str, ...]:
    return ("1f1b",) if pp == 1 else _SCHEDULES
