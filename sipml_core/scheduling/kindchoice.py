"""Which kinds of traffic are to share circuits, by estimate: each change costs time in the dark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS
from sipml_core.model import CircuitPlan
from sipml_core.scheduling.jobphases import circuit_bytes
from sipml_core.scheduling.kindphases import Bursts, reasons_of

#: Which circuits each kind of burst has: those with the same number share them.
Sharing = dict[int, int]


@attrs.frozen(kw_only=True, eq=False)
class _InForce:
    """A plan, what each circuit of the network gets from it, and how long it was dark. [circuits]"""

    #: The same for equal capacities only.
    number: int
    plan: CircuitPlan
    gbps: NDArray[np.float64]
    dark_us: NDArray[np.float64]


class KindEstimates:
    """Estimates how long the transfers of an iteration take if some kinds share circuits.

    Each stage sends one burst after the other, each as fast as the circuits of its run let it, and then the
    gradients. Circuits change where a run begins, if that is sooner than to keep them. What else a job does
    at the same time, and what tasks take, is left out, so that only differences count.

    Parameters
    ----------
    bursts
        Of the job; those of the first iteration count.
    plan
        Makes a plan for demands [circuits], given the one before.
    carried
        Circuits that are planned for at all. [circuits]
    """

    def __init__(
        self,
        bursts: Bursts,
        plan: Callable[[NDArray[np.float64], CircuitPlan | None], CircuitPlan],
        carried: NDArray[np.bool_],
    ) -> None:
        self.bursts, self._plan, self._network = bursts, plan, bursts.network
        circuit, asked_bytes, start = bursts.asked()
        asked_bytes = np.where(carried[circuit], asked_bytes, 0.0)
        # Circuits and bytes of each burst; bursts that ask for the same have the same number. [bursts]
        spans = [slice(a, b) for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)]
        self._circuit = [circuit[span] for span in spans]
        self._bytes = [asked_bytes[span] for span in spans]
        known: dict[bytes, int] = {}
        rounded = asked_bytes.astype(np.float32)
        asked = [circuit[span].tobytes() + rounded[span].tobytes() for span in spans]
        self._alike = [known.setdefault(each, len(known)) for each in asked]
        first = np.zeros(bursts.tasks.transfers, dtype=np.bool_)
        gradients = bursts.gradients
        first[gradients[bursts.parts.iteration[gradients] == 0]] = True
        self._gradient_bytes = np.where(carried, circuit_bytes(bursts.network, bursts.tasks, first), 0.0)
        self._made: dict[tuple[object, object], _InForce] = {}
        self._plans = 0
        #: Times that were asked for before: of bursts like this under these capacities, and in all.
        self._bursts_us: dict[tuple[int, int], float] = {}
        self._known_us: dict[tuple[int, ...], float] = {}

    @property
    def kinds(self) -> list[int]:
        """Return the kinds of the bursts."""
        return sorted(set(self.bursts.kind.tolist()))

    @property
    def runs(self) -> int:
        """Return the most runs that any sharing makes."""
        return self.bursts.runs({kind: kind for kind in self.kinds}).count

    def once_us(self, plan: CircuitPlan) -> float:
        """Return how long transfers take with one plan. [us]"""
        settled = self._in_force(plan)
        taken_us = dict.fromkeys(self.bursts.stage.tolist(), 0.0)
        for burst in np.flatnonzero(self.bursts.iteration == 0).tolist():
            taken_us[int(self.bursts.stage[burst])] += self._burst_us(burst, settled)
        return max(taken_us.values(), default=0.0) + span_us(self._gradient_bytes, settled.gbps)

    def shared_us(self, sharing: Sharing) -> float:
        """Return how long transfers take where kinds with the same number share circuits. [us]"""
        first = {number: place for place, number in reversed(list(enumerate(sharing.values())))}
        known = tuple(first[number] for number in sharing.values())
        if known not in self._known_us:
            self._known_us[known] = self._taken_us(sharing)
        return self._known_us[known]

    def _taken_us(self, sharing: Sharing) -> float:
        """Return what `shared_us` does, going through the runs of the first iteration in order of their ends.

        At each, circuits are those of all runs that are under way, the current one of each stage; its stage
        takes the time of its bursts with these, and the time in the dark if they changed.
        """
        runs = self.bursts.runs(sharing)
        own = np.flatnonzero(self.bursts.iteration[runs.first[:-1]] == 0)
        stage = self.bursts.stage[runs.first[:-1]]
        # Runs of each stage that have not ended; what circuits in force are planned for, and were at first.
        left = {each: own[stage[own] == each].tolist() for each in sorted(set(stage[own].tolist()))}
        taken_us = dict.fromkeys(left, 0.0)
        now: _InForce | None = None
        key: object = None
        first: tuple[object, list[int]] | None = None
        for run in own[np.argsort(runs.end_us[own], kind="stable")].tolist():
            # The current run of each stage, the first that has not ended.
            current = [queue[0] for queue in left.values() if queue]
            bursts = [burst for each in current for burst in range(*runs.first[each : each + 2])]
            key, before = tuple(self._alike[burst] for burst in bursts), key
            now = self._changed(before, key, now, partial(self._sum, bursts))
            first = first or (key, bursts)
            mine = range(*runs.first[run : run + 2])
            of = int(stage[run])
            taken_us[of] += sum(self._burst_us(burst, now) for burst in mine)
            if before != key and before is not None:
                circuits = np.concatenate([self._circuit[burst] for burst in mine])
                taken_us[of] += float(now.dark_us[circuits].max(initial=0.0))
            left[of].remove(run)
        total_us = max(taken_us.values(), default=0.0)
        if first is None or not self._gradient_bytes.any():
            return total_us
        key_of_first, bursts = first
        last = self._changed(key, "gradients", now, lambda: self._gradient_bytes)
        again = self._changed("gradients", key_of_first, last, partial(self._sum, bursts))
        dark_us = sum(float(each.dark_us.max(initial=0.0)) for each in (last, again))
        return total_us + span_us(self._gradient_bytes, last.gbps) + dark_us

    def best(self) -> tuple[Sharing, float]:
        """Return which kinds are to share circuits, and how long transfers take then. [us]

        From circuits of its own for each, and from those of all that is sent for the same reasons, the two
        that gain the most share them, until no two gain; or all do.
        """
        apart = {kind: number for number, kind in enumerate(self.kinds)}
        by_reasons = {kind: reasons_of(kind) for kind in self.kinds}
        together = dict.fromkeys(self.kinds, 0)
        found = [
            self._merged_from(apart),
            self._merged_from(by_reasons),
            (together, self.shared_us(together)),
        ]
        return min(reversed(found), key=lambda each: each[1])

    def _merged_from(self, sharing: Sharing) -> tuple[Sharing, float]:
        """Return a table in which no two numbers gain by sharing, and how long transfers take then. [us]"""
        best_us = self.shared_us(sharing)
        while True:
            pairs = combinations(sorted(set(sharing.values())), 2)
            tried = [{kind: a if c == b else c for kind, c in sharing.items()} for a, b in pairs]
            times_us = [self.shared_us(each) for each in tried]
            if not tried or min(times_us) > best_us:
                return sharing, best_us
            best_us = min(times_us)
            sharing = tried[times_us.index(best_us)]

    def _changed(
        self, before: object, key: object, now: _InForce | None, demand: Callable[[], NDArray[np.float64]]
    ) -> _InForce:
        """Return what is in force when a run begins: the plan for it, or that of before if it is sooner."""
        if before == key and now is not None:
            return attrs.evolve(now, dark_us=np.zeros_like(now.dark_us))
        if (before, key) not in self._made:
            asked = demand()
            new = self._in_force(self._plan(asked, now.plan if now else None))
            if now is not None:
                new_us = span_us(asked, new.gbps) + float(new.dark_us.max(initial=0.0))
                if span_us(asked, now.gbps) <= new_us:
                    new = attrs.evolve(now, dark_us=np.zeros_like(now.dark_us))
            self._made[before, key] = new
        return self._made[before, key]

    def _sum(self, bursts: list[int]) -> NDArray[np.float64]:
        total = np.zeros(len(self._network.circuit_src))
        for burst in bursts:
            total[self._circuit[burst]] += self._bytes[burst]
        return total

    def _in_force(self, plan: CircuitPlan) -> _InForce:
        ends = self._network.circuit_src, self._network.circuit_dst
        assert plan.dark_us is not None
        dark_us = np.append(plan.dark_us, 0.0)[plan.row_of(*ends)]
        self._plans += 1
        return _InForce(number=self._plans, plan=plan, gbps=plan.capacity_gbps(*ends), dark_us=dark_us)

    def _burst_us(self, burst: int, now: _InForce) -> float:
        key = self._alike[burst], now.number
        if key not in self._bursts_us:
            self._bursts_us[key] = span_us(self._bytes[burst], now.gbps[self._circuit[burst]])
        return self._bursts_us[key]


def span_us(demand: NDArray[np.float64], gbps: NDArray[np.float64]) -> float:
    """Return the time in which all circuits have carried what is asked of them. [us]

    >>> span_us(np.array([2500.0, 0.0]), np.array([10.0, 0.0])), span_us(np.ones(1), np.zeros(1))
    (2.0, inf)
    """
    asked = demand > 0
    if not (gbps[asked] > 0).all():
        return float("inf")
    return float((demand[asked] / gbps[asked]).max(initial=0.0)) / BYTES_PER_US_PER_GBPS
