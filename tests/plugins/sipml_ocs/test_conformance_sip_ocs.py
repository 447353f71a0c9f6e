"""The suites that any stranger's circuit network passes."""

from sipml_ocs.ocsnetwork import OcsDecompose, OcsExact, OcsIlp, SipOcs

from sipml_core.testing import SchedulerConformance, TopologyConformance


class TestSipOcs(TopologyConformance):
    topology = SipOcs
    scheduler = OcsExact


class TestReplanned(TopologyConformance):
    topology = SipOcs
    scheduler = OcsExact
    options = {"switches": 4, "interval_us": 100.0, "reconfiguration_us": 10.0}


class TestOcsExact(SchedulerConformance):
    scheduler = OcsExact
    topology = SipOcs


class TestOcsDecompose(SchedulerConformance):
    scheduler = OcsDecompose
    topology = SipOcs
    topology_options = {"switches": 4, "interval_us": 100.0, "reconfiguration_us": 10.0}


class TestOcsIlp(SchedulerConformance):
    scheduler = OcsIlp
    topology = SipOcs
    topology_options = {"switches": 4}
    sizes = (2, 3, 5)
