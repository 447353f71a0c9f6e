"""Which kinds of traffic are to share circuits, by estimate: each change costs time in the dark."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, partial
from itertools import combinations
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, frozen
from sipml_core.model import CircuitControl, CircuitPlan
from sipml_core.scheduling.jobphases import circuit_bytes
from sipml_core.scheduling.kindphases import Bursts, reasons_of

#: Times closer than this, relatively, are the same.
_SAME_TIME = 1e-9

#: Which circuits each kind of burst has: those with the same number share them.
Sharing = dict[int, int]


@frozen(kw_only=True, eq=False)
class _InForce:
    """A plan, what each circuit of the network gets from it, and how long it was dark. [circuits]"""

    #: The same for plans that are equal in all that they hold.
    number: int
    plan: CircuitPlan
    gbps: NDArray[np.float64]
    dark_us: NDArray[np.float64]

    def lit(self) -> _InForce:
        """Return the same with no circuit dark."""
        return attrs.evolve(self, dark_us=np.zeros_like(self.dark_us))


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
    port_gbps
        What all circuits of a GPU carry, those that begin there or those that end there.
    change_us
        How long a circuit that changes is dark; one that changes sooner is not told from that where no plan
        could be sooner than what is in force by as much.
    """

    def __init__(
        self,
        bursts: Bursts,
        plan: Callable[[NDArray[np.float64], CircuitPlan | None], CircuitPlan],
        carried: NDArray[np.bool_],
        *,
        port_gbps: float,
        change_us: float,
    ) -> None:
        self.bursts, self._plan, self._network = bursts, plan, bursts.network
        self._port_gbps, self._change_us = port_gbps, change_us
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
        #: What is in force after one of these plans, by its number, when a run begins that asks for this.
        self._made: dict[tuple[int, object], _InForce] = {}
        self._numbers: dict[object, int] = {}
        #: Times that were asked for before: of bursts like this under these plans, and in all.
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

    def shared_us(self, sharing: Sharing, limit_us: float = float("inf")) -> float:
        """Return how long transfers take where kinds with the same number share circuits. [us]

        Infinite where that is longer than a limit.
        """
        first = {number: place for place, number in reversed(list(enumerate(sharing.values())))}
        known = tuple(first[number] for number in sharing.values())
        if known in self._known_us:
            return self._known_us[known]
        taken_us = self._taken_us(sharing, limit_us)
        if taken_us <= limit_us:
            self._known_us[known] = taken_us
            return taken_us
        return float("inf")

    def _taken_us(self, sharing: Sharing, limit_us: float) -> float:
        """Return what `shared_us` does, going through the runs of the first iteration in order of their ends.

        At each, circuits are those of all runs that are under way, the current one of each stage; its stage
        takes the time of its bursts with these, and the time in the dark if they changed. Ends where the
        time so far, which only grows, exceeds the limit.
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
            now = self._changed(now, key, partial(self._sum, bursts), stays=before == key)
            first = first or (key, bursts)
            mine = range(*runs.first[run : run + 2])
            of = int(stage[run])
            taken_us[of] += sum(self._burst_us(burst, now) for burst in mine)
            if before != key and before is not None:
                circuits = np.concatenate([self._circuit[burst] for burst in mine])
                taken_us[of] += float(now.dark_us[circuits].max(initial=0.0))
            if taken_us[of] > limit_us:
                return taken_us[of]
            left[of].remove(run)
        total_us = max(taken_us.values(), default=0.0)
        if first is None or not self._gradient_bytes.any():
            return total_us
        key_of_first, bursts = first
        last = self._changed(now, "gradients", lambda: self._gradient_bytes)
        again = self._changed(last, key_of_first, partial(self._sum, bursts))
        dark_us = sum(float(each.dark_us.max(initial=0.0)) for each in (last, again))
        return total_us + span_us(self._gradient_bytes, last.gbps) + dark_us

    def best(self) -> tuple[Sharing, float]:
        """Return which kinds are to share circuits, and how long transfers take then. [us]

        From circuits of its own for each, and from those of all that is sent for the same reasons, the two
        that gain the most share them, until no two gain; or all do. Of those that are estimated to take as
        long, the most that have circuits of their own.
        """
        apart = {kind: number for number, kind in enumerate(self.kinds)}
        by_reasons = {kind: reasons_of(kind) for kind in self.kinds}
        together = dict.fromkeys(self.kinds, 0)
        found = [
            self._merged_from(apart),
            self._merged_from(by_reasons),
            (together, self.shared_us(together)),
        ]
        least_us = min(taken_us for _, taken_us in found)
        return next(each for each in found if each[1] <= least_us * (1 + _SAME_TIME))

    def _merged_from(self, sharing: Sharing) -> tuple[Sharing, float]:
        """Return a table in which no two numbers gain by sharing, and how long transfers take then. [us]"""
        best_us = self.shared_us(sharing)
        while True:
            gained = None
            for a, b in combinations(sorted(set(sharing.values())), 2):
                tried = {kind: a if number == b else number for kind, number in sharing.items()}
                taken_us = self.shared_us(tried, best_us)
                if taken_us < best_us * (1 - _SAME_TIME):
                    gained, best_us = tried, taken_us
            if gained is None:
                return sharing, best_us
            sharing = gained

    def _changed(
        self,
        now: _InForce | None,
        key: object,
        demand: Callable[[], NDArray[np.float64]],
        *,
        stays: bool = False,
    ) -> _InForce:
        """Return what is in force when a run begins: the plan for it, or that of before if it is sooner.

        `key` tells demands apart; `stays`: it is that of the run before.
        """
        if now is not None and stays:
            return now.lit()
        made = 0 if now is None else now.number, key
        if made not in self._made:
            self._made[made] = self._sooner(now, demand())
        return self._made[made]

    def _sooner(self, now: _InForce | None, asked: NDArray[np.float64]) -> _InForce:
        """Return a plan for a demand, or what is in force if that has carried it no later."""
        if now is None:
            return self._in_force(self._plan(asked, None))
        keep_us = span_us(asked, now.gbps)
        # No plan is made where none can be sooner: a circuit more is dark first, and ports limit all plans.
        if keep_us > self._port_us(asked) + self._change_us:
            new = self._in_force(self._plan(asked, now.plan))
            if span_us(asked, new.gbps) + float(new.dark_us.max(initial=0.0)) < keep_us:
                return new
        return now.lit()

    def _port_us(self, asked: NDArray[np.float64]) -> float:
        """Return the time in which the ports of the GPUs carry a demand. [us]"""
        ends = self._network.circuit_src, self._network.circuit_dst
        most_bytes = max(np.bincount(end, asked).max(initial=0.0) for end in ends)
        return float(most_bytes) / self._port_gbps / BYTES_PER_US_PER_GBPS

    def _sum(self, bursts: list[int]) -> NDArray[np.float64]:
        total = np.zeros(len(self._network.circuit_src))
        for burst in bursts:
            total[self._circuit[burst]] += self._bytes[burst]
        return total

    def _in_force(self, plan: CircuitPlan) -> _InForce:
        assert plan.dark_us is not None
        row = plan.row_of(self._network.circuit_src, self._network.circuit_dst)
        gbps, dark_us = (np.append(values, 0.0)[row] for values in (plan.gbps, plan.dark_us))
        number = self._numbers.setdefault(_content(plan), len(self._numbers) + 1)
        return _InForce(number=number, plan=plan, gbps=gbps, dark_us=dark_us)

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


def _content(value: object) -> object:
    """Return what is equal for plans that hold the same, field by field and number by number.

    >>> import numpy as np
    >>> plans = [CircuitPlan(gpus=3, src=[0], dst=[1], gbps=[gbps]) for gbps in (10.0, 10.0, 20.0)]
    >>> _content(plans[0]) == _content(plans[1]), _content(plans[0]) == _content(plans[2])
    (True, False)
    """
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(_content(each) for each in value)
    if attrs.has(type(value)) and not isinstance(value, CircuitControl):
        kind: Any = type(value)
        return kind, *(_content(getattr(value, name)) for name in _names(kind))
    return value if isinstance(value, Hashable) else _Itself(value)


class _Itself:
    """Something that is equal to itself alone; it lives as long as this does."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a class of attrs."""
    return tuple(field.name for field in attrs.fields(kind))
