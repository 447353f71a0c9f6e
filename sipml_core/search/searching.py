"""Estimate every candidate, simulate the best few, keep the least time-to-accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from sipml_core import __version__
from sipml_core.cases import Candidate
from sipml_core.experiment import Experiment, Interconnect
from sipml_core.model import CaseResult
from sipml_core.plugin import Convergence
from sipml_core.search.cache import Answer, AnswerCache, Keys, question_keys
from sipml_core.search.searchresult import TIGHT_MEMORY, SearchResult, SearchRow
from sipml_core.search.workers import ESTIMATE, SIMULATION, Question, Staff, Unit

#: progress(what, fraction of it done)
Progress = Callable[[str, float], None]
_Answers = dict[Question, Answer]


def search(
    experiments: Sequence[Experiment],
    *,
    jobs: int = 1,
    cache: AnswerCache | None = None,
    progress: Progress = lambda what, fraction: None,
) -> list[SearchResult]:
    """The best strategy for each workload on each interconnect of each experiment.

    All candidates are estimated. The `top` best by the estimate are simulated in full, and so is the
    best one of pure data parallelism; where a simulation turns out to be infeasible, the next one takes
    its place, but not where it exceeds `engine.max_time_us`.

    Parameters
    ----------
    jobs
        Processes. The result is the same for any number.
    cache
        Where answers are looked up and kept; None: nowhere.

    Raises
    ------
    InfeasibleError
        A workload has no candidate at all.
    """
    with Staff(experiments, jobs) as staff:
        asked = _Asked(staff, cache or AnswerCache(None), progress)
        questions = list(_questions(staff, experiments))
        estimates = asked.all(ESTIMATE, questions)
        simulations: _Answers = {}
        while chosen := list(_chosen(staff, estimates, simulations)):
            simulations |= asked.all(SIMULATION, chosen)
        return [_Report(staff, number, estimates, simulations).result() for number in range(len(experiments))]


def _questions(staff: Staff, experiments: Sequence[Experiment]) -> Iterator[Question]:
    for number, experiment in enumerate(experiments):
        for job in range(len(experiment.jobs)):
            for candidate in range(len(staff.desk.candidates(number, job))):
                for interconnect in range(len(experiment.interconnects)):
                    yield Question(number, job, candidate, interconnect)


@attrs.frozen
class _Asked:
    """Asks the cache first, then the staff, and every question once."""

    staff: Staff
    cache: AnswerCache
    progress: Progress

    def all(self, kind: str, questions: Sequence[Question]) -> _Answers:
        keys = {question: self._keys(kind, question) for question in questions}
        known: dict[str, Answer] = {}
        open_questions: dict[str, Question] = {}
        for question, key in keys.items():
            answer = self.cache.get(key.answer)
            if answer is None:
                open_questions.setdefault(key.answer, question)
            else:
                known[key.answer] = answer
        units = _units(kind, open_questions.values(), keys)
        all_answers = len(known) + len(open_questions)

        def received(unit: Unit, found: list[Answer]) -> None:
            for question, answer in zip(unit.questions, found, strict=True):
                known[keys[question].answer] = answer
                self.cache.put(keys[question].answer, answer)
            self.progress(f"{kind}s", len(known) / all_answers)

        self.staff.ask(units, received)
        return {question: known[key.answer] for question, key in keys.items()}

    def _keys(self, kind: str, question: Question) -> Keys:
        experiment, candidate, interconnect = _look_up(self.staff, question)
        return question_keys(kind, experiment, candidate, interconnect)


def _look_up(staff: Staff, question: Question) -> tuple[Experiment, Candidate, Interconnect]:
    experiment = staff.desk.experiments[question.experiment]
    candidate = staff.desk.candidates(question.experiment, question.job)[question.candidate]
    return experiment, candidate, experiment.interconnects[question.interconnect]


def _units(kind: str, questions: Iterable[Question], keys: Mapping[Question, Keys]) -> list[Unit]:
    """Questions about one graph go together, from whatever experiment."""
    together: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        together[keys[question].graph].append(question)
    return [Unit(kind, tuple(group)) for group in together.values()]


def _convergence(candidate: Candidate) -> Convergence:
    return candidate.job.workload.convergence(candidate.global_batch)


def _chosen(staff: Staff, estimates: _Answers, simulations: _Answers) -> Iterator[Question]:
    """What to simulate next, for cases that have not enough simulations yet."""
    cases: dict[tuple[int, int, int], list[Question]] = defaultdict(list)
    for question, answer in estimates.items():
        if "infeasible" not in answer:
            cases[question.experiment, question.job, question.interconnect].append(question)
    for (experiment, job, _), questions in sorted(cases.items()):

        def expected_s(question: Question) -> tuple[float, Question]:
            _, candidate, _ = _look_up(staff, question)
            return estimates[question]["iteration_us"] * _convergence(candidate).steps, question

        ranked = sorted(questions, key=expected_s)
        top = staff.desk.experiments[experiment].jobs[job].search.top
        pure = [question for question in ranked if _look_up(staff, question)[1].mp == 1]
        chosen = {*_still_wanted(ranked, simulations, top), *_still_wanted(pure, simulations, 1)}
        yield from sorted(chosen)


def _still_wanted(ranked: list[Question], simulations: _Answers, count: int) -> list[Question]:
    """The first of the ranking, so that `count` of them will have been simulated, if only to the limit."""

    def counts(question: Question) -> bool:
        answer = simulations.get(question, {})
        return "infeasible" not in answer or "too_slow" in answer

    left = [question for question in ranked if counts(question)]
    return [question for question in left[:count] if question not in simulations]


@attrs.frozen
class _Report:
    """Puts the answers about one experiment together."""

    staff: Staff
    number: int
    estimates: _Answers
    simulations: _Answers

    def result(self) -> SearchResult:
        experiment = self.staff.desk.experiments[self.number]
        mine = [question for question in self.estimates if question.experiment == self.number]
        mine.sort(key=lambda q: (q.job, q.interconnect, q.candidate))
        winners = self._winners(mine)
        return SearchResult(
            title=experiment.title,
            seed=experiment.seed,
            version=__version__,
            baseline=experiment.baseline,
            experiment=dict(experiment.tables),
            rows=tuple(self._row(question, question in winners) for question in mine),
            best=self._best(winners),
            sources={
                job.label: job.workload.convergence(job.workload.default_global_batch).source
                for job in experiment.jobs
            },
        )

    def _winners(self, questions: list[Question]) -> list[Question]:
        """The question with the least simulated time of each case, in order."""
        best: dict[tuple[int, int], Question] = {}
        for question in questions:
            if (seconds := self._simulated_s(question)) is not None:
                case = question.job, question.interconnect
                known = self._simulated_s(best[case]) if case in best else None
                if known is None or seconds < known:
                    best[case] = question
        return list(best.values())

    def _simulated_s(self, question: Question) -> float | None:
        answer = self.simulations.get(question, {})
        if "iteration_us" not in answer:
            return None
        _, candidate, _ = _look_up(self.staff, question)
        return float(answer["iteration_us"] * 1e-6 * _convergence(candidate).steps)

    def _best(self, winners: list[Question]) -> tuple[CaseResult, ...]:
        cases = [self._case(question) for question in winners]
        baseline = self.staff.desk.experiments[self.number].baseline
        base_s = {case.workload: case.time_to_accuracy_s for case in cases if case.topology == baseline}
        nothing = float("nan")
        return tuple(
            attrs.evolve(case, speedup=base_s.get(case.workload, nothing) / case.time_to_accuracy_s)
            for case in cases
        )

    def _case(self, question: Question) -> CaseResult:
        """The simulated case, under the labels it has here."""
        _, candidate, interconnect = _look_up(self.staff, question)
        known = self.simulations[question]
        case = CaseResult(**{**known, "notes": tuple(known["notes"])})
        return attrs.evolve(case, workload=candidate.job.label, topology=interconnect.label)

    def _row(self, question: Question, best: bool) -> SearchRow:
        experiment, candidate, interconnect = _look_up(self.staff, question)
        convergence = _convergence(candidate)
        guessed, simulated = self.estimates[question], self.simulations.get(question, {})
        estimate_us, iteration_us = guessed.get("iteration_us"), simulated.get("iteration_us")
        reason = guessed.get("infeasible") or simulated.get("infeasible") or ""
        memory_bytes = guessed.get("memory_bytes")
        return SearchRow(
            workload=candidate.job.label,
            topology=interconnect.label,
            gpus=interconnect.cluster.gpus,
            bandwidth_gbps=interconnect.cluster.bandwidth_gbps,
            mp=candidate.mp,
            dp=candidate.dp,
            global_batch=candidate.global_batch,
            layout=candidate.layout,
            placer=candidate.placer,
            status="infeasible" if reason else "simulated" if simulated else "estimated",
            best=best,
            estimate_us=estimate_us,
            iteration_us=iteration_us,
            error=estimate_us / iteration_us - 1 if estimate_us and iteration_us else None,
            steps_to_accuracy=convergence.steps,
            estimate_s=None if estimate_us is None else estimate_us * 1e-6 * convergence.steps,
            time_to_accuracy_s=self._simulated_s(question),
            all_reduce=simulated.get("all_reduce") or guessed.get("all_reduce") or "",
            exchange=simulated.get("exchange") or guessed.get("exchange") or "",
            memory_bytes=memory_bytes,
            extrapolated=convergence.extrapolated,
            tight_memory=bool(memory_bytes and memory_bytes > TIGHT_MEMORY * experiment.gpu.memory_bytes),
            reason=reason,
        )
