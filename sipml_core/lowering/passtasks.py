"""The passes of a schedule as tasks: which tasks of a replica's template belong to which pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import GroupTasks, Indices, makes_weights_only
from sipml_core.lowering.schedules import Pass, Passes, PassKind, schedule
from sipml_core.model import Phase, Plan

#: Pass kinds, numbered within a part.
_KINDS = len(PassKind)
_MAX_PRIORITY = 2**31 - 1


@frozen(kw_only=True, eq=False)
class PassTasks:
    """The passes of one iteration, and the tasks that each is made of, the same in every micro-batch.

    Row r of the tables is one kind of pass over one part of the model: r = 3 part + kind.
    """

    #: Passes of each stage, in order.
    passes: tuple[Passes, ...]
    #: Row of each task of the template, -1 for the optimizer's. [tasks]
    row: Indices
    #: First task of each device: not after any of the same pass, and tasks no other of the pass is after.
    sources: tuple[Indices, ...]
    sinks: tuple[Indices, ...]
    #: Place of each pass in its stage's list. [rows, micro-batches]
    slot: Indices
    #: Optimizer tasks of each stage.
    optimizer: tuple[Indices, ...]

    @property
    def slots(self) -> int:
        """Return the passes of the longest list."""
        return max(len(passes) for passes in self.passes)

    @property
    def ordered(self) -> bool:
        """Return whether there is an order to keep: not where one micro-batch goes through one stage."""
        return len(self.passes) > 1 or self.slot.shape[1] > 1

    def slots_of(self, tasks: Indices, micro_batches: Indices) -> NDArray[np.int64]:
        """Return the place in their stage's list of the passes of tasks. [micro-batches, tasks]"""
        if not self.ordered:
            return np.zeros((len(micro_batches), len(tasks)), dtype=np.int64)
        row = self.row[tasks]
        placed = self.slot[np.maximum(row, 0)][:, micro_batches].T.astype(np.int64)
        return np.where(row >= 0, placed, self.slots)

    def priorities(self, iterations: int, positions: int, buckets: int) -> int:
        """Return how many priorities an iteration takes; `InfeasibleError` if they exceed 32 bits."""
        slots = self.slots + 1 if self.ordered else 1
        needed = slots * positions + buckets
        if needed * iterations > _MAX_PRIORITY:
            raise InfeasibleError(
                f"{iterations} iterations of {self.slots} passes of {positions} tasks are more than can be "
                "put in order; lower iterations, or raise micro_batch or tau_us"
            )
        return needed

    @classmethod
    def of(cls, group: GroupTasks, plan: Plan) -> PassTasks:
        """Return the passes of a replica under the schedule of `plan`.

        Examples
        --------
        The worked example, one stage: tasks 0 to 3 go forward, 4 to 7 back, and 8 to 11 are the optimizer's.

        >>> from sipml_core.lowering.grouptasks import group_tasks
        >>> from sipml_core.testing.worked import placed
        >>> tasks = group_tasks(placed(), recompute="none")
        >>> found = PassTasks.of(tasks, Plan(mp=3, dp=1, global_batch=2, micro_batch=1))
        >>> found.row.tolist()
        [0, 0, 0, 0, 1, 1, 1, 1, -1, -1, -1, -1]
        >>> [s.tolist() for s in found.sources[:2]], [s.tolist() for s in found.sinks[:2]]
        ([[0], [4, 5, 6]], [[1, 2, 3], [7]])
        >>> found.slot.tolist()
        [[0, 2], [1, 3], [-1, -1]]
        """
        placement = group.placement
        passes = schedule(plan.schedule, placement.stages, plan.micro_batches, plan.chunks)
        row = _rows(group, split=plan.schedule == "zb-h1")
        stage = placement.part[group.op] % placement.stages
        rows = placement.parts * _KINDS

        # Tasks that are after, or before, one of their own pass. [tasks]
        before = np.concatenate([group.edge_src, group.gate_before])
        after = np.concatenate([group.edge_dst, group.gate_after])
        same = row[before] == row[after]
        is_source, is_sink = row >= 0, row >= 0
        is_source[after[same]] = False
        is_sink[before[same]] = False

        slot = np.full((rows, plan.micro_batches), -1, dtype=np.int32)
        for own in passes:
            for place, each in enumerate(own):
                slot[row_of(each), each.micro_batch] = place
        return cls(
            passes=passes,
            row=row,
            sources=_by_row(row, is_source, rows),
            sinks=_by_row(row, is_sink, rows),
            slot=slot,
            optimizer=tuple(
                np.flatnonzero((row < 0) & (stage == number)).astype(np.int32)
                for number in range(placement.stages)
            ),
        )


def row_of(each: Pass) -> int:
    """Return the row of the tables of `PassTasks` that a pass has."""
    return each.chunk * _KINDS + int(each.kind)


def part_and_kind(row: Indices) -> tuple[Indices, Indices]:
    """Return the part of the model and the kind of pass of each row; the optimizer's kind is none.

    >>> part_and_kind(np.array([0, 5, -1]))
    (array([ 0,  1, -1]), array([ 0,  2, -1]))
    """
    return row // _KINDS, np.where(row >= 0, row % _KINDS, -1)


def _rows(group: GroupTasks, *, split: bool) -> Indices:
    """Return the row of each task; with `split`, backward ops that make only gradients are late. [tasks]"""
    graph = group.graph.graph
    of_phase = {Phase.FORWARD: PassKind.FORWARD, Phase.BACKWARD: PassKind.BACKWARD, Phase.OPTIMIZER: -1}
    kind = np.array([of_phase[op.phase] for op in graph.ops], dtype=np.int32)
    if split:
        kind[makes_weights_only(graph)] = PassKind.WEIGHTS
    kind = kind[group.op]
    # Second runs are part of the backward pass.
    kind[group.graph.subops :] = PassKind.BACKWARD
    row = group.placement.part[group.op] * _KINDS + kind
    return np.where(kind < 0, -1, row).astype(np.int32)


def _by_row(row: Indices, chosen: NDArray[np.bool_], rows: int) -> tuple[Indices, ...]:
    """Return the chosen tasks of each row."""
    tasks = np.flatnonzero(chosen).astype(np.int32)
    order = np.argsort(row[tasks], kind="stable")
    starts = np.searchsorted(row[tasks][order], np.arange(rows + 1))
    return tuple(tasks[order[starts[r] : starts[r + 1]]] for r in range(rows))
