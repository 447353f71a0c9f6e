"""A study: a sweep of the paper's evaluation, and the claims that are held against its results.

Everything that names a plugin stands in the TOML files beside this module.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

from sipml_core.errors import ConfigError, unknown
from sipml_core.experiment import structure
from sipml_core.fields import frozen, option
from sipml_core.sweeping import Sweep


@frozen(kw_only=True)
class Claim:
    """A ratio of two series that the paper makes a statement about.

    At each point and workload it is the least time of `over` by the least time of `under`.
    """

    text: str = option(doc="what the paper says")
    paper: str = option(doc="the paper's number")
    over: tuple[str, ...] = option(doc="series")
    under: tuple[str, ...] = option(doc="series")
    over_x: float = option(1.0, doc="`over` is taken at x times this")
    from_x: float = option(0.0, doc="only points from here on")
    each_model: bool = option(False, doc="one verdict for each model, not one for all of them")
    smallest_at_least: float | None = option(None, doc="holds only if every ratio is that large")
    largest_at_least: float | None = option(None, doc="holds only if some ratio is that large")
    largest_at_most: float | None = option(None, doc="holds only if no ratio is larger")


@frozen(kw_only=True)
class Study(Sweep):
    """A file of this folder: a sweep that searches, which `sweep` runs as well, and claims."""

    results_of: str | None = option(None, doc="study whose results are used; no experiments of its own")
    claim: tuple[Claim, ...] = option((), doc="statements of the paper about the series")


def study_names() -> list[str]:
    """All studies, in the order of the paper."""
    found = (path.name for path in files("sipml_core.reproduce").iterdir() if path.name.endswith(".toml"))
    return sorted((name.removesuffix(".toml") for name in found), key=lambda n: (not n.startswith("fig"), n))


def study_text(name: str) -> str:
    """Return the file of a study; `ConfigError` names the nearest one if there is none."""
    if name not in study_names():
        raise ConfigError(unknown("study", name, [*study_names(), "all"]))
    return files("sipml_core.reproduce").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def read_study(name: str) -> Study:
    """A study by name; `ConfigError` names the nearest one if there is none."""
    return structure(tomllib.loads(study_text(name)), Study, name)
