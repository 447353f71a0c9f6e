"""A result looked into: what a folder of results asks is simulated again, with details."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core.cases import run_experiment
from sipml_core.details import CaseDetails
from sipml_core.errors import ConfigError
from sipml_core.experiment import Experiment, open_experiment
from sipml_core.model import SILENT, CaseResult, Progress, Result
from sipml_core.plugin import Registry

#: Times of a result that differ by more, relatively, are not those of the same experiment.
_SAME = 1e-6
#: What every result has had since its format was settled.
_KEYS = ("title", "seed", "version", "baseline", "cases")
_COLUMNS = ("workload", "topology", "status", "iteration_us")


def holds_search(source: Path) -> bool:
    """Return whether a folder holds a search; one of a run may be there too, for both write to TITLE."""
    return (source / "search.json").is_file()


def holds_run(source: Path) -> bool:
    """Return whether a folder holds a run."""
    return (source / "result.json").is_file()


def folder_beside(source: Path) -> Path:
    """Return where pictures and pages of an experiment file, a folder of results or its result.json go.

    >>> folder_beside(Path("results/x/result.json")).as_posix(), folder_beside(Path("y.toml")).as_posix()
    ('results/x', 'results/y')
    """
    if source.is_dir():
        return source
    return source.parent if source.name == "result.json" else Path("results") / source.stem


def search_rows(source: Path) -> list[dict[str, Any]]:
    """Return the candidates of a folder's search.json.

    Raises
    ------
    ConfigError
        There is none, or it is of an older format.
    """
    document = _document(source / "search.json")
    rows = document.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "workload" in row for row in rows):
        raise _older(source / "search.json", document)
    return rows


def experiment_of(source: Path, registry: Registry, change: Any = None) -> Experiment:
    """Return what a file asks, or what the folder of a result repeats.

    Raises
    ------
    ConfigError
        It is neither, or the result is of an older format.
    """
    if source.is_dir():
        file = source / "experiment.toml"
        if not file.is_file() or not (source / "result.json").is_file():
            raise ConfigError(
                f"{source} holds no result: `run` writes result.json and experiment.toml to its folder"
            )
        stored_rows(source)
        return open_experiment(file, registry, change=change)
    if source.name == "result.json":
        return experiment_of(source.parent, registry, change)
    return open_experiment(source, registry, change=change)


def stored_rows(source: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a folder's result.json.

    Raises
    ------
    ConfigError
        It is no result, or one of an older format.
    """
    document = _document(source / "result.json")
    rows = document.get("cases")
    if not all(key in document for key in _KEYS) or not isinstance(rows, list):
        raise _older(source / "result.json", document)
    if not all(isinstance(row, dict) and all(name in row for name in _COLUMNS) for row in rows):
        raise _older(source / "result.json", document)
    return rows


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{file} is no JSON: `run` writes it") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{file} holds no result: `run` writes it")
    return document


def _older(file: Path, document: Mapping[str, Any]) -> ConfigError:
    version = document.get("version", "an older version")
    return ConfigError(
        f"{file} has the format of sipml {version}, which cannot be read; run its experiment.toml again"
    )


def repeated(source: Path, registry: Registry, progress: Progress = SILENT, change: Any = None) -> Result:
    """Return the result of a file, or of what a folder of results repeats, with details.

    Raises
    ------
    ConfigError
        It cannot be read; or the times come out otherwise than they stand in the folder.
    """
    result = run_experiment(experiment_of(source, registry, change), progress=progress, details=True)
    folder = source.parent if source.name == "result.json" else source
    if folder.is_dir() and change is None:
        _refuse_another(folder, result)
    return result


def _refuse_another(folder: Path, result: Result) -> None:
    now = {(case.workload, case.topology): case for case in result.cases}
    for row in stored_rows(folder):
        case: CaseResult | None = now.get((row["workload"], row["topology"]))
        before = row["iteration_us"]
        if case is None or before is None or case.iteration_us is None:
            continue
        if not math.isclose(case.iteration_us, before, rel_tol=_SAME):
            raise ConfigError(
                f"{folder} does not repeat: an iteration of {case.workload} on {case.topology} takes "
                f"{case.iteration_us:.6g} us here and took {before:.6g} us there; run experiment.toml again"
            )


def chosen_cases(result: Result, workload: str | None, topology: str | None) -> list[CaseDetails]:
    """Return the details of the cases that are called so; left out names choose all.

    Raises
    ------
    ConfigError
        No case that ran is called so; those that did are named.
    """
    ran = [each for each in result.recorded if isinstance(each, CaseDetails)]
    found = [
        each
        for each in ran
        if workload in (None, each.record.workload) and topology in (None, each.record.topology)
    ]
    if not found:
        wanted = " on ".join(name for name in (workload, topology) if name)
        unrun = [
            f"{case.workload} on {case.topology} is {case.status}" for case in result.cases if not case.ran
        ]
        known = "; ".join([each.name for each in ran] or unrun)
        raise ConfigError(
            f"no case of {wanted} that ran and whose links are shared; there is: {known}"
            if wanted
            else f"no case ran whose links are shared; there is: {known}"
        )
    return found


def row_of(result: Result, details: CaseDetails) -> CaseResult:
    """Return the row of a case that was recorded."""
    return attrs.evolve(result.case(details.record.workload, details.record.topology))
