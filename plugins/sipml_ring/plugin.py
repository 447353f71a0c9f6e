"""What this plugin offers: the topology `sip-ring`, and three schedulers of its wavelengths."""

from sipml_core.plugin import Deferred, hookimpl


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return [Deferred("sip-ring", "sipml_ring.topology:SipRing")]


@hookimpl
def sipml_schedulers() -> list[Deferred]:
    classes = {"ring-fast": "RingFast", "ring-ilp": "RingIlp", "ring-mcf": "RingMcf"}
    return Deferred.of("sipml_ring.ringschedulers", classes)
