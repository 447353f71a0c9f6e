"""Studies carried out: the numbers behind the figures, and the verdicts on the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from sipml_core.errors import ConfigError
from sipml_core.model import Progress
from sipml_core.plugin import Registry
from sipml_core.reproduce.study import Claim, Point, Series, Study, read_study
from sipml_core.searching import SearchResult, SearchRow, search
from sipml_core.store import ResultStore


def _column(doc: str, unit: str = "") -> Any:
    return attrs.field(metadata={"doc": doc, "unit": unit})


@attrs.frozen(kw_only=True)
class Number:
    """One point of one series. The fields are the columns of the study's CSV file."""

    workload: str = _column("model that is trained")
    series: str = _column("line of the figure")
    x: float = _column("place on the axis")
    label: str = _column("what stands there instead of x")
    gpus: int = _column("GPUs in the cluster")
    mp: int | None = _column("model-parallel degree of the best strategy")
    dp: int | None = _column("data-parallel degree")
    global_batch: int | None = _column("samples in one iteration")
    iteration_us: float | None = _column("time of one iteration, simulated", "us")
    steps_to_accuracy: float | None = _column("iterations to the target accuracy")
    time_to_accuracy_s: float | None = _column("iteration time x iterations", "s")
    estimate_error: float | None = _column("the search's estimate over the simulation, less 1")
    extrapolated: bool = _column("the batch lies outside the measured convergence data")
    tight_memory: bool = _column("needs more than 95 % of the device memory")
    reason: str = _column("why no strategy can run")

    @property
    def time_to_accuracy_h(self) -> float | None:
        return None if self.time_to_accuracy_s is None else self.time_to_accuracy_s / 3600

    @property
    def iteration_ms(self) -> float | None:
        return None if self.iteration_us is None else self.iteration_us / 1e3

    @property
    def throughput_per_s(self) -> float | None:
        """Samples trained in a second."""
        if self.global_batch is None or self.iteration_us is None:
            return None
        return self.global_batch / (self.iteration_us * 1e-6)


@attrs.frozen(kw_only=True)
class Verdict:
    """A claim held against the numbers. The fields are columns of claims.csv."""

    claim: str
    paper: str
    smallest: float | None
    largest: float | None
    points: int
    #: Points that could not be judged: one of the two sides has no time.
    unjudged: int
    verdict: str
    #: Smallest and largest ratio of each workload.
    by_workload: dict[str, tuple[float, float]]
    extrapolated: bool


@attrs.frozen(kw_only=True)
class Finding:
    """A study, carried out."""

    name: str
    study: Study
    numbers: tuple[Number, ...]
    verdicts: tuple[Verdict, ...]
    searches: tuple[SearchResult, ...]


def carry_out(
    names: Sequence[str],
    registry: Registry,
    *,
    quick: bool,
    jobs: int,
    store: ResultStore,
    progress: Progress,
) -> list[Finding]:
    """Run the studies named, all their experiments in one search.

    Raises
    ------
    ConfigError
        There is no such study.
    """
    studies = {name: read_study(name) for name in names}
    owners = {name: study.results_of or name for name, study in studies.items()}
    sources = {owner: read_study(owner) for owner in owners.values()}
    asked = [
        (owner, point, experiment)
        for owner, source in sources.items()
        for point, experiment in source.experiments(registry, quick)
    ]
    found = search([experiment for *_, experiment in asked], jobs=jobs, store=store, progress=progress)
    results: dict[str, list[tuple[Point, SearchResult]]] = {owner: [] for owner in sources}
    for (owner, point, _), result in zip(asked, found, strict=True):
        results[owner].append((point, result))
    return [_finding(name, study, results[owners[name]]) for name, study in studies.items()]


def _finding(name: str, study: Study, results: list[tuple[Point, SearchResult]]) -> Finding:
    numbers = tuple(
        _number(workload, series, point, result)
        for series in study.series
        for point, result in results
        for workload in dict.fromkeys(row.workload for row in result.rows)
    )
    return Finding(
        name=name,
        study=study,
        numbers=numbers,
        verdicts=tuple(verdict for claim in study.claim for verdict in verdicts_on(claim, numbers)),
        searches=tuple(result for _, result in results),
    )


def _number(workload: str, series: Series, point: Point, result: SearchResult) -> Number:
    rows = result.of(workload, series.topology)
    if not rows:
        raise ConfigError(f"series {series.label!r}: no topology is labelled {series.topology!r}")
    row = _best(rows, series)
    iteration_us = None if row is None else row.iteration_us
    seconds = None if row is None else _seconds(row)
    if iteration_us is not None and seconds is not None and series.added_bytes:
        added_us = series.added_us(workload, point.x)
        iteration_us, seconds = iteration_us + added_us, seconds * (1 + added_us / iteration_us)
    return Number(
        workload=workload,
        series=series.label,
        x=point.x,
        label=point.label,
        gpus=next(row.gpus for row in result.rows),
        mp=row.mp if row else None,
        dp=row.dp if row else None,
        global_batch=row.global_batch if row else None,
        iteration_us=iteration_us,
        steps_to_accuracy=row.steps_to_accuracy if row else None,
        time_to_accuracy_s=seconds,
        estimate_error=row.error if row else None,
        extrapolated=row.extrapolated if row else False,
        tight_memory=row.tight_memory if row else False,
        reason="" if row else _refusal(rows, series),
    )


