"""From the template of a group to the tasks of the whole job: all groups, all iterations."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import in_network_bytes
from sipml_core.lowering.forwarding import Forwarding
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import Indices
from sipml_core.lowering.grouptemplate import GroupTemplate, TrafficBytes
from sipml_core.lowering.iterations import next_iteration
from sipml_core.lowering.iterationtasks import IterationTasks
from sipml_core.lowering.synchronisation import (
    server_tiers,
)
from sipml_core.model import (
    GRADIENT,
    PIPELINE,
    Cluster,
    Framework,
    Nodes,
    Plan,
    RelayedTasks,
    TaskBuilder,
    TaskGraph,
)


@frozen(kw_only=True, eq=False)
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
        builder, marks = self._added(self.plan.replicas if groups is None else groups, relayed=False)
        tasks = builder.build(marks)
        return self._slowed(self._passed_on(tasks, self.plan.replicas if groups is None else groups))

    def relayed_tasks(self, groups: int | None = None) -> RelayedTasks | None:
        """Return the same tasks with relayed transfers as one; None: there are none, or legs matter."""
        host = self.framework.op_us or self.framework.collective_us
        if self.template.relayed is None or self.library is not None or self.forwarding is not None or host:
            return None
        builder, marks = self._added(self.plan.replicas if groups is None else groups, relayed=True)
        return builder.build_relayed(marks)

    def _added(self, groups: int, *, relayed: bool) -> tuple[TaskBuilder, Nodes]:
        """Return the tasks of the first groups in a builder, and the marks of all iterations."""
        group = self.template.group
        kinds = [op.kind for op in group.graph.graph.ops]
        labels = (*dict.fromkeys(kinds), "sync")
        builder = TaskBuilder(self.plan.gpus, labels)
        made = self.template.relayed if relayed else None
        label = np.array([labels.index(kind) for kind in kinds], dtype=np.int32)[group.op]
        job = attrs.evolve(self.iteration(builder, groups, label), relayed=made)
        chain = next_iteration(group)
        marks: list[Nodes] = []
        previous: Nodes | None = None
        for iteration in range(self.plan.iterations):
            mark_before = marks[-1] if marks else None
            tasks, mark = job.add(iteration * self.template.priorities, previous, mark_before)
            if previous is not None:
                # What follows the last micro-batch, before what begins the first.
                builder.depend(previous[-1, chain[0]], tasks[0, chain[1]])
                builder.depend(marks[-1], mark)
            previous = tasks
            marks.append(mark)
        return builder, np.concatenate(marks)

    def iteration(self, builder: TaskBuilder, groups: int, label: Indices | None = None) -> IterationTasks:
        """Return what adds iterations of the first groups to a builder; `label` is that of each task."""
        return IterationTasks(
            template=self.template, builder=builder, every_gpu=np.ascontiguousarray(self.gpu_of.T),
            groups=groups, label=label, speed=self.speed, tiers=self.tiers, orders=self.orders,
            tier_orders=self.tier_orders, library=self.library, in_network=self.in_network,
            framework=self.framework,
        )  # fmt: skip

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
        builder = TaskBuilder(self.plan.gpus, ("sync",))
        job = self.iteration(builder, groups)
        for _ in range(self.plan.iterations):
            job.add_sends()
        return self._passed_on(builder.build(), groups)

    def iteration_of(self, tasks: TaskGraph) -> NDArray[np.int64]:
        """Return the iteration of each transfer of `tasks`, from 0. [transfers]"""
        return np.asarray(tasks.priority[tasks.compute_tasks :] // self.template.priorities, dtype=np.int64)

    def stage_of(self, tasks: TaskGraph) -> NDArray[np.int64]:
        """Return the pipeline stage of the sender of each transfer of `tasks`, from 0. [transfers]"""
        device = np.argsort(self.gpu_of.reshape(-1)) % self.plan.replica_gpus  # of each GPU
        return np.asarray(device[tasks.src] // self.plan.mp, dtype=np.int64)

    def by_group(self, tasks: TaskGraph) -> NDArray[np.int64]:
        """Return where each task of `self.tasks()` would be if those of one group came before the next one's.

        In each iteration: first those of all micro-batches but the last, then those of the last, then what
        belongs to no group, as it is. [tasks]

        Examples
        --------
        Two groups of the worked example, of twelve tasks each.

        >>> from sipml_core.testing.worked import lowering
        >>> job = lowering(dp=2)
        >>> job.by_group(job.tasks())[:6].tolist()
        [0, 12, 1, 13, 2, 14]
        """
        place = np.arange(tasks.compute_tasks).reshape(self.plan.iterations, -1)
        every, work = len(self.template.passes.row), np.count_nonzero(self.template.passes.row >= 0)
        first = 0
        for count in ((self.plan.micro_batches - 1) * work, every):
            block = place[:, first : first + count * self.plan.replicas]
            first += block.shape[1]
            by_group = block.reshape(len(place), self.plan.replicas, count)
            block[:] = by_group.swapaxes(1, 2).reshape(block.shape)
        return place.reshape(-1)

    def check_order(self) -> None:
        """`InfeasibleError` if an iteration has more passes of more tasks than can be put in order."""
        _ = self.template.priorities

    def nodes(self, groups: int) -> int:
        """Return tasks and transfers of so many groups, but for what they exchange with others."""
        each = len(self.template.group.subop) + self.template.transfer_count
        return groups * each * self.plan.micro_batches * self.plan.iterations


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
