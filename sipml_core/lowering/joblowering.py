"""From the template of a group to the tasks of the whole job: all groups, all iterations."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.lowering.blockexchanges import BlockTransfers
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import in_network_bytes
from sipml_core.lowering.expertgroups import load_of_ranks, updating_replicas
from sipml_core.lowering.forwarding import Forwarding
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.grouptemplate import GroupTemplate, TrafficBytes
from sipml_core.lowering.hosttime import HostTime
from sipml_core.lowering.iterations import next_iteration
from sipml_core.lowering.passtasks import row_of
from sipml_core.lowering.shardedstates import SharedStates
from sipml_core.lowering.sharedparameters import SharedParameters
from sipml_core.lowering.synchronisation import (
    OptimizerStep,
    ReplicaCollectives,
    Synchronisation,
    server_tiers,
)
from sipml_core.model import (
    GRADIENT,
    PIPELINE,
    TENSOR,
    Cluster,
    Framework,
    Nodes,
    Plan,
    TaskBuilder,
    TaskGraph,
)


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
    #: See `Rings.orders` and `Rings.tier_orders`.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = ()
    #: See `Rings.library` and `Rings.in_network`.
    library: Library | None = None
    in_network: bool = False
    framework: Framework = attrs.Factory(Framework)
    #: How transfers whose ends no circuit joins are passed on; None: there are none.
    forwarding: Forwarding | None = None

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
        tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = (),
        library: Library | None = None,
        in_network: bool = False,
        framework: Framework | None = None,
        forwarding: Forwarding | None = None,
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
            tiers=tiers or server_tiers(template.plan, server_gpus),
            speed=speed,
            orders=orders,
            tier_orders=tier_orders,
            library=library,
            in_network=in_network,
            framework=framework or Framework(),
            forwarding=forwarding,
        )

    @property
    def plan(self) -> Plan:
        return self.template.plan

    @property
    def period(self) -> int:
        """Return after how many replicas the job repeats: those of one server in two tiers, of a block."""
        period = self.plan.replicas if self.orders else math.prod(self.tiers[1:])
        return math.lcm(period, self.plan.block)

    @property
    def kind_bytes(self) -> NDArray[np.float64]:
        """Return what one iteration of all replicas sends by `TRAFFIC_KINDS`. [kinds] [bytes]

        Without what a library adds on the wire, and without what GPUs pass on for others.
        """
        found = self.template.kind_bytes
        if self.in_network and not self.plan.shares_states:
            found[GRADIENT] = sum(
                in_network_bytes(bucket.size_bytes, shape) * groups
                for bucket in self.template.buckets
                for groups, shape in [self._ring_shape(bucket)]
            )
        return found

    def _ring_shape(self, bucket: Bucket) -> tuple[int, tuple[int, ...]]:
        """Return how many rings of one standing a bucket has, and the tiers of each, innermost last."""
        devices = len(bucket.devices)
        if bucket.of_experts:
            return self.plan.ep, (self.plan.expert_replicas, devices)
        return 1, (*self.tiers, devices)

    @property
    def traffic(self) -> TrafficBytes:
        """Return `kind_bytes` in two parts."""
        return TrafficBytes.of(self.kind_bytes)

    def tasks(self, groups: int | None = None) -> TaskGraph:
        """Return the tasks of all replicas, or of the first `groups` of them only.

        A part of the replicas, a multiple of `period` that divides them, sends what it would send in the
        whole job, to the same GPUs, but waits for its own members where it would wait for others: right
        if the others do the same at the same time (see `folding`).
        """
        groups = self.plan.replicas if groups is None else groups
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
            first = iteration * self.priorities
            tasks, mark = self._iteration(builder, groups, label, first, previous, mark_before)
            if previous is not None:
                # What follows the last micro-batch, before what begins the first.
                builder.depend(previous[:, -1, chain[0]], tasks[:, 0, chain[1]])
                builder.depend(marks[-1], mark)
            previous = tasks
            marks.append(mark)
        return self._slowed(self._passed_on(builder.build(np.concatenate(marks)), groups))

    def _slowed(self, tasks: TaskGraph) -> TaskGraph:
        """Return the tasks, slowed while collectives move; sends between stages take few channels."""
        if self.library is None or not self.library.slowdown or tasks.kind is None:
            return tasks
        return attrs.evolve(tasks, slowdown=self.library.slowdown, slows=tasks.kind != PIPELINE)

    def _passed_on(self, tasks: TaskGraph, groups: int) -> TaskGraph:
        """Return the tasks of the first groups, what is out of reach passed on from GPU to GPU."""
        if self.forwarding is None:
            return tasks
        return self.forwarding.applied(tasks, self.gpu_of.reshape(-1), groups * self.plan.replica_gpus)

    def sends(self, groups: int) -> TaskGraph:
        """Return what `tasks` sends, on the wire, all micro-batches in one transfer.

        For the bytes of each pair: nothing waits for what it would wait for.
        """
        transfers, group = self.template.transfers, self.template.group
        builder = TaskBuilder(self.plan.gpus, ("sync",))
        gpu_of = self.gpu_of[:groups]
        _, wire_bytes = self._exchange_costs()
        size_bytes = wire_bytes * self.plan.micro_batches
        for _ in range(self.plan.iterations):
            tasks = builder.tasks(gpu_of[:, group.device], 0.0, 0, 0)
            builder.transfers(gpu_of[:, transfers.sender], gpu_of[:, transfers.device], size_bytes, 0)
            self._exchange(builder, gpu_of, tasks[:, None], self.plan.micro_batches)
            every = np.broadcast_to(tasks[:, None], (groups, self.plan.micro_batches, tasks.shape[1]))
            self._collectives(builder, every, 0)
        return self._passed_on(builder.build(), groups)

    def iteration_of(self, tasks: TaskGraph) -> NDArray[np.int64]:
        """Return the iteration of each transfer of `tasks`, from 0. [transfers]"""
        return np.asarray(tasks.priority[tasks.compute_tasks :] // self.priorities, dtype=np.int64)

    def stage_of(self, tasks: TaskGraph) -> NDArray[np.int64]:
        """Return the pipeline stage of the sender of each transfer of `tasks`, from 0. [transfers]"""
        device = np.argsort(self.gpu_of.reshape(-1)) % self.plan.replica_gpus  # of each GPU
        return np.asarray(device[tasks.src] // self.plan.mp, dtype=np.int64)

    @property
    def priorities(self) -> int:
        """Return how many priorities one iteration uses: tasks and activations first, then its buckets."""
        template = self.template
        positions, buckets = len(template.group.subop), len(template.buckets)
        return template.passes.priorities(self.plan.iterations, positions, buckets)

    def check_order(self) -> None:
        """`InfeasibleError` if an iteration has more passes of more tasks than can be put in order."""
        _ = self.priorities

    def nodes(self, groups: int) -> int:
        """Return tasks and transfers of so many groups, but for what they exchange with others."""
        each = len(self.template.group.subop) + len(self.template.transfers.sender)
        return groups * each * self.plan.micro_batches * self.plan.iterations

    def _iteration(
        self,
        builder: TaskBuilder,
        groups: int,
        label: Indices,
        priority: int,
        previous: Nodes | None = None,
        mark_before: Nodes | None = None,
    ) -> tuple[Nodes, Nodes]:
        """Add one iteration; return its tasks [groups, micro-batches, tasks] and its mark [1].

        The optimizer's tasks, which there are once, are in the rows of all micro-batches. `previous` are the
        tasks of the iteration before.

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
        startup_us, size_bytes = self._exchange_costs()
        sends = builder.transfers(
            gpu_of[:, None, transfers.sender],
            gpu_of[:, None, transfers.device],
            size_bytes,
            transfers.position + priority + unit * self.template.passes.slots_of(first_user, every),
            startup_us=startup_us,
            kind=np.where(
                transfers.sender // self.plan.mp == transfers.device // self.plan.mp, TENSOR, PIPELINE
            ),
        )

        # Columns of tasks and transfers, and of those that wait for them; the same in every micro-batch.
        before, after = _direct(group)
        builder.depend(_columns(tasks, before), _columns(tasks, after))
        builder.depend(_columns(tasks, transfers.maker), _columns(sends, transfers.made))
        builder.depend(_columns(sends, transfers.before), _columns(sends, transfers.after))
        arrival, consumer = unique_pairs(transfers.arrival, transfers.consumer)
        builder.depend(_columns(sends, arrival), _columns(tasks, consumer))
        pass_ends = self._order_passes(builder, tasks)
        self._exchange(builder, gpu_of, tasks, sends=sends, label=label, priority=priority)
        host = HostTime(template=self.template, framework=self.framework, builder=builder)
        host.add(tasks, sends, pass_ends, mark_before)

        # Gradients are summed when the last micro-batch has gone back: it does so last in every schedule.
        last = tasks[:, -1]
        sums = priority + self.priorities - len(buckets)

        # Where the sums of buckets are, or the parameters that are made of them.
        synced, tasks = self._collectives(builder, tasks, sums, priority, previous)

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
        duration, place = self._duration_us(gpu), self._place(priority)
        columns = np.arange(len(group.subop), dtype=np.int32)

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

    def _exchange_costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start-up [us] and bytes on the wire of the transfers inside a replica. [transfers]"""
        template = self.template
        size_bytes = template.transfers.size_bytes
        if self.library is None:
            return np.zeros(()), size_bytes
        startup_us, factor = self.library.exchange_costs(template.transfers, template.group, self.gpu_of[0])
        return startup_us, size_bytes * factor

    def _duration_us(self, gpu: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return how long each task takes on its GPU. [groups, 1, tasks]"""
        group, passes, plan = self.template.group, self.template.passes, self.plan
        duration = group.duration_us / self.speed[gpu]
        graph = group.graph.graph
        if plan.shares_states:
            updates = passes.row < 0
            duration[..., updates] /= updating_replicas(graph, plan)[group.op[updates]]
        if graph.expert_shares:
            load = load_of_ranks(graph, plan)[:, group.op]
            duration = duration * np.tile(load, (len(gpu) // plan.block, 1))[:, None]
        if self.template.pieces is not None:
            duration[..., self.template.pieces.task] /= plan.cp
        return duration * self.framework.slowest_of(plan.gpus)

    def _place(self, priority: int) -> NDArray[np.int64]:
        """Return the priority of each task. [micro-batches, tasks]"""
        group, passes = self.template.group, self.template.passes
        every = np.arange(self.plan.micro_batches, dtype=np.int32)
        columns = np.arange(len(group.subop), dtype=np.int32)
        return np.asarray(group.position + priority + len(columns) * passes.slots_of(columns, every))

    def _exchange(
        self,
        builder: TaskBuilder,
        gpu_of: NDArray[np.int32],
        tasks: Nodes,
        repeats: int = 1,
        *,
        sends: Nodes | None = None,
        label: Indices | None = None,
        priority: int = 0,
    ) -> None:
        """Add what replicas of a block exchange in each pass; `repeats`: in one transfer for so many."""
        template, plan = self.template, self.plan
        if template.blocks is None:
            return
        place = self._place(priority)[: tasks.shape[1]]
        transfers = BlockTransfers(
            exchanges=template.blocks, plan=plan, builder=builder, gpu_of=gpu_of,
            label=len(builder.labels) - 1, repeats=repeats, library=self.library,
        )  # fmt: skip
        arrived, came_in = transfers.add(tasks, place)
        if sends is None or label is None:
            return
        builder.depend(arrived[..., template.blocks.sent], sends[..., template.blocks.send])
        if template.pieces is not None and came_in is not None:
            task = template.pieces.task
            gpu = gpu_of[:, None, template.group.device]
            works = gpu[..., task], self._duration_us(gpu)[..., task], place[:, task], label[task]
            template.pieces.add(builder, tasks, sends, came_in, works)

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

    def _collectives(
        self,
        builder: TaskBuilder,
        tasks: Nodes,
        priority: int,
        first_priority: int = 0,
        previous: Nodes | None = None,
    ) -> tuple[list[Nodes], Nodes]:
        """Add what replicas exchange; return where it ends, and tasks whose optimizer ends with it.

        Parameters
        ----------
        tasks, previous
            Of this iteration and of the one before. [groups, micro-batches, tasks]
        priority, first_priority
            Of the first bucket, and of the first task of the iteration.
        """
        gathers, last = self.template.gathers, tasks[:, -1]
        if not self.plan.shares_states:
            return self.synchronisation(builder, last, priority).add(last), tasks
        over = self._over_replicas(builder, last, priority)
        if gathers is not None:
            parameters = SharedParameters(over=over, gathers=gathers, first_priority=first_priority)
            return parameters.add(tasks, previous), tasks
        return SharedStates(over=over).add(tasks)

    def _over_replicas(self, builder: TaskBuilder, tasks: Nodes, priority: int) -> ReplicaCollectives:
        template, label = self.template, len(builder.labels) - 1
        step = OptimizerStep.of(template, builder, tasks, label)
        return ReplicaCollectives(
            template=template, builder=builder, gpu_of=self.gpu_of, priority=priority, label=label,
            step=step, library=self.library, in_network=self.in_network,
            tiers=self.tiers, tier_orders=self.tier_orders,
        )  # fmt: skip

    def synchronisation(self, builder: TaskBuilder, tasks: Nodes, priority: int = 0) -> Synchronisation:
        """Return what adds the all-reduces of one iteration, whose last micro-batch are `tasks`."""
        over = self._over_replicas(builder, tasks, priority)
        return Synchronisation(over=over, tiers=self.tiers, orders=self.orders, tier_orders=self.tier_orders)


def _columns(nodes: Nodes, columns: Indices) -> Nodes:
    """Return ``nodes[..., columns]``, laid out as it is read."""
    return np.take(nodes, columns, axis=-1)


def _gpu_of(plan: Plan, cluster: Cluster, order: NDArray[np.int32] | None) -> NDArray[np.int32]:
    if plan.gpus != cluster.gpus:
        shown = [name for name in ("mp", "cp", "pp", "dp") if name in ("mp", "dp") or getattr(plan, name) > 1]
        degrees = " * ".join(str(getattr(plan, name)) for name in shown)
        raise ConfigError(f"{' * '.join(shown)} must equal the cluster's {cluster.gpus} GPUs, got {degrees}")
    if order is None:
        return plan.positions
    if not np.array_equal(np.sort(order), np.arange(cluster.gpus)):
        raise ConfigError(f"order must be a permutation of 0..{cluster.gpus - 1}")
    return np.asarray(order, dtype=np.int32)[plan.positions]


def _direct(group: GroupTasks) -> tuple[Indices, Indices]:
    """Return dependencies between tasks that no transfer carries: on one device, and gates."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    return unique_pairs(
        np.concatenate([group.edge_src[local], group.gate_before]),
        np.concatenate([group.edge_dst[local], group.gate_after]),
    )
