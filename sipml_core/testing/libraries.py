"""Laws of communication libraries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from sipml_core.model import COLLECTIVE_KINDS, CollectiveCall, CollectiveCost
from sipml_core.plugin import Communication
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True


class CommunicationConformance(ComponentConformance):
    """Laws of a communication library: set `communication`, and its `options` if some are required."""

    communication: ClassVar[type[Communication]]
    #: Ranks, and servers over which they are spread, that are tried.
    groups: ClassVar[tuple[tuple[int, int], ...]] = ((2, 1), (8, 1), (16, 2), (512, 64))
    #: Sizes that are tried, rising. [bytes]
    sizes: ClassVar[tuple[float, ...]] = tuple(4.0**k for k in range(4, 17))
    #: What a rank can send at. [Gbps]
    rates_gbps: ClassVar[tuple[float, ...]] = (100.0, 3600.0)

    @property
    def component(self) -> type[Any]:
        return self.communication

    def exercise(self, component: Any) -> None:
        component.cost(CollectiveCall(kind="all_reduce", ranks=8, size_bytes=1e6, gbps=400.0))

    def calls(self) -> Iterator[list[CollectiveCall]]:
        """Calls that differ in size alone, the smallest first."""
        for kind in COLLECTIVE_KINDS:
            for ranks, servers in self.groups:
                for gbps, in_network in itertools.product(self.rates_gbps, (False, True)):
                    yield [
                        CollectiveCall(
                            kind=kind, ranks=2 if kind == "send" else ranks, size_bytes=size_bytes,
                            gbps=gbps, servers=min(servers, 2) if kind == "send" else servers,
                            in_network=in_network,
                        )
                        for size_bytes in self.sizes
                    ]  # fmt: skip

    def test_no_call_is_faster_than_its_bytes(self) -> None:
        library = self.make()
        for calls in self.calls():
            for call in calls:
                with law("start-up is not negative, and no efficiency is above 1", call=call):
                    cost = library.cost(call)
                    require(isinstance(cost, CollectiveCost), f"a {type(cost).__name__}")
                    require(math.isfinite(cost.startup_us) and cost.startup_us >= 0, f"{cost.startup_us} us")
                    require(math.isfinite(cost.wire_factor) and cost.wire_factor >= 1, f"{cost.wire_factor}")

    def test_a_library_that_is_free_costs_nothing(self) -> None:
        library = self.make()
        for calls in self.calls():
            with law("where `free` says so, no call costs anything", call=calls[0]):
                cost = library.cost(calls[0])
                require(not library.free or (cost.startup_us, cost.wire_factor) == (0.0, 1.0), f"{cost}")

    def test_kernels_take_a_number_of_multiprocessors(self) -> None:
        library, last = self.make(), 0
        for gbps in sorted(self.rates_gbps):
            with law("kernels take 0 multiprocessors or more, not fewer to send faster", gbps=gbps):
                taken = library.multiprocessors(gbps)
                require(isinstance(taken, int) and taken >= last, f"{taken!r} after {last}")
                require(not library.free or taken == 0, f"{taken}, though it is free")
                last = taken

    def test_equal_calls_cost_the_same(self) -> None:
        library = self.make()
        for calls in self.calls():
            with law("equal calls cost the same", call=calls[0]):
                again = attrs.evolve(calls[0])
                require(library.cost(calls[0]) == library.cost(again), "two costs")

    def test_time_grows_with_size(self) -> None:
        library = self.make()
        for calls in self.calls():
            last_us = 0.0
            for call in calls:
                cost = library.cost(call)
                time_us = cost.startup_us + cost.wire_factor * call.rank_bytes * 8e-3 / call.gbps
                with law("more bytes never take less time", call=call):
                    require(time_us >= last_us * (1 - 1e-9), f"{time_us:g} us, fewer bytes {last_us:g} us")
                last_us = time_us
