"""What one training step keeps in the memory of each GPU of a group."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import float64_vector, format_bytes
from sipml_core.lowering.grouptasks import GroupTasks, Indices, group_tasks, is_phase
from sipml_core.lowering.transfers import volume
from sipml_core.model import MAX_RANK, OpGraph, Phase, Placement, Plan, Role, precision
from sipml_core.partition import box_key, boxes


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
        """[devices] [bytes]"""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes

    @property
    def fullest(self) -> int:
        """The device that needs most."""
        return int(np.argmax(self.total_bytes))

    def sentence(self, device: int) -> str:
        """Need of one device, by component, for messages."""
        parts = ("parameters", "gradients", "optimizer", "activations")
        each = ", ".join(f"{part} {format_bytes(getattr(self, f'{part}_bytes')[device])}" for part in parts)
        return f"{format_bytes(self.total_bytes[device])} ({each})"


def memory_per_gpu(placement: Placement, plan: Plan) -> MemoryUse:
    """Memory of each device of a group under `plan`.

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
    """What the fullest GPU needs, if that is at most `memory_bytes`. [bytes]

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


def _held_where_used(placement: Placement) -> NDArray[np.float64]:
    """Elements of parameters and inputs that the sub-ops on each device touch. [devices, tensors]"""
    graph = placement.graph
    number = {tensor.name: index for index, tensor in enumerate(graph.graph.tensors)}
    rows = _Rows()
    group = np.arange(placement.limits.devices, dtype=np.int32)
    for index, op in enumerate(graph.graph.ops):
        dim, devices = graph.split_dim[index], placement.device[graph.first[index] : graph.first[index + 1]]
        if graph.duplicated[index]:
            dim, devices = None, group
        for operand in op.reads:
            tensor = graph.graph.tensor[operand.tensor]
            if tensor.role in (Role.PARAMETER, Role.INPUT):
                key = box_key(op, operand, tensor.shape, dim, len(devices))
                rows.add(devices, number[operand.tensor], boxes(key).lo, boxes(key).hi)
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
        """Device, tensor, lo, hi of each box."""
        ids = np.concatenate([np.empty((0, 2), dtype=np.int32), *(block[0] for block in self._blocks)])
        box = np.concatenate([np.empty((0, MAX_RANK, 2), dtype=np.int32), *(b[1] for b in self._blocks)])
        return ids[:, 0], ids[:, 1], box[:, :, 0], box[:, :, 1]


def _activations(tasks: GroupTasks) -> NDArray[np.float64]:
    """Bytes kept for the backward pass on each device: checkpoints, and the fullest segment. [devices]"""
    graph, plan = tasks.graph, tasks.checkpoints
    forward = is_phase(graph, Phase.FORWARD)[tasks.subop]
    first_run = np.arange(len(tasks.subop)) < graph.subops
    src, dst = tasks.edge_src, tasks.edge_dst
    read_back = forward[src] & ~forward[dst]
    segment = plan.segment[tasks.op[src]]
    dropped = ~plan.kept[tasks.edge_tensor] & (~first_run[src] | (segment == plan.segments - 1))
    again_from_first = first_run[src] & forward[dst] & ~first_run[dst]
    element_bytes = np.array([t.element_bytes for t in graph.graph.tensors])
    whole_elements = np.array([t.elements for t in graph.graph.tensors], dtype=np.float64)
    in_full = graph.duplicated[tasks.op[dst]]

    def held(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        boxes_held = (tasks.edge_tensor[rows], tasks.edge_lo[rows], tasks.edge_hi[rows])
        elements = _held_elements(tasks.placement, tasks.device[dst[rows]], *boxes_held)
        whole = np.unique(tasks.edge_tensor[rows & in_full])
        elements[:, whole] = whole_elements[whole]
        return np.asarray(elements @ element_bytes)

    interiors = [held(read_back & dropped & (segment == number)) for number in range(plan.segments)]
    checkpoints = held((read_back & ~dropped) | again_from_first)
    return np.asarray(checkpoints + np.max(interiors, axis=0))


def _held_elements(
    placement: Placement, device: Indices, tensor: Indices, lo: Indices, hi: Indices
) -> NDArray[np.float64]:
    """Elements in the union of boxes of each tensor on each device. [devices, tensors]

    The union is taken as the bounding box or the sum of the distinct boxes, whichever is less: exact
    for boxes that are equal, nested in one, or side by side.
    """
    tensors = len(placement.graph.graph.tensors)
    elements = np.zeros(placement.limits.devices * tensors)
    if len(device):
        key, lo, hi = _distinct(
            placement.graph.graph, device.astype(np.int64) * tensors + tensor, tensor, lo, hi
        )
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        bounding = volume(np.minimum.reduceat(lo, starts), np.maximum.reduceat(hi, starts))
        elements[key[starts]] = np.minimum(bounding, np.add.reduceat(volume(lo, hi), starts))
    return elements.reshape(placement.limits.devices, tensors)


def _distinct(
    graph: OpGraph, key: NDArray[np.int64], tensor: Indices, lo: Indices, hi: Indices
) -> tuple[NDArray[np.int64], Indices, Indices]:
    """Each (key, box) once, in order of key. A box is told by the flat positions of its corners."""
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
