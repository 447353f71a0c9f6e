"""The steps of one case in order, and which plans to try.

In: an `Experiment`. Out: a `CaseResult` for each workload on each interconnect.
Imports every step of the road.
"""

from sipml_core.cases.candidates import Candidate, search_candidates
from sipml_core.cases.compiler import CaseTraffic, Compiler
from sipml_core.cases.planning import plan_circuits
from sipml_core.cases.running import (
    Clock,
    check_experiment,
    run_experiment,
    simulate_candidate,
    simulate_case,
)

__all__ = [
    "Candidate",
    "CaseTraffic",
    "Clock",
    "Compiler",
    "check_experiment",
    "plan_circuits",
    "run_experiment",
    "search_candidates",
    "simulate_candidate",
    "simulate_case",
]
