"""A variant of a case prepared: what it needs is known to be there; its tasks are made at its turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases.case import Case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.steps import (
    Driven,
    circuits_for,
    first_groups,
    relayed_first_groups,
    transfer_parts,
    whole_job,
)
from sipml_core.cases.variants import Variant
from sipml_core.fields import frozen
from sipml_core.lowering import Folded, Lowering, NoSymmetryError, Pairs, Symmetry, TrafficBytes, symmetry
from sipml_core.model import Fabric, Network, Plan, RelayedTasks, TaskGraph, TreatsAlike
from sipml_core.scheduling import BYTES, DemandRule, PhasedCircuits, ScheduledCircuits

#: Nodes of the tasks of first groups, together, that are kept for cases that share them; and how many jobs'.
MOST_NODES_KEPT = 2_000_000
MOST_JOBS_KEPT = 8
#: Nodes of a job of which every GPU is simulated, up to which the tasks of two are kept.
MOST_NODES_OF_TWO_WHOLE = 4_000_000


@frozen(kw_only=True, eq=False)
class CompiledCase:
    """A variant that is known to fit and to have its routes, ready to simulate."""

    variant: Variant
    #: Of the simulated groups; `repeats` times as much is the whole job. See `tasks` and `network`.
    work: TaskGraph | RelayedTasks
    work_network: Network
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

    @cached_property
    def tasks(self) -> TaskGraph:
        """The simulated groups, with a transfer for each leg of what is passed on from GPU to GPU."""
        return self.work if isinstance(self.work, TaskGraph) else self.work.explicit

    @cached_property
    def network(self) -> Network:
        """The network of `tasks`."""
        network = self.work_network
        return network if isinstance(self.work, TaskGraph) else self.work.explicit_network(network)

    def explicit(self) -> CompiledCase:
        """Return the same case, to be simulated leg by leg, so that the times of all legs are known."""
        return attrs.evolve(self, work=self.tasks, work_network=self.network)

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
        if self.variant.price_note:
            notes.append(self.variant.price_note)
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


@frozen(kw_only=True, eq=False)
class PreparedCase:
    """A variant that fits and has its routes; what the engine runs is made when it is asked for.

    Tasks are most of what a run holds in memory, so they are made at their turn; where groups stand for
    others, nothing that a case can be refused for depends on them.
    """

    variant: Variant
    #: With their first plan.
    circuits: ScheduledCircuits | None
    #: Given whether a transfer that is passed on may be one for all its legs: their times are unknown then.
    make: Callable[[bool], CompiledCase]
    #: What `make` would return, where its tasks were needed to find out that it can run.
    made: CompiledCase | None = None
    #: As in `CompiledCase`.
    crowded: bool = False
    round: int = 1

    @classmethod
    def of(cls, made: CompiledCase) -> PreparedCase:
        """Return a case of which everything is there."""
        return cls(variant=made.variant, circuits=made.circuits, make=lambda _: made, made=made)

    @property
    def plan(self) -> Plan:
        return self.variant.plan

    def compiled(self, *, relayed: bool = False) -> CompiledCase:
        """Return the case with its tasks; `relayed` as of `make`."""
        return attrs.evolve(self.made or self.make(relayed), crowded=self.crowded, round=self.round)

    def with_fewer_plans(self) -> list[PreparedCase]:
        """Return the same with circuits that change less between phases: see `PhasedCircuits.others`."""
        others = self.circuits.others() if isinstance(self.circuits, PhasedCircuits) else ()
        return [
            attrs.evolve(self, circuits=each, made=attrs.evolve(self.made or self.make(False), circuits=each))
            for each in others
        ]


def jobs_kept(nodes: int) -> int:
    """Return of how many jobs the tasks of first groups, so many nodes, are kept: of the last one always.

    >>> jobs_kept(1000), jobs_kept(700_000), jobs_kept(5_000_000)
    (8, 2, 1)
    """
    return min(MOST_JOBS_KEPT, max(1, MOST_NODES_KEPT // nodes))


def prepared_variant(
    variant: Variant,
    lowering: Lowering,
    reuse: Reuse,
    rule: DemandRule = BYTES,
    gates: NDArray[np.int64] | None = None,
) -> PreparedCase:
    """Return a variant that can run: of all groups, or of the first few where these stand for all.

    `rule` and `gates` as in `ScheduledCircuits`.

    Raises
    ------
    InfeasibleError
        Some pair has no route, or one-shot circuits leave it out; or the passes cannot be put in order.
    NoSymmetryError
        The experiment requires folding, and it would not be exact.
    """
    lowering.check_order()
    prepared = _folded(variant, lowering, reuse, rule, gates)
    if prepared is not None:
        return prepared
    all_groups = partial(_of_all_groups, variant, lowering, reuse, rule, gates)
    if variant.case.interconnect.circuit_keys.replan != "interval":
        return PreparedCase.of(all_groups())  # the phases are those of the tasks
    traffic = reuse(Pairs.of, lowering).tasks
    circuits = circuits_for(
        variant.case.interconnect, variant.fabric, traffic, rule=rule, gates=gates
    ).circuits
    return PreparedCase(variant=variant, circuits=circuits, make=lambda _: all_groups())


def _of_all_groups(
    variant: Variant, lowering: Lowering, reuse: Reuse, rule: DemandRule, gates: NDArray[np.int64] | None
) -> CompiledCase:
    """Return the tasks of all groups, on the links of the fabric."""
    case = variant.case
    keep = 2 if lowering.nodes(lowering.plan.replicas) <= MOST_NODES_OF_TWO_WHOLE else 1
    tasks = reuse(whole_job, lowering, case.interconnect.cluster.jitter, case.seed, keep=keep)
    driven = circuits_for(
        case.interconnect,
        variant.fabric,
        tasks,
        rule=rule,
        gates=gates,
        parts=transfer_parts(case.interconnect, lowering, tasks),
    )
    return CompiledCase(
        variant=variant,
        work=tasks,
        work_network=driven.network,
        circuits=driven.circuits,
        simulated=lowering.gpu_of.reshape(-1),
        traffic=lowering.traffic,
        lowering=lowering,
    )


def first_capacity_gbps(driven: Driven) -> NDArray[np.float64]:
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
) -> PreparedCase | None:
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
        pairs = reuse(Pairs.of, lowering)
        driven = circuits_for(interconnect, fabric, pairs.tasks, rule=rule, gates=gates)
        circuits = driven.circuits
        replanned = circuits is not None and circuits.interval_us is not None
        control = fabric.circuits if replanned else None
        found = symmetry(pairs, driven.network, first_capacity_gbps(driven), control)
    except NoSymmetryError as error:
        if wanted == "auto":
            return None
        raise NoSymmetryError(
            f'engine.fold = "require", but on {interconnect.label} groups are not alike: {error}'
        ) from None
    if found.control is None:
        make = partial(_of_first_groups, variant, found, reuse, circuits)
        return PreparedCase(variant=variant, circuits=circuits, make=make)
    # Who plans again for the first groups alone plans for their tasks.
    made = _of_first_groups(variant, found, reuse, None)
    assert made.folded is not None
    part = attrs.evolve(fabric, circuits=found.control)
    parts = transfer_parts(interconnect, lowering, made.tasks)
    driven = circuits_for(interconnect, part, made.tasks, made.network, rule, gates, parts)
    return PreparedCase.of(attrs.evolve(made, circuits=driven.circuits))


def _of_first_groups(
    variant: Variant,
    found: Symmetry,
    reuse: Reuse,
    circuits: ScheduledCircuits | None,
    relayed: bool = False,
) -> CompiledCase:
    """Return the tasks of the first groups, on links that are those of all; `relayed` as of `make`."""
    lowering = found.pairs.lowering
    # Times since the first iteration, and by kinds of traffic, are those of legs.
    relayed &= lowering.plan.iterations == 1 and variant.case.job.workload.token_flops is None
    step = relayed_first_groups if relayed else first_groups

    def kept(lowering: Lowering, groups: int) -> TaskGraph | RelayedTasks:
        return reuse(step, lowering, groups, keep=jobs_kept(lowering.nodes(groups)))

    folded = found.folded(kept)
    return CompiledCase(
        variant=variant,
        work=folded.tasks,
        work_network=folded.network,
        circuits=circuits.on(folded.network) if circuits else None,
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
    for component in (interconnect.scheduler, interconnect.estimator):
        if replanned and component and not isinstance(component, TreatsAlike):
            raise NoSymmetryError(
                f"circuits are re-planned while the job runs, and {component.name!r} may treat groups "
                "differently"
            )
