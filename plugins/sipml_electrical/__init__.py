"""Electrical networks of today: `fat-tree`, `dgx` and `dragonfly`, routed as packets are."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked
from sipml_core.plugin import Deferred, hookimpl

if TYPE_CHECKING:
    from sipml_electrical.dgx import Dgx
    from sipml_electrical.dragonfly import Dragonfly
    from sipml_electrical.fattree import FatTree

__getattr__ = files_when_asked(
    __name__, {"dgx": ("Dgx",), "dragonfly": ("Dragonfly",), "fattree": ("FatTree",)}
)

__all__ = ["Dgx", "Dragonfly", "FatTree"]


@hookimpl
def sipml_topologies() -> list[Deferred]:
    return Deferred.of("sipml_electrical", {"fat-tree": "FatTree", "dgx": "Dgx", "dragonfly": "Dragonfly"})
