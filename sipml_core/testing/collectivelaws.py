"""Laws of exchanges inside groups, and of all-reduces over replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.model import GroupShape, ReplicaShape
from sipml_core.plugin import AllReduce, Exchange
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True


class ExchangeConformance(ComponentConformance):
    """Laws of an exchange: set `exchange`, and its `options` if some are required."""

    exchange: ClassVar[type[Exchange]]
    #: Groups that are tried: devices, and GPUs of each kind of unit.
    groups: ClassVar[tuple[tuple[int, tuple[int, ...]], ...]] = (
        (1, ()), (2, ()), (3, ()), (7, (2,)), (8, (4,)), (12, (8,)), (24, (2, 8)),
    )  # fmt: skip

    @property
    def component(self) -> type[Any]:
        return self.exchange

    def exercise(self, component: Any) -> None:
        component.offered(GroupShape.of(devices=3))

    def shapes(self) -> Iterator[GroupShape]:
        """Groups on networks that share links, with and without a limit of peers; and one of links alone."""
        around = tuple(tuple(float(abs(i - j) in (1, 3)) for j in range(4)) for i in range(4))
        yield GroupShape.of(devices=4, links=around)
        for devices, tiers in self.groups:
            for few_peers in (False, True):
                yield GroupShape.of(devices=devices, tiers=tiers, few_peers=few_peers)

    def test_every_row_is_a_tree_that_reaches_all(self) -> None:
        served = 0
        for shape in self.shapes():
            try:
                parents = np.asarray(self.make().parents(shape))
            except InfeasibleError:
                continue
            served += 1
            n = shape.devices
            with law("from every device, parents lead to the root", shape=shape):
                require(parents.shape == (n, n), f"shape {parents.shape}, not {(n, n)}")
                require(((parents >= 0) & (parents < n)).all(), "a parent that is none of the devices")
                require((np.diagonal(parents) == np.arange(n)).all(), "a root whose parent is another")
                root, at = np.arange(n)[:, None], np.broadcast_to(np.arange(n), (n, n))
                for _ in range(n):
                    at = parents[root, at]
                require((at == root).all(), f"{int((at != root).sum())} ways that end elsewhere")
        with law("an exchange serves some groups"):
            require(served, "all were refused")

    def test_what_is_offered_can_be_had(self) -> None:
        for shape in self.shapes():
            if self.make().offered(shape):
                with law("where it is offered, it has trees", shape=shape):
                    self.make().parents(shape)


class AllReduceConformance(ComponentConformance):
    """Laws of an all-reduce: set `all_reduce`, and its `options` if some are required."""

    all_reduce: ClassVar[type[AllReduce]]
    #: Jobs that are tried: replicas, GPUs of each, and GPUs of each kind of unit.
    jobs: ClassVar[tuple[tuple[int, int, tuple[int, ...]], ...]] = (
        (1, 1, ()), (2, 4, ()), (7, 1, ()), (8, 2, (8,)), (4, 8, (8,)), (6, 3, (4,)), (64, 2, (8, 32)),
    )  # fmt: skip

    @property
    def component(self) -> type[Any]:
        return self.all_reduce

    def exercise(self, component: Any) -> None:
        component.offered(ReplicaShape(replicas=2, devices=1))

    def shapes(self) -> Iterator[ReplicaShape]:
        """Replicas on networks with and without units."""
        for replicas, devices, tiers in self.jobs:
            yield ReplicaShape(replicas=replicas, devices=devices, tiers=tiers)
        yield ReplicaShape(replicas=12, devices=1, torus=(3, 4))

    def test_tiers_multiply_to_the_replicas(self) -> None:
        for shape in self.shapes():
            try:
                tiers = self.make().tiers(shape)
            except InfeasibleError:
                continue
            with law("the product of tiers is the number of replicas", shape=shape):
                require(math.prod(tiers) == shape.replicas, f"{tiers}")
                require(all(size >= 1 for size in tiers), f"{tiers}")

    def test_rings_name_everybody_and_share_all_bytes(self) -> None:
        for shape in self.shapes():
            if not self.make().offered(shape):
                continue
            rings = self.make().rings(shape)
            with law("each ring names every replica once, and their parts add up to 1", shape=shape):
                for order, _ in rings:
                    require(sorted(order) == list(range(shape.replicas)), f"{order}")
                total = sum(part for _, part in rings)
                require(not rings or abs(total - 1) < 1e-9, f"parts add up to {total}")

    def test_orders_name_every_tier_and_share_all_bytes(self) -> None:
        for shape in self.shapes():
            if not self.make().offered(shape):
                continue
            orders = self.make().orders(shape)
            if not orders:
                continue
            tiers = self.make().tiers(shape)
            with law("each order names every tier once, and their parts add up to 1", shape=shape):
                for order, way, _ in orders:
                    require(sorted(order) == list(range(len(tiers))), f"{order}")
                    require(way in (1, -1), f"way {way}")
                total = sum(part for *_, part in orders)
                require(abs(total - 1) < 1e-9, f"parts add up to {total}")

    def test_what_is_offered_can_be_had(self) -> None:
        for shape in self.shapes():
            if self.make().offered(shape):
                with law("where it is offered, it has tiers", shape=shape):
                    self.make().tiers(shape)
