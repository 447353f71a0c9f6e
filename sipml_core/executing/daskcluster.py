"""The workers of a Dask cluster that is running already (extra ``dask``).

Tasks are handed out in a window, so that neither the scheduler nor this process holds all of them. Their
keys are their own: Dask neither merges two of them nor answers one from what it remembers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.executing.executors import Lost, Probe, Received, refuse_stranger

#: How long a scheduler, and then a first worker, is waited for. [s]
PATIENCE_S = 10.0
#: Tasks that are handed out for each thread of the cluster.
WINDOW = 3


class DaskCluster:
    """The workers of the scheduler at an address such as "dask://host:8786".

    Raises
    ------
    ConfigError
        Nobody answers there, it has no workers, or one of them is of another version.
    """

    remote, keeps = True, False

    def __init__(self, address: str, probe: Probe) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ConfigError("--on dask://... needs Dask: python -m pip install 'sipml[dask]'") from None
        self._at = address
        try:
            self._client = Client(
                address.replace("dask://", "tcp://", 1), timeout=PATIENCE_S, set_as_default=False
            )
        except (OSError, ValueError) as error:  # a time-out is an OSError
            raise ConfigError(
                f"no Dask scheduler answers at {address} ({str(error).splitlines()[0] or 'no answer'}); "
                "start one with `dask scheduler`"
            ) from None
        try:
            self.workers = self._checked(probe)
        except BaseException:
            self._client.close()
            raise

    def _checked(self, probe: Probe) -> int:
        """Return the threads of all workers, each of which is of our version."""
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE_S)
        except TimeoutError:
            raise ConfigError(
                f"the Dask scheduler at {self._at} has no workers; start some with `dask worker {self._at}`"
            ) from None
        try:
            found = self._client.run(probe)
        except Exception as error:  # whatever a worker without this sipml raises
            raise ConfigError(
                f"a Dask worker at {self._at} cannot run sipml ({type(error).__name__}: {error}); "
                "install the same sipml and plugins there"
            ) from None
        for worker, identity in sorted(found.items()):
            refuse_stranger(probe(), identity, f"the Dask worker {worker}")
        return int(sum(self._client.nthreads().values())) or 1

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._client.close()

    def each(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None = None,
    ) -> None:
        """As `Executor.each`."""
        from distributed import CancelledError, KilledWorker, as_completed

        own = uuid.uuid4().hex[:12]
        waiting = iter(enumerate(pieces))
        number_of: dict[str, int] = {}
        running = as_completed(loop=self._client.loop)

        def hand_out(count: int) -> None:
            for number, piece in islice(waiting, count):
                future = self._client.submit(function, piece, key=f"sipml-{own}-{number}", pure=False)
                number_of[future.key] = number
                running.add(future)

        hand_out(WINDOW * self.workers)
        try:
            for future in running:
                number = number_of.pop(future.key)
                try:
                    value = future.result()
                except KilledWorker:
                    if lost is None:
                        raise SipmlError(
                            "workers of the Dask cluster ended before their work was done, as when memory "
                            "runs out"
                        ) from None
                    lost(number)
                else:
                    received(number, value)
                hand_out(1)
        except (CancelledError, OSError) as error:
            raise SipmlError(f"the Dask scheduler at {self._at} has gone ({error})") from None
