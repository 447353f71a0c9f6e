"""From the template of a group to the tasks of the whole job: all groups, all iterations."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.exchanges import Trees
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.hosttime import HostTime
from sipml_core.lowering.iterations import next_iteration
from sipml_core.lowering.passtasks import row_of
from sipml_core.lowering.shardedstates import SharedStates
from sipml_core.model import Cluster, Framework, Nodes, Placement, Plan, TaskBuilder, TaskGraph


def lower(
    placement: Placement,
    plan: Plan,
    cluster: Cluster,
    *,
    order: NDArray[np.int32] | None = None,
    server_gpus: int | None = None,
    trees: Trees | None = None,
) -> TaskGraph:
    """Return tasks, transfers and collectives of `plan.iterations` training steps on all mp x pp x dp GPUs.

    Device r of replica g is at position `plan.positions[g, r]`. Each iteration ends in a mark.

    Parameters
    ----------
    placement
        One replica; the others are copies of it.
    cluster
        The GPUs; those of half the speed take twice as long for every task.
    order
        GPU at each position, a permutation of 0 .. N-1; None: the identity. [N]
    server_gpus
        Synchronise in two tiers, inside servers of this many consecutive positions, then across
        (see `replicas_in_server`); None: one flat ring over the replicas.

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


def replicas_in_server(plan: Plan, server_gpus: int) -> int:
    """Return how many counterparts of each GPU, the next replicas in order, are in its server; 1: no others.

    All servers must be full and hold equally many, else 1. With more, `lower` may synchronise inside servers
    first.

    >>> replicas_in_server(Plan(mp=2, dp=4, global_batch=4), server_gpus=4)
    2
    >>> replicas_in_server(Plan(mp=2, dp=3, global_batch=3), server_gpus=4)
    1
    """
    if plan.gpus % server_gpus:
        return 1
    # Server of each GPU of each replica [dp, replica]; counterparts in a row that are in one server.
    server = plan.positions // server_gpus
    together = int(np.argmax(np.append((server != server[:1]).any(axis=1), True)))
    if plan.dp % together:
        return 1
    blocks = server.reshape(-1, together, plan.replica_gpus)
    return together if (blocks == blocks[:, :1]).all() else 1


