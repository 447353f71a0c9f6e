"""Elect-Flat: an ideal electrical switch. Every GPU sends and receives at B, whatever the pattern."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.fields import at_least, one_of, option, parse_us
from sipml_core.model import Cluster, Fabric, PairArray, Routes
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

    def build(self, cluster: Cluster) -> Fabric:
        gpus = cluster.gpus

        def route(src: PairArray, dst: PairArray) -> Routes:
            links = np.column_stack([src, gpus + np.asarray(dst, np.int64)])
            return Routes(links=links, latency_us=np.full(len(links), self.options.latency_us))

        return Fabric(
            gpus=gpus,
            link_gbps=np.full(2 * gpus, cluster.bandwidth_gbps),
            link_names=lambda link: f"egress {link}" if link < gpus else f"ingress {link - gpus}",
            route=route,
            sharing=self.options.sharing,
        )


@hookimpl
def sipml_topologies() -> list[type[Topology]]:
    return [ElectFlat]
