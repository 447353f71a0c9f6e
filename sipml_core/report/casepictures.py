"""Pictures of one simulated case: who does what when, how full links are, how long transfers take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.details import CaseDetails
from sipml_core.errors import ConfigError
from sipml_core.fields import between, frozen
from sipml_core.model import PASS_KINDS, TRAFFIC_KINDS
from sipml_core.report.drawing import add_title, plain_frame
from sipml_core.report.plots import new_figure

#: Okabe and Ito 2008, with hatches where areas meet, for black and white.
KIND_COLOURS = ("#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#E69F00")
PASS_COLOURS = ("#0072B2", "#D55E00", "#CC79A7", "#999999")
_PASS_HATCHES = ("", "////", "....", "xxxx")
#: GPUs and links of a picture where nobody says how many.
FEW_GPUS, FEW_LINKS = 8, 6
#: More boxes than this are drawn as pixels.
_BOXES = 1500


@frozen(kw_only=True)
class PictureLook:
    """What a picture shows beside its data."""

    #: None: 7 in. A column of a paper is 3.3 in wide. [in]
    width_in: float | None = attrs.field(default=None, validator=attrs.validators.optional(between(1.5, 40)))
    #: Whether the picture says above what it is of.
    titled: bool = True

    @property
    def width(self) -> float:
        """Return the width. [in]"""
        return self.width_in or 7.0

    @property
    def small(self) -> float:
        """Return the size of small print. [pt]"""
        return 8.0 if self.width > 4.5 else 7.0

    def finish(self, figure: Any, title: str) -> Any:
        """Return the figure with its title, if there is to be one."""
        if self.titled:
            add_title(figure, title)
        return figure


def time_unit(span_us: float) -> tuple[float, str]:
    """Return what a unit that suits a time is worth [us], and its name.

    >>> time_unit(40.0), time_unit(25_000.0)
    ((1.0, 'us'), (1000.0, 'ms'))
    """
    for worth, name in ((1e6, "s"), (1e3, "ms")):
        if span_us >= 2 * worth:
            return worth, name
    return 1.0, "us"


def window_of(details: CaseDetails) -> tuple[float, float]:
    """Return the time that pictures show. [us]"""
    end_us = details.record.timeline.total_us
    since_us, until_us = details.selection.window_us or (0.0, end_us)
    return since_us, min(until_us, end_us)


def few_gpus(details: CaseDetails) -> NDArray[np.intp]:
    """Return GPUs to show: those selected, at most `FEW_GPUS`, the first of each stage before others."""
    gpus = np.flatnonzero(details.wanted)
    record = details.record
    order = np.lexsort((gpus, record.stage[gpus], record.device[gpus], record.replica[gpus]))
    return np.sort(gpus[order[:FEW_GPUS]])


def _time_axis(axes: Any, details: CaseDetails, look: PictureLook) -> float:
    """Give a panel an axis of time; return what its unit is worth. [us]"""
    since_us, until_us = window_of(details)
    worth, name = time_unit(until_us)
    axes.set_xlim(since_us / worth, until_us / worth)
    axes.set_xlabel(f"time [{name}]", fontsize=look.small + 1)
    axes.tick_params(labelsize=look.small)
    return worth


def add_boxes(
    axes: Any,
    since: NDArray[np.float64],
    until: NDArray[np.float64],
    low: NDArray[np.float64] | float,
    height: float,
    colour: Any,
    hatch: str = "",
    edge: str = "none",
) -> None:
    """Add boxes, of one colour or one each; many are drawn as pixels, so that files stay small."""
    from matplotlib.collections import PolyCollection

    low = np.broadcast_to(low, since.shape)
    corners = np.stack(
        [
            np.stack([since, low], 1), np.stack([until, low], 1),
            np.stack([until, low + height], 1), np.stack([since, low + height], 1),
        ], axis=1,
    )  # fmt: skip
    boxes = PolyCollection(
        list(corners), facecolors=colour, edgecolors=edge, linewidths=0.4, hatch=hatch or None
    )
    boxes.set_rasterized(len(since) > _BOXES)
    axes.add_collection(boxes, autolim=False)


def _key(axes: Any, entries: Sequence[tuple[str, str, str]], look: PictureLook) -> None:
    """Say below a figure what colours and hatches stand for."""
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, hatch=hatch or None, edgecolor="white", label=name)
        for name, colour, hatch in entries
    ]
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=3 if look.width < 4.5 else 5, frameon=False,
        fontsize=look.small,
    )  # fmt: skip


def timeline(details: CaseDetails, look: PictureLook) -> Any:
    """Return a Gantt chart of a few GPUs: for each what it computes, above what it sends and receives."""
    record, gpus = details.record, few_gpus(details)
    figure = new_figure(look.width, 1.2 + 0.45 * len(gpus))
    axes = figure.subplots()
    worth = _time_axis(axes, details, look)
    since_us, until_us = window_of(details)
    tasks, line = record.tasks, record.timeline
    row = {int(gpu): place for place, gpu in enumerate(gpus[::-1])}
    entries: dict[str, tuple[str, str, str]] = {}

    for gpu, place in row.items():
        mine = np.flatnonzero(tasks.gpu == details.original[gpu])
        begins, ends = line.start_us[mine], line.end_us[mine]
        seen = (ends > since_us) & (begins < until_us)
        for kind, name in enumerate(("unnamed", *PASS_KINDS), start=-1):
            chosen = seen & (record.pass_kind[mine] == kind)
            if chosen.any():
                colour, hatch = ("#444444", "") if kind < 0 else (PASS_COLOURS[kind], _PASS_HATCHES[kind])
                told = "compute" if kind < 0 else name
                entries[told] = (told, colour, hatch)
                add_boxes(axes, begins[chosen] / worth, ends[chosen] / worth, place + 0.5, 0.4, colour, hatch)
    _transfers_of(axes, details, row, worth, entries)
    axes.set_ylim(0, len(gpus))
    axes.set_yticks([place + 0.5 for place in row.values()], [f"GPU {gpu}" for gpu in row])
    axes.tick_params(labelsize=look.small)
    plain_frame(axes)
    axes.grid(False, axis="y")
    _key(axes, list(entries.values()), look)
    return look.finish(figure, f"{details.name}: compute above, sends and receives below")


def _transfers_of(
    axes: Any, details: CaseDetails, row: dict[int, int], worth: float, entries: dict[str, Any]
) -> None:
    """Add what GPUs send, from the first byte to the last, above what they receive."""
    chosen = attrs.evolve(details, selection=attrs.evolve(details.selection, gpus=tuple(sorted(row))))
    flows = chosen.flows()
    for end, low in (("src", 0.28), ("dst", 0.1)):
        for name, colour in zip(TRAFFIC_KINDS, KIND_COLOURS, strict=True):
            mine = np.flatnonzero((flows["kind"] == name) & np.isin(flows[end], list(row)))
            if len(mine):
                places = np.array([row[gpu] for gpu in flows[end][mine].tolist()]) + low
                entries[name] = (f"{name} traffic", colour, "")
                add_boxes(
                    axes,
                    flows["moved_us"][mine] / worth,
                    flows["left_us"][mine] / worth,
                    places,
                    0.16,
                    colour,
                )


def pipeline(details: CaseDetails, look: PictureLook) -> Any:
    """Return the schedule of a replica as it ran: the passes of each stage, numbered by micro-batch.

    Raises
    ------
    ConfigError
        There is one stage and one micro-batch: no schedule.
    """
    passes = details.passes()
    if len(set(passes["stage"].tolist())) < 2 and len(set(passes["micro_batch"].tolist())) < 2:
        raise ConfigError(f"{details.name} has one stage and one micro-batch: no pipeline to draw")
    replica = int(passes["replica"].min())
    mine = np.flatnonzero(passes["replica"] == replica)
    stages = sorted(set(passes["stage"][mine].tolist()))
    figure = new_figure(look.width, 1.2 + 0.38 * len(stages))
    axes = figure.subplots()
    worth = _time_axis(axes, details, look)
    place = {stage: len(stages) - 1 - k for k, stage in enumerate(stages)}
    for kind, colour in enumerate(PASS_COLOURS):
        of = mine[passes["kind"][mine] == kind]
        low = np.array([place[stage] for stage in passes["stage"][of].tolist()]) + 0.1
        if len(of):
            add_boxes(
                axes, passes["since_us"][of] / worth, passes["until_us"][of] / worth, low, 0.8, colour,
                _PASS_HATCHES[kind], edge="white",
            )  # fmt: skip
    _number_passes(axes, passes, mine, place, worth, look)
    axes.set_ylim(0, len(stages))
    axes.set_yticks([place[stage] + 0.5 for stage in stages], [f"stage {stage}" for stage in stages])
    plain_frame(axes)
    axes.tick_params(labelsize=look.small)
    there = sorted(set(passes["kind"][mine].tolist()))
    _key(axes, [(PASS_KINDS[kind], PASS_COLOURS[kind], _PASS_HATCHES[kind]) for kind in there], look)
    return look.finish(figure, f"{details.name}: passes of replica {replica}")


def _number_passes(
    axes: Any, passes: Any, mine: NDArray[np.intp], place: dict[int, int], worth: float, look: PictureLook
) -> None:
    """Write the micro-batch into each pass that is wide enough for it."""
    low, high = axes.get_xlim()
    letter = (high - low) / (look.width * 72) * look.small * 0.7
    for k in mine.tolist():
        since, until = passes["since_us"][k] / worth, passes["until_us"][k] / worth
        told = str(passes["micro_batch"][k])
        if passes["kind"][k] < 3 and until - since > letter * len(told) and low <= since and until <= high:
            axes.text(
                (since + until) / 2, place[passes["stage"][k]] + 0.5, told, ha="center", va="center",
                fontsize=look.small, color="white", fontweight="bold",
            )  # fmt: skip


def traffic(details: CaseDetails, look: PictureLook) -> Any:
    """Return the traffic matrix: bytes from each GPU to each, of all kinds, and how much is of which kind."""
    table = details.traffic()
    gpus = details.record.gpus
    dense = np.zeros((gpus, gpus))
    np.add.at(dense, (table["src"], table["dst"]), table["bytes"])
    unit, name = _bytes_unit(dense.max())
    figure = new_figure(look.width, look.width * 0.85)
    axes = figure.subplots()
    image = axes.imshow(
        np.ma.masked_equal(dense / unit, 0),
        cmap="viridis",
        interpolation="nearest",
        norm=_log_norm(dense / unit),
    )
    axes.set_facecolor("0.93")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("to GPU", fontsize=look.small + 1)
    axes.set_ylabel("from GPU", fontsize=look.small + 1)
    axes.tick_params(labelsize=look.small)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label(f"sent in the run [{name}]", fontsize=look.small + 1)
    bar.ax.tick_params(labelsize=look.small)
    total = table["bytes"].sum()
    parts = [
        f"{kind} {table['bytes'][table['kind'] == kind].sum() / total:.0%}"
        for kind in TRAFFIC_KINDS
        if (table["kind"] == kind).any()
    ]
    return look.finish(figure, f"{details.name}: {', '.join(parts)} of the bytes")


def _log_norm(values: NDArray[np.float64]) -> Any:
    from matplotlib.colors import LogNorm

    there = values[values > 0]
    return LogNorm(there.min(), there.max()) if len(there) and there.max() > 30 * there.min() else None


def _bytes_unit(most: float) -> tuple[float, str]:
    for worth, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if most >= worth:
            return worth, name
    return 1.0, "bytes"


def links(details: CaseDetails, look: PictureLook) -> Any:
    """Return how full links are over time: the busiest by name, and the mean of all that carry anything."""
    shown, samples = link_use(details, FEW_LINKS), details.record.timeline.samples
    assert samples is not None
    figure = new_figure(look.width, 1.0 + 0.65 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    worth = _time_axis(panels[-1], details, look)
    for axes, (name, values, mean) in zip(panels, shown, strict=True):
        axes.stairs(100 * values, samples.at_us / worth, fill=True, color="#0072B2")
        axes.set_ylim(0, 105)
        axes.set_yticks([0, 100])
        axes.text(
            0.005, 0.93, f"{name}: {mean:.0%}", transform=axes.transAxes, fontsize=look.small, va="top",
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        )  # fmt: skip
        plain_frame(axes)
        axes.tick_params(labelsize=look.small)
    panels[len(panels) // 2].set_ylabel("in use [% of capacity]", fontsize=look.small + 1)
    return look.finish(figure, f"{details.name}: links over time, and in the whole run")


def link_use(details: CaseDetails, count: int) -> list[tuple[str, NDArray[np.float64], float]]:
    """Return name, use between samples [samples - 1] and mean use of the busiest links, then of all in use.

    Use is a part of capacity, from 0 to 1.
    """
    record, table = details.record, details.links()
    samples, images = record.timeline.samples, record.images
    assert samples is not None
    first = np.flatnonzero(table["simulated"])
    standing = np.arange(len(record.network.link_gbps)) if images is None else images.link_orbit[first]
    share = np.ones(len(first)) if images is None else images.link_share[first]
    gbps = np.where(table["gbps"][first] > 0, table["gbps"][first], 1.0)
    rate, use = samples.gbps[:, standing] / share / gbps, _use(details)
    busiest = np.argsort(-use, kind="stable")[:count].tolist()
    shown = [(str(table["link"][first][link]), rate[:, link], float(use[link])) for link in busiest]
    carries = table["bytes"][first] > 0
    if carries.any():
        shown.append(("all links in use", rate[:, carries].mean(axis=1), float(use[carries].mean())))
    return shown


def _use(details: CaseDetails) -> NDArray[np.float64]:
    """Return the part of its capacity that each first image of a link carries. [simulated links]"""
    table = details.links()
    first = np.flatnonzero(table["simulated"])
    can = 125.0 * table["gbps"][first] * details.record.timeline.total_us
    return np.asarray(np.where(can > 0, table["bytes"][first] / np.where(can > 0, can, 1.0), 0.0))


def flows(details: CaseDetails, look: PictureLook) -> Any:
    """Return how long transfers take, from joining to arriving, and of that how long they wait, by kind."""
    table = details.flows()
    if not len(table["transfer"]):
        raise ConfigError(f"{details.name} has no transfers in this part of the run")
    spans = {
        "joining to arriving": table["arrived_us"] - table["joined_us"],
        "of it, waiting to move": table["moved_us"] - table["joined_us"],
    }
    figure = new_figure(look.width, 2.6 if look.width > 4.5 else 4.6)
    panels = figure.subplots(1, 2) if look.width > 4.5 else figure.subplots(2, 1)
    worth, unit = time_unit(float(np.median(spans["joining to arriving"])))
    dashes = ("-", "--", ":", "-.", (0, (3, 1, 1, 1, 1, 1)))
    for axes, (name, span_us) in zip(panels, spans.items(), strict=True):
        for kind, colour, dash in zip(TRAFFIC_KINDS, KIND_COLOURS, dashes, strict=True):
            mine = np.sort(span_us[table["kind"] == kind]) / worth
            if len(mine):
                axes.plot(
                    mine, np.arange(1, len(mine) + 1) / len(mine) * 100, color=colour, linestyle=dash,
                    drawstyle="steps-post", linewidth=1.8, label=f"{kind} ({len(mine)})",
                )  # fmt: skip
        some = span_us[span_us > 0] / worth
        axes.set_xscale("symlog", linthresh=float(np.quantile(some, 0.1)) if len(some) else 1.0, linscale=0.4)
        axes.set_xlabel(f"{name} [{unit}]", fontsize=look.small + 1)
        axes.set_ylim(0, 101)
        plain_frame(axes)
        axes.tick_params(labelsize=look.small)
    panels[0].set_ylabel("transfers [%]", fontsize=look.small + 1)
    panels[0].legend(fontsize=look.small, frameon=False, loc="upper left")
    return look.finish(figure, f"{details.name}: how long {len(table['transfer'])} transfers take")


#: Pictures of a case by their names.
CASE_PICTURES: dict[str, Callable[[CaseDetails, PictureLook], Any]] = {
    "timeline": timeline,
    "pipeline": pipeline,
    "traffic": traffic,
    "links": links,
    "flows": flows,
}
