"""Laws of circuit schedulers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.experiment import structure
from sipml_core.model import (
    CircuitControl,
    CircuitPlan,
    Cluster,
    Fabric,
    FoldableControl,
    TrafficMatrix,
    TreatsAlike,
)
from sipml_core.plugin import PlansAhead, Scheduler, Topology
from sipml_core.scheduling import planned
from sipml_core.testing.jobs import require_sound, run_training, small_gpu, small_placer, small_workloads
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True

_TOLERANCE = 1e-9


class SchedulerConformance(ComponentConformance):
    """Laws of a scheduler: set `scheduler`, and a `topology` whose circuits it controls."""

    scheduler: ClassVar[type[Scheduler]]
    topology: ClassVar[type[Topology]]
    #: Options of the topology, as in a TOML table.
    topology_options: ClassVar[dict[str, Any]] = {}
    #: Clusters that are tried, the smallest first; sizes that the topology refuses are left out.
    sizes: ClassVar[tuple[int, ...]] = (2, 3, 7, 24)
    #: Bandwidth of a GPU. [Gbps]
    bandwidth_gbps: ClassVar[float] = 800.0
    #: GPUs that train two bundled workloads; None: 4, or the largest size if the topology refuses 4.
    training_gpus: ClassVar[int | None] = None
    #: False for a schedule that is fixed beforehand, whatever the traffic.
    follows_demand: ClassVar[bool] = True

    @property
    def component(self) -> type[Any]:
        return self.scheduler

    def exercise(self, component: Any) -> None:
        _, control = next(iter(self.controls()))
        planned(component, control, _lone(control), None)

    def build(self, gpus: int) -> Fabric:
        topology = self.topology(structure(self.topology_options, self.topology.Options, self.topology.name))
        return topology.build(Cluster(gpus=gpus, bandwidth_gbps=self.bandwidth_gbps))

    def accepts(self, gpus: int) -> bool:
        """Whether the topology builds a cluster of that size."""
        try:
            self.build(gpus)
        except ConfigError:
            return False
        return True

    def controls(self) -> Iterator[tuple[int, CircuitControl]]:
        """(GPUs, circuits) for every size that the topology accepts."""
        refusals: list[str] = []
        for gpus in self.sizes:
            with law(
                "the topology of a scheduler's suite builds circuits, or refuses with one line", gpus=gpus
            ):
                try:
                    control = self.build(gpus).circuits
                except ConfigError as refusal:
                    require("\n" not in str(refusal), f"several lines: {refusal}")
                    refusals.append(str(refusal))
                    continue
                require(control is not None, f"Fabric.circuits of {self.topology.name} is None")
                assert control is not None
            yield gpus, control
        with law("at least one size can be built", sizes=self.sizes):
            require(len(refusals) < len(self.sizes), f"every size is refused: {refusals[:1]}")

    def cases(self) -> Iterator[tuple[int, CircuitControl, str, TrafficMatrix]]:
        for gpus, control in self.controls():
            for name, traffic in traffics(control):
                yield gpus, control, name, traffic

    def test_plans_are_well_formed(self) -> None:
        for gpus, control, name, traffic in self.cases():
            scheduler, previous = self.make(), None
            for turn in range(3):
                with law("a plan names each pair once, in order, and circuits that exist",
                         gpus=gpus, traffic=name, plan=turn):  # fmt: skip
                    previous = planned(scheduler, control, traffic, previous)

    def test_the_same_traffic_gives_the_same_plan(self) -> None:
        for gpus, control, name, traffic in self.cases():
            with law("a plan depends on its arguments only", gpus=gpus, traffic=name):
                first, second = (planned(self.make(), control, traffic, None) for _ in range(2))
                require(_same(first, second), "two calls, two plans")

    def test_units_of_demand_do_not_matter(self) -> None:
        for gpus, control, name, traffic in self.cases():
            with law("only ratios of demands count", gpus=gpus, traffic=name):
                scaled = TrafficMatrix(
                    gpus=gpus, src=traffic.src, dst=traffic.dst, demand=traffic.demand * 1024.0
                )
                first, second = (planned(self.make(), control, t, None) for t in (traffic, scaled))
                require(_same(first, second), "1024 times the demand changes the plan")

    def test_a_pair_alone_is_served(self) -> None:
        if not self.follows_demand:
            return
        for gpus, control in self.controls():
            with law("the only pair that asks gets a circuit", gpus=gpus):
                traffic = _lone(control)
                plan = planned(self.make(), control, traffic, None)
                require(plan.capacity_gbps(traffic.src, traffic.dst)[0] > 0, "it gets none")

    def test_the_same_traffic_again_moves_nothing(self) -> None:
        if not self.follows_demand:
            return
        for gpus, control, name, traffic in self.cases():
            with law("when all are served and nothing changes, nothing goes dark", gpus=gpus, traffic=name):
                scheduler = self.make()
                first = planned(scheduler, control, traffic, None)
                if not (first.capacity_gbps(traffic.src, traffic.dst) > 0).all():
                    continue
                second = planned(scheduler, control, traffic, first)
                capacity = second.capacity_gbps(first.src, first.dst)
                require(np.allclose(capacity, first.gbps, rtol=_TOLERANCE), "capacities change")
                assert second.kept_gbps is not None
                require(np.allclose(second.kept_gbps, second.gbps, rtol=_TOLERANCE), "circuits go dark")

    def test_what_comes_later_takes_nothing_from_now(self) -> None:
        if not issubclass(self.scheduler, PlansAhead):
            return
        for gpus, control, name, traffic in self.cases():
            known = dict(traffics(control))
            later = known["all alike"]
            with law("what comes later takes nothing from what is sent now", gpus=gpus, traffic=name):
                before = planned(self.make(), control, known["random, far apart"], None)
                usual = planned(self.make(), control, traffic, before)
                ahead = planned(self.make(), control, traffic, before, later)
                mine, theirs = (_values(plan, "gbps", traffic) for plan in (usual, ahead))
                require(np.array_equal(mine, theirs), "pairs of now have other circuits")
                mine, theirs = (_values(plan, "kept_gbps", traffic) for plan in (usual, ahead))
                require(bool((theirs >= mine).all()), "more circuits of now go dark")
                mine, theirs = (_values(plan, "gbps", later) for plan in (usual, ahead))
                require(bool((theirs >= mine).all()), "pairs of later have less than without it")

    def test_images_are_treated_alike(self) -> None:
        if not issubclass(self.scheduler, TreatsAlike):
            return
        folds = False
        large = [(96, self.build(96).circuits)] if self.accepts(96) else []
        for gpus, control in (*self.controls(), *large):
            assert control is not None
            for turn in (n for n in range(1, gpus) if gpus % n == 0):
                image = (np.arange(gpus, dtype=np.int32) + turn) % gpus
                part = control.folded(image) if isinstance(control, FoldableControl) else None
                if part is not None:
                    folds = True
                    with law("what repeats is planned alike, whole or folded", gpus=gpus, turn=turn):
                        self._compare_folded(control, part, turn)
        with law("what treats images alike can be folded", topology=self.topology.name):
            require(folds, "the control is no FoldableControl, or folded is None for every turn and size")

    def _compare_folded(self, control: CircuitControl, part: CircuitControl, turn: int) -> None:
        scheduler, whole, folded = self.make(), None, None
        for seed in range(4):
            traffic = _repeated(control, turn, seed)
            mine = traffic.src < turn
            first = TrafficMatrix(
                gpus=traffic.gpus, src=traffic.src[mine], dst=traffic.dst[mine], demand=traffic.demand[mine]
            )
            whole = planned(scheduler, control, traffic, whole)
            folded = planned(scheduler, part, first, folded)
            for image in range(0, control.gpus, turn):
                ends = (folded.src + image) % control.gpus, (folded.dst + image) % control.gpus
                row = whole.row_of(*ends)
                require((row >= 0).all(), "a pair has circuits, its image has none")
                for name in ("gbps", "kept_gbps", "dark_us"):
                    same = np.array_equal(getattr(whole, name)[row], getattr(folded, name))
                    require(same, f"{name} differ between images")
            require(len(whole.src) * turn == len(folded.src) * control.gpus, "more pairs than images")

    def test_foreign_circuits_are_refused_or_planned(self) -> None:
        class Foreign(CircuitControl):
            """Circuits that no scheduler has heard of, and only between neighbours."""

            def may_connect(self, src: Any, dst: Any) -> Any:
                return np.abs(src - dst) == 1

        control = Foreign(gpus=max(2, self.sizes[0]), circuit_gbps=10.0, circuits_per_gpu=2)
        with law("circuits it cannot control are refused with ConfigError", control="Foreign"):
            try:
                planned(self.make(), control, _lone(control), None)
            except ConfigError as refusal:
                require("\n" not in str(refusal), f"several lines: {refusal}")

    def test_a_bundled_workload_trains(self) -> None:
        gpus = self.training_gpus or next(gpus for gpus in (4, *reversed(self.sizes)) if self.accepts(gpus))
        with law("training_gpus is a size that the topology accepts", training_gpus=gpus):
            self.build(gpus)
        topology = self.topology(structure(self.topology_options, self.topology.Options, self.topology.name))
        cluster = Cluster(gpus=gpus, bandwidth_gbps=self.bandwidth_gbps)
        mp = 2 if gpus % 2 == 0 else 1
        for workload in small_workloads()[:2]:
            with law("training runs to its end", workload=workload.name, gpus=gpus, mp=mp):
                for result in run_training(
                    workload, topology, cluster, self.make(), small_gpu(), small_placer(), mp
                ):
                    require_sound(result)


def traffics(control: CircuitControl) -> Iterator[tuple[str, TrafficMatrix]]:
    """Traffic matrices of one network, the simplest first."""
    gpus = control.gpus
    src, dst = np.divmod(np.arange(gpus**2, dtype=np.int32), np.int32(gpus))
    keep = src != dst
    src, dst = src[keep], dst[keep]
    keep = control.may_connect(src, dst)
    src, dst = src[keep], dst[keep]
    shift = (dst - src) % gpus
    rng = np.random.default_rng(0)
    demands = {
        "none": np.zeros(len(src)),
        "one pair": np.where(np.arange(len(src)) == 0, 1.0, 0.0),
        "neighbours": np.where(shift == 1, 1.0, 0.0),
        "both neighbours, unequal": np.select([shift == 1, shift == gpus - 1], [3.0, 1.0], 0.0),
        "from one GPU": np.where(src == 0, 1.0 + dst, 0.0),
        "into one GPU": np.where(dst == 0, 1.0 + src, 0.0),
        "all alike": np.ones(len(src)),
        "random, far apart": 10 ** rng.uniform(0, 6, len(src)) * (rng.random(len(src)) < 0.5),
    }
    for name, demand in demands.items():
        yield name, TrafficMatrix.from_pairs(gpus, src, dst, demand)


def _repeated(control: CircuitControl, turn: int, seed: int) -> TrafficMatrix:
    """Random traffic that repeats after `turn` GPUs."""
    rng, gpus = np.random.default_rng(seed), control.gpus
    src, dst = np.divmod(np.arange(turn * gpus, dtype=np.int32), np.int32(gpus))
    keep = src != dst
    src, dst = src[keep], dst[keep]
    keep = control.may_connect(src, dst) & (rng.random(len(src)) < rng.choice([0.1, 0.5]))
    demand = 10 ** rng.uniform(0, 2, len(src)) * keep
    image = np.arange(0, gpus, turn)[:, None]
    ends = ((src + image) % gpus).reshape(-1), ((dst + image) % gpus).reshape(-1)
    return TrafficMatrix.from_pairs(gpus, *ends, np.tile(demand, len(image)))


def _lone(control: CircuitControl) -> TrafficMatrix:
    return dict(traffics(control))["one pair"]


def _values(plan: CircuitPlan, name: str, traffic: TrafficMatrix) -> NDArray[np.float64]:
    """Return what a plan says of each pair of some traffic; 0 of those that it has no circuit for. [pairs]"""
    return np.append(getattr(plan, name), 0.0)[plan.row_of(traffic.src, traffic.dst)]


def _same(a: CircuitPlan, b: CircuitPlan) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("src", "dst", "gbps"))
