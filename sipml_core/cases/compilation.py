"""From a case to what the engine runs: every variant with its tasks, its network and its circuits."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.case import Case
from sipml_core.cases.circuitprices import circuit_prices
from sipml_core.cases.gating import gating_pairs
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.steps import (
    Driven,
    built_fabric,
    check_scheduler,
    circuits_for,
    first_groups,
    group_template,
    library_on,
    lowered,
    network_prices,
    whole_job,
)
from sipml_core.cases.variants import (
    Variant,
    exchange_trees,
    gpus_of,
    group_shape,
    offered_exchanges,
    variants_of,
)
from sipml_core.errors import InfeasibleError
from sipml_core.lowering import Folded, Lowering, NoSymmetryError, Pairs, TrafficBytes, fold, replica_tasks
from sipml_core.model import Fabric, Network, Plan, Prices, TaskGraph, TreatsAlike
from sipml_core.scheduling import BYTES, GATING, DemandRule, PhasedCircuits, ScheduledCircuits, rules_to_try

T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False)
class CompiledCase:
    """A variant that is known to fit and to have its routes, ready to simulate."""

    variant: Variant
    #: Of the simulated groups; `repeats` times as much is the whole job.
    tasks: TaskGraph
    network: Network
    circuits: ScheduledCircuits | None
    #: GPUs whose accounts count.
    simulated: NDArray[np.int32]
    traffic: TrafficBytes
    lowering: Lowering
    #: How the simulated groups stand for the others; None: all are simulated.
    folded: Folded | None = None
    #: One plan gives some pair of the job fewer than two circuits, which is why they are planned by bytes.
    crowded: bool = False
    #: In which round of choosing layout and circuits in turn its layout was chosen.
    round: int = 1

    @property
    def case(self) -> Case:
        return self.variant.case

    @property
    def plan(self) -> Plan:
        return self.variant.plan

    @property
    def fabric(self) -> Fabric:
        return self.variant.fabric

    @property
    def repeats(self) -> int:
        """How often the simulated groups stand in the job: 1 unless it is folded."""
        return self.plan.gpus // len(self.simulated)

    @property
    def link_share(self) -> NDArray[np.float64] | None:
        """Part of the real link that each link of `network` is; None: all of it. [links]"""
        return self.folded.link_share if self.folded else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how the case was compiled."""
        notes = list(self.fabric.words.notes)
        if self.fabric.hints.above_bandwidth:
            notes.append("GPUs may send and receive more than cluster.bandwidth_gbps")
        if not self.variant.placement.converged:
            notes.append("Algorithm 1 did not converge; a fallback placement is used")
        if self.plan.exchange not in ("direct", "auto") and self.plan.mp > 1:
            notes.append(f"GPUs of a group exchange by {self.variant.exchange.name!r}")
        if len(self.variant.grid) > 1:
            shape = " x ".join(map(str, self.variant.grid))
            notes.append(f"rows of experts are passed on over a grid of {shape} replicas, axis by axis")
        if self.repeats > 1:
            notes.append(f"simulated {self.plan.replicas // self.repeats} of {self.plan.replicas} groups")
        if self.circuits and self.case.interconnect.circuit_keys.demand != "bytes":
            why = ": too few to give every pair of the job two at once" if self.crowded else ""
            notes.append(f"circuits are planned {self.circuits.rule.summary}{why}")
        if isinstance(self.circuits, PhasedCircuits):
            notes.append(self.circuits.note)
        return tuple(notes)


@attrs.frozen(kw_only=True, eq=False)
class CaseTraffic:
    """A variant that fits, and what it would send: enough for an estimate."""

    variant: Variant
    lowering: Lowering
    pairs: Pairs
    #: All `pairs.tasks` on the fabric, and what each link carries under the first circuits.
    network: Network
    #: [links] [Gbps]
    capacity_gbps: NDArray[np.float64]
    #: Of one circuit; 0 on packet networks.
    circuit_gbps: float


def compile_case(case: Case, reuse: Reuse) -> list[CompiledCase]:
    """Return the case with each exchange inside groups, and each all-reduce, that suits its fabric.

    Where `demand` of the interconnect is "auto", with each rule of what circuits are planned for, by bytes
    first.

    Raises
    ------
    InfeasibleError
        In no variant does the plan fit the memory, the degree and the reach of the interconnect, with a
        route for each pair that must talk.
    """
    found = _in_each_variant(case, reuse, compiled_by_rules)
    return [*found, *_later_rounds(found, reuse)]


def case_traffic(case: Case, reuse: Reuse) -> list[CaseTraffic]:
    """Return what `compile_case` would compile, with the circuits of the whole job's traffic, without tasks.

    Raises
    ------
    InfeasibleError
        As `compile_case`.
    """
    return _in_each_variant(case, reuse, lambda *given: [variant_traffic(*given)])


