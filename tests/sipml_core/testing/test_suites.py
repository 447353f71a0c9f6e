"""The conformance suites find what they are for, and say which law broke in which smallest case."""

import math
import os
import subprocess
import sys

import attrs
import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.fields.checks import positive
from sipml_core.fields.options import option
from sipml_core.model.balanced import Placement
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.fabric import Fabric
from sipml_core.model.hints import FabricHints
from sipml_core.model.routes import NO_LINK, Routes
from sipml_core.plugin.interfaces import GpuModel, Placer, Scheduler, Topology
from sipml_core.testing import (
    GpuModelConformance,
    LawBroken,
    PlacerConformance,
    SchedulerConformance,
    TopologyConformance,
)


class Switch(Topology):
    """A sound topology: the faulty ones below change one thing each."""

    name = "switch"
    summary = "an ideal switch"

    @attrs.frozen(kw_only=True)
    class Options:
        share: float = option(1.0, doc="share of the bandwidth", validator=positive)

    def build(self, cluster):
        self.gpus = cluster.gpus
        return Fabric(
            gpus=cluster.gpus,
            link_gbps=np.full(2 * cluster.gpus, cluster.bandwidth_gbps * self.speed()),
            route=lambda src, dst: Routes(links=self.links(src, dst), latency_us=np.zeros(len(src))),
        )

    def speed(self):
        return 1.0

    def links(self, src, dst):
        return np.column_stack([src, self.gpus + np.asarray(dst, np.int64)])


class TooFast(Switch):
    def speed(self):
        return 2.0


class NoRoute(Switch):
    """From GPU 2 nothing goes out: the smallest case is three GPUs."""

    def links(self, src, dst):
        return np.where((src == 2)[:, None], NO_LINK, super().links(src, dst))


class Twice(Switch):
    def links(self, src, dst):
        return np.column_stack([src, src, self.gpus + np.asarray(dst, np.int64)])


class Moody(Switch):
    """Where a pair stands in the question decides which way it goes."""

    def links(self, src, dst):
        links = super().links(src, dst)
        links[1:, 0] = (links[1:, 0] + 1) % self.gpus
        return links


class OnlyIngress(Switch):
    """What a GPU sends is limited by nothing."""

    def links(self, src, dst):
        return (self.gpus + np.asarray(dst, np.int64))[:, None]


class OnlyEgress(Switch):
    """What a GPU receives is limited by nothing."""

    def links(self, src, dst):
        return np.asarray(src, np.int64)[:, None]


class Drawn(Switch):
    """A switch that says where its links end; the faulty ones below jump."""

    def build(self, cluster):
        gpu, switch = np.arange(cluster.gpus), np.full(cluster.gpus, cluster.gpus)
        tail, head = np.r_[gpu, switch], np.r_[switch, gpu]
        return attrs.evolve(super().build(cluster), link_tail=tail, link_head=head)


class Jumps(Drawn):
    """Out through the sender's egress, in through the ingress of the one after the receiver."""

    def links(self, src, dst):
        links = super().links(src, dst)
        links[:, 1] = self.gpus + (links[:, 1] - self.gpus + 1) % self.gpus
        return links


class BeforeItLeft(Switch):
    """Half a microsecond early."""

    def build(self, cluster):
        fabric = super().build(cluster)

        def route(src, dst):
            return attrs.evolve(fabric.route(src, dst), latency_us=np.full(len(src), -0.5))

        return attrs.evolve(fabric, route=route)


class OneMore(Switch):
    def build(self, cluster):
        return super().build(attrs.evolve(cluster, gpus=cluster.gpus + 1))


class OneLess(Switch):
    def build(self, cluster):
        return super().build(attrs.evolve(cluster, gpus=max(1, cluster.gpus - 1)))


class Crashes(Switch):
    def build(self, cluster):
        return {2: super().build(cluster)}[cluster.gpus]


class TakesNan(Switch):
    @attrs.frozen(kw_only=True)
    class Options:
        share: float = option(1.0, doc="share of the bandwidth")


class Undocumented(Switch):
    @attrs.frozen(kw_only=True)
    class Options:
        delay_us: float = option(1.0, doc="")


class NoUnit(Switch):
    @attrs.frozen(kw_only=True)
    class Options:
        delay_us: float = option(1.0, doc="delay", validator=positive)


