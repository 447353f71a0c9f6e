"""The picture of a ring plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_ring.circuits import RingCircuits
from sipml_ring.lightpaths import Lightpaths

#: Radii of the GPUs, and of the lowest and highest wavelength in each direction.
GPU_RADIUS = 1.0
BANDS = ((1.08, 1.68), (0.92, 0.32))

#: Fraction of a segment left free at both ends of an arc, so that neighbours on one wavelength stay apart.
GAP = 0.12


def draw_ring(control: RingCircuits, circuits: Lightpaths, axes: Any, *, title: str) -> None:
    """Draw GPUs on a circle, clockwise circuits outside, counter-clockwise ones inside.

    Each wavelength has its radius and its colour, so that the same radius is one fibre channel around
    the ring; a dot marks the receiving end of a circuit.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    widest = max(control.clockwise, control.counterclockwise)
    colours = ScalarMappable(Normalize(0, max(widest - 1, 1)), "viridis")
    size = min(axes.get_window_extent().width, axes.get_window_extent().height) * 72 / axes.figure.dpi
    band_points = size / (2 * (BANDS[0][1] + 0.1)) * abs(BANDS[0][1] - BANDS[0][0])
    width = float(np.clip(0.7 * band_points / widest, 0.15, 3.0))
    for direction in (0, 1):
        mine = np.flatnonzero(circuits.direction == direction)
        lines = [_arc(control, circuits, int(k)) for k in mine]
        index = circuits.index[mine]
        axes.add_collection(LineCollection(lines, colors=colours.to_rgba(index), linewidths=width))
        if lines and control.gpus <= 64:
            ends = np.array([line[-1] for line in lines])
            axes.scatter(ends[:, 0], ends[:, 1], s=(1.2 * width) ** 2, c=colours.to_rgba(index), zorder=3)
    _draw_gpus(control.gpus, axes)
    axes.figure.colorbar(colours, ax=axes, label="wavelength index", shrink=0.7)
    limit = BANDS[0][1] + 0.1
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axes.set_axis_off()
    axes.set_title(
        f"{title}: {len(circuits.pair)} circuits of {len(circuits.src)} pairs\n"
        "clockwise outside, counter-clockwise inside"
    )


def _arc(control: RingCircuits, circuits: Lightpaths, circuit: int) -> NDArray[np.float64]:
    """Return points from the sender to the receiver. [points, 2]"""
    pair, direction = circuits.pair[circuit], int(circuits.direction[circuit])
    hops = int(control.hops(circuits.src[pair : pair + 1], circuits.dst[pair : pair + 1])[0, direction])
    wavelengths = (control.clockwise, control.counterclockwise)[direction]
    low, high = BANDS[direction]
    radius = low + (high - low) * (circuits.index[circuit] + 0.5) / wavelengths
    step = np.linspace(GAP, hops - GAP, max(2, int(np.ceil(hops * 180 / control.gpus))))
    position = circuits.src[pair] + (step if direction == 0 else -step)
    return radius * _circle(position, control.gpus)


def _circle(position: NDArray[np.float64], gpus: int) -> NDArray[np.float64]:
    """Return points on the unit circle, GPU 0 on top, numbers growing clockwise. [points, 2]"""
    angle = np.pi / 2 - 2 * np.pi * position / gpus
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _draw_gpus(gpus: int, axes: Any) -> None:
    points = GPU_RADIUS * _circle(np.arange(gpus, dtype=float), gpus)
    labelled = gpus <= 64
    axes.scatter(points[:, 0], points[:, 1], s=90 if labelled else 4, c="white", edgecolors="0.3", zorder=4)
    if not labelled:
        return
    for gpu, (x, y) in enumerate(points):
        axes.text(x, y, str(gpu), ha="center", va="center", fontsize=7 if gpus <= 32 else 5, zorder=5)
