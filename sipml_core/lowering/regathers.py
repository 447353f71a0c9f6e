"""When what was gathered on the way forward is gathered again: with the gradient that it meets."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.lowering.grouptasks import GroupTasks, Indices, is_phase
from sipml_core.lowering.transfers import Transfers, gathered_again
from sipml_core.model import Phase


def with_gradients(transfers: Transfers, tasks: GroupTasks) -> Transfers:
    """Return the same transfers; those that go back wait for the gradients that come with them.

    A sender waits for what its own part of the reading op waits for; without such a part, for what the
    receivers' parts wait for. So the gather runs beside the op that makes the other gradient.
    """
    if not transfers.back.any():
        return transfers
    edges = np.flatnonzero(gathered_again(tasks))
    gates = _Gates(tasks)
    found: dict[int, set[int]] = {}
    for maker, reader in zip(tasks.edge_src[edges].tolist(), tasks.edge_dst[edges].tolist(), strict=True):
        found.setdefault(maker, set()).update(gates.of(int(tasks.device[maker]), reader))
    pairs = [
        (gate, transfer)
        for maker, transfer in zip(transfers.maker.tolist(), transfers.made.tolist(), strict=True)
        if transfers.back[transfer]
        for gate in sorted(found.get(maker, ()))
    ]
    gate, made = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return attrs.evolve(
        transfers,
        maker=np.concatenate([transfers.maker, gate]),
        made=np.concatenate([transfers.made, made]),
    )


class _Gates:
    """Backward tasks that others wait for on their device."""

    def __init__(self, tasks: GroupTasks) -> None:
        self._tasks = tasks
        backward = is_phase(tasks.graph, Phase.BACKWARD)[tasks.subop]
        src, dst = tasks.edge_src, tasks.edge_dst
        local = (tasks.device[src] == tasks.device[dst]) & backward[src]
        order = np.argsort(dst[local], kind="stable")
        self._dst, self._src = dst[local][order], src[local][order]
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def of(self, device: int, reader: int) -> tuple[int, ...]:
        """Return what the part of the reader's op on a device waits for; else what the reader does."""
        op = int(self._tasks.op[reader])
        if (device, op) not in self._known:
            same = np.flatnonzero((self._tasks.op == op) & (self._tasks.device == device)).astype(np.int32)
            self._known[device, op] = self._before(same)
        return self._known[device, op] or self._before(np.array([reader], dtype=np.int32))

    def _before(self, readers: Indices) -> tuple[int, ...]:
        first = np.searchsorted(self._dst, readers, side="left")
        last = np.searchsorted(self._dst, readers, side="right")
        return tuple(
            sorted({int(t) for a, b in zip(first, last, strict=True) for t in self._src[a:b].tolist()})
        )
