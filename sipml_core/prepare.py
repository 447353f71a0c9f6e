"""Everything before the simulation: a workload cut, placed and lowered onto an interconnect."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import attrs
import numpy as np

from sipml_core.circuits.driver import ScheduledCircuits, job_bytes, refuse_unserved, unserved_pairs
from sipml_core.circuits.estimators import ESTIMATORS
from sipml_core.circuits.relay import with_relays
from sipml_core.config import Experiment, Interconnect, Job
from sipml_core.errors import ConfigError
from sipml_core.model.balanced import BalancedGraph, Placement
from sipml_core.model.fabric import Fabric
from sipml_core.model.network import Network
from sipml_core.model.opgraph import OpGraph
from sipml_core.model.strategy import Strategy
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.parallel.layout import fixed_layout
from sipml_core.parallel.limits import placement_limits
from sipml_core.parallel.lowering import TrafficBytes, lower, traffic_bytes
from sipml_core.parallel.memory import check_memory
from sipml_core.parallel.partition import partition

from sipml_core.parallel.splits import choose_splits


@attrs.define
class _Recent:
    """The last few results of expensive steps that several cases share."""

    size: int
    kept: dict[Hashable, Any] = attrs.Factory(dict)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            while len(self.kept) >= self.size:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = make()
        return self.kept[key]


@attrs.frozen(kw_only=True)
class Prepared:
    """A case that is known to fit and to have its routes, ready to simulate."""

    job: Job
    interconnect: Interconnect
    strategy: Strategy
    fabric: Fabric
    placement: Placement
    tasks: TaskGraph
    network: Network
    circuits: ScheduledCircuits | None
    memory_bytes: float
    traffic: TrafficBytes
    collective: str


@attrs.define
class Workbench:
    """Prepares cases, sharing what does not depend on the interconnect."""

    experiment: Experiment
    _graphs: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _balanced: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _placements: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _tasks: _Recent = attrs.Factory(lambda: _Recent(size=2))

    def prepare(self, job: Job, interconnect: Interconnect, strategy: Strategy) -> list[Prepared]:
        """The case in each form of all-reduce that its fabric offers.

        Raises
        ------
        InfeasibleError
            The strategy does not fit the memory, the degree or the reach of the interconnect, or a
            pair that must talk has no route.
        """
        fabric = interconnect.topology.build(interconnect.cluster)
        if fabric.circuits and interconnect.scheduler is None:
            raise ConfigError(f"topology {interconnect.label!r} has circuits and needs a scheduler")
        limits = placement_limits(strategy.mp, strategy.dp, fabric.degree, fabric.reach_hops)
        balanced = self.balanced(job, interconnect, strategy)
        placement: Placement = self._placements.get(
            (job.label, strategy, interconnect.cluster, limits), lambda: job.placer.place(balanced, limits)
        )
        memory_bytes = check_memory(placement, strategy, self.experiment.gpu.memory_bytes)
        return [
            self._finish(job, interconnect, strategy, fabric, placement, memory_bytes, server_gpus)
            for server_gpus in _all_reduce_forms(fabric, strategy)
        ]

    def balanced(self, job: Job, interconnect: Interconnect, strategy: Strategy) -> BalancedGraph:
        """The workload cut into sub-ops for this strategy."""
        cluster, gpu = interconnect.cluster, self.experiment.gpu
        graph = self.graph(job, strategy)

        def make() -> BalancedGraph:
            if job.table.layout == "auto":
                layout = choose_splits(
                    graph, gpu, cluster, mp=strategy.mp, dp=strategy.dp,
                    tau_us=strategy.tau_us, gbps=cluster.bandwidth_gbps, recompute=strategy.recompute,
                )  # fmt: skip
            else:
                layout = fixed_layout(graph, job.table.layout)
            return partition(graph, gpu, cluster, mp=strategy.mp, tau_us=strategy.tau_us, layout=layout)

        result: BalancedGraph = self._balanced.get((job.label, strategy, cluster), make)
        return result

    def graph(self, job: Job, strategy: Strategy) -> OpGraph:
        batch = strategy.local_batch
        graph: OpGraph = self._graphs.get(
            (job.label, batch), lambda: job.workload.graph(batch, self.experiment.precision)
        )
        return graph

    def _finish(
        self,
        job: Job,
        interconnect: Interconnect,
        strategy: Strategy,
        fabric: Fabric,
        placement: Placement,
        memory_bytes: float,
        server_gpus: int | None,
    ) -> Prepared:
        cluster = interconnect.cluster
        order = None if fabric.order is None else fabric.order.tobytes()
        tasks: TaskGraph = self._tasks.get(
            (job.label, strategy, cluster, placement.limits, order, server_gpus),
            lambda: _jittered(
                lower(
                    placement, strategy, cluster,
                    order=fabric.order, server_gpus=server_gpus,
                ),
                cluster.jitter,
                self.experiment.seed,
            ),
        )  # fmt: skip
        network, circuits = self._circuits(interconnect, fabric, Network.of(fabric, tasks), tasks)
        return Prepared(
            job=job,
            interconnect=interconnect,
            strategy=strategy,
            fabric=fabric,
            placement=placement,
            tasks=tasks,
            network=network,
            circuits=circuits,
            memory_bytes=memory_bytes,
            traffic=traffic_bytes(placement, strategy),
            collective="two-tier" if server_gpus else "ring",
        )

    def _circuits(
        self, interconnect: Interconnect, fabric: Fabric, network: Network, tasks: TaskGraph
    ) -> tuple[Network, ScheduledCircuits | None]:
        """The circuits' driver; on a one-shot network every pair must be served, or relayed."""
        control, scheduler = fabric.circuits, interconnect.scheduler
        if control is None or scheduler is None:
            return network, None
        driver = ScheduledCircuits(
            control=control,
            scheduler=scheduler,
            estimator=ESTIMATORS[interconnect.estimator](network, tasks),
            network=network,
            total_bytes=job_bytes(network, tasks),
        )
        if control.interval_us is None and len(unserved_pairs(network, driver.plan)):
            if not control.relay:
                refuse_unserved(network, driver.plan, control.circuits_per_gpu)
            network = Network.of(with_relays(fabric, driver.plan), tasks)
            driver = driver.on(network)
        return network, driver


def _all_reduce_forms(fabric: Fabric, strategy: Strategy) -> list[int | None]:
    """Servers by which gradients are synchronised in two tiers, or None for one flat ring.

    Two tiers are possible where whole groups fill whole servers, and more than one server.
    """
    size = fabric.server_gpus
    if not size or size <= strategy.mp or size % strategy.mp or strategy.gpus % size or strategy.gpus == size:
        return [None]
    return [None, size]


def _jittered(tasks: TaskGraph, jitter: float, seed: int) -> TaskGraph:
    """Compute times multiplied by log-normal noise of mean 1."""
    if jitter == 0:
        return tasks
    sigma = np.sqrt(np.log1p(jitter**2))
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, tasks.compute_tasks)
    return attrs.evolve(tasks, duration_us=tasks.duration_us * noise)
