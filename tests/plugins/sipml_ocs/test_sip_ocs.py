"""The topology `sip-ocs`, its schedulers, and both in a run of the engine."""

import numpy as np
import pytest
from sipml_elect_flat import ElectFlat
from sipml_ocs import OcsCircuits, OcsPlan
from sipml_ocs.ocsnetwork import OcsDecompose, OcsExact, OcsIlp, SipOcs

from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError
from sipml_core.estimators import ESTIMATORS
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.cluster import Cluster
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.plugin import installed
from sipml_core.plugin.interfaces import NoOptions
from sipml_core.scheduling import planned
from sipml_core.scheduling.driver import ScheduledCircuits, job_bytes

#: Bytes that 100 Gbps carries in 1 us.
B = 12_500.0

FORECASTS = {made.name: made(made.Options()).start for made in ESTIMATORS}


def fabric(gpus=4, gbps=100.0, **options):
    return SipOcs(SipOcs.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=gbps))


def transfers(gpus, sizes):
    """Independent transfers {(src, dst): bytes}."""
    none = np.zeros(0)
    return TaskGraph(
        gpus=gpus,
        gpu=none,
        duration_us=none,
        priority=np.zeros(len(sizes)),
        src=[i for i, _ in sizes],
        dst=[j for _, j in sizes],
        size_bytes=list(sizes.values()),
        latency_steps=np.ones(len(sizes)),
        succ_start=np.zeros(len(sizes) + 1),
        successors=none,
        marks=none,
        label=none,
    )


def run(fabric, tasks, *, estimator="window"):
    """Simulate with `ocs-exact`; the timeline, and the driver with its last plan."""
    network = Network.of(fabric, tasks)
    driver = ScheduledCircuits(
        control=fabric.circuits,
        scheduler=OcsExact(NoOptions()),
        estimator=FORECASTS[estimator](network, tasks),
        network=network,
        total_bytes=job_bytes(network, tasks),
    )
    return simulate(tasks, network, driver=driver), driver


class TestTopology:
    def test_defaults_are_the_papers(self):
        """Q = 16 links of B/16 each, set once; 10 ms to reconfigure."""
        ocs = fabric(gbps=1600.0).circuits
        assert (ocs.switches, ocs.circuit_gbps, ocs.interval_us, ocs.reconfiguration_us) == (
            16, 100.0, None, 10_000.0,
        )  # fmt: skip
        assert fabric(switches=7).hints.degree == 7

    def test_a_pair_crosses_its_circuit_between_the_ports(self):
        net = fabric(gpus=4, switches=2)
        links = net.route(np.array([1], np.int32), np.array([3], np.int32)).links[0]
        assert [net.link_name(int(k)) for k in links] == ["egress 1", "circuit 1->3", "ingress 3"]

    def test_options_reach_the_control(self):
        ocs = fabric(interval_us="100 us", reconfiguration_us=20, all_dark=True).circuits
        assert (ocs.interval_us, ocs.reconfiguration_us, ocs.all_dark) == (100.0, 20.0, True)
        assert fabric(relay=True).circuits.relay

    @pytest.mark.parametrize("gpus", [1, 2, 3])
    def test_small_networks_may_have_more_switches_than_peers(self, gpus):
        net = fabric(gpus=gpus)
        assert net.fixed_links == 2 * gpus
        assert net.hints.degree == 16

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"switches": 0}, "switches must be from 1 to 1024, got 0"),
            ({"interval_us": 0}, "interval_us must be positive"),
            ({"interval_us": 100, "relay": True, "reconfiguration_us": 1}, "leave out interval_us, or relay"),
            ({"interval_us": 100}, "must exceed reconfiguration_us"),
            ({"reconfiguration_us": 20}, "reconfiguration_us has no effect on circuits that are set once"),
            ({"all_dark": True}, "all_dark has no effect on circuits that are set once; leave it out, or"),
            ({"reconfiguration_us": -1}, "reconfiguration_us must be at least 0"),
            ({"latency_us": "slow"}, "a time"),
        ],
    )
    def test_impossible_options_are_refused(self, options, words):
        with pytest.raises(ConfigError, match=words):
            SipOcs.Options(**options)


