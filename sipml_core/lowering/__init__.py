"""From a placement to the tasks of the whole job: compute, transfers, collectives; memory; folding.

In: a `Placement`, a `Plan`, a `Cluster`. Out: a `TaskGraph` of all GPUs, or of those that stand for all; or
`RelayedTasks`, in which a transfer that is passed on is one for all of its legs.
Imports `placement` and what is below it.
"""

from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.collectives import Rings, all_reduce_bytes
from sipml_core.lowering.folding import Folded, NoSymmetryError, Pairs, Symmetry, symmetry
from sipml_core.lowering.forwarding import Forwarding, GridForwarding, RingForwarding
from sipml_core.lowering.grouptasks import GroupTasks
from sipml_core.lowering.grouptemplate import GroupTemplate, TrafficBytes
from sipml_core.lowering.joblowering import Lowering
from sipml_core.lowering.memory import MemoryUse
from sipml_core.lowering.memorycheck import check_memory, check_parameters, memory_need
from sipml_core.lowering.resending import replica_tasks
from sipml_core.lowering.schedules import Pass, most_in_flight, schedule
from sipml_core.lowering.synchronisation import Synchronisation, replicas_in_server
from sipml_core.lowering.taskorigins import TaskOrigins, task_origins
from sipml_core.lowering.treesteps import Trees

__all__ = [
    "Folded",
    "Forwarding",
    "GridForwarding",
    "GroupTasks",
    "GroupTemplate",
    "Library",
    "Lowering",
    "MemoryUse",
    "NoSymmetryError",
    "Pairs",
    "Pass",
    "RingForwarding",
    "Rings",
    "Symmetry",
    "Synchronisation",
    "TaskOrigins",
    "TrafficBytes",
    "Trees",
    "all_reduce_bytes",
    "check_memory",
    "check_parameters",
    "memory_need",
    "most_in_flight",
    "replica_tasks",
    "replicas_in_server",
    "schedule",
    "symmetry",
    "task_origins",
]
