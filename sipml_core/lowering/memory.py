"""What one training step keeps in the memory of each GPU of a replica."""

from __future__ import annotations

from collections.abc import Hashable

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import float64_vector, format_bytes, frozen
from sipml_core.lowering.expertgroups import most_loaded
from sipml_core.lowering.gathers import Gathers
from sipml_core.lowering.grouptasks import GroupTasks, Indices, is_phase
from sipml_core.lowering.grouptemplate import gradient_buckets
from sipml_core.lowering.passtasks import PassTasks
from sipml_core.lowering.resending import replica_tasks
from sipml_core.lowering.schedules import in_flight, parts_in_flight, schedule
from sipml_core.lowering.transfers import volume
from sipml_core.model import (
    MAX_RANK,
    OpGraph,
    Phase,
    Placement,
    Plan,
    Role,
    precision,
)
from sipml_core.partition import OverlapRule, box_key


@frozen(kw_only=True, eq=False)
class MemoryUse:
    """Memory of each device of a replica; every replica is alike. [devices] [bytes]"""

    parameters_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    gradients_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: What the optimizer keeps beside them: moments, and fp32 copies in mixed precision.
    optimizer_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: The batch, and what the forward pass keeps for the backward pass, received copies included.
    activations_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Parameters that are gathered for a pass, beside the part of them that is kept; None: they are all kept.
    gathered_bytes: NDArray[np.float64] = attrs.field(
        default=attrs.Factory(lambda self: np.zeros_like(self.parameters_bytes), takes_self=True),
        converter=float64_vector,
    )

    @property
    def states_bytes(self) -> NDArray[np.float64]:
        """Return what does not grow with the batch. [devices] [bytes]"""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.gathered_bytes

    @property
    def total_bytes(self) -> NDArray[np.float64]:
        """Return the sum of all components. [devices] [bytes]"""
        return self.states_bytes + self.activations_bytes

    @property
    def fullest(self) -> int:
        """Return the device that needs most."""
        return int(np.argmax(self.total_bytes))

    def sentence(self, device: int) -> str:
        """Return the need of one device, by component, for messages."""
        parts = ["parameters", "gradients", "optimizer", "activations"]
        parts += ["gathered"] if self.gathered_bytes[device] else []
        each = ", ".join(f"{part} {format_bytes(getattr(self, f'{part}_bytes')[device])}" for part in parts)
        return f"{format_bytes(self.total_bytes[device])} ({each})"


@frozen(kw_only=True, eq=False)
class ReplicaMemory:
    """Memory of a placement, for the plans that it serves: what they share is counted once.

    Parameters, with gradients and optimizer state at the precision of the graph (`Precision`), are
    counted once on each device that uses them. Activations that backward sub-ops read are counted
    where they read them: all of them, or with `plan.recompute` the checkpoints and the most
    that any one segment makes again (see `recompute.checkpoints`). There are as many as micro-batches
    that the stage holds at once, counted in its list of passes. What a duplicated op reads, every device
    of its stage keeps whole. `plan.zero` divides optimizer state (1), gradients (2) and parameters (3) by
    dp; then there is what a pass has gathered at once, see `Gathers.most_bytes`. Not counted: activation
    gradients and other buffers of the op that runs, communication buffers, fragmentation.
    """

    placement: Placement
    #: What `replica_tasks` returns, by what of a plan it depends on.
    _groups: dict[Hashable, GroupTasks] = attrs.field(factory=dict, init=False)
    #: Elements of parameters and inputs on each device. [devices, tensors]
    _elements: NDArray[np.float64] = attrs.field(
        default=attrs.Factory(lambda self: _held_where_used(self.placement), takes_self=True), init=False
    )

    def use(self, plan: Plan, group: GroupTasks | None = None) -> MemoryUse:
        """Return the memory of each device under a plan; `group` as of `replica_tasks`, None: made here."""
        graph, elements = self.placement.graph.graph, self._elements
        group = self._group(plan, group)
        held = precision(graph.precision)
        trained = {t.parameter for t in graph.tensors if t.role is Role.GRADIENT}
        all_parameters = np.array([t.role is Role.PARAMETER for t in graph.tensors])
        trained_only = np.array([t.name in trained for t in graph.tensors])
        inputs = np.array([t.role is Role.INPUT for t in graph.tensors])
        element_bytes = np.array([t.element_bytes for t in graph.tensors])
        held_elements = elements * trained_only
        in_flight = parts_in_flight(plan)
        # Inputs are counted for as many micro-batches as the stage holds of any of its parts. [devices]
        most = in_flight.reshape(-1, self.placement.stages).max(axis=0)
        batches = most.repeat(self.placement.limits.devices)
        return MemoryUse(
            parameters_bytes=_divided(elements * (element_bytes * all_parameters), plan, graph, level=3),
            gradients_bytes=_divided(held_elements * plan.gradient_bytes(held), plan, graph, level=2),
            optimizer_bytes=_divided(held_elements * held.optimizer_bytes, plan, graph, level=1),
            activations_bytes=batches * (elements @ (element_bytes * inputs)) + _activations(group, plan),
            gathered_bytes=_gathered(group, plan),
        )

    def _group(self, plan: Plan, group: GroupTasks | None) -> GroupTasks:
        key = (
            plan.recompute,
            plan.schedule == "zb-h1",
            plan.keep_gathered,
            tuple(parts_in_flight(plan).tolist()),
        )
        if key not in self._groups:
            self._groups[key] = group or replica_tasks(self.placement, plan)
        return self._groups[key]


