"""SiP-Rails: servers with an electrical switch inside, and an optical circuit switch for each rail."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, option, parse_gbps, parse_us, positive
from sipml_core.model import (
    MAX_GPUS,
    NO_LINK,
    CircuitPart,
    CircuitParts,
    Cluster,
    Fabric,
    FabricHints,
    FabricWords,
    PairArray,
    PairIndex,
    Routes,
)
from sipml_core.plugin import Topology
from sipml_photonic.parts import circuits_of, interval, reconfiguration


@attrs.frozen(kw_only=True)
class SipRailsOptions:
    server_gpus: int = option(8, doc="GPUs in one server, and rails", validator=between(1, MAX_GPUS))
    rail_gbps: float = option(
        400.0, unit="Gbps", doc="what a GPU has into its rail", converter=parse_gbps, validator=positive
    )
    rail_links: int = option(
        2,
        doc="links into which it is divided: GPUs of the rail that it reaches at a time",
        validator=between(1, 1024),
    )
    interval_us: float | None = interval()
    reconfiguration_us: float | None = reconfiguration()
    relay: bool = option(
        False,
        doc="with one plan for the job: pairs without a circuit go through a GPU of the rail that both reach",
        validator=attrs.validators.instance_of(bool),
    )
    latency_us: float = option(
        0.0, doc="latency inside a server", unit="us", converter=parse_us, validator=at_least(0)
    )
    rail_latency_us: float = option(
        0.0, doc="time a byte takes through a rail", unit="us", converter=parse_us, validator=at_least(0)
    )


class SipRails(Topology):
    """GPU i of every server is on rail i, whose optical switches are planned for themselves.

    Inside a server any GPU sends to any other at B. To another server and another rail, bytes go to the
    GPU of that rail inside the server first.
    """

    name = "sip-rails"
    summary = "servers of GPUs, GPU i of each on the optical circuit switch of rail i (photonic rails)"
    scheduler = "ocs-exact"
    Options = SipRailsOptions

    def build(self, cluster: Cluster) -> Fabric:
        options, gpus, size = self.options, cluster.gpus, self.options.server_gpus
        if gpus % size:
            below = gpus // size * size
            near = f"{below} or {below + size}" if below else str(size)
            raise ConfigError(
                f"cluster.gpus must be whole servers of {size} (server_gpus), got {gpus}; nearest: {near}"
            )
        circuits = circuits_of(
            "sip-ocs", gpus // size, options.rail_gbps, switches=options.rail_links,
            interval_us=options.interval_us, reconfiguration_us=options.reconfiguration_us,
        )  # fmt: skip
        rails = tuple(
            CircuitPart(members=np.arange(rail, gpus, size), control=circuits) for rail in range(size)
        )
        fixed = 4 * gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
            inside = src // size == dst // size
            sender = src // size * size + dst % size
            changes = sender != src
            # Over the switch of the server: to the destination, or to the GPU of its rail.
            near = np.where(inside, dst, sender)
            within = np.column_stack([src, 2 * gpus + src, 3 * gpus + near, gpus + near])
            rail = np.column_stack([sender, fixed + PairIndex(gpus).key(sender, dst), gpus + dst])
            links = np.hstack(
                [
                    np.where((inside | changes)[:, None], within, NO_LINK),
                    np.where(inside[:, None], NO_LINK, rail),
                ]
            )
            latency = (inside | changes) * options.latency_us + ~inside * options.rail_latency_us
            return Routes(links=links, latency_us=latency)

        # Ports of the GPUs, which limit all that they send and receive; links to the server's switch.
        gpu, server = np.arange(gpus), gpus + np.arange(gpus) // size
        names = ("egress {}", "ingress {}", "{} to its server", "server to {}")
        return Fabric(
            gpus=gpus,
            link_gbps=np.full(fixed, cluster.bandwidth_gbps),
            link_tail=np.r_[gpu, gpu, gpu, server],
            link_head=np.r_[gpu, gpu, server, gpu],
            route=route,
            circuits=CircuitParts.of(gpus, rails, relay=options.relay),
            hints=FabricHints(tiers=(("server", size),) if size > 1 else ()),
            words=FabricWords(link_names=lambda k: names[k // gpus].format(k % gpus)),
        )
