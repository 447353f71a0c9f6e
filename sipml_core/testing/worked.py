"""The worked example of the doctests of `lowering`: two layers on the three devices of a group.

Layer f is whole and sits on device 0; layer g is cut in three, one part on each device. f makes y, which
every part of g needs; going back, every part of g' makes a part of the sum dy, which f' needs. Sub-ops by
number:

    ====================  ==========  =======
    sub-op                number      device
    ====================  ==========  =======
    f   reads x w         0           0
    g   reads y v         1, 2, 3     0, 1, 2
    g'  reads y z         4, 5, 6     0, 1, 2
    f'  reads x dy        7           0
    update of w           8           0
    update of v           9, 10, 11   0, 1, 2
    ====================  ==========  =======

y and dy have 4 elements of 2 bytes, v has 3, one on each device; w has 4. Every op takes 3 us, a third of
g 1 us.
"""

from __future__ import annotations

import numpy as np

from sipml_core.lowering import GroupTemplate, Lowering, Synchronisation
from sipml_core.model import (
    Axis,
    Cluster,
    Fabric,
    Nodes,
    Op,
    Operand,
    OpGraph,
    OpWork,
    PairArray,
    Phase,
    Placement,
    PlacementLimits,
    Plan,
    Role,
    Routes,
    Split,
    TaskBuilder,
    Tensor,
)
from sipml_core.partition import partition
from sipml_core.plugin import GpuModel


class ThreeMicroseconds(GpuModel):
    """A GPU on which every op takes 3 us, and a slice its share of them."""

    name = "three-microseconds"
    summary = "every op takes 3 us"
    memory_bytes = 1e9

    def op_time_us(self, work: OpWork) -> float:
        """Return 3 us, or the slice's share of them."""
        return 3.0 * work.fraction


def two_layers() -> OpGraph:
    """Return the ops of the worked example."""
    a, b = "activation", "o"

    def along(tensor: str, dim: str) -> Operand:
        return Operand(tensor, (Axis(dim),))

    def tensor(name: str, size: int, role: Role, parameter: str | None = None) -> Tensor:
        return Tensor(name=name, shape=(size,), role=role, element_bytes=2, parameter=parameter)

    def op(name: str, phase: Phase, dims: dict[str, int], reads: str, writes: str, follows: str | None) -> Op:
        of = {"z": b, "v": b, "dv": b}
        return Op(
            name=name,
            kind="matmul",
            phase=phase,
            dims=dims,
            splits={b: Split.COLUMN} if b in dims else {},
            flops=1.0,
            reads=tuple(along(t, of.get(t, a)) for t in reads.split()),
            writes=tuple(along(t, of.get(t, a)) for t in writes.split()),
            follows=follows,
        )

    f, g = {a: 4}, {a: 4, b: 3}
    return OpGraph(
        name="two layers",
        samples=1,
        precision="mixed",
        tensors=(
            tensor("x", 4, Role.INPUT),
            tensor("w", 4, Role.PARAMETER),
            tensor("y", 4, Role.ACTIVATION),
            tensor("v", 3, Role.PARAMETER),
            tensor("z", 3, Role.ACTIVATION),
            tensor("dy", 4, Role.ACTIVATION),
            tensor("dv", 3, Role.GRADIENT, "v"),
            tensor("dw", 4, Role.GRADIENT, "w"),
        ),
        ops=(
            op("f", Phase.FORWARD, f, "x w", "y", None),
            op("g", Phase.FORWARD, g, "y v", "z", None),
            op("g'", Phase.BACKWARD, g, "y z", "dy dv", "g"),
            op("f'", Phase.BACKWARD, f, "x dy", "dw", "f"),
            op("update w", Phase.OPTIMIZER, f, "w dw", "", "f"),
            op("update v", Phase.OPTIMIZER, {b: 3}, "v dv", "", "g"),
        ),
    )


def placed() -> Placement:
    """Return the sub-ops of the worked example on their devices."""
    cluster = Cluster(gpus=3, bandwidth_gbps=1.0, minimum_op_us=0.0, launch_us=0.0)
    gpu = ThreeMicroseconds(ThreeMicroseconds.Options())
    graph = partition(two_layers(), gpu, cluster, mp=3, tau_us=1.0, layout={"f": None, "g": "o"})
    device = np.array([0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2], dtype=np.int32)
    return Placement(graph=graph, limits=PlacementLimits(devices=3), device=device)


def lowering(dp: int = 2) -> Lowering:
    """Return the worked example on dp groups of three GPUs each: GPU 3 g + d is device d of group g."""
    plan = Plan(mp=3, dp=dp, global_batch=dp)
    return Lowering.of(GroupTemplate.of(placed(), plan), Cluster(gpus=3 * dp, bandwidth_gbps=1.0))


def synchronisation(dp: int = 2) -> tuple[Synchronisation, TaskBuilder, Nodes]:
    """Return what adds the all-reduces of the worked example, to what, and the tasks. [tasks, groups]"""
    job, builder = lowering(dp), TaskBuilder(3 * dp, ("matmul", "sync"))
    tasks = builder.tasks(job.gpu_of.T[job.template.group.device], 1.0, 0, 0)
    return job.iteration(builder, dp).synchronisation(tasks), builder, tasks


def switch(gpus: int, gbps: float = 1.0) -> Fabric:
    """Return a switch of ports of `gbps`: link i leaves GPU i, link gpus + i enters it."""

    def route(src: PairArray, dst: PairArray) -> Routes:
        return Routes(links=np.column_stack([src, gpus + dst]), latency_us=np.zeros(len(src)))

    return Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, gbps), route=route)
