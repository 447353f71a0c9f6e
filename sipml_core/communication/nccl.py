"""NCCL: start-up by protocol and ranks, rings and trees by size, sums in the switch.

The time of a call is the least over algorithms and protocols of

    base + hops x hop + bytes x factor / bandwidth,

as NCCL itself estimates it (NCCL, src/graph/tuning.cc). Two protocols are enough for what was measured: "LL"
sends a flag with every 4 bytes, so twice the bytes, and starts early; "Simple" sends the bytes alone.
All-gathers, reduce-scatters and all-to-alls copy a rank's own part besides.

Constants marked "H100" were fitted to every second row of data measured on 2, 4 and 8 H100 with an NVSwitch
(NCCL 2.29; ai-dynamo/aiconfigurator @ 095f58a): docs/communication.md has the errors of the other half.
"""

from __future__ import annotations

import math
from typing import Any

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, frozen, option, positive
from sipml_core.model import CollectiveCall, CollectiveCost
from sipml_core.plugin import Communication

#: Bytes on the wire for each byte under the protocol that sends a flag of 4 bytes with 4 bytes.
LL_FACTOR = 2.0
#: Part of a ring's bandwidth that a double binary tree reaches (NCCL, tuning.cc).
TREE_SHARE = 0.92
#: Of a channel, of which there is one for each 12.5 GB/s of the links: NCCL sets up 12 on a DGX-1
#: (150 GB/s) and 24 on a DGX A100 (300 GB/s). Both counts are from memory, not from a source that is at hand.
CHANNEL_GBYTES_PER_S = 12.5


def _us(default: float, doc: str) -> Any:
    return option(default, doc=doc, unit="us", validator=at_least(0))


def _part(default: float, doc: str) -> Any:
    return option(default, doc=doc, validator=_fraction)


def _fraction(_: Any, attribute: Any, value: float) -> None:
    """Validator: above 0 and at most 1."""
    if not 0 < value <= 1:
        raise ConfigError(f"{attribute.name} must be above 0 and at most 1, got {value!r}")


