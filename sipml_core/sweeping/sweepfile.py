"""A sweep as a value, and from its TOML file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from sipml_core.errors import ConfigError, brief, nearest, shown
from sipml_core.experiment import (
    Experiment,
    apply_overrides,
    apply_values,
    override_value,
    read_experiment,
    read_tables,
    structure,
)
from sipml_core.fields import FileText, between, frozen, one_of, option
from sipml_core.plugin import Registry
from sipml_core.sweeping.conditions import holds
from sipml_core.sweeping.figurenumbers import DRAWABLE, QUANTITIES
from sipml_core.sweeping.points import Choice, Point, SweepPoint, combined, count_of, factors_of, plain
from sipml_core.sweeping.seriesrows import Series

#: Kinds of files that figures are written as.
FORMATS = ("png", "svg", "pdf")
#: Combinations, before conditions, that are looked through.
MOST_COMBINATIONS = 1_000_000


@frozen(kw_only=True)
class FigureTable:
    """[figure]: what is drawn of a sweep."""

    x: str = option("", doc="axis that is drawn along; left out: the first one")
    x_label: str = option("", doc="what stands under it; left out: the key")
    y: tuple[str, ...] = option(("iteration_ms",), doc="quantities, one row of panels each")
    series: tuple[str, ...] = option((), doc="labels of the series that are drawn; left out: all")
    title: str | None = option(None, doc="above the figure; left out: that of the sweep; empty: none")
    width_in: float | None = option(
        None, validator=attrs.validators.optional(between(1, 100)),
        doc="width of the figure; a column of a paper has 3.3", unit="in",
    )  # fmt: skip
    formats: tuple[str, ...] = option(("png", "svg"), doc="files that are written")

    def __attrs_post_init__(self) -> None:
        for quantity in self.y:
            if quantity not in DRAWABLE:
                close = nearest(quantity, DRAWABLE)
                hint = f"did you mean {close!r}? " if close else ""
                raise ConfigError(
                    f"y must be numbers of the table, got {shown(quantity)}; {hint}known: "
                    f"{', '.join(QUANTITIES)}, and the columns of summary.csv and search.csv"
                )
        for kind in self.formats:
            one_of(*FORMATS)(self, attrs.fields(FigureTable).formats, kind)


@frozen(kw_only=True)
class Sweep:
    """A sweep: experiments, and the values that they are run with."""

    title: str = option("", doc="the question, as title of the figure")
    do: str = option(
        "run", validator=one_of("run", "search"),
        doc="simulate the plan that each experiment names, or search for the best one",
    )  # fmt: skip
    experiment: Any = option(
        (),
        doc="name of an experiment file, or its tables ([experiment], or several [[experiment]]), beside "
        "which `quick` lists changes that --quick makes, as for --set",
    )
    axes: Mapping[str, Any] = option({}, doc="key of an experiment -> values; all are combined")
    zip: tuple[Mapping[str, Any], ...] = option((), doc="keys whose values go together, first with first")
    point: tuple[Point, ...] = option((), doc="points that are written out, each with a name")
    only: tuple[str, ...] = option((), doc="conditions that hold at every point, axes in braces")
    quick: Mapping[str, Any] = option({}, doc="key of an axis -> those of its values that --quick takes")
    series: tuple[Series, ...] = option((), doc="lines of the figure; none: one for each interconnect")
    figure: FigureTable | None = option(None, doc="what is drawn; none: nothing")

    def __attrs_post_init__(self) -> None:
        known = self.axis_values
        x = self.figure.x if self.figure else ""
        for where, key in [("figure.x", x), *(("quick", key) for key in self.quick)]:
            if key and key not in known:
                close = nearest(key, known)
                hint = f"; did you mean {close!r}?" if close else ""
                raise ConfigError(f"{where}: {shown(key)} is no axis of the sweep{hint}")

    @property
    def tables(self) -> tuple[Mapping[str, Any], ...]:
        """The tables of each experiment."""
        one = isinstance(self.experiment, Mapping)
        return (self.experiment,) if one else tuple(self.experiment)

    def factors(self, quick: bool = False) -> list[list[Choice]]:
        """Return what is combined; see `factors_of`."""
        if not quick:
            return self._all_factors
        return [[choice for choice in factor if self._taken(choice)] for factor in self._all_factors]

    @cached_property
    def _all_factors(self) -> list[list[Choice]]:
        return factors_of(self.axes, self.zip, self.point)

    @cached_property
    def axis_values(self) -> Mapping[str, list[Any]]:
        """The values of each axis, those of zips too, in order."""
        found: dict[str, list[Any]] = {}
        for factor in self._all_factors:
            for values, _ in factor:
                for key, value in values.items():
                    found.setdefault(key, []).append(value)
        return found

    def _taken(self, choice: Choice) -> bool:
        values, point = choice
        if point is not None:
            return point.quick
        return all(values[key] in taken for key, taken in self.quick.items() if key in values)

    def points(self, quick: bool = False) -> list[SweepPoint]:
        """Return every combination of values for which the conditions hold.

        Raises
        ------
        ConfigError
            There are far too many to look through, or a condition cannot be computed.
        """
        factors = self.factors(quick)
        if count_of(factors) > MOST_COMBINATIONS:
            raise ConfigError(
                f"the axes have {count_of(factors)} combinations, and at most {MOST_COMBINATIONS} are looked "
                "through; leave out values"
            )
        return [p for p in combined(factors) if all(holds(text, p.values) for text in self.only)]

    def experiments(self, registry: Registry, quick: bool = False) -> Iterator[tuple[SweepPoint, Experiment]]:
        """Yield every experiment at every point.

        Raises
        ------
        ConfigError
            A value names no key, or its key refuses it; the point is named.
        """
        for point in self.points(quick):
            for with_quick in self.tables:
                tables = {key: table for key, table in with_quick.items() if key != "quick"}
                changes = with_quick.get("quick", ()) if quick else ()
                try:
                    tables = apply_values(tables, point.values)
                    tables = apply_overrides(tables, [*(point.named.set if point.named else ()), *changes])
                    yield point, read_experiment(tables, registry)
                except ConfigError as error:
                    at = f"at {brief(point.about)}: " if point.about else ""
                    raise ConfigError(f"{at}{str(error).removeprefix('--set ')}") from None

    def x_key(self) -> str:
        """Return the key of the axis that is drawn along, empty if there is none."""
        if self.figure and self.figure.x:
            return self.figure.x
        return next(iter(self.axis_values), "")

    def place(self, point: SweepPoint, options: Mapping[str, Any]) -> tuple[float, str]:
        """Return the place of a point on the axis, and the name that stands there where it is no number.

        Parameters
        ----------
        options
            Values as they were resolved, by key: 400.0 for "400 Gbps".
        """
        if point.named is not None and not (self.figure and self.figure.x):
            return point.named.x, point.named.label
        key = self.x_key()
        if not key:
            return 0.0, ""
        for value in (point.values[key], options.get(key)):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value), ""
        return float(self.axis_values[key].index(point.values[key])), str(plain(point.values[key]))


def read_sweep(source: str | os.PathLike[str] | Mapping[str, Any]) -> Sweep:
    """Return the sweep of a TOML file; of an experiment file, one that has it as its only point.

    Parameters
    ----------
    source
        The name of the file, or its tables.

    Raises
    ------
    ConfigError
        It names the file and the key at fault.
    """
    if isinstance(source, Mapping):
        if "cluster" in source and "experiment" not in source:
            return Sweep(title=str(source.get("title", "")), experiment=dict(source))
        return structure(_with_experiment(source, Path()), Sweep, "sweep")
    path = Path(source)
    tables = read_tables(path)
    if "cluster" in tables and "experiment" not in tables:
        return Sweep(title=str(tables.get("title", "")), experiment=tables)
    try:
        return structure(_with_experiment(tables, path.parent), Sweep, "sweep")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _with_experiment(tables: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The tables with those of the experiment file that they name."""
    named = tables.get("experiment")
    if isinstance(named, str):
        named = read_tables((named.folder if isinstance(named, FileText) else folder) / named)
    several = named if isinstance(named, list) else [named]
    if not several or not all(isinstance(each, Mapping) for each in several):
        raise ConfigError(
            "sweep.experiment must be the name of an experiment file, or its tables, got "
            f"{shown(tables.get('experiment'))}"
        )
    return {**tables, "experiment": several}


