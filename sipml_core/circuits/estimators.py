"""What a scheduler is shown of the next interval's traffic, from what the engine has seen so far.

Every estimator adds the backlog: a pair without a circuit sends nothing, so that what was sent alone
would never ask for one.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.session import SAME_TIME
from sipml_core.engine.simulate import simulate
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.model.timeline import Timeline

Bytes = NDArray[np.float64]


class Estimator(Protocol):
    """Expects the demand of each circuit link of a network, at each decision of one run."""

    def __call__(
        self, *, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes
    ) -> Bytes:
        """Demand until ``now_us + interval_us``. [circuits] [bytes]

        Parameters
        ----------
        sent_bytes
            Sent over each circuit since the last decision. [circuits]
        backlog_bytes
            Ready and not yet sent. [circuits]
        """


class EstimatorFactory(Protocol):
    """Makes the estimator of one run."""

    def __call__(self, network: Network, tasks: TaskGraph) -> Estimator: ...


@attrs.frozen
class Window:
    """What was sent in the last interval will be again (the paper, section 3.3), and the backlog."""

    network: Network
    tasks: TaskGraph

    def __call__(
        self, *, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes
    ) -> Bytes:
        return sent_bytes + backlog_bytes


@attrs.frozen
class Backlog:
    """Only what is ready to be sent now."""

    network: Network
    tasks: TaskGraph

    def __call__(
        self, *, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes
    ) -> Bytes:
        return backlog_bytes


@attrs.frozen(eq=False)
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
        """From a run: a transfer is ready when it joins its queue."""
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


class Oracle:
    """The job's own schedule: bytes that become ready in the next interval, and the backlog.

    The schedule is taken from an earlier run of the same tasks: by default one in which circuits are
    no limit and only the ports are (as on an ideal switch). The run that asks lags behind it, or runs
    ahead: it is taken to be where as many bytes in all had become ready. Between two arrivals the clock
    of the schedule runs with that of the run.

    Parameters
    ----------
    timeline
        The earlier run, on the same network; None: simulated at the first decision.
    """

    def __init__(self, network: Network, tasks: TaskGraph, timeline: Timeline | None = None) -> None:
        self._network, self._tasks, self._timeline = network, tasks, timeline
        self._schedule: Schedule | None = None
        self._sent_bytes = 0.0
        self._now_us = 0.0
        #: Time in the schedule that corresponds to `_now_us`.
        self._clock_us = 0.0

    def __call__(
        self, *, now_us: float, interval_us: float, sent_bytes: Bytes, backlog_bytes: Bytes
    ) -> Bytes:
        schedule = self.schedule
        self._sent_bytes += float(sent_bytes.sum())
        arrived = self._advance(schedule, now_us, self._sent_bytes + float(backlog_bytes.sum()))
        until = int(np.searchsorted(schedule.ready_us, self._clock_us + interval_us, side="left"))
        entries = np.append(schedule.entries, 0)  # [-1]: none yet
        coming = slice(entries[arrived - 1], entries[max(arrived, until) - 1])
        expected = np.bincount(
            schedule.circuit[coming], weights=schedule.size_bytes[coming], minlength=len(backlog_bytes)
        )
        return expected + backlog_bytes

    @property
    def schedule(self) -> Schedule:
        if self._schedule is None:
            timeline = self._timeline or simulate(self._tasks, without_circuits(self._network))
            self._schedule = Schedule.of(self._network, self._tasks, timeline)
        return self._schedule

    def _advance(self, schedule: Schedule, now_us: float, ready_bytes: float) -> int:
        """Move the schedule's clock to where `ready_bytes` have become ready; instants that have passed."""
        arrived = int(np.searchsorted(schedule.total_bytes, ready_bytes * (1 + 1e-9), side="right"))
        last_us = schedule.ready_us[arrived - 1] if arrived else 0.0
        next_us = schedule.ready_us[arrived] if arrived < len(schedule.ready_us) else np.inf
        running_us = self._clock_us + now_us - self._now_us
        self._clock_us = float(max(last_us, min(running_us, next_us)))
        self._now_us = now_us
        return arrived


def without_circuits(network: Network) -> Network:
    """The same network with circuits that are always there and as fast as the fastest port."""
    fastest_gbps = network.link_gbps[: network.first_circuit].max(initial=1.0)
    link_gbps = network.link_gbps.copy()
    link_gbps[network.first_circuit :] = fastest_gbps
    none = np.zeros(0, dtype=np.int32)
    return attrs.evolve(
        network, link_gbps=link_gbps, first_circuit=len(link_gbps), circuit_src=none, circuit_dst=none
    )


ESTIMATORS: dict[str, EstimatorFactory] = {"window": Window, "backlog": Backlog, "oracle": Oracle}
