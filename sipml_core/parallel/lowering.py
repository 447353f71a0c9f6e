"""From a placement to the tasks of the whole job: all groups, all iterations, all traffic."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.model.balanced import Placement
from sipml_core.model.cluster import Cluster
from sipml_core.model.strategy import Strategy
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.parallel.collectives import Rings, all_reduce_bytes
from sipml_core.parallel.gradients import Bucket, plan_buckets
from sipml_core.parallel.grouptasks import GroupTasks, Indices, group_tasks, unique_pairs
from sipml_core.parallel.iterations import next_iteration
from sipml_core.parallel.taskbuilder import Nodes, TaskBuilder
from sipml_core.parallel.transfers import Transfers, plan_transfers


@attrs.frozen(kw_only=True)
class TrafficBytes:
    """What one iteration of the whole job puts on the network. [bytes]"""

    #: Activations and their gradients, inside groups.
    activations: float
    #: Synchronisation of parameter gradients.
    gradients: float

    @property
    def total(self) -> float:
        return self.activations + self.gradients


def lower(
    placement: Placement,
    strategy: Strategy,
    cluster: Cluster,
    *,
    order: NDArray[np.int32] | None = None,
    server_gpus: int | None = None,
    gpu_speed: Mapping[int, float] | None = None,
) -> TaskGraph:
    """Tasks, transfers and collectives of `strategy.iterations` training steps on all mp x dp GPUs.

    Device d of group g is at layout position g mp + d. Each iteration ends in a mark.

    Parameters
    ----------
    placement
        One group; the others are copies of it.
    order
        GPU at each layout position, a permutation of 0 .. N-1; None: the identity. [N]
    server_gpus
        Synchronise in two tiers, inside servers of this many consecutive positions, then across
        (see `two_tiers_fit`); None: one flat ring over the groups.
    gpu_speed
        Relative speed of single GPUs; 0.5 takes twice as long. Those not named have 1.

    Raises
    ------
    ConfigError
        Placement, strategy and cluster disagree about the number of GPUs; `order` is no
        permutation; groups and servers do not nest; a speed is not positive or its GPU unknown.
    """
    layout = _layout(placement, strategy, cluster, order)
    tiers = _tiers(strategy, server_gpus)
    speed = _speeds(cluster.gpus, gpu_speed)
    group = group_tasks(placement, recompute=strategy.recompute)
    job = _Job(
        strategy=strategy,
        layout=layout,
        tiers=tiers,
        speed=speed,
        group=group,
        transfers=plan_transfers(group),
        buckets=plan_buckets(group, strategy.bucket_bytes),
    )
    return job.lowered()


def two_tiers_fit(strategy: Strategy, server_gpus: int) -> bool:
    """Whether servers of `server_gpus` GPUs hold several whole groups each, and all are full.

    Then `lower` may synchronise inside servers first. Where a group fills a server or more, its
    counterparts are in different servers anyway.
    """
    groups = server_gpus // strategy.mp
    return groups > 1 and server_gpus % strategy.mp == 0 and strategy.dp % groups == 0


def traffic_bytes(placement: Placement, strategy: Strategy) -> TrafficBytes:
    """Bytes that `lower` sends in one iteration, by kind."""
    group = group_tasks(placement, recompute=strategy.recompute)
    gradients = 0.0
    for bucket in plan_buckets(group, strategy.bucket_bytes):
        members = strategy.dp * len(bucket.devices)
        gradients += members * all_reduce_bytes(bucket.size_bytes, members)
    return TrafficBytes(
        activations=strategy.dp * float(plan_transfers(group).size_bytes.sum()), gradients=gradients
    )


@attrs.frozen(kw_only=True, eq=False)
class _Job:
    strategy: Strategy
    #: GPU of device d in group g. [dp, mp]
    layout: NDArray[np.int32]
    #: Shape into which the dp counterparts are arranged, innermost last.
    tiers: tuple[int, ...]
    speed: NDArray[np.float64]
    group: GroupTasks
    transfers: Transfers
    buckets: list[Bucket]

    def lowered(self) -> TaskGraph:
        kinds = [op.kind for op in self.group.graph.graph.ops]
        labels = (*dict.fromkeys(kinds), "sync")
        builder = TaskBuilder(self.strategy.gpus, labels)
        label = np.array([labels.index(kind) for kind in kinds], dtype=np.int32)[self.group.op]
        chain = next_iteration(self.group)
        marks: list[Nodes] = []
        previous: Nodes | None = None
        for iteration in range(self.strategy.iterations):
            tasks, mark = self._iteration(builder, label, iteration * self._priorities)
            if previous is not None:
                builder.depend(previous[:, chain[0]], tasks[:, chain[1]])
                builder.depend(marks[-1], mark)
            previous = tasks
            marks.append(mark)
        return builder.build(np.concatenate(marks))

    @property
    def _priorities(self) -> int:
        """Priorities used by one iteration: tasks and activations first, then buckets in their order."""
        return len(self.group.subop) + len(self.buckets)

    def _iteration(self, builder: TaskBuilder, label: Indices, priority: int) -> tuple[Nodes, Nodes]:
        """Tasks [dp, tasks] of one iteration and its mark [1]."""
        group, transfers = self.group, self.transfers
        gpu = self.layout[:, group.device]
        duration = group.graph.duration_us[group.subop] / self.speed[gpu]
        tasks = builder.tasks(gpu, duration, group.position + priority, label)
        sends = builder.transfers(
            gpu[:, transfers.source],
            self.layout[:, transfers.device],
            transfers.size_bytes,
            transfers.position + priority,
        )
        before, after = _direct(group)
        builder.depend(tasks[:, before], tasks[:, after])
        builder.depend(tasks[:, transfers.source], sends)
        arrival, consumer = unique_pairs(transfers.arrival, transfers.consumer)
        builder.depend(sends[:, arrival], tasks[:, consumer])
        synced = [
            self._synchronise(builder, tasks, bucket, priority + len(group.subop) + number)
            for number, bucket in enumerate(self.buckets)
        ]
        waited_for = np.concatenate([before, transfers.source, *(b.producers for b in self.buckets)])
        ends = np.setdiff1d(np.arange(len(group.subop)), waited_for)
        mark = builder.barriers(1, label=len(builder.labels) - 1)
        for nodes in (tasks[:, ends], *synced):
            builder.depend(nodes, mark)
        return tasks, mark

    def _synchronise(self, builder: TaskBuilder, tasks: Nodes, bucket: Bucket, priority: int) -> Nodes:
        """The collective of one bucket; returns where it ends on each member. [dp, members]

        A member that makes none of the gradients joins in when all makers of its group are done.
        """
        label = len(builder.labels) - 1
        members = self.layout[:, bucket.devices]
        column = np.full(self.strategy.mp, -1)
        column[list(bucket.devices)] = np.arange(len(bucket.devices))
        maker, user = column[self.group.device[bucket.producers]], column[self.group.device[bucket.consumers]]
        ready = builder.barriers(members.shape, label=label)
        builder.depend(tasks[:, bucket.producers], ready[:, maker])
        idle = np.flatnonzero(np.bincount(maker, minlength=len(bucket.devices)) == 0)
        builder.depend(tasks[:, bucket.producers, None], ready[:, None, idle])
        shape = (1, *self.tiers, len(bucket.devices))
        rings = Rings(builder=builder, form=self.strategy.collective, priority=priority, label=label)
        done = rings.all_reduce(members.reshape(shape), bucket.size_bytes, ready.reshape(shape))
        done = done.reshape(members.shape)
        builder.depend(done[:, user], tasks[:, bucket.consumers])
        return done


def _layout(
    placement: Placement, strategy: Strategy, cluster: Cluster, order: NDArray[np.int32] | None
) -> NDArray[np.int32]:
    if placement.limits.devices != strategy.mp:
        raise ConfigError(
            f"placement is for mp={placement.limits.devices}, the strategy has mp={strategy.mp}"
        )
    if strategy.gpus != cluster.gpus:
        raise ConfigError(
            f"mp * dp must equal the cluster's {cluster.gpus} GPUs, got {strategy.mp} * {strategy.dp}"
        )
    gpus = np.arange(cluster.gpus, dtype=np.int32)
    if order is None:
        order = gpus
    elif not np.array_equal(np.sort(order), gpus):
        raise ConfigError(f"order must be a permutation of 0..{cluster.gpus - 1}")
    return np.asarray(order, dtype=np.int32).reshape(strategy.dp, strategy.mp)


def _tiers(strategy: Strategy, server_gpus: int | None) -> tuple[int, ...]:
    """How the dp counterparts of a device are arranged: (servers, groups in each), or (dp,)."""
    if server_gpus is not None and server_gpus < 1:
        raise ConfigError(f"server_gpus must be at least 1, got {server_gpus}")
    if server_gpus is None or strategy.mp % server_gpus == 0:
        return (strategy.dp,)
    if not two_tiers_fit(strategy, server_gpus):
        raise ConfigError(
            f"two-tier synchronisation needs whole groups in whole servers: {strategy.dp} groups of "
            f"mp={strategy.mp} do not fill servers of {server_gpus} GPUs"
        )
    groups = server_gpus // strategy.mp
    return (strategy.dp // groups, groups)


def _speeds(gpus: int, gpu_speed: Mapping[int, float] | None) -> NDArray[np.float64]:
    speed = np.ones(gpus)
    for gpu, relative in (gpu_speed or {}).items():
        if not 0 <= gpu < gpus:
            raise ConfigError(f"gpu_speed names GPU {gpu}, but GPUs are 0..{gpus - 1}")
        if not (np.isfinite(relative) and relative > 0):
            raise ConfigError(f"gpu_speed of GPU {gpu} must be positive, got {relative}")
        speed[gpu] = relative
    return speed


def _direct(group: GroupTasks) -> tuple[Indices, Indices]:
    """Dependencies between tasks that no transfer carries: on one device, and gates."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    return unique_pairs(
        np.concatenate([group.edge_src[local], group.gate_before]),
        np.concatenate([group.edge_dst[local], group.gate_after]),
    )
