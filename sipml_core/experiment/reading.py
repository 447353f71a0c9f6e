"""The grammar of an experiment file: TOML tables into an `Experiment` that is known to be well formed."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sipml_core.communication import Ideal
from sipml_core.errors import ConfigError, shown, unknown
from sipml_core.experiment.model import (
    MAX_LABEL,
    MAX_SEED,
    CircuitKeys,
    CommunicationTable,
    ComponentTable,
    EngineTable,
    Experiment,
    GpuTable,
    Interconnect,
    Job,
    SearchTable,
    StrategyTable,
    TopologyTable,
    WorkloadTable,
)
from sipml_core.experiment.structure import keys, refuse_unknown_keys, structure
from sipml_core.fields import FileText, absolute_paths, between, frozen, option, read_toml
from sipml_core.model import Cluster, Framework
from sipml_core.plugin import (
    Communication,
    Component,
    Estimator,
    GpuModel,
    Placer,
    Registry,
    Scheduler,
    Topology,
    Workload,
)

#: Sections that a key may be looked for in, whichever it was put in.
_SECTIONS: dict[str, type[Any]] = {
    "cluster": Cluster, "engine": EngineTable, "plan": StrategyTable, "search": SearchTable,
    "framework": Framework,
}  # fmt: skip


@frozen(kw_only=True)
class _Sections:
    """The top level of an experiment file."""

    title: str = option(doc="names the results folder")
    seed: int = option(0, validator=between(0, MAX_SEED), doc="seed of everything random")
    baseline: str | None = option(
        None, doc="topology that speed-ups are relative to; left out: the first one"
    )
    cluster: Mapping[str, Any] = option(doc="[cluster]")
    gpu: Mapping[str, Any] = option({}, doc="[gpu]")
    plan: Mapping[str, Any] = option({}, doc="[plan], defaults for every workload")
    strategy: Mapping[str, Any] = option({}, doc="[strategy], another name of [plan]")
    engine: Mapping[str, Any] = option({}, doc="[engine]")
    communication: Mapping[str, Any] = option({}, doc="[communication]")
    framework: Mapping[str, Any] = option({}, doc="[framework]")
    search: Mapping[str, Any] = option({}, doc="[search], what `search` may vary")
    workload: Any = option(doc="[[workload]]")
    topology: Any = option(doc="[[topology]]")


#: Keys of the whole file.
EXPERIMENT_KEYS = tuple(keys(_Sections))
#: Beside them in the file of a shared cluster.
SHARED_KEYS = ("job", "arrivals", "sharing")


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, unchecked; their texts know the folder of the file."""
    return {key: _from_folder(value, path.parent) for key, value in read_toml(path).items()}


def _from_folder(value: Any, folder: Path) -> Any:
    """The same value, each text in it marked with the folder that names of files count from."""
    if isinstance(value, str):
        return FileText(value, folder)
    if isinstance(value, dict):
        return {key: _from_folder(item, folder) for key, item in value.items()}
    return [_from_folder(item, folder) for item in value] if isinstance(value, list) else value


def read_experiment(tables: Mapping[str, Any], registry: Registry) -> Experiment:
    """Return the experiment that the tables describe, every value checked.

    Raises
    ------
    ConfigError
        One line with the path of the key at fault.
    """
    tables = copy.deepcopy(dict(tables))
    top = structure(tables, _Sections, "experiment", _SECTIONS)
    cluster = structure(top.cluster, Cluster, "cluster", _SECTIONS)
    gpu_table = tables.get("gpu", {})
    head = structure({key: gpu_table[key] for key in keys(GpuTable) if key in gpu_table}, GpuTable, "gpu")
    gpu: GpuModel = _component("gpu", gpu_table, "gpu", registry, GpuTable)
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
        precision=head.precision,
        jobs=jobs,
        interconnects=interconnects,
        engine=structure(top.engine, EngineTable, "engine", _SECTIONS),
        communication=read_communication(tables.get("communication", {}), registry),
        framework=structure(top.framework, Framework, "framework", _SECTIONS),
    )


def read_communication(table: dict[str, Any], registry: Registry) -> Communication:
    """Return the library that the table [communication] describes; an empty one is that of the paper."""
    if table == {}:
        return Ideal(Ideal.Options())
    library: Communication = _component(
        "communication", table, "communication", registry, CommunicationTable, key="library"
    )
    return library


