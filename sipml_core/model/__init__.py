"""The nouns of the field: graphs, clusters, plans, fabrics, traffic, circuits, tasks, timelines, results.

In: arrays and numbers. Out: frozen values that check themselves; nothing here reads or writes files.
Imports only `fields` and `errors`.
"""

from sipml_core.model.advanced import FoldableControl, TreatsAlike, UnsharedFabric
from sipml_core.model.balanced import MAX_RANK, BalancedGraph, Placement, PlacementLimits
from sipml_core.model.caserecord import PASS_KINDS, CaseRecord, CircuitDecision, Images
from sipml_core.model.circuitparts import CircuitPart, CircuitParts, PartsPlan
from sipml_core.model.circuits import (
    CircuitControl,
    CircuitOccupancy,
    CircuitPlan,
    SharedMedia,
    at_rows,
    check_form,
    finite_not_negative,
)
from sipml_core.model.circuitview import CircuitView, ViewPlan, job_circuits
from sipml_core.model.cluster import MAX_GPUS, Cluster
from sipml_core.model.collectivecalls import COLLECTIVE_KINDS, CollectiveCall, CollectiveCost
from sipml_core.model.execution import RECOMPUTE, SCHEDULES, Execution, recompute_level
from sipml_core.model.fabric import Fabric
from sipml_core.model.framework import Framework
from sipml_core.model.groupshape import GroupShape, LinkTable, ReplicaShape, torus_filled
from sipml_core.model.hashing import hashed_choice
from sipml_core.model.hints import FabricHints, FabricWords
from sipml_core.model.modelflops import ModelFlops
from sipml_core.model.network import Network, check_routes, refuse_excess
from sipml_core.model.opgraph import (
    MAX_SAMPLES,
    Axis,
    Exchanged,
    Op,
    Operand,
    OpGraph,
    Phase,
    Role,
    Split,
    Tensor,
)
from sipml_core.model.opwork import MatrixProduct, OpWork, op_work, region_elements
from sipml_core.model.pairs import PairIndex, parts_of, ranges, sorted_unique
from sipml_core.model.plan import Plan
from sipml_core.model.precisions import PRECISIONS, Precision, precision
from sipml_core.model.prices import Prices
from sipml_core.model.progress import SILENT, Progress
from sipml_core.model.relayedtasks import NO_WAY, RelayedTasks, Ways
from sipml_core.model.results import (
    FAILED,
    HOST,
    INFEASIBLE,
    LANGUAGE,
    OK,
    ROUNDS,
    UNFINISHED,
    CaseResult,
    Result,
)
from sipml_core.model.routes import NO_LINK, PairArray, Routes
from sipml_core.model.taskbuilder import Nodes, TaskBuilder
from sipml_core.model.taskgraph import BARRIER, TaskGraph, transfer_name
from sipml_core.model.timeline import LinkSamples, Timeline, TransferTimes
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.model.traffickinds import CONTEXT, EXPERT, GRADIENT, PIPELINE, TENSOR, TRAFFIC_KINDS

__all__ = [
    "BARRIER",
    "COLLECTIVE_KINDS",
    "CONTEXT",
    "EXPERT",
    "FAILED",
    "GRADIENT",
    "HOST",
    "INFEASIBLE",
    "LANGUAGE",
    "MAX_GPUS",
    "MAX_RANK",
    "MAX_SAMPLES",
    "NO_LINK",
    "NO_WAY",
    "OK",
    "PASS_KINDS",
    "PIPELINE",
    "PRECISIONS",
    "RECOMPUTE",
    "ROUNDS",
    "SCHEDULES",
    "SILENT",
    "TENSOR",
    "TRAFFIC_KINDS",
    "UNFINISHED",
    "Axis",
    "BalancedGraph",
    "CaseRecord",
    "CaseResult",
    "CircuitControl",
    "CircuitDecision",
    "CircuitOccupancy",
    "CircuitPart",
    "CircuitParts",
    "CircuitPlan",
    "CircuitView",
    "Cluster",
    "CollectiveCall",
    "CollectiveCost",
    "Exchanged",
    "Execution",
    "Fabric",
    "FabricHints",
    "FabricWords",
    "FoldableControl",
    "Framework",
    "GroupShape",
    "Images",
    "LinkSamples",
    "LinkTable",
    "MatrixProduct",
    "ModelFlops",
    "Network",
    "Nodes",
    "Op",
    "OpGraph",
    "OpWork",
    "Operand",
    "PairArray",
    "PairIndex",
    "PartsPlan",
    "Phase",
    "Placement",
    "PlacementLimits",
    "Plan",
    "Precision",
    "Prices",
    "Progress",
    "RelayedTasks",
    "ReplicaShape",
    "Result",
    "Role",
    "Routes",
    "SharedMedia",
    "Split",
    "TaskBuilder",
    "TaskGraph",
    "Tensor",
    "Timeline",
    "TrafficMatrix",
    "TransferTimes",
    "TreatsAlike",
    "UnsharedFabric",
    "ViewPlan",
    "Ways",
    "at_rows",
    "check_form",
    "check_routes",
    "finite_not_negative",
    "hashed_choice",
    "job_circuits",
    "op_work",
    "parts_of",
    "precision",
    "ranges",
    "recompute_level",
    "refuse_excess",
    "region_elements",
    "sorted_unique",
    "torus_filled",
    "transfer_name",
]
