"""A cheap estimate of an iteration: the first groups of the job alone, on their share of each link.

One group, or those that fill one server, are lowered and simulated as if all others did the same at
the same time. A link gives them the part of its capacity that their bytes are of all the bytes that the
job sends over it; pairs whose images in other groups have more loaded links cross these as well
(`linkshares`). Circuits that are set once carry what the plan for the traffic of the whole job gives them,
with the layouts of all rounds where layout and circuits are chosen in turn. Those that are re-planned
follow demand: on switches pairs get their share of the ports at every interval, by what the estimator of
the experiment expects (`followedcircuits`); on other media, such as the fibres of a ring, they share it
as packets would.

Where the groups of the job are alike the estimate is the simulation. It leaves out what sets groups
apart (circuits that differ from group to group, noise), and of re-planning on switches that circuits are
whole, on other media also the wait for the next plan and the dark time. Replicas that send each other rows
of experts or keys are the exception: blocks of them that are alike are folded as in a run, their circuits
share as packets would, and short iterations with experts have their circuits planned.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases import Case, CaseTraffic, Reuse, case_traffic, jobs_kept, prepared_variant
from sipml_core.engine import simulate
from sipml_core.errors import StalledError, TooSlowError
from sipml_core.fields import frozen
from sipml_core.lowering import Lowering, NoSymmetryError, symmetry
from sipml_core.model import CircuitControl, CircuitParts, Network, PairIndex, RelayedTasks, TaskGraph
from sipml_core.searching.followedcircuits import FollowedCircuits
from sipml_core.searching.linkshares import shared_links

#: Plans of circuits, at most, that an estimate makes itself.
MAX_PLANS = 500


@frozen(kw_only=True)
class Estimate:
    """What a candidate is expected to take on one interconnect."""

    iteration_us: float
    all_reduce: str
    exchange: str
    memory_bytes: float


def estimate(case: Case, reuse: Reuse) -> Estimate:
    """Return the estimate of the variant that it expects to be the fastest.

    Raises
    ------
    InfeasibleError
        As `compile_case`.
    """
    best: Estimate | None = None
    for traffic in case_traffic(case, reuse):
        found = _of_variant(traffic, reuse, best.iteration_us if best else math.inf)
        if found is not None and (best is None or found.iteration_us < best.iteration_us):
            best = found
    assert best is not None, "the first has no limit"
    return best


def _of_variant(traffic: CaseTraffic, reuse: Reuse, least_us: float) -> Estimate | None:
    """Return the estimate of a variant; None: it would take longer than `least_us`."""
    variant = traffic.variant
    control = variant.fabric.circuits
    driver: FollowedCircuits | None = None
    tasks: TaskGraph | RelayedTasks
    if control is not None and variant.plan.block == 1 and _follows(traffic, control):
        tasks, network, driver = _followed(traffic, control, reuse)
    else:
        tasks, network = _in_a_block(traffic) or _first_groups(traffic, reuse)
    limit_us = math.inf if _plans_say_more(traffic) else least_us  # plans may be faster than sharing
    try:
        shared_us = simulate(
            tasks, network, driver=driver, queue=variant.case.engine.queue, max_time_us=limit_us
        ).total_us
    except TooSlowError:
        return None
    return Estimate(
        iteration_us=_with_plans(traffic, reuse, shared_us) or shared_us,
        all_reduce=variant.plan.all_reduce,
        exchange=variant.plan.exchange,
        memory_bytes=variant.memory_bytes,
    )


def _with_plans(traffic: CaseTraffic, reuse: Reuse, shared_us: float) -> float | None:
    """Return an iteration with circuits as they are re-planned; None: it is long, or sharing says as much.

    Rows of experts that go to more GPUs than a plan has circuits for wait for the next plan, layer after
    layer, and messages last about as long as a plan.
    """
    variant = traffic.variant
    control = variant.fabric.circuits
    if control is None or control.interval_us is None or not _plans_say_more(traffic):
        return None
    limit_us = MAX_PLANS * control.interval_us
    if shared_us > limit_us:
        return None
    compiled = prepared_variant(variant, traffic.lowering, reuse).compiled()
    try:
        return simulate(
            compiled.tasks,
            compiled.network,
            driver=compiled.circuits,
            queue=variant.case.engine.queue,
            max_time_us=2 * limit_us,
        ).total_us
    except (StalledError, TooSlowError):
        return None


def _plans_say_more(traffic: CaseTraffic) -> bool:
    """Return whether experts wait for circuits that are re-planned, which sharing does not show."""
    control, plan = traffic.variant.fabric.circuits, traffic.variant.plan
    replanned = control is not None and control.interval_us is not None
    return replanned and plan.ep > 1 and plan.iterations == 1


def _in_a_block(traffic: CaseTraffic) -> tuple[TaskGraph | RelayedTasks, Network] | None:
    """Return the first blocks, which send to the images of those that they stand for; None: they do not.

    Where replicas send each other rows or keys all the time, sharing a link with what comes in from another
    block by the bytes of an iteration says little. See `symmetry`; what changes while the job runs is
    left out.
    """
    if traffic.lowering.plan.block == 1:
        return None
    lowering = _one_iteration(traffic.lowering)
    network, capacity_gbps = _sharing(traffic)
    plain = attrs.evolve(
        network, link_gbps=capacity_gbps, first_circuit=len(capacity_gbps), circuit_src=[], circuit_dst=[]
    )
    try:
        found = symmetry(traffic.pairs, plain, capacity_gbps)
    except NoSymmetryError:
        return None
    folded = found.folded(lambda _, groups: lowering.tasks(groups))
    return folded.tasks, folded.network


def _first_groups(traffic: CaseTraffic, reuse: Reuse) -> tuple[TaskGraph | RelayedTasks, Network]:
    """Return the first groups and their part of each link."""
    lowering, hints = traffic.lowering, traffic.variant.fabric.hints
    groups = _groups(lowering, hints.server_gpus)
    tasks = reuse(_relayed_iteration, lowering, groups, keep=jobs_kept(lowering.nodes(groups)))
    return tasks, _share(traffic, tasks, groups)


def _relayed_iteration(lowering: Lowering, groups: int) -> TaskGraph | RelayedTasks:
    """Return one iteration, with what is passed on from GPU to GPU in one transfer where that says it all."""
    once = _one_iteration(lowering)
    return once.relayed_tasks(groups) or once.tasks(groups)


def _tasks_of(lowering: Lowering, groups: int, reuse: Reuse) -> TaskGraph:
    """Return the tasks of one iteration of the first groups, those of other bandwidths if they are kept."""
    return reuse(_one_iteration_of_groups, lowering, groups, keep=jobs_kept(lowering.nodes(groups)))


def _one_iteration_of_groups(lowering: Lowering, groups: int) -> TaskGraph:
    return _one_iteration(lowering).tasks(groups)


def _groups(lowering: Lowering, server_gpus: int | None) -> int:
    """Groups that stand for all: those of one server where whole groups fill whole servers, else one."""
    groups = (server_gpus or 0) // lowering.plan.replica_gpus
    fits = groups > 1 and groups % lowering.period == 0 and lowering.plan.replicas % groups == 0
    return groups if fits else lowering.period


def _one_iteration(lowering: Lowering) -> Lowering:
    """One iteration, in which each device of a group is as slow as the slowest of its counterparts."""
    plan = attrs.evolve(lowering.plan, iterations=1)
    template = attrs.evolve(lowering.template, plan=plan)
    speed = lowering.speed.copy()
    speed[lowering.gpu_of] = speed[lowering.gpu_of].min(axis=0)
    return attrs.evolve(lowering, template=template, speed=speed)


def _follows(traffic: CaseTraffic, control: CircuitControl) -> bool:
    """Return whether circuits are re-planned for what is asked, and share nothing but ports."""
    none, interconnect = np.zeros(0, dtype=np.int32), traffic.variant.case.interconnect
    return (
        control.interval_us is not None
        and interconnect.circuit_keys.replan == "interval"
        and interconnect.estimator is not None
        and control.packets is None
        and not isinstance(control, CircuitParts)
        and control.media(none, none) is None
    )


def _followed(
    traffic: CaseTraffic, control: CircuitControl, reuse: Reuse
) -> tuple[TaskGraph, Network, FollowedCircuits]:
    """Return the first groups, their network, its ports wholly theirs, and who drives their circuits.

    What they send to other groups takes as much of the ports there as others take of theirs.
    """
    groups = _groups(traffic.lowering, traffic.variant.fabric.hints.server_gpus)
    tasks = _tasks_of(traffic.lowering, groups, reuse)
    whole, interconnect = traffic.network, traffic.variant.case.interconnect
    index = PairIndex(whole.gpus)
    pair = np.searchsorted(index.key(whole.pair_src, whole.pair_dst), index.key(tasks.src, tasks.dst))
    network = attrs.evolve(whole, transfer_pair=pair)
    own_bytes = network.link_bytes(tasks.size_bytes)[network.first_circuit :]
    own = np.flatnonzero(own_bytes > 0)
    # Place of each GPU among the first groups, of those in others that of its image. [gpus]
    place = np.argsort(traffic.lowering.gpu_of.reshape(-1)) % (groups * traffic.lowering.plan.replica_gpus)
    assert interconnect.estimator is not None
    driver = FollowedCircuits(
        control=control,
        forecast=interconnect.estimator.start_where(network, tasks, crowded=lambda: False),
        own=own,
        sender=place[network.circuit_src[own]],
        receiver=place[network.circuit_dst[own]],
        total_bytes=own_bytes[own],
        circuits=len(network.circuit_src),
    )
    return tasks, network, driver


def _share(traffic: CaseTraffic, tasks: TaskGraph | RelayedTasks, groups: int) -> Network:
    """The network as the first groups see it, see `shared_links`."""
    network, capacity_gbps = _sharing(traffic)
    pairs, index = traffic.pairs, PairIndex(network.gpus)
    # Pair of each transfer of the whole job, and of those of the first groups with their images below.
    row = network.transfer_pair.astype(np.intp)
    pair_bytes = np.zeros(len(network.pair_src))
    pair_bytes[row] = pairs.tasks.size_bytes
    images = len(pairs.src) * traffic.lowering.period // groups
    seen = shared_links(network, capacity_gbps, row.reshape(images, -1), pair_bytes)
    key = index.key(seen.pair_src, seen.pair_dst)
    return attrs.evolve(seen, transfer_pair=np.searchsorted(key, index.key(*tasks.ends)))


def _sharing(traffic: CaseTraffic) -> tuple[Network, NDArray[np.float64]]:
    """Return the network, and what its links carry. [links] [Gbps]

    Circuits that are re-planned follow demand: each may be as fast as a port, and pairs share what circuits
    share, such as the fibres of a ring, as packets would.
    """
    network, control = traffic.network, traffic.variant.fabric.circuits
    if control is None or control.interval_us is None:
        return network, traffic.capacity_gbps
    port_gbps = control.circuits_per_gpu * control.circuit_gbps
    capacity_gbps = network.link_gbps.copy()
    capacity_gbps[network.first_circuit :] = port_gbps
    media = control.media(network.pair_src, network.pair_dst)
    if media is None:
        return network, capacity_gbps
    # Entries of both kinds, those of a pair together: see `Network`.
    pair = np.concatenate(
        [network.entry_pair, np.repeat(np.arange(len(media.start) - 1), np.diff(media.start))]
    )
    order = np.argsort(pair, kind="stable")
    link = np.concatenate([network.pair_link, media.medium + len(capacity_gbps)])
    weight = np.concatenate([network.pair_weight, media.weight])
    capacity_gbps = np.concatenate([capacity_gbps, media.gbps])
    return attrs.evolve(
        network,
        pair_start=network.pair_start + media.start,
        pair_link=link[order],
        pair_weight=weight[order],
        link_gbps=capacity_gbps,
        link_id=np.arange(len(capacity_gbps)),
    ), capacity_gbps
