"""What became of every job of a shared cluster."""

from __future__ import annotations

from sipml_core.fields import frozen
from sipml_core.model import INFEASIBLE, OK

__all__ = ["INFEASIBLE", "OK", "JobRow", "NetworkSummary", "SharedResult"]


@frozen(kw_only=True)
class JobRow:
    """One job on one network. Times are None where it did not run."""

    topology: str
    job: str
    workload: str
    gpus: int
    iterations: int
    arrival_us: float
    start_us: float | None = None
    end_us: float | None = None
    #: One iteration: on an empty cluster, alone on the GPUs that it got, and as it ran, in the mean. [us]
    alone_us: float | None = None
    placed_us: float | None = None
    iteration_us: float | None = None
    #: Ranges of consecutive GPUs that it got, such as "0-7 12".
    gpus_at: str = ""
    status: str = OK
    reason: str = ""

    @property
    def waited_us(self) -> float | None:
        """Return the time between arrival and start. [us]"""
        return None if self.start_us is None else self.start_us - self.arrival_us

    @property
    def slowdown(self) -> float | None:
        """Return the time of an iteration over that on an empty cluster."""
        return None if self.iteration_us is None or not self.alone_us else self.iteration_us / self.alone_us


@frozen(kw_only=True)
class NetworkSummary:
    """All jobs on one network."""

    topology: str
    #: Until the last job ended. [us]
    makespan_us: float
    #: Part of all GPU time until then that jobs had.
    utilisation: float
    #: Part of the free GPUs that lie outside the longest run of free ones, mean over time.
    fragmentation: float
    #: Means over jobs that ran. [us]
    waited_us: float
    slowdown: float
    slowest: float
    #: Jobs that did not run.
    infeasible: int
    #: Groups of jobs that were simulated together.
    simulated_together: int


@frozen(kw_only=True, eq=False)
class SharedResult:
    """A row for each job on each network, and a summary of each network."""

    title: str
    allocator: str
    rows: tuple[JobRow, ...]
    summaries: tuple[NetworkSummary, ...]
