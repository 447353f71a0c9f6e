"""A study: experiments at several points of an axis, and the series that its figure compares.

Everything that names a plugin stands in the TOML files beside this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import attrs

from sipml_core.errors import ConfigError, unknown
from sipml_core.experiment import Experiment, apply_overrides, read_experiment, structure
from sipml_core.fields import one_of, option
from sipml_core.plugin import Registry

#: What can be drawn over the axis: column of the numbers, label of the axis, and its scale.
QUANTITIES = ("time_to_accuracy_h", "iteration_ms", "throughput_per_s", "mp", "dp")


@attrs.frozen(kw_only=True)
class Point:
    """One value of the axis: changes to every experiment of the study."""

    x: float = option(doc="place on the axis")
    set: tuple[str, ...] = option(doc="SECTION.KEY=VALUE, as for --set")
    quick: bool = option(False, doc="also a point of --quick")
    label: str = option("", doc="what stands there instead of x; x gives the order")


@attrs.frozen(kw_only=True)
class Series:
    """One line of the figure."""

    label: str = option(doc="name in legends and numbers")
    topology: str = option(doc="label of the interconnect")
    pure_dp: bool = option(False, doc="the best of pure data parallelism, not the best of all")
    mp: int | None = option(None, doc="the best of this degree of model parallelism, not the best of all")
    #: How the paper's public script turns an iteration on one network into one on another.
    added_bytes: Mapping[str, float] = option(
        attrs.Factory(dict),
        doc="workload -> bytes that go over `added_gbps` after each iteration",
        unit="bytes",
    )
    added_gbps: float = option(float("inf"), doc="or over x, the bandwidth of a GPU, if that is less")

    def added_us(self, workload: str, x_gbps: float) -> float:
        """Return what is added to an iteration at one place of the axis. [us]

        >>> series = Series(label="s", topology="t", added_bytes={"m": 1e9}, added_gbps=400.0)
        >>> series.added_us("m", 8000.0), series.added_us("m", 100.0), series.added_us("other", 100.0)
        (20000.0, 80000.0, 0.0)
        """
        return self.added_bytes.get(workload, 0.0) * 8e-3 / min(x_gbps, self.added_gbps)


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
class Study:
    """A file of this folder."""

    title: str = option(doc="the question, as title of the figure")
    x: str = option("", doc="label of the axis")
    #: A ratio of 2 looks the same everywhere on a logarithmic axis.
    y: tuple[str, ...] = option(("time_to_accuracy_h",), doc="quantities, one row of panels each")
    results_of: str | None = option(None, doc="study whose results are used; no experiments of its own")
    series: tuple[Series, ...] = option((), doc="lines of the figure; none: no figure")
    point: tuple[Point, ...] = option((), doc="values of the axis")
    experiment: tuple[Mapping[str, Any], ...] = option(
        (), doc="tables, as of an experiment file, and `quick`: changes that --quick makes, as for --set"
    )
    claim: tuple[Claim, ...] = option((), doc="statements of the paper about the series")

    def __attrs_post_init__(self) -> None:
        for quantity in self.y:
            one_of(*QUANTITIES)(self, attrs.fields(Study).y, quantity)

    def points(self, quick: bool) -> list[Point]:
        return [point for point in self.point if point.quick or not quick]

    def experiments(self, registry: Registry, quick: bool) -> Iterator[tuple[Point, Experiment]]:
        """All experiments, at every point."""
        for point in self.points(quick):
            for with_quick in self.experiment:
                tables = {key: table for key, table in with_quick.items() if key != "quick"}
                changes = [*point.set, *(with_quick.get("quick", ()) if quick else ())]
                yield point, read_experiment(apply_overrides(tables, changes), registry)


def study_names() -> list[str]:
    """All studies, in the order of the paper."""
    found = (path.name for path in files("sipml_core.reproduce").iterdir() if path.name.endswith(".toml"))
    return sorted((name.removesuffix(".toml") for name in found), key=lambda n: (not n.startswith("fig"), n))


def read_study(name: str) -> Study:
    """A study by name; `ConfigError` names the nearest one if there is none."""
    if name not in study_names():
        raise ConfigError(unknown("study", name, [*study_names(), "all"]))
    text = files("sipml_core.reproduce").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return structure(tomllib.loads(text), Study, name)