def memory_per_gpu(placement: Placement, plan: Plan, group: GroupTasks | None = None) -> MemoryUse:
    """Return the memory of each device of a replica under `plan`, see `ReplicaMemory`."""
    return ReplicaMemory(placement=placement).use(plan, group)


def _gathered(group: GroupTasks, plan: Plan) -> NDArray[np.float64]:
    """Return the most parameters that each device has gathered at once. [devices] [bytes]"""
    if not plan.shares_parameters:
        return np.zeros(group.placement.devices)
    buckets = gradient_buckets(group, plan, group.placement.limits)
    return Gathers.of(group, PassTasks.of(group, plan), buckets, plan).most_bytes(group)


def _divided(table: NDArray[np.float64], plan: Plan, graph: OpGraph, *, level: int) -> NDArray[np.float64]:
    """Return sums over tensors, less what replicas share from a level of `zero` on. [..., tensors] -> [...]

    Experts are shared by the replicas that have the same ones, all else by all.
    """
    if plan.zero < level:
        return np.asarray(table.sum(axis=-1))
    of_experts = _of_experts(graph)
    others = table[..., ~of_experts].sum(axis=-1) / plan.replicas
    return np.asarray(others + table[..., of_experts].sum(axis=-1) / plan.expert_replicas)


def _of_experts(graph: OpGraph) -> NDArray[np.bool_]:
    """Return which tensors are of experts that are spread over replicas. [tensors]"""
    return np.array([tensor.routing is not None for tensor in graph.tensors], dtype=np.bool_)


def least_states_bytes(
    graph: OpGraph, plan: Plan, spread: int | None = None, *, experts_only: bool = False
) -> dict[str, float]:
    """Return what the fullest GPU of a replica has at least, by kind, whatever is cut and placed. [bytes]

    Every parameter is on one of the GPUs of a replica or on several, so the fullest has one part in
    mp x pp of all.

    Parameters
    ----------
    spread
        The `ep` for which the graph was made; None: that of the plan.
    experts_only
        Of experts that are spread, and nothing else.
    """
    held = precision(graph.precision)
    trained = {t.parameter for t in graph.tensors if t.role is Role.GRADIENT}
    kept = np.array([t.size_bytes * (t.role is Role.PARAMETER) for t in graph.tensors], dtype=np.float64)
    elements = np.array([t.elements * (t.name in trained) for t in graph.tensors], dtype=np.float64)
    if experts_only or spread not in (None, plan.ep):
        of_others = 0.0 if experts_only else 1.0
        part = np.where(_of_experts(graph), (spread or plan.ep) / plan.ep, of_others)
        kept, elements = kept * part, elements * part
    whole_bytes = {
        "parameters": _divided(kept, plan, graph, level=3),
        "gradients": _divided(elements * plan.gradient_bytes(held), plan, graph, level=2),
        "optimizer": _divided(elements * held.optimizer_bytes, plan, graph, level=1),
    }
    return {kind: float(whole) / plan.replica_gpus for kind, whole in whole_bytes.items()}


