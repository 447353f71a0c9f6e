"""SiP-Ring: GPUs on a ring of fibres, circuits by wavelength. `plan` works on its own."""

from sipml_ring.circuits import RingCircuits
from sipml_ring.planning import plan
from sipml_ring.ringplan import RingPlan

__all__ = ["RingCircuits", "RingPlan", "plan"]