class TestSchedulers:
    demand = TrafficMatrix.from_pairs(3, [0, 0, 1], [1, 2, 2], [2.0, 1.0, 1.0])

    @pytest.mark.parametrize("scheduler", [OcsExact(NoOptions()), OcsIlp(OcsIlp.Options())])
    def test_both_make_the_same_plan(self, scheduler):
        """Into GPU 2 two demands of 1 share 3 links: ratio 1 needs 2 + 1 and 1 + 1; the last link into 2
        goes to 1 -> 2, which has a free end."""
        made = scheduler.plan(fabric(gpus=3, gbps=300.0, switches=3).circuits, self.demand, None)
        assert isinstance(made, OcsPlan)
        assert made.algorithm == scheduler.name
        assert made.gbps.tolist() == [200.0, 100.0, 200.0]

    def test_a_changed_circuit_is_dark_for_the_reconfiguration(self):
        control = fabric(gpus=3, switches=3, interval_us=100, reconfiguration_us=20).circuits
        first = OcsExact(NoOptions()).plan(control, self.demand, None)
        swapped = TrafficMatrix.from_pairs(3, [0, 0, 1], [1, 2, 2], [1.0, 2.0, 1.0])
        second = OcsExact(NoOptions()).plan(control, swapped, first)
        assert set(second.dark_us.tolist()) == {0.0, 20.0}

    @pytest.mark.parametrize("scheduler", [OcsExact(NoOptions()), OcsIlp(OcsIlp.Options())])
    def test_only_optical_switches_can_be_controlled(self, scheduler):
        control = CircuitControl(gpus=3, circuit_gbps=25.0, circuits_per_gpu=4)
        with pytest.raises(ConfigError, match=f"'{scheduler.name}' plans OcsCircuits, not CircuitControl"):
            planned(scheduler, control, self.demand, None)

    def test_a_plan_of_another_kind_cannot_be_continued(self):
        none = np.zeros(0)
        foreign = CircuitPlan(gpus=3, src=none, dst=none, gbps=none)
        control = OcsCircuits(gpus=3, circuit_gbps=1.0, circuits_per_gpu=3)
        with pytest.raises(ConfigError, match="cannot continue a CircuitPlan"):
            OcsExact(NoOptions()).plan(control, self.demand, foreign)


class TestInTheEngine:
    @pytest.mark.parametrize("switches", [1, 4, 16])
    def test_one_permutation_of_neighbours_equals_elect_flat(self, switches):
        """Every GPU sends to one peer: all its links go there, B in all."""
        tasks = transfers(5, {(i, (i + 1) % 5): B * (10 + i) for i in range(5)})
        ours, _ = run(fabric(gpus=5, switches=switches), tasks)
        flat = ElectFlat(ElectFlat.Options()).build(Cluster(gpus=5, bandwidth_gbps=100.0))
        theirs = simulate(tasks, Network.of(flat, tasks))
        assert ours.end_us == pytest.approx(theirs.end_us, rel=1e-12)

    def test_one_shot_circuits_split_the_port_by_the_jobs_bytes(self):
        """30 and 10 us of B from one port, 4 links: 3 + 1 links, both end at 40 us."""
        timeline, _ = run(fabric(gpus=3, switches=4), transfers(3, {(0, 1): 30 * B, (0, 2): 10 * B}))
        assert timeline.end_us == pytest.approx([40.0, 40.0])
        assert timeline.dark_us.max() == 0

    def test_a_pair_that_waited_is_served_after_one_reconfiguration(self):
        """One link, two peers. 0 -> 1 (10 us at B) has it first; the next plan, at 20 us, gives it to
        0 -> 2, dark until 25 us, done at 35 us."""
        net = fabric(gpus=3, switches=1, interval_us=20, reconfiguration_us=5)
        timeline, driver = run(net, transfers(3, {(0, 1): 10 * B, (0, 2): 10 * B}))
        assert timeline.end_us == pytest.approx([10.0, 35.0])
        assert driver.plan.dst.tolist() == [2]

    @pytest.mark.parametrize("estimator", ["window", "backlog", "oracle"])
    def test_replanning_serves_more_peers_than_links_with_every_estimator(self, estimator):
        """All-to-all of 6 over 2 switches ends, and not before the port's bytes at B."""
        sizes = {(i, j): B * (1 + i) for i in range(6) for j in range(6) if i != j}
        net = fabric(gpus=6, switches=2, interval_us=10, reconfiguration_us=1)
        timeline, driver = run(net, transfers(6, sizes), estimator=estimator)
        assert timeline.total_us >= 5 * 6
        assert driver.plans > 1
        driver.plan.check()


def test_the_plugin_offers_its_topology_and_schedulers_through_the_hooks():
    assert installed("topology", "sip-ocs") is SipOcs
    assert [installed("scheduler", name) for name in ("ocs-exact", "ocs-decompose", "ocs-ilp")] == [
        OcsExact, OcsDecompose, OcsIlp,
    ]  # fmt: skip
