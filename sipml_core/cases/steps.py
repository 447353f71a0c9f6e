"""The steps of one case, in order. Each is a function of what it is given, to be called and tested alone.

Those that several cases share (`op_graph`, `op_layout`, `balanced_graph`, `placed`, `group_template`,
`lowered`, `whole_job`) read nothing but their arguments, which can all be hashed: see `Reuse`.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.culprits import named
from sipml_core.errors import ConfigError, PluginError, TooManyStagesError
from sipml_core.experiment import Interconnect, Job
from sipml_core.fields import frozen
from sipml_core.lowering import (
    Forwarding,
    GridForwarding,
    GroupTasks,
    GroupTemplate,
    Library,
    Lowering,
    RingForwarding,
    Trees,
)
from sipml_core.model import (
    BalancedGraph,
    Cluster,
    Fabric,
    Framework,
    Network,
    OpGraph,
    Phase,
    Placement,
    PlacementLimits,
    Plan,
    Prices,
    RelayedTasks,
    Routes,
    TaskGraph,
    refuse_excess,
)
from sipml_core.model import precision as model_precision
from sipml_core.partition import Layout, SliceTimes, choose_splits, cut_stages, fixed_layout, partition
from sipml_core.placement import place_in_stages
from sipml_core.plugin import Communication, GpuModel, Placer, Topology, WeightedOrder, WeightedRing, Workload
from sipml_core.scheduling import (
    BYTES,
    DemandRule,
    ScheduledCircuits,
    TransferParts,
    driven,
    refuse_control,
)


def built_fabric(topology: Topology, cluster: Cluster) -> Fabric:
    """Return the fabric of a topology; `PluginError` if what it builds is none, or has no routes.

    Raises
    ------
    ConfigError
        It cannot be built of these options for this cluster; the message names the topology.
    """
    try:
        fabric = topology.build(cluster)
    except ConfigError as error:
        raise ConfigError(f"topology {topology.name!r}: {error}") from None
    if not isinstance(fabric, Fabric):
        raise PluginError(
            f"{named(topology)}: build returned a {type(fabric).__name__}, not a "
            "Fabric (Fabric.from_networkx makes one of a graph)"
        )
    if fabric.gpus != cluster.gpus:
        raise PluginError(f"{named(topology)} joins {fabric.gpus} GPUs, but cluster.gpus is {cluster.gpus}")
    if cluster.gpus > 1:
        routes = fabric.route(np.array([0]), np.array([1]))
        if not isinstance(routes, Routes):
            raise PluginError(f"{named(topology)}: route returned a {type(routes).__name__}, not Routes")
    return fabric


def check_scheduler(fabric: Fabric, interconnect: Interconnect) -> None:
    """Refuse circuits that nobody plans, and a scheduler with no circuits to plan."""
    scheduler = interconnect.scheduler
    if fabric.circuits and scheduler is None:
        raise ConfigError(f"topology {interconnect.label!r} has circuits and needs a scheduler")
    if not fabric.circuits and scheduler and scheduler.name != interconnect.topology.scheduler:
        raise ConfigError(f"topology {interconnect.label!r} has no circuits for {scheduler.name!r} to plan")
    if fabric.circuits and scheduler:
        refuse_control(scheduler, fabric.circuits)


def op_graph(
    workload: Workload, samples: int, precision: str, cp: int = 1, ep: int = 1, copies: int = 1
) -> OpGraph:
    """Return the ops of one training step of `samples` samples on one replica.

    With `cp` and `ep` it is one of so many that share sequences, and experts; with `copies` it has so many of
    each head of keys.
    """
    workload = workload if cp == ep == 1 else workload.divided(cp, ep)
    return (workload if copies == 1 else workload.copied(copies)).graph(samples, precision)


@frozen(kw_only=True)
class DegreesOfWorkload:
    """Degrees of experts and context that a workload can have: what refusals for memory ask for."""

    job: Job
    precision: str

    def allows(self, plan: Plan) -> bool:
        """Return whether the model runs under the degrees of a plan."""
        try:
            self.job.workload.check_plan(plan, self.job.table.layout)
        except ConfigError:
            return False
        return True

    def graph(self, plan: Plan) -> OpGraph:
        """Return the ops of one replica under a plan."""
        return op_graph(
            self.job.workload, plan.micro_samples, self.precision, plan.cp, plan.ep, self.job.key_copies(plan)
        )


def slice_times(graph: OpGraph, gpu: GpuModel, cluster: Cluster) -> SliceTimes:
    """Return how long slices of ops take, asked and kept as they are needed, for all plans of a graph."""
    return SliceTimes(graph, gpu, cluster)


def op_layout(
    graph: OpGraph,
    name: str,
    gpu: GpuModel,
    cluster: Cluster,
    plan: Plan,
    prices: Prices,
    times: SliceTimes | None = None,
) -> Layout:
    """Return the dimension along which each op is cut, and why, by the layout of that name."""
    if name != "auto":
        return fixed_layout(graph, name)
    return choose_splits(
        graph, gpu, cluster, mp=plan.mp, dp=plan.replicas,
        tau_us=plan.tau_us, prices=prices, recompute=plan.recompute == "full", stages=plan.pp, times=times,
        gradient_bytes=plan.gradient_bytes(model_precision(graph.precision)) if plan.fp32_gradients else None,
    )  # fmt: skip


def balanced_graph(
    graph: OpGraph,
    layout: Layout,
    gpu: GpuModel,
    cluster: Cluster,
    plan: Plan,
    times: SliceTimes | None = None,
) -> BalancedGraph:
    """Return the ops cut into sub-ops of about tau, along the dimensions of a layout.

    `times` are those of the graph, the GPU and the cluster; None: made here.
    """
    return partition(graph, gpu, cluster, mp=plan.mp, tau_us=plan.tau_us, layout=layout, times=times)


def placed(placer: Placer, graph: BalancedGraph, limits: PlacementLimits, plan: Plan) -> Placement:
    """Return a device of the replica for each sub-op, of `limits.devices` for each stage."""
    if plan.pp == 1:
        return placer.place(graph, limits)
    return place_in_stages(placer, graph, limits, model_parts(graph, plan), plan.pp)


def model_parts(graph: BalancedGraph, plan: Plan) -> NDArray[np.int32]:
    """Return the contiguous part of the model that each op is in; part c is on stage c mod pp. [ops]

    Raises
    ------
    TooManyStagesError
        It cannot be cut into as many; the nearest pp that it can is named, with as many GPUs.
    """
    ops, parts = graph.graph, plan.model_parts
    try:
        return cut_stages(ops, op_times_us(graph), parts, plan.stage_tolerance, plan.stages)
    except TooManyStagesError as error:
        most = sum(op.phase is Phase.FORWARD for op in ops.ops) // plan.chunks
        near = max((pp for pp in range(1, most + 1) if plan.pp * plan.dp % pp == 0), default=None)
        would = "" if near is None else f"; nearest: pp={near}, dp={plan.pp * plan.dp // near}"
        raise TooManyStagesError(f"{error}{would}") from None


def op_times_us(graph: BalancedGraph) -> NDArray[np.float64]:
    """Return how long each op takes: as its longest part, for parts are on as many devices. [ops] [us]"""
    return np.asarray(np.maximum.reduceat(graph.duration_us, graph.first[:-1]))


def group_template(
    placement: Placement,
    plan: Plan,
    parents: tuple[tuple[int, ...], ...] | None,
    relays: bool,
    group: GroupTasks,
) -> GroupTemplate:
    """Return what one replica does with one micro-batch, wherever its GPUs are.

    `parents` and `relays` as in `Trees`; None: from each maker to each user, the same on every network.
    `group` as of `replica_tasks`.
    """
    if parents is None:
        return GroupTemplate.of(placement, plan, None, group)
    trees = Trees(parents=np.array(parents, dtype=np.int32), relays=relays)
    return GroupTemplate.of(placement, plan, trees, group)


def lowered(
    template: GroupTemplate,
    cluster: Cluster,
    order: tuple[int, ...] | None,
    tiers: tuple[int, ...],
    rings: tuple[WeightedRing, ...],
    in_network: bool = False,
    tier_orders: tuple[WeightedOrder, ...] = (),
    library: Library | None = None,
    framework: Framework | None = None,
    reach_hops: int | None = None,
    grid: tuple[int, ...] = (),
) -> Lowering:
    """Return the template with GPUs for all groups.

    `order` as in `Fabric`, `tiers`, `rings`, `in_network` and `tier_orders` (`AllReduce.orders`) as in
    `AllReduce`; None: no library and no framework that take time, and nothing is passed on that is further
    than `reach_hops` on a ring. Rows of experts are passed on over `grid`, if there is one.
    """
    positions = None if order is None else np.array(order, dtype=np.int32)
    lowering = Lowering.of(
        template, cluster, order=positions, tiers=tiers, orders=rings, tier_orders=tier_orders,
        library=library, in_network=in_network, framework=framework,
    )  # fmt: skip
    forwarding: Forwarding | None = None
    if grid:
        forwarding = GridForwarding.of(template.plan, lowering.gpu_of, grid, reach_hops)
    elif reach_hops:
        forwarding = RingForwarding(reach_hops=reach_hops, gpus=cluster.gpus)
    return attrs.evolve(lowering, forwarding=forwarding)


#: Largest part of a GPU that kernels of a library take.
MOST_TAKEN = 0.5


def library_on(
    communication: Communication, fabric: Fabric, prices: Prices, gpu: GpuModel | None = None
) -> Library | None:
    """Return a communication library on a fabric; None: it costs nothing."""
    if communication.free:
        return None
    of_gpu = gpu.multiprocessors if gpu is not None else None
    taken = communication.multiprocessors(prices.replica_gbps)
    return Library(
        communication=communication,
        group_gbps=prices.group_gbps,
        replica_gbps=prices.replica_gbps,
        server=servers_of(fabric),
        slowdown=min(taken / of_gpu, MOST_TAKEN) if of_gpu else 0.0,
    )


def servers_of(fabric: Fabric) -> tuple[int, ...]:
    """Return the server of each GPU; none: the fabric has no servers. [gpus]"""
    size = fabric.hints.server_gpus
    if size is None:
        return ()
    place = np.arange(fabric.gpus)
    if fabric.hints.order is not None:
        place[fabric.hints.order] = np.arange(fabric.gpus)
    return tuple((place // size).tolist())


def first_groups(lowering: Lowering, groups: int) -> TaskGraph:
    """Return the tasks of the first groups, without noise."""
    return lowering.tasks(groups)


def relayed_first_groups(lowering: Lowering, groups: int) -> TaskGraph | RelayedTasks:
    """Return the same, with what is passed on from GPU to GPU in one transfer where that says it all."""
    return lowering.relayed_tasks(groups) or lowering.tasks(groups)


def whole_job(lowering: Lowering, jitter: float, seed: int) -> TaskGraph:
    """Return the tasks of all groups, their compute times multiplied by log-normal noise of mean 1."""
    tasks = lowering.tasks()
    if jitter == 0:
        return tasks
    sigma = np.sqrt(np.log1p(jitter**2))
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, tasks.compute_tasks)
    return attrs.evolve(tasks, duration_us=tasks.duration_us * noise[lowering.by_group(tasks)])


@frozen(kw_only=True, eq=False)
class Driven:
    """A network, and who drives its circuits (None: it has none)."""

    network: Network
    circuits: ScheduledCircuits | None


def circuits_for(
    interconnect: Interconnect,
    fabric: Fabric,
    tasks: TaskGraph,
    network: Network | None = None,
    rule: DemandRule = BYTES,
    gates: NDArray[np.int64] | None = None,
    parts: TransferParts | None = None,
) -> Driven:
    """Return the network that the tasks use, with circuits planned for all of their traffic.

    Parameters
    ----------
    network
        Of the tasks on the fabric; None: made here.
    rule, gates
        See `ScheduledCircuits`.
    parts
        Of the tasks, where circuits are planned for the phases of the job: see `transfer_parts`.

    Raises
    ------
    InfeasibleError
        A pair that must talk has no route; or circuits are set once and leave out a pair that cannot be
        relayed either.
    """
    if network is None:
        network = Network.of(fabric, tasks)
        refuse_excess(fabric, network, interconnect.cluster.bandwidth_gbps)
    control, scheduler, estimator = fabric.circuits, interconnect.scheduler, interconnect.estimator
    if control is None or scheduler is None or estimator is None:
        return Driven(network=network, circuits=None)
    network, circuits = driven(
        fabric, scheduler, estimator, tasks, network,
        rule=rule, gates=gates, replan_above=interconnect.circuit_keys.replan_above, parts=parts,
    )  # fmt: skip
    return Driven(network=network, circuits=circuits)


def transfer_parts(interconnect: Interconnect, lowering: Lowering, tasks: TaskGraph) -> TransferParts | None:
    """Return the parts of the job that `replan` of the interconnect tells apart; None: it does not."""
    replan = interconnect.circuit_keys.replan
    if replan == "interval":
        return None
    stage = None if replan == "phase" else lowering.stage_of(tasks)
    return TransferParts(
        iteration=lowering.iteration_of(tasks),
        stage=stage,
        by_kind=replan in ("kind", "auto"),
        by_interval=replan == "auto",
    )
