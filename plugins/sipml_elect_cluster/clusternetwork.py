"""Elect-Cluster: servers with an ideal switch inside, joined by a slower electrical network."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, format_gbps, option, parse_gbps, parse_us, positive
from sipml_core.model import MAX_GPUS, NO_LINK, Cluster, Fabric, FabricHints, FabricWords, PairArray, Routes
from sipml_core.plugin import Topology

#: Uplink of one server in the paper's evaluation (SiP-ML, section 4.2). [Gbps]
PAPER_UPLINK_GBPS = 400.0

_WAYS = ("uplink_gbps", "uplink_per_gpu_gbps", "oversubscription")


def _optional_gbps(doc: str) -> float | None:
    return option(  # type: ignore[no-any-return]
        None,
        doc=doc,
        unit="Gbps",
        converter=attrs.converters.optional(parse_gbps),
        validator=attrs.validators.optional(positive),
    )


@attrs.frozen(kw_only=True)
class ElectClusterOptions:
    server_gpus: int = option(8, doc="GPUs in one server", validator=between(1, MAX_GPUS))
    uplink_gbps: float | None = _optional_gbps(
        "uplink of one server, and its downlink, shared by its GPUs; "
        f"{PAPER_UPLINK_GBPS:g} if none of the three ways to size it is given"
    )
    uplink_per_gpu_gbps: float | None = _optional_gbps(
        "instead of uplink_gbps: each GPU's own network card, which the others of its server cannot use"
    )
    oversubscription: float | None = option(
        None,
        doc="instead of uplink_gbps: bandwidth of a server's GPUs together over that of its uplink",
        validator=attrs.validators.optional(positive),
    )
    latency_us: float = option(
        0.0, doc="latency inside a server", unit="us", converter=parse_us, validator=at_least(0)
    )
    across_latency_us: float = option(
        0.0, doc="latency between servers", unit="us", converter=parse_us, validator=at_least(0)
    )
    switches_add: bool = option(
        False, doc="switches inside servers add up what passes through them (NVLink SHARP)"
    )

    def __attrs_post_init__(self) -> None:
        given = [way for way in _WAYS if getattr(self, way) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} size the same uplink; give only one of them")


class ElectCluster(Topology):
    """Egress and ingress of every GPU, then uplinks, then downlinks (of servers, or of GPUs).

    A pair in one server crosses the egress and the ingress; any other pair crosses the sender's
    uplink and the receiver's downlink in between.
    """

    name = "elect-cluster"
    summary = "servers with an ideal switch inside, joined by a slower electrical network"
    Options = ElectClusterOptions

    def build(self, cluster: Cluster) -> Fabric:
        gpus, size = cluster.gpus, self.options.server_gpus
        uplinks = self._uplinks_gbps(cluster)
        #: GPUs behind one uplink.
        behind = 1 if self.options.uplink_per_gpu_gbps is not None else size

        def route(src: PairArray, dst: PairArray) -> Routes:
            src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
            inside = src // size == dst // size
            up = 2 * gpus + src // behind
            down = 2 * gpus + len(uplinks) + dst // behind
            ingress = gpus + dst
            links = np.column_stack([src, up, down, ingress])
            links[inside, 1:] = NO_LINK
            links[inside, 1] = ingress[inside]
            latency = np.where(inside, self.options.latency_us, self.options.across_latency_us)
            return Routes(links=links, latency_us=latency)

        # Nodes: GPUs, the switch of each server, the network that joins them.
        gpu, switch = np.arange(gpus), gpus + np.arange(gpus) // size
        above = switch if behind == 1 else gpus + np.arange(len(uplinks))
        core = np.full(len(uplinks), switch.max() + 1)
        names = partial(_link_name, gpus=gpus, uplinks=len(uplinks), of="GPU" if behind == 1 else "server")
        return Fabric(
            gpus=gpus,
            link_gbps=np.r_[np.full(2 * gpus, cluster.bandwidth_gbps), uplinks, uplinks],
            link_tail=np.r_[gpu, switch, above, core],
            link_head=np.r_[switch, gpu, core, above],
            route=route,
            hints=FabricHints(tiers=(("server", size),), switches_add=self.options.switches_add),
            words=FabricWords(link_names=names, notes=self._notes(cluster, uplinks)),
        )

    def _uplinks_gbps(self, cluster: Cluster) -> NDArray[np.float64]:
        """Return the capacity of each uplink; the last server may hold fewer GPUs than the others. [Gbps]"""
        options, size = self.options, self.options.server_gpus
        if options.uplink_per_gpu_gbps is not None:
            return np.full(cluster.gpus, options.uplink_per_gpu_gbps)
        servers = -(-cluster.gpus // size)
        ratio: float | None = options.oversubscription
        if ratio is None:
            return np.full(servers, options.uplink_gbps or PAPER_UPLINK_GBPS)
        in_server = np.minimum(size, cluster.gpus - size * np.arange(servers))
        return in_server * cluster.bandwidth_gbps / ratio

    def _notes(self, cluster: Cluster, uplinks: NDArray[np.float64]) -> tuple[str, ...]:
        size, notes = self.options.server_gpus, []
        if cluster.gpus % size:
            notes.append(f"the last server holds {cluster.gpus % size} GPUs, the others {size}")
        shared = self.options.uplink_per_gpu_gbps is None and cluster.gpus > size
        ratio = size * cluster.bandwidth_gbps / float(uplinks[0])
        if self.options.oversubscription is not None or (shared and ratio > 1):
            notes.append(f"oversubscription {ratio:.3g}:1: {format_gbps(uplinks[0])} per server")
        return tuple(notes)


def _link_name(link: int, *, gpus: int, uplinks: int, of: str) -> str:
    if link < 2 * gpus:
        return f"egress {link}" if link < gpus else f"ingress {link - gpus}"
    k = link - 2 * gpus
    return f"uplink of {of} {k}" if k < uplinks else f"downlink of {of} {k - uplinks}"