def read_interconnect(table: dict[str, Any], path: str, cluster: Cluster, registry: Registry) -> Interconnect:
    """Return what one [[topology]] table describes; errors begin with `path`."""
    topology: Topology = _component("topology", table, path, registry, TopologyTable)
    scheduler: Scheduler | None = _optional(
        "scheduler", table.get("scheduler", topology.scheduler), path, registry
    )
    usual = scheduler.estimator if scheduler else None
    estimator: Estimator | None = _optional("estimator", table.get("estimator", usual), path, registry)
    return Interconnect(
        label=_label(table, topology.name, path),
        topology=topology,
        cluster=_with_bandwidth(cluster, table, path),
        scheduler=scheduler,
        estimator=estimator,
        circuit_keys=structure(
            {key: table[key] for key in keys(CircuitKeys) if key in table}, CircuitKeys, path
        ),
    )


def _with_bandwidth(cluster: Cluster, table: Mapping[str, Any], path: str) -> Cluster:
    """The cluster with the bandwidth that a topology has for itself, if it has one."""
    if "bandwidth_gbps" not in table:
        return cluster
    changed = {field: getattr(cluster, field) for field in keys(Cluster)}
    return structure({**changed, "bandwidth_gbps": table["bandwidth_gbps"]}, Cluster, path)


def _job(table: dict[str, Any], path: str, top: _Sections, cluster: Cluster, registry: Registry) -> Job:
    """What one [[workload]] table describes, with [plan] and [search] as its defaults."""
    workload: Workload = _component("workload", table, path, registry, WorkloadTable)
    strategy, at_strategy, by_plan = _plan_table(top, table, path)
    search, at_search = _merged("search", top.search, table, path)
    placer: Placer = _component(
        "placer", strategy.pop("placer", "algorithm1"), f"{at_strategy}.placer", registry
    )
    placers = _placers(search.pop("placers", []), f"{at_search}.placers", registry)
    choices = _choices(strategy, at_strategy, registry)
    if by_plan and workload.sequence_parallel and not {"layout", "sequence_parallel"} & set(strategy):
        strategy["layout"] = "sequence"
    job = Job(
        label=_label(table, workload.name, path),
        workload=workload,
        table=structure(strategy, StrategyTable, at_strategy, _SECTIONS),
        placer=placer,
        search=structure(search, SearchTable, at_search, _SECTIONS),
        placers=placers,
        **choices,
    )
    if not job.searched:
        try:
            job.plan(cluster.gpus)
        except ConfigError as error:
            raise ConfigError(f"{at_strategy}.{error}") from None
    return job


def _plan_table(top: _Sections, table: Mapping[str, Any], path: str) -> tuple[dict[str, Any], str, bool]:
    """The keys of [plan] and [strategy], which are one table, with a workload's own over them.

    Besides, how errors call it, and whether keys stand in [plan] alone.
    """
    merged: dict[str, Any] = {}
    used = set()
    named = "plan" if top.plan else "strategy"
    for at, tables in (("", {"plan": top.plan, "strategy": top.strategy}), (f"{path}.", table)):
        own = {name: tables.get(name, {}) for name in ("plan", "strategy")}
        for name, keys_of in own.items():
            if not isinstance(keys_of, Mapping):
                raise ConfigError(f"{at}{name} must be a table, got {shown(keys_of)}")
        twice = sorted(set(own["plan"]) & set(own["strategy"]))
        if twice:
            raise ConfigError(f"{at}plan.{twice[0]} and {at}strategy.{twice[0]} are the same key; give one")
        named = next((f"{at}{name}" for name in own if own[name]), named) if at else named
        merged |= {**own["plan"], **own["strategy"]}
        used |= {name for name, keys_of in own.items() if keys_of}
    return merged, named, used == {"plan"}


def _merged(
    section: str, defaults: Mapping[str, Any], table: Mapping[str, Any], path: str
) -> tuple[dict[str, Any], str]:
    """The section with a workload's own keys over it, and how errors call it."""
    own = table.get(section, {})
    if not isinstance(own, Mapping):
        raise ConfigError(f"{path}.{section} must be a table, got {shown(own)}")
    return {**defaults, **own}, f"{path}.{section}" if own else section


def _placers(named: Any, path: str, registry: Registry) -> tuple[Placer, ...]:
    if not isinstance(named, list):
        raise ConfigError(f"{path} must be a list, got {shown(named)}")
    return tuple(_component("placer", name, f"{path}[{i}]", registry) for i, name in enumerate(named))


