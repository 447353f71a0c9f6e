"""What one training step keeps in the memory of each GPU of a group."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import float64_vector, format_bytes
from sipml_core.lowering.grouptasks import GroupTasks, Indices, group_tasks, is_phase
from sipml_core.lowering.transfers import volume
from sipml_core.model import MAX_RANK, OpGraph, Phase, Placement, Plan, Role, precision, sorted_unique
from sipml_core.partition import OverlapRule, box_key


@attrs.frozen(kw_only=True, eq=False)
class MemoryUse:
    """Memory of each device of a group; every group is alike. [devices] [bytes]"""

    parameters_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    gradients_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: What the optimizer keeps beside them: moments, and fp32 copies in mixed precision.
    optimizer_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: The batch, and what the forward pass keeps for the backward pass, received copies included.
    activations_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)

    @property
    def total_bytes(self) -> NDArray[np.float64]:
        """Return the sum of all components. [devices] [bytes]"""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes

    @property
    def fullest(self) -> int:
        """Return the device that needs most."""
        return int(np.argmax(self.total_bytes))

    def sentence(self, device: int) -> str:
        """Return the need of one device, by component, for messages."""
        parts = ("parameters", "gradients", "optimizer", "activations")
        each = ", ".join(f"{part} {format_bytes(getattr(self, f'{part}_bytes')[device])}" for part in parts)
        return f"{format_bytes(self.total_bytes[device])} ({each})"


def memory_per_gpu(placement: Placement, plan: Plan) -> MemoryUse:
    """Return the memory of each device of a group under `plan`.

    Parameters, with gradients and optimizer state at the precision of the graph (`Precision`), are
    counted once on each device that uses them. Activations that backward sub-ops read are counted
    where they read them: all of them, or with `plan.recompute` the checkpoints and the most
    that any one segment makes again (see `recompute.checkpoints`). What a duplicated op reads, every
    device keeps whole. Not counted: activation gradients and other buffers of the op that runs,
    communication buffers, fragmentation.
    """
    graph = placement.graph.graph
    held = precision(graph.precision)
    trained = {t.parameter for t in graph.tensors if t.role is Role.GRADIENT}
    all_parameters = np.array([t.role is Role.PARAMETER for t in graph.tensors])
    trained_only = np.array([t.name in trained for t in graph.tensors])
    inputs = np.array([t.role is Role.INPUT for t in graph.tensors])
    elements = _held_where_used(placement)
    element_bytes = np.array([t.element_bytes for t in graph.tensors])
    trained_elements = elements @ trained_only
    return MemoryUse(
        parameters_bytes=elements @ (element_bytes * all_parameters),
        gradients_bytes=trained_elements * held.gradient_bytes,
        optimizer_bytes=trained_elements * held.optimizer_bytes,
        activations_bytes=elements @ (element_bytes * inputs)
        + _activations(group_tasks(placement, recompute=plan.recompute)),
    )


def check_memory(placement: Placement, plan: Plan, memory_bytes: float) -> float:
    """Return what the fullest GPU needs, if that is at most `memory_bytes`. [bytes]

    Raises
    ------
    InfeasibleError
        It is more; the message has needs by component, what there is, and what would help.
    """
    use = memory_per_gpu(placement, plan)
    needed = float(use.total_bytes[use.fullest])
    if needed > memory_bytes:
        remedy = "raise mp or lower the batch" + ("" if plan.recompute else ", or set recompute = true")
        raise InfeasibleError(
            f"{placement.graph.graph.name} with mp={plan.mp}, dp={plan.dp}, "
            f"global_batch={plan.global_batch} does not fit: device {use.fullest} of a group needs "
            f"{use.sentence(use.fullest)}, the GPU has {format_bytes(memory_bytes)}; {remedy}"
        )
    return needed


def check_parameters(graph: OpGraph, plan: Plan, memory_bytes: float) -> float:
    """Return what the fullest GPU needs at least, for parameters, gradients, optimizer state. [bytes]

    Every parameter is on one of the `plan.mp` GPUs of a group or on several, so the fullest has one part in
    `mp` of all, whatever the layout and the placement: what this refuses need not be cut and placed.

    Raises
    ------
    InfeasibleError
        It is more than `memory_bytes`.
    """
    held = precision(graph.precision)
    trained = {t.parameter for t in graph.tensors if t.role is Role.GRADIENT}
    trained_elements = sum(t.elements for t in graph.tensors if t.name in trained)
    state_bytes = held.gradient_bytes + held.optimizer_bytes
    needed = (graph.parameter_bytes + trained_elements * state_bytes) / plan.mp
    if needed > memory_bytes:
        raise InfeasibleError(
            f"{graph.name} with mp={plan.mp} does not fit: parameters, gradients and optimizer state alone "
            f"are {format_bytes(needed)}, the GPU has {format_bytes(memory_bytes)}; raise mp"
        )
    return needed


def _held_where_used(placement: Placement) -> NDArray[np.float64]:
    """Return elements of parameters and inputs that sub-ops touch on each device. [devices, tensors]"""
    graph = placement.graph
    number = {tensor.name: index for index, tensor in enumerate(graph.graph.tensors)}
    rows, rule = _Rows(), OverlapRule()
    group = np.arange(placement.limits.devices, dtype=np.int32)
    for index, op in enumerate(graph.graph.ops):
        dim, devices = graph.split_dim[index], placement.device[graph.first[index] : graph.first[index + 1]]
        if graph.duplicated[index]:
            dim, devices = None, group
        for operand in op.reads:
            tensor = graph.graph.tensor[operand.tensor]
            if tensor.role in (Role.PARAMETER, Role.INPUT):
                key = box_key(op, operand, tensor.shape, dim, len(devices))
                found = rule.boxes(key)
                rows.add(devices, number[operand.tensor], found.lo, found.hi)
    device, tensors, lo, hi = rows.columns()
    return _held_elements(placement, device, tensors, lo, hi)


class _Rows:
    """Boxes of tensors on devices, in blocks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Indices, Indices]] = []

    def add(self, devices: Indices, tensor: int, lo: NDArray[np.int64], hi: NDArray[np.int64]) -> None:
        count, rank = lo.shape
        box = np.tile(np.array([0, 1], dtype=np.int32), (count, MAX_RANK, 1))
        box[:, :rank, 0], box[:, :rank, 1] = lo, hi
        self._blocks.append((np.column_stack([devices, np.full(count, tensor)]).astype(np.int32), box))

    def columns(self) -> tuple[Indices, Indices, Indices, Indices]:
        """Return device, tensor, lo and hi of each box."""
        ids = np.concatenate([np.empty((0, 2), dtype=np.int32), *(block[0] for block in self._blocks)])
        box = np.concatenate([np.empty((0, MAX_RANK, 2), dtype=np.int32), *(b[1] for b in self._blocks)])
        return ids[:, 0], ids[:, 1], box[:, :, 0], box[:, :, 1]


