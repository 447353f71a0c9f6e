"""Hybrid: optical circuits for pairs that send much, packets for all others (as TopoOpt and MixNet do)."""

from __future__ import annotations

import attrs
import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, option, parse_bytes, parse_us
from sipml_core.model import Cluster, Fabric, FabricWords, PairArray, PairIndex, Routes
from sipml_core.plugin import Topology
from sipml_photonic.parts import circuits_of, interval, reconfiguration


@attrs.frozen(kw_only=True)
class HybridOptions:
    circuit_share: float = option(
        0.5,
        doc="part of a GPU's bandwidth that goes to circuits, the rest to packets",
        validator=between(0.01, 0.99),
    )
    links: int = option(4, doc="links into which that part is divided", validator=between(1, 1024))
    packets_below_bytes: float = option(
        0.0, doc="pairs that send less than this in the whole job go by packets", unit="bytes",
        converter=parse_bytes, validator=at_least(0),
    )  # fmt: skip
    interval_us: float | None = interval()
    reconfiguration_us: float | None = reconfiguration()
    circuit_latency_us: float = option(
        0.0, doc="time a byte takes through a circuit", unit="us", converter=parse_us, validator=at_least(0)
    )
    packet_latency_us: float = option(
        0.0, doc="latency of the packet network", unit="us", converter=parse_us, validator=at_least(0)
    )


class Hybrid(Topology):
    """Circuits as of `sip-ocs` with a part of the bandwidth, and an ideal packet switch with the rest.

    Which pairs use which is decided before the job starts: those to which the first plan gives a circuit
    use it, and nothing else, all others go by packets. Re-planned circuits (`interval_us`) are moved among
    the pairs that had one.
    """

    name = "hybrid"
    summary = "optical circuits for the pairs that send most, an electrical packet switch for all others"
    scheduler = "ocs-exact"
    Options = HybridOptions

    def build(self, cluster: Cluster) -> Fabric:
        options, gpus = self.options, cluster.gpus
        circuit_gbps = options.circuit_share * cluster.bandwidth_gbps
        if gpus == 1:
            raise ConfigError("hybrid joins at least 2 GPUs, got cluster.gpus = 1")

        def packets(src: PairArray, dst: PairArray) -> Routes:
            links = np.column_stack(
                [2 * gpus + np.asarray(src, np.int64), 3 * gpus + np.asarray(dst, np.int64)]
            )
            return Routes(links=links, latency_us=np.full(len(links), options.packet_latency_us))

        def route(src: PairArray, dst: PairArray) -> Routes:
            circuit = 4 * gpus + PairIndex(gpus).key(src, dst)
            links = np.column_stack([np.asarray(src, np.int64), circuit, gpus + np.asarray(dst, np.int64)])
            return Routes(links=links, latency_us=np.full(len(links), options.circuit_latency_us))

        control = circuits_of(
            "sip-ocs", gpus, circuit_gbps, switches=options.links,
            interval_us=options.interval_us, reconfiguration_us=options.reconfiguration_us,
        )  # fmt: skip
        gpu, switch = np.arange(gpus), np.full(gpus, gpus)
        names = ("circuits from {}", "circuits to {}", "packets from {}", "packets to {}")
        return Fabric(
            gpus=gpus,
            link_gbps=np.repeat([circuit_gbps, cluster.bandwidth_gbps - circuit_gbps], 2 * gpus),
            link_tail=np.r_[gpu, gpu, gpu, switch],
            link_head=np.r_[gpu, gpu, switch, gpu],
            route=route,
            circuits=attrs.evolve(control, packets=packets, packets_below_bytes=options.packets_below_bytes),
            words=FabricWords(link_names=lambda k: names[k // gpus].format(k % gpus)),
        )
