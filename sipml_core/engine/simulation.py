"""Runs a task graph on a network, from the first task to the last byte."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sipml_core.engine.circuitrun import CircuitDriver, Circuits, CircuitSettings, PhasedCircuitDriver
from sipml_core.engine.kernel import KernelSession
from sipml_core.engine.reference import ReferenceSession
from sipml_core.engine.session import Recording, Session, State
from sipml_core.engine.stall import stalled
from sipml_core.errors import ConfigError, LimitError, TooSlowError, unknown
from sipml_core.model import SILENT, Network, Progress, RelayedTasks, TaskGraph, Timeline

__all__ = [
    "CircuitDriver",
    "CircuitSettings",
    "PhasedCircuitDriver",
    "Recording",
    "open_session",
    "simulate",
]

_KERNELS: dict[str, Callable[[TaskGraph | RelayedTasks, Network, str, Recording | None], Session]] = {
    "c": KernelSession,
    "reference": ReferenceSession,
}
_QUEUES = ("pair", "source")

#: Events between two looks at the clock.
_SLICE = 50_000
#: Least time between two calls of `progress`. [s]
_PROGRESS_S = 0.3


def open_session(
    tasks: TaskGraph | RelayedTasks,
    network: Network,
    *,
    queue: str = "pair",
    kernel: str = "c",
    recording: Recording | None = None,
) -> Session:
    """A run at time 0, to be advanced step by step; circuits stay dark until `set_capacity`.

    With `recording`, its timeline says what became of each transfer, and what links carried when.

    Raises
    ------
    ConfigError
        There is no such queue discipline or kernel.
    SipmlError
        The network was not made for these tasks, or the C extension is missing.
    """
    if queue not in _QUEUES:
        raise ConfigError(unknown("queue discipline", queue, _QUEUES))
    if kernel not in _KERNELS:
        raise ConfigError(unknown("kernel", kernel, _KERNELS))
    return _KERNELS[kernel](tasks, network, queue, recording)


def simulate(
    tasks: TaskGraph | RelayedTasks,
    network: Network,
    *,
    driver: CircuitDriver | None = None,
    queue: str = "pair",
    max_wall_s: float | None = None,
    max_time_us: float | None = None,
    kernel: str = "c",
    progress: Progress = SILENT,
    recording: Recording | None = None,
) -> Timeline:
    """Run `tasks` on `network` to the end.

    Of `RelayedTasks` the timeline has times of rows: of the last leg of what is passed on.

    Parameters
    ----------
    driver
        Decides on circuit links; without one they carry nothing.
    queue
        "pair": one active transfer for each ordered pair; "source": one for each sending GPU.
    max_wall_s
        Wall-clock limit. [s]
    max_time_us
        Limit of simulated time. [us]
    kernel
        "c", or "reference": the same semantics in plain Python, some hundred times slower.
    progress
        Told a few times a second which fraction of the nodes has ended.
    recording
        What the timeline keeps beside its accounts; None: nothing.

    Raises
    ------
    StalledError
        Nothing can run and tasks remain; the message names some and why they wait.
    LimitError
        The wall-clock limit was reached first.
    TooSlowError
        The limit of simulated time was.
    ConfigError
        There is no such queue discipline or kernel, or the driver's interval is not positive.
    """
    session = open_session(tasks, network, queue=queue, kernel=kernel, recording=recording)
    circuits = Circuits(session, driver)
    watch = _Watch(session, max_wall_s, progress)
    limit_us = math.inf if max_time_us is None else max_time_us
    while True:
        state = session.run(min(circuits.next_us, limit_us), _SLICE)
        if state is State.DONE:
            return session.timeline(circuits.decisions)
        if state is State.REACHED:
            circuits.end_phase()
            continue
        watch.look()
        if state is State.STALLED:
            raise stalled(session, circuits.capacity_gbps)
        if state is State.PAUSED and session.now_us >= limit_us:
            raise TooSlowError(
                f"simulated-time limit of {limit_us:g} us (max_time_us) reached with {_left(session)}"
            )
        if state is State.PAUSED:
            circuits.act()


class _Watch:
    """Keeps an eye on the clock and tells how far the run is."""

    def __init__(self, session: Session, max_wall_s: float | None, progress: Progress) -> None:
        self._session = session
        self._limit_s = max_wall_s
        self._progress = progress
        self._started_s = self._told_s = time.monotonic()

    def look(self) -> None:
        now_s = time.monotonic()
        if self._limit_s is not None and now_s - self._started_s > self._limit_s:
            raise LimitError(
                f"wall-clock limit of {self._limit_s:g} s reached at {self._session.now_us:g} us "
                f"with {_left(self._session)}"
            )
        if now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            self._progress.at(self._session.ended / self._session.work.nodes)


def _left(session: Session) -> str:
    return f"{session.work.nodes - session.ended} of {session.work.nodes} tasks left"
