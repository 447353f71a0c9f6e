"""Iterations of several jobs side by side: their tasks and networks as one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import simulate
from sipml_core.fields import frozen
from sipml_core.model import BARRIER, Network, TaskGraph
from sipml_core.sharing.views import View


@frozen(kw_only=True, eq=False)
class Iteration:
    """One iteration of a job, ready to be repeated: nodes are its compute tasks, a barrier, its transfers."""

    tasks: TaskGraph
    #: Successors of compute tasks, of the barrier and of transfers, by node, one after the other; and how
    #: many each node has. Those of the barrier are the sources of the next repetition.
    compute: NDArray[np.int32]
    compute_counts: NDArray[np.int32]
    transfers: NDArray[np.int32]
    transfer_counts: NDArray[np.int32]
    sources: NDArray[np.int32]

    @classmethod
    def of(cls, tasks: TaskGraph) -> Iteration:
        """Return the iteration with a barrier that waits for everything.

        >>> from sipml_core.testing.jobs import transfers_only
        >>> one = Iteration.of(transfers_only(2, [0], [1], 100.0))
        >>> one.compute.tolist(), one.transfers.tolist(), one.sources.tolist()
        ([], [0], [1])
        """
        own = tasks.compute_tasks
        counts = np.diff(tasks.succ_start).astype(np.int32)
        after = tasks.successors
        sources = np.flatnonzero(np.bincount(after, minlength=tasks.nodes) == 0).astype(np.int32)
        # The barrier, node `own`, follows what nothing else does; transfers come after it.
        after = np.insert(after + (after >= own), tasks.succ_start[:-1][counts == 0], own)
        counts = np.maximum(counts, 1)
        split = int(counts[:own].sum())
        return cls(
            tasks=tasks,
            compute=after[:split],
            compute_counts=counts[:own],
            transfers=after[split:],
            transfer_counts=counts[own:],
            sources=sources + (sources >= own),
        )

    def placed(self, nodes: NDArray[np.int32], at: _Place) -> NDArray[np.int32]:
        """Return where nodes stand in the whole, in each repetition. [repetitions, nodes]"""
        own = self.tasks.compute_tasks
        here = nodes <= own
        first = np.where(here, at.node + nodes, at.transfer + nodes - own - 1)
        step = np.where(here, np.int32(own + 1), np.int32(self.tasks.transfers))
        return np.asarray(first.astype(np.int32) + at.repetitions[:, np.newaxis] * step, np.int32)


@frozen(kw_only=True, eq=False)
class _Place:
    """Where the first compute task and the first transfer of a job stand, and its repetitions from 0."""

    node: int
    transfer: int
    repetitions: NDArray[np.int32]


@frozen(kw_only=True, eq=False)
class Neighbour:
    """A running job among those that it shares links with."""

    view: View
    #: One iteration on the view. The network's links are links of the view.
    iteration: Iteration
    network: Network
    #: Of one iteration alone on these GPUs. [us]
    alone_us: float
    #: Until its next iteration begins. [us]
    offset_us: float


def joint_iterations_us(
    neighbours: list[Neighbour], gpus: int, iterations: float, queue: str = "pair"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean time of an iteration of each job while all of them run, and that of the later half.

    [jobs], [jobs] [us]

    Parameters
    ----------
    gpus
        Of the cluster.
    iterations
        Of the job whose iterations are neither long nor short (the median), and two of the longest at least;
        the others run as many as take as long.
    queue
        See `simulate`.
    """
    alone_us = np.array([each.alone_us for each in neighbours])
    span_us = max(iterations * float(np.median(alone_us)), 2 * float(alone_us.max()))
    repeats = np.ceil(span_us / alone_us * (1 - 1e-12)).astype(int).tolist()
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
) -> tuple[TaskGraph, list[NDArray[np.int32]]]:
    """Return the tasks of all jobs, each repeated, and the barrier at which each repetition ends.

    A job begins with a task that lasts until its next iteration does; a repetition begins when the one before
    it has ended. Nodes are, job by job, the first task and the compute tasks and the barrier of each
    repetition, then all transfers.
    """
    compute = sum(
        1 + r * (each.iteration.tasks.compute_tasks + 1) for each, r in zip(neighbours, repeats, strict=True)
    )
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in (
            "gpu", "duration_us", "early", "late", "src", "dst", "size_bytes", "latency_steps", "startup_us",
            "slows", "compute", "compute_counts", "transfers", "transfer_counts",
        )
    }  # fmt: skip
    ends: list[NDArray[np.int32]] = []
    node, transfer = 0, compute
    for each, count in zip(neighbours, repeats, strict=True):
        one, tasks = each.iteration, each.iteration.tasks
        own = tasks.compute_tasks
        at = _Place(node=node + 1, transfer=transfer, repetitions=np.arange(count, dtype=np.int32))
        gpu = np.where(tasks.gpu == BARRIER, BARRIER, each.view.gpus[np.maximum(tasks.gpu, 0)])
        parts["gpu"] += [each.view.gpus[:1], np.tile(np.append(gpu, BARRIER), count)]
        parts["duration_us"] += [
            np.array([each.offset_us]),
            np.tile(np.append(tasks.duration_us, 0.0), count),
        ]
        parts["early"] += [np.zeros(1, np.int32), np.tile(np.append(tasks.priority[:own], 0), count)]
        parts["late"].append(np.tile(tasks.priority[own:], count))
        parts["src"].append(np.tile(each.view.gpus[tasks.src], count))
        parts["dst"].append(np.tile(each.view.gpus[tasks.dst], count))
        parts["size_bytes"].append(np.tile(tasks.size_bytes, count))
        parts["latency_steps"].append(np.tile(tasks.latency_steps, count))
        startup_us = tasks.startup_us if len(tasks.startup_us) else np.zeros(tasks.transfers)
        parts["startup_us"].append(np.tile(startup_us, count))
        slows = tasks.slows if tasks.slowdown else np.zeros(tasks.transfers, np.bool_)
        parts["slows"].append(np.tile(slows, count))

        # The barrier of a repetition is followed by the sources of the next; nothing follows the last.
        sources = one.placed(one.sources, at)
        following = np.hstack([one.placed(one.compute, at)[:-1], sources[1:]])
        last = one.placed(one.compute, at)[-1]
        parts["compute"] += [sources[0], following.reshape(-1), last]
        counts = np.tile(np.append(one.compute_counts, len(one.sources)), count)
        counts[-1] = 0
        parts["compute_counts"] += [np.array([len(one.sources)]), counts]
        parts["transfers"].append(one.placed(one.transfers, at).reshape(-1))
        parts["transfer_counts"].append(np.tile(one.transfer_counts, count))
        ends.append(at.node + own + at.repetitions * (own + 1))
        node, transfer = node + 1 + count * (own + 1), transfer + count * tasks.transfers

    joined = {name: np.concatenate(each) for name, each in parts.items()}
    counts = np.concatenate([joined["compute_counts"], joined["transfer_counts"]])
    joined_graph = TaskGraph(
        gpus=gpus,
        gpu=joined["gpu"],
        duration_us=joined["duration_us"],
        priority=np.concatenate([joined["early"], joined["late"]]),
        src=joined["src"],
        dst=joined["dst"],
        size_bytes=joined["size_bytes"],
        latency_steps=joined["latency_steps"],
        succ_start=np.concatenate([[0], np.cumsum(counts)]),
        successors=np.concatenate([joined["compute"], joined["transfers"]]),
        marks=np.empty(0, np.int32),
        label=np.zeros(compute, np.int32),
        startup_us=joined["startup_us"] if joined["startup_us"].any() else np.zeros(0),
        slowdown=max(each.iteration.tasks.slowdown for each in neighbours),
        slows=joined["slows"],
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
