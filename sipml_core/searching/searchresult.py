"""What a search reports: every candidate, estimated and, the best few, simulated."""

from __future__ import annotations

from typing import Any

import attrs

from sipml_core.fields import frozen
from sipml_core.model import CaseResult

#: Part of a GPU's memory from which a candidate is marked as being at the limit.
TIGHT_MEMORY = 0.95


def _column(doc: str, unit: str = "", default: Any = attrs.NOTHING) -> Any:
    return attrs.field(default=default, metadata={"doc": doc, "unit": unit})


@frozen(kw_only=True)
class SearchRow:
    """One candidate on one interconnect. The fields are the columns of search.csv."""

    workload: str = _column("model that is trained")
    topology: str = _column("interconnect, as labelled in the experiment")
    options: str = _column("options of the interconnect, defaults included", default="")
    gpus: int = _column("GPUs in the cluster")
    bandwidth_gbps: float = _column("network bandwidth of one GPU, each direction", "Gbps")
    mp: int = _column("model-parallel degree")
    dp: int = _column("data-parallel degree")
    global_batch: int = _column("samples in one iteration, all replicas together")
    layout: str = _column("how ops are cut")
    placer: str = _column("how sub-ops are placed")
    status: str = _column("simulated, estimated, infeasible, or left out: something else made it needless")
    best: bool = _column("least simulated time-to-accuracy of this workload on this interconnect")
    estimate_us: float | None = _column("time of one iteration by the estimate", "us")
    iteration_us: float | None = _column("time of one iteration, simulated", "us")
    one_round_us: float | None = _column(
        "the same with the fastest layout of the first round, where layout and circuits were chosen in turn",
        "us", default=None,
    )  # fmt: skip
    error: float | None = _column("estimate over simulation, less 1")
    goal: str = _column(
        "what the training works towards: accuracy, or a number of tokens", default="accuracy"
    )
    steps_to_accuracy: float | None = _column("iterations to the target accuracy, where it was measured")
    estimate_s: float | None = _column("time to the goal by the estimate", "s")
    time_to_accuracy_s: float | None = _column("time-to-accuracy, simulated", "s")
    time_to_goal_s: float | None = _column("time to the goal, accuracy or not, simulated", "s")
    all_reduce: str = _column("algorithm that synchronises gradients: one flat ring, or two-tier")
    exchange: str = _column("how a group exchanges: direct, or from device to device along a chain")
    memory_bytes: float | None = _column("device memory the fullest GPU needs", "bytes")
    extrapolated: bool = _column("the batch lies outside the measured convergence data")
    tight_memory: bool = _column(f"needs more than {TIGHT_MEMORY:.0%} of the device memory")
    reason: str = _column("why it is infeasible, with the numbers")
    pp: int = _column("pipeline stages of a replica", default=1)
    micro_batch: int | None = _column("samples that a replica passes through at once", default=None)
    schedule: str = _column("order of the passes of a stage; empty where there is one stage", default="")
    zero: int = _column("what replicas share, see summary.csv", default=0)
    recompute: str = _column("what is made again while going backward", default="none")
    bubble: float | None = _column("part of an iteration that GPUs wait for their pipeline", default=None)
    further: bool = _column(
        "simulated after the `top` best by the estimate, for its estimate beat the best of those simulated",
        default=False,
    )


@frozen(kw_only=True)
class SearchResult:
    """A finished search."""

    title: str
    seed: int
    version: str
    baseline: str
    #: The resolved configuration, as plain tables.
    experiment: dict[str, Any]
    rows: tuple[SearchRow, ...]
    #: The winners in full; a workload that fits nowhere on an interconnect has none.
    best: tuple[CaseResult, ...]
    #: Where each workload's iterations-to-accuracy come from.
    sources: dict[str, str]
    #: As in `Result`.
    versions: dict[str, str] = attrs.Factory(dict)
    files: dict[str, str] = attrs.Factory(dict)

    @property
    def complete(self) -> bool:
        """Whether something can run for every workload on every interconnect."""
        return all(self.winner(*case) for case in dict.fromkeys((r.workload, r.topology) for r in self.rows))

    def of(self, workload: str, topology: str) -> list[SearchRow]:
        """Rows of one workload on one interconnect."""
        return [row for row in self.rows if (row.workload, row.topology) == (workload, topology)]

    def gain_of_rounds(self, workload: str, topology: str) -> float | None:
        """Return the part of the time to the goal that layouts chosen with what circuits give take off.

        Of the best candidate that was simulated, against the best of them in one round; None: there was no
        other layout.
        """
        # Time to the goal of each candidate, and the same in one round. [candidates] [s]
        times_s, once_s, other = [], [], False
        for row in self.of(workload, topology):
            if row.time_to_goal_s and row.iteration_us:
                once_us = row.iteration_us if row.one_round_us is None else row.one_round_us
                times_s.append(row.time_to_goal_s)
                once_s.append(row.time_to_goal_s * (once_us / row.iteration_us))
                other = other or row.one_round_us is not None
        if not other:
            return None
        return 1 - min(times_s) / min(once_s)

    def further(self, workload: str, topology: str) -> list[SearchRow]:
        """Return rows that were simulated beyond `top`, or turned out infeasible; see `SearchRow.further`."""
        return [row for row in self.of(workload, topology) if row.further]

    def doubted_by(self, workload: str, topology: str) -> list[SearchRow]:
        """Return rows that were only estimated, and by that beat the winner; none where nothing ran."""
        rows = self.of(workload, topology)
        best_s = min((row.time_to_goal_s for row in rows if row.time_to_goal_s is not None), default=0.0)
        return [
            row
            for row in rows
            if row.status == "estimated" and row.estimate_s is not None and row.estimate_s < best_s
        ]

    def winner(self, workload: str, topology: str) -> CaseResult | None:
        """The best simulated case, if any candidate can run."""
        found = [case for case in self.best if (case.workload, case.topology) == (workload, topology)]
        return found[0] if found else None