def _held_where_used(placement: Placement) -> NDArray[np.float64]:
    """Return elements of parameters and inputs that sub-ops touch on each device. [devices, tensors]"""
    graph = placement.graph
    rule = OverlapRule()
    # Parameters and inputs, with their numbers.
    lasting = {
        tensor.name: (index, tensor.shape)
        for index, tensor in enumerate(graph.graph.tensors)
        if tensor.role in (Role.PARAMETER, Role.INPUT)
    }
    # Blocks of boxes with their tensors, and the devices that hold them. [boxes]
    held_on, of_tensor, boxes = [], [], [np.empty((2, 0, MAX_RANK), dtype=np.int32)]
    first, duplicated = graph.first.tolist(), graph.duplicated.tolist()
    for index, op in enumerate(graph.graph.ops):
        read = [operand for operand in op.reads if operand.tensor in lasting]
        if not read:
            continue
        if duplicated[index]:
            dim, devices = None, placement.stage_devices(index)
        else:
            dim, devices = graph.split_dim[index], placement.device[first[index] : first[index + 1]]
        for operand in read:
            tensor, shape = lasting[operand.tensor]
            held_on.append(devices)
            of_tensor.append(tensor)
            boxes.append(rule.boxes(box_key(op, operand, shape, dim, len(devices))).padded)
    lo, hi = np.concatenate(boxes, axis=1)
    tensors = np.repeat(np.array(of_tensor, dtype=np.int32), [len(devices) for devices in held_on])
    device = np.concatenate([np.empty(0, dtype=np.int32), *held_on])
    return _held_elements(placement, device, tensors, lo, hi)


def _activations(tasks: GroupTasks, plan: Plan) -> NDArray[np.float64]:
    """Return bytes kept for the backward pass: checkpoints, and the fullest segment. [devices]

    The segment is there once, checkpoints for all micro-batches of the stage: it is made again, or was just
    made, for the micro-batch that goes back.
    """
    kept_bytes, segment_bytes = _kept_and_remade(tasks, parts_in_flight(plan))
    stages, devices = tasks.placement.stages, tasks.placement.limits.devices
    held = np.zeros(stages * devices)
    for stage, passes in enumerate(schedule(plan.schedule, stages, plan.micro_batches, plan.chunks)):
        own = slice(stage * devices, (stage + 1) * devices)
        parts = range(stage, plan.model_parts, stages)
        # What there is of all parts after each pass of the stage. [passes, devices]
        after = in_flight(passes, parts) @ kept_bytes[parts, own]
        held[own] = after.max(axis=0)
    return np.asarray(held + segment_bytes.max(axis=0))


