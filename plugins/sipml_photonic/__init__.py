"""Photonic networks larger than one ring or one switch, or beside packets; see docs/photonic.md."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked
from sipml_core.plugin import Deferred, hookimpl

if TYPE_CHECKING:
    from sipml_photonic.bcube import SipOcsBcube
    from sipml_photonic.clos import ClosExact, SipOcsClos
    from sipml_photonic.hybrid import Hybrid
    from sipml_photonic.khop import KhopMatching, SipKhop
    from sipml_photonic.rails import SipRails
    from sipml_photonic.ring2d import SipRing2d

__getattr__ = files_when_asked(
    __name__,
    {
        "bcube": ("SipOcsBcube",),
        "clos": ("ClosExact", "SipOcsClos"),
        "hybrid": ("Hybrid",),
        "khop": ("KhopMatching", "SipKhop"),
        "rails": ("SipRails",),
        "ring2d": ("SipRing2d",),
    },
)

__all__ = [
    "ClosExact", "Hybrid", "KhopMatching", "SipKhop", "SipOcsBcube", "SipOcsClos", "SipRails", "SipRing2d",
]  # fmt: skip


@hookimpl
def sipml_topologies() -> list[Deferred]:
    classes = {
        "sip-ring-2d": "SipRing2d",
        "sip-ocs-clos": "SipOcsClos",
        "sip-ocs-bcube": "SipOcsBcube",
        "sip-rails": "SipRails",
        "sip-khop": "SipKhop",
        "hybrid": "Hybrid",
    }
    return Deferred.of("sipml_photonic", classes)


@hookimpl
def sipml_schedulers() -> list[Deferred]:
    return Deferred.of("sipml_photonic", {"clos-exact": "ClosExact", "khop-matching": "KhopMatching"})