def _wanted(row: SearchRow, series: Series) -> bool:
    """Return whether a series is about candidates of this degree."""
    return (row.mp == 1 or not series.pure_dp) and series.mp in (None, row.mp)


def _seconds(row: SearchRow) -> float | None:
    """Return the time to accuracy, or to another goal where no accuracy was measured. [s]"""
    return row.time_to_goal_s if row.time_to_accuracy_s is None else row.time_to_accuracy_s


def _refusal(rows: list[SearchRow], series: Series) -> str:
    """Why nothing runs: of the candidate that came furthest, then of that with the highest degree."""
    refused = [row for row in rows if row.reason and _wanted(row, series)]
    estimated = [row for row in refused if row.estimate_us is not None]
    return (estimated or refused)[-1].reason if refused else f"no candidate has mp = {series.mp}"


def _best(rows: list[SearchRow], series: Series) -> SearchRow | None:
    ran = [(_seconds(row), n) for n, row in enumerate(rows) if _wanted(row, series)]
    timed = [(seconds, n) for seconds, n in ran if seconds is not None]
    return rows[min(timed)[1]] if timed else None


def verdicts_on(claim: Claim, numbers: Sequence[Number]) -> list[Verdict]:
    """Return the verdict on a claim, or one for each model."""
    if not claim.each_model:
        return [judge(claim, numbers)]
    return [
        judge(
            attrs.evolve(claim, text=f"{claim.text}: {workload}"),
            [n for n in numbers if n.workload == workload],
        )
        for workload in dict.fromkeys(number.workload for number in numbers)
    ]


def judge(claim: Claim, numbers: Sequence[Number]) -> Verdict:
    """Hold a claim against all points at which both sides could run."""
    ratios: list[tuple[str, float, bool]] = []
    for number in _least(claim.under, numbers).values():
        if number.x < claim.from_x:
            continue
        other = _least(claim.over, numbers).get((number.workload, number.x * claim.over_x))
        if other is not None and other.time_to_accuracy_s and number.time_to_accuracy_s:
            ratio = other.time_to_accuracy_s / number.time_to_accuracy_s
            ratios.append((number.workload, ratio, number.extrapolated or other.extrapolated))
    by_workload: dict[str, list[float]] = {}
    for workload, ratio, _ in ratios:
        by_workload.setdefault(workload, []).append(ratio)
    values = [ratio for _, ratio, _ in ratios]
    return Verdict(
        claim=claim.text,
        paper=claim.paper,
        smallest=min(values, default=None),
        largest=max(values, default=None),
        points=len(values),
        unjudged=len(_points(claim, numbers)) - len(values),
        verdict=_verdict(claim, values),
        by_workload={workload: (min(each), max(each)) for workload, each in by_workload.items()},
        extrapolated=any(extrapolated for *_, extrapolated in ratios),
    )


def _points(claim: Claim, numbers: Sequence[Number]) -> set[tuple[str, float]]:
    """Where there is something to judge by, if it could run."""
    over = {(number.workload, number.x) for number in numbers if number.series in claim.over}
    return {
        (number.workload, number.x)
        for number in numbers
        if number.series in claim.under
        and number.x >= claim.from_x
        and (number.workload, number.x * claim.over_x) in over
    }


def _least(labels: Sequence[str], numbers: Sequence[Number]) -> dict[tuple[str, float], Number]:
    """The fastest of some series at each workload and point."""
    least: dict[tuple[str, float], Number] = {}
    for number in numbers:
        if number.series in labels and number.time_to_accuracy_s is not None:
            key = number.workload, number.x
            known = least[key].time_to_accuracy_s if key in least else None
            if known is None or number.time_to_accuracy_s < known:
                least[key] = number
    return least


def _verdict(claim: Claim, ratios: list[float]) -> str:
    if not ratios:
        return "no point to judge by"
    failed = [
        f"{which} ratio {value:.3g}, {relation} {limit:g} expected ({value / limit - 1:+.0%})"
        for which, value, relation, limit, wrong in (
            ("smallest", min(ratios), "at least", claim.smallest_at_least, float.__lt__),
            ("largest", max(ratios), "at least", claim.largest_at_least, float.__lt__),
            ("largest", max(ratios), "at most", claim.largest_at_most, float.__gt__),
        )
        if limit is not None and wrong(value, limit)
    ]
    return "differs: " + "; ".join(failed) if failed else "holds"
