"""The runs of some experiments, looked up in the store or done by an executor, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from sipml_core.cases import Comparison
from sipml_core.errors import ConfigError
from sipml_core.executing import Executor, Shard
from sipml_core.experiment import Experiment
from sipml_core.fields import frozen
from sipml_core.model import SILENT, CaseResult, Progress
from sipml_core.searching.answering import Asked
from sipml_core.searching.workers import SIMULATION, Trial, WorkerPool
from sipml_core.store import Answer, ResultStore

#: ended(number of the experiment, what has ended, its row).
CaseEnded = Callable[[int, Comparison, CaseResult], None]


@frozen
class Unfinished:
    """A shard has done its part; runs of others are not in the store yet."""

    known: int
    of: int


class CaseRuns:
    """Every plan of every case of some experiments, to be simulated.

    Parameters
    ----------
    comparisons
        Those of each experiment, which are settled as answers come.
    refuse
        Raise what a case is refused for, instead of making it a row that failed.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        comparisons: Sequence[Sequence[Comparison]],
        executor: Executor,
        store: ResultStore,
        *,
        progress: Progress = SILENT,
        ended: CaseEnded = lambda number, comparison, row: None,
        refuse: bool = False,
    ) -> None:
        self._experiments = experiments
        self._comparisons = comparisons
        self._ended = ended
        self._refuse = refuse
        pool = WorkerPool(experiments, executor, tried="run")
        self._ask = Asked(pool=pool, store=store, progress=progress, answered=self._settle)

    def go(self, shard: Shard | None = None, retry_failed: bool = False) -> Unfinished | None:
        """Have everything answered, or the part of a shard; None: all answers are there."""
        trials = list(self._trials())
        first = attrs.evolve(self._ask, retry_failed=retry_failed)
        if shard is None:
            first.all(SIMULATION, trials, apart=True)
            return None
        keys = {trial: self._ask.keys(SIMULATION, trial) for trial in trials}
        # One trial for each key, in order: every shard divides the same list.
        one_of = {key.answer: trial for trial, key in reversed(keys.items())}
        mine = shard.part(list(dict.fromkeys(one_of[key.answer] for key in keys.values())))
        attrs.evolve(first, answered=lambda trial, answer: None).all(SIMULATION, mine, apart=True)
        known, missing = self._ask.look_up(SIMULATION, keys)
        if missing:
            return Unfinished(len(known), len(known) + len(missing))
        self._ask.all(SIMULATION, trials)
        return None

    def _trials(self) -> Iterator[Trial]:
        for number, experiment in enumerate(self._experiments):
            networks = len(experiment.interconnects)
            for place, comparison in enumerate(self._comparisons[number]):
                job, interconnect = divmod(place, networks)
                for candidate, attempt in enumerate(comparison.attempts):
                    if not attempt.ended:
                        yield Trial(number, job, candidate, interconnect)

    def _settle(self, trial: Trial, answer: Answer) -> None:
        if self._refuse and answer.get("refused"):
            raise ConfigError(answer["reason"])
        networks = len(self._experiments[trial.experiment].interconnects)
        comparison = self._comparisons[trial.experiment][trial.job * networks + trial.interconnect]
        comparison.attempts[trial.candidate].settle(answer, comparison.interconnect)
        if all(attempt.ended for attempt in comparison.attempts):
            self._ended(trial.experiment, comparison, comparison.row(listed=""))
