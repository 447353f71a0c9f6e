"""A sweep carried out: every run looked up in the store, the rest done by whoever an executor has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sipml_core import __version__
from sipml_core.cases import Comparison, comparisons, search_candidates, with_speedups
from sipml_core.errors import ConfigError, SipmlError, unknown
from sipml_core.executing import Executor, Shard
from sipml_core.experiment import Experiment, Interconnect, Job, resolved_tables
from sipml_core.model import SILENT, CaseResult, Progress
from sipml_core.plugin import Registry
from sipml_core.searching import (
    CaseRuns,
    SearchResult,
    SearchRow,
    Unfinished,
    search,
    simulation_key,
)
from sipml_core.store import ResultStore, trim
from sipml_core.sweeping.points import SweepPoint
from sipml_core.sweeping.seriesrows import Series, series_row
from sipml_core.sweeping.sweepfile import Sweep
from sipml_core.sweeping.sweepresult import SweepResult, SweepRow, is_line

#: Runs of a sweep that nobody asked more of.
DEFAULT_LIMIT = 10_000

#: ended(name of a run, its row), when it is known.
Ended = Callable[[str, CaseResult], None]


class MissingError(SipmlError):
    """Something would have to be computed, and nobody is there to do it."""


class Nobody:
    """An executor for what is in the store already."""

    workers, remote, keeps = 1, True, True

    def each(self, function: object, pieces: Sequence[Any], received: object, lost: object = None) -> None:
        """Raise `MissingError` if there is anything to do."""
        if pieces:
            raise MissingError(f"{len(pieces)} pieces of work are not done")

    def __enter__(self) -> Nobody:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def carry_out_sweep(
    sweep: Sweep,
    registry: Registry,
    executor: Executor,
    store: ResultStore,
    *,
    quick: bool = False,
    limit: int = DEFAULT_LIMIT,
    shard: Shard | None = None,
    retry_failed: bool = False,
    progress: Progress = SILENT,
    ended: Ended = lambda name, row: None,
) -> SweepResult | Unfinished:
    """Return a row for each run of a sweep; of a shard, how many of all runs the store has, if not all.

    Parameters
    ----------
    limit
        Runs that the sweep may have.
    retry_failed
        Try again what the store says cannot run, or failed.

    Raises
    ------
    ConfigError
        A point cannot be, there are too many, or shards have no store that they share. Nothing has run then.
    """
    if store.folder is None and (shard is not None or executor.keeps):
        raise ConfigError("shards and jobs need a store that all of them see: --store FOLDER")
    count = len(sweep.points(quick)) * len(sweep.tables)
    if count > limit:
        raise _too_many(count, limit)
    asked = list(sweep.experiments(registry, quick))
    runs = sum(len(experiment.jobs) * len(experiment.interconnects) for _, experiment in asked)
    if runs > limit:
        raise _too_many(runs, limit)
    if not asked:
        raise ConfigError("the sweep has no point; its conditions leave none")
    _check_lines(sweep, [experiment for _, experiment in asked])
    trim(store)
    with executor:
        if sweep.do == "search":
            found = _searched(
                [experiment for _, experiment in asked], executor, store, shard, retry_failed, progress
            )
            if isinstance(found, Unfinished):
                return found
            rows = [
                row
                for (point, experiment), result in zip(asked, found, strict=True)
                for row in search_rows(sweep, point, experiment, result)
            ]
        else:
            ran = [_comparisons(point, experiment) for point, experiment in asked]

            def told(number: int, comparison: Comparison, row: CaseResult) -> None:
                ended(", ".join(filter(None, (comparison.name, asked[number][0].about))), row)

            experiments = [experiment for _, experiment in asked]
            cases = CaseRuns(experiments, ran, executor, store, progress=progress, ended=told)
            unfinished = cases.go(shard, retry_failed)
            if unfinished is not None:
                return unfinished
            rows = list(_run_rows(sweep, asked, ran))
    return SweepResult(sweep=sweep, rows=tuple(rows))


def _check_lines(sweep: Sweep, experiments: Sequence[Experiment]) -> None:
    """Refuse series of networks that are not there, and figures of series that are not there."""
    networks = [{interconnect.label for interconnect in each.interconnects} for each in experiments]
    # A search has a row of each series at each point; of a run those rows are of a series that there are.
    there = set.intersection(*networks) if sweep.do == "search" else set.union(*networks)
    for series in sweep.series:
        if series.topology not in there:
            message = unknown("topology is labelled", series.topology, there)
            raise ConfigError(f"series {series.label!r}: {message}")
    lines = [series.label for series in sweep.series] or sorted(there)
    for label in sweep.figure.series if sweep.figure else ():
        if not any(is_line(label, line) for line in lines):
            raise ConfigError(f"figure.series: {unknown('series', label, lines)}")


def _too_many(count: int, limit: int) -> ConfigError:
    return ConfigError(
        f"the sweep has {count} runs, more than --limit {limit}; raise it, or leave out values"
    )


def _run_rows(
    sweep: Sweep, asked: Sequence[tuple[SweepPoint, Experiment]], ran: Sequence[Sequence[Comparison]]
) -> Iterator[SweepRow]:
    """Yield the row of each run."""
    for (point, experiment), cases in zip(asked, ran, strict=True):
        results = with_speedups([each.row(listed="") for each in cases], experiment.baseline)
        for comparison, result in zip(cases, results, strict=True):
            yield SweepRow(
                point=point,
                series=_series(sweep, point, result),
                result=result,
                options=options_of(experiment, comparison.job, comparison.interconnect),
                seed=experiment.seed,
                version=__version__,
                hash=simulation_key(experiment, comparison.best_attempt().candidate, comparison.interconnect),
            )


def _comparisons(point: SweepPoint, experiment: Experiment) -> list[Comparison]:
    try:
        return comparisons(experiment)
    except ConfigError as error:
        raise ConfigError(f"at {point.about}: {error}" if point.about else str(error)) from None


def _series(sweep: Sweep, point: SweepPoint, row: CaseResult | SearchRow) -> str:
    """Return the first series that a row is of, or its interconnect, and the values beside the drawn axis."""
    of_row = (each.label for each in sweep.series if each.topology == row.topology and each.wanted(row.mp))
    return line_name(sweep, point, next(of_row, row.topology))


def line_name(sweep: Sweep, point: SweepPoint, name: str) -> str:
    """Return the name of a line with the values of the axes that are not drawn along: each has its line."""
    others = [
        f"{key.rpartition('.')[2]} {value}"
        for key, value in point.columns().items()
        if key != sweep.x_key() and len(sweep.axis_values.get(key, ())) > 1 and not _follows(sweep, key)
    ]
    return ", ".join([name, *others])


def _follows(sweep: Sweep, key: str) -> bool:
    """Return whether the value of a key follows from another's: that drawn along, or the first of its zip."""
    groups = [list(group) for group in sweep.zip if key in group]
    return any(sweep.x_key() in group or key != group[0] for group in groups)


