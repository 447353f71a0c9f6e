"""An experiment from the name of its file, with changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError, shown
from sipml_core.experiment.model import Experiment
from sipml_core.experiment.overrides import apply_values
from sipml_core.experiment.reading import SHARED_KEYS, read_experiment, read_tables
from sipml_core.plugin import Registry

#: What is done to the tables of a file before they are checked.
Change = Callable[[dict[str, Any]], dict[str, Any]]


def open_experiment(
    source: str | os.PathLike[str] | Mapping[str, Any] | Experiment,
    registry: Registry,
    *,
    set: Mapping[str, Any] | None = None,
    change: Change | None = None,
) -> Experiment:
    """Return the experiment of a TOML file, or of its tables; an `Experiment` is returned as it is.

    Parameters
    ----------
    set
        Values by path, ``{"cluster.bandwidth_gbps": "4 Tbps"}``: what ``--set`` does on the command line.
    change
        Any other change of the tables.

    Raises
    ------
    ConfigError
        Naming the file and the key at fault; or values are to be set in an `Experiment`.
    """
    if isinstance(source, Experiment):
        if set:
            raise ConfigError("set= changes a file that is read; of an Experiment use attrs.evolve")
        return source
    if isinstance(source, Mapping):
        tables = apply_values(dict(source), set or {})
        return read_experiment(change(tables) if change else tables, registry)
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(
            f"an experiment must be the name of a TOML file, its tables or an Experiment, got {shown(source)}"
        )
    path = Path(source)
    tables = read_tables(path)
    if "experiment" in tables and "cluster" not in tables:
        raise ConfigError(f"{path} is a sweep, not an experiment: python -m sipml_core sweep {path}")
    if any(key in tables for key in SHARED_KEYS):
        raise ConfigError(f"{path} has jobs that share a cluster: python -m sipml_core share {path}")
    tables = apply_values(tables, set or {})
    tables = change(tables) if change else tables
    try:
        return read_experiment(tables, registry)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
