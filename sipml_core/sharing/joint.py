"""Iterations of several jobs side by side: their tasks and networks as one."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import simulate
from sipml_core.model import BARRIER, Network, TaskGraph
from sipml_core.sharing.views import View


@attrs.frozen(kw_only=True, eq=False)
class Neighbour:
    """A running job among those that it shares links with."""

    view: View
    #: Of one iteration on the view. The network's links are links of the view.
    tasks: TaskGraph
    network: Network
    #: Of one iteration alone on these GPUs. [us]
    alone_us: float
    #: Until its next iteration begins. [us]
    offset_us: float


def joint_iterations_us(
    neighbours: list[Neighbour], gpus: int, iterations: int, queue: str = "pair"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean time of an iteration of each job while all of them run, and that of the later half.

    [jobs], [jobs] [us]

    Parameters
    ----------
    gpus
        Of the cluster.
    iterations
        That the slowest job runs; the others run as many as take as long.
    queue
        See `simulate`.
    """
    longest_us = iterations * max(each.alone_us for each in neighbours)
    repeats = [int(np.ceil(longest_us / each.alone_us)) for each in neighbours]
    tasks, ends = joined_tasks(neighbours, gpus, repeats)
    network = joined_network(neighbours, gpus, repeats)
    timeline = simulate(tasks, network, queue=queue)
    done_us = [timeline.end_us[barriers] for barriers in ends]

    # Count what ended while all ran; of a job that no other outlives, all of it.
    until_us = min(float(each[-1]) for each in done_us)
    means, later = np.empty(len(neighbours)), np.empty(len(neighbours))
    for k, (each, done) in enumerate(zip(neighbours, done_us, strict=True)):
        whole = max(int((done <= until_us * (1 + 1e-12)).sum()), 1)
        means[k] = (done[whole - 1] - each.offset_us) / whole
        half = whole // 2
        later[k] = (done[whole - 1] - done[half - 1]) / (whole - half) if half else means[k]
    return means, later


def joined_tasks(
    neighbours: list[Neighbour], gpus: int, repeats: list[int]
) -> tuple[TaskGraph, list[NDArray[np.int64]]]:
    """Return the tasks of all jobs, each repeated, and the barrier at which each repetition ends.

    A job begins with a task that lasts until its next iteration does; a repetition begins when the one before
    it has ended. Nodes are, job by job, the first task and the compute tasks and the barrier of each
    repetition, then all transfers.
    """
    compute = sum(1 + r * (each.tasks.compute_tasks + 1) for each, r in zip(neighbours, repeats, strict=True))
    arrays: dict[str, list[NDArray[np.generic]]] = {
        name: [] for name in ("gpu", "duration_us", "late", "src", "dst", "size_bytes", "latency_steps")
    }
    early: list[NDArray[np.int32]] = []
    before: list[NDArray[np.int64]] = []
    after: list[NDArray[np.int64]] = []
    ends: list[NDArray[np.int64]] = []
    node, transfer = 0, compute
    for each, count in zip(neighbours, repeats, strict=True):
        tasks, own = each.tasks, each.tasks.compute_tasks
        # Ends of each edge of one iteration, and the nodes that wait for none, and that none waits for.
        head = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
        tail = tasks.successors.astype(np.int64)
        sources = np.setdiff1d(np.arange(tasks.nodes), tail)
        sinks = np.setdiff1d(np.arange(tasks.nodes), head)
        gpu = np.where(tasks.gpu == BARRIER, BARRIER, each.view.gpus[np.maximum(tasks.gpu, 0)])

        arrays["gpu"].append(np.array([each.view.gpus[0]]))
        arrays["duration_us"].append(np.array([each.offset_us]))
        early.append(np.zeros(1, np.int32))
        last, node = node, node + 1
        barriers = np.empty(count, np.int64)
        for k in range(count):
            #: Where each node of the iteration stands in the whole.
            place = np.concatenate([node + np.arange(own), transfer + np.arange(tasks.transfers)])
            barriers[k] = node + own
            arrays["gpu"] += [gpu, np.array([BARRIER])]
            arrays["duration_us"] += [tasks.duration_us, np.zeros(1)]
            early += [tasks.priority[:own], np.zeros(1, np.int32)]
            arrays["late"].append(tasks.priority[own:])
            arrays["src"].append(each.view.gpus[tasks.src])
            arrays["dst"].append(each.view.gpus[tasks.dst])
            arrays["size_bytes"].append(tasks.size_bytes)
            arrays["latency_steps"].append(tasks.latency_steps)
            before += [place[head], np.full(len(sources), last), place[sinks]]
            after += [place[tail], place[sources], np.full(len(sinks), barriers[k])]
            last, node, transfer = int(barriers[k]), node + own + 1, transfer + tasks.transfers
        ends.append(barriers)

    first, then = np.concatenate(before), np.concatenate(after)
    order = np.argsort(first, kind="stable")
    joined = {name: np.concatenate(parts) for name, parts in arrays.items()}
    joined_graph = TaskGraph(
        gpus=gpus,
        gpu=joined["gpu"],
        duration_us=joined["duration_us"],
        priority=np.concatenate([*early, joined["late"]]),
        src=joined["src"],
        dst=joined["dst"],
        size_bytes=joined["size_bytes"],
        latency_steps=joined["latency_steps"],
        succ_start=np.concatenate([[0], np.cumsum(np.bincount(first, minlength=transfer))]),
        successors=then[order],
        marks=np.empty(0, np.int32),
        label=np.zeros(compute, np.int32),
    )
    return joined_graph, ends


