"""From a case to its variants: each that can run, with its network and its circuits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.case import Case
from sipml_core.cases.circuitprices import circuit_prices
from sipml_core.cases.gating import gating_pairs
from sipml_core.cases.networkprices import layout_prices, network_prices, price_note
from sipml_core.cases.preparation import CompiledCase, PreparedCase, first_capacity_gbps, prepared_variant
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.steps import (
    built_fabric,
    check_scheduler,
    circuits_for,
    group_template,
    library_on,
    lowered,
)
from sipml_core.cases.variants import (
    Exchanging,
    Variant,
    check_room,
    chosen_layouts,
    exchange_trees,
    exchanging,
    gpus_of,
    group_shape,
    offered_exchanges,
    variants_of,
)
from sipml_core.errors import InfeasibleError
from sipml_core.fields import frozen
from sipml_core.lowering import Lowering, Pairs, replica_tasks
from sipml_core.model import Network, Prices
from sipml_core.partition import Layout
from sipml_core.scheduling import GATING, PhasedCircuits, ScheduledCircuits, rules_to_try


class _Planned(Protocol):
    """A variant with its first circuits."""

    @property
    def variant(self) -> Variant: ...

    @property
    def circuits(self) -> ScheduledCircuits | None: ...


T = TypeVar("T")
P = TypeVar("P", bound=_Planned)


@frozen(kw_only=True, eq=False)
class CaseTraffic:
    """A variant that fits, and what it would send: enough for an estimate."""

    variant: Variant
    lowering: Lowering
    pairs: Pairs
    #: All `pairs.tasks` on the fabric, and what each link carries under the first circuits.
    network: Network
    circuits: ScheduledCircuits | None
    #: [links] [Gbps]
    capacity_gbps: NDArray[np.float64]
    #: Of one circuit; 0 on packet networks.
    circuit_gbps: float


def prepare_case(case: Case, reuse: Reuse) -> list[PreparedCase]:
    """Return the case with each exchange inside groups, and each all-reduce, that suits its fabric.

    Tasks are made when they are asked for, see `PreparedCase`. Where `demand` of the interconnect is "auto",
    with each rule of what circuits are planned for, by bytes first.

    Raises
    ------
    InfeasibleError
        In no variant does the plan fit the memory, the degree and the reach of the interconnect, with a
        route for each pair that must talk.
    """
    rounds = _in_all_rounds(case, reuse, prepared_by_rules)
    return [attrs.evolve(each, round=number) for number, made in rounds for each in made]


def compile_case(case: Case, reuse: Reuse) -> list[CompiledCase]:
    """Return what `prepare_case` does, all with their tasks.

    Raises
    ------
    InfeasibleError
        As `prepare_case`.
    """
    return [prepared.compiled() for prepared in prepare_case(case, reuse)]


def case_traffic(case: Case, reuse: Reuse) -> list[CaseTraffic]:
    """Return what each variant would send, those of later rounds too, with circuits for the whole job.

    Raises
    ------
    InfeasibleError
        As `prepare_case`.
    """

    def step(variant: Variant, reuse: Reuse) -> list[CaseTraffic]:
        return [variant_traffic(variant, reuse)]

    return [each for _, made in _in_all_rounds(case, reuse, step) for each in made]


def case_layouts(case: Case, reuse: Reuse) -> dict[Layout, Prices]:
    """Return the layouts with which a case is tried, each with the price of its network that chooses it."""
    fabric = reuse(built_fabric, case.interconnect.topology, case.interconnect.cluster)
    prices = reuse(layout_prices, fabric, case.plan, case.interconnect.cluster.bandwidth_gbps)
    return chosen_layouts(case, prices, reuse)


def _in_each_variant(case: Case, reuse: Reuse, step: Callable[[Variant, Reuse], list[T]]) -> list[T]:
    """Return what `step` makes of each variant that can run; `InfeasibleError` if none can.

    First those with the layout that is chosen with the price of all GPUs at once.
    """
    fabric = reuse(built_fabric, case.interconnect.topology, case.interconnect.cluster)
    check_scheduler(fabric, case.interconnect)
    gpu_gbps = case.interconnect.cluster.bandwidth_gbps
    usual = reuse(network_prices, fabric, case.plan, gpu_gbps)
    group = group_shape(fabric, case.plan, usual, gpu_gbps)
    offered = offered_exchanges(case, group)
    # Why each exchange cannot run, by its place among those offered; the first reason counts.
    refusals: dict[int, InfeasibleError] = {}

    ways: dict[int, Exchanging] = {}
    for number, exchange in enumerate(offered):
        try:
            ways[number] = exchanging(case, fabric, exchange, group)
        except InfeasibleError as error:
            refusals[number] = error

    layouts: dict[Layout, Prices] = {}
    if ways:
        try:
            check_room(case, reuse)
            layouts = case_layouts(case, reuse)
        except InfeasibleError as error:
            refusals |= dict.fromkeys(ways, error)

    found: list[T] = []
    for layout, prices in layouts.items():
        note = price_note(prices, usual) if len(layouts) > 1 else ""
        for number, way in ways.items():
            try:
                variants = variants_of(case, fabric, way, layout, reuse)
                noted = [attrs.evolve(variant, price_note=note) for variant in variants]
                found += [each for variant in noted for each in step(variant, reuse)]
            except InfeasibleError as error:
                refusals.setdefault(number, error)
    if not found:
        raise refusals[0]  # on circuits that of the chain, which is the least limited
    return found


def _in_all_rounds(
    case: Case, reuse: Reuse, step: Callable[[Variant, Reuse], list[P]]
) -> Iterator[tuple[int, list[P]]]:
    """Yield the number of each round in which layout and circuits are chosen, and what `step` makes in it."""
    first = _in_each_variant(case, reuse, step)
    yield 1, first
    yield from _later_rounds(first, step, case.interconnect.circuit_keys.most_rounds, reuse)


def _later_rounds(
    first: Sequence[P], step: Callable[[Variant, Reuse], list[P]], rounds: int, reuse: Reuse
) -> Iterator[tuple[int, list[P]]]:
    """Yield what `step` makes of the layouts that are chosen with what circuits give, with their rounds.

    Circuits are planned for the traffic of a layout, the layout is chosen again with what they give, and so
    on, until it is one that was there or all `rounds` are over; with each exchange that can run.

    Parameters
    ----------
    first
        What `step` made of the layouts that are chosen with what ports give.
    """
    exchanges = {prepared.variant.exchange.name: prepared for prepared in reversed(first)}
    for latest in exchanges.values():
        variant, prices = latest.variant, Prices.flat(latest.variant.case.interconnect.cluster.bandwidth_gbps)
        case = variant.case
        seen = {layout_of(each) for each in first if each.variant.exchange is variant.exchange}
        if case.plan.mp == 1 or case.job.table.layout != "auto" or latest.circuits is None:
            continue
        for number in range(2, rounds + 1):
            assert latest.circuits is not None
            prices = circuit_prices(
                latest.circuits.plan, gpus_of(variant.fabric, case.plan), case.plan.mp, prices
            )
            try:
                way = exchanging(case, variant.fabric, variant.exchange, variant.group)
                (layout,) = chosen_layouts(case, [prices], reuse)
                chosen = variants_of(case, variant.fabric, way, layout, reuse)
                made = [each for one in chosen for each in step(one, reuse)]
            except InfeasibleError:
                break
            latest = made[0]
            if layout_of(latest) in seen:
                break
            seen.add(layout_of(latest))
            yield number, made


def layout_of(prepared: _Planned) -> tuple[Hashable, ...]:
    """Return what tells the layout of a case from others."""
    graph = prepared.variant.placement.graph
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
        lowered, template, cluster.without_network(), order, variant.tiers, variant.rings, variant.in_network,
        variant.tier_orders, library_on(case.communication, variant.fabric, prices, case.gpu), case.framework,
        variant.fabric.hints.reach_hops if case.plan.forwarding else None,
        variant.grid if len(variant.grid) > 1 else (),
    )  # fmt: skip


def prepared_by_rules(variant: Variant, reuse: Reuse) -> list[PreparedCase]:
    """Return the variant with its circuits planned by each rule that `demand` of the interconnect allows.

    Those that change between phases of the job are followed by the same that change less, or are set once.
    """
    found: list[PreparedCase] = []
    for prepared in _prepared_by_rules(variant, reuse):
        found += [prepared, *prepared.with_fewer_plans()]
    return found


def _prepared_by_rules(variant: Variant, reuse: Reuse) -> list[PreparedCase]:
    lowering = variant_lowering(variant, reuse)
    by_bytes = prepared_variant(variant, lowering, reuse)
    demand, circuits = variant.case.interconnect.circuit_keys.demand, by_bytes.circuits
    if circuits is None or demand == "bytes":
        return [by_bytes]
    fewest = circuits.fewest_circuits()
    if fewest < (2 if demand == "gating" else 1):
        return [attrs.evolve(by_bytes, crowded=True)]
    gates = gating_pairs(lowering)
    phases = isinstance(circuits, PhasedCircuits)
    rules = (GATING,) if demand == "gating" else rules_to_try(circuits.interval_us, phases=phases)
    found = [] if demand == "gating" else [by_bytes]
    for rule in rules:
        with suppress(InfeasibleError):
            found.append(prepared_variant(variant, lowering, reuse, rule, gates))
    return found or [by_bytes]


def variant_traffic(variant: Variant, reuse: Reuse) -> CaseTraffic:
    """Return what the variant would send, and the circuits of its first plan."""
    lowering = variant_lowering(variant, reuse)
    pairs = reuse(Pairs.of, lowering)
    driven = circuits_for(variant.case.interconnect, variant.fabric, pairs.tasks)
    control = variant.fabric.circuits
    return CaseTraffic(
        variant=variant,
        lowering=lowering,
        pairs=pairs,
        network=driven.network,
        circuits=driven.circuits,
        capacity_gbps=first_capacity_gbps(driven),
        circuit_gbps=control.circuit_gbps if control else 0.0,
    )
