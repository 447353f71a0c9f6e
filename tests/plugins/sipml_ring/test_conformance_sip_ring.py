"""The suites that any stranger's circuit network passes."""

from sipml_ring.ringschedulers import RingFast, RingIlp, RingMcf
from sipml_ring.topology import SipRing

from sipml_core.testing import SchedulerConformance, TopologyConformance


class TestSipRing(TopologyConformance):
    topology = SipRing
    scheduler = RingFast


class TestConverted(TopologyConformance):
    topology = SipRing
    scheduler = RingFast
    options = {"wavelength": "converted", "reach_hops": 4, "all_dark": True}
    sizes = (2, 7)


class TestRingFast(SchedulerConformance):
    scheduler = RingFast
    topology = SipRing


class TestRingIlp(SchedulerConformance):
    scheduler = RingIlp
    topology = SipRing
    sizes = (2, 3, 5)


class TestRingMcf(SchedulerConformance):
    scheduler = RingMcf
    topology = SipRing
    sizes = (2, 3, 7)
