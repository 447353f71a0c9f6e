"""What one replica does with one micro-batch, and its optimizer step, wherever its GPUs are."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.lowering.blockexchanges import BlockExchanges
from sipml_core.lowering.collectives import all_reduce_bytes
from sipml_core.lowering.gathers import Gathers
from sipml_core.lowering.gradients import Bucket, plan_buckets
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.passtasks import PassTasks
from sipml_core.lowering.relaying import Exchange, RelayedTransfers
from sipml_core.lowering.resending import replica_tasks
from sipml_core.lowering.ringattention import RingPieces
from sipml_core.lowering.stagetransfers import after_gradients
from sipml_core.lowering.transfers import Transfers, plan_transfers
from sipml_core.lowering.treesteps import Trees
from sipml_core.model import (
    CONTEXT,
    EXPERT,
    GRADIENT,
    PIPELINE,
    TENSOR,
    TRAFFIC_KINDS,
    Placement,
    PlacementLimits,
    Plan,
    precision,
)


@frozen(kw_only=True)
class TrafficBytes:
    """What one iteration of the whole job puts on the network. [bytes]"""

    #: Activations and their gradients, inside groups.
    activations: float
    #: Synchronisation of parameter gradients.
    gradients: float

    @classmethod
    def of(cls, kind_bytes: NDArray[np.float64]) -> TrafficBytes:
        """Return the parts of bytes by `TRAFFIC_KINDS`."""
        return cls(activations=float(kind_bytes[:GRADIENT].sum()), gradients=float(kind_bytes[GRADIENT]))

    @property
    def total(self) -> float:
        return self.activations + self.gradients


@frozen(kw_only=True, eq=False)
class GroupTemplate:
    """What one replica does with one micro-batch, and its optimizer step, wherever its GPUs are."""

    plan: Plan
    group: GroupTasks
    passes: PassTasks
    #: Transfers, where these are not an `exchange`; see `transfers`.
    sent: Transfers | None
    buckets: list[Bucket]
    #: What devices exchange along trees, where nothing else depends on its legs; None: see `sent`.
    exchange: Exchange | None = None
    #: What replicas gather in each pass; None: they do not share parameters.
    gathers: Gathers | None = None
    #: What replicas of a block exchange in each pass; None: nothing.
    blocks: BlockExchanges | None = None
    #: Tasks that work on keys while others come in; None: none do.
    pieces: RingPieces | None = None

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
        direct, limits = plan_transfers(group), placement.limits
        exchange = None
        if trees is not None and not trees.direct:
            exchange = Exchange(direct=direct, tasks=group, trees=trees)
            if trees.relays:
                limits = attrs.evolve(limits, range_hops=1)
        passes, buckets = PassTasks.of(group, plan), gradient_buckets(group, plan, limits)
        transfers = blocks = pieces = None
        if exchange is None or placement.parts > 1 or plan.block > 1:
            transfers = after_gradients(exchange.explicit if exchange else direct, group)
            blocks, exchange = BlockExchanges.of(group, transfers, plan), None
            pieces = RingPieces.of(group, transfers, blocks, plan)
        return cls(
            plan=plan,
            group=group,
            passes=passes,
            sent=transfers,
            exchange=exchange,
            buckets=buckets,
            blocks=blocks,
            pieces=pieces,
            gathers=Gathers.of(group, passes, buckets, plan) if plan.shares_parameters else None,
        )

    @property
    def transfers(self) -> Transfers:
        """Return what one replica sends inside itself, each leg for itself."""
        if self.sent is not None:
            return self.sent
        assert self.exchange is not None
        return self.exchange.explicit

    @property
    def relayed(self) -> RelayedTransfers | None:
        """Return the same with relayed transfers as one; None: there are none, or legs matter."""
        return self.exchange.relayed if self.exchange else None

    @property
    def leg_ends(self) -> tuple[Indices, Indices, NDArray[np.float64]]:
        """Return sender, receiver and bytes of transfers, those over one leg of a way together. [bytes]"""
        if self.relayed is None:
            return self.transfers.sender, self.transfers.device, self.transfers.size_bytes
        return self.relayed.leg_ends

    @property
    def transfer_count(self) -> int:
        """Return the number of `transfers`."""
        return len(self.transfers.sender if self.relayed is None else self.relayed.position)

    @property
    def priorities(self) -> int:
        """Return how many priorities one iteration uses: tasks and activations first, then its buckets.

        Raises
        ------
        InfeasibleError
            There are more passes of more tasks than can be put in order.
        """
        return self.passes.priorities(self.plan.iterations, len(self.group.subop), len(self.buckets))

    @property
    def kind_bytes(self) -> NDArray[np.float64]:
        """Return what one iteration of all replicas sends by `TRAFFIC_KINDS`. [kinds] [bytes]"""
        plan, found = self.plan, np.zeros(len(TRAFFIC_KINDS))
        sender, device, size_bytes = self.leg_ends
        crosses = sender // plan.mp != device // plan.mp
        found[TENSOR] = size_bytes[~crosses].sum()
        found[PIPELINE] = size_bytes[crosses].sum()
        if self.blocks is not None:
            sent = self.blocks.replica_bytes(plan)
            found[EXPERT], found[CONTEXT] = sent[self.blocks.is_rows].sum(), sent[~self.blocks.is_rows].sum()
        found *= plan.replicas * plan.micro_batches
        found[GRADIENT] = self._shared_parameter_bytes if self.gathers else self._gradient_bytes
        return found

    @property
    def traffic(self) -> TrafficBytes:
        """Return what one iteration of all replicas sends."""
        return TrafficBytes.of(self.kind_bytes)

    @property
    def _gradient_bytes(self) -> float:
        """Return the bytes of all-reduces, or of what takes their place where replicas share states."""
        plan = self.plan
        groups = [plan.ep if bucket.of_experts else 1 for bucket in self.buckets]
        members = [
            plan.replicas // number * len(bucket.devices)
            for number, bucket in zip(groups, self.buckets, strict=True)
        ]
        return self._repeats * sum(
            number * count * all_reduce_bytes(bucket.size_bytes, count)
            for number, count, bucket in zip(groups, members, self.buckets, strict=True)
        )

    @property
    def _shared_parameter_bytes(self) -> float:
        """Return the bytes of gathers and reduce-scatters, of each micro-batch, and of sums over devices."""
        assert self.gathers is not None
        plan, scattered, over_devices = self.plan, 0.0, 0.0
        for bucket in self.buckets:
            sharers = plan.expert_replicas if bucket.of_experts else plan.replicas
            copies = plan.replicas * len(bucket.devices)
            scattered += copies * bucket.size_bytes * (sharers - 1) / sharers
            over_devices += copies * all_reduce_bytes(bucket.size_bytes / sharers, len(bucket.devices))
        return plan.micro_batches * (self.gathers.gathered_bytes + scattered) + over_devices

    @property
    def _repeats(self) -> float:
        """Return how often an all-reduce's bytes are sent: twice is once reduce-scattered, once gathered.

        With `zero = 2` the reduce-scatter comes after each micro-batch.
        """
        held = precision(self.group.graph.graph.precision)
        if not self.plan.shares_states:
            return 1.0
        scatters = self.plan.micro_batches if self.plan.zero == 2 else 1
        return (scatters + held.parameter_bytes / self.plan.gradient_bytes(held)) / 2


def gradient_buckets(group: GroupTasks, plan: Plan, limits: PlacementLimits) -> list[Bucket]:
    """Return the buckets of a replica under a plan; those of shared parameters are of one part each."""
    held = precision(group.graph.graph.precision)
    return plan_buckets(
        group,
        plan.bucket_bytes,
        limits,
        element_bytes=plan.gradient_bytes(held) if plan.fp32_gradients else None,
        by_part=plan.shares_parameters,
    )


def traffic_bytes(placement: Placement, plan: Plan, trees: Trees | None = None) -> TrafficBytes:
    """Return the bytes that `lower` sends in one iteration, by kind."""
    return GroupTemplate.of(placement, plan, trees).traffic
