"""Questions about candidates, answered in this process or by whoever an executor has."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from threading import local
from typing import Any

import attrs

from sipml_core import __version__
from sipml_core.cases import (
    Candidate,
    Case,
    Clock,
    Reuse,
    blamed,
    components,
    op_graph,
    op_layout,
    outcome_of,
    run_candidates,
    search_candidates,
    simulate_variants,
    slice_times,
)
from sipml_core.errors import ConfigError, InfeasibleError, LimitError, SipmlError
from sipml_core.executing import DIED, Executor, refuse_stranger
from sipml_core.experiment import Experiment, Interconnect, Job, read_experiment, resolved_tables
from sipml_core.fields import frozen
from sipml_core.model import CaseResult
from sipml_core.plugin import Registry, load
from sipml_core.searching.estimate import Estimate, estimate
from sipml_core.store import Answer, Record, ResultStore, code_fingerprint, code_of

ESTIMATE, SIMULATION = "estimate", "simulation"

#: Whose results candidates of a search share: few and small ones, which estimates and simulations need alike.
SHARED = (op_graph, slice_times, op_layout)

#: Which candidates of a job the numbers of trials count: those that `search` tries, or those that `run` does.
CANDIDATES: dict[str, Callable[[Job, int], list[Candidate]]] = {
    "search": search_candidates,
    "run": run_candidates,
}

#: Keys of an answer of each kind, where there is no reason against it.
_KEYS = {
    ESTIMATE: {field.name for field in attrs.fields(Estimate)},
    SIMULATION: {field.name for field in attrs.fields(CaseResult)},
}


def complete(kind: str, answer: Answer) -> bool:
    """Return whether an answer, of a store that anybody may write to, has what one of its kind has."""
    return set(answer) == _KEYS[kind] or isinstance(answer.get("infeasible"), str)


@attrs.frozen(order=True)
class Trial:
    """One candidate on one interconnect, by their numbers."""

    experiment: int
    job: int
    candidate: int
    interconnect: int


@frozen
class TrialBatch:
    """Questions asked together, whose graph and placement are the same."""

    kind: str
    trials: tuple[Trial, ...]
    #: Under which the store keeps each answer.
    keys: tuple[str, ...] = ()


class Worker:
    """Answers questions about some experiments."""

    def __init__(
        self, experiments: Sequence[Experiment], tried: str = "search", reuse: Reuse | None = None
    ) -> None:
        self.experiments = experiments
        self.tried = tried
        self._candidates: dict[tuple[int, int], list[Candidate]] = {}
        self._reuse = reuse or Reuse()

    def candidates(self, experiment: int, job: int) -> list[Candidate]:
        """Return what is tried for one job of one experiment."""
        key = (experiment, job)
        if key not in self._candidates:
            asked = self.experiments[experiment]
            gpus = asked.interconnects[0].cluster.gpus
            self._candidates[key] = CANDIDATES[self.tried](asked.jobs[job], gpus)
        return self._candidates[key]

    def look_up(self, trial: Trial) -> tuple[Experiment, Candidate, Interconnect]:
        """Return what a trial is about."""
        experiment = self.experiments[trial.experiment]
        candidate = self.candidates(trial.experiment, trial.job)[trial.candidate]
        interconnect = experiment.interconnects[trial.interconnect]
        if self.tried == "search":
            interconnect = in_rounds(interconnect, candidate)
        return experiment, candidate, interconnect

    def about(self, trial: Trial) -> str:
        """Return a trial in words."""
        _, candidate, interconnect = self.look_up(trial)
        plan = f"mp {candidate.mp}, dp {candidate.dp}, batch {candidate.global_batch}"
        return f"{candidate.job.label} on {interconnect.label}, {interconnect.cluster.gpus} GPUs, {plan}"

    def next_batch(self) -> None:
        """Begin with another plan: of what one candidate of a search had only `SHARED` is needed again.

        Runs differ less from one another than candidates do: their placements are often the same.
        """
        if self.tried == "search":
            self._reuse.forget(but=SHARED)

    def answers(self, batch: TrialBatch) -> list[Answer]:
        """Return one answer for each trial: what was found, or why there is nothing to find."""
        return [self._answer(batch.kind, trial) for trial in batch.trials]

    def _answer(self, kind: str, trial: Trial) -> Answer:
        experiment, candidate, interconnect = self.look_up(trial)
        try:
            case = Case.of(experiment, candidate.job, interconnect, candidate.checked_plan)
            if kind == SIMULATION:
                return attrs.asdict(simulate_variants(case, self._reuse, Clock()).row)
            with blamed(*components(case)):
                return attrs.asdict(estimate(case, self._reuse))
        except LimitError:
            raise
        except ConfigError as error:
            # A search that asks for what cannot be is refused; of many runs, the others stand. That a model
            # has too few ops for its stages is seen when it is cut: such a candidate cannot run.
            if self.tried == "search" and not isinstance(error, InfeasibleError):
                raise
            return outcome_of(error)
        except SipmlError as error:
            return outcome_of(error)


def in_rounds(interconnect: Interconnect, candidate: Candidate) -> Interconnect:
    """Return the interconnect on which layout and circuits of a candidate are chosen in turn.

    As often as the search says, unless the topology does. Where nothing could change it stays the same, so
    that runs and searches share answers.
    """
    keys = interconnect.circuit_keys
    if keys.rounds is not None or not interconnect.scheduler:
        return interconnect
    if candidate.mp == 1 or candidate.layout != "auto":
        return interconnect
    rounds = candidate.job.search.rounds
    if rounds == keys.most_rounds:
        return interconnect
    return attrs.evolve(interconnect, circuit_keys=attrs.evolve(keys, rounds=rounds))


#: received(batch, its answers), as they come in.
Received = Callable[[TrialBatch, list[Answer]], None]


class WorkerPool:
    """A worker in this process, and those of an executor."""

    def __init__(self, experiments: Sequence[Experiment], executor: Executor, tried: str = "search") -> None:
        self.worker = Worker(experiments, tried)
        self.executor = executor
        self._tables: dict[int, str] = {}

    def ask(self, batches: Sequence[TrialBatch], received: Received, store: ResultStore) -> None:
        """Have all batches answered, in any order.

        Parameters
        ----------
        store
            Where workers keep answers themselves, if nobody may be there to receive them.

        Raises
        ------
        SipmlError
            A worker ended before its work was done; or whatever an answer raises but infeasibility.
        """
        if not self.executor.remote or (len(batches) == 1 and not self.executor.keeps):
            for batch in batches:
                self.worker.next_batch()
                # One by one: an interrupt loses only what is running.
                for single in _singles(batch):
                    received(single, self.worker.answers(single))
            return
        folder = str(store.folder) if self.executor.keeps and store.folder else None
        packages = code_of(self.worker.experiments)
        shared = {"identity": identity_here(packages), "packages": packages, "store": folder}
        sent = [self._sent(batch, shared) for batch in batches]
        gone: list[TrialBatch] = []
        self.executor.each(
            perform,
            sent,
            lambda number, answers: received(batches[number], answers),
            (lambda number: gone.append(batches[number])) if self.worker.tried == "run" else None,
        )
        # Of a batch whose worker ended, the trial that ended it is found, and becomes a row.
        again = [single for batch in gone if len(batch.trials) > 1 for single in _singles(batch)]
        for batch in gone:
            if len(batch.trials) == 1:
                received(batch, [outcome_of(SipmlError(DIED))])
        if again:
            self.ask(again, received, store)

    def _sent(self, batch: TrialBatch, shared: Mapping[str, Any]) -> Sent:
        """Return a batch with all that it is about, in plain values."""
        numbers = sorted({trial.experiment for trial in batch.trials})
        renumbered = [attrs.evolve(t, experiment=numbers.index(t.experiment)) for t in batch.trials]
        return Sent(
            batch=attrs.evolve(batch, trials=tuple(renumbered)),
            tried=self.worker.tried,
            tables=tuple(self._text(number) for number in numbers),
            **shared,
        )

    def _text(self, number: int) -> str:
        if number not in self._tables:
            self._tables[number] = json.dumps(resolved_tables(self.worker.experiments[number]))
        return self._tables[number]


def _singles(batch: TrialBatch) -> Iterable[TrialBatch]:
    keys = batch.keys or ("",) * len(batch.trials)
    return (TrialBatch(batch.kind, (trial,), (key,)) for trial, key in zip(batch.trials, keys, strict=True))


@frozen(kw_only=True)
class Sent:
    """A batch as it is sent to another process or machine."""

    batch: TrialBatch
    tried: str
    #: Resolved tables of the experiments, as JSON.
    tables: tuple[str, ...]
    #: Of who sends it: whoever answers must be of the same version and code.
    identity: Mapping[str, str]
    packages: tuple[str, ...]
    #: Folder of the store in which answers are to be kept; None: they are only returned.
    store: str | None = None


def identity_here(packages: tuple[str, ...]) -> dict[str, str]:
    """Return what must be the same wherever parts of one result are computed."""
    return {
        "sipml": __version__,
        "Python": platform.python_version(),
        "code": code_fingerprint(packages)[:12],
    }


def probe_of(registry: Registry) -> Callable[[], dict[str, str]]:
    """Return what asks another machine who it is: its version, and the code of all that is installed here."""
    packages = {entry.package for role in registry.entries.values() for entry in role.values()}
    return partial(identity_here, tuple(sorted(packages)))


def perform(sent: Sent) -> list[Answer]:
    """Return the answers to a batch, in whatever process this runs.

    Raises
    ------
    ConfigError
        This process has another version, or other code, than the one that asks.
    """
    refuse_stranger(sent.identity, identity_here(sent.packages), "a worker")
    worker = Worker([_experiment(tables) for tables in sent.tables], sent.tried, _shared())
    worker.next_batch()
    if sent.store is None:
        return worker.answers(sent.batch)
    answers = []
    store = ResultStore(Path(sent.store))
    for single in _singles(sent.batch):
        record = store.get(single.keys[0])
        if record is None or not complete(single.kind, record.answer):
            (answer,) = worker.answers(single)
            record = Record(kind=single.kind, answer=answer, about=worker.about(single.trials[0]))
            store.put(single.keys[0], record)
        answers.append(record.answer)
    return answers


@lru_cache(maxsize=64)
def _experiment(tables: str) -> Experiment:
    """Read an experiment again, from the tables it was made of."""
    return read_experiment(json.loads(tables), _registry())


@lru_cache(maxsize=1)
def _registry() -> Registry:
    return load()


_of_thread = local()


def _shared() -> Reuse:
    """Return what the batches of this thread share."""
    if not hasattr(_of_thread, "reuse"):
        _of_thread.reuse = Reuse()
    reuse: Reuse = _of_thread.reuse
    return reuse
