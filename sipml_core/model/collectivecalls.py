"""One call of a communication library, and what it costs beyond bytes at the bandwidth of the links."""

from __future__ import annotations

import attrs

from sipml_core.fields import at_least, frozen, one_of, positive

#: What a call may be. "send" is one GPU to one other.
COLLECTIVE_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send")


@frozen(kw_only=True)
class CollectiveCall:
    """A collective as its ranks call it.

    >>> call = CollectiveCall(kind="all_gather", ranks=4, size_bytes=100.0, gbps=8.0)
    >>> call.rank_bytes
    75.0
    """

    kind: str = attrs.field(validator=one_of(*COLLECTIVE_KINDS))
    #: GPUs that take part.
    ranks: int = attrs.field(validator=at_least(2))
    #: As nccl-tests count it: of the whole array for all-gather and reduce-scatter, of what one rank
    #: contributes for all others. [bytes]
    size_bytes: float = attrs.field(validator=at_least(0))
    #: What the network gives one rank to send at. [Gbps]
    gbps: float = attrs.field(validator=positive)
    #: Servers over which the ranks are spread.
    servers: int = attrs.field(default=1, validator=at_least(1))
    #: Switches add up what passes through them.
    in_network: bool = False

    @property
    def rank_bytes(self) -> float:
        """Return what one rank sends at least, without sums in the network. [bytes]"""
        n = self.ranks
        shares = {"all_reduce": 2.0 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0, "send": 1.0}
        if self.in_network and self.kind == "all_reduce":
            return self.size_bytes
        return self.size_bytes * shares.get(self.kind, (n - 1) / n)


@frozen(kw_only=True)
class CollectiveCost:
    """What a call costs beyond its bytes at the bandwidth of the links and the latency of the routes."""

    #: Paid once. [us]
    startup_us: float = attrs.field(default=0.0, validator=at_least(0))
    #: Bytes on the wire for each byte: what protocols send besides, and bandwidth that kernels leave unused.
    wire_factor: float = attrs.field(default=1.0, validator=at_least(1))
    #: How the library does it, for tables.
    how: str = ""