class Rude(Switch):
    """Stumbles over an option that it should have refused."""

    @attrs.frozen(kw_only=True)
    class Options:
        share: float = option(1.0, doc="share of the bandwidth", validator=attrs.validators.ge(-math.inf))

    def speed(self):
        return math.sqrt(self.options.share)


def suite_of(base, **attributes):
    return type("Suite", (base,), attributes)()


def all_laws(suite):
    return [getattr(suite, name) for name in sorted(dir(suite)) if name.startswith("test_")]


@pytest.mark.parametrize("topology", [Switch, Drawn])
def test_a_sound_topology_passes(topology):
    for check in all_laws(suite_of(TopologyConformance, topology=topology)):
        check()


@pytest.mark.parametrize(
    ("topology", "check", "told"),
    [
        (TooFast, "nothing_ends_before_its_bandwidth_allows", r"faster than its bandwidth\n.*gpus=2,"),
        (NoRoute, "routes_exist_and_are_legal", r"every pair has a route.*\n.*gpus=3\n.*no route from GPU 2"),
        (Twice, "routes_exist_and_are_legal", r"crosses a link once\n.*gpus=2, pair=0->1\n.*\[0, 0, 3\]"),
        (OnlyIngress, "one_to_many_and_many_to_one_are_limited_by_the_bandwidth",
         r"send or receive more.*\n.*gpus=3, gpu=0, peers=2, send=all at once\n.*10 us, not 20 us"),
        (OnlyEgress, "one_to_many_and_many_to_one_are_limited_by_the_bandwidth",
         r"no GPU can send or receive more.*\n.*gpus=3, gpu=0, peers=2, receive=all.*\n.*10 us, not 20 us"),
        (Jumps, "routes_exist_and_are_legal", r"gpus=2\n.*GPU 0 to GPU 1 do not lead there: link 0, link 2"),
        (BeforeItLeft, "routes_exist_and_are_legal", r"gpus=2\n.*latencies must be finite and not negative"),
        (OneMore, "the_fabric_is_as_large_as_the_cluster", r"joins the GPUs of the.*\n.*gpus=2\n.*3 GPUs"),
        (OneLess, "the_fabric_is_as_large_as_the_cluster", r"joins the GPUs of the.*\n.*gpus=2\n.*1 GPUs"),
        (Moody, "a_route_does_not_depend_on_the_others_asked_for", "one route, whatever else is asked"),
        (Crashes, "the_fabric_is_as_large_as_the_cluster", r"build returns a Fabric.*\n.*gpus=3\n.*KeyError"),
        (TakesNan, "refusals_name_the_option", r"option=share, value=nan\n.*NaN was accepted"),
        (Undocumented, "every_option_is_documented_with_its_unit", r"option=delay_us\n.*no doc"),
        (NoUnit, "every_option_is_documented_with_its_unit", r"option=delay_us\n.*no unit.*us"),
        (Rude, "refusals_name_the_option", r"one-line SipmlError.*\n.*option=share, value=-1\n.*ValueError"),
    ],
)  # fmt: skip
def test_a_faulty_topology_is_told_its_law_and_its_smallest_case(topology, check, told):
    with pytest.raises(LawBroken, match=told):
        getattr(suite_of(TopologyConformance, topology=topology), f"test_{check}")()


class Circuits(Switch):
    name = "circuits"

    def build(self, cluster):
        control = CircuitControl(
            gpus=cluster.gpus, circuit_gbps=cluster.bandwidth_gbps / 2, circuits_per_gpu=2
        )
        hints = FabricHints(degree=2)
        return Fabric.with_ports(circuits=control, port_gbps=cluster.bandwidth_gbps, hints=hints)


class NoSuchCircuit(Circuits):
    """Routes cross the circuit of a pair that can have none."""

    def build(self, cluster):
        class Neighbours(CircuitControl):
            def may_connect(self, src, dst):
                return np.abs(np.asarray(src) - dst) == 1

        fabric = super().build(cluster)
        control = Neighbours(gpus=cluster.gpus, circuit_gbps=100.0, circuits_per_gpu=2)
        return attrs.evolve(fabric, circuits=control)


