"""Which gradients are synchronised together, among which devices, in which order."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import volume
from sipml_core.model import BalancedGraph, PlacementLimits, sorted_unique


@attrs.frozen(kw_only=True, eq=False)
class Bucket:
    """Gradients that one collective sums over `devices` of every group."""

    #: Members in each group, in ring order.
    devices: tuple[int, ...]
    size_bytes: float
    #: Sub-ops that make the gradients, on members or doing what members do as well, and optimizer
    #: sub-ops that wait for the sum.
    producers: Indices
    consumers: Indices


@attrs.frozen(kw_only=True, eq=False)
class _Gradient:
    """One box of one parameter's gradient. It is ready after the sub-op at `position`."""

    position: int
    size_bytes: float
    holders: tuple[int, ...]
    producers: Indices
    consumers: Indices


def plan_buckets(tasks: GroupTasks, bucket_bytes: float, limits: PlacementLimits) -> list[Bucket]:
    """Return gradients with the same holders, in the order of the backward pass, in buckets.

    Holders of a gradient box are the devices that make a part of it or update its parameter. What
    only duplicated ops make, every device has whole: each is the one holder of its own. A bucket is
    closed when the next gradient would not fit; a gradient larger than a bucket has its own.

    Parameters
    ----------
    bucket_bytes
        What a bucket holds at most. [bytes]
    limits
        Which devices may be neighbours on the ring of a bucket.

    Returns
    -------
    list of Bucket
        In the order in which their last gradients are made.

    Examples
    --------
    In the worked example each device has one element of dv (2 bytes), made by tasks 4, 5, 6 and used by 9,
    10, 11; device 0 has all of dw as well (8 bytes, made by task 7, used by 8). With room for both they
    share a bucket, which is complete last.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.testing.worked import placed
    >>> tasks, limits = group_tasks(placed(), recompute=False), placed().limits
    >>> for bucket in plan_buckets(tasks, 10.0, limits):
    ...     print(bucket.devices, bucket.size_bytes, bucket.producers, bucket.consumers)
    (1,) 2.0 [5] [10]
    (2,) 2.0 [6] [11]
    (0,) 10.0 [4 7] [8 9]
    >>> [(bucket.devices, bucket.size_bytes) for bucket in plan_buckets(tasks, 9.0, limits)]
    [((0,), 2.0), ((1,), 2.0), ((2,), 2.0), ((0,), 8.0)]
    """
    # The bucket that each set of holders is filling, and those that are full, in any order.
    open_buckets: dict[tuple[int, ...], list[_Gradient]] = {}
    closed: list[tuple[tuple[int, ...], list[_Gradient]]] = []
    for gradient in sorted(_gradients(tasks), key=lambda g: (g.position, int(g.producers[0]))):
        holders = gradient.holders
        waiting = open_buckets.setdefault(holders, [])
        if waiting and sum(g.size_bytes for g in waiting) + gradient.size_bytes > bucket_bytes:
            closed.append((holders, waiting))
            waiting = open_buckets[holders] = []
        waiting.append(gradient)

    # In order of the last gradient of each.
    closed += open_buckets.items()
    closed.sort(key=lambda bucket: (bucket[1][-1].position, bucket[0]))
    return [_bucket(holders, gradients, limits) for holders, gradients in closed]


def ring_devices(holders: tuple[int, ...], limits: PlacementLimits) -> tuple[int, ...]:
    """Return holders in order if neighbours on that ring may talk, else all devices of the group.

    Devices that hold nothing then pass on what they receive, and carry their share of the exchange
    between groups.
    """
    neighbours = zip(holders, (*holders[1:], holders[0]), strict=True)
    if all(limits.allows(a, b) for a, b in neighbours):
        return holders
    return tuple(range(limits.devices))


def _bucket(holders: tuple[int, ...], gradients: list[_Gradient], limits: PlacementLimits) -> Bucket:
    return Bucket(
        devices=ring_devices(holders, limits),
        size_bytes=sum(g.size_bytes for g in gradients),
        producers=sorted_unique(np.concatenate([g.producers for g in gradients])),
        consumers=sorted_unique(np.concatenate([g.consumers for g in gradients])),
    )


