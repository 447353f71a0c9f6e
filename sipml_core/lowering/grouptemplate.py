"""What one group does in one training step, wherever its GPUs are."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.lowering.collectives import all_reduce_bytes
from sipml_core.lowering.exchanges import Trees, routed
from sipml_core.lowering.gradients import Bucket, plan_buckets
from sipml_core.lowering.grouptasks import GroupTasks, group_tasks
from sipml_core.lowering.transfers import Transfers, plan_transfers
from sipml_core.model import Placement, Plan


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


@attrs.frozen(kw_only=True, eq=False)
class GroupTemplate:
    """What one group does in one iteration, wherever its GPUs are."""

    plan: Plan
    group: GroupTasks
    transfers: Transfers
    buckets: list[Bucket]

    @classmethod
    def of(cls, placement: Placement, plan: Plan, trees: Trees | None = None) -> GroupTemplate:
        """Return the template of the groups of `plan`; `ConfigError` if `placement` is for another mp.

        Parameters
        ----------
        trees
            Along which the group exchanges; None: from each maker to each user.
        """
        if placement.limits.devices != plan.mp:
            raise ConfigError(
                f"placement is for mp={placement.limits.devices}, the strategy has mp={plan.mp}"
            )
        group = group_tasks(placement, recompute=plan.recompute)
        transfers, limits = plan_transfers(group), placement.limits
        if trees is not None and not trees.direct:
            transfers = routed(transfers, group, trees)
            if trees.relays:
                limits = attrs.evolve(limits, range_hops=1)
        return cls(
            plan=plan,
            group=group,
            transfers=transfers,
            buckets=plan_buckets(group, plan.bucket_bytes, limits),
        )

    @property
    def traffic(self) -> TrafficBytes:
        """Return what one iteration of all groups sends."""
        gradients = 0.0
        for bucket in self.buckets:
            members = self.plan.dp * len(bucket.devices)
            gradients += members * all_reduce_bytes(bucket.size_bytes, members)
        activations = self.plan.dp * float(self.transfers.size_bytes.sum())
        return TrafficBytes(activations=activations, gradients=gradients)


def traffic_bytes(placement: Placement, plan: Plan, trees: Trees | None = None) -> TrafficBytes:
    """Return the bytes that `lower` sends in one iteration, by kind."""
    return GroupTemplate.of(placement, plan, trees).traffic
