"""What the replicas of a block send each other inside a pass: rows of experts, keys and values.

Tensors say what is done with them (`Exchanged`). An exchange stands between the task that makes a part of
such a tensor and those that read it on the same replica; device d exchanges with devices d of other replicas.

* Rows go to all replicas that have experts, and come back: each sends to each, at the same time.
* Keys and values go round a ring of the replicas that share a sequence, in cp - 1 steps, each of which sends
  what came in with the one before. Every pass that reads them gathers them again: they are not kept. With
  ``context = "ring"`` a task that reads them is cut in pieces, see `ringattention`.
* Gradients of keys that a pass made for other parts of the sequence go the same way, as a reduce-scatter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.callcosts import Library
from sipml_core.lowering.grouptasks import GroupTasks, Indices, is_phase
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import (
    CONTEXT,
    EXPERT,
    Exchanged,
    Nodes,
    Phase,
    Plan,
    TaskBuilder,
    region_elements,
)


@frozen(kw_only=True, eq=False)
class BlockExchanges:
    """Exchanges of one replica in one micro-batch; all replicas have the same."""

    #: Task that makes what is exchanged, and its device. [exchanges]
    maker: Indices
    device: Indices
    what: tuple[Exchanged, ...]
    #: What one replica has of it. [exchanges] [bytes]
    size_bytes: NDArray[np.float64]
    #: Part of the rows that goes to, or comes from, each replica of the block's experts. [exchanges, ep]
    shares: NDArray[np.float64]
    #: Exchange, and task that waits for what comes in. [pairs]
    exchange: Indices
    user: Indices
    #: Exchange, and task that it waits for besides its maker. [pairs]
    gated: Indices
    gate: Indices
    #: Exchange, and transfer inside the replica that waits for it. [pairs]
    sent: Indices
    send: Indices

    @property
    def count(self) -> int:
        return len(self.maker)

    def replica_bytes(self, plan: Plan) -> NDArray[np.float64]:
        """Return what one replica sends in each exchange, in the mean over a block. [exchanges] [bytes]"""
        rows = self.is_rows
        peers = np.where(rows, (plan.ep - 1) / plan.ep, plan.cp - 1)
        return np.asarray(self.size_bytes * peers)

    @property
    def is_rows(self) -> NDArray[np.bool_]:
        """Return which exchanges are those of rows of experts. [exchanges]"""
        rows = (Exchanged.TO_EXPERTS, Exchanged.FROM_EXPERTS)
        return np.array([what in rows for what in self.what], dtype=np.bool_)

    @property
    def gathers(self) -> NDArray[np.bool_]:
        """Return which exchanges gather keys and values. [exchanges]"""
        return np.array([what is Exchanged.GATHER for what in self.what], dtype=np.bool_)

    @classmethod
    def of(cls, group: GroupTasks, transfers: Transfers, plan: Plan) -> BlockExchanges | None:
        """Return the exchanges of a replica; None: it has none."""
        graph = group.graph.graph
        marked = np.array([tensor.exchanged is not None for tensor in graph.tensors], dtype=np.bool_)
        if plan.block == 1 or not marked.any():
            return None
        edges = np.flatnonzero(marked[group.edge_tensor])
        maker, user = group.edge_src[edges], group.edge_dst[edges]

        # Keys are gathered for each pass that reads them; the first forward pass is class 0. [edges]
        gathered = np.array(
            [tensor.exchanged is Exchanged.GATHER for tensor in graph.tensors], dtype=np.bool_
        )
        second = np.arange(len(group.subop)) >= group.graph.subops
        back = ~is_phase(group.graph, Phase.FORWARD)[group.subop]
        readers_pass = np.where(
            gathered[group.edge_tensor[edges]], 2 * back[user] + (second[user] & ~second[maker]), 0
        )
        key, first, exchange = np.unique(
            maker.astype(np.int64) * 4 + readers_pass, return_index=True, return_inverse=True
        )
        makers, tensors = maker[first], group.edge_tensor[edges][first]
        later = key % 4 > 0

        local = group.device[maker] == group.device[user]
        users = np.unique(np.stack([exchange[local], user[local]]), axis=1)
        gated, gate = _gates(group, users, makers, later)
        sent, send = _sends(transfers, makers, later)
        return cls(
            maker=makers,
            device=group.device[makers],
            what=tuple(graph.tensors[t].exchanged or Exchanged.GATHER for t in tensors.tolist()),
            size_bytes=np.array([_held_bytes(group, task) for task in makers.tolist()]),
            shares=np.array(
                [
                    graph.expert_shares.get(graph.tensors[t].routing or "", (1.0 / plan.ep,) * plan.ep)
                    for t in tensors.tolist()
                ]
            ),
            exchange=users[0].astype(np.int32),
            user=users[1].astype(np.int32),
            gated=gated,
            gate=gate,
            sent=sent,
            send=send,
        )


def _gates(
    group: GroupTasks, users: NDArray[np.int64], makers: Indices, later: NDArray[np.bool_]
) -> tuple[Indices, Indices]:
    """Return what an exchange for a later pass waits for: all that its users wait for on their device."""
    local = group.device[group.edge_src] == group.device[group.edge_dst]
    before = np.concatenate([group.edge_src[local], group.gate_before])
    after = np.concatenate([group.edge_dst[local], group.gate_after])
    pairs = [
        (exchange, task)
        for exchange, user in users.T.tolist()
        if later[exchange]
        for task in np.unique(before[after == user]).tolist()
        if task != makers[exchange]
    ]
    found = np.array(sorted(set(pairs)), dtype=np.int32).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _sends(transfers: Transfers, makers: Indices, later: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Return transfers inside the replica of what first exchanges bring, which wait for them."""
    sent, send = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    for exchange in np.flatnonzero(~later).tolist():
        made = transfers.made[transfers.maker == makers[exchange]]
        sent.append(np.full(len(made), exchange, dtype=np.int32))
        send.append(made)
    return np.concatenate(sent), np.concatenate(send)


