"""Estimate every candidate, simulate those that may win, keep the least time-to-accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import attrs

from sipml_core import __version__
from sipml_core.cases import Candidate, goal_of, hashes_of_files, options_text, versions, with_speedups
from sipml_core.executing import Executor, executor_for
from sipml_core.experiment import Experiment, Interconnect, resolved_tables
from sipml_core.fields import frozen
from sipml_core.model import SILENT, CaseResult, Progress
from sipml_core.searching.answering import Answers, Asked
from sipml_core.searching.ladders import estimates_in_rounds
from sipml_core.searching.ranking import goal_of_candidate, rankings_of
from sipml_core.searching.searchresult import TIGHT_MEMORY, SearchResult, SearchRow
from sipml_core.searching.workers import ESTIMATE, SIMULATION, Trial, WorkerPool
from sipml_core.store import ResultStore, trim


def search(
    experiments: Sequence[Experiment],
    *,
    jobs: int = 1,
    store: ResultStore | None = None,
    executor: Executor | None = None,
    retry_failed: bool = False,
    progress: Progress = SILENT,
) -> list[SearchResult]:
    """The best strategy for each workload on each interconnect of each experiment.

    All candidates are estimated. The `top` best by the estimate are simulated in full, and so is the
    best one of pure data parallelism; where a simulation turns out to be infeasible, the next one takes
    its place, but not where it exceeds `engine.max_time_us`. Then those whose estimate beats the best that
    was simulated are simulated as well, `further` of them at most.

    Parameters
    ----------
    jobs
        Processes. The result is the same for any number.
    store
        Where answers are looked up and kept; None: nowhere.
    executor
        Where candidates are tried, open already; None: in `jobs` processes.
    retry_failed
        Ask again for what the store says cannot be.

    Raises
    ------
    InfeasibleError
        A workload has no candidate at all.
    """
    kept = store or ResultStore(None)
    trim(kept)
    with nullcontext(executor) if executor else executor_for(jobs=jobs) as workers:
        pool = WorkerPool(experiments, workers)
        asked = Asked(pool=pool, store=kept, progress=progress, retry_failed=retry_failed)
        trials = list(_trials(pool, experiments))
        estimates = estimates_in_rounds(
            trials, lambda trial: _look_up(pool, trial)[1], lambda some: asked.all(ESTIMATE, some)
        )
        rankings = rankings_of(estimates, lambda trial: _look_up(pool, trial)[1])
        simulations: Answers = {}
        while chosen := [trial for ranking in rankings for trial in ranking.first(simulations)]:
            simulations |= asked.all(SIMULATION, chosen)
        first = frozenset(simulations)
        while chosen := [trial for ranking in rankings for trial in ranking.further(simulations, first)]:
            simulations |= asked.all(SIMULATION, chosen)
        return [
            _Report(pool, number, estimates, simulations, first).result()
            for number in range(len(experiments))
        ]


def _trials(pool: WorkerPool, experiments: Sequence[Experiment]) -> Iterator[Trial]:
    for number, experiment in enumerate(experiments):
        for job in range(len(experiment.jobs)):
            for candidate in range(len(pool.worker.candidates(number, job))):
                for interconnect in range(len(experiment.interconnects)):
                    yield Trial(number, job, candidate, interconnect)


def _look_up(pool: WorkerPool, trial: Trial) -> tuple[Experiment, Candidate, Interconnect]:
    return pool.worker.look_up(trial)


@frozen
class _Report:
    """Puts the answers about one experiment together."""

    pool: WorkerPool
    number: int
    estimates: Answers
    simulations: Answers
    #: Those that were simulated before any estimate was compared with a simulation.
    first: frozenset[Trial]

    def result(self) -> SearchResult:
        experiment = self.pool.worker.experiments[self.number]
        mine = [trial for trial in self.estimates if trial.experiment == self.number]
        mine.sort(key=lambda q: (q.job, q.interconnect, q.candidate))
        winners = self._winners(mine)
        return SearchResult(
            title=experiment.title,
            seed=experiment.seed,
            version=__version__,
            baseline=experiment.baseline,
            experiment=resolved_tables(experiment),
            rows=tuple(self._row(trial, trial in winners) for trial in mine),
            best=self._best(winners),
            sources={
                job.label: goal_of(job.workload, job.workload.default_global_batch).source
                for job in experiment.jobs
            },
            versions=versions(experiment),
            files=hashes_of_files(experiment),
        )

    def _winners(self, trials: list[Trial]) -> list[Trial]:
        """The question with the least simulated time of each case, in order."""
        best: dict[tuple[int, int], Trial] = {}
        for trial in trials:
            if (seconds := self._simulated_s(trial)) is not None:
                case = trial.job, trial.interconnect
                known = self._simulated_s(best[case]) if case in best else None
                if known is None or seconds < known:
                    best[case] = trial
        return list(best.values())

    def _simulated_s(self, trial: Trial) -> float | None:
        answer = self.simulations.get(trial, {})
        if "iteration_us" not in answer:
            return None
        _, candidate, _ = _look_up(self.pool, trial)
        return goal_of_candidate(candidate).time_s(answer["iteration_us"])

    def _best(self, winners: list[Trial]) -> tuple[CaseResult, ...]:
        cases = [self._case(trial) for trial in winners]
        baseline = self.pool.worker.experiments[self.number].baseline
        return tuple(with_speedups(cases, baseline))

    def _case(self, trial: Trial) -> CaseResult:
        """The simulated case, under the labels it has here."""
        _, candidate, interconnect = _look_up(self.pool, trial)
        known = self.simulations[trial]
        case = CaseResult(**{**known, "notes": tuple(known["notes"])})
        return attrs.evolve(
            case,
            workload=candidate.job.label,
            topology=interconnect.label,
            options=options_text(interconnect.topology),
        )

    def _row(self, trial: Trial, best: bool) -> SearchRow:
        experiment, candidate, interconnect = _look_up(self.pool, trial)
        goal = goal_of_candidate(candidate)
        guessed, simulated = self.estimates[trial], self.simulations.get(trial, {})
        estimate_us, iteration_us = guessed.get("iteration_us"), simulated.get("iteration_us")
        reason = guessed.get("infeasible") or simulated.get("infeasible") or ""
        memory_bytes = guessed.get("memory_bytes")
        return SearchRow(
            workload=candidate.job.label,
            topology=interconnect.label,
            options=options_text(interconnect.topology),
            gpus=interconnect.cluster.gpus,
            bandwidth_gbps=interconnect.cluster.bandwidth_gbps,
            mp=candidate.mp,
            dp=candidate.dp,
            global_batch=candidate.global_batch,
            layout=candidate.layout,
            placer=candidate.placer,
            status="left out"
            if guessed.get("left_out")
            else "infeasible"
            if reason
            else "simulated"
            if simulated
            else "estimated",
            best=best,
            estimate_us=estimate_us,
            iteration_us=iteration_us,
            one_round_us=simulated.get("one_round_us"),
            error=estimate_us / iteration_us - 1 if estimate_us and iteration_us else None,
            goal=goal.name,
            steps_to_accuracy=goal.steps_to_accuracy,
            estimate_s=None if estimate_us is None else goal.time_s(estimate_us),
            time_to_accuracy_s=None if iteration_us is None else goal.accuracy_s(iteration_us),
            time_to_goal_s=self._simulated_s(trial),
            all_reduce=simulated.get("all_reduce") or guessed.get("all_reduce") or "",
            exchange=simulated.get("exchange") or guessed.get("exchange") or "",
            memory_bytes=memory_bytes,
            extrapolated=goal.extrapolated,
            tight_memory=bool(memory_bytes and memory_bytes > TIGHT_MEMORY * experiment.gpu.memory_bytes),
            reason=reason,
            pp=candidate.pp,
            micro_batch=candidate.plan.micro_samples if candidate.plan else candidate.job.table.micro_batch,
            schedule=candidate.job.table.schedule if candidate.pp > 1 else "",
            zero=candidate.job.table.zero,
            recompute=candidate.job.table.recompute,
            bubble=candidate.plan.bubble if candidate.plan else None,
            further=trial in self.simulations and trial not in self.first,
        )
