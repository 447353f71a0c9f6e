"""Rotor switches: a network that changes all the time, and asks nobody what is needed.

Each of R switches steps through a fixed cycle of matchings, so every pair of GPUs is joined
for a short while again and again (RotorNet, Mellette et al., SIGCOMM 2017; Opera, NSDI 2020).
Here bytes wait for their own circuit: there is no forwarding through a third GPU.
"""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, option, parse_us, positive
from sipml_core.model import CircuitControl, CircuitPlan, Cluster, Fabric
from sipml_core.plugin import Scheduler, Topology


@attrs.frozen(kw_only=True, eq=False)
class RotorControl(CircuitControl):
    """R = `circuits_per_gpu` switches. Matching k joins every GPU i to GPU i + k, k = 1 .. N-1."""

    def circuits(self, slot: int) -> np.ndarray:
        """Circuits from every GPU to the one k places on: the next R matchings of the cycle. [N]"""
        turn = slot * self.circuits_per_gpu + np.arange(self.circuits_per_gpu)
        return np.bincount(1 + turn % (self.gpus - 1), minlength=self.gpus)


@attrs.frozen(kw_only=True, eq=False)
class RotorPlan(CircuitPlan):
    """The circuits of one slot."""

    slot: int


class RotorCycle(Scheduler):
    """Steps through the matchings; the traffic plays no part.

    While nothing is sent and nothing waits, the engine asks for no plan and the rotors stand still.
    """

    name = "rotor-cycle"
    summary = "a fixed cycle of matchings, whatever the traffic"
    plans = RotorControl

    def plan(self, control, traffic, previous):
        slot = previous.slot + 1 if isinstance(previous, RotorPlan) else 0
        circuits = control.circuits(slot)
        src, dst = np.divmod(np.arange(control.gpus**2), control.gpus)
        places_on = (dst - src) % control.gpus
        src, dst, places_on = (pairs[circuits[places_on] > 0] for pairs in (src, dst, places_on))
        gbps = circuits[places_on] * control.circuit_gbps
        return RotorPlan(gpus=control.gpus, src=src, dst=dst, gbps=gbps, slot=slot)


class Rotor(Topology):
    """Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what it receives on; a circuit in between."""

    name = "rotor"
    summary = "rotor switches: each GPU has R circuits of B/R that step through all peers"
    scheduler = "rotor-cycle"

    @attrs.frozen(kw_only=True)
    class Options:
        rotors: int = option(
            4, doc="rotor switches; a GPU has a link of B / rotors to each", validator=at_least(1)
        )
        slot_us: float = option(
            100.0, doc="time from one matching to the next, reconfiguration included", unit="us",
            converter=parse_us, validator=positive,
        )  # fmt: skip
        reconfiguration_us: float = option(
            10.0, doc="time a circuit is dark after each step (RotorNet: 10 us)", unit="us",
            converter=parse_us, validator=at_least(0),
        )  # fmt: skip

        def __attrs_post_init__(self):
            if self.slot_us <= self.reconfiguration_us:
                raise ConfigError(
                    f"slot_us must exceed reconfiguration_us = {self.reconfiguration_us:g}, "
                    f"got {self.slot_us:g}"
                )

    def build(self, cluster: Cluster) -> Fabric:
        gpus, options = cluster.gpus, self.options
        if gpus < 2:
            raise ConfigError(f"cluster.gpus must be at least 2 for topology 'rotor', got {gpus}")

        control = RotorControl(
            gpus=gpus,
            circuit_gbps=cluster.bandwidth_gbps / options.rotors,
            circuits_per_gpu=options.rotors,
            interval_us=options.slot_us,
            reconfiguration_us=options.reconfiguration_us,
        )
        return Fabric.with_ports(circuits=control, port_gbps=cluster.bandwidth_gbps)
