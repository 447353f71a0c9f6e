"""What pipeline stages mean for transfers: second runs wait for gradients of the stage behind."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.lowering.grouptasks import GroupTasks, is_phase
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import Phase


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
