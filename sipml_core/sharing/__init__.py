"""Many jobs on one cluster: who waits, who gets which GPUs, and how much jobs slow each other.

In: a file with [[job]] tables. Out: a `SharedResult`, a row for each job.
Imports `cases` and what is below it; never `searching`.
"""

from sipml_core.sharing.clusterrun import run_shared
from sipml_core.sharing.fragmentation import (
    SettingRow,
    SharingVerdict,
    carry_out_fragmentation,
    fragmentation_study,
    verdicts_on_sharing,
)
from sipml_core.sharing.jobtables import SharedExperiment, open_shared
from sipml_core.sharing.sharedresult import JobRow, SharedResult

__all__ = [
    "JobRow",
    "SettingRow",
    "SharedExperiment",
    "SharedResult",
    "SharingVerdict",
    "carry_out_fragmentation",
    "fragmentation_study",
    "open_shared",
    "run_shared",
    "verdicts_on_sharing",
]
