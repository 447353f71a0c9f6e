"""What one replica does with one micro-batch, and its optimizer step, wherever its GPUs are."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.lowering.collectives import all_reduce_bytes
from sipml_core.lowering.exchanges import Trees, routed
from sipml_core.lowering.gradients import Bucket, plan_buckets
from sipml_core.lowering.grouptasks import GroupTasks, replica_tasks
from sipml_core.lowering.passtasks import PassTasks
from sipml_core.lowering.stagetransfers import after_gradients
from sipml_core.lowering.transfers import Transfers, plan_transfers
from sipml_core.model import Placement, Plan, precision


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
    """What one replica does with one micro-batch, and its optimizer step, wherever its GPUs are."""

    plan: Plan
    group: GroupTasks
    passes: PassTasks
    transfers: Transfers
    buckets: list[Bucket]

    @classmethod
    def of(
        cls,
        placement: Placement,
        plan: Plan,
        trees: Trees | None = None,
        group: GroupTasks | None = None,
    ) -> GroupTemplate:
        """Return the template of the replicas of `plan`; `ConfigError` if its degrees are others.

        Parameters
        ----------
        trees
            Along which the group of each stage exchanges; None: from each maker to each user.
        group
            What `replica_tasks` returns for the placement and the plan; None: made here.
        """
        if placement.limits.devices != plan.mp or placement.stages != plan.pp:
            raise ConfigError(
                f"placement is for mp={placement.limits.devices}, pp={placement.stages}; the strategy has "
                f"mp={plan.mp}, pp={plan.pp}"
            )
        group = group or replica_tasks(placement, plan)
        transfers, limits = plan_transfers(group), placement.limits
        if trees is not None and not trees.direct:
            transfers = routed(transfers, group, trees)
            if trees.relays:
                limits = attrs.evolve(limits, range_hops=1)
        return cls(
            plan=plan,
            group=group,
            passes=PassTasks.of(group, plan),
            transfers=after_gradients(transfers, group),
            buckets=plan_buckets(group, plan.bucket_bytes, limits),
        )

    @property
    def traffic(self) -> TrafficBytes:
        """Return what one iteration of all replicas sends."""
        gradients = 0.0
        for bucket in self.buckets:
            members = self.plan.dp * len(bucket.devices)
            gradients += members * all_reduce_bytes(bucket.size_bytes, members) * self._repeats
        activations = self.plan.dp * self.plan.micro_batches * float(self.transfers.size_bytes.sum())
        return TrafficBytes(activations=activations, gradients=gradients)

    @property
    def _repeats(self) -> float:
        """Return how often an all-reduce's bytes are sent: twice is once reduce-scattered, once gathered.

        With `zero = 2` the reduce-scatter comes after each micro-batch.
        """
        held = precision(self.group.graph.graph.precision)
        if not self.plan.shares_states:
            return 1.0
        scatters = self.plan.micro_batches if self.plan.zero == 2 else 1
        return (scatters + held.parameter_bytes / held.gradient_bytes) / 2


def traffic_bytes(placement: Placement, plan: Plan, trees: Trees | None = None) -> TrafficBytes:
    """Return the bytes that `lower` sends in one iteration, by kind."""
    return GroupTemplate.of(placement, plan, trees).traffic
