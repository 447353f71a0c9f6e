"""The things a plugin can bring. Subclass one, return the class from its hook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import (
    BalancedGraph,
    CircuitControl,
    CircuitPlan,
    Cluster,
    CollectiveCall,
    CollectiveCost,
    Fabric,
    GroupShape,
    ModelFlops,
    Network,
    OpGraph,
    OpWork,
    Placement,
    PlacementLimits,
    Plan,
    ReplicaShape,
    TaskGraph,
    TrafficMatrix,
)


@frozen(kw_only=True)
class NoOptions:
    """For a class that takes no options."""


class Component(ABC):
    """What all have in common: a name, one line of summary, and checked options.

    `Options` is a frozen, keyword-only attrs class: its fields are the keys of the TOML table, their
    defaults the defaults, the ``metadata={"doc": ..., "unit": ...}`` of each field its documentation.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Any) -> None:
        self.options = options

    def __eq__(self, other: object) -> bool:
        """Components are equal by class and options."""
        return type(self) is type(other) and self.options == other.options

    def __hash__(self) -> int:
        return hash(type(self))


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

    #: Name of the estimator used where the experiment names none.
    estimator: ClassVar[str] = "window"

    #: Kind of control that it can plan; one with rules of its own (`CircuitControl.check`) needs a scheduler
    #: that plans its kind.
    plans: ClassVar[type[CircuitControl]] = CircuitControl

    @abstractmethod
    def plan(
        self, control: CircuitControl, traffic: TrafficMatrix, previous: CircuitPlan | None
    ) -> CircuitPlan:
        """Circuits for the next interval (for the whole job if `control.interval_us` is None).

        `control` is of the kind that `plans` names. Every plan is checked (`control.check`), and what it
        leaves alone and what goes dark follow from `previous` (`control.transition`), unless it says so
        itself.
        """


@runtime_checkable
class PlansAhead(Protocol):
    """A scheduler that can give what a plan leaves idle to pairs of traffic that comes later."""

    def plan_ahead(
        self,
        control: CircuitControl,
        traffic: TrafficMatrix,
        previous: CircuitPlan | None,
        later: TrafficMatrix,
    ) -> CircuitPlan:
        """Return the plan of `Scheduler.plan`, with circuits for `later` on ports and channels left idle.

        They take nothing from `traffic`: its pairs have the circuits that `plan` gives them, and no more of
        these are dark.
        """


