"""What a scheduler may decide on a ring."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import at_least, between, one_of
from sipml_core.model import CircuitControl, CircuitPlan, CircuitView, SharedMedia, check_form
from sipml_ring import kernel
from sipml_ring.lightpaths import MAX_WAVELENGTHS, Lightpaths
from sipml_ring.retuning import Retuning
from sipml_ring.turning import turn_into_themselves


@lru_cache
def _chain(gpus: int, reach_hops: int) -> tuple[int, ...]:
    """Return `RingCircuits.periods` of a whole ring, and the ring itself where it is one of them."""
    chain: list[int] = []
    if gpus <= 2 * reach_hops:
        return ()
    for period in range(reach_hops, gpus):
        if gpus % period == 0 and (not chain or period % chain[-1] == 0):
            chain.append(period)
    return tuple(chain)


@lru_cache
def _periods(gpus: int, reach_hops: int, segments: int) -> tuple[int, ...]:
    """Return `RingCircuits.periods` of a ring that has so many segments."""
    return tuple(p for p in _chain(gpus, reach_hops) if p < segments and segments % p == 0)


@lru_cache(maxsize=64)
def _over(control: RingCircuits, period: int) -> RingCircuits:
    """Return `RingCircuits.over`, which every plan asks for."""
    return attrs.evolve(control, period=period)


@attrs.frozen(kw_only=True, eq=False)
class RingCircuits(CircuitControl):
    """Wavelengths of a bidirectional ring of N GPUs.

    Segment s joins GPU s to GPU s + 1 mod N. A circuit from i to j occupies one wavelength on every
    segment from i to j in its direction, and an index carries at most one circuit on a segment and
    direction. So at most `clockwise` circuits leave, or reach, a GPU clockwise: the limit of its port
    needs no rule of its own.
    """

    #: Wavelengths in each direction.
    clockwise: int = attrs.field(validator=between(1, MAX_WAVELENGTHS))
    counterclockwise: int = attrs.field(validator=between(0, MAX_WAVELENGTHS))
    #: Segments that a circuit may span.
    reach_hops: int = attrs.field(validator=at_least(1))
    #: "continuous": the same index end to end. "converted": every GPU on the way may change it.
    wavelength: str = attrs.field(default="continuous", validator=one_of("continuous", "converted"))
    #: How long rings take to settle on another wavelength; None: always `reconfiguration_us`.
    retuning: Retuning | None = None
    #: Everything repeats after so many GPUs: traffic and plans are those of senders 0 .. period - 1.
    period: int | None = None

    @classmethod
    def of(cls, gpus: int, wavelengths: int, **fields: Any) -> RingCircuits:
        """Return a ring with half of a GPU's wavelengths in each direction; an odd one goes clockwise."""
        if not isinstance(wavelengths, (int, np.integer)) or wavelengths < 1:
            raise ConfigError(f"wavelengths must be at least 1, got {wavelengths!r}")
        half = int(wavelengths) // 2
        return cls(
            gpus=gpus,
            circuits_per_gpu=int(wavelengths),
            clockwise=int(wavelengths) - half,
            counterclockwise=half,
            **fields,
        )

    @property
    def segments(self) -> int:
        """Return the number of segments of the ring, or of one period of it."""
        return self.period or self.gpus

    @property
    def periods(self) -> tuple[int, ...]:
        """Return the shorter periods by which this ring may be planned, each dividing the next.

        The first is the least divisor of the ring that no circuit outreaches; there is none if some pair
        has a choice of directions. There is one such chain for a ring, so that a whole ring and one that
        is folded already settle on the same period.
        """
        return _periods(self.gpus, self.reach_hops, self.segments)

    def over(self, period: int) -> RingCircuits:
        """Return one period of this ring."""
        return _over(self, period)

    def folded(self, image: NDArray[np.int32]) -> RingCircuits | None:
        """Return one period of the ring where `image` turns it by one that it may be planned by."""
        period = int(image[0])
        turned = (np.arange(self.gpus) + period) % self.gpus
        return self.over(period) if period in self.periods and (image == turned).all() else None

    def hops(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the segments that each pair spans clockwise and counter-clockwise. [pairs, 2]"""
        clockwise = np.asarray(dst, np.int64) - src
        clockwise = clockwise + (clockwise < 0) * self.gpus
        return np.stack([clockwise, self.gpus - clockwise], axis=1)

    def allowed(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return the directions that each pair may use. [pairs, 2]"""
        usable = np.array([self.clockwise > 0, self.counterclockwise > 0])
        distinct = np.asarray(src) != np.asarray(dst)
        return (self.hops(src, dst) <= self.reach_hops) & usable & distinct[:, np.newaxis]

    def covers(
        self, src: NDArray[np.int32], dst: NDArray[np.int32], direction: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (segment, pair) wherever the arc of a pair in `direction` covers a segment.

        Examples
        --------
        On 4 GPUs 0 -> 2 crosses segments 0 and 1, 3 -> 0 crosses segment 3.

        >>> ring = RingCircuits.of(4, 2, circuit_gbps=25.0, reach_hops=2)
        >>> segment, pair = ring.covers(np.array([0, 3]), np.array([2, 0]), 0)
        >>> segment.tolist(), pair.tolist()
        ([0, 1, 3], [0, 0, 1])
        """
        hops = self.hops(src, dst)[:, direction]
        start = np.asarray(src if direction == 0 else dst, np.int64)  # where the arc begins, clockwise
        pair = np.repeat(np.arange(len(start)), hops)
        step = np.arange(len(pair)) - np.repeat(np.cumsum(hops) - hops, hops)  # along the arc, from 0
        return (start[pair] + step) % self.gpus, pair

    def media(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> SharedMedia:
        """Return the segments of the shorter direction that each pair may use, both where they are equal.

        Examples
        --------
        On 4 GPUs 0 -> 1 crosses segment 0 clockwise; half of 0 -> 2 crosses 0 and 1, and half of it 2 and 3
        the other way, which are media 6 and 7. Each fibre has a wavelength of 25 Gbps.

        >>> ring = RingCircuits.of(4, 2, circuit_gbps=25.0, reach_hops=2)
        >>> media = ring.media(np.array([0, 0]), np.array([1, 2]))
        >>> media.start.tolist(), media.medium.tolist(), media.weight.tolist()
        ([0, 1, 5], [0, 0, 1, 6, 7], [1.0, 0.5, 0.5, 0.5, 0.5])
        """
        hops = np.where(self.allowed(src, dst), self.hops(src, dst), 2 * self.gpus)
        used = hops == hops.min(axis=1, keepdims=True)  # [pairs, 2]
        part = used / used.sum(axis=1, keepdims=True)

        # Of each direction, the pairs that use it: the others would cross most of the ring.
        mine = [np.flatnonzero(used[:, direction]) for direction in (0, 1)]
        crossed = [self.covers(src[own], dst[own], direction) for direction, own in enumerate(mine)]
        pair = np.concatenate([own[each] for own, (_, each) in zip(mine, crossed, strict=True)])
        medium = np.concatenate([segment + d * self.gpus for d, (segment, _) in enumerate(crossed)])
        weight = part[pair, np.repeat([0, 1], [len(each) for _, each in crossed])]
        order = np.argsort(pair, kind="stable")
        return SharedMedia(
            start=np.concatenate([[0], np.cumsum(np.bincount(pair[order], minlength=len(hops)))]),
            medium=medium[order],
            weight=weight[order],
            gbps=np.repeat([self.clockwise, self.counterclockwise], self.gpus) * self.circuit_gbps,
        )

    def _arc(self, gpus: NDArray[np.int32]) -> tuple[int, RingCircuits]:
        """Return where the shortest arc that holds these GPUs begins, and a ring for what stays on it.

        The ring has so many GPUs beyond the arc that no circuit passes them. It is this one if there is no
        gap between them.
        """
        there = np.sort(gpus)
        gaps = np.diff(there, append=there[0] + self.gpus)
        widest = int(gaps.argmax())
        if gaps[widest] <= 1:
            return 0, self
        hops = self.gpus - int(gaps[widest])
        start = int(there[(widest + 1) % len(there)])
        return start, attrs.evolve(self, gpus=hops + 1 + self.reach_hops, period=None)

    def seen_by(self, gpus: NDArray[np.int32]) -> CircuitView:
        """Return the circuits of a job, which stay on the shortest arc that holds its GPUs.

        >>> ring = RingCircuits.of(64, 8, circuit_gbps=25.0, reach_hops=3)
        >>> view = ring.seen_by(np.array([62, 63, 0, 1]))
        >>> view.members.tolist(), view.whole.gpus
        ([0, 1, 2, 3], 7)
        """
        start, arc = self._arc(gpus)
        return CircuitView.of(arc, np.asarray((gpus - start) % self.gpus, np.int32))

    def contested(
        self, gpus: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return the segments that circuits of a job may cross: those counter-clockwise from N on.

        >>> ring = RingCircuits.of(8, 2, circuit_gbps=25.0, reach_hops=3)
        >>> ring.contested(np.array([6, 7, 0]), np.array([6, 0]), np.array([0, 7])).tolist()
        [6, 7, 15]
        """
        start, arc = self._arc(gpus)
        a, b = ((np.asarray(ends) - start) % self.gpus for ends in (src, dst))
        found = []
        for direction in (0, 1):
            mine = np.flatnonzero(arc.allowed(a, b)[:, direction])
            segment, _ = arc.covers(a[mine], b[mine], direction)
            found.append((segment + start) % self.gpus + direction * self.gpus)
        return np.unique(np.concatenate(found))

    def divided(self, parts: int) -> RingCircuits | None:
        """Return the same ring with a part of the wavelengths of either direction."""
        ways = (self.clockwise, self.counterclockwise)
        clockwise, counterclockwise = (way // parts for way in ways)
        if any(part < min(way, 1) for part, way in zip((clockwise, counterclockwise), ways, strict=True)):
            return None
        return attrs.evolve(
            self,
            clockwise=clockwise,
            counterclockwise=counterclockwise,
            circuits_per_gpu=clockwise + counterclockwise,
        )

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        clockwise = np.asarray(dst) - src
        clockwise = clockwise + (clockwise < 0) * np.int32(self.gpus)
        near = (clockwise <= self.reach_hops) & (self.clockwise > 0)
        if self.counterclockwise > 0:
            near |= clockwise >= self.gpus - self.reach_hops
        return np.asarray(near & (clockwise > 0), dtype=np.bool_)

    def check(self, plan: CircuitPlan) -> None:
        """Refuse circuits that meet: on a segment and direction an index carries one at most.

        With conversion, no segment carries more circuits than wavelengths, and no sender uses an index
        twice. Port limits follow: all circuits that leave, or reach, a GPU in one direction share a segment.
        """
        if self._is_sound(plan):
            return
        check_form(self, plan)
        # A plan that repeats has the circuits of one period, and says after how many GPUs.
        circuits, period = getattr(plan, "period_circuits", None), getattr(plan, "period", self.segments)
        if circuits is None:
            circuits, period = getattr(plan, "circuits", None), self.segments
        if not isinstance(circuits, Lightpaths):
            raise PluginError(
                f"a {type(plan).__name__} does not say which wavelengths it uses on the ring: make a RingPlan"
            )
        part = self
        if period != self.segments:
            if period not in self.periods or not self._repeats(plan, period):
                raise PluginError(f"the plan does not repeat after {period} GPUs")
            part = _over(self, period)
        pairs = int(np.searchsorted(plan.src, period))
        each = np.bincount(circuits.pair, minlength=pairs) * self.circuit_gbps
        if len(each) != pairs or (np.abs(each - plan.gbps[:pairs]) > 1e-9 * each).any():
            raise PluginError("the plan's wavelengths are not its capacities")
        if len(circuits.src) != pairs or len(circuits.dst) != pairs:
            raise PluginError("the plan's wavelengths are of other pairs than its capacities")
        if (circuits.src != plan.src[:pairs]).any() or (circuits.dst != plan.dst[:pairs]).any():
            raise PluginError("the plan's wavelengths are of other pairs than its capacities")
        try:
            kernel.check(part, circuits)
        except ConfigError as error:
            raise PluginError(f"the plan cannot exist: {error}") from None

    def _is_sound(self, plan: CircuitPlan) -> bool:
        """Return whether a plan keeps all rules, by one look in C; False: look at it rule by rule."""
        circuits = getattr(plan, "period_circuits", None)
        if not isinstance(circuits, Lightpaths) or getattr(plan, "period", None) != self.segments:
            return False
        if plan.gpus != self.gpus or plan.kept_gbps is None or plan.dark_us is None:
            return False
        if plan.src is not circuits.src or plan.dst is not circuits.dst:  # as in a plan that was made here
            return False
        given = kernel.Capacities(plan.gbps, plan.kept_gbps, plan.dark_us)
        return kernel.is_sound(self, circuits, self.circuit_gbps, given)

    def _repeats(self, plan: CircuitPlan, period: int) -> bool:
        """Return whether a turn by `period` takes the capacities of a plan to themselves."""
        return turn_into_themselves(
            plan.src,
            plan.dst,
            plan.gbps,
            gpus=self.gpus,
            period=period,
            segments=self.segments,
            tolerance=0.0,
        )
