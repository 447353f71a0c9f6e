"""From an experiment to its result: prepares each case, simulates it, and sums it up."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from sipml_core import __version__
from sipml_core.circuits.driver import ScheduledCircuits, job_bytes, refuse_unserved, unserved_pairs
from sipml_core.circuits.estimators import ESTIMATORS
from sipml_core.circuits.relay import with_relays
from sipml_core.config import Experiment, Interconnect, Job, divisors
from sipml_core.engine.bounds import lower_bound_us
from sipml_core.engine.simulate import simulate
from sipml_core.errors import ConfigError, InfeasibleError, LimitError
from sipml_core.model.balanced import BalancedGraph, Placement
from sipml_core.model.fabric import Fabric
from sipml_core.model.network import Network
from sipml_core.model.opgraph import OpGraph
from sipml_core.model.results import CaseResult, Result
from sipml_core.model.strategy import Strategy
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.model.timeline import Timeline
from sipml_core.parallel.limits import placement_limits
from sipml_core.parallel.lowering import lower
from sipml_core.parallel.memory import check_memory
from sipml_core.parallel.partition import partition
from sipml_core.parallel.splits import choose_splits

#: progress(case, fraction of it done)
Progress = Callable[[str, float], None]


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
        forms: list[int | None] = [None]
        if fabric.server_gpus and strategy.mp == 1 and strategy.dp > fabric.server_gpus:
            forms.append(fabric.server_gpus)
        return [
            self._finish(job, interconnect, strategy, fabric, placement, memory_bytes, server_gpus)
            for server_gpus in forms
        ]

    def balanced(self, job: Job, interconnect: Interconnect, strategy: Strategy) -> BalancedGraph:
        """The workload cut into sub-ops for this strategy."""
        cluster, gpu = interconnect.cluster, self.experiment.gpu
        graph = self.graph(job, strategy)

        def make() -> BalancedGraph:
            layout: Any = job.table.layout
            if layout == "auto":
                layout = choose_splits(
                    graph, gpu, cluster, mp=strategy.mp, dp=strategy.dp,
                    tau_us=strategy.tau_us, gbps=cluster.bandwidth_gbps,
                )  # fmt: skip
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
                    order=fabric.order, server_gpus=server_gpus, gpu_speed=cluster.gpu_speed,
                ),
                cluster.jitter,
                self.experiment.seed,
            ),
        )  # fmt: skip
        network = Network.of(fabric, tasks)
        circuits = None
        if fabric.circuits:
            network, circuits = self._circuits(interconnect, fabric, network, tasks)
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
            collective="hierarchical" if server_gpus else "ring",
        )

    def _circuits(
        self, interconnect: Interconnect, fabric: Fabric, network: Network, tasks: TaskGraph
    ) -> tuple[Network, ScheduledCircuits]:
        """The circuits' driver; on a one-shot network every pair must be served, or relayed."""
        assert fabric.circuits is not None and interconnect.scheduler is not None

        def drive(network: Network) -> ScheduledCircuits:
            return ScheduledCircuits(
                control=fabric.circuits,
                scheduler=interconnect.scheduler,
                estimator=ESTIMATORS[interconnect.estimator](network, tasks),
                network=network,
                total_bytes=job_bytes(network, tasks),
            )

        driver = drive(network)
        if fabric.circuits.interval_us is None and len(unserved_pairs(network, driver.plan)):
            if not fabric.circuits.relay:
                refuse_unserved(network, driver.plan, fabric.circuits.circuits_per_gpu)
            network = Network.of(with_relays(fabric, driver.plan), tasks)
            driver = driver.on(network)
        return network, driver


def _jittered(tasks: TaskGraph, jitter: float, seed: int) -> TaskGraph:
    """Compute times multiplied by log-normal noise of mean 1."""
    if jitter == 0:
        return tasks
    sigma = np.sqrt(np.log1p(jitter**2))
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, tasks.compute_tasks)
    return attrs.evolve(tasks, duration_us=tasks.duration_us * noise)


