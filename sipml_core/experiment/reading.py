"""A TOML file into an `Experiment` that is known to be well formed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sipml_core.errors import ConfigError, nearest, unknown
from sipml_core.experiment.structure import keys, structure
from sipml_core.fields import at_least, each, one_of, option, parse_us, positive
from sipml_core.model import PRECISIONS, Cluster, Execution, Plan
from sipml_core.plugin import Component, GpuModel, Placer, Registry, Scheduler, Topology, Workload
from sipml_core.scheduling import ESTIMATORS

LAYOUTS = ("auto", "sample", "tensor", "megatron")


@attrs.frozen(kw_only=True)
class StrategyTable(Execution):
    """[strategy], and `plan` inside a [[workload]]."""

    mp: int | None = option(
        None, validator=attrs.validators.optional(at_least(1)),
        doc="model-parallel degree; left out: N / dp, or every divisor of N is tried",
    )  # fmt: skip
    dp: int | None = option(
        None, validator=attrs.validators.optional(at_least(1)), doc="data-parallel degree; left out: N / mp"
    )
    global_batch: int | None = option(
        None, validator=attrs.validators.optional(at_least(1)),
        doc="samples in one iteration, all replicas together; left out: the workload's default",
    )  # fmt: skip
    layout: str = option(
        "auto", validator=one_of(*LAYOUTS),
        doc='how ops are cut: by cost ("auto"), along samples, or as tensor parallelism does, which '
        'divides what is between two all-reduces ("tensor") or repeats it on every GPU ("megatron")',
    )  # fmt: skip


@attrs.frozen(kw_only=True)
class GpuTable:
    """[gpu], beside the options of the model it names."""

    name: str = option("v100", doc="GPU model, see `plugins`")
    precision: str = option("mixed", validator=one_of(*PRECISIONS), doc="number format of the training step")


@attrs.frozen(kw_only=True)
class EngineTable:
    """[engine]"""

    queue: str = option(
        "pair", validator=one_of("pair", "source"),
        doc="one transfer at a time per pair of GPUs, or per sending GPU as in a NIC's FIFO",
    )  # fmt: skip
    max_time_us: float | None = option(
        None, converter=attrs.converters.optional(parse_us), validator=attrs.validators.optional(positive),
        unit="us", doc="simulated time after which a run stops with an error and a search drops a candidate",
    )  # fmt: skip
    fold: str = option(
        "never", validator=one_of("auto", "never", "require"),
        doc='simulate the first groups for all where that is exact ("auto"); "require": stop where it is not',
    )  # fmt: skip


@attrs.frozen(kw_only=True)
class SearchTable:
    """[search], and `search` inside a [[workload]]: what `search` may vary. `run` ignores it."""

    global_batches: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(at_least(1))),
        doc="global batches to try; left out: powers of two inside the measured convergence data",
    )  # fmt: skip
    mp: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(at_least(1))),
        doc="model-parallel degrees to try, of which those that divide N count; left out: all divisors of N",
    )  # fmt: skip
    layouts: tuple[str, ...] | None = option(
        None, validator=attrs.validators.optional(each(one_of(*LAYOUTS))),
        doc="layouts to try, see [strategy]; left out: that of [strategy]",
    )  # fmt: skip
    top: int = option(
        4, validator=at_least(1),
        doc="strategies simulated in full for each workload and interconnect, the best by the estimate",
    )  # fmt: skip


@attrs.frozen(kw_only=True)
class Job:
    """A workload and how it is divided."""

    label: str
    workload: Workload
    table: StrategyTable
    placer: Placer
    search: SearchTable = attrs.Factory(SearchTable)
    #: Placers that `search` tries; none: `placer` alone.
    placers: tuple[Placer, ...] = ()

    def plan(self, gpus: int, mp: int | None = None, global_batch: int | None = None) -> Plan:
        """The strategy on `gpus` GPUs; `mp` and `global_batch` override the table's.

        Raises `ConfigError` if the degrees do not multiply to N, or the batch does not divide.
        """
        mp, dp = _degrees(gpus, mp or self.table.mp, None if mp else self.table.dp)
        batch = global_batch or self.table.global_batch or self.workload.default_global_batch
        shared = {name: getattr(self.table, name) for name in keys(Execution)}
        return Plan(mp=mp, dp=dp, global_batch=batch, **shared)

    @property
    def searched(self) -> bool:
        return self.table.mp is None and self.table.dp is None

    def with_layout(self, layout: str) -> Job:
        """The same job, its ops cut in another way."""
        return attrs.evolve(self, table=attrs.evolve(self.table, layout=layout))


@attrs.frozen(kw_only=True)
class Interconnect:
    """A topology, the bandwidth it is given, and who schedules its circuits."""

    label: str
    topology: Topology
    cluster: Cluster
    scheduler: Scheduler | None
    estimator: str


@attrs.frozen(kw_only=True)
class Experiment:
    """Everything a run depends on."""

    title: str
    seed: int
    baseline: str
    gpu: GpuModel
    gpu_name: str
    precision: str
    jobs: tuple[Job, ...]
    interconnects: tuple[Interconnect, ...]
    engine: EngineTable
    #: The tables this was read from, overrides included: enough to repeat the run.
    tables: Mapping[str, Any]


#: Sections that a key may be looked for in, whichever it was put in.
_SECTIONS = {"cluster": Cluster, "engine": EngineTable, "strategy": StrategyTable, "search": SearchTable}


@attrs.frozen(kw_only=True)
class _Sections:
    """The top level of an experiment file."""

    title: str = option(doc="names the results folder")
    seed: int = option(0, validator=at_least(0), doc="seed of everything random")
    baseline: str | None = option(
        None, doc="topology that speed-ups are relative to; left out: the first one"
    )
    cluster: Mapping[str, Any] = option(doc="[cluster]")
    gpu: Mapping[str, Any] = option({}, doc="[gpu]")
    strategy: Mapping[str, Any] = option({}, doc="[strategy], defaults for every workload")
    engine: Mapping[str, Any] = option({}, doc="[engine]")
    search: Mapping[str, Any] = option({}, doc="[search], what `search` may vary")
    workload: Any = option(doc="[[workload]]")
    topology: Any = option(doc="[[topology]]")


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def read_experiment(tables: Mapping[str, Any], registry: Registry) -> Experiment:
    """Check every table against what the plugins offer.

    Raises
    ------
    ConfigError
        One line with the path of the key at fault.
    """
    top = structure(tables, _Sections, "experiment", _SECTIONS)
    cluster = structure(top.cluster, Cluster, "cluster", _SECTIONS)
    gpu_table, gpu = _gpu(top.gpu, registry)
    interconnects = tuple(
        read_interconnect(table, path, cluster, registry) for path, table in _list(top.topology, "topology")
    )
    _unique("topology", [interconnect.label for interconnect in interconnects])
    jobs = tuple(_job(table, path, top, cluster, registry) for path, table in _list(top.workload, "workload"))
    _unique("workload", [job.label for job in jobs])
    return Experiment(
        title=_title(top.title),
        seed=top.seed,
        baseline=_baseline(top.baseline, [interconnect.label for interconnect in interconnects]),
        gpu=gpu,
        gpu_name=gpu_table.name,
        precision=gpu_table.precision,
        jobs=jobs,
        interconnects=interconnects,
        engine=structure(top.engine, EngineTable, "engine", _SECTIONS),
        tables=dict(tables),
    )


def _title(title: str) -> str:
    if not title or any(not (c.isalnum() or c in " ._-") for c in title) or title.strip(". ") != title:
        raise ConfigError(f"title must be letters, digits, spaces, '.', '_' or '-', got {title!r}")
    return title


def _list(value: Any, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """[[name]] tables, or a single [name], each with the path errors name it by."""
    tables = [value] if isinstance(value, Mapping) else value
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError(f"{path} must be a list of tables ([[{path}]]), got {value!r}")
    if not tables:
        raise ConfigError(f"{path} must have at least one table")
    for table in tables:
        if not isinstance(table, Mapping):
            raise ConfigError(f'{path} must be a list of tables such as {{ name = "..." }}, got {table!r}')
    return [(path if len(tables) == 1 else f"{path}[{i}]", table) for i, table in enumerate(tables)]


def _offer(
    role: str,
    table: Any,
    path: str,
    registry: Registry,
    reserved: Iterable[str] = (),
    default: str | None = None,
) -> Any:
    """The plugin class that `name` says, made with the other keys as its options."""
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path} must be a table with a name, got {table!r}")
    name = table.get("name", default)
    if name is None:
        raise ConfigError(f"{path}.name is required; known: {', '.join(registry.names(role))}")
    if not isinstance(name, str):
        raise ConfigError(f"{path}.name must be text in quotes, got {name!r}")
    try:
        component: type[Component] = registry.find(role, name)
    except ConfigError as error:
        raise ConfigError(f"{path}.name: {error}") from None
    given = {key: value for key, value in table.items() if key != "name" and key not in set(reserved)}
    _known_keys(given, path, [*keys(component.Options), "name", *reserved])
    return component(structure(given, component.Options, path))


def _known_keys(given: Mapping[str, Any], path: str, allowed: Sequence[str]) -> None:
    for key in given:
        if key not in allowed:
            close = nearest(key, allowed)
            hint = f"; did you mean {close!r}?" if close else ";"
            raise ConfigError(f"{path}.{key} is not a known key{hint} allowed: {', '.join(sorted(allowed))}")


def _gpu(table: Mapping[str, Any], registry: Registry) -> tuple[GpuTable, GpuModel]:
    own = keys(GpuTable)
    head = structure({key: value for key, value in table.items() if key in own}, GpuTable, "gpu")
    return head, _offer("gpu", table, "gpu", registry, reserved=["precision"], default=head.name)


def read_interconnect(
    table: Mapping[str, Any], path: str, cluster: Cluster, registry: Registry
) -> Interconnect:
    """One [[topology]] table; errors begin with `path`."""
    reserved = ["label", "bandwidth_gbps", "scheduler", "estimator"]
    topology: Topology = _offer("topology", table, path, registry, reserved=reserved)
    scheduler: Scheduler | None = None
    wanted = table.get("scheduler", topology.scheduler)
    if wanted is not None:
        scheduler = _offer("scheduler", wanted, f"{path}.scheduler", registry)
    own = cluster
    if "bandwidth_gbps" in table:
        changed = {field: getattr(cluster, field) for field in keys(Cluster)}
        own = structure({**changed, "bandwidth_gbps": table["bandwidth_gbps"]}, Cluster, path)
    estimator = table.get("estimator", scheduler.estimator if scheduler else "window")
    if estimator not in ESTIMATORS:
        raise ConfigError(f"{path}.estimator: {unknown('estimator', str(estimator), ESTIMATORS)}")
    return Interconnect(
        label=_label(table, topology.name, path),
        topology=topology,
        cluster=own,
        scheduler=scheduler,
        estimator=estimator,
    )


def _label(table: Mapping[str, Any], default: str, path: str) -> str:
    label = table.get("label", default)
    if not isinstance(label, str) or not label:
        raise ConfigError(f"{path}.label must be text in quotes, got {label!r}")
    return label


def _job(table: Mapping[str, Any], path: str, top: _Sections, cluster: Cluster, registry: Registry) -> Job:
    workload: Workload = _offer("workload", table, path, registry, reserved=["label", "strategy", "search"])
    merged, where = _merged("strategy", top.strategy, table, path)
    searched, where_searched = _merged("search", top.search, table, path)
    placer: Placer = _offer("placer", merged.pop("placer", "algorithm1"), f"{where}.placer", registry)
    named = searched.pop("placers", [])
    if not isinstance(named, list):
        raise ConfigError(f"{where_searched}.placers must be a list, got {named!r}")
    job = Job(
        label=_label(table, workload.name, path),
        workload=workload,
        table=structure(merged, StrategyTable, where, _SECTIONS),
        placer=placer,
        search=structure(searched, SearchTable, where_searched, _SECTIONS),
        placers=tuple(
            _offer("placer", name, f"{where_searched}.placers[{i}]", registry) for i, name in enumerate(named)
        ),
    )
    if not job.searched:
        try:
            job.plan(cluster.gpus)
        except ConfigError as error:
            raise ConfigError(f"{where}.{error}") from None
    return job


def _merged(
    section: str, defaults: Mapping[str, Any], table: Mapping[str, Any], path: str
) -> tuple[dict[str, Any], str]:
    """The section with a workload's own keys over it, and how errors call it."""
    own = table.get(section, {})
    if not isinstance(own, Mapping):
        raise ConfigError(f"{path}.{section} must be a table, got {own!r}")
    return {**defaults, **own}, f"{path}.{section}" if own else section


