"""A cheap estimate of an iteration: the first groups of the job alone, on their share of each link.

One group, or those that fill one server, are lowered and simulated as if all others did the same at
the same time. A link gives them the part of its capacity
that their bytes are of all the bytes that the job sends over it. Circuits carry what the first plan,
for the traffic of the whole job, gives them, and stay so; a pair that it leaves out, on a network
that is re-planned, counts as one circuit.

Where the groups of the job are alike the estimate is the simulation. It leaves out what sets groups
apart (circuits that differ from group to group, noise) and what re-planning gains and costs.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.config import Interconnect, Job
from sipml_core.engine.simulate import simulate
from sipml_core.model.network import Network
from sipml_core.model.strategy import Strategy
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.parallel.lowering import Lowering
from sipml_core.prepare import Draft, Workbench


@attrs.frozen(kw_only=True)
class Estimate:
    """What a candidate is expected to take on one interconnect."""

    iteration_us: float
    all_reduce: str
    exchange: str
    memory_bytes: float


def estimate(bench: Workbench, job: Job, interconnect: Interconnect, strategy: Strategy) -> Estimate:
    """The estimate with the forms of exchange and of all-reduce that it expects to be the fastest.

    Raises
    ------
    InfeasibleError
        As `Workbench.prepare`.
    """
    forms = bench.draft(job, interconnect, strategy)
    queue = bench.experiment.engine.queue
    return min((_of_draft(form, queue) for form in forms), key=lambda found: found.iteration_us)


def _of_draft(draft: Draft, queue: str) -> Estimate:
    lowering = _one_iteration(draft.lowering)
    tasks = lowering.tasks(_groups(lowering, draft.server_gpus))
    network = _share(draft, tasks)
    return Estimate(
        iteration_us=simulate(tasks, network, queue=queue).total_us,
        all_reduce=draft.all_reduce,
        exchange=draft.lowering.strategy.exchange,
        memory_bytes=draft.memory_bytes,
    )


def _groups(lowering: Lowering, server_gpus: int | None) -> int:
    """Groups that stand for all: those of one server where whole groups fill whole servers, else one."""
    groups = (server_gpus or 0) // lowering.strategy.mp
    fits = groups > 1 and groups % lowering.period == 0 and lowering.strategy.dp % groups == 0
    return groups if fits else lowering.period


def _one_iteration(lowering: Lowering) -> Lowering:
    """One iteration, in which each device of a group is as slow as the slowest of its counterparts."""
    plan = attrs.evolve(lowering.plan, strategy=attrs.evolve(lowering.strategy, iterations=1))
    speed = lowering.speed.copy()
    speed[lowering.layout] = speed[lowering.layout].min(axis=0)
    return attrs.evolve(lowering, plan=plan, speed=speed)


def _share(draft: Draft, tasks: TaskGraph) -> Network:
    """The network as the first groups see it: capacities in proportion to their part of the bytes."""
    network = draft.network
    key = network.pair_src.astype(np.int64) * network.gpus + network.pair_dst
    wanted = tasks.src.astype(np.int64) * network.gpus + tasks.dst
    total = np.bincount(network.transfer_pair, draft.pairs.tasks.size_bytes, len(key)).astype(np.float64)
    all_bytes = _link_bytes(network, total)
    own_bytes = _link_bytes(network, np.where(np.isin(key, wanted), total, 0.0))
    share = np.ones(len(all_bytes))
    np.divide(own_bytes, all_bytes, out=share, where=own_bytes > 0)
    return attrs.evolve(
        network,
        transfer_pair=np.searchsorted(key, wanted),
        link_gbps=_capacity_gbps(draft) * share,
        first_circuit=len(share),
        circuit_src=[],
        circuit_dst=[],
    )


def _capacity_gbps(draft: Draft) -> NDArray[np.float64]:
    """What links carry if the first circuits stay. [links] [Gbps]"""
    return np.where(draft.capacity_gbps > 0, draft.capacity_gbps, draft.circuit_gbps)


def _link_bytes(network: Network, pair_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    return network.link_sum(pair_bytes)
