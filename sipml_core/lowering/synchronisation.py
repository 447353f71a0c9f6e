"""What replicas sum after a backward pass: the all-reduces of all buckets, and what waits for them."""

from __future__ import annotations

import math
from collections.abc import Hashable

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.expertgroups import by_experts, from_experts
from sipml_core.lowering.grouptasks import Indices
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.model import Nodes, Plan, TaskBuilder


@frozen(kw_only=True, eq=False)
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


@frozen(kw_only=True, eq=False)
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


@frozen(kw_only=True, eq=False)
class Synchronisation:
    """Adds the all-reduces of all buckets: every replica gets the whole sum."""

    over: ReplicaCollectives
    #: Shape into which the dp counterparts are arranged, innermost last.
    tiers: tuple[int, ...]
    #: See `Rings.orders` and `Rings.tier_orders`.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = ()

    def add(self, tasks: Nodes) -> list[Nodes]:
        """Add the collectives of all buckets; return where they end. [buckets, members, groups], or in rows

        Where passes are ordered there may be thousands of buckets: those of one device each, on one ring over
        the replicas, are numbered together. Elsewhere nodes are numbered bucket after bucket.
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
        return done + self._add(tasks, sorted(set(range(len(buckets))) - set(single)))

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

    def _add(self, tasks: Nodes, numbers: list[int]) -> list[Nodes]:
        """Add the collectives of buckets of these numbers, in turn; return where they end on each member.

        Those of one form are lowered together, and their nodes numbered afterwards as if one bucket had
        come after the other. [buckets of a form, members, groups]

        Examples
        --------
        A bucket on device 0 of two groups: the members are GPUs 0 and 3, each is ready after its tasks 4
        and 7, and each sends the whole sum to the other, with the latency of two steps.

        >>> from sipml_core.testing.worked import synchronisation
        >>> sums, builder, tasks = synchronisation(dp=2)
        >>> bucket = sums.over.template.buckets[2]
        >>> bucket.devices, bucket.producers.tolist(), bucket.consumers.tolist()
        ((0,), [4, 7], [8, 9])
        >>> (done,) = sums._add(tasks, [2])
        >>> done.shape
        (1, 1, 2)
        >>> graph = builder.build()
        >>> list(zip(graph.src.tolist(), graph.dst.tolist(), graph.latency_steps.tolist()))
        [(0, 3, 2.0), (3, 0, 2.0)]
        >>> graph.successors[graph.succ_start[done[0, 0, 0]] : graph.succ_start[done[0, 0, 0] + 1]].tolist()
        [16, 17, 18, 19]
        """
        builder, buckets, groups = self.over.builder, self.over.template.buckets, tasks.shape[1]
        if self.over.plan.ring_steps == "explicit":
            # Steps are numbered before rings, so that no two buckets can be lowered together.
            alone = [[number] for number in numbers]
            return [self._join(tasks, each, *self._add_alike(builder, each, groups)) for each in alone]

        # Forms are told apart by devices where a library counts the servers of one ring for all.
        forms: dict[Hashable, list[int]] = {}
        for number in numbers:
            devices = buckets[number].devices
            form = buckets[number].of_experts, devices if self.over.library else len(devices)
            forms.setdefault(form, []).append(number)
        alike = list(forms.values())
        parts = [TaskBuilder(builder.gpus, builder.labels) for _ in alike]
        made = [self._add_alike(part, each, groups) for part, each in zip(parts, alike, strict=True)]
        found = builder.append(list(zip(parts, alike, strict=True)))
        return [
            self._join(tasks, each, node[ready], node[done])
            for each, node, (ready, done) in zip(alike, found, made, strict=True)
        ]

    def _add_alike(self, builder: TaskBuilder, numbers: list[int], groups: int) -> tuple[Nodes, Nodes]:
        """Add collectives of buckets of one form to a builder; what they wait for, and what waits, is left.

        Returns
        -------
        Where each member is to be ready, and where it has the sum. [buckets, devices, groups] each
        """
        over, plan = self.over, self.over.plan
        buckets = [over.template.buckets[number] for number in numbers]
        devices, of_experts = len(buckets[0].devices), buckets[0].of_experts
        ready = builder.barriers((len(buckets), devices, groups), label=over.label)

        # Of experts each bucket has a ring for each group of replicas with the same ones.
        rings_each = plan.ep if of_experts else 1
        size_bytes = np.array([bucket.size_bytes for bucket in buckets])[:, None]
        rings = attrs.evolve(
            over.rings(np.array(numbers, dtype=np.int32).repeat(rings_each)),
            builder=builder,
            counter_rotating=plan.counter_rotating,
            orders=() if of_experts else self.orders,
            tier_orders=() if of_experts else self.tier_orders,
            in_network=over.in_network,
        )
        # One ring through the members of all groups, or tiers of rings: [buckets, groups, devices], in which
        # groups become [ep, replicas / ep] or tiers.
        members = over.gpus[np.array([bucket.devices for bucket in buckets])].swapaxes(1, 2)
        waits = ready.swapaxes(1, 2)
        if of_experts:
            members, waits = by_experts(members, plan, axis=1), by_experts(waits, plan, axis=1)
            rows = waits.reshape(-1, *waits.shape[2:])
            sums = rings.all_reduce(
                members.reshape(-1, *members.shape[2:]),
                size_bytes.repeat(rings_each, axis=0),
                rows,
                made=rows.shape[1],
            )
            return ready, from_experts(sums.reshape(waits.shape), plan, axis=1).swapaxes(1, 2)
        made = groups // math.prod(self.tiers[1:])
        sums = rings.all_reduce(
            members.reshape(len(buckets), *self.tiers, devices),
            size_bytes,
            waits.reshape(len(buckets), made, *self.tiers[1:], devices),
            made=made,
        )
        return ready, sums.reshape(waits.shape).swapaxes(1, 2)

    def _join(self, tasks: Nodes, numbers: list[int], ready: Nodes, done: Nodes) -> Nodes:
        """Make members wait for makers of gradients, and users for members; return where these are done.

        All are [buckets, devices, groups].

        A member that makes none of the gradients joins in when all makers of its group are done. It
        waits for makers that are no members too: these did the same as the member did.
        """
        over = self.over
        buckets, device = [over.template.buckets[number] for number in numbers], over.template.group.device
        every, devices = np.arange(len(buckets)), ready.shape[1]

        # Bucket of each of its makers and users, and these [pairs]; column of each device among the members
        # of a bucket, -1 for none [buckets, replica]; of makers and users [pairs].
        made_by, makers = pairs([bucket.producers for bucket in buckets])
        used_by, users = pairs([bucket.consumers for bucket in buckets])
        column = np.full((len(buckets), over.plan.replica_gpus), -1)
        column[every[:, None], [bucket.devices for bucket in buckets]] = np.arange(devices)
        maker, user = column[made_by, device[makers]], column[used_by, device[users]]

        # Whether a member waits for a maker [pairs, devices]: for its own, or if it has none for all of its
        # group's, and for makers that are no members.
        own = maker[:, None] == np.arange(devices)
        idle = np.ones((len(buckets), devices), dtype=np.bool_)
        idle[made_by[maker >= 0], maker[maker >= 0]] = False
        pair, member = np.nonzero(own | idle[made_by] | (maker < 0)[:, None])
        over.builder.depend(tasks[makers[pair]], ready[made_by[pair], member])
        over.step.wait(done[used_by, user], users)
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
