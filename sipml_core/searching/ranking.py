"""Which candidates are simulated: the best by estimate, then all whose estimate beats the best simulated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from sipml_core.cases import Candidate, Goal, goal_of
from sipml_core.experiment import SearchTable
from sipml_core.fields import frozen
from sipml_core.searching.answering import Answers
from sipml_core.searching.workers import Trial


def goal_of_candidate(candidate: Candidate) -> Goal:
    """Return what a candidate is trained to, at its batch."""
    return goal_of(candidate.job.workload, candidate.global_batch)


@frozen(kw_only=True)
class Ranking:
    """The candidates of one workload on one interconnect that may run, the least estimate first.

    Examples
    --------
    Times to the goal by the estimate are 1, 2, 3 and 4 s; the third is pure data parallelism. One is
    simulated, and that one: 3.5 s and 9 s.

    >>> a, b, c, d = (Trial(0, 0, number, 0) for number in range(4))
    >>> goal = Goal(name="accuracy", steps=1e6, extrapolated=False, source="")
    >>> ranking = Ranking(
    ...     trials=(a, b, c, d), estimate_us={a: 1.0, b: 2.0, c: 3.0, d: 4.0},
    ...     goals=dict.fromkeys((a, b, c, d), goal), pure=frozenset([c]), search=SearchTable(top=1),
    ... )
    >>> ranking.first({}) == [a, c]
    True
    >>> simulations = {a: {"iteration_us": 3.5}, c: {"iteration_us": 9.0}}
    >>> ranking.first(simulations), ranking.further(simulations, {a, c}) == [b]
    ([], True)

    The second takes 2.5 s: the estimate of the fourth does not beat that.

    >>> ranking.further(simulations | {b: {"iteration_us": 2.5}}, {a, c})
    []
    """

    trials: tuple[Trial, ...]
    #: Of an iteration. [us]
    estimate_us: Mapping[Trial, float]
    goals: Mapping[Trial, Goal]
    #: Data parallelism alone.
    pure: Set[Trial]
    search: SearchTable

    def first(self, simulations: Answers) -> list[Trial]:
        """Return those of the `top` best, and the best of pure data parallelism, that are not simulated."""
        pure = [trial for trial in self.trials if trial in self.pure]
        chosen = {*_wanted(self.trials, simulations, self.search.top), *_wanted(pure, simulations, 1)}
        return sorted(chosen)

    def further(self, simulations: Answers, first: Set[Trial]) -> list[Trial]:
        """Return the next ones whose estimate beats the best that was simulated: `top` of them at most.

        So many at a time, whoever does the work: which are simulated must not depend on that.

        Parameters
        ----------
        first
            Those that were simulated before any of these.
        """
        best_s = min(self._simulated_s(simulations), default=0.0)
        done = [trial for trial in self.trials if trial in simulations and trial not in first]
        left = self.search.further - sum(_counts(simulations[trial]) for trial in done)
        open_trials = (
            trial
            for trial in self.trials
            if trial not in simulations and self.goals[trial].time_s(self.estimate_us[trial]) < best_s
        )
        return [trial for trial, _ in zip(open_trials, range(min(left, self.search.top)), strict=False)]

    def _simulated_s(self, simulations: Answers) -> Iterator[float]:
        for trial in self.trials:
            answer = simulations.get(trial, {})
            if "iteration_us" in answer:
                yield self.goals[trial].time_s(answer["iteration_us"])


def rankings_of(estimates: Answers, candidate_of: Callable[[Trial], Candidate]) -> list[Ranking]:
    """Return the ranking of each workload on each interconnect of each experiment that has candidates."""
    cases: dict[tuple[int, int, int], list[Trial]] = defaultdict(list)
    for trial, answer in estimates.items():
        if "infeasible" not in answer:
            cases[trial.experiment, trial.job, trial.interconnect].append(trial)
    return [_ranking(trials, estimates, candidate_of) for _, trials in sorted(cases.items())]


def _ranking(
    trials: Sequence[Trial], estimates: Answers, candidate_of: Callable[[Trial], Candidate]
) -> Ranking:
    candidates = {trial: candidate_of(trial) for trial in trials}
    goals = {trial: goal_of_candidate(candidate) for trial, candidate in candidates.items()}
    estimate_us = {trial: float(estimates[trial]["iteration_us"]) for trial in trials}
    return Ranking(
        trials=tuple(sorted(trials, key=lambda trial: (estimate_us[trial] * goals[trial].steps, trial))),
        estimate_us=estimate_us,
        goals=goals,
        pure=frozenset(trial for trial, candidate in candidates.items() if _is_pure(candidate)),
        search=candidates[trials[0]].job.search,
    )


def _is_pure(candidate: Candidate) -> bool:
    """Whether a candidate is data parallelism alone, but for stages that the plan names."""
    return candidate.mp == 1 and (candidate.pp == 1 or not candidate.job.search.searches_stages)


def _counts(answer: Mapping[str, object]) -> bool:
    """Whether a simulation took its place: it ended, or took longer than it may."""
    return "infeasible" not in answer or "too_slow" in answer


def _wanted(ranked: Sequence[Trial], simulations: Answers, count: int) -> list[Trial]:
    """Return the first of the ranking, so that `count` of them will have been simulated."""
    left = [trial for trial in ranked if trial not in simulations or _counts(simulations[trial])]
    return [trial for trial in left[:count] if trial not in simulations]