class DemandForecast(Protocol):
    """Says what the circuits of one run will be asked to carry next; may keep what it has seen."""

    def __call__(
        self,
        *,
        now_us: float,
        interval_us: float,
        sent_bytes: NDArray[np.float64],
        backlog_bytes: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the demand until ``now_us + interval_us``. [circuits] [bytes]

        Called at each decision instant after the first, in order of time.

        Parameters
        ----------
        now_us, interval_us
            The instant, and the time until the next one. [us]
        sent_bytes
            What each circuit has carried since the last instant. [circuits] [bytes]
        backlog_bytes
            What is ready for each circuit and not yet sent. [circuits] [bytes]
        """


class Estimator(Component):
    """Tells a scheduler what traffic to expect in the next interval."""

    @abstractmethod
    def start(self, network: Network, tasks: TaskGraph) -> DemandForecast:
        """Return the forecast of one run: a function that is asked at each decision instant.

        ``forecast(now_us=, interval_us=, sent_bytes=, backlog_bytes=)`` gets the bytes that each circuit of
        `network` has carried since the last instant, and those that are ready and wait; it returns the
        bytes that each is expected to be asked for until ``now_us + interval_us``. All are arrays
        [circuits], in the order of `network.circuit_src`. Where all are 0 the circuits stay as they are.
        """

    def start_where(
        self, network: Network, tasks: TaskGraph, *, crowded: Callable[[], bool]
    ) -> DemandForecast:
        """Return the forecast of one run, as `start`, which this calls unless it is overridden.

        ``crowded()`` tells whether one plan cannot give every pair of the job two circuits: equal demands of
        all of them are planned when it is asked.
        """
        return self.start(network, tasks)


class GpuModel(Component):
    """Time and memory of one GPU."""

    #: Whether `op_time_us` reads the name of the op (`OpWork.op`). False: ops that do the same work take the
    #: same time, and a model's equal layers are asked for once.
    names_matter: ClassVar[bool] = True

    @property
    @abstractmethod
    def memory_bytes(self) -> float:
        """Device memory. [bytes]"""

    @property
    def multiprocessors(self) -> int | None:
        """Multiprocessors, of which a communication library's kernels take some; None: not known."""
        return None

    @abstractmethod
    def op_time_us(self, work: OpWork) -> float:
        """Time the kernel runs, launch latency not included. [us]"""

    def peak_tflops(self, precision: str) -> float | None:
        """Peak of matrix products, of which utilisation is a share; None: not known. [TFLOP/s]"""
        return None

    def extrapolation(self, work: OpWork) -> float:
        """By which factor the work lies outside what this model was measured at; 1: it does not."""
        return 1.0


@frozen(kw_only=True)
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

    @property
    def sample_tokens(self) -> int | None:
        """Tokens of one sample, of a language model; None: it has none."""
        return None

    @property
    def training_tokens(self) -> float | None:
        """Tokens whose training time is reported where accuracy was not measured; None: no such number."""
        return None

    @property
    def token_flops(self) -> ModelFlops | None:
        """FLOPs of a training step for one token; None: no utilisation is reported."""
        return None

    @property
    def sequence_parallel(self) -> bool:
        """Whether a plan that does not say how ops are cut cuts them as sequence parallelism does."""
        return False

    def check_plan(self, plan: Plan, layout: str) -> None:
        """Refuse a plan that this model cannot run under: `ConfigError` that begins with the key at fault.

        By default a model has no sequence that replicas can share, and no experts to spread.
        """
        for degree in ("cp", "ep"):
            if getattr(plan, degree) > 1:
                raise ConfigError(f"{degree} must be 1 for {self.name!r}, got {getattr(plan, degree)}")

    def divided(self, cp: int, ep: int) -> Workload:
        """Return the model as it is on one of cp replicas that share sequences, of ep that share experts."""
        return self

    def key_copies(self, mp: int) -> int:
        """Return on how many GPUs of a group that spreads heads over mp each head of keys is; 1: on one."""
        return 1

    def copied(self, copies: int) -> Workload:
        """Return the model with so many copies of each head of keys and values."""
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a result should know of this model, a sentence each."""
        return ()

    @abstractmethod
    def graph(self, samples: int, precision: str) -> OpGraph:
        """Forward, backward and optimizer ops for a batch of `samples` on one replica."""

    @abstractmethod
    def convergence(self, global_batch: int) -> Convergence | None:
        """Steps to the target accuracy; None where nobody measured them for this model."""


class Exchange(Component):
    """An algorithm by which the GPUs of one model-parallel group exchange activations."""

    @abstractmethod
    def offered(self, shape: GroupShape) -> bool:
        """Return whether ``exchange = "auto"`` should try it on groups of this shape."""

    @abstractmethod
    def parents(self, shape: GroupShape) -> NDArray[np.int32]:
        """Return from whom each device gets what each root makes: ``parents[root, device]``.

        Every row is a tree: following parents from any device leads to the root. Parts of a sum go up the
        tree of the device that needs the sum, and are added where they meet. [devices, devices]

        Raises `InfeasibleError`, naming exchanges that would do, where the shape has no such trees.
        """


#: Replicas in the order of a ring, and the part of the bytes that goes round it.
WeightedRing = tuple[tuple[int, ...], float]
#: An order of tiers, each one's number once; the way round all of their rings (1: to the successor, -1: to
#: the predecessor); and the part of the bytes that goes so.
WeightedOrder = tuple[tuple[int, ...], int, float]


class AllReduce(Component):
    """An algorithm that sums gradients over the replicas of a job.

    Rings in tiers, which `tiers` arranges. By default they run one tier after the other; `rings` may return
    several rings that run at the same time, `orders` several orders of the tiers, each with its part.
    """

    @abstractmethod
    def offered(self, shape: ReplicaShape) -> bool:
        """Return whether ``all_reduce = "auto"`` should try it on replicas of this shape."""

    @abstractmethod
    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return the shape into which replicas are arranged; its product is their number.

        The innermost tier is last: a reduce-scatter runs over it, an all-reduce of what is left over those
        before it, and an all-gather over the last again. One tier is a ring.

        Raises `InfeasibleError`, naming all-reduces that would do, where the replicas do not nest so.
        """

    def rings(self, shape: ReplicaShape) -> tuple[WeightedRing, ...]:
        """Return rings that run at the same time, each with its part of the bytes; they add up to 1.

        A ring names all replicas in the order in which data goes round. None: one ring, in order; where
        there are several, `tiers` returns one tier.
        """
        return ()

    def orders(self, shape: ReplicaShape) -> tuple[WeightedOrder, ...]:
        """Return orders of the tiers that run at the same time, with parts of the bytes that add up to 1.

        Along the first tier of an order a reduce-scatter runs, along the next one of what that left, and so
        on, along the last an all-reduce, and back come all-gathers. None: one order, from the innermost out.
        """
        return ()

    #: Switches add up what the replicas send: each sends and receives all bytes once. `tiers` returns one.
    in_network: ClassVar[bool] = False


class Communication(Component):
    """A communication library: what a collective costs beyond its bytes at the bandwidth of the links."""

    #: No call costs anything: bytes at the bandwidth of the links, and latencies of routes, are all there is.
    free: ClassVar[bool] = False

    def multiprocessors(self, gbps: float) -> int:
        """Return how many multiprocessors its kernels take from what computes, to send at `gbps`."""
        return 0

    @abstractmethod
    def cost(self, call: CollectiveCall) -> CollectiveCost:
        """Return what one call costs: the same for equal calls, and never less time for more bytes."""


class Allocator(Component):
    """Gives the jobs of a shared cluster their GPUs."""

    @abstractmethod
    def allocate(
        self, free: NDArray[np.bool_], gpus: int, *, units: tuple[int, ...], number: int
    ) -> NDArray[np.int32] | None:
        """Return the GPUs of a job in the order of its ranks, or None where it has to wait.

        The same arguments always give the same answer.

        Parameters
        ----------
        free
            Which GPUs no job has. [cluster's GPUs]
        gpus
            How many the job needs, each of them free.
        units
            GPUs of each kind of unit of the network (servers, racks), inner first: GPUs i and j share a
            unit of n if ``i // n == j // n``.
        number
            Of the job, in order of arrival, from 0: what a random choice depends on.
        """