def _in_each_variant(case: Case, reuse: Reuse, step: Callable[[Variant, Reuse], list[T]]) -> list[T]:
    """Return what `step` makes of each variant that can run; `InfeasibleError` if none can."""
    fabric = reuse(built_fabric, case.interconnect.topology, case.interconnect.cluster)
    check_scheduler(fabric, case.interconnect)
    found: list[T] = []
    refusals: list[InfeasibleError] = []
    gpu_gbps = case.interconnect.cluster.bandwidth_gbps
    prices = reuse(network_prices, fabric, case.plan, gpu_gbps)
    group = group_shape(fabric, case.plan, prices, gpu_gbps)
    for exchange in offered_exchanges(case, group):
        try:
            variants = variants_of(case, fabric, exchange, group, prices, reuse)
            found += [each for variant in variants for each in step(variant, reuse)]
        except InfeasibleError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]  # on circuits that of the chain, which is the least limited
    return found


def _later_rounds(first: list[CompiledCase], reuse: Reuse) -> list[CompiledCase]:
    """Return the case with the layouts that are chosen with what circuits give, not only ports.

    Circuits are planned for the traffic of a layout, the layout is chosen again with what they give, and so
    on, until it is one that was there or all `rounds` are over; with each exchange that can run.
    """
    found: list[CompiledCase] = []
    exchanges = {compiled.variant.exchange.name: compiled for compiled in reversed(first)}
    for latest in exchanges.values():
        variant, prices = latest.variant, Prices.flat(latest.case.interconnect.cluster.bandwidth_gbps)
        case, seen = variant.case, {_layout_of(latest)}
        if case.plan.mp == 1 or case.job.table.layout != "auto" or latest.circuits is None:
            continue
        for number in range(2, case.interconnect.circuit_keys.rounds + 1):
            assert latest.circuits is not None
            prices = circuit_prices(
                latest.circuits.plan, gpus_of(variant.fabric, case.plan), case.plan.mp, prices
            )
            try:
                chosen = variants_of(case, variant.fabric, variant.exchange, variant.group, prices, reuse)
                made = [each for one in chosen for each in compiled_by_rules(one, reuse)]
            except InfeasibleError:
                break
            latest = made[0]
            if _layout_of(latest) in seen:
                break
            seen.add(_layout_of(latest))
            found += [attrs.evolve(each, round=number) for each in made]
    return found


def _layout_of(compiled: CompiledCase) -> tuple[Hashable, ...]:
    """Return what tells the layout of a case from others."""
    graph = compiled.variant.placement.graph
    return tuple(graph.split_dim), tuple(graph.parts.tolist()), tuple(graph.duplicated)


def variant_lowering(variant: Variant, reuse: Reuse) -> Lowering:
    """Return the variant's groups with GPUs."""
    # The tasks are those of all exchanges and all-reduces: of the plan before these are decided.
    group = reuse(replica_tasks, variant.placement, variant.case.plan)
    trees = exchange_trees(variant.exchange, variant.group)
    parents = None if trees.direct else tuple(map(tuple, trees.parents.tolist()))
    relays = trees.relays and not trees.direct
    template = reuse(group_template, variant.placement, variant.plan, parents, relays, group)
    order = None if variant.fabric.hints.order is None else tuple(variant.fabric.hints.order.tolist())
    case, cluster = variant.case, variant.case.interconnect.cluster
    prices = reuse(network_prices, variant.fabric, case.plan, cluster.bandwidth_gbps)
    return reuse(
        lowered, template, cluster, order, variant.tiers, variant.rings, variant.in_network,
        library_on(case.communication, variant.fabric, prices), case.framework,
        variant.fabric.hints.reach_hops if case.plan.forwarding else None,
        variant.grid if len(variant.grid) > 1 else (),
    )  # fmt: skip


def compiled_by_rules(variant: Variant, reuse: Reuse) -> list[CompiledCase]:
    """Return the variant with its circuits planned by each rule that `demand` of the interconnect allows.

    Those that change between phases of the job are followed by the same that are set once.
    """
    found: list[CompiledCase] = []
    for compiled in _compiled_by_rules(variant, reuse):
        found.append(compiled)
        once = compiled.circuits.set_once() if isinstance(compiled.circuits, PhasedCircuits) else None
        if once is not None:
            found.append(attrs.evolve(compiled, circuits=once))
    return found


def _compiled_by_rules(variant: Variant, reuse: Reuse) -> list[CompiledCase]:
    by_bytes = compile_variant(variant, reuse)
    demand, circuits = variant.case.interconnect.circuit_keys.demand, by_bytes.circuits
    if circuits is None or demand == "bytes":
        return [by_bytes]
    fewest = circuits.fewest_circuits()
    if fewest < (2 if demand == "gating" else 1):
        return [attrs.evolve(by_bytes, crowded=True)]
    gates = gating_pairs(variant_lowering(variant, reuse))
    rules = (GATING,) if demand == "gating" else rules_to_try(circuits.interval_us)
    found = [] if demand == "gating" else [by_bytes]
    for rule in rules:
        with suppress(InfeasibleError):
            found.append(compile_variant(variant, reuse, rule, gates))
    return found or [by_bytes]


