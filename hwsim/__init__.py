"""hwsim: micro-ring resonators and TeraPHY ports, microsecond by microsecond.

Useful alone, and the source of the reconfiguration time that a ring of silicon-photonic ports pays. See
``docs/hwsim.md``.
"""

from hwsim.bank import RingBank
from hwsim.bench import RetuneBench, RetuneStages, RetuneTrace, bench_of_grid
from hwsim.budget import LinkBudget
from hwsim.design import ControlLaw, RingDesign
from hwsim.errors import HwsimError
from hwsim.eventlog import Event, EventLog
from hwsim.faults import AmbientRamp, DeadHeater, MissingLine, StuckRing
from hwsim.grid import GRIDS, WdmGrid
from hwsim.lanes import LinkTiming, State
from hwsim.msa_rings import RADIUS_UM, ring_design, ring_of_radius
from hwsim.phy import TeraPhy, advance_together
from hwsim.retune import hop_between_ghz, retune_stages, retune_time_us, retune_trace

__all__ = [
    "GRIDS",
    "RADIUS_UM",
    "AmbientRamp",
    "ControlLaw",
    "DeadHeater",
    "Event",
    "EventLog",
    "HwsimError",
    "LinkBudget",
    "LinkTiming",
    "MissingLine",
    "RetuneBench",
    "RetuneStages",
    "RetuneTrace",
    "RingBank",
    "RingDesign",
    "State",
    "StuckRing",
    "TeraPhy",
    "WdmGrid",
    "advance_together",
    "bench_of_grid",
    "hop_between_ghz",
    "retune_stages",
    "retune_time_us",
    "retune_trace",
    "ring_design",
    "ring_of_radius",
]
