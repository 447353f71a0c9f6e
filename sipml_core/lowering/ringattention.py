"""Tasks that work on keys and values while more of them come in: one piece for each part of the sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.blockexchanges import BlockExchanges
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import Nodes, Plan, TaskBuilder


@frozen(kw_only=True, eq=False)
class RingPieces:
    """Which tasks of a replica are cut into pieces, and what the first piece waits for."""

    #: Tasks that read what is gathered: the last piece of each. [cut]
    task: Indices
    #: Cut task (its place in `task`), and exchange of those that are no rows. [pairs]
    cut: Indices
    exchange: Indices
    #: Cut task, and task of the template that its first piece waits for; the same with transfers. [pairs]
    after_cut: Indices
    after_task: Indices
    arrival_cut: Indices
    arrival: Indices

    @classmethod
    def of(
        cls, group: GroupTasks, transfers: Transfers, exchanges: BlockExchanges | None, plan: Plan
    ) -> RingPieces | None:
        """Return the tasks that are cut; None: there are none, or keys are there before they start."""
        if exchanges is None or plan.cp == 1 or plan.context != "ring":
            return None
        keys = np.cumsum(~exchanges.is_rows) - 1
        gathers = exchanges.gathers[exchanges.exchange]
        user, exchange = exchanges.user[gathers], keys[exchanges.exchange[gathers]]
        task, cut = np.unique(user, return_inverse=True)

        # What each cut task waits for on its device, and what comes in for it. [pairs]
        local = group.device[group.edge_src] == group.device[group.edge_dst]
        before = np.concatenate([group.edge_src[local], group.gate_before])
        after = np.concatenate([group.edge_dst[local], group.gate_after])
        waits, comes = np.isin(after, task), np.isin(transfers.consumer, task)
        return cls(
            task=task.astype(np.int32),
            cut=cut.astype(np.int32),
            exchange=exchange.astype(np.int32),
            after_cut=np.searchsorted(task, after[waits]).astype(np.int32),
            after_task=before[waits],
            arrival_cut=np.searchsorted(task, transfers.consumer[comes]).astype(np.int32),
            arrival=transfers.arrival[comes],
        )

    def add(
        self,
        builder: TaskBuilder,
        tasks: Nodes,
        sends: Nodes,
        came_in: Nodes,
        works: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64], Indices],
    ) -> None:
        """Add all pieces but the last of each cut task.

        Parameters
        ----------
        tasks, sends
            [micro-batches, tasks, groups], [micro-batches, transfers, groups]
        came_in
            Steps of keys and values. [steps, micro-batches, exchanges that are no rows, groups]
        works
            GPU and duration of a piece [cut, groups], its priority [micro-batches, cut] and label [cut].
        """
        gpu, duration_us, place, label = works
        steps = len(came_in)
        shape = (steps, len(tasks), *gpu.shape)
        pieces = builder.tasks(np.broadcast_to(gpu, shape), duration_us, place[..., None], label[:, None])
        builder.depend(tasks[:, self.after_task], pieces[0][:, self.after_cut])
        builder.depend(sends[:, self.arrival], pieces[0][:, self.arrival_cut])
        builder.depend(pieces[:-1], pieces[1:])
        builder.depend(pieces[-1], tasks[:, self.task])
        # Piece k works on what came in with step k; the first has what is there.
        builder.depend(came_in[: steps - 1, :, self.exchange], pieces[1:, :, self.cut])
