"""A run that can be advanced, looked at and given new capacities: what both kernels offer."""

from __future__ import annotations

import enum
import math
import weakref
from typing import NamedTuple, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import at_least, frozen, positive
from sipml_core.model import LinkSamples, Network, RelayedTasks, TaskGraph, Timeline, finite_not_negative

#: Events within this of the earliest, relatively, happen together.
SAME_TIME = 1e-12


class State(enum.IntEnum):
    """Why a session came back."""

    DONE = 0
    PAUSED = 1
    BUDGET = 2
    STALLED = 3
    REACHED = 4


@frozen(kw_only=True, eq=False)
class ActiveTransfers:
    """Transfers that hold their queue at one moment, by index in `Session.work`, and the rates they have."""

    transfer: NDArray[np.int32]
    #: [Gbps]
    gbps: NDArray[np.float64]


def _even(_: object, __: object, value: int) -> None:
    if value % 2:
        raise SipmlError(f"Recording.samples must be even, got {value}")


@frozen(kw_only=True)
class Recording:
    """What a session keeps beside its accounts: the course of each transfer, and what links carry when."""

    #: Samples of the links that are kept: an even number; a run of any length has half of them or more.
    samples: int = attrs.field(default=256, validator=[at_least(2), _even])
    #: Time between two of them at first; it doubles when there are too many. [us]
    sample_us: float = attrs.field(default=1.0, validator=positive)


def link_samples(
    interval_us: float, rows: NDArray[np.float64], link_bytes: NDArray[np.float64], end_us: float
) -> LinkSamples:
    """Return rows [samples, links], and the state at the end, as one series that begins at time 0."""
    at_us = interval_us * np.arange(len(rows) + 1)
    carried = np.vstack([np.zeros((1, len(link_bytes))), rows[:, : len(link_bytes)]])
    if end_us > at_us[-1]:
        at_us, carried = np.append(at_us, end_us), np.vstack([carried, link_bytes])
    return LinkSamples(at_us=at_us, carried_bytes=carried)


class LinkTraffic(NamedTuple):
    """What a decision on circuits starts from. Arrays are [links]."""

    carried_bytes: NDArray[np.float64]
    #: Of these, since an earlier moment; never below 0.
    sent_bytes: NDArray[np.float64]
    backlog_bytes: NDArray[np.float64]
    #: Some circuit has carried something since then; something waits for one.
    sent: bool
    waits: bool


class Session(Protocol):
    """One run. Arrays over links are [links], in the order of the `Network`."""

    #: What runs; and the rows of it that nodes are numbered by, which are these but for `RelayedTasks`.
    work: TaskGraph | RelayedTasks
    tasks: TaskGraph
    network: Network
    #: NaN for nodes that have not started, or not ended. [nodes] [us]
    start_us: NDArray[np.float64]
    end_us: NDArray[np.float64]

    @property
    def now_us(self) -> float: ...

    @property
    def events(self) -> int: ...

    @property
    def ended(self) -> int:
        """Nodes of `work` that have ended."""

    @property
    def moving(self) -> bool:
        """Whether some event lies ahead even if no capacity changes."""

    def run(self, until_us: float = math.inf, max_events: int | None = None) -> State:
        """Go on until all has ended, `until_us` is passed (included), or `max_events` more have happened.

        `State.STALLED` is returned for an infinite `until_us` only: nothing will ever happen by itself. See
        `stop_after` for `State.REACHED`.
        """

    def stop_after(self, nodes: NDArray[np.int32]) -> None:
        """Make `run` return `State.REACHED`, once, when the last of these nodes has ended.

        It does so at the end of that instant; at once if all have ended. The nodes replace those named
        before; none: `run` stops for nothing.
        """

    def set_capacity(self, links: NDArray[np.int32], gbps: NDArray[np.float64]) -> None:
        """Change the capacity of some links, now."""

    def active(self) -> ActiveTransfers: ...

    def places(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Number in `work`, and pair, of each transfer of `tasks`: of the leg that it is on."""

    def carried_bytes(self) -> NDArray[np.float64]:
        """Bytes that each link has carried up to now."""

    def backlog_bytes(self) -> NDArray[np.float64]:
        """Bytes queued or unfinished on the pairs that cross each link."""

    def traffic_since(self, before_bytes: NDArray[np.float64]) -> LinkTraffic:
        """What links have carried since they had carried so much, and what waits for them."""

    def waits(self) -> NDArray[np.int32]:
        """Predecessors that have not ended yet. [nodes]"""

    def timeline(self, decisions: int = 0) -> Timeline:
        """The accounts as of now."""


#: The tasks that a network was last found to be made for.
_MATCHED: weakref.WeakKeyDictionary[Network, weakref.ref[TaskGraph | RelayedTasks]] = (
    weakref.WeakKeyDictionary()
)


def check_match(tasks: TaskGraph | RelayedTasks, network: Network) -> None:
    """Refuse a network that was not made for these tasks, the first time that it is asked for them."""
    before = _MATCHED.get(network)
    if before is not None and before() is tasks:
        return
    _refuse_mismatch(tasks, network)
    _MATCHED[network] = weakref.ref(tasks)


def _refuse_mismatch(tasks: TaskGraph | RelayedTasks, network: Network) -> None:
    pairs, links = len(network.pair_src), len(network.link_gbps)
    src, dst = tasks.ends
    if network.gpus != tasks.gpus or len(network.transfer_pair) != len(src):
        raise SipmlError(
            f"the network was made for {network.gpus} GPUs and {len(network.transfer_pair)} transfers, "
            f"the tasks have {tasks.gpus} and {len(src)}"
        )
    lengths_match = len(network.pair_dst) == len(network.pair_latency_us) == pairs
    lengths_match &= len(network.pair_start) == pairs + 1
    if not lengths_match or not 0 <= network.first_circuit <= links:
        raise SipmlError("Network: the arrays over pairs differ in length, or first_circuit is no link")
    inside = (network.transfer_pair >= 0) & (network.transfer_pair < pairs)
    if (
        not inside.all()
        or (
            (network.pair_src[network.transfer_pair] != src)
            | (network.pair_dst[network.transfer_pair] != dst)
        ).any()
    ):
        raise SipmlError("Network.transfer_pair does not give each transfer the pair of its ends")
    start, entries = network.pair_start, len(network.pair_link)
    if start[0] != 0 or start[-1] != entries or entries != len(network.pair_weight):
        raise SipmlError(f"Network.pair_start must go from 0 to {entries}, with one weight for each entry")
    if (np.diff(start) <= 0).any():
        raise SipmlError("Network.pair_start: every pair must cross at least one link")
    if entries and not 0 <= network.pair_link.min() <= network.pair_link.max() < links:
        raise SipmlError(f"Network.pair_link must be from 0 to {links - 1}")
    if not (np.isfinite(network.pair_weight) & (network.pair_weight > 0)).all():
        raise SipmlError("Network.pair_weight must be positive and finite")


def check_capacity(gbps: NDArray[np.float64]) -> None:
    """Refuse capacities that are negative or not finite."""
    if finite_not_negative(np.asarray(gbps, dtype=np.float64)):
        return
    if not (np.isfinite(gbps) & (gbps >= 0)).all():
        raise SipmlError("link capacities must be finite and not negative")