#: Devices, the sub-ops that make a gradient there, and those that use it.
_Holding = tuple[tuple[int, ...], Indices, Indices]


def _together(tasks: GroupTasks, makers: Indices, users: Indices) -> Iterator[_Holding]:
    """Yield one gradient: all who make a part of it or use it."""
    yield tuple(sorted_unique(tasks.device[np.concatenate([makers, users])]).tolist()), makers, users


def _apart(tasks: GroupTasks, makers: Indices, users: Indices) -> Iterator[_Holding]:
    """Yield one gradient on each device, made by its own makers, else when the others make theirs."""
    for device in range(tasks.placement.limits.devices):
        own = makers[tasks.device[makers] == device]
        yield (device,), own if len(own) else makers, users[tasks.device[users] == device]


def _gradients(tasks: GroupTasks) -> list[_Gradient]:
    """Return gradient boxes, each with everyone who makes or needs it, and nobody who has a part of it.

    Uses of one parameter may cut it differently, as the lookup and the logits of a tied embedding do.
    """
    graph = tasks.graph
    parameter, makes = _shard_parameters(graph)
    subop_op = graph.subop_op
    found = []

    # Shards by parameter, those of one parameter in their order.
    order = np.argsort(parameter, kind="stable")
    for shards in np.split(order, np.flatnonzero(np.diff(parameter[order])) + 1):
        # Shards that sub-ops make and that they use, and the cells that neither cut. [made], [used], [cells]
        made, used = shards[makes[shards]], shards[~makes[shards]]
        if not len(made):
            continue
        lo, hi = _cells(graph, shards)

        # Who makes, and who uses, an element of each cell. [cells, made], [cells, used]
        makers = _meet(lo, hi, graph.shard_lo[made], graph.shard_hi[made])
        needs = _meet(lo, hi, graph.shard_lo[used], graph.shard_hi[used])
        element_bytes = graph.graph.tensors[graph.shard_tensor[made[0]]].element_bytes
        whole = graph.duplicated[subop_op[graph.shard_subop[made]]].all()

        for index in np.flatnonzero(makers.any(axis=1)):
            sides = graph.shard_subop[made[makers[index]]], graph.shard_subop[used[needs[index]]]
            for holders, producers, consumers in (_apart if whole else _together)(tasks, *sides):
                found.append(
                    _Gradient(
                        position=int(tasks.position[producers].max()),
                        size_bytes=float(volume(lo[index], hi[index])) * element_bytes,
                        holders=holders,
                        producers=producers,
                        consumers=consumers,
                    )
                )
    return found


def _cells(graph: BalancedGraph, shards: NDArray[np.intp]) -> tuple[Indices, Indices]:
    """Return boxes that no shard cuts: every axis divided wherever a shard begins or ends.

    [cells, MAX_RANK], [cells, MAX_RANK]
    """
    both = np.concatenate([graph.shard_lo[shards], graph.shard_hi[shards]])
    edges = [sorted_unique(axis) for axis in both.T]
    lo = np.meshgrid(*(edge[:-1] for edge in edges), indexing="ij")
    hi = np.meshgrid(*(edge[1:] for edge in edges), indexing="ij")
    rank = len(edges)
    return np.stack(lo, -1).reshape(-1, rank), np.stack(hi, -1).reshape(-1, rank)


def _shard_parameters(graph: BalancedGraph) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the parameter that each shard is a gradient of; whether its sub-op makes it. [shards]"""
    tensors = graph.graph.tensors
    numbers: dict[str, int] = {}
    parameter_of = np.array([numbers.setdefault(t.parameter or t.name, len(numbers)) for t in tensors])
    op_number = {op.name: index for index, op in enumerate(graph.graph.ops)}
    made_by = np.array([op_number.get(graph.graph.producer.get(t.name, ""), -1) for t in tensors])
    op = graph.subop_op[graph.shard_subop]
    return parameter_of[graph.shard_tensor], made_by[graph.shard_tensor] == op


def _meet(lo: Indices, hi: Indices, other_lo: Indices, other_hi: Indices) -> NDArray[np.bool_]:
    """Return which boxes share an element with which others. [boxes, others]"""
    return np.asarray(np.all((lo[:, None] < other_hi[None]) & (other_lo[None] < hi[:, None]), axis=-1))
