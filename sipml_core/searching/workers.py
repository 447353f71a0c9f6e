"""Questions of a search, answered in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Any

import attrs

from sipml_core.cases import Candidate, Case, Clock, Reuse, search_candidates, simulate_variants
from sipml_core.errors import InfeasibleError, PluginError, SipmlError, StalledError, TooSlowError
from sipml_core.experiment import Experiment, read_experiment, resolved_tables
from sipml_core.model import CaseResult
from sipml_core.plugin import interrupts_blocked, load
from sipml_core.searching.cache import Answer
from sipml_core.searching.estimate import Estimate, estimate

ESTIMATE, SIMULATION = "estimate", "simulation"


#: Keys of an answer of each kind, where there is no reason against it.
_KEYS = {
    ESTIMATE: {field.name for field in attrs.fields(Estimate)},
    SIMULATION: {field.name for field in attrs.fields(CaseResult)},
}


def complete(kind: str, answer: Answer) -> bool:
    """Return whether an answer, of a cache that anybody may write to, has what one of its kind has."""
    return set(answer) == _KEYS[kind] or isinstance(answer.get("infeasible"), str)


@attrs.frozen(order=True)
class Trial:
    """One candidate on one interconnect, by their numbers."""

    experiment: int
    job: int
    candidate: int
    interconnect: int


@attrs.frozen
class TrialBatch:
    """Questions asked together, whose graph and placement are the same."""

    kind: str
    trials: tuple[Trial, ...]


class Worker:
    """Answers questions about some experiments."""

    def __init__(self, experiments: Sequence[Experiment]) -> None:
        self.experiments = experiments
        self._candidates: dict[tuple[int, int], list[Candidate]] = {}

    def candidates(self, experiment: int, job: int) -> list[Candidate]:
        key = (experiment, job)
        if key not in self._candidates:
            asked = self.experiments[experiment]
            gpus = asked.interconnects[0].cluster.gpus
            self._candidates[key] = search_candidates(asked.jobs[job], gpus)
        return self._candidates[key]

    def answers(self, batch: TrialBatch) -> list[Answer]:
        """Return one answer for each trial: what was found, or why there is nothing to find."""
        reuse = Reuse()
        return [self._answer(batch.kind, trial, reuse) for trial in batch.trials]

    def _answer(self, kind: str, trial: Trial, reuse: Reuse) -> Answer:
        candidate = self.candidates(trial.experiment, trial.job)[trial.candidate]
        experiment = self.experiments[trial.experiment]
        try:
            interconnect = experiment.interconnects[trial.interconnect]
            case = Case.of(experiment, candidate.job, interconnect, candidate.checked_plan)
            if kind == SIMULATION:
                return attrs.asdict(simulate_variants(case, reuse, Clock()).row)
            return attrs.asdict(estimate(case, reuse))
        except InfeasibleError as error:
            return {"infeasible": str(error)}
        except StalledError as error:
            return {"infeasible": f"stalled: {error}"}
        except PluginError as error:
            return {"infeasible": f"failed: {error}"}
        except TooSlowError as error:
            return {"infeasible": str(error), "too_slow": True}


#: received(unit, its answers), as they come in.
Received = Callable[[TrialBatch, list[Answer]], None]


class WorkerPool:
    """One worker in this process, or one in each of several others.

    A context manager: leaving it ends the processes, on an error or an interrupt at once.
    """

    def __init__(self, experiments: Sequence[Experiment], jobs: int) -> None:
        self.worker = Worker(experiments)
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._workers: list[BaseProcess] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            if kind is not None:
                for worker in self._workers:
                    worker.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def ask(self, batches: Sequence[TrialBatch], received: Received) -> None:
        """Have all batches answered, in any order.

        Raises
        ------
        SipmlError
            A process ended before its work was done; or whatever an answer raises but infeasibility.
        """
        if self._jobs == 1 or len(batches) == 1:
            for batch in batches:
                received(batch, self.worker.answers(batch))
            return
        try:
            for batch, answers in self._from_pool(batches):
                received(batch, answers)
        except BrokenProcessPool:
            raise SipmlError(
                "a worker process ended before its work was done, as when memory runs out; try --jobs 1"
            ) from None

    def _from_pool(self, batches: Sequence[TrialBatch]) -> Iterator[tuple[TrialBatch, list[Answer]]]:
        if self._pool is None:
            tables = [resolved_tables(experiment) for experiment in self.worker.experiments]
            self._pool = ProcessPoolExecutor(
                self._jobs, mp_context=get_context("spawn"), initializer=_open_worker, initargs=(tables,)
            )
        others = active_children()
        with interrupts_blocked():
            pending = {self._pool.submit(_answers_here, batch): batch for batch in batches}
        self._workers += [child for child in active_children() if child not in others]
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield pending.pop(future), future.result()


_worker: list[Worker] = []


def _open_worker(tables: Sequence[Mapping[str, Any]]) -> None:
    """In a new process: read the experiments again, from the tables they were made of."""
    registry = load()
    _worker[:] = [Worker([read_experiment(table, registry) for table in tables])]


def _answers_here(batch: TrialBatch) -> list[Answer]:
    return _worker[0].answers(batch)
