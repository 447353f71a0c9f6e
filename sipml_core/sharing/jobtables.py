"""From a file with [[job]] tables to jobs that are known to be well formed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sipml_core.errors import ConfigError, shown, unknown
from sipml_core.experiment import (
    EXPERIMENT_KEYS,
    SHARED_KEYS,
    Experiment,
    Interconnect,
    apply_values,
    read_experiment,
    read_interconnect,
    read_tables,
    refuse_unknown_keys,
    structure,
)
from sipml_core.fields import (
    absolute_paths,
    at_least,
    between,
    each,
    file_path,
    frozen,
    one_of,
    option,
    parse_us,
    positive,
    read_table,
)
from sipml_core.model import MAX_GPUS, Cluster
from sipml_core.plugin import Allocator, Registry

#: More jobs than this nobody waits for.
MAX_JOBS = 100_000
MAX_ITERATIONS = 10**9


@frozen(kw_only=True)
class JobTable:
    """[[job]]"""

    name: str = option(doc="what the results call it")
    workload: str = option(doc="label of a [[workload]]")
    gpus: int = option(doc="GPUs that it needs", validator=between(1, MAX_GPUS))
    plan: Mapping[str, Any] = option({}, doc="changes [plan], and the plan of the workload, for this job")
    arrival_us: float = option(
        0.0, doc="when it arrives", unit="us", converter=parse_us, validator=at_least(0)
    )
    iterations: int = option(doc="iterations that it runs", validator=between(1, MAX_ITERATIONS))


@frozen(kw_only=True)
class ArrivalsTable:
    """[arrivals]: jobs from a file, or drawn at random."""

    file: str = file_path(
        "", doc="CSV with the columns name, workload, gpus, arrival_us, iterations; instead of all below"
    )
    jobs: int | None = option(
        None, doc="jobs to draw", validator=attrs.validators.optional(between(1, MAX_JOBS))
    )
    mean_interval_us: float | None = option(
        None, doc="mean time between two arrivals, exponentially distributed", unit="us",
        converter=attrs.converters.optional(parse_us), validator=attrs.validators.optional(positive),
    )  # fmt: skip
    gpus: tuple[int, ...] = option(
        (8,), doc="GPUs of a job, each as likely", validator=each(between(1, MAX_GPUS))
    )
    iterations: tuple[int, ...] = option(
        (100,), doc="iterations of a job, each as likely", validator=each(between(1, MAX_ITERATIONS))
    )
    workloads: tuple[str, ...] = option(
        (), doc="labels of workloads, each as likely; left out: all of the file"
    )


@frozen(kw_only=True)
class SharingTable:
    """[sharing]"""

    allocator: Any = option(
        "first-fit", doc="which GPUs a job gets, as text or as a table with options; see `plugins`"
    )
    order: str = option(
        "fifo", doc="fifo: jobs start in order of arrival; backfill: later ones may overtake one that waits",
        validator=one_of("fifo", "backfill"),
    )  # fmt: skip
    front_switch: bool = option(
        False,
        doc="a conventional circuit switch in front maps GPUs to any place of the network: jobs are moved "
        "together whenever one would have to wait for a block",
        validator=attrs.validators.instance_of(bool),
    )
    least_iterations: int = option(
        6, doc="iterations of the median job for which neighbours are simulated together, at first; two of "
        "the slowest at least",
        validator=between(2, 1000),
    )  # fmt: skip
    most_iterations: int = option(
        12, doc="the same at most, if means have not settled within 1 % before", validator=between(2, 10_000)
    )

    def __attrs_post_init__(self) -> None:
        if self.most_iterations < self.least_iterations:
            raise ConfigError(
                f"most_iterations must be at least least_iterations, {self.least_iterations}, "
                f"got {self.most_iterations}"
            )


@frozen(kw_only=True)
class JobRequest:
    """One job, as it arrives."""

    name: str
    #: What it trains, and on how many GPUs: an index into `SharedExperiment.kinds`.
    kind: int
    gpus: int
    arrival_us: float
    iterations: int


@frozen(kw_only=True, eq=False)
class SharedExperiment:
    """Jobs, and the networks that they share one after the other."""

    title: str
    seed: int
    cluster: Cluster
    interconnects: tuple[Interconnect, ...]
    #: One experiment for each kind of job, of its number of GPUs, with one job on all interconnects.
    kinds: tuple[Experiment, ...]
    #: In order of arrival.
    jobs: tuple[JobRequest, ...]
    allocator: Allocator
    table: SharingTable


def open_shared(
    source: str | os.PathLike[str],
    registry: Registry,
    *,
    set: Mapping[str, Any] | None = None,
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> SharedExperiment:
    """Return the jobs of a TOML file, every value checked.

    Parameters
    ----------
    set
        Values by path, ``{"sharing.allocator": "random"}``: what ``--set`` does on the command line.
    change
        Any other change of the tables.

    Raises
    ------
    ConfigError
        Naming the file and the key at fault.
    """
    path = Path(source)
    try:
        tables = apply_values(read_tables(path), set or {})
        return read_shared(change(tables) if change else tables, registry)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_shared(tables: Mapping[str, Any], registry: Registry) -> SharedExperiment:
    """Return what the tables of a file describe."""
    own = {key: value for key, value in tables.items() if key not in SHARED_KEYS}
    refuse_unknown_keys(own, "experiment", (*EXPERIMENT_KEYS, *SHARED_KEYS))
    sharing = structure(_table(tables.get("sharing", {}), "sharing"), SharingTable, "sharing")
    if not tables.get("job") and tables.get("arrivals") is None:
        raise ConfigError("no job: write [[job]] tables, or [arrivals]")
    # Plans are those of jobs, which have fewer GPUs than the cluster.
    planless = {key: value for key, value in own.items() if key not in ("plan", "strategy")}
    base = read_experiment(planless | {"workload": _planless(own)}, registry)
    cluster = structure(own["cluster"], Cluster, "cluster")
    seed = int(own.get("seed", 0))
    listed = _listed(tables.get("job", []))
    listed += _arrivals(tables.get("arrivals"), [job.label for job in base.jobs], seed)
    _check(listed, cluster.gpus, [job.label for job in base.jobs])

    kinds: dict[tuple[Any, ...], int] = {}
    experiments: list[Experiment] = []
    requests = []
    for job in sorted(listed, key=lambda job: job.arrival_us):
        key = (job.workload, job.gpus, repr(sorted(job.plan.items())))
        if key not in kinds:
            kinds[key] = len(experiments)
            experiments.append(_kind(own, job, registry))
        requests.append(
            JobRequest(
                name=job.name, kind=kinds[key], gpus=job.gpus, arrival_us=job.arrival_us,
                iterations=job.iterations,
            )
        )  # fmt: skip
    tables_of = own["topology"] if isinstance(own["topology"], list) else [own["topology"]]
    return SharedExperiment(
        title=base.title,
        seed=seed,
        cluster=cluster,
        interconnects=tuple(
            read_interconnect(dict(table), f"topology[{k}]", cluster, registry)
            for k, table in enumerate(tables_of)
        ),
        kinds=tuple(experiments),
        jobs=tuple(requests),
        allocator=_allocator(sharing.allocator, registry),
        table=sharing,
    )


def _workloads(own: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = own.get("workload", [])
    return [dict(table) for table in (found if isinstance(found, list) else [found])]


def _planless(own: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the workloads with a plan that suits the whole cluster: those of jobs are checked by kind."""
    gpus = dict(own.get("cluster", {})).get("gpus", 1)
    whole = {"mp": 1, "pp": 1, "global_batch": gpus}
    return [
        {**{key: value for key, value in table.items() if key not in ("plan", "strategy")}, "plan": whole}
        for table in _workloads(own)
    ]


