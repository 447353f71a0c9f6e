"""From traffic to circuits: the driver asked at each decision instant, relays, matrices.

In: traffic that was sent or waits. Out: a `CircuitPlan` made by a scheduler, as capacities for the engine.
Imports `engine`, `plugin` and what is below them.
"""

from sipml_core.scheduling.circuittraffic import circuit_traffic
from sipml_core.scheduling.demandrules import BYTES, GATING, DemandRule, rules_to_try
from sipml_core.scheduling.driver import (
    ScheduledCircuits,
    crowded,
    fewest_circuits,
    job_bytes,
    planned,
    refuse_control,
    refuse_unserved,
    unserved_pairs,
)
from sipml_core.scheduling.driving import driven
from sipml_core.scheduling.jobphases import TransferParts
from sipml_core.scheduling.matrix import read_matrix, refuse_out_of_reach
from sipml_core.scheduling.phasedcircuits import PhasedCircuits
from sipml_core.scheduling.portbound import port_bound
from sipml_core.scheduling.relay import with_relays

__all__ = [
    "BYTES",
    "GATING",
    "DemandRule",
    "PhasedCircuits",
    "ScheduledCircuits",
    "TransferParts",
    "circuit_traffic",
    "crowded",
    "driven",
    "fewest_circuits",
    "job_bytes",
    "planned",
    "port_bound",
    "read_matrix",
    "refuse_control",
    "refuse_out_of_reach",
    "refuse_unserved",
    "rules_to_try",
    "unserved_pairs",
    "with_relays",
]
