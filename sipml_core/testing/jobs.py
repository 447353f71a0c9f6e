"""Small jobs to try a plugin with: bundled workloads, and transfers with nothing to compute."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike

from sipml_core.cases import Case, Clock, Reuse, compile_case, simulate_case
from sipml_core.engine import simulate
from sipml_core.experiment import Experiment, Interconnect, Job, StrategyTable
from sipml_core.gpus import V100
from sipml_core.model import (
    CaseResult,
    Cluster,
    Fabric,
    Network,
    PairArray,
    Routes,
    TaskGraph,
    Timeline,
)
from sipml_core.placement import PLACERS
from sipml_core.plugin import Estimator, GpuModel, Placer, Scheduler, Topology, Workload, load
from sipml_core.scheduling import driven
from sipml_core.testing.laws import require
from sipml_core.workloads import SIZED_WORKLOADS

#: What makes a workload small enough to try, where it has such an option.
_SMALL = {
    "layers": 1, "hidden": 64, "feed_forward": 128, "heads": 4, "vocabulary": 128,
    "sequence": 32, "source_sequence": 32, "target_sequence": 32, "image": 32,
}  # fmt: skip


def small_workloads() -> list[Workload]:
    """Each bundled workload that has a size, with one layer or a small picture."""
    return [cls(cls.Options(**_small(cls.Options))) for cls in SIZED_WORKLOADS]


def _small(options: type[Any]) -> dict[str, Any]:
    names = {field.name for field in attrs.fields(options)}
    return {name: value for name, value in _SMALL.items() if name in names}


def small_gpu() -> GpuModel:
    return V100(V100.Options())


def small_placer() -> Placer:
    return PLACERS[0](PLACERS[0].Options())


def find_scheduler(topology: type[Topology], given: type[Scheduler] | None) -> Scheduler | None:
    """The scheduler given, or the one the topology names, among the plugins that are installed."""
    if given is None and topology.scheduler is not None:
        given = load().find("scheduler", topology.scheduler)
    return None if given is None else given(given.Options())


def find_estimator(scheduler: Scheduler | None) -> Estimator | None:
    """The estimator that a scheduler names, among the plugins that are installed."""
    if scheduler is None:
        return None
    found: type[Estimator] = load().find("estimator", scheduler.estimator)
    return found(found.Options())


def run_training(
    workload: Workload,
    topology: Topology,
    cluster: Cluster,
    scheduler: Scheduler | None,
    gpu: GpuModel,
    placer: Placer,
    mp: int,
) -> list[CaseResult]:
    """One training iteration, from the op graph to the last byte, in each form that `run` chooses from."""
    table = StrategyTable(mp=mp, dp=cluster.gpus // mp, global_batch=4 * cluster.gpus, layout="tensor")
    job = Job(label=workload.name, workload=workload, table=table, placer=placer)
    interconnect = Interconnect(
        label=topology.name,
        topology=topology,
        cluster=cluster,
        scheduler=scheduler,
        estimator=find_estimator(scheduler),
    )
    experiment = Experiment(
        title="conformance",
        gpu=gpu,
        jobs=(job,),
        interconnects=(interconnect,),
    )
    case = Case.of(experiment, job, interconnect, job.plan(cluster.gpus))
    return [simulate_case(compiled, Clock(60.0)).row for compiled in compile_case(case, Reuse())]


def require_sound(result: CaseResult) -> None:
    """Inside a `law`: training ended, no sooner than its lower bound."""
    time_us, bound_us = result.iteration_us, result.lower_bound_us
    require(time_us is not None and math.isfinite(time_us), f"an iteration of {time_us} us")
    assert time_us is not None
    require(bound_us is None or time_us >= bound_us * (1 - 1e-6), f"{time_us:g} us, bound {bound_us:g} us")


class _IdealSwitch(Topology):
    """Every GPU sends and receives at full bandwidth."""

    name = "ideal-switch"
    summary = "an ideal switch"

    def build(self, cluster: Cluster) -> Fabric:
        gpus = cluster.gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            return Routes(links=np.column_stack([src, gpus + dst]), latency_us=np.zeros(len(src)))

        return Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, cluster.bandwidth_gbps), route=route)


def train_on_a_switch(workload: Workload, gpus: int, mp: int) -> list[CaseResult]:
    """One training iteration on an ideal switch of 800 Gbps."""
    topology, cluster = _IdealSwitch(_IdealSwitch.Options()), Cluster(gpus=gpus, bandwidth_gbps=800.0)
    return run_training(workload, topology, cluster, None, small_gpu(), small_placer(), mp)


def transfers_only(gpus: int, src: ArrayLike, dst: ArrayLike, size_bytes: ArrayLike) -> TaskGraph:
    """Transfers that are all ready at the start, and nothing else."""
    sizes = np.atleast_1d(np.asarray(size_bytes, np.float64))
    nothing = np.zeros(0, np.int32)
    return TaskGraph(
        gpus=gpus,
        gpu=nothing,
        duration_us=nothing,
        priority=np.zeros(len(sizes)),
        src=np.atleast_1d(src),
        dst=np.atleast_1d(dst),
        size_bytes=sizes,
        latency_steps=np.ones(len(sizes)),
        succ_start=np.zeros(len(sizes) + 1),
        successors=nothing,
        marks=nothing,
        label=nothing,
    )


def run_transfers(fabric: Fabric, scheduler: Scheduler | None, tasks: TaskGraph) -> tuple[Network, Timeline]:
    """Simulate `tasks`; circuits are planned as in a real run."""
    network = Network.of(fabric, tasks)
    driver, estimator = None, find_estimator(scheduler)
    if fabric.circuits is not None and scheduler is not None and estimator is not None:
        network, driver = driven(fabric, scheduler, estimator, tasks, network)
    return network, simulate(tasks, network, driver=driver, max_wall_s=60.0)
