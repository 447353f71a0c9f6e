import numpy as np
import pytest
from sipml_hottest_first import HottestFirst

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model import CircuitControl, TrafficMatrix
from sipml_core.plugin import load
from sipml_core.scheduling import planned
from sipml_core.testing import SchedulerConformance


class TestConformance(SchedulerConformance):
    scheduler = HottestFirst
    topology = load().find("topology", "sip-ocs")


def plan(demands, control):
    src, dst, demand = zip(*demands, strict=True)
    traffic = TrafficMatrix.from_pairs(control.gpus, src, dst, demand)
    return HottestFirst(HottestFirst.Options()).plan(control, traffic, None)


def test_circuits_follow_demand_until_ports_run_out():
    """4 ports at GPU 0, demands 6 and 1: one each, then 6 against 1, then 3 against 1: three and one."""
    made = plan([(0, 1, 6.0), (0, 2, 1.0)], CircuitControl(gpus=3, circuit_gbps=10, circuits_per_gpu=4))
    assert made.gbps.tolist() == [30.0, 10.0]


def test_the_hottest_pairs_are_served_if_not_all_can_be():
    """2 ports at GPU 0, three peers: the pair with the least demand gets nothing."""
    demands = [(0, 1, 2.0), (0, 2, 1.0), (0, 3, 3.0)]
    made = plan(demands, CircuitControl(gpus=4, circuit_gbps=10, circuits_per_gpu=2))
    assert made.dst.tolist() == [1, 3]


class Pods(CircuitControl):
    """Two pods, joined by 8 circuits each way: a rule that the ports do not know."""

    def check(self, plan):
        super().check(plan)
        pod = self.gpus // 2
        for side in (0, 1):
            across = (plan.src // pod == side) & (plan.dst // pod != side)
            circuits = plan.gbps[across].sum() / self.circuit_gbps
            if circuits > 8:
                raise PluginError(f"{circuits:g} circuits leave pod {side}, which has 8")


def test_circuits_with_rules_it_does_not_know_are_refused():
    """15 pairs across pods ask for a circuit each where 8 exist: the scheduler is not asked at all."""
    src, dst = np.arange(15), 16 + np.arange(15)
    traffic = TrafficMatrix.from_pairs(32, src, dst, np.ones(15))
    control = Pods(gpus=32, circuit_gbps=10, circuits_per_gpu=1)
    scheduler = HottestFirst(HottestFirst.Options())
    with pytest.raises(ConfigError, match="scheduler 'hottest-first' plans CircuitControl, not Pods"):
        planned(scheduler, control, traffic, None)


def test_a_plan_of_circuits_that_do_not_exist_is_refused_whoever_says_it_knows_the_rules():
    class Overconfident(HottestFirst):
        plans = Pods

    src, dst = np.arange(15), 16 + np.arange(15)
    traffic = TrafficMatrix.from_pairs(32, src, dst, np.ones(15))
    control = Pods(gpus=32, circuit_gbps=10, circuits_per_gpu=1)
    with pytest.raises(PluginError, match="scheduler 'hottest-first': 15 circuits leave pod 0, which has 8"):
        planned(Overconfident(Overconfident.Options()), control, traffic, None)
