"""The engine's semantics in plain Python: everything is worked out afresh at every change.

Slow on purpose. Nothing is kept up incrementally, so that the C engine has something independent to
agree with: rates are filled anew for all active transfers, accounts are integrated over every interval.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.session import (
    SAME_TIME,
    ActiveTransfers,
    LinkTraffic,
    Recording,
    State,
    check_capacity,
    check_match,
    link_samples,
)
from sipml_core.errors import SipmlError
from sipml_core.fields import BYTES_PER_US_PER_GBPS
from sipml_core.model import BARRIER, Network, RelayedTasks, TaskGraph, Timeline, TransferTimes

#: A link this full has no spare capacity, relatively.
_FULL = 1e-9
#: A new rate this close to the old one, relatively, changes nothing.
_UNCHANGED = 1e-12


def max_min_rates(
    routes: Mapping[int, Mapping[int, float]], capacity: Sequence[float] | NDArray[np.float64]
) -> dict[int, float]:
    """Max-min fair rates by progressive filling.

    Parameters
    ----------
    routes
        Links that each flow crosses, and its weights there: a flow of rate x takes weight * x.
    capacity
        Of each link; the rates are in the same unit.

    Examples
    --------
    Flow 0 sends half of its bytes over each of links 0 and 1, flow 1 all over link 1, of 10 each. Link 1 is
    full where 0.5 x + x = 10:

    >>> max_min_rates({0: {0: 0.5, 1: 0.5}, 1: {1: 1.0}}, [10.0, 15.0])
    {0: 10.0, 1: 10.0}

    References
    ----------
    Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2.
    """
    spare = {link: float(capacity[link]) for route in routes.values() for link in route}
    open_flows = dict(routes)
    rates: dict[int, float] = {}
    while open_flows:
        weights: dict[int, float] = {}
        for route in open_flows.values():
            for link, weight in route.items():
                weights[link] = weights.get(link, 0.0) + weight
        level, narrowest = min((spare[link] / weight, link) for link, weight in weights.items())
        for flow in [f for f, route in open_flows.items() if narrowest in route]:
            rates[flow] = level
            for link, weight in open_flows.pop(flow).items():
                spare[link] = max(spare[link] - weight * level, 0.0)
    return rates


def _routes(network: Network) -> list[dict[int, float]]:
    """Weight of each pair on each link of its route. [pairs]"""
    routes: list[dict[int, float]] = [{} for _ in range(len(network.pair_src))]
    entries = zip(
        network.entry_pair.tolist(), network.pair_link.tolist(), network.pair_weight.tolist(), strict=True
    )
    for pair, link, weight in entries:
        routes[pair][link] = routes[pair].get(link, 0.0) + weight
    return routes


@attrs.define
class _Flow:
    """The active transfer of a queue."""

    transfer: int
    left: float
    since_us: float
    rate: float = 0.0

    @property
    def done_us(self) -> float:
        return self.since_us + self.left / self.rate if self.rate > 0 else math.inf

    def left_at(self, now_us: float) -> float:
        return max(self.left - self.rate * (now_us - self.since_us), 0.0)


@attrs.define
class _Work:
    """The running task of a GPU."""

    task: int
    #: At full speed, as of `since_us`. [us]
    left_us: float
    since_us: float
    speed: float
    due_us: float = math.inf

    def run_at(self, speed: float, now_us: float) -> None:
        """Go on at another speed from now."""
        self.left_us = max(self.left_us - (now_us - self.since_us) * self.speed, 0.0)
        self.since_us, self.speed = now_us, speed
        self.due_us = now_us + self.left_us / speed


class ReferenceSession:
    """A `Session` in plain Python. Of transfers that are passed on it runs each leg as a transfer."""

    def __init__(
        self,
        work: TaskGraph | RelayedTasks,
        network: Network,
        queue: str,
        recording: Recording | None = None,
    ) -> None:
        check_match(work, network)
        if isinstance(work, RelayedTasks):
            network, work = work.explicit_network(network), work.explicit
        self.work: TaskGraph | RelayedTasks = work
        self.tasks, self.network = tasks, network = work, network
        self._recording = recording
        self._times = {name: np.full(tasks.transfers, np.nan) for name in ("head_us", "moved_us", "left_us")}
        self._sample_us = recording.sample_us if recording else math.inf
        self._samples: list[NDArray[np.float64]] = []
        #: Links of which each could be said to hold a transfer back when its last byte left. [transfers]
        self.held_by_any: list[set[int]] = [set() for _ in range(tasks.transfers)]
        self._by_source = queue == "source"
        self._routes = _routes(network)
        self._capacity = [gbps * BYTES_PER_US_PER_GBPS for gbps in network.link_gbps.tolist()]
        self._waits = np.bincount(tasks.successors, minlength=tasks.nodes).astype(np.int32)
        self.start_us = np.full(tasks.nodes, np.nan)
        self.end_us = np.full(tasks.nodes, np.nan)
        self._now_us = 0.0
        self._events = self._ended = 0
        self._started = False
        self._stop_after = np.empty(0, np.int32)
        #: Ends of timed barriers and arrivals of transfers: (time, node).
        self._ends: list[tuple[float, int]] = []
        self._running: list[_Work | None] = [None] * tasks.gpus
        self._ready: list[list[tuple[int, int]]] = [[] for _ in range(tasks.gpus)]
        queues = tasks.gpus if self._by_source else len(self._routes)
        self._queues: list[list[tuple[int, float, int]]] = [[] for _ in range(queues)]
        self._flows: dict[int, _Flow] = {}
        #: Transfers that joined and did not end, per GPU: whether the last byte has left.
        self._pending: list[dict[int, bool]] = [{} for _ in range(tasks.gpus)]
        rows = len(tasks.marks) + 1
        self._snapshot_us = np.zeros(rows)
        self._time = {kind: np.zeros(tasks.gpus) for kind in ("compute", "exposed", "dark", "idle")}
        self._rows = {kind: np.zeros((rows, tasks.gpus)) for kind in ("compute", "exposed", "dark")}
        self._link_bytes = np.zeros(len(self._capacity))
        self._link_busy_us = np.zeros(len(self._capacity))

    @property
    def now_us(self) -> float:
        return self._now_us

    @property
    def events(self) -> int:
        return self._events

    @property
    def ended(self) -> int:
        return self._ended

    @property
    def moving(self) -> bool:
        return math.isfinite(self._next_us())

    def _next_us(self) -> float:
        drains = (flow.done_us for flow in self._flows.values())
        works = (work.due_us for work in self._running if work is not None)
        return min([*drains, *works, self._ends[0][0] if self._ends else math.inf])

    def run(self, until_us: float = math.inf, max_events: int | None = None) -> State:
        if not self._started:
            self._start()
        first = self._events
        limit_us = until_us + SAME_TIME * until_us
        while True:
            next_us = self._next_us()
            if self._ended == self.tasks.nodes:
                return State.DONE
            if len(self._stop_after) and not np.isnan(self.end_us[self._stop_after]).any():
                self._stop_after = np.empty(0, np.int32)
                return State.REACHED
            if math.isinf(next_us) and math.isinf(until_us):
                return State.STALLED
            if next_us > limit_us:
                self._advance(until_us)
                return State.PAUSED
            if max_events is not None and self._events - first >= max_events:
                return State.BUDGET
            self._instant(min(next_us, until_us))

    def _start(self) -> None:
        self._started = True
        for node in np.flatnonzero(self._waits == 0).tolist():
            self._release(node)
        self._settle()

    def _instant(self, at_us: float) -> None:
        self._advance(at_us)
        limit_us = at_us + SAME_TIME * at_us
        drained: list[tuple[int, _Flow]] = []
        for queue, flow in list(self._flows.items()):
            if flow.done_us <= limit_us:
                self.held_by_any[flow.transfer] = self._bottlenecks(flow)
                drained.append((queue, flow))
        for queue, flow in drained:
            del self._flows[queue]
            self._leave(flow.transfer)
        for work in [work for work in self._running if work is not None and work.due_us <= limit_us]:
            self._end(work.task)
        while self._ends and self._ends[0][0] <= limit_us:
            self._end(heapq.heappop(self._ends)[1])
        self._settle()

    def _advance(self, to_us: float) -> None:
        """Let time pass, and account for it."""
        self._take_samples(to_us)
        span_us = max(to_us - self._now_us, 0.0)
        for gpu in range(self.tasks.gpus):
            self._time[self._doing(gpu)][gpu] += span_us
        busy = set()
        for flow in self._flows.values():
            for link, weight in self._route(flow.transfer).items():
                self._link_bytes[link] += weight * flow.rate * span_us
                if flow.rate > 0:
                    busy.add(link)
        for link in busy:
            self._link_busy_us[link] += span_us
        self._now_us += span_us

    def _take_samples(self, to_us: float) -> None:
        """What links have carried at each sample that is due by then; every second is kept of too many."""
        while self._recording and (len(self._samples) + 1) * self._sample_us <= to_us:
            carried = self._link_bytes.copy()
            span_us = (len(self._samples) + 1) * self._sample_us - self._now_us
            for flow in self._flows.values():
                self._add(carried, flow.transfer, flow.rate * span_us)
            self._samples.append(carried)
            if len(self._samples) == self._recording.samples:
                self._samples = self._samples[1::2]
                self._sample_us *= 2

    def _doing(self, gpu: int) -> str:
        if self._running[gpu] is not None:
            return "compute"
        pending = self._pending[gpu]
        if not pending:
            return "idle"
        return "dark" if all(self._is_dark(t) and not left for t, left in pending.items()) else "exposed"

    def _is_dark(self, transfer: int) -> bool:
        first = self.network.first_circuit
        return any(link >= first and self._capacity[link] <= 0 for link in self._route(transfer))

    def _route(self, transfer: int) -> dict[int, float]:
        return self._routes[int(self.network.transfer_pair[transfer])]

    def _ends_of(self, transfer: int) -> tuple[int, int]:
        return int(self.tasks.src[transfer]), int(self.tasks.dst[transfer])

    def _release(self, node: int) -> None:
        """A node whose predecessors have all ended; barriers release others in turn."""
        first = self.tasks.compute_tasks
        todo = [node]
        while todo:
            node = todo.pop()
            if node >= first:
                self._join(node)
            elif self.tasks.gpu[node] == BARRIER:
                self._events += 1
                self.start_us[node] = self._now_us
                duration_us = float(self.tasks.duration_us[node])
                if duration_us > 0:
                    heapq.heappush(self._ends, (self._now_us + duration_us, node))
                else:
                    todo += self._finish(node)
            else:
                heapq.heappush(self._ready[self.tasks.gpu[node]], (int(self.tasks.priority[node]), node))

    def _join(self, node: int) -> None:
        self._events += 1
        self.start_us[node] = self._now_us
        transfer = node - self.tasks.compute_tasks
        src, dst = self._ends_of(transfer)
        self._pending[src][transfer] = self._pending[dst][transfer] = False
        queue = src if self._by_source else int(self.network.transfer_pair[transfer])
        heapq.heappush(self._queues[queue], (int(self.tasks.priority[node]), self._now_us, node))

    def _finish(self, node: int) -> list[int]:
        """End a node; the nodes this leaves without predecessors."""
        self.end_us[node] = self._now_us
        self._ended += 1
        for row in np.flatnonzero(self.tasks.marks == node).tolist():
            self._snapshot(row)
        after = self.tasks.successors[self.tasks.succ_start[node] : self.tasks.succ_start[node + 1]].tolist()
        freed = []
        for successor in after:
            self._waits[successor] -= 1
            if self._waits[successor] == 0:
                freed.append(successor)
        return freed

    def _end(self, node: int) -> None:
        self._events += 1
        transfer = node - self.tasks.compute_tasks
        if transfer >= 0:
            for gpu in self._ends_of(transfer):
                del self._pending[gpu][transfer]
        elif self.tasks.gpu[node] != BARRIER:
            self._running[self.tasks.gpu[node]] = None
        for freed in self._finish(node):
            self._release(freed)

    def _bottlenecks(self, of: _Flow) -> set[int]:
        """Links of a flow's route that are full, and on which no flow is faster."""
        load, fastest = np.zeros(len(self._capacity)), np.zeros(len(self._capacity))
        for flow in self._flows.values():
            self._add(load, flow.transfer, flow.rate)
            for link in self._route(flow.transfer):
                fastest[link] = max(fastest[link], flow.rate)
        return {
            link
            for link in self._route(of.transfer)
            if load[link] >= self._capacity[link] * (1 - _FULL) and fastest[link] <= of.rate * (1 + _FULL)
        }

    def _leave(self, transfer: int) -> None:
        """The last byte of a transfer has left."""
        self._events += 1
        self._times["left_us"][transfer] = self._now_us
        for gpu in self._ends_of(transfer):
            self._pending[gpu][transfer] = True
        pair = self.network.transfer_pair[transfer]
        latency_us = float(self.tasks.latency_steps[transfer] * self.network.pair_latency_us[pair])
        latency_us += float(self.tasks.startup_us[transfer]) if len(self.tasks.startup_us) else 0.0
        node = self.tasks.compute_tasks + transfer
        if latency_us > 0 or self.tasks.size_bytes[transfer] == 0:
            heapq.heappush(self._ends, (self._now_us + latency_us, node))
        else:
            self._events -= 1  # leaving and arriving are one event
            self._end(node)

    def _settle(self) -> None:
        """Free GPUs and queues take what is ready, then links are shared out."""
        for gpu, ready in enumerate(self._ready):
            if self._running[gpu] is None and ready:
                task = heapq.heappop(ready)[1]
                self._running[gpu] = work = _Work(
                    task, float(self.tasks.duration_us[task]), self._now_us, 1.0
                )
                work.run_at(1.0, self._now_us)
                self.start_us[task] = self._now_us
        for queue, waiting in enumerate(self._queues):
            while waiting and queue not in self._flows:
                transfer = heapq.heappop(waiting)[2] - self.tasks.compute_tasks
                size_bytes = float(self.tasks.size_bytes[transfer])
                self._times["head_us"][transfer] = self._now_us
                if size_bytes == 0:
                    self._times["moved_us"][transfer] = self._now_us
                if size_bytes > 0:
                    self._flows[queue] = _Flow(transfer, size_bytes, self._now_us)
                else:
                    self._leave(transfer)
        self._slow()
        self._share()

    def _slow(self) -> None:
        """Tasks of GPUs that send what slows them go on at a reduced speed, others at full speed."""
        tasks = self.tasks
        if not tasks.slowdown:
            return
        moving = {
            self._ends_of(flow.transfer)[0]
            for flow in self._flows.values()
            if not len(tasks.slows) or tasks.slows[flow.transfer]
        }
        for gpu, work in enumerate(self._running):
            speed = 1.0 - tasks.slowdown if gpu in moving else 1.0
            if work is not None and speed != work.speed:
                work.run_at(speed, self._now_us)

    def _share(self) -> None:
        rates = max_min_rates(
            {queue: self._route(flow.transfer) for queue, flow in self._flows.items()}, self._capacity
        )
        for queue, flow in self._flows.items():
            rate = rates[queue]
            if rate > 0 and math.isnan(self._times["moved_us"][flow.transfer]):
                self._times["moved_us"][flow.transfer] = self._now_us
            if flow.rate > 0 and abs(rate - flow.rate) <= _UNCHANGED * flow.rate:
                continue
            flow.left = flow.left_at(self._now_us)
            flow.since_us, flow.rate = self._now_us, rate

    def stop_after(self, nodes: NDArray[np.int32]) -> None:
        if len(nodes) and not 0 <= nodes.min() <= nodes.max() < self.tasks.nodes:
            raise SipmlError(f"nodes to stop after must be from 0 to {self.tasks.nodes - 1}")
        self._stop_after = np.array(nodes, dtype=np.int32)

    def set_capacity(self, links: NDArray[np.int32], gbps: NDArray[np.float64]) -> None:
        check_capacity(gbps)
        for link, capacity in zip(links.tolist(), gbps.tolist(), strict=True):
            self._capacity[link] = capacity * BYTES_PER_US_PER_GBPS
        self._share()

    def active(self) -> ActiveTransfers:
        flows = sorted(self._flows.values(), key=lambda flow: flow.transfer)
        return ActiveTransfers(
            transfer=np.array([flow.transfer for flow in flows], dtype=np.int32),
            gbps=np.array([flow.rate / BYTES_PER_US_PER_GBPS for flow in flows]),
        )

    def places(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return np.arange(self.tasks.transfers, dtype=np.int32), self.network.transfer_pair

    def carried_bytes(self) -> NDArray[np.float64]:
        return self._link_bytes.copy()

    def backlog_bytes(self) -> NDArray[np.float64]:
        backlog = np.zeros(len(self._capacity))
        for flow in self._flows.values():
            self._add(backlog, flow.transfer, flow.left_at(self._now_us))
        for _, _, node in _all(self._queues):
            transfer = node - self.tasks.compute_tasks
            self._add(backlog, transfer, float(self.tasks.size_bytes[transfer]))
        return backlog

    def traffic_since(self, before_bytes: NDArray[np.float64]) -> LinkTraffic:
        carried_bytes, backlog_bytes = self.carried_bytes(), self.backlog_bytes()
        sent_bytes = np.maximum(carried_bytes - before_bytes, 0.0)
        sent, waits = (
            bool((each[self.network.first_circuit :] > 0).any()) for each in (sent_bytes, backlog_bytes)
        )
        return LinkTraffic(carried_bytes, sent_bytes, backlog_bytes, sent, waits)

    def _add(self, per_link: NDArray[np.float64], transfer: int, size_bytes: float) -> None:
        for link, weight in self._route(transfer).items():
            per_link[link] += weight * size_bytes

    def waits(self) -> NDArray[np.int32]:
        return self._waits.copy()

    def _snapshot(self, row: int) -> None:
        self._snapshot_us[row] = self._now_us
        for kind, rows in self._rows.items():
            rows[row] = self._time[kind]

    def timeline(self, decisions: int = 0) -> Timeline:
        self._snapshot(len(self.tasks.marks))
        recorded: dict[str, Any] = {}
        if self._recording:
            held_by = [min(links, default=-1) for links in self.held_by_any]
            rows = np.array(self._samples).reshape(len(self._samples), len(self._capacity))
            recorded = {
                "transfers": TransferTimes(**self._times, held_by=held_by),
                "samples": link_samples(self._sample_us, rows, self._link_bytes.copy(), self._now_us),
            }
        return Timeline(
            start_us=self.start_us,
            end_us=self.end_us,
            snapshot_us=self._snapshot_us.copy(),
            compute_us=self._rows["compute"].copy(),
            exposed_us=self._rows["exposed"].copy(),
            dark_us=self._rows["dark"].copy(),
            link_bytes=self._link_bytes.copy(),
            link_busy_us=self._link_busy_us.copy(),
            events=self._events,
            decisions=decisions,
            **recorded,
        )


def _all(queues: Iterable[Iterable[tuple[int, float, int]]]) -> Iterable[tuple[int, float, int]]:
    return (entry for queue in queues for entry in queue)
