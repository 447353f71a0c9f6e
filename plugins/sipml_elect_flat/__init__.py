"""Elect-Flat: an ideal electrical switch. Every GPU sends and receives at B, whatever the pattern."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.fields import at_least, one_of, option, parse_us
from sipml_core.model import Cluster, Fabric, FabricHints, FabricWords, PairArray, Routes, UnsharedFabric
from sipml_core.plugin import Topology, hookimpl


class ElectFlat(Topology):
    """Links 0 .. N-1 are what each GPU sends on, N .. 2N-1 what each receives on, B Gbps each."""

    name = "elect-flat"
    summary = "ideal electrical switch: every GPU sends and receives at full bandwidth"

    @attrs.frozen(kw_only=True)
    class Options:
        latency_us: float = option(
            0.0,
            doc="time a byte takes through the switch",
            unit="us",
            converter=parse_us,
            validator=at_least(0),
        )
        sharing: str = option(
            "fair",
            doc="fair: transfers share a port max-min fairly; bound: they do not share, an ideal",
            validator=one_of("fair", "bound"),
        )
        switches_add: bool = option(
            False, doc="the switch adds up what passes through it, so that an all-reduce may be done there"
        )

    def build(self, cluster: Cluster) -> Fabric:
        gpus = cluster.gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            links = np.column_stack([src, gpus + np.asarray(dst, np.int64)])
            return Routes(links=links, latency_us=np.full(len(links), self.options.latency_us))

        gpu, switch = np.arange(gpus), np.full(gpus, gpus)
        kind = UnsharedFabric if self.options.sharing == "bound" else Fabric
        return kind(
            gpus=gpus,
            link_gbps=np.full(2 * gpus, cluster.bandwidth_gbps),
            link_tail=np.r_[gpu, switch],
            link_head=np.r_[switch, gpu],
            route=route,
            hints=FabricHints(switches_add=self.options.switches_add),
            words=FabricWords(link_names=lambda k: f"egress {k}" if k < gpus else f"ingress {k - gpus}"),
        )


@hookimpl
def sipml_topologies() -> list[type[Topology]]:
    return [ElectFlat]
