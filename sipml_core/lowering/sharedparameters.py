"""Parameters that replicas share (ZeRO-3, FSDP): gathered before they are used, in every pass.

Each replica keeps one part in dp of what a device has, of experts that are spread over replicas one part in
as many as have the same ones. A pass gathers unit after unit (see `Gathers`), one ahead: a gather starts when
the one before it has ended and the device has come to the unit before it. What is gathered is dropped after
its last use in the pass. Gradients are reduce-scattered after each micro-batch and each replica updates its
part, so that an iteration of m micro-batches sends m times two all-gathers and a reduce-scatter (Rajbhandari
et al. 2020, "ZeRO", section 7.2; Zhao et al. 2023, "PyTorch FSDP").
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.expertgroups import by_experts, from_experts
from sipml_core.lowering.gathers import Gathers, PassGathers
from sipml_core.lowering.passtasks import row_of
from sipml_core.lowering.schedules import Pass
from sipml_core.lowering.synchronisation import ReplicaCollectives
from sipml_core.model import Nodes

#: No node, where there may be one.
_NONE = -1


@attrs.define
class _Chain:
    """Where the gathers of each device have come to. [devices, groups]; `_NONE`: nowhere yet."""

    #: End of the last gather, and the task before the first use of what it brought.
    gathered: Nodes
    before: Nodes
    #: The last task of the passes so far.
    last: Nodes

    @classmethod
    def of(cls, devices: int, groups: int) -> _Chain:
        return cls(*(np.full((devices, groups), _NONE, dtype=np.int32) for _ in range(3)))


@frozen(kw_only=True, eq=False)
class SharedParameters:
    """Adds the gathers and reduce-scatters of one iteration."""

    over: ReplicaCollectives
    gathers: Gathers
    #: Priority of the first task of the iteration.
    first_priority: int

    def add(self, tasks: Nodes, previous: Nodes | None = None) -> list[Nodes]:
        """Return where reduced gradients are; optimizer tasks wait for them, and tasks for parameters.

        Parameters
        ----------
        tasks, previous
            Of this iteration and of the one before. [micro-batches, tasks, groups]
        """
        self._gather_all(tasks, previous)
        return self._reduce_all(tasks)

    def _gather_all(self, tasks: Nodes, previous: Nodes | None) -> None:
        """Add the gathers of all passes, those of a stage in the order of its list."""
        seen = np.zeros(len(self.gathers.bucket), dtype=np.bool_)
        chain = _Chain.of(self.over.plan.replica_gpus, tasks.shape[-1])
        for passes in self.over.template.passes.passes:
            for each in passes:
                row = self.gathers.rows[row_of(each)]
                if len(row.unit):
                    ready = self._gather(tasks, each, row, chain)
                    self._after_update(ready, row, seen, previous)
                chain.last[row.devices] = tasks[each.micro_batch, row.last_of]

    def _gather(self, tasks: Nodes, each: Pass, row: PassGathers, chain: _Chain) -> Nodes:
        """Add the gathers of one pass; return where they may start. [entries, groups]"""
        over, builder = self.over, self.over.builder
        own = tasks[each.micro_batch]
        before = np.where(row.before[:, None] >= 0, own[row.before], chain.last[row.device])
        ready = builder.barriers(before.shape, label=over.label)
        size_bytes, priority = self.gathers.size_bytes[row.unit], self._priority(each, row)
        done = self._shared("all_gather", row.unit, size_bytes, priority, ready)
        builder.depend(done[row.entry], own[row.user])

        # After the gather before it on the device, and what comes before the first use of that.
        follows = np.flatnonzero(row.device[1:] == row.device[:-1]) + 1
        leads = np.setdiff1d(np.arange(len(row.unit)), follows)
        for earlier, inside in ((chain.gathered, done), (chain.before, before)):
            waits = np.empty_like(ready)
            waits[follows] = inside[follows - 1]
            waits[leads] = earlier[row.device[leads]]
            there = (waits != _NONE).all(axis=1)
            builder.depend(waits[there], ready[there])
        ends = np.append(leads[1:], len(row.unit)) - 1
        chain.gathered[row.device[ends]] = done[ends]
        chain.before[row.device[ends]] = before[ends]
        return ready

    def _after_update(
        self, ready: Nodes, row: PassGathers, seen: NDArray[np.bool_], previous: Nodes | None
    ) -> None:
        """Make the first gather of a unit in an iteration wait for its optimizer tasks of the one before."""
        if previous is None:
            return
        buckets, device = self.over.template.buckets, self.over.template.group.device
        for entry in np.flatnonzero(~seen[row.unit]).tolist():
            users = buckets[self.gathers.bucket[row.unit[entry]]].consumers
            users = users[device[users] == row.device[entry]]
            self.over.builder.depend(previous[-1, users], ready[entry])
        seen[row.unit] = True

    def _priority(self, each: Pass, row: PassGathers) -> NDArray[np.int64]:
        """Return the priority of what uses each unit first. [entries]"""
        template = self.over.template
        slot = template.passes.slots_of(row.first_task, np.array([each.micro_batch], dtype=np.int32))[0]
        place = template.group.position[row.first_task] + len(template.group.subop) * slot
        return np.asarray(self.first_priority + place, dtype=np.int64)

    def _shared(
        self,
        collective: str,
        unit: NDArray[np.int32],
        size_bytes: NDArray[np.float64],
        priority: NDArray[np.int64],
        ready: Nodes,
    ) -> Nodes:
        """Add a collective of each unit over those that share it; return where it ends. [units, groups]

        Experts have a ring for each group of replicas with the same ones, all else one ring.

        Parameters
        ----------
        collective
            "all_gather" or "reduce_scatter" of `Rings`.
        size_bytes, priority
            Of each unit. [units]
        ready
            Nodes after which each replica may start. [units, groups]
        """
        plan, experts = self.over.plan, self.gathers.of_experts[unit]
        members = self.over.gpus[self.gathers.device[unit]]
        done = np.empty_like(ready)
        for own, groups in ((np.flatnonzero(~experts), 1), (np.flatnonzero(experts), plan.ep)):
            if not len(own):
                continue
            # One row for each ring. [units x groups of replicas, replicas in it]
            rings = self.over.replica_rings(unit[own]) if groups == 1 else self.over.rings(unit[own])
            rings = attrs.evolve(rings, priority=priority[own].repeat(groups)[:, None])
            over, waits = members[own], ready[own]
            if groups > 1:
                over, waits = (
                    by_experts(table, plan, axis=1).reshape(len(own) * groups, -1) for table in (over, waits)
                )
            sizes = size_bytes[own].repeat(groups)[:, None]
            ends = getattr(rings, collective)(over, sizes, waits, made=waits.shape[1])
            if groups > 1:
                ends = from_experts(ends.reshape(len(own), groups, -1), plan, axis=1)
            done[own] = ends
        return done

    def _reduce_all(self, tasks: Nodes) -> list[Nodes]:
        """Add the sums over replicas, after each micro-batch, and at last those over devices of a replica."""
        over, builder = self.over, self.over.builder
        buckets, units = over.template.buckets, np.arange(len(self.gathers.device), dtype=np.int32)
        of, device = self.gathers.bucket, over.template.group.device
        size_bytes = np.array([bucket.size_bytes for bucket in buckets])[of]
        priority = over.priority + of.astype(np.int64)

        # Unit of each task that makes its gradients: on its device, else of its bucket. [pairs]
        made_by, makers = [], []
        for unit in units.tolist():
            producers = buckets[of[unit]].producers
            here = producers[device[producers] == self.gathers.device[unit]]
            makers.append(here if len(here) else producers)
            made_by.append(np.full(len(makers[-1]), unit))
        unit_of, maker = np.concatenate(made_by), np.concatenate(makers)

        summed = builder.barriers((len(units), tasks.shape[-1]), label=over.label)
        for batch in range(over.plan.micro_batches):
            ready = builder.barriers(summed.shape, label=over.label)
            builder.depend(tasks[batch, maker], ready[unit_of])
            builder.depend(self._shared("reduce_scatter", units, size_bytes, priority, ready), summed)
        for number, bucket in enumerate(buckets):
            own = np.flatnonzero(of == number)
            if len(own) > 1:
                summed[own] = self._over_devices(number, summed[own])
            column = np.zeros(over.plan.replica_gpus, dtype=np.int64)
            column[list(bucket.devices)] = own
            over.step.wait(summed[column[device[bucket.consumers]]], bucket.consumers)
        return [summed]

    def _over_devices(self, number: int, summed: Nodes) -> Nodes:
        """Add the all-reduce of the part that a replica keeps over its devices. [devices, groups]"""
        over, bucket = self.over, self.over.template.buckets[number]
        sharers = over.plan.expert_replicas if bucket.of_experts else over.plan.replicas
        rings: Rings = over.rings(np.array([number], dtype=np.int32))
        members = over.gpus[list(bucket.devices), : summed.shape[1]].T
        return rings.all_reduce(members, bucket.size_bytes / sharers, summed.T).T
