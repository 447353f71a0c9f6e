"""Which gradients are synchronised together, among which devices, in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import volume
from sipml_core.model import BalancedGraph, PlacementLimits, sorted_unique


@frozen(kw_only=True, eq=False)
class Bucket:
    """Gradients that one collective sums over `devices` of every group."""

    #: Members in each group, in ring order.
    devices: tuple[int, ...]
    size_bytes: float
    #: Sub-ops that make the gradients, on members or doing what members do as well, and optimizer
    #: sub-ops that wait for the sum.
    producers: Indices
    consumers: Indices
    #: Of experts that are spread over replicas: only those with the same ones sum them.
    of_experts: bool = False


@frozen(kw_only=True, eq=False)
class _Gradient:
    """One box of one parameter's gradient. It is ready after the sub-op at `position`."""

    position: int
    size_bytes: float
    holders: tuple[int, ...]
    producers: Indices
    consumers: Indices
    of_experts: bool = False


def plan_buckets(
    tasks: GroupTasks,
    bucket_bytes: float,
    limits: PlacementLimits,
    *,
    element_bytes: int | None = None,
    by_part: bool = False,
) -> list[Bucket]:
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
    element_bytes
        Of a gradient; None: of its tensor. [bytes]
    by_part
        A bucket has gradients of one part of the model only.

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
    part = tasks.placement.part[tasks.op]
    # The bucket that each set of holders is filling, its bytes, and those that are full, in any order.
    open_buckets: dict[tuple[tuple[int, ...], ...], list[_Gradient]] = {}
    filled: dict[tuple[tuple[int, ...], ...], float] = defaultdict(float)
    closed: list[tuple[tuple[int, ...], list[_Gradient]]] = []
    for gradient in sorted(_gradients(tasks, element_bytes), key=lambda g: (g.position, int(g.producers[0]))):
        holders = gradient.holders
        parts = sorted(set(part[gradient.producers].tolist())) if by_part else ()
        key = (holders, tuple(parts), (int(gradient.of_experts),))
        waiting = open_buckets.setdefault(key, [])
        if waiting and filled[key] + gradient.size_bytes > bucket_bytes:
            closed.append((holders, waiting))
            waiting, filled[key] = [], 0.0
            open_buckets[key] = waiting
        waiting.append(gradient)
        filled[key] += gradient.size_bytes

    # In order of the last gradient of each.
    closed += [(key[0], waiting) for key, waiting in open_buckets.items()]
    closed.sort(key=lambda bucket: (bucket[1][-1].position, bucket[0]))
    return [_bucket(holders, gradients, limits) for holders, gradients in closed]


