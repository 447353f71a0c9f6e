"""Tori: `torus`, of fixed links, and `sip-torus`, of cubes that circuit switches join for a job."""

from sipml_core.plugin import Topology, hookimpl
from sipml_torus.cubes import SipTorus
from sipml_torus.torus import Torus

__all__ = ["SipTorus", "Torus"]


@hookimpl
def sipml_topologies() -> list[type[Topology]]:
    return [Torus, SipTorus]
