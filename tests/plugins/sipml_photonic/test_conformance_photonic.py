"""The suites that any stranger's topology and scheduler pass."""

from sipml_photonic import (
    ClosExact,
    Hybrid,
    KhopMatching,
    SipKhop,
    SipOcsBcube,
    SipOcsClos,
    SipRails,
    SipRing2d,
)

from sipml_core.testing import SchedulerConformance, TopologyConformance


class TestRing2d(TopologyConformance):
    topology = SipRing2d
    sizes = (4, 7, 24)


class TestClos(TopologyConformance):
    topology = SipOcsClos
    options = {"group_gpus": 4, "uplinks": 3}


class TestBcube(TopologyConformance):
    topology = SipOcsBcube
    sizes = (4, 7, 24)


class TestRails(TopologyConformance):
    topology = SipRails
    sizes = (4, 7, 24)
    options = {"server_gpus": 4, "rail_links": 8}


class TestKhop(TopologyConformance):
    topology = SipKhop
    options = {"reach": 30, "card_gbps": 100.0}


class TestHybrid(TopologyConformance):
    topology = Hybrid


class TestClosExact(SchedulerConformance):
    scheduler = ClosExact
    topology = SipOcsClos
    topology_options = {"group_gpus": 4, "uplinks": 3, "interval_us": 20_000}


class TestKhopMatching(SchedulerConformance):
    scheduler = KhopMatching
    topology = SipKhop
    topology_options = {"reach": 3, "interval_us": 200, "card_gbps": 100.0}
