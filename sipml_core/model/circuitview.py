"""The circuits of a large network as some of its GPUs see them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import frozen, int32_vector
from sipml_core.model.circuits import CircuitControl, CircuitPlan, SharedMedia
from sipml_core.model.pairs import PairIndex
from sipml_core.model.traffic import TrafficMatrix


@frozen(kw_only=True, eq=False)
class CircuitView(CircuitControl):
    """Circuits among some GPUs of a larger network, which is planned as a whole for their traffic."""

    #: GPU of the larger network that each one is, each once. [gpus]
    members: NDArray[np.int32] = attrs.field(converter=int32_vector)
    whole: CircuitControl

    def __attrs_post_init__(self) -> None:
        if len(self.members) != self.gpus:
            raise ConfigError(f"a view of {self.gpus} GPUs has {len(self.members)} members")

    @classmethod
    def of(cls, whole: CircuitControl, members: NDArray[np.int32]) -> CircuitView:
        """Return what these GPUs see of the circuits of a network.

        Examples
        --------
        GPUs 4 and 6 of eight are 0 and 1 of the view:

        >>> whole = CircuitControl(gpus=8, circuit_gbps=10.0, circuits_per_gpu=1)
        >>> view = CircuitView.of(whole, np.array([4, 6]))
        >>> there = view.traffic_of(TrafficMatrix.from_pairs(2, [1], [0], [5.0]))
        >>> there.src.tolist(), there.dst.tolist()
        ([6], [4])
        """
        alike = ("circuit_gbps", "circuits_per_gpu", "interval_us", "reconfiguration_us", "all_dark", "relay")
        return cls(
            gpus=len(members), members=members, whole=whole, **{name: getattr(whole, name) for name in alike}
        )

    @cached_property
    def _rank(self) -> NDArray[np.int32]:
        """Return the number of each GPU of the whole in the view; -1: it has none. [whole.gpus]"""
        rank = np.full(self.whole.gpus, -1, np.int32)
        rank[self.members] = np.arange(self.gpus)
        return rank

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        return self.whole.may_connect(self.members[src], self.members[dst])

    def media(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> SharedMedia | None:
        return self.whole.media(self.members[src], self.members[dst])

    def check(self, plan: CircuitPlan) -> None:
        """Refuse a plan whose circuits cannot exist in the whole network."""
        if not isinstance(plan, ViewPlan):
            raise PluginError(f"a {type(plan).__name__} does not say what it is in the whole network")
        self.whole.check(plan.whole)

    def traffic_of(self, traffic: TrafficMatrix) -> TrafficMatrix:
        """Return the traffic of the view between GPUs of the whole network."""
        return TrafficMatrix.from_pairs(
            self.whole.gpus, self.members[traffic.src], self.members[traffic.dst], traffic.demand
        )

    def seen(self, plan: CircuitPlan) -> ViewPlan:
        """Return a plan of the whole network between the GPUs of the view."""
        src, dst = self._rank[plan.src], self._rank[plan.dst]
        inside = np.flatnonzero((src >= 0) & (dst >= 0))
        order = inside[np.argsort(PairIndex(self.gpus).key(src[inside], dst[inside]), kind="stable")]

        def of(values: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
            return None if values is None else values[order]

        return ViewPlan(
            gpus=self.gpus, src=src[order], dst=dst[order], gbps=plan.gbps[order],
            kept_gbps=of(plan.kept_gbps), dark_us=of(plan.dark_us), whole=plan,
        )  # fmt: skip


@frozen(kw_only=True, eq=False)
class ViewPlan(CircuitPlan):
    """A plan of a larger network between some of its GPUs."""

    whole: CircuitPlan

    @property
    def bound_ratio(self) -> float | None:
        return self.whole.bound_ratio

    @property
    def remarks(self) -> tuple[Any, ...]:
        return self.whole.remarks


def job_circuits(control: CircuitControl, gpus: NDArray[np.int32]) -> CircuitControl:
    """Return the circuits of a job that has these GPUs of a network."""
    return control.seen_by(gpus) or CircuitView.of(control, gpus)
