"""One process, or several on this machine, and what every other place must be able to do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, Protocol

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.plugin import interrupts_blocked

#: received(number of the piece, its value), as they come in.
Received = Callable[[int, Any], None]
#: lost(number of the piece): who worked at it ended before it was done.
Lost = Callable[[int], None]
#: Says what must be the same wherever work is done, such as the version of sipml, by what messages call it.
Probe = Callable[[], Mapping[str, str]]


#: What is said of a piece that is lost.
DIED = "a worker process ended before its work was done, as when memory runs out; try --jobs 1"


def refuse_stranger(wanted: Mapping[str, str], found: Mapping[str, str], who: str) -> None:
    """`ConfigError` if somebody who computes parts of a result is of another version."""
    for what, value in wanted.items():
        if found.get(what) != value:
            raise ConfigError(
                f"{who} has {what} {found.get(what, 'none')}, here it is {value}; "
                "install the same sipml and plugins there, and start again"
            )


class Executor(Protocol):
    """A place where work is done. A context manager: leaving it ends what it started."""

    #: Pieces that it works on at the same time; 1 and not `remote`: this process.
    workers: int
    #: Whether work is done elsewhere: functions and arguments are sent there.
    remote: bool
    #: Whether those who work write their results to the store as well, should nobody wait for them.
    keeps: bool

    def each(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None = None,
    ) -> None:
        """Call `function` with each piece, in any order, and tell each value.

        Parameters
        ----------
        lost
            Told of each piece whose worker ended before it was done; None: an error.

        Raises
        ------
        SipmlError
            A worker ended before its work was done; or whatever `function` raises.
        """

    def __enter__(self) -> Executor: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...


class InThisProcess:
    """One piece after the other, here."""

    workers, remote, keeps = 1, False, False

    def each(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None = None,
    ) -> None:
        """As `Executor.each`; were this process to end, nobody would be told."""
        for number, piece in enumerate(pieces):
            received(number, function(piece))

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass


class WorkerProcesses:
    """Several processes of this machine, started when they are first needed.

    On an error or an interrupt they end at once.
    """

    remote, keeps = True, False

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []
        #: Pieces that processes work at, or soon will.
        self._pending: dict[Future[Any], int] = {}

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            if kind is not None:
                for process in self._processes:
                    process.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def each(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None = None,
    ) -> None:
        """As `Executor.each`."""
        waiting = deque(range(len(pieces)))
        while waiting or self._pending:
            try:
                for number, value in self._values(function, pieces, waiting):
                    received(number, value)
            except BrokenProcessPool:
                self._suspects(function, pieces, received, lost)

    def _values(
        self, function: Callable[[Any], Any], pieces: Sequence[Any], waiting: deque[int]
    ) -> Iterator[tuple[int, Any]]:
        """Yield values as they come; at each moment `_pending` has what processes may be working at."""
        while waiting or self._pending:
            # No more than twice as many as there are processes: few are suspected where one of them dies.
            pool, others = self._open(), active_children()
            with interrupts_blocked():
                while waiting and len(self._pending) < 2 * self.workers:
                    number = waiting[0]
                    self._pending[pool.submit(function, pieces[number])] = number
                    waiting.popleft()
            self._processes += [child for child in active_children() if child not in others]
            done, _ = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                value = future.result()
                yield self._pending.pop(future), value

    def _open(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = _processes(self.workers)
        return self._pool

    def _suspects(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None,
    ) -> None:
        """Do what was being worked at when a process died again, one by one, to see which piece it was."""
        suspects = sorted(self._pending.values())
        self._pending.clear()
        self._pool = None
        if lost is None:
            raise SipmlError(DIED) from None
        for number in suspects:
            alone = _processes(1)
            others = active_children()
            with interrupts_blocked():
                future = alone.submit(function, pieces[number])
            self._processes += [child for child in active_children() if child not in others]
            try:
                received(number, future.result())
            except BrokenProcessPool:
                lost(number)
            finally:
                alone.shutdown(wait=False, cancel_futures=True)


def _processes(workers: int) -> ProcessPoolExecutor:
    """Return a pool of processes.

    Not to be called while interrupts are blocked: its semaphores start Python's tracker of resources, and
    that unblocks them.
    """
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent)


def end_with_parent() -> None:
    """In a new process: end when the one that started it has ended, in whatever way.

    One that is killed cannot tell; its workers would wait for it for ever.
    """
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
