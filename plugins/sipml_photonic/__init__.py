"""Photonic networks larger than one ring or one switch, or beside packets; see docs/photonic.md."""

from sipml_core.plugin import Scheduler, Topology, hookimpl
from sipml_photonic.bcube import SipOcsBcube
from sipml_photonic.clos import ClosExact, SipOcsClos
from sipml_photonic.hybrid import Hybrid
from sipml_photonic.khop import KhopMatching, SipKhop
from sipml_photonic.rails import SipRails
from sipml_photonic.ring2d import SipRing2d

__all__ = [
    "ClosExact", "Hybrid", "KhopMatching", "SipKhop", "SipOcsBcube", "SipOcsClos", "SipRails", "SipRing2d",
]  # fmt: skip


@hookimpl
def sipml_topologies() -> list[type[Topology]]:
    return [SipRing2d, SipOcsClos, SipOcsBcube, SipRails, SipKhop, Hybrid]


@hookimpl
def sipml_schedulers() -> list[type[Scheduler]]:
    return [ClosExact, KhopMatching]
