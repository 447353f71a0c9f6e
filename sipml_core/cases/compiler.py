"""Everything before the simulation: a workload cut, placed and lowered onto an interconnect."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.variants import Variant, all_reduce_servers, exchanges
from sipml_core.errors import ConfigError, InfeasibleError, PluginError
from sipml_core.experiment import Experiment, Interconnect, Job
from sipml_core.lowering import (
    GroupTemplate,
    Lowering,
    NoSymmetryError,
    Pairs,
    TrafficBytes,
    check_memory,
    fold,
)
from sipml_core.model import BalancedGraph, Fabric, Network, OpGraph, Placement, Plan, TaskGraph
from sipml_core.partition import Layout, choose_splits, fixed_layout, partition
from sipml_core.placement import placement_limits
from sipml_core.scheduling import (
    ScheduledCircuits,
    circuit_traffic,
    job_bytes,
    refuse_unserved,
    unserved_pairs,
    with_relays,
)

_T = TypeVar("_T")


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
class CompiledCase:
    """A case that is known to fit and to have its routes, ready to simulate."""

    job: Job
    interconnect: Interconnect
    plan: Plan
    fabric: Fabric
    placement: Placement
    #: Of the simulated groups; `repeats` times as much is the whole job.
    tasks: TaskGraph
    network: Network
    circuits: ScheduledCircuits | None
    #: GPUs whose accounts count.
    simulated: NDArray[np.int32]
    memory_bytes: float
    traffic: TrafficBytes
    all_reduce: str

    @property
    def repeats(self) -> int:
        """How often the simulated groups stand in the job: 1 unless it is folded."""
        return self.plan.gpus // len(self.simulated)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how the case was prepared."""
        notes = list(self.fabric.notes)
        if not self.placement.converged:
            notes.append("Algorithm 1 did not converge; a fallback placement is used")
        if self.plan.exchange == "chain":
            notes.append("GPUs of a group exchange along a chain")
        if self.repeats > 1:
            notes.append(f"simulated {self.plan.dp // self.repeats} of {self.plan.dp} groups")
        return tuple(notes)


@attrs.frozen(kw_only=True, eq=False)
class CaseTraffic:
    """A case that fits, and what it would send: enough for an estimate."""

    lowering: Lowering
    pairs: Pairs
    #: All `pairs.tasks` on the fabric, and what each link carries under the first circuits.
    network: Network
    #: [links] [Gbps]
    capacity_gbps: NDArray[np.float64]
    #: Of one circuit; 0 on packet networks.
    circuit_gbps: float
    #: See `Fabric`.
    server_gpus: int | None
    memory_bytes: float
    all_reduce: str


#: What is simulated: tasks, network, circuits, and the GPUs whose accounts count.
_Part = tuple[TaskGraph, Network, ScheduledCircuits | None, NDArray[np.int32]]


