"""Balanced graphs written down by hand, a two-layer network for `partition`, and a flat fabric."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import attrs
import numpy as np
import pytest

from sipml_core.model.balanced import MAX_RANK, BalancedGraph, Placement, PlacementLimits
from sipml_core.model.fabric import Fabric
from sipml_core.model.network import Network
from sipml_core.model.opgraph import Axis, Op, Operand, OpGraph, Phase, Role, Split, Tensor
from sipml_core.model.routes import Routes
from sipml_core.plugin.interfaces import GpuModel, NoOptions


@attrs.define
class HandGraph:
    """A balanced graph, sub-op by sub-op: sub-op "b.1" is part 1 of op "b"."""

    precision: str = "fp32"
    tensors: list[Tensor] = attrs.Factory(list)
    ops: list[Op] = attrs.Factory(list)
    parts: list[int] = attrs.Factory(list)
    us: list[float] = attrs.Factory(list)
    edges: list[tuple] = attrs.Factory(list)
    shards: list[tuple] = attrs.Factory(list)

    def tensor(self, name, *shape, role=Role.ACTIVATION, parameter=None, element_bytes=4):
        self.tensors.append(
            Tensor(name=name, shape=shape, role=role, element_bytes=element_bytes, parameter=parameter)
        )

    def op(self, name, *, us=10.0, parts=1, phase=Phase.FORWARD, reads=(), writes=(), follows=None):
        shapes = {tensor.name: tensor.shape for tensor in self.tensors}

        def operands(names):
            return tuple(Operand(tensor, tuple(Axis(None) for _ in shapes[tensor])) for tensor in names)

        self.ops.append(
            Op(
                name=name, kind=phase.value, phase=phase, dims={}, splits={}, flops=0.0,
                reads=operands(reads), writes=operands(writes), follows=follows,
            )
        )  # fmt: skip
        self.parts.append(parts)
        self.us += [us] * parts

    def edge(self, src, dst, tensor, *box):
        """Box as (lo, hi) per axis."""
        self.edges.append((src, dst, tensor, box))

    def shard(self, subop, tensor, *box):
        self.shards.append((subop, tensor, box))

    def subop(self, name):
        op, part = name.split(".")
        number = [o.name for o in self.ops].index(op)
        return sum(self.parts[:number]) + int(part)

    def _box(self, box, side):
        row = np.full(MAX_RANK, side, dtype=np.int32)
        row[: len(box)] = [axis[side] for axis in box]
        return row

    def balanced(self):
        numbers = {tensor.name: index for index, tensor in enumerate(self.tensors)}
        no_box = np.empty((0, MAX_RANK), dtype=np.int32)

        def boxes(rows, side):
            return np.array([self._box(row[-1], side) for row in rows]) if rows else no_box

        return BalancedGraph(
            graph=OpGraph(
                name="hand", samples=1, precision=self.precision,
                tensors=tuple(self.tensors), ops=tuple(self.ops),
            ),
            split_dim=(None,) * len(self.ops),
            first=np.concatenate([[0], np.cumsum(self.parts)]),
            duration_us=np.array(self.us),
            edge_src=[self.subop(e[0]) for e in self.edges],
            edge_dst=[self.subop(e[1]) for e in self.edges],
            edge_tensor=[numbers[e[2]] for e in self.edges],
            edge_lo=boxes(self.edges, 0),
            edge_hi=boxes(self.edges, 1),
            shard_subop=[self.subop(s[0]) for s in self.shards],
            shard_tensor=[numbers[s[1]] for s in self.shards],
            shard_lo=boxes(self.shards, 0),
            shard_hi=boxes(self.shards, 1),
        )  # fmt: skip

    def placed(self, devices, mp, range_hops=None):
        """Placement from the device of each sub-op, in order."""
        limits = PlacementLimits(devices=mp, range_hops=range_hops)
        return Placement(graph=self.balanced(), limits=limits, device=np.array(devices))

    def layers(self, count=4, size=100):
        """A chain of layers on one GPU, each with a parameter of `size` elements; backward in reverse."""
        for k in range(count):
            self.tensor(f"a{k}", 10)
            self.tensor(f"w{k}", size, role=Role.PARAMETER)
            self.tensor(f"dw{k}", size, role=Role.GRADIENT, parameter=f"w{k}")
        for k in range(count):
            self.op(f"f{k}", reads=[f"w{k}", *([f"a{k - 1}"] if k else [])], writes=[f"a{k}"])
        self.tensor(f"d{count}", 10)
        for k in reversed(range(count)):
            self.tensor(f"d{k}", 10)
            self.op(
                f"b{k}", phase=Phase.BACKWARD, reads=[f"a{k}"], writes=[f"d{k}", f"dw{k}"], follows=f"f{k}"
            )
        for k in range(count):
            self.op(f"u{k}", us=1.0, phase=Phase.OPTIMIZER, reads=[f"w{k}", f"dw{k}"], follows=f"f{k}")
        for k in range(count):
            if k:
                self.edge(f"f{k - 1}.0", f"f{k}.0", f"a{k - 1}", (0, 10))
                self.edge(f"b{k}.0", f"b{k - 1}.0", f"d{k}", (0, 10))
            self.edge(f"f{k}.0", f"b{k}.0", f"a{k}", (0, 10))
            self.shard(f"b{k}.0", f"dw{k}", (0, size))
            self.shard(f"u{k}.0", f"dw{k}", (0, size))
        return self.placed([0] * (3 * count), mp=1)


class FlopClock(GpuModel):
    """A GPU that does one FLOP in one us, so that times in these tests are FLOPs."""

    name = "flop-clock"
    summary = "1 FLOP = 1 us"
    memory_bytes = 1e12

    def op_time_us(self, work):
        return work.flops


def perceptron(samples=8, inputs=4, hidden=6, outputs=5, layers=2, precision="fp32"):
    """Linear layers with backward and optimizer ops; op k reads activation k and weight k."""
    widths = [inputs, *[hidden] * (layers - 1), outputs]
    tensors, forward, backward, optimizer = [], [], [], []

    def tensor(name, shape, role=Role.ACTIVATION, parameter=None):
        size = 2 if precision == "mixed" else 4
        tensors.append(Tensor(name=name, shape=shape, role=role, element_bytes=size, parameter=parameter))

    def op(name, k, phase, reads, writes):
        axes = {"a": "ni", "w": "io", "b": "no", "da": "ni", "db": "no", "dw": "io"}

        def operand(short):
            which = {"a": f"a{k}", "b": f"a{k + 1}", "da": f"da{k}", "db": f"da{k + 1}"}
            tensor = which.get(short, f"{short}{k}")
            return Operand(tensor, tuple(Axis(dim) for dim in axes[short]))

        return Op(
            name=f"{name}{k}", kind="matmul", phase=phase, flops=40.0,
            dims={"n": samples, "i": widths[k], "o": widths[k + 1]},
            splits={"n": Split.SAMPLE, "o": Split.COLUMN, "i": Split.ROW},
            reads=tuple(operand(r) for r in reads), writes=tuple(operand(w) for w in writes),
            follows=None if phase is Phase.FORWARD else f"f{k}",
        )  # fmt: skip

    for k, width in enumerate(widths):
        tensor(f"a{k}", (samples, width), Role.INPUT if k == 0 else Role.ACTIVATION)
        tensor(f"da{k}", (samples, width), Role.INPUT if k == layers else Role.ACTIVATION)
    for k in range(layers):
        tensor(f"w{k}", (widths[k], widths[k + 1]), Role.PARAMETER)
        tensor(f"dw{k}", (widths[k], widths[k + 1]), Role.GRADIENT, f"w{k}")
        forward.append(op("f", k, Phase.FORWARD, ("a", "w"), ("b",)))
        optimizer.append(op("u", k, Phase.OPTIMIZER, ("w", "dw"), ()))
    for k in reversed(range(layers)):
        backward += [op("data", k, Phase.BACKWARD, ("db", "w"), ("da",))] if k else []
        backward.append(op("weight", k, Phase.BACKWARD, ("a", "db"), ("dw",)))
    return OpGraph(
        name="perceptron", samples=samples, precision=precision,
        tensors=tuple(tensors), ops=(*forward, *backward, *optimizer),
    )  # fmt: skip


def flat_network(tasks, gbps=8.0, latency_us=0.0):
    """Every GPU sends and receives at `gbps` whatever the others do. 8 Gbps carry 1000 bytes in 1 us."""
    gpus = tasks.gpus

    def route(src, dst):
        links = np.column_stack([src, gpus + np.asarray(dst, dtype=np.int64)])
        return Routes(links=links, latency_us=np.full(len(links), latency_us))

    return Network.of(Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, gbps), route=route), tasks)


@pytest.fixture(scope="session")
def fakes():
    """The module fakes.py beside this file."""
    spec = importlib.util.spec_from_file_location("fakes", Path(__file__).parent / "fakes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hand():
    """A new `HandGraph`."""
    return HandGraph()


@pytest.fixture(scope="session")
def flat():
    """`flat_network(tasks, gbps, latency_us)`."""
    return flat_network


@pytest.fixture(scope="session")
def two_layers():
    """`perceptron(...)`: an operation graph."""
    return perceptron


@pytest.fixture(scope="session")
def gpu():
    return FlopClock(NoOptions())