def cases(experiment: Experiment) -> Iterator[tuple[Job, Interconnect, list[Strategy]]]:
    """Every workload on every interconnect, with the strategies to try."""
    for job in experiment.jobs:
        for interconnect in experiment.interconnects:
            gpus = interconnect.cluster.gpus
            degrees: list[int | None] = [*divisors(gpus)] if job.searched else [None]
            yield job, interconnect, _strategies(job, gpus, degrees)


def _strategies(job: Job, gpus: int, degrees: list[int | None]) -> list[Strategy]:
    """Those that divide the batch; if none does, the refusal of the last."""
    strategies, refusal = [], None
    for mp in degrees:
        try:
            strategies.append(job.strategy(gpus, mp))
        except ConfigError as error:
            refusal = error
    if not strategies and refusal:
        raise refusal
    return strategies


@attrs.define
class Clock:
    """Wall-clock limit of a whole run."""

    limit_s: float | None
    started: float = attrs.Factory(time.monotonic)

    def left_s(self) -> float | None:
        if self.limit_s is None:
            return None
        left = self.limit_s - (time.monotonic() - self.started)
        if left <= 0:
            raise LimitError(f"the wall-clock limit of {self.limit_s:g} s was reached; nothing was written")
        return left


def run_case(
    bench: Workbench,
    job: Job,
    interconnect: Interconnect,
    strategies: list[Strategy],
    clock: Clock,
    progress: Progress,
) -> CaseResult:
    """The fastest of the strategies; `InfeasibleError` if none can run."""
    best: CaseResult | None = None
    refusals = []
    for done, strategy in enumerate(strategies):

        def report(fraction: float, _: int, done: int = done) -> None:
            progress(f"{job.label} on {interconnect.label}", (done + fraction) / len(strategies))

        try:
            forms = bench.prepare(job, interconnect, strategy)
        except InfeasibleError as error:
            refusals.append(f"mp={strategy.mp} dp={strategy.dp}: {error}")
            continue
        for prepared in forms:
            result = simulate_case(bench.experiment, prepared, clock, report)
            if best is None or result.iteration_us < best.iteration_us:
                best = result
    if best is None:
        raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1].partition(': ')[2]}")
    if len(strategies) > 1:
        tried = f"fastest of {len(strategies)} (mp, dp) pairs, {len(refusals)} of them infeasible"
        best = attrs.evolve(best, notes=(*best.notes, tried))
    return best


def simulate_case(
    experiment: Experiment, prepared: Prepared, clock: Clock, progress: Callable[[float, int], None]
) -> CaseResult:
    """Simulate one prepared case."""
    if prepared.fabric.sharing == "bound":
        return _bound_result(prepared)
    timeline = simulate(
        prepared.tasks,
        prepared.network,
        driver=prepared.circuits,
        queue=experiment.engine.queue,
        max_time_us=experiment.engine.max_time_us,
        max_wall_s=clock.left_s(),
        progress=progress,
    )
    return _result(prepared, timeline)


def _bound_result(prepared: Prepared) -> CaseResult:
    """Where transfers do not share links a run takes its lower bound, and nothing else is known of it."""
    bound_us = lower_bound_us(prepared.tasks, prepared.network) / prepared.strategy.iterations
    compute_us = prepared.tasks.duration_us.sum() / prepared.strategy.gpus / prepared.strategy.iterations
    times = {"compute_us": compute_us, "exposed_us": 0.0, "dark_us": 0.0, "idle_us": bound_us - compute_us}
    return _case(prepared, bound_us, times, ("physical lower bound, not a simulation",))