def _degrees(gpus: int, mp: int | None, dp: int | None) -> tuple[int, int]:
    """(mp, dp) with mp x dp = N, from either or both."""
    if mp is None:
        mp = gpus // dp if dp and gpus % dp == 0 else None
    if dp is None:
        dp = gpus // mp if mp and gpus % mp == 0 else None
    if mp is None or dp is None or mp * dp != gpus:
        given = ", ".join(f"{name}={value}" for name, value in (("mp", mp), ("dp", dp)) if value)
        raise ConfigError(
            f"mp x dp must be {gpus} GPUs, got {given}; nearest valid: {_near_degrees(gpus, mp, dp)}"
        )
    return mp, dp


def _near_degrees(gpus: int, mp: int | None, dp: int | None) -> str:
    pairs = [(k, gpus // k) for k in divisors(gpus)]
    distance = (lambda pair: abs(pair[0] - mp)) if mp else (lambda pair: abs(pair[1] - (dp or 1)))
    return " or ".join(f"mp={k}, dp={l}" for k, l in sorted(sorted(pairs, key=distance)[:2]))


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})


def _unique(what: str, labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f'{what} {label!r} appears twice; tell them apart with label = "..."')


def _baseline(name: str | None, labels: Sequence[str]) -> str:
    if name is None:
        return labels[0]
    if name not in labels:
        raise ConfigError(f"baseline: {unknown('topology', name, labels)}")
    return name
