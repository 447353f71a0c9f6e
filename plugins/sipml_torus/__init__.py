"""Tori: `torus`, of fixed links, and `sip-torus`, of cubes that circuit switches join for a job."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked
from sipml_core.plugin import Deferred, hookimpl

if TYPE_CHECKING:
    from sipml_torus.cubes import SipTorus
    from sipml_torus.torus import Torus

__getattr__ = files_when_asked(__name__, {"cubes": ("SipTorus",), "torus": ("Torus",)})

__all__ = ["SipTorus", "Torus"]


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return Deferred.of("sipml_torus", {"torus": "Torus", "sip-torus": "SipTorus"})
