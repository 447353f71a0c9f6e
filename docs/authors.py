"""What authors of plugins may import: the names that `docs/plugins/api.md` lists, by room."""

from __future__ import annotations

#: Module of sipml_core -> what it is for, and its names.
FOR_AUTHORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plugin": (
        "The interfaces to subclass, and the mark of a hook.",
        (
            "API_VERSION", "AllReduce", "Allocator", "Communication", "Component", "Convergence",
            "DemandForecast",
            "Estimator", "Exchange", "GpuModel", "Placer", "Scheduler", "Topology", "Workload", "hookimpl",
            "load",
        ),
    ),
    "model": (
        "The values that pass between sipml and a plugin.",
        (
            "BARRIER", "MAX_GPUS", "MAX_SAMPLES", "NO_LINK", "PRECISIONS", "Axis", "BalancedGraph",
            "COLLECTIVE_KINDS", "CaseResult", "CircuitControl", "CircuitOccupancy", "CircuitPlan", "Cluster",
            "CollectiveCall",
            "CollectiveCost", "Fabric", "FabricHints", "FabricWords",
            "GroupShape", "MatrixProduct", "Network", "Nodes", "Op", "OpGraph", "OpWork", "Operand",
            "PairArray", "PairIndex", "Phase", "Placement", "PlacementLimits", "Plan", "Precision",
            "ReplicaShape", "Result", "Role",
            "Routes", "Split", "TaskBuilder", "TaskGraph", "Tensor", "Timeline", "TrafficMatrix",
            "check_form", "check_routes", "hashed_choice", "op_work", "precision", "sorted_unique",
        ),
    ),
    "fields": (
        "Options: what a key of a TOML table is, in which unit, and what it may be.",
        (
            "BYTES_PER_US_PER_GBPS", "at_least", "between", "bool_vector", "each", "file_path",
            "float64_matrix", "float64_vector", "format_bytes", "format_gbps", "format_us", "int32_matrix",
            "int32_vector", "int64_matrix", "int64_vector", "one_of", "option", "parse_bytes", "parse_gbps",
            "parse_us", "positive", "read_table", "read_toml",
        ),
    ),
    "errors": (
        "What to raise: one line that names the key, the value and a remedy.",
        (
            "ConfigError", "InfeasibleError", "PluginError", "SipmlError", "brief", "nearest", "shown",
            "unknown",
        ),
    ),
    "workloads": (
        "Layers from which a model is built; backward and optimizer ops are derived.",
        ("GraphBuilder", "layers", "training_step"),
    ),
    "scheduling": (
        "Circuits planned as the core plans them: checked, with what stays lit.",
        ("planned", "port_bound", "refuse_control"),
    ),
    "scheduling.programme": ("Integer programmes, solved by HiGHS.", ("Entries", "Solution", "maximise")),
    "testing": (
        "Suites of laws to subclass in a test file: see [laws](laws.md).",
        (
            "AllReduceConformance", "AllocatorConformance", "CommunicationConformance",
            "EstimatorConformance",
            "ExchangeConformance", "GpuModelConformance", "LawBroken", "PlacerConformance",
            "SchedulerConformance", "TopologyConformance", "WorkloadConformance",
        ),
    ),
}  # fmt: skip

#: Of them, what few plugins need: see docs/plugins/advanced.md.
ADVANCED = {
    "model": (
        "CircuitPart",
        "CircuitParts",
        "CircuitView",
        "FoldableControl",
        "PartsPlan",
        "SharedMedia",
        "TreatsAlike",
        "UnsharedFabric",
    ),
    "plugin": ("Deferred", "installed"),
    "lazy": ("files_when_asked",),
}
