"""What pipeline stages mean for transfers: chains stay inside a stage, and second runs wait for gradients."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.exchanges import chained
from sipml_core.lowering.grouptasks import GroupTasks, is_phase
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import Phase


def chained_in_stages(direct: Transfers, tasks: GroupTasks) -> Transfers:
    """Return the exchange along the line of each stage's devices; what crosses stages stays as it is."""
    devices = tasks.placement.limits.devices
    across = direct.sender // devices != direct.device // devices
    if not across.any():
        return chained(direct, tasks)
    inside = chained(_selected(direct, ~across), tasks)
    return _joined(inside, _selected(direct, across))


def _selected(transfers: Transfers, chosen: NDArray[np.bool_]) -> Transfers:
    """Return some of the transfers, of which none waits for another."""
    number = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    made, arrival = chosen[transfers.made], chosen[transfers.arrival]
    return attrs.evolve(
        transfers,
        sender=transfers.sender[chosen],
        device=transfers.device[chosen],
        tensor=transfers.tensor[chosen],
        lo=transfers.lo[chosen],
        hi=transfers.hi[chosen],
        size_bytes=transfers.size_bytes[chosen],
        position=transfers.position[chosen],
        maker=transfers.maker[made],
        made=number[transfers.made[made]],
        arrival=number[transfers.arrival[arrival]],
        consumer=transfers.consumer[arrival],
    )


def _joined(first: Transfers, second: Transfers) -> Transfers:
    """Return the transfers of both, those of `second` numbered after those of `first`."""
    shift = np.int32(len(first.sender))
    both = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("sender", "device", "tensor", "lo", "hi", "size_bytes", "position", "maker", "consumer")
    }
    shifted = {
        name: np.concatenate([getattr(first, name), getattr(second, name) + shift])
        for name in ("made", "before", "after", "arrival")
    }
    return Transfers(**both, **shifted)


def after_gradients(transfers: Transfers, tasks: GroupTasks) -> Transfers:
    """Return the same transfers; second runs that no backward task of their stage gates wait for some.

    A stage makes its last segment again when it is to go back through it, which is when gradients have come
    from the next stage, and not before.
    """
    graph, placement = tasks.graph, tasks.placement
    again = np.arange(graph.subops, len(tasks.subop), dtype=np.int32)
    part = placement.part[tasks.op]
    backward = is_phase(graph, Phase.BACKWARD)[tasks.subop]
    if placement.parts == 1 or not len(again):
        return transfers

    # Gradients that come from another part, and where. [arrivals]
    maker = np.full(len(transfers.sender), -1, dtype=np.int32)
    maker[transfers.made] = transfers.maker
    source, user = maker[transfers.arrival], transfers.consumer
    known = source >= 0
    gradient = known & backward[source] & backward[user] & (part[source] != part[user])
    arrival = transfers.arrival[gradient]
    key = part[user[gradient]].astype(np.int64) * placement.devices + tasks.device[user[gradient]]

    # Second runs that nothing of their own part gates, and that are after no other second run.
    free = again[~np.isin(again, tasks.gate_after)]
    after_another = tasks.edge_dst[np.isin(tasks.edge_src, again)]
    free = free[~np.isin(free, after_another)]
    free_key = part[free].astype(np.int64) * placement.devices + tasks.device[free]

    # Every pair of such a run and such an arrival on one device for one part.
    rows, columns = np.nonzero(free_key[:, None] == key[None])
    return attrs.evolve(
        transfers,
        arrival=np.concatenate([transfers.arrival, arrival[columns]]),
        consumer=np.concatenate([transfers.consumer, free[rows]]),
    )
