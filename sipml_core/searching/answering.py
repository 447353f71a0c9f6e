"""Every question is looked up in the store first, then asked once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from sipml_core.cases import Candidate
from sipml_core.experiment import Experiment, Interconnect
from sipml_core.fields import frozen
from sipml_core.model import SILENT, Progress
from sipml_core.searching.workers import SIMULATION, Trial, TrialBatch, WorkerPool, complete
from sipml_core.store import Answer, Keys, Record, ResultStore, trial_keys

Answers = dict[Trial, Answer]

#: Trials in one batch at most where every one of them is a run of its own.
MOST_TOGETHER = 8
#: Batches for each worker where a graph is asked about at many bandwidths: none is to work long at the last.
BATCHES_PER_WORKER = 16


@frozen(kw_only=True)
class Asked:
    """Asks the store first, then the workers, and about every trial once."""

    pool: WorkerPool
    store: ResultStore
    progress: Progress = SILENT
    #: Whether reasons why there is no result are asked for again.
    retry_failed: bool = False
    #: Called with each trial and its answer, when it is known.
    answered: Callable[[Trial, Answer], None] = lambda trial, answer: None

    def all(self, kind: str, trials: Sequence[Trial], apart: bool = False) -> Answers:
        """Return the answer to each trial.

        Parameters
        ----------
        apart
            Divide trials about one graph, too, among workers.
        """
        keys = {trial: self.keys(kind, trial) for trial in trials}
        known, open_trials = self.look_up(kind, keys)
        # All trials of each key, which get the same answer.
        same: dict[str, list[Trial]] = defaultdict(list)
        for trial, key in keys.items():
            same[key.answer].append(trial)
        for key_answer, answer in known.items():
            for trial in same[key_answer]:
                self.answered(trial, answer)
        all_answers = len(known) + len(open_trials)
        self.progress.named(f"{kind}s").at(len(known) / max(1, all_answers))

        def received(batch: TrialBatch, found: list[Answer]) -> None:
            for trial, answer in zip(batch.trials, found, strict=True):
                key = keys[trial].answer
                known[key] = answer
                record = Record(kind=kind, answer=answer, about=self.pool.worker.about(trial))
                self.store.put(key, record)
                self.progress.named(f"{kind}s").at(len(known) / all_answers)
                for each in same[key]:
                    self.answered(each, answer)

        most, workers = len(open_trials), self.pool.executor.workers
        if apart:
            most = min(MOST_TOGETHER, max(1, most // (4 * workers)))
        elif workers > 1:
            networks = max(len(each.interconnects) for each in self.pool.worker.experiments)
            most = max(networks, most // (BATCHES_PER_WORKER * workers))
        self.pool.ask(_batches(kind, open_trials.values(), keys, max(1, most)), received, self.store)
        return {trial: known[key.answer] for trial, key in keys.items()}

    def look_up(self, kind: str, keys: dict[Trial, Keys]) -> tuple[dict[str, Answer], dict[str, Trial]]:
        """Return the answers that the store has, and one trial for each that it has not, by key."""
        known: dict[str, Answer] = {}
        open_trials: dict[str, Trial] = {}
        for trial, key in keys.items():
            if key.answer in known or key.answer in open_trials:
                continue
            record = self.store.get(key.answer)
            if record is None or not self._counts(kind, record.answer):
                open_trials[key.answer] = trial
            else:
                known[key.answer] = record.answer
        return known, open_trials

    def _counts(self, kind: str, answer: Answer) -> bool:
        if not complete(kind, answer) or (self.retry_failed and "infeasible" in answer):
            return False
        # What a run refused, a search refuses as well, and says so.
        return not (answer.get("refused") and self.pool.worker.tried == "search")

    def keys(self, kind: str, trial: Trial) -> Keys:
        """Return the keys of one trial."""
        return trial_keys(kind, *self.pool.worker.look_up(trial))


def _batches(kind: str, trials: Iterable[Trial], keys: dict[Trial, Keys], most: int) -> list[TrialBatch]:
    """Questions about one graph go together, from whatever experiment, `most` of them at most.

    Those on one interconnect stand side by side, whose experiments differ in bandwidth, say: they share most.
    """
    together: dict[str, list[Trial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda trial: (trial.job, trial.candidate, trial.interconnect)):
        together[keys[trial].graph].append(trial)
    return [
        TrialBatch(kind, tuple(part), tuple(keys[trial].answer for trial in part))
        for group in together.values()
        for part in (group[first : first + most] for first in range(0, len(group), most))
    ]


def simulation_key(experiment: Experiment, candidate: Candidate, interconnect: Interconnect) -> str:
    """Return the key under which the store has the simulation of a candidate."""
    return trial_keys(SIMULATION, experiment, candidate, interconnect).answer
