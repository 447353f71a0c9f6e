"""Pictures of circuits and networks: which wavelengths are in use, what changes when, how full links are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.details import CaseDetails
from sipml_core.errors import ConfigError
from sipml_core.fields import format_us
from sipml_core.model import CircuitDecision, CircuitOccupancy
from sipml_core.report.casepictures import PictureLook, add_boxes, time_unit, window_of
from sipml_core.report.drawing import plain_frame
from sipml_core.report.plots import new_figure

#: Decisions whose plans are shown beside each other.
_DECISIONS = 4
#: Colours of pairs, in turn; those of neighbours in number differ.
_PAIR_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#999999")
#: Circuits whose course is drawn.
_CIRCUITS = 40
#: Nodes of a network that can be drawn.
_NODES = 600


def wavelengths(details: CaseDetails, look: PictureLook) -> Any:
    """Return which channels are in use where, coloured by pair, after a few decisions.

    Raises
    ------
    ConfigError
        There are no circuits, or their plans do not say which resources they use.
    """
    shown = [(decision, decision.plan.occupancy()) for decision in _some(details) if decision.plan]
    known = [(decision, occupancy) for decision, occupancy in shown if occupancy is not None]
    if not known:
        raise ConfigError(f"the plans of {details.name} do not say which wavelengths or ports they use")
    groups = known[0][1].groups
    narrow = look.width < 4.5
    rows = len(known) * len(groups) if narrow else len(groups)
    figure = new_figure(look.width, 0.9 + 1.7 * rows)
    panels = figure.subplots(rows, 1 if narrow else len(known), squeeze=False, sharex=True)
    for place, (decision, occupancy) in enumerate(known):
        for group, name in enumerate(groups):
            axes = panels[place * len(groups) + group][0] if narrow else panels[group][place]
            _draw_occupancy(axes, occupancy, group, look)
            axes.set_title(f"{format_us(decision.at_us)}{', ' if name else ''}{name}", fontsize=look.small)
            if group == len(groups) - 1:
                axes.set_xlabel(occupancy.place_name, fontsize=look.small + 1)
            if narrow or place == 0:
                axes.set_ylabel(occupancy.channel_name, fontsize=look.small + 1)
    title = f"{details.name}: {known[0][1].channel_name} by {known[0][1].place_name}, coloured by pair"
    return look.finish(figure, title)


def _draw_occupancy(axes: Any, occupancy: CircuitOccupancy, group: int, look: PictureLook) -> None:
    from matplotlib.colors import to_rgb

    mine = np.flatnonzero(occupancy.group == group)
    picture = np.ones((max(1, occupancy.channels[group]), occupancy.places, 3))
    # Pairs in order of their ends: those of one sender follow each other in colour.
    ends = np.unique(np.stack([occupancy.src, occupancy.dst], 1), axis=0, return_inverse=True)[1].reshape(-1)
    colours = np.array([to_rgb(colour) for colour in _PAIR_COLOURS])
    picture[occupancy.channel[mine], occupancy.place[mine]] = colours[ends[mine] % len(colours)]
    axes.imshow(picture, aspect="auto", interpolation="nearest", origin="lower")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.tick_params(labelsize=look.small)
    if occupancy.places <= 16 and occupancy.channels[group] <= 12:
        told = set()
        for k in mine.tolist():
            key = (int(occupancy.channel[k]), int(occupancy.src[k]), int(occupancy.dst[k]))
            if key not in told:
                told.add(key)
                axes.text(
                    occupancy.place[k], occupancy.channel[k], f"{key[1]}→{key[2]}", ha="center", va="center",
                    fontsize=5.5, color="white",
                )  # fmt: skip


def _some(details: CaseDetails) -> list[CircuitDecision]:
    """Return a few decisions that changed something, spread over the window."""
    since_us, until_us = window_of(details)
    there = [
        decision
        for decision in details.record.decisions
        if decision.plan is not None and since_us <= decision.at_us <= until_us and len(decision.circuit)
    ]
    if not details.record.decisions:
        raise ConfigError(f"{details.name} has no circuits")
    places = np.unique(np.linspace(0, max(0, len(there) - 1), _DECISIONS).astype(int))
    return [there[place] for place in places.tolist()] if there else []


def circuits(details: CaseDetails, look: PictureLook) -> Any:
    """Return how circuits go: their capacity over time, dark while they are set; and how many change when.

    Raises
    ------
    ConfigError
        There are no circuits.
    """
    spans = details.circuit_spans()
    if not spans:
        raise ConfigError(f"{details.name} has no circuits in this part of the run")
    since_us, until_us = window_of(details)
    worth, unit = time_unit(until_us)
    most = max(span.gbps for mine in spans.values() for span in mine)
    order = sorted(spans, key=lambda ends: (-len(spans[ends]), ends))[:_CIRCUITS]
    figure = new_figure(look.width, 1.9 + 0.16 * len(order))
    axes, counts = figure.subplots(2, 1, sharex=True, height_ratios=[0.16 * len(order) + 0.4, 1.0])
    from matplotlib import colormaps

    shades = colormaps["cividis_r"]
    shown = [(place, span) for place, ends in enumerate(reversed(order)) for span in spans[ends]]
    add_boxes(
        axes,
        np.array([span.since_us for _, span in shown]) / worth,
        np.array([span.until_us for _, span in shown]) / worth,
        np.array([place - 0.4 for place, _ in shown]),
        0.8,
        [(0.0, 0.0, 0.0, 1.0) if span.dark else shades(span.gbps / most) for _, span in shown],
    )
    axes.set_yticks(range(len(order)), [f"{src} → {dst}" for src, dst in reversed(order)])
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.set_ylabel("circuit", fontsize=look.small + 1)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.colorbar(ScalarMappable(Normalize(0, most), shades), ax=axes)
    bar.set_label("capacity [Gbps]; black: dark", fontsize=look.small)
    bar.ax.tick_params(labelsize=look.small)
    decisions = details.record.decisions
    counts.vlines(
        [decision.at_us / worth for decision in decisions], 0, [len(decision.circuit) for decision in
        decisions], color="#0072B2", linewidth=1.2,
    )  # fmt: skip
    counts.set_ylabel("changed", fontsize=look.small + 1)
    counts.set_xlabel(f"time [{unit}]", fontsize=look.small + 1)
    counts.set_xlim(since_us / worth, until_us / worth)
    counts.set_ylim(bottom=0)
    for panel in (axes, counts):
        plain_frame(panel)
        panel.tick_params(labelsize=look.small if panel is counts else 6)
    some = f", {len(order)} of {len(spans)}" if len(order) < len(spans) else ""
    return look.finish(figure, f"{details.name}: circuits{some}")


def network(details: CaseDetails, look: PictureLook) -> Any:
    """Return the network drawn, each link coloured by how full it is in the mean of the run.

    Switches are squares. Where only ports are known, GPUs are coloured by the fuller of theirs, and lines are
    the pairs that talk.

    Raises
    ------
    ConfigError
        It has more nodes than can be told apart.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    record, table = details.record, details.links()
    tail, head = _ends(details)
    can = 125.0 * table["gbps"] * record.timeline.total_us
    use = np.where(can > 0, table["bytes"] / np.where(can > 0, can, 1.0), 0.0)
    nodes = int(max(record.gpus - 1, tail.max(initial=0), head.max(initial=0))) + 1
    if nodes > _NODES:
        raise ConfigError(f"{details.name} has {nodes} nodes; networks of up to {_NODES} are drawn")
    place = _places(record.gpus, nodes, tail, head)
    figure = new_figure(look.width, look.width * 0.95)
    axes = figure.subplots()
    shades = colormaps["cividis_r"]
    joins = np.flatnonzero((tail != head) & (tail >= 0))
    if len(joins):
        order = joins[np.argsort(use[joins], kind="stable")]
        lines = [_bent(place[tail[k]], place[head[k]]) for k in order.tolist()]
        axes.add_collection(LineCollection(lines, colors=shades(use[order]), linewidths=1.6))
    else:
        pairs = details.traffic()
        lines = [_bent(place[s], place[d]) for s, d in zip(pairs["src"], pairs["dst"], strict=True)]
        axes.add_collection(LineCollection(lines, colors="0.85", linewidths=0.5))
    own = np.zeros(nodes)
    ports = np.flatnonzero((tail == head) & (tail >= 0))
    np.maximum.at(own, tail[ports], use[ports])
    gpus = np.arange(record.gpus)
    size = float(np.clip(5000 / nodes, 8, 160)) * (look.width / 7) ** 2
    colours = shades(own[gpus]) if len(ports) else "white"
    axes.scatter(*place[gpus].T, s=size, c=colours, edgecolors="0.2", linewidths=0.6, zorder=3)
    if nodes > record.gpus:
        switches = place[record.gpus :]
        axes.scatter(*switches.T, s=size, c="white", marker="s", edgecolors="0.2", linewidths=0.8, zorder=3)
    if record.gpus <= 64:
        for gpu in gpus.tolist():
            dark = own[gpu] > 0.5
            axes.text(
                *place[gpu], str(gpu), ha="center", va="center", zorder=4, color="white" if dark else "black",
                fontsize=min(look.small, 0.8 * size**0.5),
            )  # fmt: skip
    bar = figure.colorbar(ScalarMappable(Normalize(0, 100), shades), ax=axes, shrink=0.7)
    bar.set_label("in use, mean of the run [% of capacity]", fontsize=look.small)
    bar.ax.tick_params(labelsize=look.small)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return look.finish(figure, f"{details.name}: the network, and how full its links are")


