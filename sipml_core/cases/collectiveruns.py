"""One collective on one network and nothing else: how long it takes, and at which bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.networkprices import network_prices
from sipml_core.cases.steps import built_fabric, check_scheduler, circuits_for, library_on
from sipml_core.cases.variants import exchange_trees, group_shape, replica_shape
from sipml_core.engine import simulate
from sipml_core.errors import ConfigError, InfeasibleError, unknown
from sipml_core.experiment import Interconnect
from sipml_core.fields import frozen
from sipml_core.lowering import Library, Rings
from sipml_core.model import COLLECTIVE_KINDS, CollectiveCost, Fabric, Plan, Prices, TaskBuilder, TaskGraph
from sipml_core.plugin import AllReduce, Communication, Exchange

#: One ring over all ranks, for every kind.
RING = "flat"


@frozen(kw_only=True)
class CollectiveTime:
    """A row of the table that nccl-tests prints."""

    collective: str
    ranks: int
    #: As nccl-tests count it, see `CollectiveCall.size_bytes`. [bytes]
    size_bytes: float
    algorithm: str
    #: How the library does it.
    how: str
    time_us: float

    @property
    def algbw_gbytes_per_s(self) -> float:
        """Return size over time. [GB/s]"""
        return self.size_bytes / self.time_us / 1e3

    @property
    def busbw_gbytes_per_s(self) -> float:
        """Return what each link would carry if ranks formed a ring (nccl-tests, PERFORMANCE.md). [GB/s]"""
        return self.algbw_gbytes_per_s * bus_factor(self.collective, self.ranks)


def bus_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md).

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    whole = {"all_reduce": 2.0 * (ranks - 1) / ranks, "broadcast": 1.0, "reduce": 1.0, "send": 1.0}
    return whole.get(collective, (ranks - 1) / ranks)


@frozen(kw_only=True, eq=False)
class CollectiveBench:
    """A network, a library, and the algorithms that may be tried."""

    interconnect: Interconnect
    communication: Communication
    exchanges: Sequence[Exchange]
    all_reduces: Sequence[AllReduce]

    def algorithms(self, collective: str) -> list[str]:
        """Return what may be asked for: rings, and trees; sums in the network or in tiers for all-reduces."""
        trees = [exchange.name for exchange in self.exchanges]
        if collective == "all_reduce":
            return [all_reduce.name for all_reduce in self.all_reduces]
        if collective in ("all_to_all", "send"):
            return ["direct"]
        if collective in ("all_gather", "reduce_scatter"):
            return [RING, *(each.name for each in self.all_reduces if _halves(each)), *trees]
        return [RING, *trees]

    def time(self, collective: str, size_bytes: float, algorithm: str = "auto") -> CollectiveTime:
        """Return how long one collective of all GPUs takes; "auto": with the fastest algorithm.

        Raises
        ------
        ConfigError
            There is no such collective, or no such algorithm of it.
        InfeasibleError
            The network cannot do it so.
        """
        if collective not in COLLECTIVE_KINDS:
            raise ConfigError(unknown("collective", collective, COLLECTIVE_KINDS))
        if self.interconnect.cluster.gpus < 2:
            raise ConfigError("a collective needs at least 2 GPUs, got 1")
        known = self.algorithms(collective)
        if algorithm != "auto":
            if algorithm not in known:
                raise ConfigError(unknown(f"algorithm of {collective}", algorithm, known))
            return self._timed(collective, size_bytes, algorithm)
        found: list[CollectiveTime] = []
        refusals: list[InfeasibleError] = []
        for name in known:
            try:
                if self._offered(collective, name):
                    found.append(self._timed(collective, size_bytes, name))
            except InfeasibleError as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[0] if refusals else InfeasibleError(f"no algorithm of {collective} suits")
        # What rounding alone tells apart takes the same time: the first of these.
        return min(found, key=lambda row: float(f"{row.time_us:.9g}"))

    def _offered(self, collective: str, name: str) -> bool:
        fabric, gpus = self._fabric, self.interconnect.cluster.gpus
        all_reduce = next((each for each in self.all_reduces if each.name == name), None)
        if all_reduce is not None and (collective == "all_reduce" or _halves(all_reduce)):
            return all_reduce.offered(replica_shape(fabric, _plan(mp=1, dp=gpus)))
        exchange = next((each for each in self.exchanges if each.name == name), None)
        if exchange is None or collective in ("all_to_all", "send"):
            return True
        return exchange.offered(group_shape(fabric, _plan(mp=gpus, dp=1), self._prices, self._gpu_gbps))

    @property
    def _gpu_gbps(self) -> float:
        return self.interconnect.cluster.bandwidth_gbps

    @cached_property
    def _fabric(self) -> Fabric:
        fabric = built_fabric(self.interconnect.topology, self.interconnect.cluster)
        check_scheduler(fabric, self.interconnect)
        return fabric

    @cached_property
    def _prices(self) -> Prices:
        """Return what the network gives a GPU that sends to all at once, and to its neighbour on a ring."""
        fabric, gpus = self._fabric, self.interconnect.cluster.gpus
        return Prices(
            group_gbps=network_prices(fabric, _plan(mp=gpus, dp=1), self._gpu_gbps).group_gbps,
            replica_gbps=network_prices(fabric, _plan(mp=1, dp=gpus), self._gpu_gbps).replica_gbps,
        )

    def _timed(self, collective: str, size_bytes: float, algorithm: str) -> CollectiveTime:
        fabric = self._fabric
        library = library_on(self.communication, fabric, self._prices)
        tasks, how = self._tasks(fabric, library, collective, size_bytes, algorithm)
        driven = circuits_for(self.interconnect, fabric, tasks)
        timeline = simulate(tasks, driven.network, driver=driven.circuits)
        return CollectiveTime(
            collective=collective,
            ranks=fabric.gpus,
            size_bytes=size_bytes,
            algorithm=algorithm,
            how=how,
            time_us=float(timeline.end_us.max()),
        )

    def _tasks(
        self, fabric: Fabric, library: Library | None, collective: str, size_bytes: float, algorithm: str
    ) -> tuple[TaskGraph, str]:
        """Return the transfers of one collective, and how the library does it."""
        gpus, order = fabric.gpus, fabric.hints.order
        members = np.arange(gpus, dtype=np.int32) if order is None else order
        builder = TaskBuilder(gpus, labels=("sync",))
        tree = next((each for each in self.exchanges if each.name == algorithm), None)
        if collective == "all_reduce":
            shape = replica_shape(fabric, _plan(mp=1, dp=gpus))
            chosen = next(each for each in self.all_reduces if each.name == algorithm)
            tiers, in_network = chosen.tiers(shape), chosen.in_network
            rings = Rings(
                builder=builder, steps="fluid", orders=chosen.rings(shape),
                tier_orders=chosen.orders(shape), library=library, in_network=in_network,
            )  # fmt: skip
            rings.all_reduce(members.reshape(1, *tiers), size_bytes)
            return builder.build(), _how(library, collective, members, size_bytes, adds=in_network)
        halves = next((each for each in self.all_reduces if each.name == algorithm and _halves(each)), None)
        if (algorithm == RING or halves) and collective in ("all_gather", "reduce_scatter"):
            rings = Rings(builder=builder, steps="fluid", library=library)
            if halves is not None:
                shape = replica_shape(fabric, _plan(mp=1, dp=gpus))
                tiers, orders = halves.tiers(shape), halves.orders(shape)
                rings = attrs.evolve(rings, tiers=tiers, tier_orders=orders)
            add = rings.all_gather if collective == "all_gather" else rings.reduce_scatter
            add(members[None], size_bytes)
            return builder.build(), _how(library, collective, members, size_bytes)

        cost = CollectiveCost()
        if library is not None:
            gbps = library.replica_gbps if algorithm == RING or collective == "send" else library.group_gbps
            ranks = 2 if collective == "send" else gpus
            cost = library.cost(collective, ranks, size_bytes, gbps, library.servers_of(members[:ranks]))
        if algorithm == RING:
            _add_line(builder, members, collective, size_bytes, cost)
        elif collective == "send":
            sent_bytes = size_bytes * cost.wire_factor
            builder.transfers(members, np.roll(members, -1), sent_bytes, 0, 1.0, cost.startup_us)
        elif collective == "all_to_all":
            src, dst = np.nonzero(~np.eye(gpus, dtype=np.bool_))
            sent_bytes = size_bytes / gpus * cost.wire_factor
            builder.transfers(members[src], members[dst], sent_bytes, 0, 1.0, cost.startup_us)
        else:
            assert tree is not None
            shape_of_group = group_shape(fabric, _plan(mp=gpus, dp=1), self._prices, self._gpu_gbps)
            parents = exchange_trees(tree, shape_of_group).parents
            _add_trees(builder, members, parents, collective, size_bytes, cost)
        return builder.build(), cost.how


def _halves(all_reduce: AllReduce) -> bool:
    """Return whether its first half is a reduce-scatter, and its second an all-gather, along all tiers."""
    return type(all_reduce).orders is not AllReduce.orders


def _plan(*, mp: int, dp: int) -> Plan:
    return Plan(mp=mp, dp=dp, global_batch=dp)


def _how(
    library: Library | None, kind: str, members: NDArray[np.int32], size_bytes: float, *, adds: bool = False
) -> str:
    if library is None:
        return ""
    servers = library.servers_of(members)
    return library.cost(kind, len(members), size_bytes, library.replica_gbps, servers, adds=adds).how


def _add_line(
    builder: TaskBuilder, members: NDArray[np.int32], collective: str, size_bytes: float, cost: CollectiveCost
) -> None:
    """Add a broadcast from, or a reduction to, the first member along the line, passed on as it comes in."""
    src, dst = members[:-1], members[1:]
    if collective == "reduce":
        src, dst = dst, src
    steps = float(len(members) - 1)
    builder.transfers(src, dst, size_bytes * cost.wire_factor, 0, steps, cost.startup_us)


def _add_trees(
    builder: TaskBuilder,
    members: NDArray[np.int32],
    parents: NDArray[np.int32],
    collective: str,
    size_bytes: float,
    cost: CollectiveCost,
) -> None:
    """Add what goes down the tree of each root, or up to it; a step starts when the one before has ended."""
    gpus = len(members)
    one_root = collective in ("broadcast", "reduce")
    upwards = collective in ("reduce_scatter", "reduce")
    sent_bytes = size_bytes * cost.wire_factor / (1 if one_root else gpus)
    root, device = np.indices((gpus, gpus), dtype=np.int32)
    if one_root:
        root, device = root[:1], device[:1]
    parent = parents[root, device]
    edge = root != device

    # The transfer between each device and its parent on the way to each root. [roots, devices]
    sends = np.zeros(root.shape, dtype=np.int32)
    near, far = members[parent[edge]], members[device[edge]]
    src, dst = (far, near) if upwards else (near, far)
    inner = parent[edge] != root[edge]
    first = np.ones(int(edge.sum()), dtype=np.bool_)
    waited = np.zeros(root.shape, dtype=np.bool_)
    waited[root[edge][inner], parent[edge][inner]] = True
    first[:] = ~waited[edge] if upwards else ~inner
    sends[edge] = builder.transfers(src, dst, sent_bytes, 0, 1.0, np.where(first, cost.startup_us, 0.0))
    nearer = sends[root[edge][inner], parent[edge][inner]]
    itself = sends[edge][inner]
    builder.depend(*((itself, nearer) if upwards else (nearer, itself)))