def compile_variant(
    variant: Variant, reuse: Reuse, rule: DemandRule = BYTES, gates: NDArray[np.int64] | None = None
) -> CompiledCase:
    """Return the variant with the tasks of all groups, or of the first few where these stand for all.

    `rule` and `gates` as in `ScheduledCircuits`.
    """
    lowering = variant_lowering(variant, reuse)
    compiled = _folded(variant, lowering, reuse, rule, gates)
    if compiled is not None:
        return compiled
    case = variant.case
    tasks = reuse(whole_job, lowering, case.interconnect.cluster.jitter, case.seed, keep=2)
    driven = circuits_for(
        case.interconnect,
        variant.fabric,
        tasks,
        rule=rule,
        gates=gates,
        iteration=lowering.iteration_of(tasks),
    )
    return CompiledCase(
        variant=variant,
        tasks=tasks,
        network=driven.network,
        circuits=driven.circuits,
        simulated=lowering.gpu_of.reshape(-1),
        traffic=lowering.traffic,
        lowering=lowering,
    )


def variant_traffic(variant: Variant, reuse: Reuse) -> CaseTraffic:
    """Return what the variant would send, and the circuits of its first plan."""
    lowering = variant_lowering(variant, reuse)
    pairs = Pairs.of(lowering)
    driven = circuits_for(variant.case.interconnect, variant.fabric, pairs.tasks)
    control = variant.fabric.circuits
    return CaseTraffic(
        variant=variant,
        lowering=lowering,
        pairs=pairs,
        network=driven.network,
        capacity_gbps=_first_capacity_gbps(driven),
        circuit_gbps=control.circuit_gbps if control else 0.0,
    )


def _first_capacity_gbps(driven: Driven) -> NDArray[np.float64]:
    """Return what the links carry under the first plan. [links] [Gbps]"""
    network, circuits = driven.network, driven.circuits
    capacity_gbps = network.link_gbps.copy()
    if circuits:
        ends = network.circuit_src, network.circuit_dst
        capacity_gbps[network.first_circuit :] = circuits.plan.capacity_gbps(*ends)
    return capacity_gbps


def _folded(
    variant: Variant,
    lowering: Lowering,
    reuse: Reuse,
    rule: DemandRule,
    gates: NDArray[np.int64] | None,
) -> CompiledCase | None:
    """Return the first groups where they stand for all; None where all are to be simulated.

    Raises
    ------
    NoSymmetryError
        The experiment requires folding, and it would not be exact.
    """
    interconnect, fabric, wanted = variant.case.interconnect, variant.fabric, variant.case.engine.fold
    if wanted == "never" or lowering.plan.replicas == 1:
        return None
    try:
        _refuse_unforeseen(variant)
        pairs = Pairs.of(lowering)
        driven = circuits_for(interconnect, fabric, pairs.tasks, rule=rule, gates=gates)
        circuits = driven.circuits
        replanned = circuits is not None and circuits.interval_us is not None
        control = fabric.circuits if replanned else None
        kept = partial(reuse, first_groups, keep=2)
        folded = fold(pairs, driven.network, _first_capacity_gbps(driven), control, tasks_of=kept)
    except NoSymmetryError as error:
        if wanted == "auto":
            return None
        raise NoSymmetryError(
            f'engine.fold = "require", but on {interconnect.label} groups are not alike: {error}'
        ) from None
    if folded.control is not None:
        part = attrs.evolve(fabric, circuits=folded.control)
        circuits = circuits_for(interconnect, part, folded.tasks, folded.network, rule, gates).circuits
    elif circuits:
        circuits = circuits.on(folded.network)
    return CompiledCase(
        variant=variant,
        tasks=folded.tasks,
        network=folded.network,
        circuits=circuits,
        simulated=folded.gpus,
        traffic=lowering.traffic,
        lowering=lowering,
        folded=folded,
    )


def _refuse_unforeseen(variant: Variant) -> None:
    """Raise `NoSymmetryError` where groups part only while the job runs."""
    interconnect, control = variant.case.interconnect, variant.fabric.circuits
    if interconnect.cluster.jitter:
        raise NoSymmetryError("jitter gives every task a duration of its own")
    replanned = control is not None and control.interval_us is not None
    if replanned and interconnect.circuit_keys.replan == "phase":
        raise NoSymmetryError("circuits are planned again when a phase of the whole job has ended")
    for component in (interconnect.scheduler, interconnect.estimator):
        if replanned and component and not isinstance(component, TreatsAlike):
            raise NoSymmetryError(
                f"circuits are re-planned while the job runs, and {component.name!r} may treat groups "
                "differently"
            )
