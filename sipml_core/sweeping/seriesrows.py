"""Series of a sweep: which row of each point is on which line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from sipml_core.fields import frozen, option
from sipml_core.searching import SearchRow


@frozen(kw_only=True)
class Series:
    """One line of a figure."""

    label: str = option(doc="name in legends and numbers")
    topology: str = option(doc="label of the interconnect")
    pure_dp: bool = option(False, doc="the best of pure data parallelism, not the best of all")
    mp: int | None = option(None, doc="the best of this degree of model parallelism, not the best of all")
    #: How the paper's public script turns an iteration on one network into one on another.
    added_bytes: Mapping[str, float] = option(
        attrs.Factory(dict),
        doc="workload -> bytes that go over `added_gbps` after each iteration",
        unit="bytes",
    )
    added_gbps: float = option(float("inf"), doc="or over x, the bandwidth of a GPU, if that is less")

    def added_us(self, workload: str, x_gbps: float) -> float:
        """Return what is added to an iteration at one place of the axis. [us]

        >>> series = Series(label="s", topology="t", added_bytes={"m": 1e9}, added_gbps=400.0)
        >>> series.added_us("m", 8000.0), series.added_us("m", 100.0), series.added_us("other", 100.0)
        (20000.0, 80000.0, 0.0)
        """
        return self.added_bytes.get(workload, 0.0) * 8e-3 / min(x_gbps, self.added_gbps)

    def wanted(self, mp: int | None) -> bool:
        """Return whether the series is about candidates of this degree."""
        return (mp == 1 or not self.pure_dp) and self.mp in (None, mp)


def series_row(rows: Sequence[SearchRow], series: Series, x: float) -> SearchRow:
    """Return the row of one workload on the interconnect of a series: the best, or one that says why none is.

    Parameters
    ----------
    rows
        All candidates of the workload on that interconnect.
    x
        Place on the axis.
    """
    row = best_row(rows, series)
    if row is None:
        return _refused(rows, series)
    if not series.added_bytes or row.iteration_us is None:
        return row
    added_us = series.added_us(row.workload, x)
    factor = 1 + added_us / row.iteration_us
    return attrs.evolve(
        row,
        iteration_us=row.iteration_us + added_us,
        time_to_accuracy_s=_times(row.time_to_accuracy_s, factor),
        time_to_goal_s=_times(row.time_to_goal_s, factor),
    )


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor


def seconds_of(row: SearchRow) -> float | None:
    """Return the time to accuracy, or to another goal where no accuracy was measured. [s]"""
    return row.time_to_goal_s if row.time_to_accuracy_s is None else row.time_to_accuracy_s


def best_row(rows: Sequence[SearchRow], series: Series) -> SearchRow | None:
    """Return the row with the least time to the goal, None if nothing ran."""
    ran = [(seconds_of(row), n) for n, row in enumerate(rows) if series.wanted(row.mp)]
    timed = [(seconds, n) for seconds, n in ran if seconds is not None]
    return rows[min(timed)[1]] if timed else None


def _refused(rows: Sequence[SearchRow], series: Series) -> SearchRow:
    """Why nothing runs: the candidate that came furthest, then that with the highest degree."""
    refused = [row for row in rows if row.reason and series.wanted(row.mp)]
    estimated = [row for row in refused if row.estimate_us is not None]
    if refused:
        return (estimated or refused)[-1]
    reason = f"no candidate has mp = {series.mp}"
    return attrs.evolve(rows[0], status="infeasible", best=False, reason=reason)