def _result(prepared: Prepared, timeline: Timeline) -> CaseResult:
    """Accounts of the last iteration, as means over GPUs."""
    last = prepared.strategy.iterations - 1

    def of_last(account: np.ndarray[Any, Any]) -> float:
        before = account[last - 1] if last else np.zeros_like(account[last])
        return float(np.mean(account[last] - before))

    times = {
        name: of_last(getattr(timeline, name)) for name in ("compute_us", "exposed_us", "dark_us", "idle_us")
    }
    return _case(prepared, of_last(timeline.snapshot_us), times, (), decisions=timeline.decisions)


def _case(
    prepared: Prepared,
    iteration_us: float,
    times: dict[str, float],
    notes: tuple[str, ...],
    decisions: int = 0,
) -> CaseResult:
    job, strategy, tasks = prepared.job, prepared.strategy, prepared.tasks
    convergence = job.workload.convergence(strategy.global_batch)
    if not prepared.placement.converged:
        notes = (*notes, "Algorithm 1 did not converge; a fallback placement is used")
    scheduler = prepared.interconnect.scheduler
    return CaseResult(
        workload=job.label,
        topology=prepared.interconnect.label,
        gpus=strategy.gpus,
        bandwidth_gbps=prepared.interconnect.cluster.bandwidth_gbps,
        mp=strategy.mp,
        dp=strategy.dp,
        global_batch=strategy.global_batch,
        scheduler=scheduler.name if scheduler and prepared.circuits else "",
        collective=prepared.collective,
        iteration_us=iteration_us,
        **times,
        lower_bound_us=lower_bound_us(tasks, prepared.network) / strategy.iterations,
        network_bytes=float(tasks.size_bytes.sum()) / strategy.iterations,
        gradient_bytes=gradient_bytes(tasks) / strategy.iterations,
        memory_bytes=prepared.memory_bytes,
        decisions=decisions,
        steps_to_accuracy=convergence.steps,
        time_to_accuracy_s=iteration_us * 1e-6 * convergence.steps,
        extrapolated=convergence.extrapolated,
        speedup=float("nan"),
        notes=(*prepared.fabric.notes, *notes),
    )


def run_experiment(
    experiment: Experiment,
    *,
    max_wall_s: float | None = None,
    progress: Progress = lambda case, fraction: None,
) -> Result:
    """Every case of an experiment.

    Raises
    ------
    InfeasibleError
        A case cannot run; the message names it.
    StalledError, LimitError
        The simulation could not end.
    """
    bench, clock = Workbench(experiment=experiment), Clock(limit_s=max_wall_s)
    rows = [
        run_case(bench, job, interconnect, strategies, clock, progress)
        for job, interconnect, strategies in cases(experiment)
    ]
    baseline = {row.workload: row.time_to_accuracy_s for row in rows if row.topology == experiment.baseline}
    return Result(
        title=experiment.title,
        seed=experiment.seed,
        version=__version__,
        baseline=experiment.baseline,
        experiment=dict(experiment.tables),
        cases=tuple(
            attrs.evolve(row, speedup=baseline[row.workload] / row.time_to_accuracy_s) for row in rows
        ),
        sources={
            row.workload: job.workload.convergence(row.global_batch).source
            for job in experiment.jobs
            for row in rows
            if row.workload == job.label
        },
    )


def check_experiment(experiment: Experiment) -> Iterator[str]:
    """Prepare every case as `run_experiment` would, and say of each what would run."""
    bench = Workbench(experiment=experiment)
    for job, interconnect, strategies in cases(experiment):
        ready, refusals = [], []
        for strategy in strategies:
            try:
                ready.append(bench.prepare(job, interconnect, strategy)[0])
            except InfeasibleError as error:
                refusals.append(str(error))
        if not ready:
            raise InfeasibleError(f"{job.label} on {interconnect.label}: {refusals[-1]}")
        degrees = ", ".join(f"{case.strategy.mp} x {case.strategy.dp}" for case in ready)
        yield f"{job.label} on {interconnect.label}: mp x dp = {degrees}"
