"""The steps of one case in order, and which plans to try.

In: an `Experiment`. Out: a `CaseResult` for each workload on each interconnect.
Imports every step of the road; files that `run` does not need only when something of them is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.cases.accounting import options_text
from sipml_core.cases.candidates import Candidate, run_candidates, search_candidates
from sipml_core.cases.case import Case
from sipml_core.cases.clock import Clock
from sipml_core.cases.comparing import Attempt, Comparison, comparisons, outcome_of
from sipml_core.cases.compilation import CaseTraffic, case_layouts, case_traffic, compile_case
from sipml_core.cases.culprits import blamed
from sipml_core.cases.goals import ACCURACY, Goal, goal_of
from sipml_core.cases.preparation import CompiledCase, PreparedCase, jobs_kept, prepared_variant
from sipml_core.cases.provenance import hashes_of_files, package_versions, versions
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.running import ExperimentRun, run_experiment, with_speedups
from sipml_core.cases.simulating import (
    SimulatedCase,
    components,
    fastest_prepared,
    prepared_variants,
    simulate_case,
    simulate_variants,
)
from sipml_core.cases.steps import balanced_graph, model_parts, op_graph, op_layout, op_times_us, slice_times
from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.cases.checking import check_experiment
    from sipml_core.cases.collectiveruns import CollectiveBench, CollectiveTime, bus_factor
    from sipml_core.cases.planning import plan_circuits
    from sipml_core.cases.remedies import Gain, case_of, gains

__getattr__ = files_when_asked(
    __name__,
    {
        "checking": ("check_experiment",),
        "collectiveruns": ("CollectiveBench", "CollectiveTime", "bus_factor"),
        "planning": ("plan_circuits",),
        "remedies": ("Gain", "case_of", "gains"),
    },
)

__all__ = [
    "ACCURACY",
    "Attempt",
    "Candidate",
    "Case",
    "CaseTraffic",
    "Clock",
    "CollectiveBench",
    "CollectiveTime",
    "Comparison",
    "CompiledCase",
    "ExperimentRun",
    "Gain",
    "Goal",
    "PreparedCase",
    "Reuse",
    "SimulatedCase",
    "balanced_graph",
    "blamed",
    "bus_factor",
    "case_layouts",
    "case_of",
    "case_traffic",
    "check_experiment",
    "comparisons",
    "compile_case",
    "components",
    "fastest_prepared",
    "gains",
    "goal_of",
    "hashes_of_files",
    "jobs_kept",
    "model_parts",
    "op_graph",
    "op_layout",
    "op_times_us",
    "options_text",
    "outcome_of",
    "package_versions",
    "plan_circuits",
    "prepared_variant",
    "prepared_variants",
    "run_candidates",
    "run_experiment",
    "search_candidates",
    "simulate_case",
    "simulate_variants",
    "slice_times",
    "versions",
    "with_speedups",
]
