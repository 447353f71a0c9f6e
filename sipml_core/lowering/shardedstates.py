"""States that replicas share (ZeRO-1 and 2): gradients are reduce-scattered, new parameters all-gathered.

Each replica updates one part in dp of what a device holds, so between the two collectives the optimizer has
one part in dp of its work. Both together send what an all-reduce sends (Rajbhandari et al. 2020, "ZeRO",
section 7). With `zero = 2` gradients are not kept whole: they are reduce-scattered after each micro-batch.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.collectives import Rings
from sipml_core.lowering.expertgroups import by_experts, from_experts
from sipml_core.lowering.gradients import Bucket
from sipml_core.lowering.synchronisation import ReplicaCollectives, pairs
from sipml_core.model import Nodes, Plan, precision


@frozen(kw_only=True, eq=False)
class SharedStates:
    """Adds the collectives of one iteration."""

    over: ReplicaCollectives

    def add(self, tasks: Nodes) -> tuple[list[Nodes], Nodes]:
        """Return where the iteration's collectives end, and tasks whose optimizer ends with the gathers.

        Parameters
        ----------
        tasks
            [micro-batches, tasks, groups], of the first groups or of all.

        Returns
        -------
        ends, updated
            Nodes of any shape; shaped like `tasks`.
        """
        plan, builder, label = self.over.plan, self.over.builder, self.over.label
        buckets = self.over.template.buckets
        batches = range(plan.micro_batches) if plan.zero == 2 else [plan.micro_batches - 1]

        # Buckets of as many devices together: those of one device are most.
        sizes = sorted({(len(bucket.devices), bucket.of_experts) for bucket in buckets})
        updated = tasks.copy()
        ends: list[Nodes] = []
        users = np.unique(np.concatenate([bucket.consumers for bucket in buckets]))
        done = builder.barriers((len(users), tasks.shape[-1]), label=label)
        for size in sizes:
            numbers = [
                number
                for number, bucket in enumerate(buckets)
                if (len(bucket.devices), bucket.of_experts) == size
            ]
            for some in [numbers] if size[0] == 1 else [[number] for number in numbers]:
                gathered = self._add(tasks, [buckets[number] for number in some], some, list(batches))
                used_by, user = pairs([buckets[number].consumers for number in some])
                column = np.searchsorted(users, user)
                builder.depend(gathered[:, used_by], done[column])
                ends.append(gathered)
        builder.depend(tasks[-1, users], done)
        updated[:, users] = done
        return ends, updated

    def _add(self, tasks: Nodes, buckets: list[Bucket], numbers: list[int], batches: list[int]) -> Nodes:
        """Add buckets of equally many devices; return where parameters are. [devices, buckets, groups]"""
        over, builder, label = self.over, self.over.builder, self.over.label
        made, devices = tasks.shape[-1], len(buckets[0].devices)
        experts, plan = buckets[0].of_experts, over.plan
        # Of experts each bucket has a ring for each group of replicas with the same ones. A bucket alone has
        # one number and one size for all its rings, on however many devices.
        groups = plan.ep if experts and len(buckets) > 1 else 1
        ring_numbers = np.array(numbers, dtype=np.int32).repeat(groups)
        rings = over.rings(ring_numbers) if experts else over.replica_rings(ring_numbers)
        shape = (devices, len(buckets), made)
        # GPUs of all members [devices, buckets, dp]; bucket of each maker and user, and these [pairs].
        members = over.gpus[np.array([bucket.devices for bucket in buckets]).T]
        made_by, maker = pairs([bucket.producers for bucket in buckets])
        used_by, user = pairs([bucket.consumers for bucket in buckets])
        size_bytes = np.array([bucket.size_bytes for bucket in buckets])[:, None].repeat(groups, axis=0)
        if experts:
            members = _by_experts(members, plan)

        def separate(nodes: Nodes) -> Nodes:
            return _by_experts(nodes, plan) if experts else nodes

        def joined(nodes: Nodes) -> Nodes:
            return _from_experts(nodes, plan) if experts else nodes

        for batch in batches:
            ready = builder.barriers(shape, label=label)
            builder.depend(tasks[batch, maker], ready[:, made_by])
            summed = joined(self._reduce_scatter(rings, members, size_bytes, separate(ready)))
            over.step.wait(summed[:, used_by], user)

        held = precision(over.template.group.graph.graph.precision)
        new = builder.barriers(shape, label=label)
        builder.depend(tasks[-1, user], new[:, used_by])
        parameter_bytes = size_bytes * (held.parameter_bytes / over.plan.gradient_bytes(held))
        return joined(self._all_gather(rings, members, parameter_bytes, separate(new)))

    def _reduce_scatter(
        self, rings: Rings, members: NDArray[np.int32], size_bytes: NDArray[np.float64], ready: Nodes
    ) -> Nodes:
        """Add the sum over devices, then over replicas; return where each member has its part."""
        devices, _, made = ready.shape
        if devices > 1:
            inside = attrs.evolve(rings, tiers=(), tier_orders=())
            rows, waits = _over_devices(members[..., :made]), _over_devices(ready)
            ready = inside.reduce_scatter(rows, size_bytes, waits).T.reshape(ready.shape)
        outer, waits = _over_replicas(members), _over_replicas(ready)
        return rings.reduce_scatter(outer, size_bytes / devices, waits, made=made).reshape(ready.shape)

    def _all_gather(
        self, rings: Rings, members: NDArray[np.int32], size_bytes: NDArray[np.float64], ready: Nodes
    ) -> Nodes:
        """Add the gather over replicas, then over devices; return where each member has all."""
        devices, _, made = ready.shape
        outer, waits = _over_replicas(members), _over_replicas(ready)
        done = rings.all_gather(outer, size_bytes / devices, waits, made=made).reshape(ready.shape)
        if devices > 1:
            inside = attrs.evolve(rings, tiers=(), tier_orders=())
            rows, waits = _over_devices(members[..., :made]), _over_devices(done)
            done = inside.all_gather(rows, size_bytes, waits).T.reshape(ready.shape)
        return done


def _by_experts(table: NDArray[np.int32], plan: Plan) -> NDArray[np.int32]:
    """Return tables over replicas as several over experts' groups: [devices, buckets x ep, replicas / ep]."""
    groups = by_experts(table, plan, axis=2)
    return groups.reshape(len(table), -1, groups.shape[-1])


def _from_experts(table: NDArray[np.int32], plan: Plan) -> NDArray[np.int32]:
    """Return what `_by_experts` was made of."""
    return from_experts(table.reshape(len(table), -1, plan.ep, table.shape[-1]), plan, axis=2)


def _over_replicas(table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return rows over replicas: [devices, buckets, replicas] as [devices x buckets, replicas]."""
    return table.reshape(-1, table.shape[-1])


def _over_devices(table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return rows over devices: [devices, buckets, replicas] as [buckets x replicas, devices]."""
    return table.reshape(len(table), -1).T
