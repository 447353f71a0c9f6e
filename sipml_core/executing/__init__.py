"""Where independent pieces of work are done: here, in processes, on a Dask or Slurm cluster, or in shards.

In: a function and what to call it with. Out: each value, as it comes.
Imports `plugin` and what is below it; knows nothing of experiments.
"""

from sipml_core.executing.choosing import executor_for
from sipml_core.executing.executors import (
    DIED,
    Executor,
    InThisProcess,
    Probe,
    WorkerProcesses,
    refuse_stranger,
)
from sipml_core.executing.shards import Shard

__all__ = [
    "DIED",
    "Executor",
    "InThisProcess",
    "Probe",
    "Shard",
    "WorkerProcesses",
    "executor_for",
    "refuse_stranger",
]
