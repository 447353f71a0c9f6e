import pytest
from sipml_hottest_first import HottestFirst
from sipml_ocs.plugin import SipOcs

from sipml_core.errors import ConfigError
from sipml_core.model import CircuitControl, TrafficMatrix
from sipml_core.testing import SchedulerConformance


class TestConformance(SchedulerConformance):
    scheduler = HottestFirst
    topology = SipOcs


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


def test_circuits_with_rules_it_does_not_know_are_refused():
    class Ring(CircuitControl):
        def may_connect(self, src, dst):
            return abs(src - dst) == 1

    with pytest.raises(ConfigError, match=r"hottest-first.*Ring"):
        plan([(0, 1, 1.0)], Ring(gpus=3, circuit_gbps=10, circuits_per_gpu=1))
