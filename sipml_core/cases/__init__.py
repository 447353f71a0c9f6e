"""The steps of one case in order, and which plans to try.

In: an `Experiment`. Out: a `CaseResult` for each workload on each interconnect.
Imports every step of the road.
"""

from sipml_core.cases.candidates import Candidate, search_candidates
from sipml_core.cases.case import Case
from sipml_core.cases.compilation import CaseTraffic, case_traffic, compile_case
from sipml_core.cases.planning import plan_circuits
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.running import (
    Clock,
    check_experiment,
    run_experiment,
    simulate_case,
    simulate_variants,
)
from sipml_core.cases.steps import balanced_graph, op_graph, op_layout

__all__ = [
    "Candidate",
    "Case",
    "CaseTraffic",
    "Clock",
    "Reuse",
    "balanced_graph",
    "case_traffic",
    "check_experiment",
    "compile_case",
    "op_graph",
    "op_layout",
    "plan_circuits",
    "run_experiment",
    "search_candidates",
    "simulate_case",
    "simulate_variants",
]