class Planner(Scheduler):
    """One circuit for each pair that fits, in order."""

    name = "planner"
    summary = "first come, first served"
    circuits = 1

    def plan(self, control, traffic, previous):
        out, into, keep = np.zeros(control.gpus), np.zeros(control.gpus), []
        for k, (src, dst) in enumerate(zip(traffic.src, traffic.dst, strict=True)):
            if out[src] < control.circuits_per_gpu and into[dst] < control.circuits_per_gpu:
                out[src] += 1
                into[dst] += 1
                keep.append(k)
        src, dst = traffic.src[keep], traffic.dst[keep]
        gbps = np.full(len(keep), control.circuit_gbps * self.circuits)
        return self.finish(CircuitPlan(gpus=control.gpus, src=src, dst=dst, gbps=gbps), traffic)

    def finish(self, plan, traffic):
        return plan


class Overcommits(Planner):
    circuits = 3


class HalfACircuit(Planner):
    circuits = 0.5


class CountsUnits(Planner):
    def finish(self, plan, traffic):
        return attrs.evolve(
            plan, gbps=plan.gbps * (1 + (traffic.demand.sum() <= 1000 and len(plan.gbps) == 1))
        )


class Backwards(Planner):
    def finish(self, plan, traffic):
        return attrs.evolve(plan, src=plan.src[::-1], dst=plan.dst[::-1])


class GoesDark(Planner):
    def finish(self, plan, traffic):
        return attrs.evolve(plan, kept_gbps=0 * plan.gbps)


class Idle(Planner):
    def finish(self, plan, traffic):
        none = np.zeros(0)
        return CircuitPlan(gpus=plan.gpus, src=none, dst=none, gbps=none)


class TakesForLater(Planner):
    """Plans for what comes later in place of what is sent now."""

    def plan_ahead(self, control, traffic, previous, later):
        return self.plan(control, later, previous)


def test_a_sound_scheduler_passes():
    for check in all_laws(suite_of(SchedulerConformance, scheduler=Planner, topology=Circuits)):
        check()
    for check in all_laws(suite_of(TopologyConformance, topology=Circuits, scheduler=Planner)):
        check()


@pytest.mark.parametrize(
    ("scheduler", "check", "told"),
    [
        (
            Overcommits,
            "plans_are_well_formed",
            r"gpus=2, traffic=one pair, plan=0\n.*3 circuits that start at GPU 0",
        ),
        (HalfACircuit, "plans_are_well_formed", r"is no whole number of circuits of 400 Gbps"),
        (CountsUnits, "units_of_demand_do_not_matter", "only ratios of demands count"),
        (Backwards, "plans_are_well_formed", "pairs are out of order"),
        (GoesDark, "the_same_traffic_again_moves_nothing", r"nothing goes dark\n.*gpus=2, traffic=one pair"),
        (TakesForLater, "what_comes_later_takes_nothing_from_now", "pairs of now have other circuits"),
        (Idle, "a_pair_alone_is_served", r"the only pair that asks gets a circuit\n.*gpus=2"),
    ],
)
def test_a_faulty_scheduler_is_told_its_law_and_its_smallest_case(scheduler, check, told):
    with pytest.raises(LawBroken, match=told):
        getattr(suite_of(SchedulerConformance, scheduler=scheduler, topology=Circuits), f"test_{check}")()


def test_a_topology_whose_routes_cross_circuits_that_do_not_exist_is_told():
    suite = suite_of(TopologyConformance, topology=NoSuchCircuit, scheduler=Planner)
    with pytest.raises(LawBroken, match=r"only circuits that may_connect allows\n.*gpus=3\n.*0->2"):
        suite.test_circuit_links_lead_where_circuits_may()


class OnlyEven(Circuits):
    """Refuses what the suites try by default: 4 GPUs, and odd numbers."""

    def build(self, cluster):
        if cluster.gpus % 2 or cluster.gpus == 4:
            raise ConfigError(f"cluster.gpus must be even and not 4, got {cluster.gpus}")
        return super().build(cluster)


def test_a_scheduler_is_tried_on_the_sizes_that_its_topology_accepts():
    """2 and 6 of 2, 3 and 6; it trains on 6, as 4 are refused."""
    suite = suite_of(SchedulerConformance, scheduler=Planner, topology=OnlyEven, sizes=(2, 3, 6))
    assert [gpus for gpus, _ in suite.controls()] == [2, 6]
    for check in all_laws(suite):
        check()


