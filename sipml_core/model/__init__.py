"""The nouns of the field: graphs, clusters, plans, fabrics, traffic, circuits, tasks, timelines, results.

In: arrays and numbers. Out: frozen values that check themselves; nothing here reads or writes files.
Imports only `fields` and `errors`.
"""

from sipml_core.model.advanced import FoldableControl, TreatsAlike, UnsharedFabric
from sipml_core.model.balanced import MAX_RANK, BalancedGraph, Placement, PlacementLimits
from sipml_core.model.caserecord import PASS_KINDS, TRAFFIC_KINDS, CaseRecord, CircuitDecision, Images
from sipml_core.model.circuits import CircuitControl, CircuitOccupancy, CircuitPlan, at_rows, check_form
from sipml_core.model.cluster import MAX_GPUS, Cluster
from sipml_core.model.fabric import Fabric
from sipml_core.model.groupshape import GroupShape, LinkTable, ReplicaShape
from sipml_core.model.hashing import hashed_choice
from sipml_core.model.hints import FabricHints, FabricWords
from sipml_core.model.network import Network, check_routes, refuse_excess
from sipml_core.model.opgraph import MAX_SAMPLES, Axis, Op, Operand, OpGraph, Phase, Role, Split, Tensor
from sipml_core.model.opwork import OpWork, op_work
from sipml_core.model.pairs import PairIndex, sorted_unique
from sipml_core.model.plan import RECOMPUTE, SCHEDULES, Execution, Plan, recompute_level
from sipml_core.model.precisions import PRECISIONS, Precision, precision
from sipml_core.model.prices import Prices
from sipml_core.model.progress import SILENT, Progress
from sipml_core.model.results import FAILED, INFEASIBLE, OK, UNFINISHED, CaseResult, Result
from sipml_core.model.routes import NO_LINK, PairArray, Routes
from sipml_core.model.taskbuilder import Nodes, TaskBuilder
from sipml_core.model.taskgraph import BARRIER, TaskGraph
from sipml_core.model.timeline import LinkSamples, Timeline, TransferTimes
from sipml_core.model.traffic import TrafficMatrix

__all__ = [
    "BARRIER",
    "FAILED",
    "INFEASIBLE",
    "MAX_GPUS",
    "MAX_RANK",
    "MAX_SAMPLES",
    "NO_LINK",
    "OK",
    "PASS_KINDS",
    "PRECISIONS",
    "RECOMPUTE",
    "SCHEDULES",
    "SILENT",
    "TRAFFIC_KINDS",
    "UNFINISHED",
    "Axis",
    "BalancedGraph",
    "CaseRecord",
    "CaseResult",
    "CircuitControl",
    "CircuitDecision",
    "CircuitOccupancy",
    "CircuitPlan",
    "Cluster",
    "Execution",
    "Fabric",
    "FabricHints",
    "FabricWords",
    "FoldableControl",
    "GroupShape",
    "Images",
    "LinkSamples",
    "LinkTable",
    "Network",
    "Nodes",
    "Op",
    "OpGraph",
    "OpWork",
    "Operand",
    "PairArray",
    "PairIndex",
    "Phase",
    "Placement",
    "PlacementLimits",
    "Plan",
    "Precision",
    "Prices",
    "Progress",
    "ReplicaShape",
    "Result",
    "Role",
    "Routes",
    "Split",
    "TaskBuilder",
    "TaskGraph",
    "Tensor",
    "Timeline",
    "TrafficMatrix",
    "TransferTimes",
    "TreatsAlike",
    "UnsharedFabric",
    "at_rows",
    "check_form",
    "check_routes",
    "hashed_choice",
    "op_work",
    "precision",
    "recompute_level",
    "refuse_excess",
    "sorted_unique",
]
