"""What the cuts of ops cost: the tables that the choice of split dimensions minimises.

A leading op brings its followers along, so every cost depends on the cut of one leading op or of
two: compute and gradient synchronisation on one, traffic of an edge on the two that its ends
follow. Forward edges, gradients on the way back and saved activations are all edges of the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, frozen
from sipml_core.model import Op, Operand, OpGraph, Phase, Prices, Role, precision
from sipml_core.partition.layouts import leader_index, leads
from sipml_core.partition.overlap import BoxKey, box_key
from sipml_core.partition.partitioning import WHOLE, Cut, following_cut, own_cut
from sipml_core.partition.slices import SliceTimes

Table = NDArray[np.float64]


@frozen(kw_only=True)
class Budget:
    """What a layout is costed for."""

    #: Devices of a group, and time a sub-op aims at. [us]
    mp: int
    tau_us: float
    #: Replicas.
    dp: int
    #: Bandwidth of traffic inside a group, and of gradients between replicas.
    prices: Prices
    #: Activations are made again on the way back, so they take no memory to speak of.
    recompute: bool = False
    #: Of one parameter's gradient, kept and sent; None: that of its tensor. [bytes]
    gradient_bytes: int | None = None

    def traffic_us(self, size_bytes: float) -> float:
        """Return the time that one device sends that many bytes to others of its group for. [us]"""
        return size_bytes / (self.prices.group_gbps * BYTES_PER_US_PER_GBPS)

    def sync_us(self, size_bytes: float) -> float:
        """Return the time that one device sends that many bytes of gradients for. [us]"""
        return size_bytes / (self.prices.replica_gbps * BYTES_PER_US_PER_GBPS)


@frozen(kw_only=True, eq=False)
class Variable:
    """One leading op and what each way to cut it costs. [cuts]"""

    op: Op
    cuts: tuple[Cut, ...]
    #: Its slices and its followers', each op's longest slice. [us]
    compute_us: Table
    #: The part of it that is backward work, which synchronisation can hide behind. [us]
    backward_us: Table
    #: Traffic between the op and its own followers. [us]
    traffic_us: Table
    #: Gradient synchronisation if nothing hides it. [us]
    sync_us: Table
    #: Parameters with gradients and optimizer state, and saved activations, on one device. [bytes]
    memory_bytes: Table


@frozen(kw_only=True, eq=False)
class SplitCosts:
    """All costs of one graph."""

    variables: tuple[Variable, ...]
    #: Traffic between two variables u < v. [cuts of u, cuts of v] [us]
    pairs: dict[tuple[int, int], Table]


def split_costs(graph: OpGraph, times: SliceTimes, budget: Budget) -> SplitCosts:
    """Return the cost tables of `graph`.

    Traffic of an edge is the time of the busiest port, as if part p of P sat on device
    floor(p mp / P) (placer "aligned") and nothing else used the network; a box that several ops of
    one leader need is sent once.
    """
    return _Costing(graph, times, budget).tables()


class _End(NamedTuple):
    """An operand of an op: where an edge begins or ends."""

    op: Op
    operand: Operand
    #: Its place in ``(*op.reads, *op.writes)``.
    place: int


class _Costing:
    """The tables of one graph. Equal layers have equal tables, which are made once (`AlikeOps`)."""

    def __init__(self, graph: OpGraph, times: SliceTimes, budget: Budget) -> None:
        self.graph, self.times, self.rule, self.budget = graph, times, times.rule, budget
        self.shape = {tensor.name: tensor.shape for tensor in graph.tensors}
        self.leading = [op for op in graph.ops if leads(op)]
        number = {op.name: index for index, op in enumerate(self.leading)}
        leader = leader_index(graph)
        self.variable = {op.name: number[graph.ops[leader[i]].name] for i, op in enumerate(graph.ops)}
        self._cuts_of: dict[Hashable, tuple[Cut, ...]] = {}
        self.cuts = [self._candidates(op) for op in self.leading]
        self.followers: dict[int, list[Op]] = defaultdict(list)
        for op in graph.ops:
            self.followers[self.variable[op.name]].append(op)
        self._saved = self._saved_reads()
        self._owners = _parameter_owners(graph)
        self._crossing: dict[tuple[BoxKey, BoxKey], int] = {}
        self._keys: dict[Hashable, BoxKey] = {}

    def tables(self) -> SplitCosts:
        """Return all tables."""
        pairs = self._traffic()
        made: dict[Hashable, tuple[Table, Table, Table, Table]] = {}
        variables = []
        for index, op in enumerate(self.leading):
            own = pairs.pop((index, index), None)
            kind = self._kind(index)
            if kind not in made:
                made[kind] = self._own_tables(index)
            compute_us, backward_us, sync_us, memory_bytes = made[kind]
            variables.append(
                Variable(
                    op=op,
                    cuts=self.cuts[index],
                    compute_us=compute_us,
                    backward_us=backward_us,
                    traffic_us=np.zeros(len(self.cuts[index])) if own is None else own.diagonal(),
                    sync_us=sync_us,
                    memory_bytes=memory_bytes,
                )
            )
        return SplitCosts(variables=tuple(variables), pairs=pairs)

    def _kind(self, index: int) -> Hashable:
        """Return what the variable's own tables depend on: equal layers have equal ones."""
        number, local = self.times.alike.number, dict[str, int]()
        op = self.leading[index]
        saved = [
            (number(end.op), end.place, local.setdefault(end.operand.tensor, len(local)))
            for end in self._saved[index]
        ]
        return (
            self.cuts[index],
            tuple((number(follower), self.times.subject(follower)) for follower in self.followers[index]),
            tuple(self._owners.get(operand.tensor) == op.name for operand in op.reads),
            tuple(saved),
        )

    def _own_tables(self, index: int) -> tuple[Table, Table, Table, Table]:
        """Return compute, its backward part, synchronisation [us]; memory [bytes] of a variable. [cuts]"""
        cuts = self.cuts[index]
        # Longest slice of each follower under each cut. [cuts, followers]
        compute = [[self._longest_us(o, cut) for o in self.followers[index]] for cut in cuts]
        backward = np.array([o.phase is Phase.BACKWARD for o in self.followers[index]])
        return (
            np.sum(compute, axis=1),
            np.asarray(compute) @ backward,
            np.array([self._sync_us(index, cut) for cut in cuts]),
            np.array([self._memory_bytes(index, cut) for cut in cuts]),
        )

    def _saved_reads(self) -> dict[int, list[_End]]:
        """Return activations of the forward pass that backward ops read, by variable."""
        saved: dict[int, list[_End]] = defaultdict(list)
        made = {o.tensor for op in self.graph.ops if op.phase is Phase.FORWARD for o in op.writes}
        for op in self.graph.ops:
            if op.phase is Phase.BACKWARD and not self.budget.recompute:
                ends = [_End(op, o, place) for place, o in enumerate(op.reads) if o.tensor in made]
                saved[self.variable[op.name]] += ends
        return saved

    def _candidates(self, op: Op) -> tuple[Cut, ...]:
        kind = self.times.alike.number(op), self.times.subject(op)
        if kind not in self._cuts_of:
            whole_us = self.times.kernel_us(op)
            budget = self.budget
            cuts = [own_cut(op, dim, whole_us, mp=budget.mp, tau_us=budget.tau_us) for dim in op.splits]
            self._cuts_of[kind] = tuple(dict.fromkeys([WHOLE, *cuts]))
        return self._cuts_of[kind]

    def _cut_of(self, op: Op, leader: Cut) -> Cut:
        return leader if leads(op) else following_cut(op, leader)

    def _longest_us(self, op: Op, leader: Cut) -> float:
        cut = self._cut_of(op, leader)
        parts = 1 if cut.dim is None else cut.parts
        return float(self.times.durations_us(op, cut.dim, parts).max())

    def _key(self, end: _End, leader: Cut) -> BoxKey:
        op, operand, place = end
        kind = self.times.alike.number(op), place, leader.dim, leader.parts
        if kind not in self._keys:
            cut = self._cut_of(op, leader)
            self._keys[kind] = box_key(op, operand, self.shape[operand.tensor], cut.dim, cut.parts)
        return self._keys[kind]

    def _traffic(self) -> dict[tuple[int, int], Table]:
        """Return traffic of all edges, by the variables at their ends; the diagonal where both are one."""
        if self.budget.mp == 1:  # nothing leaves its device
            return {}
        readers: dict[tuple[str, int], list[_End]] = defaultdict(list)
        for op in self.graph.ops:
            for place, operand in enumerate(op.reads):
                if self.graph.tensor[operand.tensor].role is Role.ACTIVATION:
                    readers[operand.tensor, self.variable[op.name]].append(_End(op, operand, place))
        writers = {end.operand.tensor: end for op in self.graph.ops for end in _written(op)}
        pairs: dict[tuple[int, int], Table] = {}
        made: dict[Hashable, Table] = {}
        for (tensor, target), reads in readers.items():
            if tensor in writers:
                source = self.variable[writers[tensor].op.name]
                kind = self._edge_kind(source, target, (writers[tensor], *reads))
                if kind not in made:
                    made[kind] = self._tensor_traffic(source, target, writers[tensor], reads)
                table = made[kind]
                pair, table = ((source, target), table) if source <= target else ((target, source), table.T)
                pairs[pair] = pairs[pair] + table if pair in pairs else table
        return pairs

    def _edge_kind(self, source: int, target: int, ends: tuple[_End, ...]) -> Hashable:
        """Return what the traffic of one tensor depends on."""
        operands = tuple((self.times.alike.number(end.op), end.place) for end in ends)
        return id(self.cuts[source]), id(self.cuts[target]), operands

    def _tensor_traffic(self, source: int, target: int, write: _End, reads: list[_End]) -> Table:
        """Return the time of one tensor to the ops of one leader, a box sent once: the largest need counts.

        [cuts of source, cuts of target] [us]
        """
        held = [self._key(write, cut) for cut in self.cuts[source]]
        needed = [{self._key(read, cut) for read in reads} for cut in self.cuts[target]]
        element_bytes = self.graph.tensor[write.operand.tensor].element_bytes
        elements = [[max(self._busiest(h, n) for n in ns) for ns in needed] for h in held]
        return np.asarray(self.budget.traffic_us(1.0) * element_bytes * np.array(elements))

    def _busiest(self, held: BoxKey, needed: BoxKey) -> int:
        """Return the most elements that one device sends or receives."""
        if (held, needed) not in self._crossing:
            met, mp = self.rule.overlap(held, needed), self.budget.mp
            source, target = met.src * mp // held[1], met.dst * mp // needed[1]
            crossing = np.where(source != target, met.elements, 0)
            sent, received = np.bincount(source, crossing), np.bincount(target, crossing)
            self._crossing[held, needed] = int(max(sent.max(initial=0), received.max(initial=0)))
        return self._crossing[held, needed]

    def _sync_us(self, index: int, leader: Cut) -> float:
        """Return the time to all-reduce each gradient over all n that hold a part: 2 (n - 1) / n of it."""
        total = 0.0
        for op in self.followers[index]:
            for end in _written(op):
                tensor = self.graph.tensor[end.operand.tensor]
                if tensor.role is Role.GRADIENT:
                    key = self._key(end, leader)
                    boxes = self.rule.boxes(key)
                    size = self._largest(key) * (self.budget.gradient_bytes or tensor.element_bytes)
                    holders = len(boxes.lo) // len(set(map(tuple, boxes.lo.tolist())))
                    members = holders * self.budget.dp
                    total += self.budget.sync_us(2.0 * (members - 1) / members * size)
        return total

    def _memory_bytes(self, index: int, cut: Cut) -> float:
        held = precision(self.graph.precision)
        gradient_bytes = self.budget.gradient_bytes or held.gradient_bytes
        state_bytes = held.parameter_bytes + gradient_bytes + held.optimizer_bytes
        op = self.leading[index]
        parameters = sum(
            self._largest(self._key(_End(op, operand, place), cut))
            for place, operand in enumerate(op.reads)
            if self._owners.get(operand.tensor) == op.name
        )
        saved: dict[str, float] = {}
        for end in self._saved[index]:
            tensor = self.graph.tensor[end.operand.tensor]
            size = self._largest(self._key(end, cut)) * tensor.element_bytes
            saved[tensor.name] = max(saved.get(tensor.name, 0.0), size)
        return parameters * state_bytes + sum(saved.values())

    def _largest(self, key: BoxKey) -> float:
        """Return the elements of the largest part's box."""
        boxes = self.rule.boxes(key)
        return float((boxes.hi - boxes.lo).prod(axis=1).max())


def _written(op: Op) -> list[_End]:
    return [_End(op, operand, place) for place, operand in enumerate(op.writes, len(op.reads))]


def _parameter_owners(graph: OpGraph) -> dict[str, str]:
    """Return the first op that reads each parameter: a shared one is counted there."""
    owners: dict[str, str] = {}
    for op in graph.ops:
        for operand in op.reads:
            if graph.tensor[operand.tensor].role is Role.PARAMETER:
                owners.setdefault(operand.tensor, op.name)
    return owners
