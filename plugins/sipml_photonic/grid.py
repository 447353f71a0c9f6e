"""GPUs in a grid whose lines have circuits of their own; others are reached by way of the corners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, shown
from sipml_core.model import (
    NO_LINK,
    CircuitControl,
    CircuitPart,
    CircuitParts,
    Fabric,
    FabricHints,
    FabricWords,
    PairArray,
    PairIndex,
    Routes,
)


@attrs.frozen(eq=False)
class Grid:
    """GPUs numbered by their coordinates, the last dimension fastest.

    >>> [line.tolist() for line in Grid((2, 3)).lines(0)]
    [[0, 3], [1, 4], [2, 5]]
    """

    shape: tuple[int, ...]

    @property
    def gpus(self) -> int:
        return math.prod(self.shape)

    def lines(self, dimension: int) -> list[NDArray[np.int32]]:
        """Return the GPUs of each line along a dimension, in order."""
        numbers = np.arange(self.gpus, dtype=np.int32).reshape(self.shape)
        return list(np.moveaxis(numbers, dimension, -1).reshape(-1, self.shape[dimension]))

    def stride(self, dimension: int) -> int:
        """Return by how much the number of a GPU grows along a dimension."""
        return math.prod(self.shape[dimension + 1 :])


def parts_of(grid: Grid, controls: Sequence[CircuitControl], **fields: Any) -> CircuitParts:
    """Return the circuits of all lines; those along a dimension are alike. [dimensions]"""
    parts = tuple(
        CircuitPart(members=line, control=control)
        for dimension, control in enumerate(controls)
        for line in grid.lines(dimension)
    )
    return CircuitParts.of(grid.gpus, parts, **fields)


def grid_fabric(
    grid: Grid,
    control: CircuitParts,
    *,
    port_gbps: float,
    latency_us: float,
    reach: int | None,
    notes: tuple[str, ...],
) -> Fabric:
    """Return the network: routes go along the last dimension, then along the one before it, and so on.

    Every circuit on the way crosses the egress of the GPU it leaves and the ingress of the one it enters.

    Parameters
    ----------
    reach
        How far along a line that is a ring one circuit leads; None: to any GPU of it.
    latency_us
        Of each circuit. [us]
    """
    gpus = grid.gpus

    def route(src: PairArray, dst: PairArray) -> Routes:
        at, to = np.asarray(src, np.int64).copy(), np.asarray(dst, np.int64)
        columns, hops = [], np.zeros(len(at))
        for dimension in reversed(range(len(grid.shape))):
            size, stride = grid.shape[dimension], grid.stride(dimension)
            while True:
                place, wanted = at // stride % size, to // stride % size
                moves = place != wanted
                if not moves.any():
                    break
                after = at + (_next(place, wanted, size, reach) - place) * stride
                circuit = 2 * gpus + PairIndex(gpus).key(at, after)
                hop = np.column_stack([at, circuit, gpus + after])
                columns.append(np.where(moves[:, None], hop, NO_LINK))
                hops += moves
                at = np.where(moves, after, at)
        links = np.hstack(columns) if columns else np.empty((len(at), 0), np.int64)
        return Routes(links=links, latency_us=hops * latency_us)

    ports = np.tile(np.arange(gpus), 2)
    rows = (("row", grid.shape[-1]),) if 1 < grid.shape[-1] < gpus else ()
    return Fabric(
        gpus=gpus,
        link_gbps=np.full(2 * gpus, port_gbps),
        link_tail=ports,
        link_head=ports,
        route=route,
        circuits=control,
        hints=FabricHints(degree=control.circuits_per_gpu, tiers=rows, torus=grid.shape),
        words=FabricWords(
            link_names=lambda k: f"egress {k}" if k < gpus else f"ingress {k - gpus}", notes=notes
        ),
    )


def _next(
    place: NDArray[np.int64], wanted: NDArray[np.int64], size: int, reach: int | None
) -> NDArray[np.int64]:
    """Return where one circuit along a line leads, towards the place wanted.

    On a ring of 10 with reach 3, from 0: towards 2, 5 and 9.

    >>> _next(np.array([0, 0, 0]), np.array([2, 5, 9]), 10, 3).tolist()
    [2, 3, 9]
    """
    if reach is None:
        return wanted
    ahead = (wanted - place) % size
    step = np.where(ahead <= size // 2, np.minimum(ahead, reach), -np.minimum(size - ahead, reach))
    return np.asarray((place + step) % size, np.int64)


def shape_list(value: Any) -> tuple[Any, ...]:
    """Return a list of sizes as a tuple; what is no list is refused."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"must be a list of sizes such as [8, 8], got {shown(value)}")
    return tuple(value)


def checked_shape(shape: tuple[int, ...] | None, dimensions: int, gpus: int, what: str) -> tuple[int, ...]:
    """Return the shape, or the one nearest to a cube; refuse one that does not hold just the GPUs.

    >>> checked_shape(None, 2, 12, "2-D ring")
    (3, 4)
    """
    if shape is not None:
        text = " x ".join(map(str, shape))
        if len(shape) < 2:
            raise ConfigError(f"topology.shape must have two dimensions at least, got {text}")
        if math.prod(shape) != gpus:
            near = _nearest_cube(gpus, len(shape))
            other = f"shape = {list(near)}, or " if near else ""
            raise ConfigError(
                f"topology.shape {text} holds {math.prod(shape)} GPUs, but cluster.gpus is {gpus}: give "
                f"{other}cluster.gpus = {math.prod(shape)}"
            )
        return shape
    found = _nearest_cube(gpus, dimensions)
    if found is None:
        near = [n for n in range(max(4, gpus - 8), gpus + 9) if _nearest_cube(n, dimensions)]
        allowed = sorted(sorted(near, key=lambda n: (abs(n - gpus), n))[:2])
        raise ConfigError(
            f"{gpus} GPUs make no {what} of {dimensions} dimensions of at least 2; nearest: cluster.gpus = "
            f"{' or '.join(map(str, allowed)) or 2**dimensions}"
        )
    return found


def _nearest_cube(gpus: int, dimensions: int, least: int = 2) -> tuple[int, ...] | None:
    """Return sizes of at least `least`, rising, with this product and the least sum; None: there are none."""
    if dimensions == 1:
        return (gpus,) if gpus >= least else None
    found = [
        (size, *rest)
        for size in range(least, math.isqrt(max(gpus, 0)) + 1)
        if gpus % size == 0 and (rest := _nearest_cube(gpus // size, dimensions - 1, size))
    ]
    return min(found, key=lambda sizes: (sum(sizes), sizes), default=None)