def _listed(tables: Any) -> list[JobTable]:
    tables = tables if isinstance(tables, list) else [tables]
    return [structure(_table(table, f"job[{k}]"), JobTable, f"job[{k}]") for k, table in enumerate(tables)]


def _table(value: Any, place: str) -> dict[str, Any]:
    """Return a table as one of its own; `ConfigError` naming its place if it is none."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} must be a table, got {shown(value)}")
    return dict(value)


def _arrivals(table: Any, labels: list[str], seed: int) -> list[JobTable]:
    """Return the jobs of [arrivals]."""
    if table is None:
        return []
    table = _table(table, "arrivals")
    table.update(absolute_paths(table, ArrivalsTable, "arrivals"))
    arrivals = structure(table, ArrivalsTable, "arrivals")
    if arrivals.file:
        return _from_file(Path(arrivals.file))
    if arrivals.jobs is None or arrivals.mean_interval_us is None:
        raise ConfigError("arrivals needs file, or jobs and mean_interval_us")
    rng = np.random.default_rng([seed, 1])
    at_us = np.cumsum(rng.exponential(arrivals.mean_interval_us, arrivals.jobs))
    workloads = arrivals.workloads or tuple(labels)
    return [
        JobTable(
            name=f"job{k}",
            workload=str(rng.choice(workloads)),
            gpus=int(rng.choice(arrivals.gpus)),
            arrival_us=float(at_us[k]),
            iterations=int(rng.choice(arrivals.iterations)),
        )
        for k in range(arrivals.jobs)
    ]


def _from_file(path: Path) -> list[JobTable]:
    """Return the jobs of a CSV file; times are those of the clock that starts at 0."""
    columns = ("gpus", "iterations")
    found = []
    for line, (name, workload, arrival), (gpus, iterations) in read_table(
        path, key="arrivals.file", numbers=columns, text=("name", "workload", "arrival_us")
    ):
        values = {
            "name": name, "workload": workload, "arrival_us": _number(arrival),
            "gpus": int(gpus) if gpus == int(gpus) else gpus,
            "iterations": int(iterations) if iterations == int(iterations) else iterations,
        }  # fmt: skip
        found.append(structure(values, JobTable, f"arrivals.file: {str(path)!r} line {line}"))
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _check(jobs: list[JobTable], gpus: int, labels: list[str]) -> None:
    names: dict[str, int] = {}
    for k, job in enumerate(jobs):
        if job.name in names:
            raise ConfigError(f"job[{names[job.name]}] and job[{k}] are both called {shown(job.name)}")
        names[job.name] = k
        if job.gpus > gpus:
            raise ConfigError(f"job {shown(job.name)} needs {job.gpus} GPUs, but cluster.gpus is {gpus}")
        if job.workload not in labels:
            raise ConfigError(f"job {shown(job.name)}: {unknown('workload', job.workload, labels)}")


def _kind(own: Mapping[str, Any], job: JobTable, registry: Registry) -> Experiment:
    """Return the experiment of a job as if it had a cluster of its own."""
    (table,) = [table for table in _workloads(own) if table.get("label", table.get("name")) == job.workload]
    # Keys of [strategy] stay there, for what is left out of it is not what is left out of [plan].
    section = "strategy" if table.get("strategy") else "plan"
    plan = {**dict(table.pop("strategy", {})), **dict(table.pop("plan", {})), **job.plan}
    merged = {**dict(own.get("strategy", {})), **dict(own.get("plan", {})), **plan}
    if merged.get("mp") is None and merged.get("dp") is None:
        plan["dp"] = job.gpus // int(merged.get("pp", 1))
    tables = {
        **own,
        "cluster": {**own["cluster"], "gpus": job.gpus},
        "workload": [{**table, section: {**plan, "iterations": 1}}],
    }
    tables.pop("baseline", None)
    try:
        return read_experiment(tables, registry)
    except ConfigError as error:
        raise ConfigError(f"job {shown(job.name)}: {error}") from None


def _allocator(named: Any, registry: Registry) -> Allocator:
    table = {"name": named} if isinstance(named, str) else _table(named, "sharing.allocator")
    if "name" not in table:
        raise ConfigError(
            f"sharing.allocator.name is required; known: {', '.join(registry.names('allocator'))}"
        )
    try:
        cls = registry.find("allocator", str(table.pop("name")))
    except ConfigError as error:
        raise ConfigError(f"sharing.allocator: {error}") from None
    allocator: Allocator = cls(structure(table, cls.Options, "sharing.allocator"))
    return allocator