def _ends(details: CaseDetails) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes that each link leaves and enters, -1 where they are not known. [whole links]"""
    record, ids = details.record, details.record.whole_links
    tail, head = np.full(len(ids), -1), np.full(len(ids), -1)
    fixed_count = 0 if record.link_tail is None else len(record.link_tail)
    fixed = ids < fixed_count
    if record.link_tail is not None and record.link_head is not None:
        tail[fixed], head[fixed] = record.link_tail[ids[fixed]], record.link_head[ids[fixed]]
        # Circuits are numbered after the fixed links, by their ends.
        pair = ids[~fixed] - fixed_count
        tail[~fixed], head[~fixed] = pair // record.gpus, pair % record.gpus
    return tail, head


def _places(gpus: int, nodes: int, tail: NDArray[np.int64], head: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return GPUs on a circle and each switch inside, near those that it joins. [nodes, 2]"""
    angle = np.pi / 2 - 2 * np.pi * np.arange(gpus) / gpus
    place = np.zeros((nodes, 2))
    place[:gpus] = np.stack([np.cos(angle), np.sin(angle)], 1)
    if nodes == gpus:
        return place
    joins = tail != head
    for _ in range(60):  # each switch goes to the mean of its neighbours: layers of a tree nest by themselves
        total, count = np.zeros((nodes, 2)), np.zeros(nodes)
        for here, there in ((tail[joins], head[joins]), (head[joins], tail[joins])):
            np.add.at(total, here, place[there])
            np.add.at(count, here, 1)
        inner = np.flatnonzero(count[gpus:] > 0) + gpus
        place[inner] = total[inner] / count[inner, None]
    # Switches that came to one point are put side by side.
    _, which = np.unique(np.round(place[gpus:], 2), axis=0, return_inverse=True)
    which = which.reshape(-1)
    for number in np.unique(which).tolist():
        same = np.flatnonzero(which == number) + gpus
        if len(same) > 1:
            turn = 2 * np.pi * np.arange(len(same)) / len(same)
            place[same] += 0.18 * np.stack([np.cos(turn), np.sin(turn)], 1)
    return place


def _bent(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a line that bends to its right, so that there and back are seen apart. [points, 2]"""
    middle = (start + end) / 2
    across = np.array([end[1] - start[1], start[0] - end[0]])
    control = middle * 0.9 + 0.06 * across
    t = np.linspace(0, 1, 12)[:, None]
    return np.asarray((1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end)


#: Pictures of circuits and networks by their names.
NETWORK_PICTURES: dict[str, Callable[[CaseDetails, PictureLook], Any]] = {
    "wavelengths": wavelengths,
    "circuits": circuits,
    "network": network,
}