def _searched(
    experiments: Sequence[Experiment],
    executor: Executor,
    store: ResultStore,
    shard: Shard | None,
    retry_failed: bool,
    progress: Progress,
) -> list[SearchResult] | Unfinished:
    """Return the result of every search; of a shard, after its part of the workloads and interconnects."""
    if shard is None:
        return search(
            experiments, store=store, executor=executor, retry_failed=retry_failed, progress=progress
        )
    cases = [
        attrs.evolve(experiment, jobs=(job,), interconnects=(interconnect,), baseline=interconnect.label)
        for experiment in experiments
        for job in experiment.jobs
        for interconnect in experiment.interconnects
    ]
    search(shard.part(cases), store=store, executor=executor, retry_failed=retry_failed, progress=progress)
    known = sum(_in_store(case, store) for case in cases)
    if known < len(cases):
        return Unfinished(known, len(cases))
    return search(experiments, store=store, executor=Nobody())


def _in_store(case: Experiment, store: ResultStore) -> bool:
    try:
        search([case], store=store, executor=Nobody())
    except MissingError:
        return False
    return True


def search_rows(
    sweep: Sweep, point: SweepPoint, experiment: Experiment, result: SearchResult
) -> Iterator[SweepRow]:
    """Yield the row of each series, or of each interconnect, for each workload of a search."""
    lines = sweep.series or [Series(label=i.label, topology=i.label) for i in experiment.interconnects]
    for job in experiment.jobs:
        for line in lines:
            rows = result.of(job.label, line.topology)
            (interconnect,) = (i for i in experiment.interconnects if i.label == line.topology)
            options = options_of(experiment, job, interconnect, searched=True)
            row = series_row(rows, line, sweep.place(point, options)[0])
            yield SweepRow(
                point=point,
                series=line_name(sweep, point, line.label),
                result=row,
                options=options,
                seed=experiment.seed,
                version=__version__,
                hash=_key_of(experiment, job, interconnect, row),
            )


def _key_of(experiment: Experiment, job: Job, interconnect: Interconnect, row: SearchRow) -> str:
    """Return the key of the simulation of a row."""
    for candidate in search_candidates(job, interconnect.cluster.gpus):
        found = (candidate.mp, candidate.dp, candidate.global_batch, candidate.layout, candidate.placer)
        if found == (row.mp, row.dp, row.global_batch, row.layout, row.placer):
            return simulation_key(experiment, candidate, interconnect)
    return ""


def options_of(
    experiment: Experiment, job: Job, interconnect: Interconnect, searched: bool = False
) -> dict[str, Any]:
    """Return every option of one run as it was resolved, by its key; files by their base names."""
    one = attrs.evolve(experiment, jobs=(job,), interconnects=(interconnect,), baseline=interconnect.label)
    tables = resolved_tables(one, name_file=lambda name: Path(name).name)
    (workload,), (topology,) = tables["workload"], tables["topology"]
    plan, chosen = workload.pop("strategy"), workload.pop("search")
    parts: dict[str, Any] = {
        "cluster": tables["cluster"],
        "gpu": tables["gpu"],
        "engine": tables["engine"],
        "plan": plan,
        **({"search": chosen} if searched else {}),
        "workload": workload,
        "topology": topology,
        "baseline": experiment.baseline,
    }
    return dict(_flat(parts, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tables by their dotted keys; lists as JSON."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else key)
    else:
        yield path, json.dumps(value) if isinstance(value, list) else value
