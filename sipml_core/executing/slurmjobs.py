"""Jobs of a Slurm cluster, through submitit (extra ``slurm``).

Work is dealt out to a number of jobs, each of which keeps what it finds in the store, which all machines
see: a job that ends too early loses only what it was at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError, SipmlError, shown
from sipml_core.executing.executors import Lost, Received


class SlurmJobs:
    """So many jobs, with parameters as in "slurm:partition=batch,timeout_min=60".

    Raises
    ------
    ConfigError
        submitit or Slurm is not here, or there is no such parameter.
    """

    remote, keeps = True, True

    def __init__(self, on: str, jobs: int, logs: Path) -> None:
        try:
            import submitit
        except ImportError:
            raise ConfigError("--on slurm needs submitit: python -m pip install 'sipml[slurm]'") from None
        name, _, parameters = on.partition(":")
        self.workers = jobs
        self._logs = logs
        self._submitted: list[Any] = []
        try:
            self._executor = submitit.AutoExecutor(
                folder=logs, cluster={"local-jobs": "local"}.get(name, name)
            )
            self._executor.update_parameters(name="sipml", **_parameters(parameters))
        except (RuntimeError, NameError, ValueError, AssertionError) as error:
            raise ConfigError(f"--on {on}: {' '.join(str(error).split())}") from None

    def __enter__(self) -> SlurmJobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for job in self._submitted:
                job.cancel(check=False)

    def each(
        self,
        function: Callable[[Any], Any],
        pieces: Sequence[Any],
        received: Received,
        lost: Lost | None = None,
    ) -> None:
        """As `Executor.each`; a job that ends too early is an error: which piece ended it is not known."""
        from submitit.helpers import as_completed

        parts = [range(first, len(pieces), self.workers) for first in range(min(self.workers, len(pieces)))]
        with self._executor.batch():
            jobs = [self._executor.submit(all_of, function, [pieces[k] for k in part]) for part in parts]
        self._submitted = jobs
        part_of = {id(job): part for job, part in zip(jobs, parts, strict=True)}
        for job in as_completed(jobs, poll_frequency=1):
            try:
                values = job.result()
            except Exception as error:  # whatever became of the job
                raise SipmlError(
                    f"job {job.job_id} ended before its work was done ({type(error).__name__}); "
                    f"what it said is in {self._logs}; the same command goes on from what it kept"
                ) from None
            if isinstance(values, str):
                raise ConfigError(values)
            for number, value in zip(part_of[id(job)], values, strict=True):
                received(number, value)


def all_of(function: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any] | str:
    """Return the value of each piece, or the sentence of what sipml refuses."""
    try:
        return [function(piece) for piece in pieces]
    except SipmlError as error:
        return str(error)


def _parameters(text: str) -> dict[str, Any]:
    """Return the parameters in "partition=batch,timeout_min=60", as submitit calls them.

    >>> _parameters("partition=batch,timeout_min=60")
    {'slurm_partition': 'batch', 'timeout_min': 60}
    """
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"--on slurm:KEY=VALUE,... expects KEY=VALUE, got {shown(part)}")
        own = {"partition", "qos", "account", "constraint", "array_parallelism", "time"}
        found[f"slurm_{key}" if key in own else key] = int(value) if value.isdigit() else value
    return found
