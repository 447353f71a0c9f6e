"""Where all groups do the same at the same time, the first few stand for all.

In layout positions the job repeats every `Lowering.period` groups. If moving every GPU on by some
groups also takes each route to the route of the moved pair, over links of the same capacity, then
the moved run is the run itself: max-min fair rates are unique, so groups that far apart are always
in the same state. The same holds for circuits that are re-planned while the job runs if whoever plans
them treats images alike. It is then enough to run the first of them, on the fabric's links taken together
where they are each other's images.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.fabric import NO_LINK
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.parallel.lowering import Lowering
from sipml_core.parallel.taskbuilder import TaskBuilder


class NoSymmetryError(ConfigError):
    """Groups are not alike; the message says what tells them apart."""


@attrs.frozen(kw_only=True, eq=False)
class Pairs:
    """Who sends to whom, and how much, in the whole job: shifts of what the first period sends.

    The shift of pair r by k periods is at [k, r].
    """

    lowering: Lowering
    #: Ends. [shifts, pairs]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    #: Of all iterations, the same for all shifts. [pairs] [bytes]
    size_bytes: NDArray[np.float64]

    @classmethod
    def of(cls, lowering: Lowering) -> Pairs:
        """Pairs of the whole job, from the tasks of its first period."""
        gpus, gpu_at = lowering.strategy.gpus, lowering.layout.reshape(-1)
        position = np.argsort(gpu_at)
        tasks = lowering.tasks(lowering.period)
        key, pair = np.unique(tasks.src.astype(np.int64) * gpus + tasks.dst, return_inverse=True)
        ends = position[np.array([key // gpus, key % gpus])]
        shift = np.arange(0, gpus, lowering.period * lowering.strategy.mp)[:, None]
        src, dst = gpu_at[(ends[:, None, :] + shift) % gpus]
        return cls(
            lowering=lowering,
            src=src,
            dst=dst,
            size_bytes=np.bincount(pair.reshape(-1), tasks.size_bytes, len(key)).astype(np.float64),
        )

    @property
    def tasks(self) -> TaskGraph:
        """One transfer of all its bytes for each pair, in the order [shifts, pairs]."""
        builder = TaskBuilder(self.lowering.strategy.gpus)
        builder.transfers(self.src, self.dst, self.size_bytes, 0)
        return builder.build()


@attrs.frozen(kw_only=True, eq=False)
class Folded:
    """The first groups of a job, which stand for all."""

    groups: int
    #: GPUs of these groups: theirs are the accounts that count.
    gpus: NDArray[np.int32]
    tasks: TaskGraph
    network: Network
    #: What is decided while the job runs; None: nothing.
    control: CircuitControl | None


def fold(
    pairs: Pairs,
    network: Network,
    capacity_gbps: NDArray[np.float64],
    control: CircuitControl | None = None,
) -> Folded:
    """The fewest groups that stand for all.

    Parameters
    ----------
    network
        All `pairs.tasks` on their fabric.
    capacity_gbps
        Of its links, circuits included, from the start of the job, to its end but for what `control`
        decides. [links] [Gbps]
    control
        What is decided while the job runs; None: nothing.

    Raises
    ------
    NoSymmetryError
        No part of the job stands for the rest; the message has what stops the largest one.
    """
    shifts = len(pairs.src)
    reason = "the job does not repeat" if shifts == 1 else ""
    for step in range(1, shifts // 2 + 1):
        if shifts % step == 0:
            try:
                _refuse_uneven_speeds(pairs.lowering, step)
                orbits = _Orbits.of(pairs, network, capacity_gbps, step)
                part = _part_of(control, pairs.lowering, step)
            except NoSymmetryError as error:
                reason = str(error)
            else:
                return _folded(pairs, network, orbits, step, part)
    raise NoSymmetryError(reason)


def _refuse_uneven_speeds(lowering: Lowering, step: int) -> None:
    speed = lowering.speed[lowering.layout].reshape(-1, step * lowering.period * lowering.strategy.mp)
    uneven = np.flatnonzero((speed != speed[0]).any(axis=1))
    if len(uneven):
        raise NoSymmetryError(f"GPUs differ in speed (gpu_speed) between {_groups(lowering, step)}")


def _part_of(control: CircuitControl | None, lowering: Lowering, step: int) -> CircuitControl | None:
    if control is None:
        return None
    gpu_at = lowering.layout.reshape(-1)
    image = np.empty_like(gpu_at)
    image[gpu_at] = np.roll(gpu_at, -step * lowering.period * lowering.strategy.mp)
    part = control.folded(image)
    if part is None:
        raise NoSymmetryError(
            "re-planned circuits can differ between groups: no part of the network stands for all"
        )
    return part


def _groups(lowering: Lowering, step: int) -> str:
    """What a shift by `step` periods exchanges, in words."""
    groups = step * lowering.period
    return "one group and the next" if groups == 1 else f"{groups} groups and the next {groups}"


@attrs.frozen(kw_only=True, eq=False)
class _Orbits:
    """Links that a shift of the job takes to each other, as one."""

    #: Orbit of each link, numbered by their first links. [links]
    of_link: NDArray[np.int64]
    #: The first link of each orbit. [orbits]
    first: NDArray[np.int64]
    #: Part of a link that one of the images has to itself: 1 unless images share links. [orbits]
    share: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Pairs, network: Network, capacity_gbps: NDArray[np.float64], step: int) -> _Orbits:
        """Orbits under the shift by `step` periods, if it is an automorphism of routes and capacities."""
        rows = network.transfer_pair.reshape(pairs.src.shape)
        groups = _groups(pairs.lowering, step)
        latency_us = network.pair_latency_us[rows]
        if (latency_us != np.roll(latency_us, -step, axis=0)).any():
            raise NoSymmetryError(f"latencies differ between {groups}")
        image = _images(network.pair_links[rows], step, len(network.link_gbps), groups)
        weights = network.pair_weights[rows]
        if (weights != np.roll(weights, -step, axis=0)).any():
            raise NoSymmetryError(f"routes differ in weights between {groups}")
        circuit = np.arange(len(image)) >= network.first_circuit
        if (capacity_gbps[image] != capacity_gbps).any() or (circuit[image] != circuit).any():
            kind = "circuits" if circuit.any() else "links"
            raise NoSymmetryError(f"{kind} differ in capacity between {groups}")
        first, of_link, links = np.unique(_smallest_images(image), return_inverse=True, return_counts=True)
        orbits = cls(of_link=of_link.reshape(-1), first=first, share=links * step / len(rows))
        orbits._refuse_knots(network.pair_links[rows[:step]])
        if (orbits.share[np.searchsorted(first, network.first_circuit) :] != 1).any():
            raise NoSymmetryError("images of one pair share circuits")
        return orbits

    def _refuse_knots(self, links: NDArray[np.int32]) -> None:
        """Routes that cross two links of one orbit would have to count twice on it."""
        crossed = np.sort(np.where(links == NO_LINK, NO_LINK, self.of_link[links]), axis=-1)
        if ((crossed[..., 1:] == crossed[..., :-1]) & (crossed[..., 1:] != NO_LINK)).any():
            raise NoSymmetryError("a route crosses two links that are images of each other")


def _images(links: NDArray[np.int32], step: int, count: int, groups: str) -> NDArray[np.int64]:
    """Where the shift takes each link, from routes [shifts, pairs, width]. [links]"""
    moved = np.roll(links, -step, axis=0)
    used = links != NO_LINK
    if (used != (moved != NO_LINK)).any():
        raise NoSymmetryError(f"routes differ in length between {groups}")
    key = np.unique(links[used].astype(np.int64) * count + moved[used])
    source, target = key // max(count, 1), key % max(count, 1)
    if len(key) != count or len(np.unique(target)) != count:
        raise NoSymmetryError(f"routes share links in different ways between {groups}")
    return np.asarray(target[np.argsort(source)])


def _smallest_images(image: NDArray[np.int64]) -> NDArray[np.int64]:
    """The smallest link that repeated shifts take each link to: the name of its orbit. [links]"""
    smallest = np.arange(len(image))
    while True:
        wider = np.minimum(smallest, smallest[image])
        if (wider == smallest).all():
            return smallest
        smallest, image = wider, image[image]


def _folded(
    pairs: Pairs, network: Network, orbits: _Orbits, step: int, control: CircuitControl | None
) -> Folded:
    lowering = pairs.lowering
    groups = step * lowering.period
    tasks = lowering.tasks(groups)
    src, sent_to = pairs.src[:step].reshape(-1), pairs.dst[:step].reshape(-1)
    dst = _stand_ins(lowering, groups, src, sent_to)
    key = src.astype(np.int64) * tasks.gpus + sent_to
    order = np.lexsort((sent_to, dst, src))
    by_key = np.argsort(key)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    found = np.searchsorted(key[by_key], tasks.src.astype(np.int64) * tasks.gpus + tasks.dst)
    transfer_pair = place[by_key[found]]
    row = network.transfer_pair[: step * pairs.src.shape[1]][order]
    links = network.pair_links[row]
    first_circuit = int(np.searchsorted(orbits.first, network.first_circuit))
    circuits = orbits.first[first_circuit:] - network.first_circuit
    return Folded(
        groups=groups,
        control=control,
        gpus=lowering.layout[:groups].reshape(-1),
        tasks=attrs.evolve(tasks, dst=dst[order][transfer_pair]),
        network=Network.of_matrix(
            gpus=tasks.gpus,
            pair_src=src[order],
            pair_dst=dst[order],
            pair_links=np.where(links == NO_LINK, NO_LINK, orbits.of_link[links]),
            pair_weights=network.pair_weights[row],
            pair_latency_us=network.pair_latency_us[row],
            transfer_pair=transfer_pair,
            link_gbps=network.link_gbps[orbits.first] * orbits.share,
            link_id=network.link_id[orbits.first],
            first_circuit=first_circuit,
            circuit_src=network.circuit_src[circuits],
            circuit_dst=network.circuit_dst[circuits],
        ),
    )


def _stand_ins(
    lowering: Lowering, groups: int, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Among the first groups, whom each destination is the image of, for the accounts. [pairs]

    Where that is the sender, the destination stays: what comes in at the sender is pending exactly
    when this transfer is, so the sender's own account has it already.
    """
    gpu_at = lowering.layout.reshape(-1)
    image = gpu_at[np.argsort(gpu_at)[dst] % (groups * lowering.strategy.mp)]
    return np.where(image == src, dst, image)