def _kept_and_remade(
    tasks: GroupTasks, most: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bytes kept of one micro-batch, by part, and bytes each segment makes again, by device.

    Parameters
    ----------
    most
        Micro-batches of each part that are kept at once. [parts]

    Returns
    -------
    kept_bytes, segment_bytes
        [parts, devices], [segments, devices]
    """
    graph, plan, placement = tasks.graph, tasks.checkpoints, tasks.placement
    forward = is_phase(graph, Phase.FORWARD)[tasks.subop]
    first_run = np.arange(len(tasks.subop)) < graph.subops

    # What each data edge is, by the tasks at its ends and the segment that makes it. [edges]
    src, dst = tasks.edge_src, tasks.edge_dst
    sent_again = dst >= tasks.works
    read_back = (forward[src] & ~forward[dst] & (src < tasks.works)) | sent_again
    segment = plan.segment[tasks.op[src]]
    part = placement.part[tasks.op[dst]]
    just_made = plan.just_made[segment] & (most[part] == 1)
    dropped = ~plan.kept[tasks.edge_tensor] & (~first_run[src] | just_made)
    again_from_first = first_run[src] & forward[dst] & ~first_run[dst] & ~sent_again

    # Account c has what is kept on part c; account parts + s has what segment s makes again.
    kept = (read_back & ~dropped) | again_from_first
    account = np.where(kept, part, placement.parts + segment)
    held = np.flatnonzero(kept | read_back)
    bytes_held = _account_bytes(tasks, held, account[held], placement.parts + plan.segments)
    return bytes_held[: placement.parts], bytes_held[placement.parts :]


def _account_bytes(
    tasks: GroupTasks, edges: NDArray[np.intp], account: NDArray[np.int64], accounts: int
) -> NDArray[np.float64]:
    """Return the bytes that `edges` bring to each device, by account. [accounts, devices]

    What a duplicated op reads is whole on every device of its stage.
    """
    graph, placement = tasks.graph, tasks.placement
    devices, group = placement.devices, placement.limits.devices
    tensors = len(graph.graph.tensors)
    element_bytes = np.array([t.element_bytes for t in graph.graph.tensors])
    whole_bytes = np.array([t.size_bytes for t in graph.graph.tensors], dtype=np.float64)
    tensor, reader = tasks.edge_tensor[edges], tasks.edge_dst[edges]

    # Tensors that an account has whole, as account * tensors + tensor, and the stage it has them on.
    of_account = account * tensors + tensor
    stage = placement.part[tasks.op[reader]] % placement.stages
    in_full = graph.duplicated[tasks.op[reader]]
    whole, first = np.unique(of_account[in_full], return_index=True)
    whole_stage = stage[in_full][first]

    # All others: the union of the boxes of each (device, account, tensor).
    parts = np.flatnonzero(~np.isin(of_account, whole))
    key, elements = _union_elements(
        graph.tensor_shape,
        tasks.device[reader[parts]].astype(np.int64) * (accounts * tensors) + of_account[parts],
        tensor[parts],
        tasks.edge_lo[edges[parts]],
        tasks.edge_hi[edges[parts]],
    )
    # Of rows of experts the replica of a block that has most counts. [tensors]
    load = most_loaded(graph.graph, placement.part)
    held = np.bincount(
        key // tensors, elements * (element_bytes * load)[key % tensors], minlength=devices * accounts
    ).reshape(devices, accounts)
    on_stage = np.bincount(
        whole_stage.astype(np.int64) * accounts + whole // tensors,
        (whole_bytes * load)[whole % tensors],
        minlength=placement.stages * accounts,
    ).reshape(placement.stages, accounts)
    held = held + np.repeat(on_stage, group, axis=0)
    return np.asarray(held.T, dtype=np.float64)


def _held_elements(
    placement: Placement, device: Indices, tensor: Indices, lo: Indices, hi: Indices
) -> NDArray[np.float64]:
    """Return the elements in the union of boxes of each tensor on each device. [devices, tensors]"""
    tensors = len(placement.graph.graph.tensors)
    held = np.zeros(placement.devices * tensors)
    key, elements = _union_elements(
        placement.graph.tensor_shape, device.astype(np.int64) * tensors + tensor, tensor, lo, hi
    )
    held[key] = elements
    return held.reshape(placement.devices, tensors)


def _union_elements(
    shape: NDArray[np.int64], key: NDArray[np.int64], tensor: Indices, lo: Indices, hi: Indices
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each key once, and the elements in the union of its boxes. [keys], [keys]

    `shape` is that of all tensors. [tensors, MAX_RANK]
    The union is taken as the bounding box or the sum of the distinct boxes, whichever is less: exact
    for boxes that are equal, nested in one, or side by side.
    """
    if not len(key):
        return key, key
    key, lo, hi = _distinct(shape, key, tensor, lo, hi)
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    bounding = volume(np.minimum.reduceat(lo, starts), np.maximum.reduceat(hi, starts))
    return key[starts], np.minimum(bounding, np.add.reduceat(volume(lo, hi), starts))


def _distinct(
    shape: NDArray[np.int64], key: NDArray[np.int64], tensor: Indices, lo: Indices, hi: Indices
) -> tuple[NDArray[np.int64], Indices, Indices]:
    """Return each (key, box) once, in order of key. A box is told by the flat positions of its corners."""
    strides = np.ones_like(shape)
    np.cumprod(shape[:, :-1] + 1, axis=1, out=strides[:, 1:])
    stride = strides[tensor]
    first, last = np.sum(lo * stride, axis=1), np.sum((hi - 1) * stride, axis=1)
    order = np.lexsort((last, first, key))
    columns = np.column_stack([key, first, last])[order]
    new = np.concatenate([[True], np.any(columns[1:] != columns[:-1], axis=1)])
    chosen = order[new]
    return key[chosen], lo[chosen], hi[chosen]
