"""Hashes of all that a result depends on: options, contents of files, and the code itself."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from sipml_core.cases import Candidate, package_versions
from sipml_core.experiment import Experiment, Interconnect, components_of, files_of
from sipml_core.fields import frozen, sha256_of
from sipml_core.plugin import Component

#: Files whose content decides what a package computes.
_CODE = (".py", ".so", ".pyd", ".csv")


@frozen
class Keys:
    """Hashes of all that an answer depends on: options, files they name, and the code itself."""

    #: The same for questions about one plan of one model, on whatever interconnect and at whatever bandwidth.
    graph: str
    #: The answer's own.
    answer: str


#: Fields that decide nothing about a case: what it is called, which others there are, and what stands in
#: the candidate.
_NAMES = {"title", "label", "baseline", "jobs", "interconnects", "table", "search", "placers", "cluster"}


def trial_keys(kind: str, experiment: Experiment, candidate: Candidate, interconnect: Interconnect) -> Keys:
    """Return the keys of one question, "estimate" or "simulation"."""
    graph = _hash(
        {
            **_parts(experiment),
            **_parts(candidate.job),
            "cluster": attrs.asdict(interconnect.cluster.without_network()),
            "strategy": attrs.asdict(candidate.plan) if candidate.plan else candidate.refusal,
            "layout": candidate.layout,
        }
    )
    one = attrs.evolve(experiment, jobs=(candidate.job,), interconnects=(interconnect,))
    answer = {
        "kind": kind,
        "graph": graph,
        "bandwidth_gbps": interconnect.cluster.bandwidth_gbps,
        "code": code_fingerprint(code_of([one])),
        **_parts(interconnect),
    }
    return Keys(graph, _hash(answer))


def _parts(model: Any) -> dict[str, Any]:
    """Return the fields of an experiment, a job or an interconnect that decide something, as plain values."""
    fields = (field.name for field in attrs.fields(type(model)) if field.name not in _NAMES)
    return {name: _plain(getattr(model, name)) for name in fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Component):
        return _identity(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return attrs.asdict(value) if attrs.has(type(value)) else value


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()


def _identity(component: Component) -> dict[str, Any]:
    """The class and options of a component; files that options name count by content, wherever they lie."""
    options = (
        attrs.asdict(component.options) if attrs.has(type(component.options)) else repr(component.options)
    )
    declared = {
        name: f"{Path(name).name} {sha256_of(Path(name).read_bytes())}" for name in files_of(component)
    }
    if isinstance(options, dict):
        options = {key: declared.get(v, v) if isinstance(v, str) else v for key, v in options.items()}
    return {
        "class": f"{type(component).__module__}.{type(component).__qualname__}",
        "options": options,
        "files": [sha256_of(Path(name).read_bytes()) for name in _texts(options) if _is_file(name)],
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, (str, Path)):
        yield str(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


@cache
def code_fingerprint(packages: tuple[str, ...]) -> str:
    """Hash of the code of some packages, of all others in their distributions, and of what they stand on.

    So an answer outlives neither a change of the core nor one of a plugin.
    """
    digest = hashlib.sha256(f"{sys.version} {package_versions()}".encode())
    for package in sorted({*packages, *_siblings(packages), "sipml_core"}):
        for path in _code_files(package):
            digest.update(f"{package} {path.name} {sha256_of(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def code_of(experiments: Iterable[Experiment]) -> tuple[str, ...]:
    """Return the packages whose code the experiments run, as `code_fingerprint` takes them."""
    components = (component for experiment in experiments for component in components_of(experiment))
    return tuple(sorted({package_of(component) for component in components}))


def package_of(component: Component) -> str:
    """Return the top-level package that a component's class lies in."""
    return type(component).__module__.partition(".")[0]


def _siblings(packages: Iterable[str]) -> set[str]:
    """Top-level packages that came with any of these: a plugin may import them."""
    wanted = {*packages, "sipml_core"}
    found: set[str] = set()
    for distribution in _plugin_distributions():
        brought = set(_top_level(distribution))
        if wanted & brought:
            found |= brought
    return found


def _plugin_distributions() -> list[importlib.metadata.Distribution]:
    """The distributions that bring plugins, each once."""
    points = importlib.metadata.entry_points(group="sipml")
    return list({point.dist.name: point.dist for point in points if point.dist}.values())


def _top_level(distribution: importlib.metadata.Distribution) -> list[str]:
    """The packages and modules that a distribution installs at top level."""
    listed = distribution.read_text("top_level.txt")
    if listed:
        return listed.split()
    parts = (file.parts[0] for file in distribution.files or () if file.suffix in _CODE)
    return sorted({part.removesuffix(".py") for part in parts if not part.endswith(("-info", ".."))})


def _code_files(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in _CODE)
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []
