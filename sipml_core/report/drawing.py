"""The one way in which series are drawn: figures of studies, of sweeps and of searches."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from sipml_core.fields import frozen
from sipml_core.report.plots import new_figure
from sipml_core.report.seriesstyles import SeriesStyle, series_styles

#: Records, by column.
Rows = Sequence[Mapping[str, Any]]

#: What stands at axes of known columns.
AXES = {
    "time_to_accuracy_h": "time to accuracy [h]",
    "iteration_ms": "iteration [ms]",
    "throughput_per_s": "samples per second",
    "mp": "model-parallel degree",
    "dp": "data-parallel degree",
    "tokens_per_s": "tokens per second",
    "speedup": "speed-up",
}
#: Columns of degrees: powers of two.
_DEGREES = ("mp", "dp", "pp")
#: A panel, at least; a column of a paper is 3.3 in wide. [in]
_PANEL_IN = 1.9
#: From this ratio of its ends on a logarithmic axis has ticks at 1, 2, 5 times powers of ten.
_FEW_TICKS = 8.0
#: Points that lie closer, as a part of the panel's height, hide each other; by how much they are moved apart.
_CLOSE, _APART_PT = 0.02, 3.0


@frozen(kw_only=True)
class SeriesLook:
    """What a figure of series shows beside its rows."""

    #: Column whose values have a panel each; empty: one panel for each quantity.
    panel: str = ""
    #: What stands under the axis; empty: the name of the column.
    x_label: str = ""
    title: str = ""
    #: Under the title, smaller.
    subtitle: str = ""
    #: None: as wide as panels of a good size take. [in]
    width_in: float | None = None
    #: Column with what stands at points instead of numbers; empty values: the numbers.
    point_label: str = "label"
    #: Columns of truth values: markers are hollow, or ringed.
    hollow: str = "extrapolated"
    ringed: str = "tight_memory"


def draw_series(rows: Rows, x: str, y: Sequence[str], series: str, look: SeriesLook | None = None) -> Any:
    """Return a figure of one panel for each quantity in `y` and each value of `look.panel`.

    Parameters
    ----------
    rows
        Records. One without a number in a column of `y` is left out of its panel.
    x, y, series
        Columns: of the axis, of the quantities, and of the names of lines.
    """
    look = look or SeriesLook()
    panels = list(dict.fromkeys(row[look.panel] for row in rows)) if look.panel else [""]
    figure, axes = _grid(len(y), max(1, len(panels)), look)
    styles = series_styles(str(row[series]) for row in rows)
    for place, panel in enumerate(panels or [""]):
        mine = [row for row in rows if not look.panel or row[look.panel] == panel]
        for number, quantity in enumerate(y):
            box = axes[number][place]
            _draw_panel(box, mine, (x, quantity, series), styles, look)
            if place == 0 or _stacked(axes):
                box.set_ylabel(AXES.get(quantity, quantity))
            if number == 0 or _stacked(axes):
                box.set_title(str(panel), fontsize=10)
            if number == len(y) - 1 or _stacked(axes):
                box.set_xlabel(look.x_label or AXES.get(x, x))
    _add_legend(figure, axes)
    add_title(figure, look.title, look.subtitle)
    return figure


def _grid(rows: int, columns: int, look: SeriesLook) -> tuple[Any, list[list[Any]]]:
    """Return a figure and its panels [quantities, values], below each other where it is too narrow."""
    width_in = look.width_in or 1.2 + 3.6 * columns
    if width_in / columns >= _PANEL_IN or columns == 1:
        height_in = 0.9 + 2.7 * rows if look.width_in is None else 0.9 + 2.2 * rows
        figure = new_figure(width_in, height_in)
        return figure, figure.subplots(rows, columns, squeeze=False, sharex=True).tolist()
    figure = new_figure(width_in, 0.9 + 2.2 * rows * columns)
    boxes = figure.subplots(rows * columns, 1, squeeze=False)[:, 0].tolist()
    return figure, [[boxes[place * rows + row] for place in range(columns)] for row in range(rows)]


def _stacked(axes: list[list[Any]]) -> bool:
    """Whether panels stand below each other, so that each needs its own labels."""
    return len(axes[0]) > 1 and axes[0][1].get_subplotspec().colspan.start == 0


def _draw_panel(
    axes: Any, rows: Rows, columns: tuple[str, str, str], styles: Mapping[str, SeriesStyle], look: SeriesLook
) -> None:
    x, quantity, series = columns
    labels = list(dict.fromkeys(str(row[series]) for row in rows))
    named = any(row.get(look.point_label) for row in rows)
    known = {
        label: [row for row in rows if str(row[series]) == label and row.get(quantity) is not None]
        for label in labels
    }
    _scales(axes, rows, (x, quantity), look)
    moved = _moved_apart(axes, known, x, quantity)
    for place, (label, mine) in enumerate(known.items()):
        style, size = styles[label], _size(place, len(labels))
        points = [row[x] for row in mine], [row[quantity] for row in mine]
        where = axes.transData + moved[label]
        axes.plot(
            *points, linestyle="" if named else style.dashes, color=style.colour, label=label, alpha=0.9,
            linewidth=2.2 - 1.2 * place / max(1, len(labels) - 1), marker=style.marker, markersize=size,
            transform=where,
        )  # fmt: skip
        _mark(axes, [row for row in mine if row.get(look.hollow)], (x, quantity), where, style.marker, size,
              facecolor="white", edgecolor=style.colour)  # fmt: skip
        _mark(axes, [row for row in mine if row.get(look.ringed)], (x, quantity), where, "o", size + 6,
              facecolor="none", edgecolor=style.colour)  # fmt: skip


def _size(place: int, count: int) -> float:
    """Return the size of a series' markers: later ones are smaller, so that equal points are all seen."""
    return 9.0 - 5.0 * place / max(1, count - 1)


def _mark(
    axes: Any, rows: Rows, columns: tuple[str, str], where: Any, marker: str, size: float, **colours: str
) -> None:
    x, quantity = columns
    axes.plot(
        [row[x] for row in rows], [row[quantity] for row in rows], linestyle="", marker=marker,
        markersize=size, markerfacecolor=colours["facecolor"], markeredgecolor=colours["edgecolor"],
        transform=where,
    )  # fmt: skip


def _moved_apart(axes: Any, known: Mapping[str, Rows], x: str, quantity: str) -> dict[str, Any]:
    """Return how far each series is moved aside: not at all, but where it would hide another somewhere."""
    from matplotlib.transforms import ScaledTranslation

    heights = {
        label: {row[x]: axes.transAxes.inverted().transform(axes.transData.transform((row[x],
        row[quantity])))[1]
                for row in rows}
        for label, rows in known.items()
    }  # fmt: skip
    hidden = {
        label
        for label, mine in heights.items()
        for other, theirs in heights.items()
        if other != label and any(abs(mine[at] - theirs[at]) < _CLOSE for at in mine.keys() & theirs.keys())
    }
    order = [label for label in known if label in hidden]
    moved = {}
    for label in known:
        steps = order.index(label) - (len(order) - 1) / 2 if label in hidden else 0.0
        moved[label] = ScaledTranslation(_APART_PT * steps / 72, 0, axes.figure.dpi_scale_trans)
    return moved


def _points(rows: Rows, x: str, look: SeriesLook) -> dict[float, str]:
    """Places on the axis, and what is written there."""
    return {row[x]: row.get(look.point_label) or f"{row[x]:g}" for row in sorted(rows, key=lambda r: r[x])}


def _scales(axes: Any, rows: Rows, columns: tuple[str, str], look: SeriesLook) -> None:
    """Logarithmic on both sides, the values themselves at the ticks; named points stand side by side."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    x, quantity = columns
    points = _points(rows, x, look)
    if any(row.get(look.point_label) for row in rows):
        axes.set_xticks(list(points), list(points.values()), fontsize=8, rotation=35, ha="right")
        axes.set_xlim(min(points) - 0.5, max(points) + 0.5)
    elif min(points, default=1) > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(points), list(points.values()), fontsize=8)
        axes.minorticks_off()
        axes.set_xlim(min(points) / 1.25, max(points) * 1.25)
    values = [float(row[quantity]) for row in rows if row.get(quantity) is not None]
    degrees = sorted(set(values)) if quantity in _DEGREES else []
    if min(values, default=1.0) > 0:
        axes.set_yscale("log", base=2 if degrees else 10)
        _limit(axes, values, factor=2.0)
    if degrees:
        axes.set_yticks(degrees)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif min(values, default=1.0) > 0:
        low, high = axes.get_ylim()
        if high / low > _FEW_TICKS:
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        else:
            axes.yaxis.set_major_locator(FixedLocator(MaxNLocator(5).tick_values(low, high)))
            axes.set_ylim(low, high)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    plain_frame(axes)


def _limit(axes: Any, values: Sequence[float], factor: float) -> None:
    """Small differences look small: the scale spans `factor` or more."""
    low, high = min(values, default=1.0) / 1.1, max(values, default=1.0) * 1.1
    missing = max(1.0, factor / (high / low))
    axes.set_ylim(low / missing**0.5, high * missing**0.5)


def plain_frame(axes: Any) -> None:
    """Give a panel a light grid behind its contents, small ticks, and a frame on two sides."""
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _add_legend(figure: Any, axes: list[list[Any]]) -> None:
    handles: dict[str, Any] = {}
    for box in (box for row in axes for box in row):
        for line in box.get_lines():
            if not line.get_label().startswith("_"):
                handles.setdefault(line.get_label(), line)
    if handles:
        widest = max(map(len, handles))
        columns = max(1, min(3, int(figure.get_figwidth() / (0.45 + 0.075 * widest))))
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False,
            fontsize=9 if figure.get_figwidth() > 4 else 8, handlelength=3.0,
        )  # fmt: skip


def add_title(figure: Any, title: str, subtitle: str = "") -> None:
    """Put a title above a figure, in as many lines as its width asks for: nothing is cut; empty: none."""
    size = 11.0 if figure.get_figwidth() > 5 else 9.0
    # A letter is at most 0.62 of the size wide in the mean of a line. [letters]
    fits = max(12, int(figure.get_figwidth() * 72 / (0.62 * size)) - 2)
    lines = [line for text in (title, subtitle) if text for line in textwrap.wrap(text, fits)]
    if lines:
        figure.suptitle("\n".join(lines), fontsize=size)
