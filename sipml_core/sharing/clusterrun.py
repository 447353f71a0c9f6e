"""The life of a shared cluster: jobs arrive, wait, run at the speed that neighbours leave them, and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, InfeasibleError, SipmlError
from sipml_core.model import INFEASIBLE, OK, SILENT, Progress
from sipml_core.sharing.jobtables import JobRequest, SharedExperiment
from sipml_core.sharing.neighbours import (
    circuits_shared,
    groups_that_share,
    links_shared,
    parts_of_circuits,
)
from sipml_core.sharing.sharedresult import JobRow, NetworkSummary, SharedResult
from sipml_core.sharing.speeds import Placed, Speeds

__all__ = ["run_shared"]

#: Iterations that are left after rounding.
_NONE_LEFT = 1e-9
#: Part of the jobs beside one that have to have come or gone before it is simulated again.
RENEWED = 0.1


@attrs.define(eq=False)
class _Running:
    request: JobRequest
    placed: Placed
    start_us: float
    #: One iteration on an empty cluster, and now. [us]
    empty_us: float
    now_us: float
    done: float = 0.0
    #: Those that it shared links with when its speed was found; None: not found since it has been there.
    beside: frozenset[str] | None = None

    @property
    def left_us(self) -> float:
        return (self.request.iterations - self.done) * self.now_us


def run_shared(experiment: SharedExperiment, progress: Progress = SILENT) -> SharedResult:
    """Return what becomes of the jobs on each network."""
    rows: list[JobRow] = []
    summaries = []
    for which in range(len(experiment.interconnects)):
        share = progress.part(which, of=len(experiment.interconnects))
        life = _Life(experiment, which, share)
        life.go()
        rows += life.rows
        summaries.append(life.summary())
    return SharedResult(
        title=experiment.title,
        allocator=experiment.allocator.name,
        rows=tuple(rows),
        summaries=tuple(summaries),
    )


class _Life:
    """One network from the first arrival to the last end."""

    def __init__(self, experiment: SharedExperiment, which: int, progress: Progress) -> None:
        self.experiment, self.table, self.progress = experiment, experiment.table, progress
        self.interconnect = experiment.interconnects[which]
        self.gpus = experiment.cluster.gpus
        fabric = self.interconnect.topology.build(self.interconnect.cluster)
        self.speeds = Speeds(
            fabric=fabric,
            interconnect=self.interconnect,
            kinds=experiment.kinds,
            which=which,
            least_iterations=self.table.least_iterations,
            most_iterations=self.table.most_iterations,
        )
        self.units = tuple(size for _, size in fabric.hints.tiers)
        self.free = np.ones(self.gpus, bool)
        self.now_us = 0.0
        self.running: list[_Running] = []
        self.waiting: deque[tuple[int, JobRequest]] = deque()
        self.rows: list[JobRow] = []
        #: Kinds of jobs on an empty cluster.
        self.empty: dict[int, Placed | InfeasibleError] = {}
        self.used_us = self.split_us = 0.0

    def go(self) -> None:
        """Run until the last job has ended."""
        arrivals = deque(enumerate(self.experiment.jobs))
        total = len(arrivals)
        while arrivals or self.running or self.waiting:
            ends_us = [self.now_us + job.left_us for job in self.running]
            self._advance(min([request.arrival_us for _, request in islice(arrivals, 1)] + ends_us))
            self._end()
            while arrivals and arrivals[0][1].arrival_us <= self.now_us:
                self.waiting.append(arrivals.popleft())
            self._start()
            self._set_speeds()
            self.progress.at(len(self.rows) / total)
        order = {job.name: k for k, job in enumerate(self.experiment.jobs)}
        self.rows.sort(key=lambda row: order[row.job])

    def _advance(self, until_us: float) -> None:
        """Let all jobs run until then."""
        passed_us = max(until_us - self.now_us, 0.0)
        for job in self.running:
            job.done += passed_us / job.now_us
        self.used_us += passed_us * float((~self.free).sum())
        self.split_us += passed_us * split_part(self.free)
        self.now_us = max(until_us, self.now_us)

    def _end(self) -> None:
        for job in [
            job
            for job in self.running
            if job.request.iterations - job.done <= _NONE_LEFT * job.request.iterations
        ]:
            self.running.remove(job)
            self.free[job.placed.gpus] = True
            request = job.request
            self.rows.append(
                self._row(
                    request,
                    start_us=job.start_us,
                    end_us=self.now_us,
                    alone_us=job.empty_us,
                    placed_us=job.placed.alone_us,
                    iteration_us=(self.now_us - job.start_us) / request.iterations,
                    gpus_at=ranges(job.placed.gpus),
                )
            )

    def _row(self, request: JobRequest, **fields: object) -> JobRow:
        (job,) = self.experiment.kinds[request.kind].jobs
        return JobRow(
            topology=self.interconnect.label,
            job=request.name,
            workload=job.label,
            gpus=request.gpus,
            iterations=request.iterations,
            arrival_us=request.arrival_us,
            **fields,  # type: ignore[arg-type]
        )

    def _start(self) -> None:
        """Give GPUs to those that wait, in order, as far as there are any."""
        held: deque[tuple[int, JobRequest]] = deque()
        while self.waiting:
            number, request = self.waiting.popleft()
            try:
                empty = self._on_empty(number, request)
                placed = self._allocated(number, request)
                if placed is None and not self.running:
                    raise InfeasibleError("no GPUs that it can run on are found even while no other job runs")
                if placed is None:
                    held.append((number, request))
                    if self.table.order == "fifo":
                        break
                    continue
            except SipmlError as error:
                if not isinstance(error, InfeasibleError):
                    raise
                self.rows.append(self._row(request, status=INFEASIBLE, reason=str(error)))
                continue
            self.free[placed.gpus] = False
            self.running.append(
                _Running(
                    request=request, placed=placed, start_us=self.now_us, empty_us=empty.alone_us,
                    now_us=placed.alone_us,
                )
            )  # fmt: skip
        self.waiting = held + self.waiting

    def _on_empty(self, number: int, request: JobRequest) -> Placed:
        """Return the job as it would run on an empty cluster; `InfeasibleError` if it never fits."""
        if request.kind not in self.empty:
            self.empty[request.kind] = self._found_on_empty(number, request)
        found = self.empty[request.kind]
        if isinstance(found, InfeasibleError):
            raise found
        return found

    def _found_on_empty(self, number: int, request: JobRequest) -> Placed | InfeasibleError:
        """Return the job on the first GPUs that do, those of one block before others on circuits."""
        found = self._proposed(np.ones(self.gpus, bool), number, request)
        if not found:
            return InfeasibleError(
                f"allocator {self.experiment.allocator.name!r} finds no {request.gpus} GPUs "
                f"even on an empty cluster of {self.gpus}"
            )
        refusals = []
        for gpus in reversed(found):
            try:
                return self.speeds.placed(request.kind, gpus)
            except InfeasibleError as error:
                refusals.append(error)
        return refusals[0]

    def _proposed(self, free: NDArray[np.bool_], number: int, request: JobRequest) -> list[NDArray[np.int32]]:
        """Return the GPUs that a job may have, in the order in which they are tried.

        A block, where a switch in front maps GPUs to any place. Otherwise what the allocator chooses, and,
        where circuits may not join that, the shortest gap that holds the job.
        """
        allocator, units = self.experiment.allocator, self.units
        chosen = allocator.allocate(free.copy(), request.gpus, units=units, number=number)
        gap = None
        if self.table.front_switch:
            if chosen is not None and not is_block(chosen):
                chosen = shortest_gap(free, request.gpus)
        elif self.speeds.placed_circuits:
            gap = shortest_gap(free, request.gpus)
        return [gpus for gpus in (chosen, gap) if gpus is not None]

    def _allocated(self, number: int, request: JobRequest) -> Placed | None:
        """Return the job on GPUs that are free; None: it has to wait."""
        found = self._proposed(self.free, number, request)
        if not found and self.table.front_switch and self.free.sum() >= request.gpus and self._gather():
            found = self._proposed(self.free, number, request)
        if not self.speeds.placed_circuits:
            return self.speeds.placed(request.kind, found[0]) if found else None
        for gpus in found:
            with suppress(InfeasibleError):
                placed = self.speeds.placed(request.kind, gpus)
                self._divide([*(job.placed for job in self.running), placed])
                return placed
        return None

    def _divide(self, jobs: Sequence[Placed]) -> list[float]:
        """Return the time of an iteration of jobs that divide the circuits that they share. [jobs] [us]

        Raises
        ------
        InfeasibleError
            There are not enough circuits for all of them.
        """
        # In the order of their places, whoever they are.
        order = sorted(range(len(jobs)), key=lambda k: int(jobs[k].gpus.min()))
        parts = parts_of_circuits(circuits_shared([jobs[k].footprint for k in order]))
        times_us = [job.alone_us for job in jobs]
        for k, part in zip(order, parts.tolist(), strict=True):
            if part > 1:
                times_us[k] = self.speeds.divided_us(jobs[k], part)
        return times_us

    def _gather(self) -> bool:
        """Move running jobs together, in the order of their places: the front switch maps GPUs anew.

        Return whether it could be done: not where some job cannot run at its new place.
        """
        place = 0
        moved: list[tuple[_Running, Placed]] = []
        for job in sorted(self.running, key=lambda job: int(job.placed.gpus.min())):
            gpus = np.arange(place, place + len(job.placed.gpus), dtype=np.int32)
            place += len(gpus)
            try:
                moved.append((job, self.speeds.placed(job.placed.kind, gpus)))
            except InfeasibleError:
                return False
        for job, placed in moved:
            job.placed, job.beside = placed, None
        self.free[:] = np.arange(self.gpus) >= place
        return True

    def _set_speeds(self) -> None:
        """Find the time of an iteration of every job among those that it shares links or circuits with."""
        jobs = sorted(self.running, key=lambda job: (job.request.arrival_us, job.request.name))
        placed = [job.placed for job in jobs]
        shared = links_shared([each.footprint for each in placed], self.speeds.fabric.link_gbps)
        if self.speeds.fabric.circuits is not None:
            if shared.any():
                raise ConfigError(
                    f"topology {self.interconnect.label!r}: jobs would share links beside circuits, which is "
                    "not modelled; take packets or circuits alone"
                )
            for job, iteration_us in zip(jobs, self._divide(placed), strict=True):
                job.now_us = iteration_us
            return
        names = [job.request.name for job in jobs]
        beside = [frozenset(names[k] for k in np.flatnonzero(row)) for row in shared]
        due = np.array([is_due(job.beside, now) for job, now in zip(jobs, beside, strict=True)], np.bool_)
        for job, now in zip(jobs, beside, strict=True):
            if not now:
                job.now_us, job.beside = job.placed.alone_us, now

        # Those that are due, with all that they share links with. The others among these press on them, and
        # are renewed as well if nearly all that they share links with are there.
        there = np.flatnonzero(due | shared[due].any(axis=0))
        for group in groups_that_share(shared[np.ix_(there, there)]):
            members = there[group]
            offsets = [(1 - jobs[k].done % 1.0) % 1.0 * placed[k].alone_us for k in members]
            found = self.speeds.together_us([placed[k] for k in members], offsets)
            inside = frozenset(names[k] for k in members)
            for k, iteration_us in zip(members, found, strict=True):
                if due[k] or not is_due(beside[k], beside[k] & inside):
                    jobs[k].now_us, jobs[k].beside = float(iteration_us), beside[k]

    def summary(self) -> NetworkSummary:
        """Return what all jobs together came to."""
        ran = [row for row in self.rows if row.status == OK]
        waited = [row.waited_us or 0.0 for row in ran]
        slow = [row.slowdown or 1.0 for row in ran]
        return NetworkSummary(
            topology=self.interconnect.label,
            makespan_us=self.now_us,
            utilisation=self.used_us / (self.gpus * self.now_us) if self.now_us else 0.0,
            fragmentation=self.split_us / self.now_us if self.now_us else 0.0,
            waited_us=float(np.mean(waited)) if ran else 0.0,
            slowdown=float(np.mean(slow)) if ran else 1.0,
            slowest=max(slow, default=1.0),
            infeasible=len(self.rows) - len(ran),
            simulated_together=self.speeds.simulated,
        )


def is_due(before: frozenset[str] | None, now: frozenset[str]) -> bool:
    """Return whether a job is to be simulated again: a tenth of those beside it, or more, have come or gone.

    >>> a, ab = frozenset("a"), frozenset("ab")
    >>> is_due(None, frozenset()), is_due(ab, a), is_due(a, a)
    (True, True, False)
    >>> is_due(frozenset("abcdefghijkl"), frozenset("abcdefghijk"))
    False
    """
    if before is None:
        return True
    changed = len(before ^ now)
    return changed > 0 and changed >= RENEWED * len(before | now)


def split_part(free: NDArray[np.bool_]) -> float:
    """Return the part of the free GPUs outside the longest run of free ones.

    >>> split_part(np.array([1, 0, 1, 1, 0, 1], bool))
    0.5
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(np.int8), [0]]))).reshape(-1, 2)
    lengths = edges[:, 1] - edges[:, 0]
    return 1.0 - float(lengths.max() / lengths.sum()) if len(lengths) else 0.0


def is_block(gpus: NDArray[np.int32]) -> bool:
    """Return whether GPUs are consecutive, in any order."""
    return int(np.ptp(gpus)) == len(gpus) - 1


def shortest_gap(free: NDArray[np.bool_], gpus: int) -> NDArray[np.int32] | None:
    """Return the first GPUs of the shortest gap that holds so many, the first of equally short ones.

    >>> shortest_gap(np.array([1, 1, 1, 0, 1, 1, 0, 1], bool), 2).tolist()
    [4, 5]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free.astype(np.int8), [0]]))).reshape(-1, 2)
    gaps = [(int(end - start), int(start)) for start, end in edges if end - start >= gpus]
    return np.arange(min(gaps)[1], min(gaps)[1] + gpus, dtype=np.int32) if gaps else None


def ranges(gpus: Iterable[int]) -> str:
    """Return GPUs as ranges of consecutive ones.

    >>> ranges([0, 1, 2, 7, 9, 8])
    '0-2 7-9'
    """
    there = np.unique(np.fromiter((int(gpu) for gpu in gpus), np.int64))
    parts = np.split(there, np.flatnonzero(np.diff(there) > 1) + 1)
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