def _choices(strategy: dict[str, Any], path: str, registry: Registry) -> dict[str, tuple[Any, ...]]:
    """Return what a job may choose exchanges and all-reduces from: all that are installed, or the one named.

    In the table its name is left.
    """
    chosen: dict[str, tuple[Any, ...]] = {}
    for role, field in (("exchange", "exchanges"), ("all_reduce", "all_reduces")):
        named = strategy.get(role, "auto")
        installed = registry.entries[role]
        if named != "auto":
            component = _component(role, named, f"{path}.{role}", registry)
            strategy[role], chosen[field] = component.name, (component,)
        elif installed:
            chosen[field] = tuple(_component(role, name, f"{path}.{role}", registry) for name in installed)
    return chosen


def _optional(role: str, table: Any, path: str, registry: Registry) -> Any:
    """The component under the key called as its role, or None where nobody names one."""
    return None if table is None else _component(role, table, f"{path}.{role}", registry)


def _component(
    role: str,
    table: Any,
    path: str,
    registry: Registry,
    own: type[Any] = ComponentTable,
    key: str = "name",
) -> Any:
    """Return the component that a table's `key` says, made with the keys that are not of `own` as options.

    A text is a table with only a name. Names of files in the table become absolute, in the table too.
    """
    if isinstance(table, str):
        table = {key: table}
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must be a table with a name, got {shown(table)}")
    component = _named(role, {**_defaults(own), **table}.get(key), f"{path}.{key}", registry)
    refuse_unknown_keys(table, path, [*keys(component.Options), *keys(own)])
    table.update(absolute_paths(table, component.Options, path))
    options = {name: value for name, value in table.items() if name not in keys(own)}
    structured = structure(options, component.Options, path)
    try:
        return component(structured)
    except ConfigError as error:
        # What a component says of an option of its own begins with the option's name.
        first = re.split(r"\W", str(error), maxsplit=1)[0]
        place = f"{path}." if first in keys(component.Options) else ""
        raise ConfigError(f"{place}{error}") from None


def _defaults(model: type[Any]) -> dict[str, Any]:
    return {field.name: field.default for field in attrs.fields(model) if field.default is not attrs.NOTHING}


def _named(role: str, name: Any, path: str, registry: Registry) -> type[Component]:
    if name is None:
        raise ConfigError(f"{path} is required; known: {', '.join(registry.names(role))}")
    if not isinstance(name, str):
        raise ConfigError(f"{path} must be text in quotes, got {shown(name)}")
    try:
        component: type[Component] = registry.find(role, name)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return component


def _title(title: str) -> str:
    if len(title) > MAX_LABEL:
        raise ConfigError(f"title must have at most {MAX_LABEL} letters, got {shown(title)}")
    if not title or any(not (c.isalnum() or c in " ._-") for c in title) or title.strip(". ") != title:
        raise ConfigError(f"title must be letters, digits, spaces, '.', '_' or '-', got {shown(title)}")
    return title


def _list(value: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """[[name]] tables, or a single [name], each with the path errors name it by."""
    tables = [value] if isinstance(value, Mapping) else value
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise ConfigError(f"{path} must be a list of tables ([[{path}]]), got {shown(value)}")
    if not tables:
        raise ConfigError(f"{path} must have at least one table")
    for table in tables:
        if not isinstance(table, dict):
            raise ConfigError(
                f'{path} must be a list of tables such as {{ name = "..." }}, got {shown(table)}'
            )
    return [(path if len(tables) == 1 else f"{path}[{i}]", table) for i, table in enumerate(tables)]


def _label(table: Mapping[str, Any], default: str, path: str) -> str:
    label = table.get("label", default)
    if not isinstance(label, str) or not (label.isprintable() and 0 < len(label) <= MAX_LABEL):
        raise ConfigError(
            f"{path}.label must be text in quotes, one line of 1 to {MAX_LABEL} letters, got {shown(label)}"
        )
    return str(label)


def _unique(what: str, labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f'{what} {shown(label)} appears twice; tell them apart with label = "..."')


def _baseline(name: str | None, labels: Sequence[str]) -> str:
    if name is None:
        return labels[0]
    if name not in labels:
        raise ConfigError(f"baseline: {unknown('topology', name, labels)}")
    return name
