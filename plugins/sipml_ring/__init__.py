"""SiP-Ring: GPUs on a ring of fibres, circuits by wavelength. `plan` works on its own."""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_ring.circuits import RingCircuits
    from sipml_ring.ring_plan import RingPlan
    from sipml_ring.ring_planning import plan

__getattr__ = files_when_asked(
    __name__, {"circuits": ("RingCircuits",), "ring_plan": ("RingPlan",), "ring_planning": ("plan",)}
)

__all__ = ["RingCircuits", "RingPlan", "plan"]