def joined_network(neighbours: list[Neighbour], gpus: int, repeats: list[int]) -> Network:
    """Return the network of `joined_tasks`: links of the cluster that several jobs cross are shared."""
    # Links of the cluster that each entry crosses, by job. [entries]
    crossed = [each.view.links[each.network.link_id[each.network.pair_link]] for each in neighbours]
    link_id, first = np.unique(np.concatenate(crossed), return_index=True)
    gbps = np.concatenate([each.network.link_gbps[each.network.pair_link] for each in neighbours])[first]
    pair_src = np.concatenate([each.view.gpus[each.network.pair_src] for each in neighbours])
    pair_dst = np.concatenate([each.view.gpus[each.network.pair_dst] for each in neighbours])
    counts = np.concatenate([np.diff(each.network.pair_start) for each in neighbours])
    links = np.searchsorted(link_id, np.concatenate(crossed))
    weights = np.concatenate([each.network.pair_weight for each in neighbours])
    latency = np.concatenate([each.network.pair_latency_us for each in neighbours])

    # Pairs in the order of their ends; `row` is where each of the above has gone.
    order = np.lexsort((pair_dst, pair_src))
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    start = np.concatenate([[0], np.cumsum(counts)])
    moved = np.concatenate([np.arange(start[p], start[p + 1]) for p in order] or [np.empty(0, np.int64)])
    offsets = np.cumsum([0, *(len(each.network.pair_src) for each in neighbours)])
    transfer_pair = np.concatenate(
        [
            np.tile(row[offsets[k] + each.network.transfer_pair], repeats[k])
            for k, each in enumerate(neighbours)
        ]
    )
    return Network(
        gpus=gpus,
        pair_src=pair_src[order],
        pair_dst=pair_dst[order],
        pair_start=np.concatenate([[0], np.cumsum(counts[order])]),
        pair_link=links[moved],
        pair_weight=weights[moved],
        pair_latency_us=latency[order],
        transfer_pair=transfer_pair,
        link_gbps=gbps,
        link_id=link_id,
        first_circuit=len(link_id),
        circuit_src=np.empty(0, np.int32),
        circuit_dst=np.empty(0, np.int32),
    )