@attrs.define
class Compiler:
    """Prepares cases, sharing what does not depend on the interconnect."""

    experiment: Experiment
    _graphs: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _balanced: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _placements: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _plans: _Recent = attrs.Factory(lambda: _Recent(size=4))
    _tasks: _Recent = attrs.Factory(lambda: _Recent(size=2))

    def prepare(self, job: Job, interconnect: Interconnect, plan: Plan) -> list[CompiledCase]:
        """The case in each form of exchange inside groups, and of all-reduce, that its fabric offers.

        Raises
        ------
        InfeasibleError
            In no form does the strategy fit the memory, the degree and the reach of the interconnect,
            with a route for each pair that must talk.
        """

        def finish(variant: Variant) -> CompiledCase:
            return self._finish(job, interconnect, variant)

        return self._in_each_form(job, interconnect, plan, finish)

    def traffic(self, job: Job, interconnect: Interconnect, plan: Plan) -> list[CaseTraffic]:
        """What `prepare` would prepare, with the circuits of the whole job's traffic but without tasks.

        Raises
        ------
        InfeasibleError
            As `prepare`.
        """

        def finish(variant: Variant) -> CaseTraffic:
            lowering = self._lowering(job, interconnect, variant)
            pairs = Pairs.of(lowering)
            network, _, capacity_gbps = self._first_circuits(interconnect, variant.fabric, pairs)
            return CaseTraffic(
                lowering=lowering,
                pairs=pairs,
                network=network,
                capacity_gbps=capacity_gbps,
                circuit_gbps=variant.fabric.circuits.circuit_gbps if variant.fabric.circuits else 0.0,
                server_gpus=variant.fabric.server_gpus,
                memory_bytes=variant.memory_bytes,
                all_reduce=variant.all_reduce,
            )

        return self._in_each_form(job, interconnect, plan, finish)

    def _in_each_form(
        self, job: Job, interconnect: Interconnect, plan: Plan, finish: Callable[[Variant], _T]
    ) -> list[_T]:
        """What `finish` makes of each form that can run; `InfeasibleError` if none can."""
        fabric = self._fabric(interconnect)
        found: list[_T] = []
        refusals: list[InfeasibleError] = []
        for exchange in exchanges(fabric, plan):
            chosen = attrs.evolve(plan, exchange=exchange)
            try:
                placement, memory_bytes = self._placed(job, interconnect, chosen, fabric)
                found += [
                    finish(
                        Variant(
                            plan=chosen,
                            fabric=fabric,
                            placement=placement,
                            memory_bytes=memory_bytes,
                            server_gpus=server_gpus,
                        )
                    )
                    for server_gpus in all_reduce_servers(fabric, plan)
                ]
            except InfeasibleError as error:
                refusals.append(error)
        if not found:
            raise refusals[0]  # where both forms are tried, the chain, which is less limited
        return found

    def _fabric(self, interconnect: Interconnect) -> Fabric:
        fabric = interconnect.topology.build(interconnect.cluster)
        if not isinstance(fabric, Fabric):
            raise PluginError(
                f"topology {interconnect.topology.name!r}: build returned a {type(fabric).__name__}, not a "
                "Fabric (Fabric.from_networkx makes one of a graph)"
            )
        if fabric.circuits and interconnect.scheduler is None:
            raise ConfigError(f"topology {interconnect.label!r} has circuits and needs a scheduler")
        scheduler = interconnect.scheduler
        if not fabric.circuits and scheduler and scheduler.name != interconnect.topology.scheduler:
            raise ConfigError(
                f"topology {interconnect.label!r} has no circuits for {scheduler.name!r} to plan"
            )
        return fabric

    def _placed(
        self, job: Job, interconnect: Interconnect, plan: Plan, fabric: Fabric
    ) -> tuple[Placement, float]:
        """A placement that fits the fabric, and the memory of the fullest GPU. [bytes]"""
        limits = placement_limits(
            plan.mp, plan.dp, fabric.degree, fabric.reach_hops,
            ring_peers=plan.ring_peers, chain=plan.exchange == "chain",
        )  # fmt: skip
        whatever = attrs.evolve(plan, exchange="auto")
        balanced = self.balanced(job, interconnect, whatever)
        placement: Placement = self._placements.get(
            (job.label, whatever, interconnect.cluster, limits), lambda: job.placer.place(balanced, limits)
        )
        return placement, check_memory(placement, plan, self.experiment.gpu.memory_bytes)

    def balanced(self, job: Job, interconnect: Interconnect, plan: Plan) -> BalancedGraph:
        """The workload cut into sub-ops for this strategy."""
        cluster, gpu = interconnect.cluster, self.experiment.gpu

        def make() -> BalancedGraph:
            graph, layout = self.graph(job, plan), self.layout(job, interconnect, plan)
            return partition(graph, gpu, cluster, mp=plan.mp, tau_us=plan.tau_us, layout=layout)

        result: BalancedGraph = self._balanced.get((job.label, plan, cluster), make)
        return result

    def layout(self, job: Job, interconnect: Interconnect, plan: Plan) -> Layout:
        """The dimension along which each op is cut, and why."""
        graph, cluster = self.graph(job, plan), interconnect.cluster
        if job.table.layout != "auto":
            return fixed_layout(graph, job.table.layout)
        return choose_splits(
            graph, self.experiment.gpu, cluster, mp=plan.mp, dp=plan.dp,
            tau_us=plan.tau_us, gbps=cluster.bandwidth_gbps, recompute=plan.recompute,
        )  # fmt: skip

    def graph(self, job: Job, plan: Plan) -> OpGraph:
        batch = plan.local_batch
        graph: OpGraph = self._graphs.get(
            (job.label, batch), lambda: job.workload.graph(batch, self.experiment.precision)
        )
        return graph

    def _finish(self, job: Job, interconnect: Interconnect, variant: Variant) -> CompiledCase:
        lowering = self._lowering(job, interconnect, variant)
        part = self._folded(interconnect, variant.fabric, lowering)
        if part is None:
            limits = variant.placement.limits
            case = (job.label, variant.plan, interconnect.cluster, limits, variant.server_gpus)
            part = self._whole(interconnect, variant.fabric, lowering, case)
        tasks, network, circuits, simulated = part
        return CompiledCase(
            job=job,
            interconnect=interconnect,
            plan=variant.plan,
            fabric=variant.fabric,
            placement=variant.placement,
            tasks=tasks,
            network=network,
            circuits=circuits,
            simulated=simulated,
            memory_bytes=variant.memory_bytes,
            traffic=lowering.template.traffic,
            all_reduce=variant.all_reduce,
        )

    def _lowering(self, job: Job, interconnect: Interconnect, variant: Variant) -> Lowering:
        template: GroupTemplate = self._plans.get(
            (job.label, variant.plan, interconnect.cluster, variant.placement.limits),
            lambda: GroupTemplate.of(variant.placement, variant.plan),
        )
        return Lowering.of(
            template, interconnect.cluster, order=variant.fabric.order, server_gpus=variant.server_gpus
        )

    def _whole(self, interconnect: Interconnect, fabric: Fabric, lowering: Lowering, case: Hashable) -> _Part:
        """All groups."""
        tasks: TaskGraph = self._tasks.get(
            (case, lowering.layout.tobytes()),
            lambda: _jittered(lowering.tasks(), interconnect.cluster.jitter, self.experiment.seed),
        )
        network, circuits = self._circuits(interconnect, fabric, Network.of(fabric, tasks), tasks)
        return tasks, network, circuits, lowering.layout.reshape(-1)

    def _folded(self, interconnect: Interconnect, fabric: Fabric, lowering: Lowering) -> _Part | None:
        """The first groups where they stand for all; None where all are to be simulated.

        Raises
        ------
        NoSymmetryError
            The experiment requires folding, and it would not be exact.
        """
        wanted = self.experiment.engine.fold
        if wanted == "never" or lowering.plan.dp == 1:
            return None
        try:
            _refuse_unforeseen(interconnect, fabric)
            pairs = Pairs.of(lowering)
            network, circuits, capacity_gbps = self._first_circuits(interconnect, fabric, pairs)
            replanned = circuits is not None and circuits.interval_us is not None
            folded = fold(pairs, network, capacity_gbps, fabric.circuits if replanned else None)
        except NoSymmetryError as error:
            if wanted == "auto":
                return None
            raise NoSymmetryError(
                f'engine.fold = "require", but on {interconnect.label} groups are not alike: {error}'
            ) from None
        if folded.control is not None:
            part = attrs.evolve(fabric, circuits=folded.control)
            _, circuits = self._circuits(interconnect, part, folded.network, folded.tasks)
        elif circuits:
            circuits = circuits.on(folded.network)
        return folded.tasks, folded.network, circuits, folded.gpus

    def _first_circuits(
        self, interconnect: Interconnect, fabric: Fabric, pairs: Pairs
    ) -> tuple[Network, ScheduledCircuits | None, NDArray[np.float64]]:
        """The network of all pairs, and what its links carry under the first plan. [links] [Gbps]"""
        tasks = pairs.tasks
        network, circuits = self._circuits(interconnect, fabric, Network.of(fabric, tasks), tasks)
        capacity_gbps = network.link_gbps.copy()
        if circuits:
            ends = network.circuit_src, network.circuit_dst
            capacity_gbps[network.first_circuit :] = circuits.plan.capacity_gbps(*ends)
        return network, circuits, capacity_gbps

    def _circuits(
        self, interconnect: Interconnect, fabric: Fabric, network: Network, tasks: TaskGraph
    ) -> tuple[Network, ScheduledCircuits | None]:
        """The circuits' driver; on a one-shot network every pair must be served, or relayed."""
        control, scheduler, estimator = fabric.circuits, interconnect.scheduler, interconnect.estimator
        if control is None or scheduler is None or estimator is None:
            return network, None
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
            network = Network.of(
                with_relays(fabric, driver.plan, circuit_traffic(network, total_bytes)), tasks
            )
            driver = driver.on(network)
        return network, driver


def _refuse_unforeseen(interconnect: Interconnect, fabric: Fabric) -> None:
    """`NoSymmetryError` where groups part only while the job runs."""
    if interconnect.cluster.jitter:
        raise NoSymmetryError("jitter gives every task a duration of its own")
    replanned = fabric.circuits is not None and fabric.circuits.interval_us is not None
    for component in (interconnect.scheduler, interconnect.estimator):
        if replanned and component and not component.treats_alike:
            raise NoSymmetryError(
                f"circuits are re-planned while the job runs, and {component.name!r} may treat groups "
                "differently"
            )


def _jittered(tasks: TaskGraph, jitter: float, seed: int) -> TaskGraph:
    """Compute times multiplied by log-normal noise of mean 1."""
    if jitter == 0:
        return tasks
    sigma = np.sqrt(np.log1p(jitter**2))
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, tasks.compute_tasks)
    return attrs.evolve(tasks, duration_us=tasks.duration_us * noise)
