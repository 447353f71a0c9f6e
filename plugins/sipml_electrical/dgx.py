"""NVIDIA's servers as they are wired inside, joined by their network cards."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import at_least, format_gbps, one_of, option, parse_gbps, parse_us, positive
from sipml_core.model import NO_LINK, Cluster, Fabric, FabricHints, FabricWords, PairArray, Routes
from sipml_core.plugin import Topology
from sipml_electrical.linktable import LinkTable

#: Of the six NVLinks of each V100 of a DGX-1, how many lead to which GPU of the server: the hybrid cube mesh
#: (NVIDIA DGX-1 with Tesla V100 system architecture, WP-08437-002, figure 4).
CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
NVLINKS = 6


@attrs.frozen(kw_only=True)
class Generation:
    """What one server holds."""

    gpus: int
    #: NVLinks of one GPU together, one direction. [Gbps]
    nvlink_gbps: float
    #: Network cards of one server together. [Gbps]
    cards_gbps: float
    #: GPUs that share a card.
    card_gpus: int
    #: NVSwitches that join all GPUs alike; None: the cube mesh.
    switches: int | None
    #: NVSwitches add up what passes through them (NVLink SHARP).
    adds: bool = False


#: DGX-1: 4 cards of 100 Gb/s. DGX A100: 6 NVSwitches, 8 cards of 200. DGX H100: 4 NVSwitches, 8 cards of 400.
#: GB200 NVL72: 18 NVSwitches, a card of 400 per GPU. (NVIDIA's data sheets of these systems.)
GENERATIONS = {
    "v100": Generation(gpus=8, nvlink_gbps=1200.0, cards_gbps=400.0, card_gpus=2, switches=None),
    "a100": Generation(gpus=8, nvlink_gbps=2400.0, cards_gbps=1600.0, card_gpus=1, switches=6),
    "h100": Generation(gpus=8, nvlink_gbps=3600.0, cards_gbps=3200.0, card_gpus=1, switches=4, adds=True),
    "nvl72": Generation(gpus=72, nvlink_gbps=7200.0, cards_gbps=28800.0, card_gpus=1, switches=18, adds=True),
}


@attrs.frozen(kw_only=True)
class DgxOptions:
    generation: str = option(
        "h100", doc="v100: cube mesh of 8; a100, h100: NVSwitches and 8 GPUs; nvl72: a rack of 72",
        validator=one_of(*GENERATIONS),
    )  # fmt: skip
    card_gbps: float | None = option(
        None, unit="Gbps",
        doc="one network card, of two GPUs on v100, else of one; left out: that of the generation",
        converter=attrs.converters.optional(parse_gbps), validator=attrs.validators.optional(positive),
    )  # fmt: skip
    latency_us: float = option(
        0.0, doc="latency inside a server", unit="us", converter=parse_us, validator=at_least(0)
    )
    across_latency_us: float = option(
        0.0, doc="latency between servers", unit="us", converter=parse_us, validator=at_least(0)
    )


class Dgx(Topology):
    """Ports of GPUs, NVLinks of a cube mesh where there is one, then cards out and in.

    NVSwitches are planes of the same capacity over which all traffic is sprayed: with each other they are
    one switch that no pattern blocks. The network between the cards is ideal.
    """

    name = "dgx"
    summary = "DGX-1 V100, DGX A100, DGX H100 or NVL72 servers as they are wired, joined by their cards"
    Options = DgxOptions

    def build(self, cluster: Cluster) -> Fabric:
        generation = GENERATIONS[self.options.generation]
        wires = _Wires(cluster, generation, self.options)

        def route(src: PairArray, dst: PairArray) -> Routes:
            return wires.route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

        notes = []
        if abs(cluster.bandwidth_gbps / generation.nvlink_gbps - 1) > 0.01:
            notes.append(
                f"a {self.options.generation.upper()} has {format_gbps(generation.nvlink_gbps)} of NVLink, "
                f"here cluster.bandwidth_gbps = {cluster.bandwidth_gbps:g}"
            )
        if cluster.gpus % generation.gpus and cluster.gpus > generation.gpus:
            notes.append(f"the last server holds {cluster.gpus % generation.gpus} GPUs of {generation.gpus}")
        return Fabric(
            gpus=cluster.gpus,
            **wires.table.fields(),
            route=route,
            hints=FabricHints(tiers=(("server", generation.gpus),), switches_add=generation.adds),
            words=FabricWords(link_names=wires.table.name, notes=tuple(notes)),
        )


class _Wires:
    """Links and routes of equal servers. What a mesh has of every link, a switch has of none."""

    def __init__(self, cluster: Cluster, generation: Generation, options: DgxOptions) -> None:
        self.size, self.options, self.card_gpus = generation.gpus, options, generation.card_gpus
        gpus, gpu = cluster.gpus, np.arange(cluster.gpus)
        server = gpu // self.size
        self.mesh = generation.switches is None

        # Nodes: GPUs, a switch in each server, the network between them.
        switch, core = gpus + server, gpus + int(server[-1]) + 1
        self.table = table = LinkTable()
        gbps = cluster.bandwidth_gbps
        port = gpu if self.mesh else switch
        self.egress = table.add("egress {}", gbps, tail=gpu, head=port)
        self.ingress = table.add("ingress {}", gbps, tail=port, head=gpu)
        if self.mesh:
            self._add_mesh(gpus, gbps)

        card = np.arange(-(-gpus // self.card_gpus))
        card_gbps = options.card_gbps or generation.cards_gbps * self.card_gpus / generation.gpus
        behind = switch[card * self.card_gpus]
        self.card_out = table.add("card {} out", card_gbps, tail=behind, head=np.full(len(card), core))
        self.card_in = table.add("card {} in", card_gbps, tail=np.full(len(card), core), head=behind)
        if self.mesh:
            # A mesh has no switch on the way from a GPU to its card: these links limit nothing.
            self.to_card = table.add("GPU {} to its card", gbps, tail=gpu, head=switch)
            self.from_card = table.add("card to GPU {}", gbps, tail=switch, head=gpu)

    def _add_mesh(self, gpus: int, gbps: float) -> None:
        """Add the NVLinks of each server, and keep which of them each pair inside one crosses."""
        #: NVLinks from each place of a server to each, in parallel. [places, places]
        lanes = np.zeros((self.size, self.size), np.int64)
        for (a, b), count in CUBE_MESH.items():
            lanes[a, b] = lanes[b, a] = count
        tail, head = np.nonzero(lanes)
        #: Number of the link from each GPU to each other of its server, or NO_LINK. [gpus, places]
        self.link = np.full((gpus, self.size), NO_LINK)
        for count in (1, 2):
            alike = lanes[tail, head] == count
            first = np.arange(gpus) // self.size * self.size
            ends = [(g, first[g] + h) for g in range(gpus) for h in head[alike & (tail == g % self.size)]]
            ends = [(g, other) for g, other in ends if other < gpus]
            if not ends:
                continue
            sources, targets = np.array(ends).T
            names = tuple(zip(sources.tolist(), targets.tolist(), strict=True))
            number = self.table.add(
                "NVLink {}->{}", gbps * count / NVLINKS, tail=sources, head=targets, numbers=names
            )
            self.link[sources, targets % self.size] = number + np.arange(len(ends))
        self.through = _through(lanes)

    def route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        """Return the routes of pairs: inside a server, or over the cards of both."""
        inside = src // self.size == dst // self.size
        egress, ingress = self.egress + src[:, None], self.ingress + dst[:, None]
        out, into = self.card_out + src // self.card_gpus, self.card_in + dst // self.card_gpus
        cards = [out, into]
        if self.mesh:
            cards = [self.to_card + src, out, into, self.from_card + dst]
        across = np.where(inside[:, None], NO_LINK, np.column_stack(cards))
        latency = np.where(inside, self.options.latency_us, self.options.across_latency_us)
        if not self.mesh:
            return Routes(links=np.hstack([egress, across, ingress]), latency_us=latency)
        return self._over_mesh(src, dst, inside, egress, across, ingress, latency)

    def _over_mesh(
        self,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        inside: NDArray[np.bool_],
        egress: NDArray[np.int64],
        across: NDArray[np.int64],
        ingress: NDArray[np.int64],
        latency: NDArray[np.float64],
    ) -> Routes:
        """Return routes over NVLinks, directly or through each GPU that is a neighbour of both."""
        # Place in between, or the destination's, and its part of the bytes. [pairs, ways]
        middle, part = (found[src % self.size, dst % self.size] for found in self.through)
        middle_gpu = src[:, None] // self.size * self.size + middle
        there = np.minimum(middle_gpu, len(self.link) - 1)
        first = np.where(inside[:, None], self.link[src[:, None], middle], NO_LINK)
        direct = middle == (dst % self.size)[:, None]
        second = np.where(inside[:, None] & ~direct, self.link[there, (dst % self.size)[:, None]], NO_LINK)

        # Servers that lack a GPU lack what leads through it.
        part = np.where(inside[:, None], part * (middle_gpu < len(self.link)), 0.0)
        part[~inside, 0] = 1.0
        ways = part.shape[1]
        paths = [np.hstack([egress, first[:, [k]], second[:, [k]], across, ingress]) for k in range(ways)]
        total = part.sum(axis=1, keepdims=True)
        return Routes.of_paths(
            np.stack(paths, axis=1), weight=part / total, latency_us=np.repeat(latency[:, None], ways, axis=1)
        )


def _through(lanes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the places through which each pair of a server goes, and how much through each.

    Where no link joins two GPUs, every neighbour of both forwards, in proportion to the thinner of its two
    links. [places, places, ways] each; ways that are not used have the part 0.

    Examples
    --------
    In a square of GPUs 0, 1, 3, 2 the way from 0 to 3 leads through 1 and through 2:

    >>> square = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]])
    >>> middle, part = _through(square)
    >>> middle[0, 3].tolist(), part[0, 3].tolist(), middle[0, 1].tolist(), part[0, 1].tolist()
    ([1, 2], [0.5, 0.5], [1, 1], [1.0, 0.0])
    """
    places = len(lanes)
    found: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for a in range(places):
        for b in range(places):
            if lanes[a, b] or a == b:
                found[a, b] = [(b, 1.0)]
            else:
                both = np.minimum(lanes[a], lanes[:, b])
                found[a, b] = [(int(m), float(both[m])) for m in np.flatnonzero(both)]
    ways = max(map(len, found.values()))
    middle = np.empty((places, places, ways), np.int64)
    part = np.zeros((places, places, ways))
    for (a, b), through in found.items():
        middle[a, b] = [*(m for m, _ in through), *[through[-1][0]] * (ways - len(through))]
        part[a, b, : len(through)] = np.array([w for _, w in through]) / sum(w for _, w in through)
    return middle, part
