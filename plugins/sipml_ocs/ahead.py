"""Circuits for traffic that comes later, on links that a plan leaves idle."""

from __future__ import annotations

import heapq

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import TrafficMatrix
from sipml_ocs.circuits import OcsPlan
from sipml_ocs.kernel import DARK


def with_later(
    made: OcsPlan, later: TrafficMatrix, previous: OcsPlan | None, reconfiguration_us: float
) -> OcsPlan:
    """Return a plan with circuits for later traffic where both ends are dark on a switch.

    The pair with the least circuits / demand comes first, again and again. What `made` connects stays as it
    is, switch by switch, so that nothing more of it is dark; also what nobody asks for now: it was asked for
    before, and phases come again.

    Examples
    --------
    On two switches GPU 0 sends to 1, and later 1 to 2 and 2 to 1; GPU 1 has no link left to receive on.

    >>> from sipml_ocs import plan
    >>> made = plan(TrafficMatrix.from_pairs(3, [0], [1], [1.0]), switches=2, link_gbps=10.0)
    >>> found = with_later(made, TrafficMatrix.from_pairs(3, [1, 2], [2, 1], [1.0, 1.0]), None, 5.0)
    >>> list(zip(found.src.tolist(), found.dst.tolist(), found.gbps.tolist(), found.dark_us.tolist()))
    [(0, 1, 20.0, 5.0), (1, 2, 20.0, 5.0)]
    """
    # Which inputs and outputs are dark. [switches, gpus]
    port_map = made.port_map.copy()
    idle_in = port_map == DARK
    switch, src = np.nonzero(~idle_in)
    idle_out = np.ones_like(idle_in)
    idle_out[switch, port_map[switch, src]] = False

    # Pairs of later traffic alone that find a switch; circuits / demand of each, with what it has.
    rows = np.flatnonzero(~np.isin(later.key, made.traffic.key))
    rows = rows[(idle_in[:, later.src[rows]] & idle_out[:, later.dst[rows]]).any(axis=0)]
    if not len(rows):
        return made
    count = dict(zip(made.key.tolist(), made.circuits.tolist(), strict=True))
    queue = [
        (had / demand, -demand, row, had)
        for row, demand in zip(rows.tolist(), later.demand[rows].tolist(), strict=True)
        for had in [count.get(int(later.key[row]), 0)]
    ]
    heapq.heapify(queue)
    while queue:
        _, less, row, had = heapq.heappop(queue)
        a, b = later.src[row], later.dst[row]
        free = np.flatnonzero(idle_in[:, a] & idle_out[:, b])
        if len(free):
            port_map[free[0], a] = b
            idle_in[free[0], a] = idle_out[free[0], b] = False
            heapq.heappush(queue, ((had + 1) / -less, less, row, had + 1))
    return _of_map(made, port_map, previous, reconfiguration_us)


def _of_map(
    made: OcsPlan, port_map: NDArray[np.int32], previous: OcsPlan | None, reconfiguration_us: float
) -> OcsPlan:
    """Return a plan with another port map."""
    switch, src = np.nonzero(port_map != DARK)
    same = np.zeros(len(switch), np.bool_)
    if previous is not None:
        same = previous.port_map[switch, src] == port_map[switch, src]
    key = src * np.int64(made.gpus) + port_map[switch, src]
    pairs, pair, circuits = np.unique(key, return_inverse=True, return_counts=True)
    kept = np.bincount(pair, same, len(pairs)).astype(np.int32)
    gbps = circuits * made.link_gbps
    changed = (kept < circuits) & (reconfiguration_us > 0)
    return attrs.evolve(
        made,
        src=pairs // made.gpus,
        dst=pairs % made.gpus,
        gbps=gbps,
        kept_gbps=np.where(changed, kept * made.link_gbps, gbps),
        dark_us=np.where(changed, reconfiguration_us, 0.0),
        circuits=circuits,
        kept=kept,
        port_map=port_map,
    )
