"""Laws of interconnects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import BYTES_PER_US_PER_GBPS
from sipml_core.model import NO_LINK, Cluster, Fabric, TaskGraph, UnsharedFabric, check_routes
from sipml_core.plugin import Scheduler, Topology
from sipml_core.testing.jobs import (
    find_scheduler,
    require_sound,
    run_training,
    run_transfers,
    small_gpu,
    small_placer,
    small_workloads,
    transfers_only,
)
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

#: Relative error of times and bytes.
_TOLERANCE = 1e-6


class TopologyConformance(ComponentConformance):
    """Laws of a topology: set `topology`, and what else differs from the defaults."""

    topology: ClassVar[type[Topology]]
    #: Who schedules its circuits; None: the scheduler it names, among the plugins installed.
    scheduler: ClassVar[type[Scheduler] | None] = None
    #: Clusters that are tried, the smallest first; those refused with `ConfigError` are left out.
    sizes: ClassVar[tuple[int, ...]] = (2, 3, 7, 24)
    #: Bandwidth of a GPU, and twice as much, must be possible. [Gbps]
    bandwidth_gbps: ClassVar[float] = 800.0
    #: GPUs that train the bundled workloads, alone and in groups as large as can be; a size that is accepted.
    training_gpus: ClassVar[int] = 4

    @property
    def component(self) -> type[Any]:
        return self.topology

    def exercise(self, component: Any) -> None:
        component.build(self.cluster(self.sizes[0]))

    def cluster(self, gpus: int, bandwidths: float = 1.0) -> Cluster:
        return Cluster(gpus=gpus, bandwidth_gbps=bandwidths * self.bandwidth_gbps)

    def fabrics(self, bandwidths: float = 1.0) -> Iterator[tuple[int, Fabric]]:
        """(GPUs, fabric) for every size that the topology accepts."""
        accepted = 0
        for gpus in self.sizes:
            with law("build returns a Fabric, or refuses with one line", gpus=gpus):
                try:
                    fabric = self.make().build(self.cluster(gpus, bandwidths))
                except ConfigError as refusal:
                    require("\n" not in str(refusal), f"several lines: {refusal}")
                    continue
                require(isinstance(fabric, Fabric), f"{fabric!r}")
            accepted += 1
            yield gpus, fabric
        with law("at least one size can be built", sizes=self.sizes):
            require(accepted, "every size is refused")

    def circuit_scheduler(self, fabric: Fabric) -> Scheduler | None:
        return find_scheduler(self.topology, self.scheduler) if fabric.circuits else None

    def test_the_fabric_is_as_large_as_the_cluster(self) -> None:
        for gpus, fabric in self.fabrics():
            with law("the fabric joins the GPUs of the cluster", gpus=gpus):
                require(fabric.gpus == gpus, f"{fabric.gpus} GPUs")

    def test_routes_exist_and_are_legal(self) -> None:
        for gpus, fabric in self.fabrics():
            src, dst = connected_pairs(fabric)
            with law("every pair has a route over links that exist", gpus=gpus):
                routes = fabric.route(src, dst)
                check_routes(fabric, src, dst, routes)
            flat = routes.flat()
            assert flat.start is not None
            assert flat.weight is not None
            for i in range(len(src)):
                entries = slice(flat.start[i], flat.start[i + 1])
                links, weight = flat.links[entries], flat.weight[entries]
                with law("a route crosses a link once", gpus=gpus, pair=f"{src[i]}->{dst[i]}"):
                    total = np.bincount(links - links.min(), weights=weight)
                    require(total.max() <= 1 + _TOLERANCE, f"links {links.tolist()}")

    def test_circuit_links_lead_where_circuits_may(self) -> None:
        for gpus, fabric in self.fabrics():
            if fabric.circuits is None:
                continue
            src, dst = connected_pairs(fabric)
            links = fabric.route(src, dst).flat().links
            a, b = fabric.circuit_pair(links[links >= fabric.fixed_links])
            with law("a route crosses only circuits that may_connect allows", gpus=gpus):
                bad = np.flatnonzero(~fabric.circuits.may_connect(a, b))
                require(not len(bad), f"circuit {a[bad[0]]}->{b[bad[0]]}" if len(bad) else "")

    def test_a_route_does_not_depend_on_the_others_asked_for(self) -> None:
        for gpus, fabric in self.fabrics():
            src, dst = connected_pairs(fabric)
            together = fabric.route(src[::-1], dst[::-1])
            for i in range(0, len(src), max(1, len(src) // 50)):
                with law(
                    "a pair has one route, whatever else is asked", gpus=gpus, pair=f"{src[i]}->{dst[i]}"
                ):
                    alone = fabric.route(src[i : i + 1], dst[i : i + 1])
                    first, again = alone.matrix[0], together.matrix[len(src) - 1 - i]
                    require(_used(first) == _used(again), f"{_used(first)}, then {_used(again)}")

    def test_two_builds_are_the_same(self) -> None:
        for (gpus, first), (_, second) in zip(self.fabrics(), self.fabrics(), strict=True):
            with law("the same options build the same network", gpus=gpus):
                pairs = connected_pairs(first)
                require(np.array_equal(first.link_gbps, second.link_gbps), "capacities differ")
                require(
                    np.array_equal(first.route(*pairs).matrix, second.route(*pairs).matrix), "routes differ"
                )

    def test_names_and_limits_make_sense(self) -> None:
        for gpus, fabric in self.fabrics():
            with law("every link has a name of its own", gpus=gpus):
                names = [fabric.link_name(k) for k in range(fabric.fixed_links)]
                require(len(set(names)) == len(names), f"some of {names[:4]}... appear twice")
            with law("a packet network needs no scheduler, a circuit network has one", gpus=gpus):
                require(
                    fabric.circuits is None or self.circuit_scheduler(fabric) is not None,
                    "circuits, and Topology.scheduler is None",
                )

    def test_nothing_ends_before_its_bandwidth_allows(self) -> None:
        for gpus, fabric in self.fabrics():
            if isinstance(fabric, UnsharedFabric):
                continue
            tasks = neighbour_transfers(fabric)
            with law(
                "no GPU sends or receives faster than its bandwidth", gpus=gpus, transfers=tasks.transfers
            ):
                _, timeline = run_transfers(fabric, self.circuit_scheduler(fabric), tasks)
                bound_us = busiest_port_bytes(tasks) / (self.bandwidth_gbps * BYTES_PER_US_PER_GBPS)
                require(
                    timeline.total_us >= bound_us * (1 - _TOLERANCE),
                    f"ends after {timeline.total_us:g} us, the busiest port needs {bound_us:g} us",
                )

    def test_one_to_many_and_many_to_one_are_limited_by_the_bandwidth(self) -> None:
        for gpus, fabric in self.fabrics():
            if isinstance(fabric, UnsharedFabric) or fabric.hints.above_bandwidth:
                continue
            for gpu in sorted({0, gpus - 1}):
                for verb in ("send", "receive"):
                    tasks = star_transfers(fabric, gpu, outward=verb == "send")
                    with law("no GPU can send or receive more than its bandwidth", gpus=gpus, gpu=gpu,
                             peers=tasks.transfers, **{verb: "all at once"}):  # fmt: skip
                        _, timeline = run_transfers(fabric, self.circuit_scheduler(fabric), tasks)
                        bound_us = tasks.size_bytes.sum() / (self.bandwidth_gbps * BYTES_PER_US_PER_GBPS)
                        require(
                            timeline.total_us >= bound_us * (1 - _TOLERANCE),
                            f"all is there after {timeline.total_us:g} us, not {bound_us:g} us",
                        )

    def test_bytes_are_conserved(self) -> None:
        for gpus, fabric in self.fabrics():
            if isinstance(fabric, UnsharedFabric):
                continue
            tasks = neighbour_transfers(fabric)
            with law("every link carries the bytes of the transfers that cross it", gpus=gpus):
                network, timeline = run_transfers(fabric, self.circuit_scheduler(fabric), tasks)
                expected = network.link_bytes(tasks.size_bytes)
                wrong = np.flatnonzero(~np.isclose(timeline.link_bytes, expected, rtol=_TOLERANCE, atol=1.0))
                require(
                    not len(wrong),
                    f"{[fabric.link_name(int(network.link_id[k])) for k in wrong[:1]]} carries "
                    f"{timeline.link_bytes[wrong[:1]]} bytes of {expected[wrong[:1]]}",
                )

    def test_the_same_run_gives_the_same_bytes(self) -> None:
        for (gpus, first), (_, second) in zip(self.fabrics(), self.fabrics(), strict=True):
            if isinstance(first, UnsharedFabric):
                continue
            tasks = neighbour_transfers(first)
            with law("two runs of the same job end every transfer at the same time", gpus=gpus):
                ends = [
                    run_transfers(fabric, self.circuit_scheduler(fabric), tasks)[1].end_us.tobytes()
                    for fabric in (first, second)
                ]
                require(ends[0] == ends[1], "they differ")

    def test_more_bandwidth_is_never_slower_for_a_transfer_alone(self) -> None:
        for (gpus, single), (_, double) in zip(self.fabrics(), self.fabrics(bandwidths=2.0), strict=True):
            if isinstance(single, UnsharedFabric):
                continue
            src, dst = connected_pairs(single)
            tasks = transfers_only(gpus, src[0], dst[0], 1e6)
            once_us, twice_us = (
                run_transfers(fabric, self.circuit_scheduler(fabric), tasks)[1].total_us
                for fabric in (single, double)
            )
            with law("twice the bandwidth is not slower", gpus=gpus, pair=f"{src[0]}->{dst[0]}"):
                require(twice_us <= once_us * (1 + _TOLERANCE), f"{once_us:g} us, then {twice_us:g} us")
            if single.circuits is None:
                with law(
                    "twice the bandwidth at most halves the time", gpus=gpus, pair=f"{src[0]}->{dst[0]}"
                ):
                    require(
                        twice_us >= once_us / 2 * (1 - _TOLERANCE), f"{once_us:g} us, then {twice_us:g} us"
                    )

    def test_every_bundled_workload_trains(self) -> None:
        cluster = self.cluster(self.training_gpus)
        topology = self.make()
        with law("training_gpus is a size that the topology accepts", training_gpus=self.training_gpus):
            scheduler = self.circuit_scheduler(topology.build(cluster))
        gpus = self.training_gpus
        largest = next((mp for mp in range(gpus // 2, 0, -1) if gpus % mp == 0), 1)
        for workload in small_workloads():
            for mp in sorted({1, largest}):
                with law(
                    "training runs to its end, no sooner than its lower bound", workload=workload.name, mp=mp
                ):
                    for result in run_training(
                        workload, topology, cluster, scheduler, small_gpu(), small_placer(), mp
                    ):
                        require_sound(result)


def connected_pairs(fabric: Fabric) -> Pairs:
    """Ordered pairs that may ever talk: on a circuit network, those that may hold a circuit."""
    src, dst = np.divmod(np.arange(fabric.gpus**2, dtype=np.int32), np.int32(fabric.gpus))
    keep = src != dst
    src, dst = src[keep], dst[keep]
    if fabric.circuits is not None and fabric.hints.reach_hops is not None:
        keep = fabric.circuits.may_connect(src, dst)
        src, dst = src[keep], dst[keep]
    return src, dst


def neighbour_transfers(fabric: Fabric) -> TaskGraph:
    """1, 2, ... MB from every GPU to the ones after it, as many as its degree and three at most."""
    peers = min(3, fabric.gpus - 1, fabric.hints.degree or 3)
    src, step = np.divmod(np.arange(fabric.gpus * peers, dtype=np.int32), np.int32(peers))
    dst = ((src + 1 + step) % fabric.gpus).astype(np.int32)
    return transfers_only(fabric.gpus, src, dst, 1e6 * (1 + step))


def star_transfers(fabric: Fabric, gpu: int, *, outward: bool) -> TaskGraph:
    """1 MB from one GPU to each other that circuits can join to it at once, or from each of them to it."""
    src, dst = connected_pairs(fabric)
    mine = (src if outward else dst) == gpu
    src, dst = src[mine], dst[mine]
    away = np.minimum((dst - src) % fabric.gpus, (src - dst) % fabric.gpus)
    near = np.argsort(away, kind="stable")[: fabric.hints.degree]
    return transfers_only(fabric.gpus, src[near], dst[near], np.full(len(near), 1e6))


def busiest_port_bytes(tasks: TaskGraph) -> float:
    """Most bytes that one GPU sends, or receives."""
    sent = np.bincount(tasks.src, weights=tasks.size_bytes)
    received = np.bincount(tasks.dst, weights=tasks.size_bytes)
    return float(max(sent.max(), received.max()))


def _used(row: NDArray[np.int64]) -> list[int]:
    return [int(link) for link in row if link != NO_LINK]
