"""Placement of sub-ops on the devices of a group: Algorithm 1 of the paper (section 3.2, ii)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import between, frozen, one_of, option
from sipml_core.model import BalancedGraph, Placement, PlacementLimits
from sipml_core.placement.limits import hops_between, reach_table
from sipml_core.placement.placementunits import PlacementUnits, merge
from sipml_core.plugin import Placer

#: Starts that differ by less, relative to the time, are equal: sums of the same slices may round apart.
_EQUAL = 1e-9


@frozen(kw_only=True)
class Algorithm1Options:
    """Options of `algorithm1`."""

    ties: str = option(
        "parent",
        doc='Among devices where a sub-op can start equally early: "lowest" index (the paper), '
        'or "parent", the one it exchanges most bytes with (ours: no traffic without need)',
        validator=one_of("parent", "lowest"),
    )
    visits: int = option(
        20,
        doc="Placements tried per sub-op, on average, before relocation is given up",
        validator=between(1, 1_000_000),
    )


class Algorithm1(Placer):
    """The paper's Algorithm 1.

    Sub-ops are visited in topological order, the parts of an op together. Parents that are placed
    allow the devices within the range limit around them; in the intersection a sub-op takes the
    device where it starts earliest. If the intersection is empty, parents are moved and the visit
    starts again at the first that moved. Backward and optimizer sub-ops sit with the forward part
    they follow, and their edges bind it as its own do, so the limits hold for every data edge.

    Where a sub-op is to be put whose parents are too far apart is left open by the paper, and whether
    relocation ends. Here it is device 0, and what is moved never goes further from it again, so
    relocation does end (`_Visit._relocate`); `visits` bounds how long it may take.

    Where that bound is met, sub-ops are placed in a window of adjacent devices that may all talk to
    each other. That placement is also taken when its forward pass would end sooner than the
    relocated one's, transfers not counted: a chain of all-to-all exchanges, for instance, is pulled
    onto few devices by the visit's order (ours; the paper has no such comparison).
    """

    name = "algorithm1"
    summary = "Algorithm 1 of the SiP-ML paper: earliest device within the range limit, with relocation"
    Options = Algorithm1Options

    def place(self, graph: BalancedGraph, limits: PlacementLimits) -> Placement:
        """See `Placer.place`. Never infeasible: a window of one device always satisfies the limits."""
        if limits.devices == 1:
            return Placement(graph=graph, limits=limits, device=np.zeros(graph.subops))
        units, reach = merge(graph), reach_table(limits)
        prefer_parent = self.options.ties == "parent"
        visit = best = _Visit(units, reach, prefer_parent, devices=limits.devices)
        converged = visit.run(budget=self.options.visits * units.count)
        if limits.range_hops is not None and visit.relocations:
            window = _Visit(units, reach, prefer_parent, devices=limits.range_hops + 1)
            window.run(budget=units.count)
            if not converged or window.makespan_us < visit.makespan_us:
                best = window
        return Placement(
            graph=graph,
            limits=limits,
            device=best.device[units.unit],
            converged=converged,
            relocations=visit.relocations,
        )


class _Visit:
    """One run over the placement units, with what it knows so far."""

    def __init__(
        self, units: PlacementUnits, reach: NDArray[np.bool_], prefer_parent: bool, devices: int
    ) -> None:
        self.relocations = 0
        self.device = np.zeros(units.count, dtype=np.int32)
        self._units = units
        self._prefer_parent = prefer_parent
        self._reach = reach
        self._usable = np.arange(len(reach)) < devices
        self._limited = not reach.all()
        self._free_us = np.zeros(len(reach))
        self._finish_us = np.zeros(units.count)
        self._hops = hops_between(len(reach))
        self._range = int(self._hops[reach].max())
        #: Furthest from device 0 that relocation leaves each unit. [units] [hops]
        self._bound = np.full(units.count, len(reach))

    @property
    def makespan_us(self) -> float:
        """Return when the last forward sub-op ends, transfers not counted. [us]"""
        return float(self._finish_us.max(initial=0.0))

    def run(self, budget: int) -> bool:
        """Place every unit, visiting `budget` at most; False if that was not enough."""
        unit = 0
        while unit < self._units.count:
            if budget == 0:
                return False
            budget -= 1
            allowed = self._allowed(unit)
            if allowed.any():
                ready_us = self._ready_us(unit)
                self._put(unit, self._choose(unit, allowed, ready_us), ready_us)
                unit += 1
            else:
                unit = self._relocate(unit)
                self._rewind(unit)
        return True

    def _earlier(self, unit: int) -> slice:
        start = self._units.start[unit]
        return slice(start, start + self._units.earlier[unit])

    def _allowed(self, unit: int) -> NDArray[np.bool_]:
        """Return devices within range of every placed neighbour. [devices]"""
        if not self._limited:
            return self._usable
        parents = self._units.near[self._earlier(unit)]
        near = self._reach[self.device[parents]].all(axis=0) & (self._hops[0] <= self._bound[unit])
        return np.asarray(near & self._usable)

    def _ready_us(self, unit: int) -> float:
        span = self._earlier(unit)
        parents = self._units.near[span][self._units.waits[span]]
        return float(self._finish_us[parents].max(initial=0.0))

    def _choose(self, unit: int, allowed: NDArray[np.bool_], ready_us: float) -> int:
        """Return the device with the earliest start; ties as the options say, then the lowest index."""
        start_us = np.where(allowed, np.maximum(self._free_us, ready_us), np.inf)
        earliest = start_us <= start_us.min() * (1 + _EQUAL)
        if not self._prefer_parent:
            return int(earliest.argmax())
        span = self._earlier(unit)
        pull = np.bincount(
            self.device[self._units.near[span]], self._units.size_bytes[span], minlength=len(allowed)
        )
        return int(np.where(earliest, pull, -1.0).argmax())

    def _put(self, unit: int, device: int, ready_us: float) -> None:
        self.device[unit] = device
        start_us = max(ready_us, self._free_us[device])
        self._finish_us[unit] = self._free_us[device] = start_us + self._units.duration_us[unit]

    def _relocate(self, unit: int) -> int:
        """Put a unit that no device suits on device 0, and move its ancestors within range.

        Ancestors are taken backwards: one out of range of later units that moved goes to the nearest
        device that suits them all and is closer to device 0. From then on it stays at least that
        close, and the parents stay within range of device 0. One parent at least was not, so each
        call tightens a bound, and relocation ends. Returns the first unit to place anew.
        """
        parents = self._units.near[self._earlier(unit)]
        first = int(parents[self._hops[0, self.device[parents]] > self._range].min())
        self._bound[parents] = np.minimum(self._bound[parents], self._range)
        self.device[unit] = 0
        demands: dict[int, list[int]] = {}
        moved: int | None = unit
        while moved is not None:
            first = min(first, moved)
            for ancestor in self._units.near[self._earlier(moved)].tolist():
                demands.setdefault(ancestor, []).append(int(self.device[moved]))
            moved = self._move_next(demands)
        return first

    def _move_next(self, demands: dict[int, list[int]]) -> int | None:
        """Move the last unit that breaks a demand and can be moved; None if none is left."""
        while demands:
            unit = max(demands)
            suits = np.logical_and.reduce(self._reach[demands.pop(unit)])
            here = int(self.device[unit])
            closer = suits & (self._hops[0] < self._hops[0, here])
            if suits[here] or not closer.any():
                continue
            self.device[unit] = np.where(closer, self._hops[here], len(closer)).argmin()
            self._bound[unit] = self._hops[0, self.device[unit]]
            self.relocations += 1
            return unit
        return None

    def _rewind(self, unit: int) -> None:
        """Forget the times of `unit` and all after it."""
        self._finish_us[unit:] = 0.0
        self._free_us[:] = 0.0
        np.maximum.at(self._free_us, self.device[:unit], self._finish_us[:unit])
