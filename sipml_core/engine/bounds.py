"""Times that no schedule can beat: what the engine's results are held against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.kernel import critical_path_us
from sipml_core.engine.session import check_match
from sipml_core.errors import SipmlError
from sipml_core.fields import BYTES_PER_US_PER_GBPS, frozen
from sipml_core.model import Network, RelayedTasks, TaskGraph, Timeline, parts_of


@frozen(kw_only=True)
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


def bounds(
    work: TaskGraph | RelayedTasks,
    network: Network,
    timeline: Timeline | None = None,
    since_us: float = 0.0,
    *,
    link_share: NDArray[np.float64] | None = None,
) -> Bounds:
    """The lower bounds of tasks on `network`.

    Parameters
    ----------
    timeline
        A run of them. Then the bounds are of what was left of it at `since_us`: what had begun counts as
        if it had run alone since, so no other end of that run is shorter.
    since_us
        [us]
    link_share
        Part of the real link that each link is, in a folded job: a transfer alone gets the whole one. [links]

    Raises
    ------
    StalledError
        The graph has a dependency cycle.
    SipmlError
        What was left is asked for of `RelayedTasks`, whose timeline has no times of legs.
    """
    check_match(work, network)
    tasks = work if isinstance(work, TaskGraph) else work.rows
    pair = network.transfer_pair[len(network.transfer_pair) - tasks.transfers :]
    capacity = network.link_gbps * BYTES_PER_US_PER_GBPS
    capacity[network.first_circuit :] = np.inf
    # What a transfer gets alone: the least of capacity / weight on its route. [transfers] [bytes/us]
    whole = capacity if link_share is None else capacity / link_share
    gives = whole[network.pair_link] / network.pair_weight
    narrowest = np.full(len(network.pair_src), np.inf)
    np.minimum.at(narrowest, network.entry_pair, gives)
    node_us, left_bytes = _node_us(tasks, network.pair_latency_us, narrowest, pair), tasks.size_bytes
    if timeline is not None and since_us > 0:
        if isinstance(work, RelayedTasks):
            raise SipmlError("bounds of what was left of a run need the times of all legs: use `explicit`")
        begun_us = np.maximum(since_us - timeline.start_us, 0.0)
        node_us = np.maximum(node_us - begun_us, 0.0)
        left_bytes = _left_bytes(tasks, narrowest[pair], begun_us[tasks.compute_tasks :])
        ended = timeline.end_us <= since_us
        node_us[ended] = 0.0
        left_bytes[ended[tasks.compute_tasks :]] = 0.0
    # Barriers belong to no GPU: they count as one more, which comes last.
    busy_us = np.zeros(tasks.gpus + 1)
    np.add.at(busy_us, tasks.gpu, node_us[: tasks.compute_tasks])
    if isinstance(work, RelayedTasks):
        left_bytes = work.bytes_of_ends(left_bytes)
    with np.errstate(divide="ignore", invalid="ignore"):
        link_us = np.nan_to_num(network.link_bytes(left_bytes) / capacity, nan=0.0, posinf=np.inf)
    return Bounds(
        critical_path_us=critical_path_us(work, node_us, network, narrowest),
        busiest_link_us=float(link_us.max(initial=0.0)),
        busiest_gpu_us=float(busy_us[:-1].max(initial=0.0)),
    )


def lower_bound_us(
    tasks: TaskGraph | RelayedTasks,
    network: Network,
    timeline: Timeline | None = None,
    since_us: float = 0.0,
    *,
    link_share: NDArray[np.float64] | None = None,
) -> float:
    """The largest of `bounds`: no run can be shorter. [us]"""
    return bounds(tasks, network, timeline, since_us, link_share=link_share).lower_bound_us


def _node_us(
    tasks: TaskGraph,
    latency_us: NDArray[np.float64],
    narrowest: NDArray[np.float64],
    transfer_pair: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Least time of every node; `narrowest` is what each pair gets alone [bytes/us]. [nodes] [us]"""
    node_us = np.empty(tasks.nodes)
    node_us[: tasks.compute_tasks] = tasks.duration_us
    for part in parts_of(tasks.transfers):
        transfer_us, pair = node_us[tasks.compute_tasks :][part], transfer_pair[part]
        np.multiply(tasks.latency_steps[part], latency_us[pair], out=transfer_us)
        if len(tasks.startup_us):
            transfer_us += tasks.startup_us[part]
        size_bytes = tasks.size_bytes[part]
        with np.errstate(divide="ignore", invalid="ignore"):
            sending_us = size_bytes / narrowest[pair]
        sending_us[size_bytes == 0] = 0.0  # nothing takes no time, over a circuit that is dark too
        transfer_us += sending_us
    return node_us


def _left_bytes(
    tasks: TaskGraph, narrowest: NDArray[np.float64], begun_us: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bytes that each transfer cannot have sent in the time since it began. [transfers] [bytes]"""
    left_bytes = tasks.size_bytes.copy()
    begun = begun_us > 0
    left_bytes[begun] = np.maximum(left_bytes[begun] - narrowest[begun] * begun_us[begun], 0.0)
    return left_bytes
