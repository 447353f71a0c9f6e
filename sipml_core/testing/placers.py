"""Laws of placers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.model import BalancedGraph, Cluster, Placement, PlacementLimits
from sipml_core.partition import partition, tensor_layout
from sipml_core.plugin import Placer
from sipml_core.testing.jobs import small_gpu, small_workloads
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True


class PlacerConformance(ComponentConformance):
    """Laws of a placer: set `placer`."""

    placer: ClassVar[type[Placer]]
    #: Devices of a group, the fewest first.
    sizes: ClassVar[tuple[int, ...]] = (1, 2, 3, 4, 7)

    @property
    def component(self) -> type[Any]:
        return self.placer

    def exercise(self, component: Any) -> None:
        _, graph, limits = next(iter(self.cases()))
        component.place(graph, limits)

    def cases(self) -> Iterator[tuple[str, BalancedGraph, PlacementLimits]]:
        """(name, graph, limits): each bundled workload, without a limit and with tight ones."""
        cluster = Cluster(gpus=1, bandwidth_gbps=100.0)
        for devices in self.sizes:
            for workload in small_workloads():
                whole = workload.graph(8, "mixed")
                graph = partition(
                    whole, small_gpu(), cluster, mp=devices, tau_us=2.0, layout=tensor_layout(whole)
                )
                for range_hops in (None, devices // 2 or 1, 1):
                    yield workload.name, graph, PlacementLimits(devices=devices, range_hops=range_hops)

    def placements(self) -> Iterator[tuple[dict[str, Any], BalancedGraph, Placement]]:
        """Placements of the cases that are not infeasible."""
        for name, graph, limits in self.cases():
            case = {"devices": limits.devices, "workload": name, "range_hops": limits.range_hops}
            with law("place returns a Placement, or refuses with InfeasibleError", **case):
                try:
                    placement = self.make().place(graph, limits)
                except InfeasibleError as refusal:
                    require("\n" not in str(refusal), f"several lines: {refusal}")
                    require(limits.range_hops is not None, f"without a limit: {refusal}")
                    continue
                require(isinstance(placement, Placement), f"{placement!r}")
            yield case, graph, placement

    def test_every_sub_op_has_a_device_of_the_group(self) -> None:
        for case, graph, placement in self.placements():
            with law("every sub-op is on a device from 0 to k - 1", **case):
                device = placement.device
                require(len(device) == graph.subops, f"{len(device)} devices for {graph.subops} sub-ops")
                require(device.min() >= 0 and device.max() < case["devices"], f"up to device {device.max()}")

    def test_devices_that_communicate_are_within_the_limits(self) -> None:
        for case, graph, placement in self.placements():
            with law("the ends of every data edge may talk", **case):
                limits = PlacementLimits(devices=case["devices"], range_hops=case["range_hops"])
                ends = set(
                    zip(
                        placement.device[graph.edge_src].tolist(),
                        placement.device[graph.edge_dst].tolist(),
                        strict=True,
                    )
                )
                bad = sorted(pair for pair in ends if not limits.allows(*pair))
                require(not bad, f"devices {bad[:1]} talk")

    def test_the_same_graph_is_placed_the_same(self) -> None:
        for case, graph, placement in self.placements():
            with law("a placement depends on its arguments only", **case):
                again = self.make().place(graph, placement.limits)
                require(np.array_equal(placement.device, again.device), "two calls, two placements")

    def test_the_placement_says_what_it_is_for(self) -> None:
        for case, graph, placement in self.placements():
            with law("a placement carries its graph and its limits", **case):
                require(placement.graph is graph, "another graph")
                require(placement.limits.devices == case["devices"], f"{placement.limits}")
