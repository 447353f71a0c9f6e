"""Studies carried out: the numbers behind the figures, and the verdicts on the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sipml_core.errors import ConfigError
from sipml_core.executing import Executor
from sipml_core.fields import frozen
from sipml_core.model import Progress
from sipml_core.plugin import Registry
from sipml_core.reproduce.study import Claim, Study, read_study
from sipml_core.searching import SearchResult, search
from sipml_core.store import ResultStore
from sipml_core.sweeping import Number, Series, SweepPoint, line_name, number_of, series_row


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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
    executor: Executor,
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
    found = search(
        [experiment for *_, experiment in asked], executor=executor, store=store, progress=progress
    )
    results: dict[str, list[tuple[SweepPoint, SearchResult]]] = {owner: [] for owner in sources}
    for (owner, point, _), result in zip(asked, found, strict=True):
        results[owner].append((point, result))
    return [
        _finding(name, study, sources[owners[name]], results[owners[name]]) for name, study in studies.items()
    ]


def _finding(
    name: str, study: Study, source: Study, results: list[tuple[SweepPoint, SearchResult]]
) -> Finding:
    numbers = tuple(
        _number(source, workload, series, point, result)
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


def _number(source: Study, workload: str, series: Series, point: SweepPoint, result: SearchResult) -> Number:
    rows = result.of(workload, series.topology)
    if not rows:
        raise ConfigError(f"series {series.label!r}: no topology is labelled {series.topology!r}")
    x, label = source.place(point, {})
    number = number_of(series_row(rows, series, x), series.label, x, label)
    # A panel for each value of the axes that are not drawn along.
    return attrs.evolve(number, workload=line_name(source, point, workload))


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


def _beside(value: float, limit: float) -> str:
    """Return a number in so many digits that it is not read as the limit that it misses.

    >>> _beside(1.2966, 1.3), _beside(0.952, 1.3)
    ('1.297', '0.952')
    """
    digits = 3
    while float(f"{value:.{digits}g}") == limit and digits < 9:
        digits += 1
    return f"{value:.{digits}g}"


def _off(part: float) -> str:
    """Return a difference in whole percent, or one digit of what is less.

    >>> _off(-0.27), _off(-0.0026), _off(-0.00046)
    ('-27%', '-0.3%', '-0.05%')
    """
    return f"{part:+.0%}" if abs(part) >= 0.01 else f"{100 * part:+.1g}%"


def _verdict(claim: Claim, ratios: list[float]) -> str:
    if not ratios:
        return "no point to judge by"
    failed = [
        f"{which} ratio {_beside(value, limit)}, {relation} {limit:g} expected ({_off(value / limit - 1)})"
        for which, value, relation, limit, wrong in (
            ("smallest", min(ratios), "at least", claim.smallest_at_least, float.__lt__),
            ("largest", max(ratios), "at least", claim.largest_at_least, float.__lt__),
            ("largest", max(ratios), "at most", claim.largest_at_most, float.__gt__),
        )
        if limit is not None and wrong(value, limit)
    ]
    return "differs: " + "; ".join(failed) if failed else "holds"
