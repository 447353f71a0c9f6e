"""What replicas sum after a backward pass: the all-reduces of all buckets, and what waits for them."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.expertgroups import by_experts, from_experts
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.grouptasks import Indices
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.model import Nodes, Plan, TaskBuilder


@attrs.frozen(kw_only=True, eq=False)
class OptimizerStep:
    """Lets the optimizer's tasks start: each after its own sum, or all of a GPU after its last one."""

    builder: TaskBuilder
    #: Of the last micro-batch. [tasks, groups]
    tasks: Nodes
    #: Device of each task of the template. [tasks]
    device: Indices
    #: After all sums of a device; None: no task waits for sums of others. [devices, groups]
    last: Nodes | None

    @classmethod
    def of(cls, template: GroupTemplate, builder: TaskBuilder, tasks: Nodes, label: int) -> OptimizerStep:
        """Return the step of one iteration, as the plan says; barriers get `label`."""
        device, last = template.group.device, None
        if template.plan.optimizer_step == "last":
            last = builder.barriers((template.plan.replica_gpus, tasks.shape[1]), label=label)
            updates = np.concatenate(template.passes.optimizer)
            builder.depend(last[device[updates]], tasks[updates])
        return cls(builder=builder, tasks=tasks, device=device, last=last)

    def wait(self, sums: Nodes, users: Indices) -> None:
        """Make optimizer tasks wait for sums. [..., users, groups], [users]"""
        self.builder.depend(sums, self.tasks[users] if self.last is None else self.last[self.device[users]])


@attrs.frozen(kw_only=True, eq=False)
class ReplicaCollectives:
    """What the collectives over replicas of one iteration are added to."""

    template: GroupTemplate
    builder: TaskBuilder
    #: GPU of device r in replica g, all of them. [replica, dp]
    gpus: NDArray[np.int32]
    #: Priority of the first bucket, and label of barriers.
    priority: int
    label: int
    step: OptimizerStep
    #: See `Rings.library` and `Rings.in_network`.
    library: Library | None = None
    in_network: bool = False
    #: See `Rings.tiers` and `Rings.tier_orders`: of what all replicas scatter and gather.
    tiers: tuple[int, ...] = ()
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = ()

    @property
    def plan(self) -> Plan:
        return self.template.plan

    def rings(self, numbers: NDArray[np.int32]) -> Rings:
        """Return what adds rings of buckets of these numbers, one each. [buckets]"""
        return Rings(
            builder=self.builder,
            steps=self.plan.ring_steps,
            priority=self.priority + numbers[:, None].astype(np.int64),
            label=self.label,
            library=self.library,
        )

    def replica_rings(self, numbers: NDArray[np.int32]) -> Rings:
        """Return `rings` whose members are all replicas: along all dimensions of a torus that they fill."""
        tiers = self.tiers if self.tier_orders else ()
        return attrs.evolve(self.rings(numbers), tiers=tiers, tier_orders=self.tier_orders)


