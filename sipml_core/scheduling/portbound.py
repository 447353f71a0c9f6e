"""What no circuit plan can exceed, because every GPU has one port of limited bandwidth."""

from __future__ import annotations

import numpy as np

from sipml_core.model import TrafficMatrix


def port_bound(traffic: TrafficMatrix, port_gbps: float) -> float:
    """Largest possible least capacity / demand: the linear programme with port limits only.

    Capacity in proportion to demand is optimal there, so the bound is `port_gbps` over the largest
    demand that any GPU sends or receives. There must be some demand. [Gbps per unit of demand]
    """
    sent = np.bincount(traffic.src, traffic.demand).max()
    received = np.bincount(traffic.dst, traffic.demand).max()
    return float(port_gbps / max(sent, received))