def with_alternatives(sweep: Sweep, assignments: Sequence[str]) -> Sweep:
    """Return the sweep with every ``path=value,value,...`` as an axis, in the place of one with that key.

    A single value is an axis too, of one point, and so is an axis narrowed. Commas inside quotes, brackets
    and braces belong to a value.

    >>> with_alternatives(Sweep(), ["cluster.gpus=8,16", "search.mp=[1, 2]"]).axes
    {'cluster.gpus': [8, 16], 'search.mp': [[1, 2]]}
    """
    axes: dict[str, list[Any]] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        path = path.strip()
        if not equals or not path:
            raise ConfigError(f"--set must look like section.key=value,value, got {shown(assignment)}")
        axes[path] = [override_value(part.strip(), path) for part in split_values(text)]
    return with_axes(sweep, axes)


def with_axes(sweep: Sweep, axes: Mapping[str, Sequence[Any]]) -> Sweep:
    """Return the sweep with further axes, each in the place of one with its key; arrays and ranges too.

    Raises
    ------
    ConfigError
        The values of an axis go together with those of others.
    """
    for key in axes:
        if any(key in group for group in sweep.zip):
            raise ConfigError(f"{brief(key)}: its values go with others of a zip; change the file")
    quick = {key: values for key, values in sweep.quick.items() if key not in axes}
    values = {key: _listed(values) for key, values in axes.items()}
    return attrs.evolve(sweep, axes={**sweep.axes, **values}, quick=quick)


def _listed(values: Any) -> Any:
    return list(values) if isinstance(values, range) else getattr(values, "tolist", lambda: values)()


def with_figure(sweep: Sweep, width_in: float | None = None) -> Sweep:
    """Return the sweep with its figure, or the usual one if it asks for none, of this width. [in]"""
    figure = sweep.figure or FigureTable()
    return attrs.evolve(sweep, figure=figure if width_in is None else attrs.evolve(figure, width_in=width_in))


_CLOSING = {"[": "]", "{": "}"}


def split_values(text: str) -> list[str]:
    """Return the parts of a text between its commas, but for those in quotes, brackets and braces.

    >>> split_values('400 Gbps,[1, 2],{ a = 1, b = 2 },"x,y"')
    ['400 Gbps', '[1, 2]', '{ a = 1, b = 2 }', '"x,y"']
    """
    parts, inside, start = [], "", 0
    for place, letter in enumerate(text):
        quote = inside[-1:] if inside[-1:] in ("'", '"') else ""
        if quote:
            inside = inside[:-1] if letter == quote else inside
        elif letter in "'\"":
            inside += letter
        elif letter in _CLOSING:
            inside += _CLOSING[letter]
        elif letter == inside[-1:]:
            inside = inside[:-1]
        elif letter == "," and not inside:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def file_name(sweep: Sweep, source: str | os.PathLike[str] | None) -> str:
    """Return what files of results are called: as the file of the sweep, or by its title."""
    if source is not None:
        return Path(source).stem
    return re.sub(r"[^0-9A-Za-z._-]+", "-", sweep.title).strip("-.") or "sweep"