class Nccl(Communication):
    """The least of what rings, trees and switches that add take, by size."""

    name = "nccl"
    summary = "start-up by protocol, ranks and servers; rings and trees by size; sums in the switch"

    @frozen(kw_only=True)
    class Options:
        """Constants of the model; `calibrate` fits them to measurements."""

        ll_base_us: float = _us(5.2, "start-up with the protocol for small messages (H100)")
        ll_hop_us: float = _us(0.79, "of each step from GPU to GPU inside a server with it (H100)")
        simple_base_us: float = _us(22.0, "start-up with the protocol for large messages (H100)")
        simple_hop_us: float = _us(0.30, "of each step inside a server with it (H100)")
        reduce_base_us: float = _us(
            8.4, "start-up of a large all-reduce in a ring (NCCL, tuning.cc), in place of simple_base_us"
        )
        reduce_hop_us: float = _us(
            7.1, "of each step of it inside a server: receive, add, send (H100, two ranks: 22.6 us in all)"
        )
        ring_efficiency: float = _part(0.71, "part of the links that a ring inside a server reaches (H100)")
        copy_gbytes_per_s: float = option(
            1060.0, unit="GB/s", validator=positive,
            doc="at which a GPU copies its own part of a gather, a scatter or an all-to-all (H100)",
        )  # fmt: skip
        switch_base_us: float = _us(50.0, "start-up of an all-reduce that switches add up (H100)")
        switch_efficiency: float = _part(
            0.65, "part of the links that an all-reduce reaches which switches add up (H100)"
        )
        send_base_us: float = _us(11.5, "start-up of sends, and of all-to-alls, which are sends (H100)")
        send_efficiency: float = _part(0.67, "part of the links that sends reach (H100)")
        network_ll_hop_us: float = _us(
            2.7, "of each step between servers with the protocol for small messages (NCCL, tuning.cc)"
        )
        network_simple_hop_us: float = _us(
            14.0, "of each step between servers with the protocol for large messages (NCCL, tuning.cc)"
        )
        network_efficiency: float = _part(
            0.91, "part of the network cards that collectives between servers reach (4 x 8 H200, EFA)"
        )
        channels: int = option(
            24, validator=between(0, 64),
            doc="most blocks of a collective, each of which takes a multiprocessor from what computes beside "
            "it: one for each 12.5 GB/s; 0: none (24 on an H100)",
        )  # fmt: skip

    def multiprocessors(self, gbps: float) -> int:
        """See `Communication.multiprocessors`: a block for each channel.

        >>> library = Nccl(Nccl.Options())
        >>> [library.multiprocessors(8.0 * gbytes_per_s) for gbytes_per_s in (12.5, 150, 300, 450)]
        [1, 12, 24, 24]
        """
        return min(int(self.options.channels), math.ceil(gbps / 8.0 / CHANNEL_GBYTES_PER_S))

    def cost(self, call: CollectiveCall) -> CollectiveCost:
        """See `Communication.cost`.

        >>> gather = CollectiveCall(kind="all_gather", ranks=8, size_bytes=512.0, gbps=3600.0)
        >>> small = Nccl(Nccl.Options()).cost(gather)
        >>> small.how, round(small.startup_us, 1), small.wire_factor
        ('ring LL', 10.7, 2.8169014084507045)
        >>> import attrs
        >>> Nccl(Nccl.Options()).cost(attrs.evolve(gather, size_bytes=1e9)).how
        'ring Simple'
        """
        wire_us = call.rank_bytes * 8e-3 / call.gbps
        ways = self._ways(call)
        return min(ways, key=lambda way: way.startup_us + way.wire_factor * wire_us)

    def _ways(self, call: CollectiveCall) -> list[CollectiveCost]:
        """Return what each algorithm and protocol would cost."""
        o, n = self.options, call.ranks
        own_us = 0.0
        if call.kind in ("all_gather", "reduce_scatter", "all_to_all"):
            own_us = call.size_bytes / n / (o.copy_gbytes_per_s * 1e3)
        if call.kind in ("send", "all_to_all"):
            part = o.send_efficiency if call.servers == 1 else o.network_efficiency
            network_us = o.network_ll_hop_us if call.servers > 1 else 0.0
            return [
                CollectiveCost(
                    startup_us=o.send_base_us + network_us + own_us, wire_factor=1 / part, how="sends"
                )
            ]
        if call.in_network and call.kind == "all_reduce":
            # Each rank also sends its n-th of the sum, which the switch copies to all.
            factor = (n + 1) / n / o.switch_efficiency
            return [CollectiveCost(startup_us=o.switch_base_us, wire_factor=factor, how="switch")]
        part = o.ring_efficiency if call.servers == 1 else o.network_efficiency
        simple_us = (o.simple_base_us, o.simple_hop_us)
        if call.kind == "all_reduce":
            simple_us = (o.reduce_base_us, o.reduce_hop_us)
        protocols = (
            ("LL", o.ll_base_us, o.ll_hop_us, o.network_ll_hop_us, LL_FACTOR),
            ("Simple", *simple_us, o.network_simple_hop_us, 1.0),
        )
        ways = []
        for protocol, base_us, hop_us, network_hop_us, factor in protocols:
            for algorithm, (inside, across), share in _algorithms(call):
                startup_us = base_us + inside * hop_us + across * network_hop_us + own_us
                ways.append(
                    CollectiveCost(
                        startup_us=startup_us,
                        wire_factor=factor / (part * share),
                        how=f"{algorithm} {protocol}",
                    )
                )
        return ways


def _algorithms(call: CollectiveCall) -> list[tuple[str, tuple[float, float], float]]:
    """Return algorithms: name, steps one after the other inside and between servers, share of a ring's rate.

    >>> across = CollectiveCall(kind="all_reduce", ranks=16, size_bytes=1.0, gbps=8.0, servers=4)
    >>> _algorithms(across)
    [('ring', (24, 6), 1.0), ('tree', (6.0, 4.0), 0.92)]
    """
    steps, servers = call.ranks - 1, call.servers
    twice = 2 if call.kind == "all_reduce" else 1
    across = servers - 1
    found: list[tuple[str, tuple[float, float], float]] = [
        ("ring", (twice * (steps - across), twice * across), 1.0)
    ]
    if call.kind == "all_reduce" and servers > 1:
        inside = call.ranks / servers - 1
        found.append(("tree", (2.0 * inside, 2.0 * math.ceil(math.log2(servers))), TREE_SHARE))
    return found
