"""A plan for a ring: who holds which wavelength in which direction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import float64_vector, int32_matrix, int32_vector
from sipml_core.model import CircuitOccupancy, CircuitPlan, TrafficMatrix
from sipml_ring.bound import lp_bound
from sipml_ring.circuits import RingCircuits
from sipml_ring.lightpaths import Lightpaths
from sipml_ring.turning import turned_circuits


def same_pairs(traffic: TrafficMatrix, other: TrafficMatrix) -> bool:
    """Return whether two matrices have demands of the same pairs; those that share their arrays at no cost.

    >>> matrix = TrafficMatrix(gpus=3, src=[0, 1], dst=[1, 2], demand=[1.0, 2.0])
    >>> same_pairs(matrix, matrix.with_demand(np.array([5.0, 6.0])))
    True
    >>> same_pairs(matrix, attrs.evolve(matrix, dst=[2, 0]))
    False
    """
    if traffic.src is other.src and traffic.dst is other.dst:
        return True
    return np.array_equal(traffic.src, other.src) and np.array_equal(traffic.dst, other.dst)


@attrs.frozen(kw_only=True, eq=False)
class RingPlan(CircuitPlan):
    """Circuits of ordered pairs on a ring.

    Pairs are those that hold a circuit: demanded ones, and pairs of the previous plan that nobody asks
    for now and whose wavelengths nobody needs (`demand` 0).
    """

    kept_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    control: RingCircuits
    #: What was asked for.
    traffic: TrafficMatrix
    algorithm: str
    #: [pairs], in the unit of `traffic`.
    demand: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Circuits clockwise and counter-clockwise. [pairs, 2]
    count: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    #: Circuits of the pairs whose senders are GPUs 0 to `period` - 1; those of others are their images.
    period_circuits: Lightpaths
    #: Rows of `traffic` without a circuit.
    unserved: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Plans in a row, this one included, in which each of them had none.
    waited: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Whether the minimum is proved to be the largest possible; None: the algorithm does not say.
    proved: bool | None = None
    #: The plan repeats after so many GPUs; all of them if it does not.
    period: int

    @classmethod
    def made(cls, **fields: Any) -> RingPlan:
        """Return a plan of all its fields: arrays that the kernel has written, of the right type and shape.

        Nothing of it is converted; it is checked as every plan is (`RingCircuits.check`).
        """
        plan = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(plan, name, value)
        return plan

    def with_fields(self, **changes: Any) -> RingPlan:
        """Return the same plan but for some fields, see `made`."""
        return RingPlan.made(**dict(zip(_FIELDS, _fields_of(self), strict=True)) | changes)

    def stays(self, previous: CircuitPlan) -> bool:
        """Return whether every pair has the wavelengths that it had, and nothing is dark."""
        if not isinstance(previous, RingPlan):
            return False
        if self.period_circuits is previous.period_circuits and self.kept_gbps is self.gbps is previous.gbps:
            return not np.count_nonzero(self.dark_us)  # made from that plan
        if self.kept_gbps.tobytes() != self.gbps.tobytes():
            return False
        mine, before = self.period_circuits, previous.period_circuits
        if self.period != previous.period:
            mine, before = self.circuits, previous.circuits
        return (
            not self.dark_us.any()
            and np.array_equal(mine.index, before.index)
            and np.array_equal(mine.pair, before.pair)
            and np.array_equal(mine.direction, before.direction)
            and np.array_equal(self.dst, previous.dst)
            and np.array_equal(self.src, previous.src)
            and np.array_equal(self.gbps, previous.gbps)
        )

    @cached_property
    def circuits(self) -> Lightpaths:
        """Return all circuits with their wavelengths."""
        if self.period == self.control.segments:
            return self.period_circuits
        return turned_circuits(
            self.period_circuits,
            gpus=self.control.gpus,
            period=self.period,
            segments=self.control.segments,
        )

    @property
    def circuit_pair(self) -> NDArray[np.int32]:
        """Return the row of the pair that each circuit serves, ascending. [circuits]"""
        return self.circuits.pair

    @property
    def circuit_direction(self) -> NDArray[np.int32]:
        """Return 0 for circuits that go clockwise, 1 for others. [circuits]"""
        return self.circuits.direction

    @property
    def circuit_index(self) -> NDArray[np.int32]:
        """Return the wavelength of each circuit; with conversion, that of the sender. [circuits]"""
        return self.circuits.index

    @property
    def unserved_pairs(self) -> list[tuple[int, int]]:
        """Return (source, destination) of demands without a circuit: they come first in the next plan."""
        src, dst = self.traffic.src[self.unserved], self.traffic.dst[self.unserved]
        return list(zip(src.tolist(), dst.tolist(), strict=True))

    @cached_property
    def minimum_ratio(self) -> float:
        """Return the least capacity per unit of demand over the pairs served. [Gbps per unit of demand]

        0 if nothing was demanded.
        """
        asked = self.demand > 0
        return float((self.gbps[asked] / self.demand[asked]).min(initial=np.inf)) if asked.any() else 0.0

    @cached_property
    def total_gbps(self) -> float:
        """Return the capacity of all demanded pairs. [Gbps]"""
        return float(self.gbps[self.demand > 0].sum())

    @cached_property
    def bound_ratio(self) -> float:
        """Return what `minimum_ratio` of the served pairs could be if circuits were divisible.

        The linear program of circuits per pair and direction under the load limit of every segment;
        no plan, with or without wavelength conversion, is above it. [Gbps per unit of demand]
        """
        asked = self.demand > 0
        value = lp_bound(self.control, self.src[asked], self.dst[asked], self.demand[asked])
        return value * self.control.circuit_gbps

    def settled(self) -> RingPlan:
        """Return the same plan with everything tuned: nothing dark."""
        if self.kept_gbps is self.gbps:
            return self
        return self.with_fields(kept_gbps=self.gbps, dark_us=np.zeros(len(self.src)))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one record per pair; wavelengths of a direction as a list of indices."""
        circuits = list(zip(self.circuit_direction.tolist(), self.circuit_index.tolist(), strict=True))
        ends = np.searchsorted(self.circuit_pair, np.arange(len(self.src) + 1)).tolist()
        for k, record in enumerate(super().rows()):
            mine = circuits[ends[k] : ends[k + 1]]
            yield record | {
                "demand": float(self.demand[k]),
                "clockwise": [index for direction, index in mine if direction == 0],
                "counterclockwise": [index for direction, index in mine if direction == 1],
                "kept_gbps": float(self.kept_gbps[k]),
                "dark_us": float(self.dark_us[k]),
            }

    def occupancy(self) -> CircuitOccupancy | None:
        """Return the wavelengths in use on each segment; None where GPUs on the way may change them.

        Of one period of a ring: those of its segments, where circuits of its images come in, too.
        """
        if self.control.wavelength != "continuous":
            return None
        src, dst = self.src[self.circuit_pair], self.dst[self.circuit_pair]
        parts = []
        for direction in (0, 1):
            mine = np.flatnonzero(self.circuit_direction == direction)
            segment, which = self.control.covers(src[mine], dst[mine], direction)
            used = mine[which]
            groups = np.full(len(used), direction)
            parts.append(
                (groups, segment % self.control.segments, self.circuit_index[used], src[used], dst[used])
            )
        group, place, channel, src, dst = (np.concatenate(column) for column in zip(*parts, strict=True))
        return CircuitOccupancy(
            place_name="segment",
            channel_name="wavelength",
            groups=("clockwise", "counter-clockwise"),
            places=self.control.segments,
            channels=(self.control.clockwise, self.control.counterclockwise),
            group=group,
            place=place,
            channel=channel,
            src=src,
            dst=dst,
        )

    def draw(self, axes: Any) -> None:
        """Draw the ring into matplotlib axes: an arc for each circuit, a colour for each wavelength."""
        from sipml_ring.picture import draw_ring

        draw_ring(self.control, self.circuits, axes, title=self.algorithm)


#: Of a plan.
_FIELDS = tuple(field.name for field in attrs.fields(RingPlan))
_fields_of = attrgetter(*_FIELDS)