def test_sizes_that_are_all_refused_and_a_refused_training_size_are_told():
    none = suite_of(SchedulerConformance, scheduler=Planner, topology=OnlyEven, sizes=(3, 5))
    with pytest.raises(LawBroken, match=r"at least one size can be built\n.*\(3, 5\)\n.*got 3"):
        none.test_plans_are_well_formed()
    four = suite_of(SchedulerConformance, scheduler=Planner, topology=OnlyEven, training_gpus=4)
    with pytest.raises(LawBroken, match=r"a size that the topology accepts\n.*training_gpus=4\n.*got 4"):
        four.test_a_bundled_workload_trains()
    default = suite_of(TopologyConformance, topology=OnlyEven, scheduler=Planner)
    with pytest.raises(LawBroken, match=r"a size that the topology accepts\n.*training_gpus=4\n.*got 4"):
        default.test_every_bundled_workload_trains()


def test_pytest_shows_the_law_and_not_the_frames_of_the_suite(tmp_path):
    """One page: the law, its case, what was found, and where in the plugin it was raised."""
    (tmp_path / "test_mine.py").write_text(
        "from sipml_core.plugin import Topology\n"
        "from sipml_core.testing import TopologyConformance\n"
        "class Mine(Topology):\n    name = 'mine'\n    summary = 'fails'\n"
        "    def build(self, cluster):\n        return {}[cluster.gpus]\n"
        "class TestMine(TopologyConformance):\n    topology = Mine\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", "-k", "as_large"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    first = next(line for line in lines if line.startswith("E "))
    assert first.endswith("law broken: build returns a Fabric, or refuses with one line")
    assert "KeyError: 2 (test_mine.py, line 7, in build)" in done.stdout
    assert len(lines) < 25, done.stdout


class OneDevice(Placer):
    """Everything on device 0: sound, if slow."""

    name = "one-device"
    summary = "everything on the first device"

    def place(self, graph, limits):
        return Placement(graph=graph, limits=limits, device=self.devices(graph, limits))

    def devices(self, graph, limits):
        return np.zeros(graph.subops)


class Anywhere(OneDevice):
    def devices(self, graph, limits):
        return np.arange(graph.subops) % limits.devices


class Outside(OneDevice):
    def devices(self, graph, limits):
        return np.full(graph.subops, limits.devices)


@pytest.mark.slow
def test_a_sound_placer_passes():
    for check in all_laws(suite_of(PlacerConformance, placer=OneDevice)):
        check()


@pytest.mark.parametrize(
    ("placer", "check", "told"),
    [
        (Anywhere, "devices_that_communicate_are_within_the_limits", r"devices=4, .*range_hops=1\n"),
        (Outside, "every_sub_op_has_a_device_of_the_group", r"devices=1, .*\n.*up to device 1"),
    ],
)
def test_a_faulty_placer_is_told_its_law_and_its_smallest_case(placer, check, told):
    with pytest.raises(LawBroken, match=told):
        getattr(suite_of(PlacerConformance, placer=placer), f"test_{check}")()


class Gpu(GpuModel):
    name = "gpu"
    summary = "1 TFLOP/s"
    memory_bytes = 1e10

    def op_time_us(self, work):
        return work.flops / 1e6


class Negative(Gpu):
    def op_time_us(self, work):
        return work.flops / 1e6 - 1.0


class LikesWork(Gpu):
    def op_time_us(self, work):
        return 1.0 / (1.0 + work.flops)


class KnowsItsOps(Gpu):
    def op_time_us(self, work):
        return {"conv": 1.0}[work.kind]


def test_a_sound_gpu_model_passes():
    for check in all_laws(suite_of(GpuModelConformance, gpu_model=Gpu)):
        check()


@pytest.mark.parametrize(
    ("gpu_model", "check", "told"),
    [
        (Negative, "every_op_takes_a_finite_time", "finite and not negative"),
        (LikesWork, "more_work_is_never_faster", "twice the work"),
        (KnowsItsOps, "kinds_of_op_it_has_not_heard_of", "unknown kind of op"),
    ],
)
def test_a_faulty_gpu_model_is_told_its_law(gpu_model, check, told):
    with pytest.raises(LawBroken, match=told):
        getattr(suite_of(GpuModelConformance, gpu_model=gpu_model), f"test_{check}")()
