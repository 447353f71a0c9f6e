"""Times that no schedule can beat: what the engine's results are held against."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.kernel import critical_path_us
from sipml_core.engine.session import check_match
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import BARRIER, TaskGraph
from sipml_core.units import BYTES_PER_US_PER_GBPS


@attrs.frozen(kw_only=True)
class Bounds:
    """Three lower bounds of one job on one network. [us]

    Circuit links do not count: what a scheduler may give them is not known here.
    """

    #: Longest chain of tasks and transfers, each transfer alone at the narrowest link of its route.
    critical_path_us: float
    #: Bytes over capacity, at the link where that is most.
    busiest_link_us: float
    #: Compute time of the GPU that has most of it.
    busiest_gpu_us: float

    @property
    def lower_bound_us(self) -> float:
        return max(self.critical_path_us, self.busiest_link_us, self.busiest_gpu_us)


def bounds(tasks: TaskGraph, network: Network) -> Bounds:
    """The lower bounds of `tasks` on `network`.

    Raises
    ------
    StalledError
        The graph has a dependency cycle.
    """
    check_match(tasks, network)
    capacity = network.link_gbps * BYTES_PER_US_PER_GBPS
    capacity[network.first_circuit :] = np.inf
    computes = tasks.gpu != BARRIER
    busy_us = np.bincount(tasks.gpu[computes], weights=tasks.duration_us[computes])
    with np.errstate(divide="ignore", invalid="ignore"):
        link_us = np.nan_to_num(_link_bytes(tasks, network) / capacity, nan=0.0, posinf=np.inf)
    return Bounds(
        critical_path_us=critical_path_us(tasks, _node_us(tasks, network, capacity)),
        busiest_link_us=float(link_us.max(initial=0.0)),
        busiest_gpu_us=float(busy_us.max(initial=0.0)),
    )


def lower_bound_us(tasks: TaskGraph, network: Network) -> float:
    """The largest of the lower bounds: no run can be shorter. [us]"""
    return bounds(tasks, network).lower_bound_us


def _node_us(tasks: TaskGraph, network: Network, capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least time of every node. [nodes] [us]"""
    narrowest = np.where(network.pair_links >= 0, capacity[network.pair_links], np.inf).min(
        axis=1, initial=np.inf
    )
    of = network.transfer_pair
    sends = tasks.size_bytes > 0
    transfer_us = tasks.hops * network.pair_latency_us[of]
    with np.errstate(divide="ignore"):
        transfer_us[sends] += tasks.size_bytes[sends] / narrowest[of][sends]
    task_us = np.where(tasks.gpu == BARRIER, 0.0, tasks.duration_us)
    return np.concatenate([task_us, transfer_us])


def _link_bytes(tasks: TaskGraph, network: Network) -> NDArray[np.float64]:
    """Bytes that the whole job sends over each link."""
    pair_bytes = np.bincount(network.transfer_pair, weights=tasks.size_bytes, minlength=len(network.pair_src))
    total = np.zeros(len(network.link_gbps))
    for column in network.pair_links.T:
        used = column >= 0
        np.add.at(total, column[used], pair_bytes[used])
    return total
