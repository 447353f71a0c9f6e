"""What a communication library adds to the transfers of a job: start-up times and bytes on the wire."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import CollectiveCall, CollectiveCost
from sipml_core.plugin import Communication

#: Start-up [us] and bytes on the wire for each byte, of transfers or of calls.
Costs = tuple[NDArray[np.float64], NDArray[np.float64]]


@frozen(kw_only=True)
class Library:
    """A communication library on one network."""

    communication: Communication
    #: What a GPU gets to send inside its group, and to counterparts in other replicas. [Gbps]
    group_gbps: float
    replica_gbps: float
    #: Server of each GPU; none: the network has no servers. [gpus]
    server: tuple[int, ...] = ()
    #: Part of a GPU that the library's kernels take while they move a collective.
    slowdown: float = 0.0

    def cost(
        self, kind: str, ranks: int, size_bytes: float, gbps: float, servers: int = 1, *, adds: bool = False
    ) -> CollectiveCost:
        """Return what one call costs; nothing for one rank."""
        if ranks < 2:
            return CollectiveCost()
        return self.communication.cost(
            CollectiveCall(
                kind=kind, ranks=ranks, size_bytes=size_bytes, gbps=gbps, servers=servers, in_network=adds
            )
        )

    def servers_of(self, members: NDArray[np.int32]) -> int:
        """Return how many servers the members of a collective are in."""
        return len({self.server[member] for member in members.tolist()}) if self.server else 1

    def ring_costs(
        self, kind: str, members: NDArray[np.int32], size_bytes: NDArray[np.float64], *, adds: bool = False
    ) -> Costs:
        """Return what calls among members of equal standing cost. [groups, 1] each

        Parameters
        ----------
        members
            GPUs of each call [groups, n]; servers are counted in the first.
        size_bytes
            Of all calls, or of each. [groups, 1]
        """
        servers = self.servers_of(members[0])
        sizes, where = np.unique(np.asarray(size_bytes, dtype=np.float64).reshape(-1), return_inverse=True)
        costs = [
            self.cost(kind, members.shape[-1], float(size), self.replica_gbps, servers, adds=adds)
            for size in sizes
        ]
        shape = np.shape(size_bytes)
        startup_us = np.array([cost.startup_us for cost in costs])[where.reshape(-1)]
        factor = np.array([cost.wire_factor for cost in costs])[where.reshape(-1)]
        return startup_us.reshape(shape), factor.reshape(shape)

    def exchange_costs(self, transfers: Transfers, group: GroupTasks, gpu_of: NDArray[np.int32]) -> Costs:
        """Return what the exchanges of one replica cost. [transfers] each

        Parameters
        ----------
        gpu_of
            GPU of each device of the replica.
        """
        startup_us, factor = np.zeros(len(transfers.sender)), np.ones(len(transfers.sender))
        for call in exchange_calls(transfers, group):
            members = np.unique(np.concatenate([transfers.sender[call.rows], transfers.device[call.rows]]))
            cost = self.cost(
                call.kind, len(members), call.size_bytes, self.group_gbps, self.servers_of(gpu_of[members])
            )
            startup_us[call.rows] = cost.startup_us * call.part
            factor[call.rows] = cost.wire_factor
        # Steps of a tree that follow others have started with them.
        startup_us[transfers.after] = 0.0
        return startup_us, factor


@frozen(kw_only=True, eq=False)
class ExchangeCall:
    """Transfers that a framework would make in one call."""

    kind: str
    size_bytes: float
    #: The transfers. [rows]
    rows: Indices
    #: Part of the call that they are: half of an all-reduce, which is a reduce-scatter and an all-gather.
    part: float


def exchange_calls(transfers: Transfers, group: GroupTasks) -> list[ExchangeCall]:
    """Return the calls that the transfers inside a replica would be: one for each tensor, or pair of stages.

    What repeats work between two all-reduces (`layout = "megatron"`) has all-reduces, each of which is here
    two exchanges.

    Examples
    --------
    In the worked example y goes from device 0 to two others, and parts of dy come back.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.lowering.transfers import plan_transfers
    >>> from sipml_core.testing.worked import placed
    >>> tasks = group_tasks(placed(), recompute=False)
    >>> for call in exchange_calls(plan_transfers(tasks), tasks):
    ...     print(call.kind, call.size_bytes, call.rows, call.part)
    all_gather 8.0 [0 1] 1.0
    reduce_scatter 8.0 [2 3] 1.0
    """
    count = len(transfers.sender)
    if not count:
        return []
    devices = group.placement.limits.devices
    maker = np.full(count, -1, dtype=np.int64)
    maker[transfers.made] = transfers.maker
    again = maker >= group.graph.subops
    stage_from, stage_to = transfers.sender // devices, transfers.device // devices
    halves = bool(group.graph.duplicated.any())

    # One number for each tensor sent between two stages, in first or second runs. [transfers]
    stages = int(max(stage_from.max(), stage_to.max())) + 1
    tensor, sent_bytes = transfers.tensor[transfers.box].astype(np.int64), transfers.size_bytes
    key = ((tensor * 2 + again) * stages + stage_from) * stages + stage_to
    calls = []
    order = np.argsort(key, kind="stable").astype(np.int32)
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        total_bytes = float(sent_bytes[rows].sum())
        if stage_from[rows[0]] != stage_to[rows[0]]:
            largest = float(sent_bytes[rows].max())
            calls.append(ExchangeCall(kind="send", size_bytes=largest, rows=rows, part=1.0))
            continue
        kind = _kind(transfers, rows)
        members = len(np.unique(np.concatenate([transfers.sender[rows], transfers.device[rows]])))
        # All together send n - 1 times the array, or n - 1 parts of what one contributes to an all-to-all.
        size_bytes = total_bytes / (members - 1)
        half = halves and kind != "all_to_all"
        calls.append(
            ExchangeCall(
                kind="all_reduce" if half else kind,
                size_bytes=size_bytes,
                rows=rows,
                part=0.5 if half else 1.0,
            )
        )
    return calls


def _kind(transfers: Transfers, rows: Indices) -> str:
    """Return what an exchange of one tensor is: one box to many, parts of one box to one, or neither."""
    box = transfers.box[rows]
    box = np.column_stack([transfers.lo[box], transfers.hi[box]])
    sent = np.unique(np.column_stack([transfers.sender[rows], box]), axis=0)
    if len(sent) < len(rows):
        return "all_gather"
    summed = np.unique(np.column_stack([transfers.device[rows], box]), axis=0)
    if len(summed) < len(rows):
        return "reduce_scatter"
    pairs = {tuple(sorted(pair)) for pair in zip(transfers.sender[rows], transfers.device[rows], strict=True)}
    return "all_gather" if len(pairs) == 1 else "all_to_all"