def _activations(tasks: GroupTasks) -> NDArray[np.float64]:
    """Return bytes kept for the backward pass: checkpoints, and the fullest segment. [devices]"""
    graph, plan = tasks.graph, tasks.checkpoints
    forward = is_phase(graph, Phase.FORWARD)[tasks.subop]
    first_run = np.arange(len(tasks.subop)) < graph.subops

    # What each data edge is, by the tasks at its ends and the segment that makes it. [edges]
    src, dst = tasks.edge_src, tasks.edge_dst
    read_back = forward[src] & ~forward[dst]
    segment = plan.segment[tasks.op[src]]
    dropped = ~plan.kept[tasks.edge_tensor] & (~first_run[src] | (segment == plan.segments - 1))
    again_from_first = first_run[src] & forward[dst] & ~first_run[dst]

    # Account 0 has checkpoints; account 1 + s has what segment s makes again.
    kept = (read_back & ~dropped) | again_from_first
    account = np.where(kept, 0, 1 + segment)
    held = np.flatnonzero(kept | read_back)
    bytes_held = _account_bytes(tasks, held, account[held], 1 + plan.segments)
    return np.asarray(bytes_held[0] + bytes_held[1:].max(axis=0))


def _account_bytes(
    tasks: GroupTasks, edges: NDArray[np.intp], account: NDArray[np.int64], accounts: int
) -> NDArray[np.float64]:
    """Return the bytes that `edges` bring to each device, by account. [accounts, devices]

    What a duplicated op reads is whole on every device.
    """
    graph, devices = tasks.graph, tasks.placement.limits.devices
    tensors = len(graph.graph.tensors)
    element_bytes = np.array([t.element_bytes for t in graph.graph.tensors])
    whole_bytes = np.array([t.size_bytes for t in graph.graph.tensors], dtype=np.float64)
    tensor, reader = tasks.edge_tensor[edges], tasks.edge_dst[edges]

    # Tensors that an account has whole, as account * tensors + tensor.
    of_account = account * tensors + tensor
    whole = sorted_unique(of_account[graph.duplicated[tasks.op[reader]]])

    # All others: the union of the boxes of each (device, account, tensor).
    parts = np.flatnonzero(~np.isin(of_account, whole))
    key, elements = _union_elements(
        graph.graph,
        tasks.device[reader[parts]].astype(np.int64) * (accounts * tensors) + of_account[parts],
        tensor[parts],
        tasks.edge_lo[edges[parts]],
        tasks.edge_hi[edges[parts]],
    )
    held = np.bincount(
        key // tensors, elements * element_bytes[key % tensors], minlength=devices * accounts
    ).reshape(devices, accounts)
    held = held + np.bincount(whole // tensors, whole_bytes[whole % tensors], minlength=accounts)
    return np.asarray(held.T, dtype=np.float64)


def _held_elements(
    placement: Placement, device: Indices, tensor: Indices, lo: Indices, hi: Indices
) -> NDArray[np.float64]:
    """Return the elements in the union of boxes of each tensor on each device. [devices, tensors]"""
    tensors = len(placement.graph.graph.tensors)
    held = np.zeros(placement.limits.devices * tensors)
    key, elements = _union_elements(
        placement.graph.graph, device.astype(np.int64) * tensors + tensor, tensor, lo, hi
    )
    held[key] = elements
    return held.reshape(placement.limits.devices, tensors)


def _union_elements(
    graph: OpGraph, key: NDArray[np.int64], tensor: Indices, lo: Indices, hi: Indices
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each key once, and the elements in the union of its boxes. [keys], [keys]

    The union is taken as the bounding box or the sum of the distinct boxes, whichever is less: exact
    for boxes that are equal, nested in one, or side by side.
    """
    if not len(key):
        return key, key
    key, lo, hi = _distinct(graph, key, tensor, lo, hi)
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    bounding = volume(np.minimum.reduceat(lo, starts), np.maximum.reduceat(hi, starts))
    return key[starts], np.minimum(bounding, np.add.reduceat(volume(lo, hi), starts))


def _distinct(
    graph: OpGraph, key: NDArray[np.int64], tensor: Indices, lo: Indices, hi: Indices
) -> tuple[NDArray[np.int64], Indices, Indices]:
    """Return each (key, box) once, in order of key. A box is told by the flat positions of its corners."""
    shape = np.ones((len(graph.tensors), MAX_RANK + 1), dtype=np.int64)
    for index, t in enumerate(graph.tensors):
        shape[index, 1 : 1 + len(t.shape)] = np.array(t.shape) + 1
    stride = np.cumprod(shape, axis=1)[tensor, :MAX_RANK]
    first, last = np.sum(lo * stride, axis=1), np.sum((hi - 1) * stride, axis=1)
    order = np.lexsort((last, first, key))
    columns = np.column_stack([key, first, last])[order]
    new = np.concatenate([[True], np.any(columns[1:] != columns[:-1], axis=1)])
    chosen = order[new]
    return key[chosen], lo[chosen], hi[chosen]
