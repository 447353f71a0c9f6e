"""SiP-Ring: GPUs on a ring of fibres, circuits by wavelength. `plan` works on its own."""

from sipml_ring.circuits import RingCircuits
from sipml_ring.ring_plan import RingPlan
from sipml_ring.ring_planning import plan

__all__ = ["RingCircuits", "RingPlan", "plan"]
