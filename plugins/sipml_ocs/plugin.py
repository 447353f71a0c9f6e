"""What this plugin offers: the topology `sip-ocs`, and three schedulers of its switches."""

from sipml_core.plugin import Deferred, hookimpl


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return [Deferred("sip-ocs", "sipml_ocs.ocsnetwork:SipOcs")]


@hookimpl
def sipml_schedulers() -> list[Deferred]:
    classes = {"ocs-exact": "OcsExact", "ocs-decompose": "OcsDecompose", "ocs-ilp": "OcsIlp"}
    return Deferred.of("sipml_ocs.ocsnetwork", classes)
