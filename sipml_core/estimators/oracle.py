"""The estimator that knows the job: what becomes ready next, from an earlier run of the same tasks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, frozen
from sipml_core.model import Network, TaskGraph, Timeline, TreatsAlike
from sipml_core.plugin import DemandForecast, Estimator

Bytes = NDArray[np.float64]

#: What is yet to come counts up to this part of what a GPU can send in an interval: a large gradient about to
#: come must not take circuits from activations that are there.
LOOK_AHEAD = 0.03


class Oracle(TreatsAlike, Estimator):
    """The job's own schedule, taken from a run in which circuits are no limit."""

    name = "oracle"
    summary = "what is ready, and what becomes ready next, known from a run in which circuits are no limit"

    def start(self, network: Network, tasks: TaskGraph) -> DemandForecast:
        """See `Estimator.start`."""
        return OracleForecast(network, tasks)

    def start_where(
        self, network: Network, tasks: TaskGraph, *, crowded: Callable[[], bool]
    ) -> DemandForecast:
        """See `Estimator.start_where`."""
        return OracleForecast(network, tasks, crowded=crowded)


class OracleForecast:
    """Forecasts what waits, what was sent, and what becomes ready next in the job's own schedule.

    The schedule is taken from an earlier run of the same tasks: by default one in which circuits are
    no limit and only the ports are (as on an ideal switch). The run that asks lags behind it, or runs
    ahead: it is taken to be where as many bytes in all had become ready. Between two arrivals the clock
    of the schedule runs with that of the run; it stands before an arrival that is overdue.

    Where one plan cannot give every pair of the job two circuits (it is crowded), a circuit for what is yet
    to come is one that something else waits for: the demand is the backlog and what arrives within the
    interval, and nothing of the latter while an arrival is overdue. Elsewhere it is the larger of two: what
    was sent with the backlog; and what arrives, overdue or not, with the backlog, up to `LOOK_AHEAD` of what
    a GPU can send in the interval.

    Parameters
    ----------
    timeline
        The earlier run, on the same network; None: simulated at the first decision.
    crowded
        Tells, when first asked, whether it is crowded; None: it is.
    """

    def __init__(
        self,
        network: Network,
        tasks: TaskGraph,
        timeline: Timeline | None = None,
        *,
        crowded: Callable[[], bool] | None = None,
    ) -> None:
        self._network, self._tasks, self._timeline = network, tasks, timeline
        self._schedule: Schedule | None = None
        self._crowded = crowded or (lambda: True)
        self._is_crowded: bool | None = None
        self._sent_bytes = 0.0
        self._now_us = 0.0
        #: Time in the schedule that corresponds to `_now_us`, and whether an arrival is overdue there.
        self._clock_us = 0.0
        self._lags = False

    def __call__(
        self, *, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes
    ) -> Bytes:
        """See `DemandForecast`."""
        self._sent_bytes += float(sent_bytes.sum())
        arrived = self._advance(self.schedule, now_us, self._sent_bytes + float(backlog_bytes.sum()))
        if self._is_crowded is None:
            self._is_crowded = self._crowded()
        if self._is_crowded and self._lags:
            return backlog_bytes
        ready_bytes = self._arrivals(arrived, interval_us, len(backlog_bytes)) + backlog_bytes
        if self._is_crowded:
            return ready_bytes
        port_gbps = float(self._network.link_gbps[: self._network.first_circuit].max(initial=0.0))
        most_bytes = LOOK_AHEAD * port_gbps * BYTES_PER_US_PER_GBPS * interval_us
        return np.maximum(sent_bytes + backlog_bytes, np.minimum(ready_bytes, most_bytes))

    def _arrivals(self, arrived: int, interval_us: float, circuits: int) -> Bytes:
        """Return what becomes ready within an interval, from the next instant on. [circuits] [bytes]"""
        schedule = self.schedule
        until = int(np.searchsorted(schedule.ready_us, self._clock_us + interval_us, side="left"))
        entries = np.append(schedule.entries, 0)  # [-1]: none yet
        coming = slice(entries[arrived - 1], entries[max(arrived, until) - 1])
        size_bytes = schedule.size_bytes[coming]
        return np.bincount(schedule.circuit[coming], size_bytes, circuits).astype(np.float64)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the earlier run, which is simulated when first asked for."""
        if self._schedule is None:
            from sipml_core.engine import simulate

            timeline = self._timeline or simulate(self._tasks, self._network.with_ports_only())
            self._schedule = Schedule.of(self._network, self._tasks, timeline)
        return self._schedule

    def _advance(self, schedule: Schedule, now_us: float, ready_bytes: float) -> int:
        """Move the schedule's clock to where `ready_bytes` have become ready; instants that have passed."""
        arrived = int(np.searchsorted(schedule.total_bytes, ready_bytes * (1 + 1e-9), side="right"))
        last_us = schedule.ready_us[arrived - 1] if arrived else 0.0
        next_us = schedule.ready_us[arrived] if arrived < len(schedule.ready_us) else np.inf
        running_us = self._clock_us + now_us - self._now_us
        self._lags = bool(running_us > next_us)
        self._clock_us = float(max(last_us, min(running_us, next_us)))
        self._now_us = now_us
        return arrived


@frozen(eq=False)
class Schedule:
    """When which bytes become ready for which circuit, in one run of a job.

    What becomes ready at the same time stays together: groups that are alike have come equally far.
    """

    circuit: NDArray[np.int64]
    size_bytes: Bytes
    #: Instants at which something becomes ready.
    ready_us: NDArray[np.float64]
    #: Entries up to and with each instant.
    entries: NDArray[np.int64]
    #: Bytes ready up to and with each instant.
    total_bytes: Bytes

    @classmethod
    def of(cls, network: Network, tasks: TaskGraph, timeline: Timeline) -> Schedule:
        """Return the schedule of a run: a transfer is ready when it joins its queue."""
        from sipml_core.engine import SAME_TIME

        links = network.pair_links[network.transfer_pair]
        transfer, column = np.nonzero(links >= network.first_circuit)
        ready_us = timeline.start_us[tasks.compute_tasks + transfer]
        order = np.argsort(ready_us, kind="stable")
        weight = network.pair_weights[network.transfer_pair[transfer], column]
        ready_us, size_bytes = ready_us[order], (tasks.size_bytes[transfer] * weight)[order]
        last = np.flatnonzero(np.diff(ready_us, append=np.inf) > SAME_TIME * ready_us)
        return cls(
            circuit=links[transfer, column][order].astype(np.int64) - network.first_circuit,
            size_bytes=size_bytes,
            ready_us=ready_us[last],
            entries=last + 1,
            total_bytes=np.cumsum(size_bytes)[last],
        )
