"""Answers kept between runs, under a hash of everything they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from sipml_core.cases import Candidate, package_versions
from sipml_core.errors import ConfigError
from sipml_core.experiment import Experiment, Interconnect
from sipml_core.plugin import Component

Answer = dict[str, Any]

#: A cache is trimmed to half of this when it has grown beyond it: some 200 000 answers. [bytes]
MOST_BYTES = 500_000_000

#: Files whose content decides what a package computes.
_CODE = (".py", ".so", ".pyd", ".csv")


@attrs.frozen
class AnswerCache:
    """A folder of JSON files, one for each question; None: nothing is kept."""

    folder: Path | None

    def get(self, key: str) -> Answer | None:
        """The answer, if there is one; a damaged file counts as none."""
        if self.folder is None:
            return None
        try:
            answer = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer; at every moment the file is whole or not there."""
        if self.folder is None:
            return
        path = self._path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".answer-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(answer, file)
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise ConfigError(
                f"cannot write to the cache {self.folder}: {error.strerror}; "
                "choose another with --cache, or --no-cache"
            ) from None

    def contents(self) -> tuple[int, int]:
        """Return how many answers are kept, and their size. [bytes]"""
        sizes = [path.stat().st_size for path in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Remove all answers."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [] if self.folder is None else sorted(self.folder.glob("??/*.json"))

    def trim(self) -> None:
        """Remove the answers that were used least lately, where there are too many."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            files = [(path.stat(), path) for path in self.folder.glob("??/*.json")]
            total = sum(status.st_size for status, _ in files)
            if total <= MOST_BYTES:
                return
            for status, path in sorted(files, key=lambda file: file[0].st_atime):
                path.unlink(missing_ok=True)
                total -= status.st_size
                if total <= MOST_BYTES / 2:
                    return

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json"


def default_cache_folder() -> Path:
    """Where answers are kept unless --cache says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sipml"


@attrs.frozen
class Keys:
    """Hashes of all that an answer depends on: options, files they name, and the code itself."""

    #: The same for questions about one cut and placed graph, on whatever interconnect.
    graph: str
    #: The answer's own.
    answer: str


def trial_keys(kind: str, experiment: Experiment, candidate: Candidate, interconnect: Interconnect) -> Keys:
    """The keys of one question, "estimate" or "simulation"."""
    job = candidate.job
    graph_components = [experiment.gpu, job.workload, job.placer, *job.exchanges, *job.all_reduces]
    control = (interconnect.scheduler, interconnect.estimator)
    own_components = [interconnect.topology, *(component for component in control if component)]
    packages = {
        type(component).__module__.split(".")[0] for component in (*graph_components, *own_components)
    }
    graph = _hash(
        {
            "components": [_identity(component) for component in graph_components],
            "precision": experiment.precision,
            "seed": experiment.seed,
            "engine": attrs.asdict(experiment.engine),
            "cluster": attrs.asdict(interconnect.cluster),
            "strategy": attrs.asdict(candidate.plan) if candidate.plan else candidate.refusal,
            "layout": candidate.layout,
        }
    )
    answer = {
        "kind": kind,
        "graph": graph,
        "code": code_fingerprint(tuple(sorted(packages))),
        "components": [_identity(component) for component in own_components],
        "circuit_keys": attrs.asdict(interconnect.circuit_keys),
    }
    return Keys(graph, _hash(answer))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()


def _identity(component: Component) -> dict[str, Any]:
    options = (
        attrs.asdict(component.options) if attrs.has(type(component.options)) else repr(component.options)
    )
    return {
        "class": f"{type(component).__module__}.{type(component).__qualname__}",
        "options": options,
        "files": [_file_hash(Path(name)) for name in _texts(options) if _is_file(name)],
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


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def code_fingerprint(packages: tuple[str, ...]) -> str:
    """Hash of the code of some packages, of all others in their distributions, and of what they stand on.

    So an answer outlives neither a change of the core nor one of a plugin.
    """
    digest = hashlib.sha256(f"{sys.version} {package_versions()}".encode())
    for package in sorted({*packages, *_siblings(packages), "sipml_core"}):
        for path in _code_files(package):
            digest.update(f"{package} {path.name} {_file_hash(path)}\n".encode())
    return digest.hexdigest()


def _siblings(packages: Iterable[str]) -> set[str]:
    """Top-level packages that came with any of these: a plugin may import them."""
    owners = importlib.metadata.packages_distributions()
    mine = {name for package in packages for name in owners.get(package, ())}
    return {package for package, names in owners.items() if mine.intersection(names)}


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