def ring_devices(holders: tuple[int, ...], limits: PlacementLimits) -> tuple[int, ...]:
    """Return holders in order if neighbours on that ring may talk, else all devices of their stages.

    Devices that hold nothing then pass on what they receive, and carry their share of the exchange
    between groups. `limits` are those inside a stage.

    >>> ring_devices((0, 4, 8), PlacementLimits(devices=4, range_hops=1))
    (0, 4, 8)
    >>> ring_devices((4, 6), PlacementLimits(devices=4, range_hops=1))
    (4, 5, 6, 7)
    """
    group = limits.devices
    neighbours = zip(holders, (*holders[1:], holders[0]), strict=True)
    if all(a // group != b // group or limits.allows(a % group, b % group) for a, b in neighbours):
        return holders
    stages = sorted({holder // group for holder in holders})
    return tuple(stage * group + device for stage in stages for device in range(group))


def _bucket(holders: tuple[int, ...], gradients: list[_Gradient], limits: PlacementLimits) -> Bucket:
    return Bucket(
        devices=ring_devices(holders, limits),
        size_bytes=sum(g.size_bytes for g in gradients),
        producers=sorted_unique(np.concatenate([g.producers for g in gradients])),
        consumers=sorted_unique(np.concatenate([g.consumers for g in gradients])),
        of_experts=gradients[0].of_experts,
    )


#: Devices, the sub-ops that make a gradient there, and those that use it.
_Holding = tuple[tuple[int, ...], Indices, Indices]


def _together(tasks: GroupTasks, makers: Indices, users: Indices) -> Iterator[_Holding]:
    """Yield one gradient: all who make a part of it or use it."""
    yield tuple(sorted({*tasks.device[makers].tolist(), *tasks.device[users].tolist()})), makers, users


def _apart(tasks: GroupTasks, makers: Indices, users: Indices) -> Iterator[_Holding]:
    """Yield one gradient on each device, made by its own makers, else when the others make theirs.

    Where several stages have the parameter, devices of one number on them have one gradient together.
    """
    group = tasks.placement.limits.devices
    stages = sorted({*(tasks.device[makers] // group).tolist(), *(tasks.device[users] // group).tolist()})
    for device in range(group):
        own = makers[tasks.device[makers] % group == device]
        holders = tuple(stage * group + device for stage in stages)
        yield holders, own if len(own) else makers, users[tasks.device[users] % group == device]


def _gradients(tasks: GroupTasks, fixed_bytes: int | None = None) -> list[_Gradient]:
    """Return gradient boxes, each with everyone who makes or needs it, and nobody who has a part of it.

    Uses of one parameter may cut it differently, as the lookup and the logits of a tied embedding do.
    """
    graph = tasks.graph
    parameter, makes = _shard_parameters(graph)
    subop_op = graph.subop_op
    known: dict[tuple[bytes, ...], _Cells] = {}
    found = []

    # Shards by parameter, those of one parameter in their order.
    order = np.argsort(parameter, kind="stable")
    for shards in np.split(order, np.flatnonzero(np.diff(parameter[order])) + 1):
        # Sub-ops that make a shard and that use one. [made], [used]
        made = graph.shard_subop[shards[makes[shards]]]
        used = graph.shard_subop[shards[~makes[shards]]]
        if not len(made):
            continue

        # Parameters of equal layers are cut alike.
        boxes = graph.shard_lo[shards], graph.shard_hi[shards], makes[shards]
        kind = tuple(column.tobytes() for column in boxes)
        if kind not in known:
            known[kind] = _Cells.of(*boxes)
        cells = known[kind]
        tensor = graph.graph.tensors[graph.shard_tensor[shards[makes[shards]][0]]]
        element_bytes = fixed_bytes or tensor.element_bytes
        of_experts = graph.graph.tensor[tensor.parameter or tensor.name].routing is not None
        held = _apart if graph.duplicated[subop_op[made]].all() else _together

        for makers, needs, elements in zip(cells.makers, cells.needs, cells.elements, strict=True):
            for holders, producers, consumers in held(tasks, made[makers], used[needs]):
                found.append(
                    _Gradient(
                        position=int(tasks.position[producers].max()),
                        size_bytes=float(elements) * element_bytes,
                        holders=holders,
                        producers=producers,
                        consumers=consumers,
                        of_experts=of_experts,
                    )
                )
    return found


@frozen(kw_only=True, eq=False)
class _Cells:
    """Boxes of one parameter that no shard cuts and that somebody makes, and who makes and uses them."""

    #: [cells]
    elements: NDArray[np.int64]
    #: Whether a shard that is made, or that is used, has the cell. [cells, made], [cells, used]
    makers: NDArray[np.bool_]
    needs: NDArray[np.bool_]

    @classmethod
    def of(cls, shard_lo: Indices, shard_hi: Indices, makes: NDArray[np.bool_]) -> _Cells:
        """Return the cells of shards [shards, axes]: axes are divided wherever a shard begins or ends.

        Examples
        --------
        One axis of 6: two shards made, [0, 3) and [3, 6), and one used, [0, 4). So there are three cells.

        >>> lo, hi = np.array([[0], [3], [0]]), np.array([[3], [6], [4]])
        >>> cells = _Cells.of(lo, hi, np.array([True, True, False]))
        >>> cells.elements.tolist(), cells.needs[:, 0].tolist()
        ([3, 1, 2], [True, True, False])
        >>> cells.makers.astype(int).tolist()
        [[1, 0], [0, 1], [0, 1]]
        """
        edges = [sorted_unique(axis) for axis in np.concatenate([shard_lo, shard_hi]).T]
        lo = np.stack(np.meshgrid(*(edge[:-1] for edge in edges), indexing="ij"), -1)
        hi = np.stack(np.meshgrid(*(edge[1:] for edge in edges), indexing="ij"), -1)
        lo, hi = lo.reshape(-1, len(edges)), hi.reshape(-1, len(edges))
        makers = _meet(lo, hi, shard_lo[makes], shard_hi[makes])
        needs = _meet(lo, hi, shard_lo[~makes], shard_hi[~makes])
        made = makers.any(axis=1)
        return cls(elements=volume(lo, hi)[made], makers=makers[made], needs=needs[made])


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
