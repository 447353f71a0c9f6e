"""The steps of one case, in order. Each is a function of what it is given, to be called and tested alone.

Those that several cases share (`op_graph`, `op_layout`, `balanced_graph`, `placed`, `group_template`,
`lowered`, `whole_job`) read nothing but their arguments, which can all be hashed: see `Reuse`.
"""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.errors import ConfigError, PluginError
from sipml_core.experiment import Interconnect
from sipml_core.lowering import GroupTemplate, Lowering
from sipml_core.model import (
    BalancedGraph,
    Cluster,
    Fabric,
    Network,
    OpGraph,
    Placement,
    PlacementLimits,
    Plan,
    Prices,
    TaskGraph,
)
from sipml_core.partition import Layout, choose_splits, cut_stages, fixed_layout, partition
from sipml_core.placement import place_in_stages
from sipml_core.plugin import GpuModel, Placer, Topology, Workload
from sipml_core.scheduling import (
    ScheduledCircuits,
    circuit_traffic,
    job_bytes,
    refuse_unserved,
    unserved_pairs,
    with_relays,
)


def built_fabric(topology: Topology, cluster: Cluster) -> Fabric:
    """Return the fabric of a topology; `PluginError` if what it builds is none."""
    fabric = topology.build(cluster)
    if not isinstance(fabric, Fabric):
        raise PluginError(
            f"topology {topology.name!r}: build returned a {type(fabric).__name__}, not a "
            "Fabric (Fabric.from_networkx makes one of a graph)"
        )
    return fabric


def check_scheduler(fabric: Fabric, interconnect: Interconnect) -> None:
    """Refuse circuits that nobody plans, and a scheduler with no circuits to plan."""
    scheduler = interconnect.scheduler
    if fabric.circuits and scheduler is None:
        raise ConfigError(f"topology {interconnect.label!r} has circuits and needs a scheduler")
    if not fabric.circuits and scheduler and scheduler.name != interconnect.topology.scheduler:
        raise ConfigError(f"topology {interconnect.label!r} has no circuits for {scheduler.name!r} to plan")


def op_graph(workload: Workload, samples: int, precision: str) -> OpGraph:
    """Return the ops of one training step of `samples` samples on one replica."""
    return workload.graph(samples, precision)


def op_layout(
    graph: OpGraph, name: str, gpu: GpuModel, cluster: Cluster, plan: Plan, prices: Prices
) -> Layout:
    """Return the dimension along which each op is cut, and why, by the layout of that name."""
    if name != "auto":
        return fixed_layout(graph, name)
    return choose_splits(
        graph, gpu, cluster, mp=plan.mp, dp=plan.dp,
        tau_us=plan.tau_us, prices=prices, recompute=plan.recompute == "full", stages=plan.pp,
    )  # fmt: skip


def balanced_graph(
    graph: OpGraph, layout: str, gpu: GpuModel, cluster: Cluster, plan: Plan, prices: Prices
) -> BalancedGraph:
    """Return the ops cut into sub-ops of about tau, along the dimensions that the named layout gives."""
    cuts = op_layout(graph, layout, gpu, cluster, plan, prices)
    return partition(graph, gpu, cluster, mp=plan.mp, tau_us=plan.tau_us, layout=cuts)


def placed(placer: Placer, graph: BalancedGraph, limits: PlacementLimits, plan: Plan) -> Placement:
    """Return a device of the replica for each sub-op, of `limits.devices` for each stage."""
    if plan.pp == 1:
        return placer.place(graph, limits)
    # An op takes as long as its longest part: the parts are on as many devices.
    time_us = np.maximum.reduceat(graph.duration_us, graph.first[:-1])
    part = cut_stages(graph.graph, time_us, plan.model_parts, plan.stage_tolerance)
    return place_in_stages(placer, graph, limits, part, plan.pp)


def group_template(placement: Placement, plan: Plan) -> GroupTemplate:
    """Return what one replica does with one micro-batch, wherever its GPUs are."""
    return GroupTemplate.of(placement, plan)


def lowered(
    template: GroupTemplate, cluster: Cluster, order: tuple[int, ...] | None, server_gpus: int | None
) -> Lowering:
    """Return the template with GPUs for all groups; `order` and `server_gpus` as in `Fabric`."""
    positions = None if order is None else np.array(order, dtype=np.int32)
    return Lowering.of(template, cluster, order=positions, server_gpus=server_gpus)


def first_groups(lowering: Lowering, groups: int) -> TaskGraph:
    """Return the tasks of the first groups, without noise."""
    return lowering.tasks(groups)


def whole_job(lowering: Lowering, jitter: float, seed: int) -> TaskGraph:
    """Return the tasks of all groups, their compute times multiplied by log-normal noise of mean 1."""
    tasks = lowering.tasks()
    if jitter == 0:
        return tasks
    sigma = np.sqrt(np.log1p(jitter**2))
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, tasks.compute_tasks)
    return attrs.evolve(tasks, duration_us=tasks.duration_us * noise)


@attrs.frozen(kw_only=True, eq=False)
class Driven:
    """A network, and who drives its circuits (None: it has none)."""

    network: Network
    circuits: ScheduledCircuits | None


def circuits_for(
    interconnect: Interconnect, fabric: Fabric, tasks: TaskGraph, network: Network | None = None
) -> Driven:
    """Return the network that the tasks use, with circuits planned for all of their traffic.

    Parameters
    ----------
    network
        Of the tasks on the fabric; None: made here.

    Raises
    ------
    InfeasibleError
        A pair that must talk has no route; or circuits are set once and leave out a pair that cannot be
        relayed either.
    """
    network = network or Network.of(fabric, tasks)
    control, scheduler, estimator = fabric.circuits, interconnect.scheduler, interconnect.estimator
    if control is None or scheduler is None or estimator is None:
        return Driven(network=network, circuits=None)
    total_bytes = job_bytes(network, tasks)
    driver = ScheduledCircuits(
        control=control,
        scheduler=scheduler,
        estimator=estimator.start(network, tasks),
        network=network,
        total_bytes=total_bytes,
    )
    if control.interval_us is None and len(unserved_pairs(network, driver.plan)):
        if not control.relay:
            refuse_unserved(network, driver.plan, control.circuits_per_gpu)
        relayed = with_relays(fabric, driver.plan, circuit_traffic(network, total_bytes))
        network = Network.of(relayed, tasks)
        driver = driver.on(network)
    return Driven(network=network, circuits=driver)
