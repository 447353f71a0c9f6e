"""What the engine runs: compute tasks, transfers and barriers of the whole job, as flat arrays."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import bool_vector, float32_vector, float64_vector, frozen, int32_vector

#: `gpu` of a node that occupies no GPU: it fires when its predecessors have, or its duration later.
BARRIER = -1


def _below_one(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    if not 0 <= value < 1:
        raise SipmlError(f"TaskGraph.{attribute.name} must be at least 0 and below 1, got {value!r}")


@frozen(kw_only=True, eq=False)
class TaskGraph:
    """Nodes 0 .. C-1 are compute tasks and barriers, C .. C+T-1 are transfers.

    `successors[succ_start[i] : succ_start[i + 1]]` are the nodes that wait for node i.
    """

    gpus: int
    #: GPU of each task, or BARRIER. [C]
    gpu: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Time each task occupies its GPU; of a barrier, how long after its predecessors it fires. [C] [us]
    duration_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Among ready tasks of one GPU, and queued transfers of one pair, the lowest runs first. [C + T]
    priority: NDArray[np.int32] = attrs.field(converter=int32_vector)

    src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: [T] [bytes]
    size_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Times the route latency is paid: 1, or the steps that a fluid collective stands for; exact if whole and
    #: below 2^24. [T]
    latency_steps: NDArray[np.float32] = attrs.field(converter=float32_vector)

    succ_start: NDArray[np.int32] = attrs.field(converter=int32_vector)
    successors: NDArray[np.int32] = attrs.field(converter=int32_vector)

    #: Barrier nodes at whose firing the engine takes a snapshot of its accounts (ends of iterations).
    marks: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: What kind of work each compute task is, an index into `labels`. [C]
    label: NDArray[np.int32] = attrs.field(converter=int32_vector)
    labels: tuple[str, ...] = ()
    #: What each transfer takes besides its bytes and latency, as a communication library does; none: nothing.
    #: [T], or empty [us]
    startup_us: NDArray[np.float64] = attrs.field(factory=lambda: np.zeros(0), converter=float64_vector)
    #: Why each transfer is sent, an index into `TRAFFIC_KINDS`; None: not known. [T]
    kind: NDArray[np.int8] | None = None
    #: Part of its speed that a GPU loses while it sends: kernels of a communication library take their place.
    slowdown: float = attrs.field(default=0.0, validator=_below_one)
    #: Which transfers do that; empty: all. [T]
    slows: NDArray[np.bool_] = attrs.field(factory=lambda: np.zeros(0, bool), converter=bool_vector)

    @property
    def compute_tasks(self) -> int:
        return len(self.gpu)

    @property
    def transfers(self) -> int:
        return len(self.src)

    @property
    def nodes(self) -> int:
        return len(self.gpu) + len(self.src)

    @property
    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return source and destination of each transfer. [T], [T]"""
        return self.src, self.dst

    @property
    def total_bytes(self) -> float:
        """Return what all transfers send. [bytes]"""
        return float(self.size_bytes.sum())

    def node_name(self, node: int) -> str:
        """For messages: what a node is and where."""
        if node >= len(self.gpu):
            t = node - len(self.gpu)
            return transfer_name(t, self.src[t], self.dst[t], self.size_bytes[t])
        kind = self.labels[self.label[node]] if self.labels else "task"
        return f"barrier {node}" if self.gpu[node] == BARRIER else f"{kind} {node} on GPU {self.gpu[node]}"

    def __attrs_post_init__(self) -> None:
        compute, transfers = len(self.gpu), len(self.src)
        lengths = {
            "duration_us": (len(self.duration_us), compute),
            "priority": (len(self.priority), compute + transfers),
            "dst": (len(self.dst), transfers),
            "size_bytes": (len(self.size_bytes), transfers),
            "latency_steps": (len(self.latency_steps), transfers),
            "succ_start": (len(self.succ_start), compute + transfers + 1),
            "startup_us": (len(self.startup_us), transfers if len(self.startup_us) else 0),
            "slows": (len(self.slows), transfers if len(self.slows) else 0),
            "label": (len(self.label), compute if self.labels else len(self.label)),
        }
        for name, (got, expected) in lengths.items():
            if got != expected:
                raise SipmlError(f"TaskGraph.{name} must have {expected} entries, got {got}")
        self._check_values()

    def _check_values(self) -> None:
        _all_in("gpu", self.gpu, BARRIER, self.gpus)
        _all_in("src", self.src, 0, self.gpus)
        _all_in("dst", self.dst, 0, self.gpus)
        _all_in("successors", self.successors, 0, self.nodes)
        _all_in("marks", self.marks, 0, len(self.gpu))
        for name in ("duration_us", "size_bytes", "latency_steps", "startup_us"):
            values = getattr(self, name)
            if len(values) and not (np.isfinite(values).all() and values.min() >= 0):
                raise SipmlError(f"TaskGraph.{name} must be finite and not negative")
        if (self.src == self.dst).any():
            raise SipmlError("TaskGraph: a transfer's source and destination must differ")


def transfer_name(transfer: int, src: int, dst: int, size_bytes: float) -> str:
    """For messages: what a transfer sends and where."""
    return f"transfer {transfer} ({src} -> {dst}, {size_bytes:.0f} bytes)"


def _all_in(name: str, values: NDArray[np.int32], low: int, stop: int) -> None:
    if len(values) and (values.min() < low or values.max() >= stop):
        raise SipmlError(f"TaskGraph.{name} must be from {low} to {stop - 1}")
