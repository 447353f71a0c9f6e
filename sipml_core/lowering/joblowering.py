"""From the template of a group to the tasks of the whole job: all groups, all iterations."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.exchanges import Trees
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.iterations import next_iteration
from sipml_core.model import Cluster, Nodes, Placement, Plan, TaskBuilder, TaskGraph


def lower(
    placement: Placement,
    plan: Plan,
    cluster: Cluster,
    *,
    order: NDArray[np.int32] | None = None,
    server_gpus: int | None = None,
    trees: Trees | None = None,
) -> TaskGraph:
    """Return tasks, transfers and collectives of `plan.iterations` training steps on all mp x dp GPUs.

    Device d of group g is at position g mp + d. Each iteration ends in a mark.

    Parameters
    ----------
    placement
        One group; the others are copies of it.
    cluster
        The GPUs; those of half the speed take twice as long for every task.
    order
        GPU at each position, a permutation of 0 .. N-1; None: the identity. [N]
    server_gpus
        Synchronise in two tiers, inside servers of this many consecutive positions, then across
        (see `two_tiers_fit`); None: one flat ring over the groups.

    trees
        Along which a group exchanges; None: from each maker to each user.

    Raises
    ------
    ConfigError
        Placement, strategy and cluster disagree about the number of GPUs; `order` is no
        permutation; groups and servers do not nest.
    """
    template = GroupTemplate.of(placement, plan, trees)
    return Lowering.of(template, cluster, order=order, server_gpus=server_gpus).tasks()


def two_tiers_fit(plan: Plan, server_gpus: int) -> bool:
    """Return whether servers of `server_gpus` GPUs hold several whole groups each, and all are full.

    Then `lower` may synchronise inside servers first. Where a group fills a server or more, its
    counterparts are in different servers anyway.
    """
    groups = server_gpus // plan.mp
    return groups > 1 and server_gpus % plan.mp == 0 and plan.dp % groups == 0


@attrs.frozen(kw_only=True, eq=False)
class Lowering:
    """A plan given GPUs: ready to make the tasks of all groups, or of the first few."""

    template: GroupTemplate
    #: GPU of device d in group g. [dp, mp]
    gpu_of: NDArray[np.int32]
    #: Shape into which the dp counterparts are arranged, innermost last.
    tiers: tuple[int, ...]
    #: Speed of each GPU relative to the others. [gpus]
    speed: NDArray[np.float64]
    #: See `Rings.orders`.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()

    @classmethod
    def of(
        cls,
        template: GroupTemplate,
        cluster: Cluster,
        *,
        order: NDArray[np.int32] | None = None,
        server_gpus: int | None = None,
        tiers: tuple[int, ...] | None = None,
        orders: tuple[tuple[tuple[int, ...], float], ...] = (),
    ) -> Lowering:
        """Return the template with GPUs for all groups; see `lower`.

        Parameters
        ----------
        tiers
            Shape into which the dp counterparts of a device are arranged, innermost last; None: what
            `server_gpus` says.
        """
        speed = np.ones(cluster.gpus)
        for gpu, relative in cluster.gpu_speed:
            speed[gpu] = relative
        return cls(
            template=template,
            gpu_of=_gpu_of(template.plan, cluster, order),
            tiers=tiers or _tiers(template.plan, server_gpus),
            speed=speed,
            orders=orders,
        )

    @property
    def plan(self) -> Plan:
        return self.template.plan

    @property
    def period(self) -> int:
        """Return after how many groups the job repeats: those of one server in two tiers, else 1."""
        return self.plan.dp if self.orders else math.prod(self.tiers[1:])

    def tasks(self, groups: int | None = None) -> TaskGraph:
        """Return the tasks of all groups, or of the first `groups` of them only.

        A part of the groups, a multiple of `period` that divides dp, sends what it would send in the
        whole job, to the same GPUs, but waits for its own members where it would wait for others: right
        if the others do the same at the same time (see `folding`).
        """
        groups = self.plan.dp if groups is None else groups
        group = self.template.group
        kinds = [op.kind for op in group.graph.graph.ops]
        labels = (*dict.fromkeys(kinds), "sync")
        builder = TaskBuilder(self.plan.gpus, labels)
        label = np.array([labels.index(kind) for kind in kinds], dtype=np.int32)[group.op]
        chain = next_iteration(group)
        marks: list[Nodes] = []
        previous: Nodes | None = None
        for iteration in range(self.plan.iterations):
            tasks, mark = self._iteration(builder, groups, label, iteration * self._priorities)
            if previous is not None:
                builder.depend(previous[:, chain[0]], tasks[:, chain[1]])
                builder.depend(marks[-1], mark)
            previous = tasks
            marks.append(mark)
        return builder.build(np.concatenate(marks))

    @property
    def _priorities(self) -> int:
        """Return how many priorities one iteration uses: tasks and activations first, then its buckets."""
        return len(self.template.group.subop) + len(self.template.buckets)

    def _iteration(
        self, builder: TaskBuilder, groups: int, label: Indices, priority: int
    ) -> tuple[Nodes, Nodes]:
        """Add one iteration; return its tasks [groups, tasks] and its mark [1].

        Examples
        --------
        Two groups of the worked example: 12 tasks each, on the GPUs 0 to 2 and 3 to 5. Inside each group
        there are four transfers; the buckets of devices 1, 2 and 0 follow, one transfer per member.

        >>> from sipml_core.testing.worked import lowering
        >>> job, builder = lowering(dp=2), TaskBuilder(6, ("matmul", "sync"))
        >>> tasks, mark = job._iteration(builder, groups=2, label=np.zeros(12, dtype=np.int32), priority=0)
        >>> tasks.tolist()
        [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]]
        >>> graph = builder.build(mark)
        >>> graph.gpu[tasks].tolist()
        [[0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2], [3, 3, 4, 5, 3, 4, 5, 3, 3, 3, 4, 5]]
        >>> list(zip(graph.src[:8].tolist(), graph.dst[:8].tolist()))
        [(0, 1), (0, 2), (1, 0), (2, 0), (3, 4), (3, 5), (4, 3), (5, 3)]
        >>> list(zip(graph.src[8:].tolist(), graph.dst[8:].tolist(), graph.size_bytes[8:].tolist()))
        [(1, 4, 2.0), (4, 1, 2.0), (2, 5, 2.0), (5, 2, 2.0), (0, 3, 10.0), (3, 0, 10.0)]
        """
        group, transfers, buckets = self.template.group, self.template.transfers, self.template.buckets
        gpu_of = self.gpu_of[:groups]

        # Nodes of tasks [groups, tasks] and of transfers inside groups [groups, transfers].
        gpu = gpu_of[:, group.device]
        duration = group.duration_us / self.speed[gpu]
        tasks = builder.tasks(gpu, duration, group.position + priority, label)
        sends = builder.transfers(
            gpu_of[:, transfers.sender],
            gpu_of[:, transfers.device],
            transfers.size_bytes,
            transfers.position + priority,
        )

        # Columns of tasks and transfers, and of those that wait for them; the same in every group.
        before, after = _direct(group)
        builder.depend(tasks[:, before], tasks[:, after])
        builder.depend(tasks[:, transfers.maker], sends[:, transfers.made])
        builder.depend(sends[:, transfers.before], sends[:, transfers.after])
        arrival, consumer = unique_pairs(transfers.arrival, transfers.consumer)
        builder.depend(sends[:, arrival], tasks[:, consumer])

        # Where each bucket's sum is on each member. [groups, members] each
        synced = [
            self._synchronise(builder, tasks, bucket, priority + len(group.subop) + number)
            for number, bucket in enumerate(buckets)
        ]

        # The iteration ends when all sums are there and all tasks are done that nothing else waits for.
        waited_for = np.concatenate([before, transfers.maker, *(b.producers for b in buckets)])
        is_end = np.ones(len(group.subop), dtype=np.bool_)
        is_end[waited_for] = False
        ends = np.flatnonzero(is_end)
        mark = builder.barriers(1, label=len(builder.labels) - 1)
        for nodes in (tasks[:, ends], *synced):
            builder.depend(nodes, mark)
        return tasks, mark

    def _synchronise(self, builder: TaskBuilder, tasks: Nodes, bucket: Bucket, priority: int) -> Nodes:
        """Add the collective of one bucket; return where it ends on each member. [groups, members]

        A member that makes none of the gradients joins in when all makers of its group are done. It
        waits for makers that are no members too: these did the same as the member did.

        Examples
        --------
        A bucket on device 0 of two groups: the members are GPUs 0 and 3, each is ready after its tasks 4
        and 7, and each sends the whole sum to the other, with the latency of two steps.

        >>> from sipml_core.testing.worked import lowering
        >>> job, builder = lowering(dp=2), TaskBuilder(6, ("matmul", "sync"))
        >>> tasks = builder.tasks(job.gpu_of[:, job.template.group.device], 1.0, 0, 0)
        >>> bucket = job.template.buckets[-1]
        >>> bucket.devices, bucket.producers.tolist(), bucket.consumers.tolist()
        ((0,), [4, 7], [8, 9])
        >>> done = job._synchronise(builder, tasks, bucket, priority=0)
        >>> done.shape
        (2, 1)
        >>> graph = builder.build()
        >>> list(zip(graph.src.tolist(), graph.dst.tolist(), graph.latency_steps.tolist()))
        [(0, 3, 2.0), (3, 0, 2.0)]
        >>> graph.successors[graph.succ_start[done[0, 0]] : graph.succ_start[done[0, 0] + 1]].tolist()
        [8, 9, 20, 21]
        """
        label = len(builder.labels) - 1
        devices = len(bucket.devices)
        device = self.template.group.device

        # Column of each device among the members, -1 for one that is none [mp]; of makers and users [pairs].
        column = np.full(self.plan.mp, -1)
        column[list(bucket.devices)] = np.arange(devices)
        maker, user = column[device[bucket.producers]], column[device[bucket.consumers]]

        # A member is ready after its own makers, or all of its group's, and after makers that are no members.
        inside = maker >= 0
        ready = builder.barriers((len(tasks), devices), label=label)
        builder.depend(tasks[:, bucket.producers[inside]], ready[:, maker[inside]])
        idle = np.flatnonzero(np.bincount(maker[inside], minlength=devices) == 0)
        builder.depend(tasks[:, bucket.producers[inside], None], ready[:, None, idle])
        builder.depend(tasks[:, bucket.producers[~inside], None], ready[:, None, :])

        # One ring through the members of all groups, or tiers of rings. [1, *tiers, devices]
        rings = Rings(
            builder=builder,
            steps=self.plan.ring_steps,
            priority=priority,
            label=label,
            counter_rotating=self.plan.counter_rotating,
            orders=self.orders,
        )
        members = self.gpu_of[:, bucket.devices].reshape(1, *self.tiers, devices)
        made = len(tasks) // math.prod(self.tiers[1:])
        done = rings.all_reduce(
            members, bucket.size_bytes, ready.reshape(1, made, *self.tiers[1:], devices), made=made
        ).reshape(ready.shape)
        builder.depend(done[:, user], tasks[:, bucket.consumers])
        return done


def _gpu_of(plan: Plan, cluster: Cluster, order: NDArray[np.int32] | None) -> NDArray[np.int32]:
    if plan.gpus != cluster.gpus:
        raise ConfigError(f"mp * dp must equal the cluster's {cluster.gpus} GPUs, got {plan.mp} * {plan.dp}")
    gpus = np.arange(cluster.gpus, dtype=np.int32)
    if order is None:
        order = gpus
    elif not np.array_equal(np.sort(order), gpus):
        raise ConfigError(f"order must be a permutation of 0..{cluster.gpus - 1}")
    return np.asarray(order, dtype=np.int32).reshape(plan.dp, plan.mp)


def _tiers(plan: Plan, server_gpus: int | None) -> tuple[int, ...]:
    """Return how the dp counterparts of a device are arranged: (servers, groups in each), or (dp,)."""
    if server_gpus is not None and server_gpus < 1:
        raise ConfigError(f"server_gpus must be at least 1, got {server_gpus}")
    if server_gpus is None or plan.mp % server_gpus == 0:
        return (plan.dp,)
    if not two_tiers_fit(plan, server_gpus):
        raise ConfigError(
            f"two-tier synchronisation needs whole groups in whole servers: {plan.dp} groups of "
            f"mp={plan.mp} do not fill servers of {server_gpus} GPUs"
        )
    groups = server_gpus // plan.mp
    return (plan.dp // groups, groups)


def _direct(group: GroupTasks) -> tuple[Indices, Indices]:
    """Return dependencies between tasks that no transfer carries: on one device, and gates."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    return unique_pairs(
        np.concatenate([group.edge_src[local], group.gate_before]),
        np.concatenate([group.edge_dst[local], group.gate_after]),
    )
