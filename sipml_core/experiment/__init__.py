"""From a TOML file to an `Experiment` whose every value is checked.

In: a path or tables, overrides, and a `Registry`. Out: an `Experiment`, or one line that says what is wrong.
Imports `plugin` and what is below it; never the simulator.
"""

from sipml_core.experiment.model import (
    CommunicationTable,
    EngineTable,
    Experiment,
    GpuTable,
    Interconnect,
    Job,
    SearchTable,
    StrategyTable,
    TopologyTable,
    WorkloadTable,
    divisors,
)
from sipml_core.experiment.opening import open_experiment
from sipml_core.experiment.overrides import apply_overrides, apply_values, override_value
from sipml_core.experiment.reading import (
    EXPERIMENT_KEYS,
    SHARED_KEYS,
    read_communication,
    read_experiment,
    read_interconnect,
    read_tables,
)
from sipml_core.experiment.resolving import components_of, files_of, resolved_tables
from sipml_core.experiment.structure import refuse_unknown_keys, structure

__all__ = [
    "EXPERIMENT_KEYS",
    "SHARED_KEYS",
    "CommunicationTable",
    "EngineTable",
    "Experiment",
    "GpuTable",
    "Interconnect",
    "Job",
    "SearchTable",
    "StrategyTable",
    "TopologyTable",
    "WorkloadTable",
    "apply_overrides",
    "apply_values",
    "components_of",
    "divisors",
    "files_of",
    "open_experiment",
    "override_value",
    "read_communication",
    "read_experiment",
    "read_interconnect",
    "read_tables",
    "refuse_unknown_keys",
    "resolved_tables",
    "structure",
]