@attrs.frozen(kw_only=True, eq=False)
class Lowering:
    """A plan given GPUs: ready to make the tasks of all groups, or of the first few."""

    template: GroupTemplate
    #: GPU of device r in replica g. [dp, replica]
    gpu_of: NDArray[np.int32]
    #: Shape into which the dp counterparts are arranged, innermost last.
    tiers: tuple[int, ...]
    #: Speed of each GPU relative to the others. [gpus]
    speed: NDArray[np.float64]
    #: See `Rings.orders`.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()
    #: See `Rings.library` and `Rings.in_network`.
    library: Library | None = None
    in_network: bool = False
    framework: Framework = attrs.Factory(Framework)

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
        library: Library | None = None,
        in_network: bool = False,
        framework: Framework | None = None,
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
            library=library,
            in_network=in_network,
            framework=framework or Framework(),
        )

    @property
    def plan(self) -> Plan:
        return self.template.plan

    @property
    def period(self) -> int:
        """Return after how many replicas the job repeats: those of one server in two tiers, else 1."""
        return self.plan.dp if self.orders else math.prod(self.tiers[1:])

    def tasks(self, groups: int | None = None) -> TaskGraph:
        """Return the tasks of all replicas, or of the first `groups` of them only.

        A part of the replicas, a multiple of `period` that divides dp, sends what it would send in the
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
            mark_before = marks[-1] if marks else None
            first = iteration * self._priorities
            tasks, mark = self._iteration(builder, groups, label, first, mark_before)
            if previous is not None:
                # What follows the last micro-batch, before what begins the first.
                builder.depend(previous[:, -1, chain[0]], tasks[:, 0, chain[1]])
                builder.depend(marks[-1], mark)
            previous = tasks
            marks.append(mark)
        return builder.build(np.concatenate(marks))

    def sends(self, groups: int) -> TaskGraph:
        """Return what `tasks` sends, all micro-batches in one transfer.

        For the bytes of each pair: nothing waits for what it would wait for.
        """
        transfers, group = self.template.transfers, self.template.group
        builder = TaskBuilder(self.plan.gpus, ("sync",))
        gpu_of = self.gpu_of[:groups]
        for _ in range(self.plan.iterations):
            tasks = builder.tasks(gpu_of[:, group.device], 0.0, 0, 0)
            size_bytes = transfers.size_bytes * self.plan.micro_batches
            builder.transfers(gpu_of[:, transfers.sender], gpu_of[:, transfers.device], size_bytes, 0)
            if self.plan.shares_states:
                every = np.broadcast_to(tasks[:, None], (groups, self.plan.micro_batches, tasks.shape[1]))
                self._shared_states(builder, 0).add(every)
            else:
                self._synchronise_all(builder, tasks, 0)
        return builder.build()

    @property
    def _priorities(self) -> int:
        """Return how many priorities one iteration uses: tasks and activations first, then its buckets."""
        template = self.template
        positions, buckets = len(template.group.subop), len(template.buckets)
        return template.passes.priorities(self.plan.iterations, positions, buckets)

    def _iteration(
        self,
        builder: TaskBuilder,
        groups: int,
        label: Indices,
        priority: int,
        mark_before: Nodes | None = None,
    ) -> tuple[Nodes, Nodes]:
        """Add one iteration; return its tasks [groups, micro-batches, tasks] and its mark [1].

        The optimizer's tasks, which there are once, are in the rows of all micro-batches.

        Examples
        --------
        Two groups of the worked example: 12 tasks each, on the GPUs 0 to 2 and 3 to 5. Inside each group
        there are four transfers; the buckets of devices 1, 2 and 0 follow, one transfer per member.

        >>> from sipml_core.testing.worked import lowering
        >>> job, builder = lowering(dp=2), TaskBuilder(6, ("matmul", "sync"))
        >>> tasks, mark = job._iteration(builder, groups=2, label=np.zeros(12, dtype=np.int32), priority=0)
        >>> tasks.tolist()
        [[[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], [[12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]]]
        >>> graph = builder.build(mark)
        >>> graph.gpu[tasks[:, 0]].tolist()
        [[0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2], [3, 3, 4, 5, 3, 4, 5, 3, 3, 3, 4, 5]]
        >>> list(zip(graph.src[:8].tolist(), graph.dst[:8].tolist()))
        [(0, 1), (0, 2), (1, 0), (2, 0), (3, 4), (3, 5), (4, 3), (5, 3)]
        >>> list(zip(graph.src[8:].tolist(), graph.dst[8:].tolist(), graph.size_bytes[8:].tolist()))
        [(1, 4, 2.0), (4, 1, 2.0), (2, 5, 2.0), (5, 2, 2.0), (0, 3, 10.0), (3, 0, 10.0)]
        """
        group, transfers, buckets = self.template.group, self.template.transfers, self.template.buckets
        gpu_of = self.gpu_of[:groups]

        # Nodes of tasks [groups, micro-batches, tasks] and of transfers inside replicas, likewise.
        every = np.arange(self.plan.micro_batches, dtype=np.int32)
        unit = len(group.subop)
        tasks = self._tasks(builder, gpu_of, label, priority)
        first_user = np.argsort(group.position)[transfers.position].astype(np.int32)
        size_bytes, startup_us = transfers.size_bytes, np.zeros(())
        if self.library is not None:
            startup_us, factor = self.library.exchange_costs(transfers, group, self.gpu_of[0])
            size_bytes = size_bytes * factor
        sends = builder.transfers(
            gpu_of[:, None, transfers.sender],
            gpu_of[:, None, transfers.device],
            size_bytes,
            transfers.position + priority + unit * self.template.passes.slots_of(first_user, every),
            startup_us=startup_us,
        )

        # Columns of tasks and transfers, and of those that wait for them; the same in every micro-batch.
        before, after = _direct(group)
        builder.depend(tasks[..., before], tasks[..., after])
        builder.depend(tasks[..., transfers.maker], sends[..., transfers.made])
        builder.depend(sends[..., transfers.before], sends[..., transfers.after])
        arrival, consumer = unique_pairs(transfers.arrival, transfers.consumer)
        builder.depend(sends[..., arrival], tasks[..., consumer])
        pass_ends = self._order_passes(builder, tasks)
        host = HostTime(template=self.template, framework=self.framework, builder=builder)
        host.add(tasks, sends, pass_ends, mark_before)

        # Gradients are summed when the last micro-batch has gone back: it does so last in every schedule.
        last = tasks[:, -1]
        sums = priority + self._priorities - len(buckets)

        # Where the sums of buckets are, or the parameters that are made of them.
        if self.plan.shares_states:
            synced, tasks = self._shared_states(builder, sums).add(tasks)
        else:
            synced = self._synchronise_all(builder, last, sums)

        # The iteration ends when all sums are there and all tasks are done that nothing else waits for.
        waited_for = np.concatenate([before, transfers.maker, *(b.producers for b in buckets)])
        is_end = np.ones(len(group.subop), dtype=np.bool_)
        is_end[waited_for] = False
        ends = np.flatnonzero(is_end)
        mark = builder.barriers(1, label=len(builder.labels) - 1)
        for nodes in (last[:, ends], *synced):
            builder.depend(nodes, mark)
        return tasks, mark

    def _tasks(
        self,
        builder: TaskBuilder,
        gpu_of: NDArray[np.int32],
        label: Indices,
        priority: int,
    ) -> Nodes:
        """Add the tasks of all micro-batches and of the optimizer. [groups, micro-batches, tasks]"""
        group, passes, count = self.template.group, self.template.passes, self.plan.micro_batches
        gpu = gpu_of[:, None, group.device]
        duration = group.duration_us / self.speed[gpu]
        if self.plan.shares_states:
            duration[..., passes.row < 0] /= self.plan.dp
        duration = duration * self.framework.slowest_of(self.plan.gpus)
        every = np.arange(count, dtype=np.int32)
        columns = np.arange(len(group.subop), dtype=np.int32)
        place = group.position + priority + len(columns) * passes.slots_of(columns, every)

        # All but the last micro-batch have no optimizer of their own.
        work = np.flatnonzero(passes.row >= 0)
        tasks = np.empty((len(gpu_of), count, len(columns)), dtype=np.int32)
        if count > 1:
            tasks[:, :-1, work] = builder.tasks(
                gpu[..., work], duration[..., work], place[:-1, work], label[work]
            )
        tasks[:, -1:] = builder.tasks(gpu, duration, place[-1:], label)
        rest = np.flatnonzero(passes.row < 0)
        tasks[:, :-1, rest] = tasks[:, -1:, rest]
        return tasks

    def _order_passes(self, builder: TaskBuilder, tasks: Nodes) -> list[Nodes]:
        """Make each stage begin a pass when it has ended the one before, and its optimizer after the last.

        Returns
        -------
        Ends of the passes of each stage, [groups, passes]; none where there is no order to keep.
        """
        passes = self.template.passes
        if not passes.ordered:
            return []
        ends: list[Nodes] = []
        for own, optimizer in zip(passes.passes, passes.optimizer, strict=True):
            done = builder.barriers((len(tasks), len(own)), label=len(builder.labels) - 1)
            for number, each in enumerate(own):
                sinks = tasks[:, each.micro_batch, passes.sinks[row_of(each)]]
                builder.depend(sinks, done[:, number, None])
                if number + 1 < len(own):
                    following = own[number + 1]
                    sources = tasks[:, following.micro_batch, passes.sources[row_of(following)]]
                    builder.depend(done[:, number, None], sources)
            builder.depend(done[:, -1, None], tasks[:, -1, optimizer])
            ends.append(done)
        return ends

    def _shared_states(self, builder: TaskBuilder, priority: int) -> SharedStates:
        return SharedStates(
            template=self.template,
            builder=builder,
            gpu_of=self.gpu_of,
            priority=priority,
            label=len(builder.labels) - 1,
            library=self.library,
        )

    def _synchronise_all(self, builder: TaskBuilder, tasks: Nodes, priority: int) -> list[Nodes]:
        """Add the collectives of all buckets; return where they end. [groups, members] or [groups, buckets]

        Where passes are ordered there may be thousands of buckets: those of one device each, on one ring over
        the replicas, are added together. Elsewhere one by one, which numbers the nodes otherwise.
        """
        buckets = self.template.buckets
        together = self.template.passes.ordered and len(self.tiers) == 1 and not self.orders
        single = [number for number, b in enumerate(buckets) if together and len(b.devices) == 1]
        done = [self._synchronise_single(builder, tasks, single, priority)] if single else []
        return done + [
            self._synchronise(builder, tasks, bucket, priority + number)
            for number, bucket in enumerate(buckets)
            if not (together and len(bucket.devices) == 1)
        ]

    def _synchronise_single(
        self, builder: TaskBuilder, tasks: Nodes, numbers: list[int], priority: int
    ) -> Nodes:
        """Add rings of buckets that are on one device each; return where they end. [groups, buckets]

        Examples
        --------
        The three buckets of the worked example, each on one device of two groups.

        >>> from sipml_core.testing.worked import lowering
        >>> job, builder = lowering(dp=2), TaskBuilder(6, ("matmul", "sync"))
        >>> tasks = builder.tasks(job.gpu_of[:, job.template.group.device], 1.0, 0, 0)
        >>> job._synchronise_single(builder, tasks, [0, 1, 2], priority=0).shape
        (2, 3)
        >>> graph = builder.build()
        >>> list(zip(graph.src.tolist(), graph.dst.tolist(), graph.size_bytes.tolist()))
        [(1, 4, 2.0), (4, 1, 2.0), (2, 5, 2.0), (5, 2, 2.0), (0, 3, 10.0), (3, 0, 10.0)]
        """
        buckets = [self.template.buckets[number] for number in numbers]

        # Bucket of each of its makers and users, and these. [pairs]
        made_by = np.repeat(np.arange(len(buckets)), [len(b.producers) for b in buckets])
        used_by = np.repeat(np.arange(len(buckets)), [len(b.consumers) for b in buckets])
        makers = np.concatenate([b.producers for b in buckets])
        users = np.concatenate([b.consumers for b in buckets])

        # All makers are waited for: on the device, or doing what the device did.
        ready = builder.barriers((len(buckets), len(tasks)), label=len(builder.labels) - 1)
        builder.depend(tasks[:, makers], ready[made_by].T)
        rings = Rings(
            builder=builder,
            steps=self.plan.ring_steps,
            priority=priority + np.array(numbers)[:, None],
            label=len(builder.labels) - 1,
            counter_rotating=self.plan.counter_rotating,
            library=self.library,
            in_network=self.in_network,
        )
        size_bytes = np.array([b.size_bytes for b in buckets])[:, None]
        members = self.gpu_of[:, [b.devices[0] for b in buckets]].T
        done = rings.all_reduce(members, size_bytes, ready, made=len(tasks)).T
        builder.depend(done[:, used_by], tasks[:, users])
        return done

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

        # Column of each device among the members, -1 for none [replica]; of makers and users [pairs].
        column = np.full(self.plan.replica_gpus, -1)
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
            library=self.library,
            in_network=self.in_network,
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
        degrees = ("mp * dp", f"{plan.mp} * {plan.dp}")
        if plan.pp > 1:
            degrees = ("mp * pp * dp", f"{plan.mp} * {plan.pp} * {plan.dp}")
        raise ConfigError(f"{degrees[0]} must equal the cluster's {cluster.gpus} GPUs, got {degrees[1]}")
    if order is None:
        return plan.positions
    if not np.array_equal(np.sort(order), np.arange(cluster.gpus)):
        raise ConfigError(f"order must be a permutation of 0..{cluster.gpus - 1}")
    return np.asarray(order, dtype=np.int32)[plan.positions]


def _tiers(plan: Plan, server_gpus: int | None) -> tuple[int, ...]:
    """Return how the dp counterparts of a device are arranged: (servers, replicas in each), or (dp,)."""
    if server_gpus is not None and server_gpus < 1:
        raise ConfigError(f"server_gpus must be at least 1, got {server_gpus}")
    if server_gpus is None or plan.mp % server_gpus == 0:
        return (plan.dp,)
    together = replicas_in_server(plan, server_gpus)
    if together == 1:
        raise ConfigError(
            f"two-tier synchronisation needs whole groups in whole servers: {plan.dp} groups of "
            f"mp={plan.mp} do not fill servers of {server_gpus} GPUs"
        )
    return (plan.dp // together, together)


def _direct(group: GroupTasks) -> tuple[Indices, Indices]:
    """Return dependencies between tasks that no transfer carries: on one device, and gates."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    return unique_pairs(
        np.concatenate([group.edge_src[local], group.gate_before]),
        np.concatenate([group.edge_dst[local], group.gate_after]),
    )
