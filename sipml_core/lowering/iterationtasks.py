"""One iteration of the first groups of a job: its passes, their order, and what replicas exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.blockexchanges import BlockTransfers
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.expertgroups import load_of_ranks, updating_replicas
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.hosttime import HostTime
from sipml_core.lowering.passtasks import row_of
from sipml_core.lowering.relaying import RelayedTransfers
from sipml_core.lowering.shardedstates import SharedStates
from sipml_core.lowering.sharedparameters import SharedParameters
from sipml_core.lowering.synchronisation import OptimizerStep, ReplicaCollectives, Synchronisation
from sipml_core.model import NO_WAY, PIPELINE, TENSOR, Framework, Nodes, Plan, TaskBuilder, Ways


@frozen(kw_only=True, eq=False)
class IterationTasks:
    """Adds iterations of the first groups of a job to a builder, whose last label is that of barriers."""

    template: GroupTemplate
    builder: TaskBuilder
    #: GPU of each device in all groups, and how many of these, the first ones, have tasks. [replica, dp]
    every_gpu: NDArray[np.int32]
    groups: int
    #: Label of each task of the template; None: the first one. [tasks]
    label: Indices | None
    #: As in `Lowering`.
    speed: NDArray[np.float64]
    tiers: tuple[int, ...]
    orders: tuple[tuple[tuple[int, ...], float], ...]
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...]
    library: Library | None
    in_network: bool
    framework: Framework
    #: Transfers of the template with relayed ones as one; None: each leg for itself.
    relayed: RelayedTransfers | None = None

    @property
    def plan(self) -> Plan:
        return self.template.plan

    @property
    def _gpus(self) -> NDArray[np.int32]:
        """Return the GPU of each device in the groups that have tasks. [replica, groups]"""
        return self.every_gpu[:, : self.groups]

    @property
    def _sync(self) -> int:
        return len(self.builder.labels) - 1

    @property
    def _labels(self) -> Indices:
        return np.zeros(len(self.template.group.subop), np.int32) if self.label is None else self.label

    def add(
        self, priority: int, previous: Nodes | None = None, mark_before: Nodes | None = None
    ) -> tuple[Nodes, Nodes]:
        """Add one iteration; return its tasks [micro-batches, tasks, groups] and its mark [1].

        The optimizer's tasks, which there are once, are in the rows of all micro-batches. Groups come last,
        here and in all that is added: what they do at the same time has numbers in a row, so that the engine
        finds it side by side in memory.

        Parameters
        ----------
        priority
            Of its first task.
        previous, mark_before
            Tasks and mark of the iteration before; None: this is the first.

        Examples
        --------
        Two groups of the worked example: 12 tasks each, on the GPUs 0 to 2 and 3 to 5. Inside each group
        there are four transfers; the buckets of devices 1, 2 and 0 follow, one transfer per member.

        >>> from sipml_core.testing.worked import lowering
        >>> job, builder = lowering(dp=2), TaskBuilder(6, ("matmul", "sync"))
        >>> tasks, mark = job.iteration(builder, groups=2).add(priority=0)
        >>> tasks.shape, tasks[0, :4].tolist()
        ((1, 12, 2), [[0, 1], [2, 3], [4, 5], [6, 7]])
        >>> graph = builder.build(mark)
        >>> graph.gpu[tasks[0, :4]].tolist()
        [[0, 3], [0, 3], [1, 4], [2, 5]]
        >>> list(zip(graph.src[:8].tolist(), graph.dst[:8].tolist()))
        [(0, 1), (3, 4), (0, 2), (3, 5), (1, 0), (4, 3), (2, 0), (5, 3)]
        >>> list(zip(graph.src[8:].tolist(), graph.dst[8:].tolist(), graph.size_bytes[8:].tolist()))
        [(1, 4, 2.0), (4, 1, 2.0), (2, 5, 2.0), (5, 2, 2.0), (0, 3, 10.0), (3, 0, 10.0)]
        """
        group, buckets, builder = self.template.group, self.template.buckets, self.builder

        # Nodes of tasks [micro-batches, tasks, groups] and of transfers inside replicas, likewise.
        tasks = self._tasks(priority)
        # Priority of the task at each position: a transfer has that of its first user. [micro-batches, tasks]
        by_position = self._place(priority)[:, np.argsort(group.position)].astype(np.int32)
        transfers = self.template.transfers if self.relayed is None else self.relayed.rows
        sends = self._sends(by_position) if self.relayed is None else self._relayed_sends(by_position)

        # Rows of tasks and transfers, and of those that wait for them; the same in every micro-batch.
        before, after = _direct(group)
        builder.depend(tasks[:, before], tasks[:, after])
        builder.depend(tasks[:, transfers.maker], sends[:, transfers.made])
        builder.depend(sends[:, transfers.before], sends[:, transfers.after])
        arrival, consumer = unique_pairs(transfers.arrival, transfers.consumer)
        builder.depend(sends[:, arrival], tasks[:, consumer])
        pass_ends = self._order_passes(tasks)
        self._exchange(tasks, sends=sends, priority=priority)
        host = HostTime(template=self.template, framework=self.framework, builder=builder)
        host.add(tasks, sends, pass_ends, mark_before)

        # Gradients are summed when the last micro-batch has gone back: it does so last in every schedule.
        last = tasks[-1]
        sums = priority + self.template.priorities - len(buckets)

        # Where the sums of buckets are, or the parameters that are made of them.
        synced, tasks = self._collectives(tasks, sums, priority, previous)

        # The iteration ends when all sums are there and all tasks are done that nothing else waits for.
        waited_for = np.concatenate([before, transfers.maker, *(b.producers for b in buckets)])
        is_end = np.ones(len(group.subop), dtype=np.bool_)
        is_end[waited_for] = False
        ends = np.flatnonzero(is_end)
        mark = builder.barriers(1, label=self._sync)
        for nodes in (last[ends], *synced):
            builder.depend(nodes, mark)
        return tasks, mark

    def _sends(self, by_position: Indices) -> Nodes:
        """Add the transfers inside replicas. [micro-batches, transfers, groups]"""
        transfers, gpus, mp = self.template.transfers, self._gpus, self.plan.mp
        startup_us, size_bytes = self._exchange_costs()
        inside = transfers.sender // mp == transfers.device // mp
        return self.builder.transfers(
            gpus[transfers.sender],
            gpus[transfers.device],
            size_bytes[:, None],
            np.take(by_position, transfers.position, axis=1)[..., None],
            startup_us=startup_us[:, None],
            kind=np.where(inside, np.int8(TENSOR), np.int8(PIPELINE))[:, None],
        )

    def _relayed_sends(self, by_position: Indices) -> Nodes:
        """Add the same, with relayed transfers as one. [micro-batches, rows, groups]

        Places are those of `_sends`: [micro-batches, transfers, groups].
        """
        relayed, gpus = self.relayed, self._gpus
        assert relayed is not None
        batches, groups, count = len(by_position), gpus.shape[1], len(relayed.position)
        ways, every = len(relayed.way_start) - 1, np.arange(groups, dtype=np.int32)
        way, start = relayed.way[:, None], relayed.way_start[:-1] + every[:, None] * relayed.way_start[-1]
        place = relayed.place[:, None] * np.int32(groups) + every
        first = np.arange(batches, dtype=np.int32)[:, None, None] * np.int32(count * groups)
        priority = by_position[:, relayed.position, None]
        return self.builder.passed_on(
            gpus[relayed.rows.sender],
            gpus[relayed.rows.device],
            relayed.rows.size_bytes[:, None],
            Ways(
                start=np.append(start, relayed.way_start[-1] * groups),
                src=gpus[relayed.leg_sender].T.reshape(-1),
                dst=gpus[relayed.leg_device].T.reshape(-1),
                place=np.tile(relayed.leg_place * np.int32(groups), groups),
            ),
            way=np.where(way == NO_WAY, NO_WAY, way + every * np.int32(ways)),
            place=first + place,
            priorities=np.broadcast_to(priority, (*priority.shape[:2], groups)),
            kind=TENSOR,
        )  # fmt: skip

    def add_sends(self) -> None:
        """Add what an iteration sends, on the wire, all micro-batches in one transfer.

        For the bytes of each pair: nothing waits for what it would wait for, and what one device sends
        another inside a replica is one transfer.
        """
        group, gpus = self.template.group, self._gpus
        sender, device, wire_bytes = self.template.leg_ends
        if self.library is not None:
            sender, device = self.template.transfers.sender, self.template.transfers.device
            _, wire_bytes = self._exchange_costs()
        size_bytes = wire_bytes * self.plan.micro_batches
        tasks = self.builder.tasks(gpus[group.device], 0.0, 0, 0)
        pair = sender.astype(np.int64) * self.plan.replica_gpus + device
        sent = np.flatnonzero(np.bincount(pair))
        sender, device = np.divmod(sent, self.plan.replica_gpus)
        sent_bytes = np.bincount(pair, size_bytes)[sent, None]
        self.builder.transfers(gpus[sender], gpus[device], sent_bytes, 0)
        self._exchange(tasks[None], self.plan.micro_batches)
        self._collectives(np.broadcast_to(tasks, (self.plan.micro_batches, *tasks.shape)), 0)

    def _tasks(self, priority: int) -> Nodes:
        """Add the tasks of all micro-batches and of the optimizer. [micro-batches, tasks, groups]"""
        passes, count = self.template.passes, self.plan.micro_batches
        builder, label = self.builder, self._labels[:, None]
        gpu = self._gpus[self.template.group.device]
        duration, place = self._duration_us(), self._place(priority)[..., None]

        # All but the last micro-batch have no optimizer of their own.
        work, rest = np.flatnonzero(passes.row >= 0), np.flatnonzero(passes.row < 0)
        tasks = np.empty((count, *gpu.shape), dtype=np.int32)
        if count > 1:
            tasks[:-1, work] = builder.tasks(gpu[work], duration[work], place[:-1, work], label[work])
        tasks[-1] = builder.tasks(gpu, duration, place[-1], label)
        tasks[:-1, rest] = tasks[-1, rest]
        return tasks

    def _exchange_costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start-up [us] and bytes on the wire of the transfers inside a replica. [transfers]"""
        template = self.template
        size_bytes = template.transfers.size_bytes
        if self.library is None:
            return np.zeros(1), size_bytes
        startup_us, factor = self.library.exchange_costs(
            template.transfers, template.group, self.every_gpu[:, 0]
        )
        return startup_us, size_bytes * factor

    def _duration_us(self) -> NDArray[np.float64]:
        """Return how long each task takes on its GPU. [tasks, groups]"""
        group, passes, plan = self.template.group, self.template.passes, self.plan
        duration = group.duration_us[:, None] / self.speed[self._gpus][group.device]
        graph = group.graph.graph
        if plan.shares_states:
            updates = passes.row < 0
            duration[updates] /= updating_replicas(graph, plan)[group.op[updates], None]
        if graph.expert_shares:
            load = load_of_ranks(graph, plan)[:, group.op].T
            duration = duration * np.tile(load, self.groups // plan.block)
        if self.template.pieces is not None:
            duration[self.template.pieces.task] /= plan.cp
        return duration * self.framework.slowest_of(plan.gpus)

    def _place(self, priority: int) -> NDArray[np.int64]:
        """Return the priority of each task. [micro-batches, tasks]"""
        group, passes = self.template.group, self.template.passes
        every = np.arange(self.plan.micro_batches, dtype=np.int32)
        columns = np.arange(len(group.subop), dtype=np.int32)
        return np.asarray(group.position + priority + len(columns) * passes.slots_of(columns, every))

    def _exchange(
        self, tasks: Nodes, repeats: int = 1, *, sends: Nodes | None = None, priority: int = 0
    ) -> None:
        """Add what replicas of a block exchange in each pass; `repeats`: in one transfer for so many."""
        template, plan, builder = self.template, self.plan, self.builder
        if template.blocks is None:
            return
        place = self._place(priority)[: len(tasks)]
        transfers = BlockTransfers(
            exchanges=template.blocks, plan=plan, builder=builder, gpus=self._gpus,
            label=self._sync, repeats=repeats, library=self.library,
        )  # fmt: skip
        arrived, came_in = transfers.add(tasks, place)
        if sends is None:
            return
        builder.depend(arrived[:, template.blocks.sent], sends[:, template.blocks.send])
        if template.pieces is not None and came_in is not None:
            task = template.pieces.task
            gpu = self._gpus[template.group.device[task]]
            works = gpu, self._duration_us()[task], place[:, task], self._labels[task]
            template.pieces.add(builder, tasks, sends, came_in, works)

    def _order_passes(self, tasks: Nodes) -> list[Nodes]:
        """Make each stage begin a pass when it has ended the one before, and its optimizer after the last.

        Returns
        -------
        Ends of the passes of each stage, [passes, groups]; none where there is no order to keep.
        """
        passes, builder = self.template.passes, self.builder
        if not passes.ordered:
            return []
        ends: list[Nodes] = []
        for own, optimizer in zip(passes.passes, passes.optimizer, strict=True):
            done = builder.barriers((len(own), tasks.shape[-1]), label=self._sync)
            for number, each in enumerate(own):
                builder.depend(tasks[each.micro_batch, passes.sinks[row_of(each)]], done[number])
                if number + 1 < len(own):
                    following = own[number + 1]
                    sources = tasks[following.micro_batch, passes.sources[row_of(following)]]
                    builder.depend(done[number], sources)
            builder.depend(done[-1], tasks[-1, optimizer])
            ends.append(done)
        return ends

    def _collectives(
        self,
        tasks: Nodes,
        priority: int,
        first_priority: int = 0,
        previous: Nodes | None = None,
    ) -> tuple[list[Nodes], Nodes]:
        """Add what replicas exchange; return where it ends, and tasks whose optimizer ends with it.

        Parameters
        ----------
        tasks, previous
            Of this iteration and of the one before. [micro-batches, tasks, groups]
        priority, first_priority
            Of the first bucket, and of the first task of the iteration.
        """
        gathers, last = self.template.gathers, tasks[-1]
        if not self.plan.shares_states:
            return self.synchronisation(last, priority).add(last), tasks
        over = self._over_replicas(last, priority)
        if gathers is not None:
            parameters = SharedParameters(over=over, gathers=gathers, first_priority=first_priority)
            return parameters.add(tasks, previous), tasks
        return SharedStates(over=over).add(tasks)

    def _over_replicas(self, tasks: Nodes, priority: int) -> ReplicaCollectives:
        template, builder, label = self.template, self.builder, self._sync
        step = OptimizerStep.of(template, builder, tasks, label)
        return ReplicaCollectives(
            template=template, builder=builder, gpus=self.every_gpu, priority=priority, label=label,
            step=step, library=self.library, in_network=self.in_network,
            tiers=self.tiers, tier_orders=self.tier_orders,
        )  # fmt: skip

    def synchronisation(self, tasks: Nodes, priority: int = 0) -> Synchronisation:
        """Return what adds the all-reduces of one iteration, whose last micro-batch are `tasks`."""
        over = self._over_replicas(tasks, priority)
        return Synchronisation(over=over, tiers=self.tiers, orders=self.orders, tier_orders=self.tier_orders)


def _direct(group: GroupTasks) -> tuple[Indices, Indices]:
    """Return dependencies between tasks that no transfer carries: on one device, and gates."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    return unique_pairs(
        np.concatenate([group.edge_src[local], group.gate_before]),
        np.concatenate([group.edge_dst[local], group.gate_after]),
    )