@attrs.frozen(kw_only=True, eq=False)
class Synchronisation:
    """Adds the all-reduces of all buckets: every replica gets the whole sum."""

    over: ReplicaCollectives
    #: Shape into which the dp counterparts are arranged, innermost last.
    tiers: tuple[int, ...]
    #: See `Rings.orders` and `Rings.tier_orders`.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = ()

    def add(self, tasks: Nodes) -> list[Nodes]:
        """Add the collectives of all buckets; return where they end. [members, groups] or [buckets, groups]

        Where passes are ordered there may be thousands of buckets: those of one device each, on one ring over
        the replicas, are added together. Elsewhere one by one, which numbers the nodes otherwise.
        """
        buckets = self.over.template.buckets
        together = (
            self.over.template.passes.ordered
            and len(self.tiers) == 1
            and not (self.orders or self.tier_orders)
        )
        single = [
            number
            for number, bucket in enumerate(buckets)
            if together and len(bucket.devices) == 1 and not bucket.of_experts
        ]
        done = [self._add_single(tasks, single)] if single else []
        others = sorted(set(range(len(buckets))) - set(single))
        return done + [self._add(tasks, number) for number in others]

    def _add_single(self, tasks: Nodes, numbers: list[int]) -> Nodes:
        """Add rings of buckets that are on one device each; return where they end. [buckets, groups]

        Examples
        --------
        The three buckets of the worked example, each on one device of two groups.

        >>> from sipml_core.testing.worked import synchronisation
        >>> sums, builder, tasks = synchronisation(dp=2)
        >>> sums._add_single(tasks, [0, 1, 2]).shape
        (3, 2)
        >>> graph = builder.build()
        >>> list(zip(graph.src.tolist(), graph.dst.tolist(), graph.size_bytes.tolist()))
        [(1, 4, 2.0), (4, 1, 2.0), (2, 5, 2.0), (5, 2, 2.0), (0, 3, 10.0), (3, 0, 10.0)]
        """
        over, builder = self.over, self.over.builder
        buckets = [over.template.buckets[number] for number in numbers]

        # Bucket of each of its makers and users, and these. [pairs]
        made_by, makers = pairs([bucket.producers for bucket in buckets])
        used_by, users = pairs([bucket.consumers for bucket in buckets])

        # All makers are waited for: on the device, or doing what the device did.
        ready = builder.barriers((len(buckets), tasks.shape[1]), label=over.label)
        builder.depend(tasks[makers], ready[made_by])
        rings = attrs.evolve(
            over.rings(np.array(numbers, dtype=np.int32)),
            counter_rotating=over.plan.counter_rotating,
            in_network=over.in_network,
        )
        size_bytes = np.array([b.size_bytes for b in buckets])[:, None]
        members = over.gpus[[b.devices[0] for b in buckets]]
        done = rings.all_reduce(members, size_bytes, ready, made=tasks.shape[1])
        over.step.wait(done[used_by], users)
        return done

    def _add(self, tasks: Nodes, number: int) -> Nodes:
        """Add the collective of one bucket; return where it ends on each member. [members, groups]

        A member that makes none of the gradients joins in when all makers of its group are done. It
        waits for makers that are no members too: these did the same as the member did.

        Examples
        --------
        A bucket on device 0 of two groups: the members are GPUs 0 and 3, each is ready after its tasks 4
        and 7, and each sends the whole sum to the other, with the latency of two steps.

        >>> from sipml_core.testing.worked import synchronisation
        >>> sums, builder, tasks = synchronisation(dp=2)
        >>> bucket = sums.over.template.buckets[2]
        >>> bucket.devices, bucket.producers.tolist(), bucket.consumers.tolist()
        ((0,), [4, 7], [8, 9])
        >>> done = sums._add(tasks, 2)
        >>> done.shape
        (1, 2)
        >>> graph = builder.build()
        >>> list(zip(graph.src.tolist(), graph.dst.tolist(), graph.latency_steps.tolist()))
        [(0, 3, 2.0), (3, 0, 2.0)]
        >>> graph.successors[graph.succ_start[done[0, 0]] : graph.succ_start[done[0, 0] + 1]].tolist()
        [16, 17, 18, 19]
        """
        over, builder = self.over, self.over.builder
        bucket: Bucket = over.template.buckets[number]
        devices, groups = len(bucket.devices), tasks.shape[1]
        device = over.template.group.device

        # Column of each device among the members, -1 for none [replica]; of makers and users [pairs].
        column = np.full(over.plan.replica_gpus, -1)
        column[list(bucket.devices)] = np.arange(devices)
        maker, user = column[device[bucket.producers]], column[device[bucket.consumers]]

        # A member is ready after its own makers, or all of its group's, and after makers that are no members.
        inside = maker >= 0
        ready = builder.barriers((devices, groups), label=over.label)
        builder.depend(tasks[bucket.producers[inside]], ready[maker[inside]])
        idle = np.flatnonzero(np.bincount(maker[inside], minlength=devices) == 0)
        builder.depend(tasks[bucket.producers[inside], None], ready[idle])
        builder.depend(tasks[bucket.producers[~inside], None], ready)

        # One ring through the members of all groups, or tiers of rings. [1, *tiers, devices]
        rings = Rings(
            builder=builder,
            steps=over.plan.ring_steps,
            priority=over.priority + number,
            label=over.label,
            counter_rotating=over.plan.counter_rotating,
            orders=() if bucket.of_experts else self.orders,
            tier_orders=() if bucket.of_experts else self.tier_orders,
            library=over.library,
            in_network=over.in_network,
        )
        members, waits = over.gpus[list(bucket.devices)].T, ready.T
        if bucket.of_experts:
            # One ring for each group of replicas with the same experts. [ep, replicas / ep, devices]
            members, waits = by_experts(members, over.plan), by_experts(waits, over.plan)
            sums = rings.all_reduce(members, bucket.size_bytes, waits, made=waits.shape[1])
            done = from_experts(sums, over.plan).T
        else:
            made = groups // math.prod(self.tiers[1:])
            waits = waits.reshape(1, made, *self.tiers[1:], devices)
            members = members.reshape(1, *self.tiers, devices)
            done = rings.all_reduce(members, bucket.size_bytes, waits, made=made).reshape(groups, devices).T
        over.step.wait(done[user], bucket.consumers)
        return done


def pairs(columns: list[NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the number of each list's items, and the items. [pairs], [pairs]

    >>> pairs([np.array([4, 7]), np.array([5])])
    (array([0, 0, 1]), array([4, 7, 5]))
    """
    return np.repeat(np.arange(len(columns)), [len(column) for column in columns]), np.concatenate(columns)


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
    if plan.replicas % together:
        return 1
    blocks = server.reshape(-1, together, plan.replica_gpus)
    return together if (blocks == blocks[:, :1]).all() else 1


def server_tiers(plan: Plan, server_gpus: int | None) -> tuple[int, ...]:
    """Return how the dp counterparts of a device are arranged: (servers, replicas in each), or (dp,)."""
    if server_gpus is not None and server_gpus < 1:
        raise ConfigError(f"server_gpus must be at least 1, got {server_gpus}")
    if server_gpus is None or plan.mp % server_gpus == 0:
        return (plan.replicas,)
    together = replicas_in_server(plan, server_gpus)
    if together == 1:
        raise ConfigError(
            f"two-tier synchronisation needs whole groups in whole servers: {plan.replicas} groups of "
            f"mp={plan.mp} do not fill servers of {server_gpus} GPUs"
        )
    return (plan.replicas // together, together)
