"""From an `Experiment` back to tables: every value as it was resolved, defaults included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from sipml_core.experiment.model import CircuitKeys, Experiment, Interconnect, Job
from sipml_core.fields import names_file
from sipml_core.model import Cluster, Framework
from sipml_core.plugin import Component

#: Gives the name of a file as tables have it.
NameFile = Callable[[str], str]


def resolved_tables(experiment: Experiment, name_file: NameFile = str) -> dict[str, Any]:
    """Return tables that `read_experiment` makes an equal experiment of; nothing is left to a default.

    Parameters
    ----------
    name_file
        Gives each file that an option names the name it has in the tables; left out: its absolute one.
    """
    cluster = experiment.interconnects[0].cluster
    return {
        "title": experiment.title,
        "seed": experiment.seed,
        "baseline": experiment.baseline,
        "cluster": _cluster(cluster),
        "gpu": {**_component(experiment.gpu, name_file), "precision": experiment.precision},
        "engine": _plain(experiment.engine),
        **_software(experiment, name_file),
        "workload": [_job(job, name_file) for job in experiment.jobs],
        "topology": [_interconnect(each, cluster, name_file) for each in experiment.interconnects],
    }


def _software(experiment: Experiment, name_file: NameFile) -> dict[str, Any]:
    """The tables of the communication library and the framework, where they take any time."""
    tables = {}
    if not experiment.communication.free:
        table = _component(experiment.communication, name_file)
        tables["communication"] = {"library": table.pop("name"), **table}
    if experiment.framework != Framework():
        tables["framework"] = _plain(experiment.framework)
    return tables


def components_of(experiment: Experiment) -> Iterator[Component]:
    """Yield every component of an experiment."""
    yield experiment.gpu
    yield experiment.communication
    for job in experiment.jobs:
        yield from (job.workload, job.placer, *job.placers, *job.exchanges, *job.all_reduces)
    for interconnect in experiment.interconnects:
        yield interconnect.topology
        yield from (part for part in (interconnect.scheduler, interconnect.estimator) if part)


def files_of(component: Component) -> list[str]:
    """Return the files that options of a component name."""
    options = component.options
    if not attrs.has(type(options)):
        return []
    values = ((field, getattr(options, field.name)) for field in attrs.fields(type(options)))
    return [value for field, value in values if names_file(field, value)]


def _cluster(cluster: Cluster) -> dict[str, Any]:
    table = {key: value for key, value in _plain(cluster).items() if key != "gpu_speed"}
    speeds = {str(gpu): speed for gpu, speed in cluster.gpu_speed}
    return table | ({"gpu_speed": speeds} if speeds else {})


def _job(job: Job, name_file: NameFile) -> dict[str, Any]:
    table = _component(job.workload, name_file)
    search = _plain(job.search)
    if job.placers:
        search["placers"] = [_component(placer, name_file) for placer in job.placers]
    strategy = {**_plain(job.table), "placer": _component(job.placer, name_file)}
    if job.table.exchange != "auto":
        strategy["exchange"] = _component(job.exchanges[0], name_file)
    if job.table.all_reduce != "auto":
        strategy["all_reduce"] = _component(job.all_reduces[0], name_file)
    return {**table, "label": job.label, "strategy": strategy, "search": search}


def _interconnect(interconnect: Interconnect, cluster: Cluster, name_file: NameFile) -> dict[str, Any]:
    table = {**_component(interconnect.topology, name_file), "label": interconnect.label}
    if interconnect.cluster != cluster:
        table["bandwidth_gbps"] = interconnect.cluster.bandwidth_gbps
    if interconnect.scheduler:
        table["scheduler"] = _component(interconnect.scheduler, name_file)
    if interconnect.estimator:
        table["estimator"] = _component(interconnect.estimator, name_file)
    # Only what was chosen: results that were written before there was a choice stay the same.
    usual = attrs.asdict(CircuitKeys())
    return table | {
        key: value for key, value in attrs.asdict(interconnect.circuit_keys).items() if value != usual[key]
    }


def _component(component: Component, name_file: NameFile) -> dict[str, Any]:
    files = {name: name_file(name) for name in files_of(component)}
    options = _plain(component.options)
    return {"name": component.name} | {
        key: files.get(value, value) if isinstance(value, str) else value for key, value in options.items()
    }


def _plain(model: Any) -> dict[str, Any]:
    """The fields that a table of a model may have, as TOML has them; what is not given is left out."""
    if not attrs.has(type(model)):
        return {}
    values = {field.name: getattr(model, field.name) for field in attrs.fields(type(model)) if field.init}
    return {key: _value(value) for key, value in values.items() if value is not None and value != {}}


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    if attrs.has(type(value)):
        return _plain(value)
    return value
