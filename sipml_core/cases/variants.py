"""Ways in which one plan can run on a network, the fastest of which is taken."""

from __future__ import annotations

import attrs

from sipml_core.cases.case import Case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.steps import balanced_graph, op_graph, placed
from sipml_core.lowering import check_memory, replicas_in_server
from sipml_core.model import Fabric, Placement, Plan, Prices
from sipml_core.placement import check_reach, placement_limits


@attrs.frozen(kw_only=True, eq=False)
class Variant:
    """A case with everything decided: how groups exchange, where sub-ops are, how gradients are summed."""

    case: Case
    #: That of the case, its exchange decided.
    plan: Plan
    fabric: Fabric
    placement: Placement
    #: What the fullest GPU needs. [bytes]
    memory_bytes: float
    #: Gradients are summed in two tiers, inside servers of so many GPUs first; None: on one flat ring.
    server_gpus: int | None

    @property
    def all_reduce(self) -> str:
        """The algorithm that synchronises gradients, as results name it."""
        return "two-tier" if self.server_gpus else "flat"


def exchanges(fabric: Fabric, plan: Plan) -> list[str]:
    """Return the exchanges inside a group to choose from: on circuits both, unless all are neighbours anyway.

    With two devices they differ only where parts of a sum on one device leave together.
    """
    if plan.exchange != "auto":
        return [plan.exchange]
    return ["direct"] if fabric.circuits is None or plan.mp <= 2 else ["chain", "direct"]


def all_reduce_servers(fabric: Fabric, plan: Plan) -> list[int | None]:
    """Return the servers by which gradients can be summed in two tiers, and None for one flat ring.

    Two tiers are possible where whole groups fill whole servers, and more than one server.
    """
    size = fabric.server_gpus
    if (
        not size
        or plan.shares_states
        or plan.gpus == size
        or plan.mp % size == 0
        or replicas_in_server(plan, size) == 1
    ):
        return [None]
    return [None, size]


def variants_of(case: Case, fabric: Fabric, exchange: str, reuse: Reuse) -> list[Variant]:
    """Return the variants of a case with one exchange, one for each all-reduce that the fabric offers.

    Raises
    ------
    InfeasibleError
        The plan does not fit the memory, or the degree and reach of the fabric.
    """
    plan, cluster = case.plan, case.interconnect.cluster
    check_reach(plan, fabric.reach_hops)
    limits = placement_limits(
        plan.mp, plan.dp, fabric.degree, fabric.reach_hops,
        ring_peers=plan.ring_peers, stage_peers=plan.stage_peers, chain=exchange == "chain",
    )  # fmt: skip
    graph = reuse(op_graph, case.job.workload, plan.micro_samples, case.precision)
    prices = Prices.flat(cluster.bandwidth_gbps)
    balanced = reuse(balanced_graph, graph, case.job.table.layout, case.gpu, cluster, plan, prices)
    placement = reuse(placed, case.job.placer, balanced, limits, plan)
    chosen = attrs.evolve(plan, exchange=exchange)
    memory_bytes = reuse(check_memory, placement, plan, case.gpu.memory_bytes)
    return [
        Variant(
            case=case,
            plan=chosen,
            fabric=fabric,
            placement=placement,
            memory_bytes=memory_bytes,
            server_gpus=server_gpus,
        )
        for server_gpus in all_reduce_servers(fabric, plan)
    ]