def _held_bytes(group: GroupTasks, task: int) -> float:
    """Return what a task makes of tensors that are exchanged: its part, or all if every device does all."""
    balanced, subop = group.graph, int(group.subop[task])
    index = int(balanced.subop_op[subop])
    op, graph = balanced.graph.ops[index], balanced.graph
    ranges = op.ranges
    if not balanced.duplicated[index]:
        ranges = op.part_ranges(
            balanced.split_dim[index], int(balanced.parts[index]), subop - int(balanced.first[index])
        )
    return float(
        sum(
            region_elements(graph, operand, ranges) * graph.tensor[operand.tensor].element_bytes
            for operand in op.writes
            if graph.tensor[operand.tensor].exchanged is not None
        )
    )


@frozen(kw_only=True, eq=False)
class BlockTransfers:
    """Adds the exchanges of some replicas, whole blocks, in all micro-batches."""

    exchanges: BlockExchanges
    plan: Plan
    builder: TaskBuilder
    #: GPU of device r in replica g, of these replicas. [replica, groups]
    gpus: NDArray[np.int32]
    label: int
    #: Times that the bytes are sent.
    repeats: int = 1
    #: What a communication library adds to bytes and latencies; None: nothing.
    library: Library | None = None

    def add(self, tasks: Nodes, place: NDArray[np.int64]) -> tuple[Nodes, Nodes | None]:
        """Return where what each replica needs is there, and the steps of keys and values.

        [micro-batches, exchanges, groups], [steps, micro-batches, exchanges that are no rows, groups]

        Parameters
        ----------
        tasks
            [micro-batches, tasks, groups]
        place
            Priority of tasks. [micro-batches, tasks]
        """
        exchanges, builder = self.exchanges, self.builder
        shape = (len(tasks), exchanges.count, tasks.shape[-1])
        arrived, ready = (builder.barriers(shape, label=self.label) for _ in range(2))
        builder.depend(tasks[:, exchanges.maker], ready)
        builder.depend(tasks[:, exchanges.gate], ready[:, exchanges.gated])
        builder.depend(ready, arrived)
        builder.depend(arrived[:, exchanges.exchange], tasks[:, exchanges.user])
        rows = np.flatnonzero(exchanges.is_rows)
        keys = np.flatnonzero(~exchanges.is_rows)
        priority = place[:, exchanges.maker]
        if len(rows) and self.plan.ep > 1:
            self._exchange_rows(rows, ready, arrived, priority)
        if len(keys) and self.plan.cp > 1:
            came_in = self._steps(keys, ready, arrived, priority)
            return arrived, came_in.reshape(len(came_in), len(tasks), len(keys), tasks.shape[-1])
        return arrived, None

    def _exchange_rows(
        self, rows: NDArray[np.intp], ready: Nodes, arrived: Nodes, priority: NDArray[np.int64]
    ) -> None:
        """Add a transfer from each replica to each that has other experts."""
        plan, exchanges = self.plan, self.exchanges
        gpus = self._block(self.gpus[exchanges.device[rows]])
        starts, ends = (self._block(nodes[:, rows]) for nodes in (ready, arrived))
        to_experts = np.array([exchanges.what[row] is Exchanged.TO_EXPERTS for row in rows])
        startup_us, wire = self._costs("all_to_all", self.gpus[0, : plan.block : plan.cp], rows)
        source = np.arange(plan.ep)
        for step in range(1, plan.ep):
            target = (source + step) % plan.ep
            # Part of the rows that goes from each replica to the one that many on. [exchanges, ep]
            shares = exchanges.shares[rows]
            part = np.where(to_experts[:, None], shares[:, target], shares)
            size_bytes = part * (exchanges.size_bytes[rows] * wire * self.repeats)[:, None]
            sends = self.builder.transfers(
                np.broadcast_to(gpus, starts.shape),
                gpus[:, :, target],
                size_bytes[:, None, :, None],
                priority[:, rows, None, None, None],
                startup_us=startup_us[:, None, None, None],
                kind=EXPERT,
            )
            self.builder.depend(starts, sends)
            self.builder.depend(sends, ends[:, :, :, target])

    def _steps(
        self, keys: NDArray[np.intp], ready: Nodes, arrived: Nodes, priority: NDArray[np.int64]
    ) -> Nodes:
        """Return the steps of a ring where they come in. [steps, micro-batches, keys, blocks, ep, cp]"""
        exchanges = self.exchanges
        gpus = self._block(self.gpus[exchanges.device[keys]])
        starts, ends = (self._block(nodes[:, keys]) for nodes in (ready, arrived))
        shape = (self.plan.cp - 1, *starts.shape)
        startup_us, wire = self._costs("send", self.gpus[0, :2], keys)
        sends = self.builder.transfers(
            np.broadcast_to(gpus, shape),
            np.roll(gpus, -1, axis=-1),
            (exchanges.size_bytes[keys] * wire * self.repeats)[:, None, None, None],
            priority[:, keys, None, None, None],
            startup_us=startup_us[:, None, None, None],
            kind=CONTEXT,
        )
        self.builder.depend(starts, sends[0])
        came_in = np.roll(sends, 1, axis=-1)
        self.builder.depend(came_in[:-1], sends[1:])
        self.builder.depend(came_in, ends)
        return came_in

    def _costs(
        self, kind: str, members: NDArray[np.int32], which: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start-up [us] and bytes on the wire for each byte of calls among some GPUs. [exchanges]"""
        if self.library is None:
            return np.zeros(1), np.ones(len(which))
        startup_us, wire = self.library.ring_costs(
            kind, members[None], self.exchanges.size_bytes[which, None]
        )
        return startup_us[:, 0], wire[:, 0]

    def _block(self, table: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return a table over replicas by blocks: [..., blocks, ep, cp]."""
        return table.reshape(*table.shape[:-1], -1, self.plan.ep, self.plan.cp)
