"""The five things a plugin can bring. Subclass one, return the class from its hook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import attrs

from sipml_core.model import (
    BalancedGraph,
    CircuitControl,
    CircuitPlan,
    Cluster,
    Fabric,
    OpGraph,
    OpWork,
    Placement,
    PlacementLimits,
    TrafficMatrix,
)


@attrs.frozen(kw_only=True)
class NoOptions:
    """For a class that takes no options."""


class Component(ABC):
    """What all five have in common: a name, one line of summary, and checked options.

    `Options` is a frozen, keyword-only attrs class: its fields are the keys of the TOML table, their
    defaults the defaults, the ``metadata={"doc": ..., "unit": ...}`` of each field its documentation.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Any) -> None:
        self.options = options


class Topology(Component):
    """An interconnect."""

    #: Scheduler used where the experiment names none (circuit networks only).
    scheduler: ClassVar[str | None] = None

    @abstractmethod
    def build(self, cluster: Cluster) -> Fabric:
        """The fabric that joins `cluster.gpus` GPUs of `cluster.bandwidth_gbps` each.

        Raises `ConfigError` naming the key if such a network cannot exist.
        """


class Placer(Component):
    """Gives every sub-op a device of its group."""

    @abstractmethod
    def place(self, graph: BalancedGraph, limits: PlacementLimits) -> Placement:
        """A placement that keeps `limits` for every edge, or `InfeasibleError`."""


class Scheduler(Component):
    """Decides circuits.

    `demand` of the traffic matrix is in bytes; pairs are only ones that `control.may_connect`.
    """

    #: Traffic estimator used where the experiment names none.
    estimator: ClassVar[str] = "window"

    #: Gives GPUs that want the same the same: see `CircuitControl.folded`.
    treats_alike: ClassVar[bool] = False

    @abstractmethod
    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        """Circuits for the next interval (for the whole job if `control.interval_us` is None).

        Raises `ConfigError` if this scheduler cannot control such circuits.
        """


class GpuModel(Component):
    """Time and memory of one GPU."""

    #: Whether `op_time_us` reads the name of the op (`OpWork.op`). False: ops that do the same work take the
    #: same time, and a model's equal layers are asked for once.
    names_matter: ClassVar[bool] = True

    @property
    @abstractmethod
    def memory_bytes(self) -> float:
        """Device memory. [bytes]"""

    @abstractmethod
    def op_time_us(self, work: OpWork) -> float:
        """Time the kernel runs, launch latency not included. [us]"""


@attrs.frozen(kw_only=True)
class Convergence:
    """Steps a model needs to reach its target accuracy at one global batch."""

    steps: float
    #: The batch lies outside the measured range.
    extrapolated: bool
    source: str


class Workload(Component):
    """A model to train."""

    #: Global batch used where the experiment names none.
    default_global_batch: ClassVar[int]

    @abstractmethod
    def graph(self, samples: int, precision: str) -> OpGraph:
        """Forward, backward and optimizer ops for a batch of `samples` on one replica."""

    @abstractmethod
    def convergence(self, global_batch: int) -> Convergence:
        """Steps to the target accuracy."""
