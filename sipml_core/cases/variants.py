"""Ways in which one plan can run on a network, the fastest of which is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.case import Case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.steps import DegreesOfWorkload, balanced_graph, op_graph, op_layout, placed, slice_times
from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.fields import format_count, frozen
from sipml_core.lowering import MemoryUse, Trees, check_parameters, memory_need, replica_tasks
from sipml_core.model import (
    Fabric,
    GroupShape,
    LinkTable,
    OpGraph,
    Placement,
    PlacementLimits,
    Plan,
    Prices,
    ReplicaShape,
    torus_filled,
)
from sipml_core.partition import Layout, SliceTimes
from sipml_core.placement import check_reach, expert_grid, grid_peers, placement_limits
from sipml_core.plugin import AllReduce, Exchange, WeightedOrder, WeightedRing

#: Tasks of a replica, at most: they take 64 bytes each, before anything is sent.
MOST_TASKS = 500_000_000
#: Members of a group, at most, between which links without a switch are looked for.
MAX_LINKED = 64


@frozen(kw_only=True, eq=False)
class Variant:
    """A case with everything decided: how groups exchange, where sub-ops are, how gradients are summed."""

    case: Case
    #: That of the case, its exchange and its all-reduce decided.
    plan: Plan
    fabric: Fabric
    exchange: Exchange
    group: GroupShape
    placement: Placement
    #: What each GPU of a replica needs.
    memory: MemoryUse
    #: Forward ops that run a second time. [ops]
    runs_again: NDArray[np.bool_]
    #: Shape into which the replicas are arranged to sum gradients, innermost last.
    tiers: tuple[int, ...]
    #: Rings that run at the same time; none: one, in order.
    rings: tuple[WeightedRing, ...]
    #: Orders of the tiers that run at the same time; none: one.
    tier_orders: tuple[WeightedOrder, ...] = ()
    #: Switches add up what the replicas send.
    in_network: bool = False
    #: Grid over which replicas pass on rows of experts, see `expert_grid`; of one axis: straight.
    grid: tuple[int, ...] = ()
    #: What its layout was chosen with, where that is not what the network gives all GPUs at once.
    price_note: str = ""

    @property
    def memory_bytes(self) -> float:
        """Return what the fullest GPU needs. [bytes]"""
        return float(self.memory.total_bytes.max())


def group_shape(fabric: Fabric, plan: Plan, prices: Prices, gpu_gbps: float) -> GroupShape:
    """Return where the devices of a group are to each other on a fabric."""
    return GroupShape.of(
        devices=plan.mp,
        tiers=fabric_tiers(fabric) if plan.stride("mp") == 1 else (),
        ports_only=prices.group_gbps >= gpu_gbps * (1 - 1e-9),
        few_peers=fabric.circuits is not None,
        reach_hops=fabric.hints.reach_hops,
        links=own_links(fabric, gpus_of(fabric, plan).reshape(-1, plan.mp)),
    )


def replica_shape(fabric: Fabric, plan: Plan) -> ReplicaShape:
    """Return where the replicas are to each other on a fabric."""
    # Sharded states are scattered and gathered on one ring.
    stride = plan.replica_stride
    tiers = () if plan.shares_states or stride is None else fabric_tiers(fabric)
    gpus = gpus_of(fabric, plan)
    own = () if plan.shares_states else own_links(fabric, gpus.T)
    return ReplicaShape(
        replicas=plan.replicas, devices=stride or plan.mp, tiers=tiers, links=own,
        torus=torus_filled(gpus, fabric.hints.torus),
        switches_add=fabric.hints.switches_add and not plan.shares_states,
    )  # fmt: skip


def gpus_of(fabric: Fabric, plan: Plan) -> NDArray[np.int32]:
    """Return the GPU of each device of each replica. [replicas, replica]"""
    order = fabric.hints.order
    gpu_at = np.arange(plan.gpus, dtype=np.int32) if order is None else order
    return np.asarray(gpu_at, dtype=np.int32)[plan.positions]


def block_grid(fabric: Fabric, plan: Plan) -> tuple[int, ...]:
    """Return the grid over which replicas pass on rows of experts; of one axis where all are peers."""
    degree = fabric.hints.degree
    if not plan.forwarding or degree is None:
        return (plan.ep,)
    others = plan.block_peers - (plan.ep - 1) + plan.stage_peers + min(2, plan.mp - 1)
    others += 0 if plan.replicas == plan.ep else plan.ring_peers
    return expert_grid(plan.ep, degree - others, plan.stride("ep"), fabric.hints.reach_hops)


def own_links(fabric: Fabric, groups: NDArray[np.int32]) -> LinkTable:
    """Return what links without a switch carry between members of each group, at least. [groups, members]

    An empty table where no such links are known, or members are more than `MAX_LINKED`.
    """
    members = groups.shape[1]
    if fabric.link_tail is None or fabric.link_head is None or fabric.circuits or members > MAX_LINKED:
        return ()
    tail, head = fabric.link_tail, fabric.link_head
    own = (tail != head) & (np.maximum(tail, head) < fabric.gpus)
    if not own.any():
        return ()
    # Of each pair that has links: its number, source x GPUs + destination, and what they carry together.
    pairs, link_pair = np.unique(tail[own].astype(np.int64) * fabric.gpus + head[own], return_inverse=True)
    gbps = np.bincount(link_pair, weights=fabric.link_gbps[own])

    asked = groups[:, :, None].astype(np.int64) * fabric.gpus + groups[:, None, :]
    place = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    least = np.where(pairs[place] == asked, gbps[place], 0.0).min(axis=0)
    return tuple(map(tuple, least.tolist())) if least.any() else ()


def fabric_tiers(fabric: Fabric) -> tuple[int, ...]:
    """Return the GPUs of each kind of unit of the fabric, inner first."""
    return tuple(gpus for _, gpus in fabric.hints.tiers)


def exchange_trees(exchange: Exchange, shape: GroupShape) -> Trees:
    """Return the trees of an exchange on groups of this shape; where peers are few, all goes along them."""
    return Trees(parents=exchange.parents(shape), relays=shape.few_peers)


def offered_exchanges(case: Case, shape: GroupShape) -> list[Exchange]:
    """Return the exchanges to try: the one that the plan names, or those that suit the group."""
    return _offered(case.plan.exchange, case.job.exchanges, shape)


def offered_all_reduces(case: Case, shape: ReplicaShape) -> list[AllReduce]:
    """Return the all-reduces to try: the one that the plan names, or those that suit the replicas."""
    offered: list[AllReduce] = _offered(case.plan.all_reduce, case.job.all_reduces, shape)
    if not case.plan.shares_states or case.plan.all_reduce == "auto":
        return offered
    if case.plan.all_reduce != "flat" and not all(each.orders(shape) for each in offered):
        raise ConfigError(
            f'plan.all_reduce must be "auto", "flat" or "torus-rings" where zero is above 0, got '
            f"{case.plan.all_reduce!r} with zero={case.plan.zero}: shared states are scattered and gathered "
            "on rings over all replicas"
        )
    return offered


def _offered(named: str, known: Sequence[Any], shape: Any) -> list[Any]:
    if named != "auto":
        return [component for component in known if component.name == named]
    return [component for component in known if component.offered(shape)]


@frozen(kw_only=True, eq=False)
class Exchanging:
    """A way to exchange inside groups that a fabric allows, and what it leaves to placement."""

    exchange: Exchange
    group: GroupShape
    replicas: ReplicaShape
    #: All-reduces that suit the fabric, and what each leaves a GPU to talk to its group.
    all_reduces: tuple[tuple[AllReduce, PlacementLimits], ...]
    #: See `Variant.grid`.
    grid: tuple[int, ...]


def exchanging(case: Case, fabric: Fabric, exchange: Exchange, group: GroupShape) -> Exchanging:
    """Return the all-reduces that one exchange leaves peers for.

    Raises
    ------
    InfeasibleError
        The plan does not fit the degree and reach of the fabric, or its all-reduce the servers.
    """
    plan = case.plan
    reach_hops = None if plan.forwarding else fabric.hints.reach_hops
    check_reach(plan, reach_hops)
    replicas = replica_shape(fabric, plan)
    trees = exchange_trees(exchange, group)
    grid, block_peers = block_grid(fabric, plan), plan.block_peers
    if len(grid) > 1:
        block_peers += grid_peers(grid, plan.stride("ep"), fabric.hints.reach_hops) - (plan.ep - 1)

    def limits_of(ring_peers: int) -> PlacementLimits:
        """Return what a GPU that sends gradients to so many counterparts leaves to its group."""
        # Where one block is all replicas the next one, to which gradients go, is a peer already, or on a way
        # over the grid; of one that shares sequences alone both neighbours are.
        inside = plan.replicas == plan.ep or (plan.replicas == plan.cp and ring_peers == plan.ring_peers)
        return placement_limits(
            plan.mp, plan.replicas, fabric.hints.degree, reach_hops,
            ring_peers=0 if inside else ring_peers, stage_peers=plan.stage_peers, block_peers=block_peers,
            chain=trees.relays and not trees.direct, forwarding=plan.forwarding,
        )  # fmt: skip

    # An all-reduce along several dimensions needs more peers; where they are too many it is not offered.
    limits = limits_of(plan.ring_peers)
    suited = []
    for all_reduce in offered_all_reduces(case, replicas):
        peers = _ring_peers(plan, all_reduce, replicas)
        try:
            suited.append((all_reduce, limits if peers == plan.ring_peers else limits_of(peers)))
        except InfeasibleError:
            if plan.all_reduce != "auto":
                raise
    return Exchanging(exchange=exchange, group=group, replicas=replicas, all_reduces=tuple(suited), grid=grid)


def check_room(case: Case, reuse: Reuse) -> None:
    """Raise `InfeasibleError` if the parameters do not fit the memory, however ops are cut."""
    graph, _ = _ops_of(case, reuse)
    check_parameters(graph, case.plan, case.gpu.memory_bytes, _degrees_of(case))


def refuse_size(plan: Plan, sub_ops: int) -> None:
    """Refuse what is too large to simulate, before anything of its size is made.

    A replica has a task for each sub-op of each micro-batch. The limit is the same on all machines, for
    results are shared between them.

    >>> refuse_size(
    ...     Plan(mp=1, dp=1, global_batch=10**9, micro_batch=1), 1200
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sipml_core.errors.InfeasibleError: 1000000000 micro-batches of 1200 sub-ops are 1.2 trillion tasks ...
    """
    tasks = sub_ops * plan.micro_batches * plan.iterations
    if tasks <= MOST_TASKS:
        return
    what, helps = f"{plan.iterations} iterations", "lower iterations"
    if plan.micro_batches > 1:
        what, helps = f"{plan.micro_batches} micro-batches", "raise micro_batch or dp, or lower global_batch"
    raise InfeasibleError(
        f"{what} of {sub_ops} sub-ops are {format_count(tasks)} tasks of each replica, and a simulation has "
        f"{format_count(MOST_TASKS)} at most: {helps}"
    )


def chosen_layouts(case: Case, prices: Iterable[Prices], reuse: Reuse) -> dict[Layout, Prices]:
    """Return each layout that prices choose, once, with the first of the prices that choose it."""
    plan, named, cluster = case.plan, case.job.table.layout, case.interconnect.cluster.without_network()
    graph, times = _ops_of(case, reuse)
    # Only the layout that is chosen by cost depends on the network.
    gpu_gbps = case.interconnect.cluster.bandwidth_gbps
    tried = prices if named == "auto" and plan.mp > 1 else [Prices.flat(gpu_gbps)]
    found: dict[Layout, Prices] = {}
    for each in tried:
        layout = reuse(op_layout, graph, named, case.gpu, cluster, plan, each, times, keep=128)
        found.setdefault(layout, each)
    return found


def variants_of(
    case: Case, fabric: Fabric, exchanging: Exchanging, layout: Layout, reuse: Reuse
) -> list[Variant]:
    """Return the variants of a case with one exchange and one layout, one for each all-reduce.

    Raises
    ------
    InfeasibleError
        The plan does not fit the memory, or a placement the degree and reach of the fabric.
    """
    plan, exchange, replicas = case.plan, exchanging.exchange, exchanging.replicas
    graph, times = _ops_of(case, reuse)
    cluster = case.interconnect.cluster.without_network()
    balanced = reuse(balanced_graph, graph, layout, case.gpu, cluster, plan, times)
    refuse_size(plan, len(balanced.duration_us))
    found = []
    for all_reduce, limits in exchanging.all_reduces:
        placement = reuse(placed, case.job.placer, balanced, limits, plan)
        # A refusal is kept as well: it is the same on every network that places alike.
        tasks = reuse(replica_tasks, placement, plan)
        memory = reuse(memory_need, placement, plan, case.gpu.memory_bytes, tasks, _degrees_of(case)).checked
        found.append(
            Variant(
                case=case,
                plan=attrs.evolve(plan, exchange=exchange.name, all_reduce=all_reduce.name),
                fabric=fabric,
                exchange=exchange,
                group=exchanging.group,
                placement=placement,
                memory=memory,
                runs_again=tasks.checkpoints.runs_again,
                tiers=all_reduce.tiers(replicas),
                rings=all_reduce.rings(replicas),
                tier_orders=all_reduce.orders(replicas),
                in_network=all_reduce.in_network,
                grid=exchanging.grid,
            )
        )
    return found


def _ops_of(case: Case, reuse: Reuse) -> tuple[OpGraph, SliceTimes]:
    """Return the ops of a step on one replica, and how long slices of them take."""
    plan = case.plan
    graph = reuse(
        op_graph, case.job.workload, plan.micro_samples, case.precision, plan.cp, plan.ep,
        case.job.key_copies(plan), keep=32,
    )  # fmt: skip
    return graph, reuse(slice_times, graph, case.gpu, case.interconnect.cluster.without_network(), keep=32)


def _degrees_of(case: Case) -> DegreesOfWorkload:
    return DegreesOfWorkload(job=case.job, precision=case.precision)


def _ring_peers(plan: Plan, all_reduce: AllReduce, shape: ReplicaShape) -> int:
    """Return to how many counterparts a GPU sends gradients: each way round, to one of each dimension."""
    ways = {(tier, way) for order, way, _ in all_reduce.orders(shape) for tier in order}
    if not ways:
        return plan.ring_peers
    each = [sum(tier == number for tier, _ in ways) for number in range(len(all_reduce.tiers(shape)))]
    return sum(min(count, n - 1) for count, n in zip(each, all_reduce.tiers(shape), strict=True))
