"""Simulate the first groups in place of all, where all do the same at the same time.

In the order of `Lowering.gpu_of` the job repeats every `Lowering.period` groups. If moving every GPU
on by some groups also takes each route to the route of the moved pair, over links of the same capacity, then
the moved run is the run itself: max-min fair rates are unique, so groups that far apart are always
in the same state. The same holds for circuits that are re-planned while the job runs if whoever plans
them treats images alike. It is then enough to run the first of them, on the fabric's links taken together
where they are each other's images.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.lowering.joblowering import Lowering
from sipml_core.model import (
    NO_LINK,
    CircuitControl,
    FoldableControl,
    Network,
    PairIndex,
    RelayedTasks,
    TaskBuilder,
    TaskGraph,
    parts_of,
    sorted_unique,
)

#: Tasks in either form.
Tasks = TaskGraph | RelayedTasks


class NoSymmetryError(ConfigError):
    """Groups are not alike; the message says what tells them apart."""


@frozen(kw_only=True, eq=False)
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
        """Return the pairs of the whole job, from the tasks of its first period.

        Examples
        --------
        Two groups of the worked example: group 0 sends inside, and to its counterparts; so does group 1.

        >>> from sipml_core.testing.worked import lowering
        >>> pairs = Pairs.of(lowering(dp=2))
        >>> pairs.src.tolist()
        [[0, 0, 0, 1, 1, 2, 2], [3, 3, 3, 4, 4, 5, 5]]
        >>> pairs.dst.tolist()
        [[1, 2, 3, 0, 4, 0, 5], [4, 5, 0, 3, 1, 3, 2]]
        >>> pairs.size_bytes.tolist()
        [8.0, 8.0, 10.0, 8.0, 2.0, 8.0, 2.0]
        """
        gpus, gpu_at = lowering.plan.gpus, lowering.gpu_of.reshape(-1)
        # Position of each GPU in the job's order; ends of the first period's pairs, as positions. [2, pairs]
        position = np.argsort(gpu_at)
        tasks = lowering.sends(lowering.period)
        key, pair = PairIndex(gpus).unique(tasks.src, tasks.dst)
        ends = position[np.array(PairIndex(gpus).ends(key))]

        # Moved on by whole periods. [shifts, pairs]
        shift = np.arange(0, gpus, lowering.period * lowering.plan.replica_gpus)[:, None]
        src, dst = gpu_at[(ends[:, None, :] + shift) % gpus]
        return cls(
            lowering=lowering,
            src=src,
            dst=dst,
            size_bytes=np.bincount(pair, tasks.size_bytes, len(key)).astype(np.float64),
        )

    @property
    def tasks(self) -> TaskGraph:
        """Return one transfer of all its bytes for each pair, in the order [shifts, pairs]."""
        builder = TaskBuilder(self.lowering.plan.gpus)
        builder.transfers(self.src, self.dst, self.size_bytes, 0)
        return builder.build()


@frozen(kw_only=True, eq=False)
class Folded:
    """The first groups of a job, which stand for all."""

    groups: int
    #: GPUs of these groups: theirs are the accounts that count.
    gpus: NDArray[np.int32]
    tasks: Tasks
    network: Network
    #: What is decided while the job runs; None: nothing.
    control: CircuitControl | None
    #: Receiver of each pair of `network`, where that has who stands for it. [pairs]
    pair_dst: NDArray[np.int32]
    #: Links of the whole network: fabric ids, where a shift by `groups` takes each (another of them), the
    #: link of `network` that stands for it, and the part of it that this is. [whole links]
    whole_id: NDArray[np.int64]
    whole_image: NDArray[np.int64]
    whole_orbit: NDArray[np.int64]
    whole_share: NDArray[np.float64]

    @property
    def link_share(self) -> NDArray[np.float64]:
        """Return the part of its real link that each link of `network` is. [links]"""
        share = np.ones(len(self.network.link_gbps))
        share[self.whole_orbit] = self.whole_share
        return share


@frozen(kw_only=True, eq=False)
class Symmetry:
    """How the first groups of a job stand for all: known before any of their tasks is made."""

    pairs: Pairs
    network: Network
    orbits: _Orbits
    #: Periods of the job that are simulated.
    step: int
    #: What is decided for these groups while the job runs; None: nothing.
    control: CircuitControl | None

    @property
    def gpus(self) -> NDArray[np.int32]:
        """Return the GPUs of the first groups."""
        lowering = self.pairs.lowering
        return lowering.gpu_of[: self.step * lowering.period].reshape(-1)

    def folded(self, tasks_of: Callable[[Lowering, int], Tasks] = Lowering.tasks) -> Folded:
        """Return the first groups with their tasks, which `tasks_of` makes."""
        return _folded(self.pairs, self.network, self.orbits, self.step, self.control, tasks_of)


def symmetry(
    pairs: Pairs,
    network: Network,
    capacity_gbps: NDArray[np.float64],
    control: CircuitControl | None = None,
) -> Symmetry:
    """Return how the smallest set of groups whose simulation equals that of all stands for them.

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

    Examples
    --------
    >>> from sipml_core.testing.worked import lowering, switch
    >>> pairs = Pairs.of(lowering(dp=4))
    >>> network = Network.of(switch(12), pairs.tasks)
    >>> part = symmetry(pairs, network, network.link_gbps)
    >>> part.step, part.gpus.tolist()
    (1, [0, 1, 2])
    >>> part.folded().tasks.transfers
    7
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
                return Symmetry(pairs=pairs, network=network, orbits=orbits, step=step, control=part)
    raise NoSymmetryError(reason)


def _refuse_uneven_speeds(lowering: Lowering, step: int) -> None:
    speed = lowering.speed[lowering.gpu_of].reshape(-1, step * lowering.period * lowering.plan.replica_gpus)
    uneven = np.flatnonzero((speed != speed[0]).any(axis=1))
    if len(uneven):
        raise NoSymmetryError(f"GPUs differ in speed (gpu_speed) between {_groups(lowering, step)}")


def _part_of(control: CircuitControl | None, lowering: Lowering, step: int) -> CircuitControl | None:
    if control is None:
        return None
    gpu_at = lowering.gpu_of.reshape(-1)
    image = np.empty_like(gpu_at)
    image[gpu_at] = np.roll(gpu_at, -step * lowering.period * lowering.plan.replica_gpus)
    part = control.folded(image) if isinstance(control, FoldableControl) else None
    if part is None:
        raise NoSymmetryError(
            "re-planned circuits can differ between groups: no part of the network stands for all"
        )
    return part


def _groups(lowering: Lowering, step: int) -> str:
    """Return what a shift by `step` periods exchanges, in words."""
    groups = step * lowering.period
    return "one group and the next" if groups == 1 else f"{groups} groups and the next {groups}"


@frozen(kw_only=True, eq=False)
class _Orbits:
    """Links that a shift of the job takes to each other, as one."""

    #: Orbit of each link, numbered by their first links. [links]
    of_link: NDArray[np.int64]
    #: The first link of each orbit. [orbits]
    first: NDArray[np.int64]
    #: Part of a link that one of the images has to itself: 1 unless images share links. [orbits]
    share: NDArray[np.float64]
    #: Link that the shift takes each link to. [links]
    image: NDArray[np.int64]

    @classmethod
    def of(cls, pairs: Pairs, network: Network, capacity_gbps: NDArray[np.float64], step: int) -> _Orbits:
        """Return the orbits under the shift by `step` periods, if it takes routes to equal routes.

        Examples
        --------
        Two groups of three on a switch: link i leaves GPU i, link 6 + i enters it. Links of counterparts are
        images of each other, so six stand for twelve, and none is shared by images.

        >>> from sipml_core.testing.worked import lowering, switch
        >>> pairs = Pairs.of(lowering(dp=2))
        >>> network = Network.of(switch(6), pairs.tasks)
        >>> orbits = _Orbits.of(pairs, network, network.link_gbps, step=1)
        >>> orbits.of_link.tolist()
        [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
        >>> orbits.first.tolist(), orbits.share.tolist()
        ([0, 1, 2, 6, 7, 8], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        """
        # Row of each pair in the network's tables. [shifts, pairs]
        rows = network.transfer_pair.reshape(pairs.src.shape)
        groups = _groups(pairs.lowering, step)
        latency_us = network.pair_latency_us[rows]
        if (latency_us != np.roll(latency_us, -step, axis=0)).any():
            raise NoSymmetryError(f"latencies differ between {groups}")

        # Where the shift takes each link. [links]
        image = _images(network.pair_links[rows], step, len(network.link_gbps), groups)
        weights = network.pair_weights[rows]
        if (weights != np.roll(weights, -step, axis=0)).any():
            raise NoSymmetryError(f"routes differ in weights between {groups}")
        circuit = np.arange(len(image)) >= network.first_circuit
        if (capacity_gbps[image] != capacity_gbps).any() or (circuit[image] != circuit).any():
            kind = "circuits" if circuit.any() else "links"
            raise NoSymmetryError(f"{kind} differ in capacity between {groups}")

        # A link that the images of one pair share is theirs in equal parts.
        first, of_link, links = np.unique(_smallest_images(image), return_inverse=True, return_counts=True)
        orbits = cls(of_link=of_link.reshape(-1), first=first, share=links * step / len(rows), image=image)
        orbits._refuse_double_crossings(network.pair_links[rows[:step]])
        if (orbits.share[np.searchsorted(first, network.first_circuit) :] != 1).any():
            raise NoSymmetryError("images of one pair share circuits")
        return orbits

    def _refuse_double_crossings(self, links: NDArray[np.int32]) -> None:
        """Refuse routes that cross two links of one orbit: they would count twice on it."""
        crossed = np.sort(np.where(links == NO_LINK, NO_LINK, self.of_link[links]), axis=-1)
        if ((crossed[..., 1:] == crossed[..., :-1]) & (crossed[..., 1:] != NO_LINK)).any():
            raise NoSymmetryError("a route crosses two links that are images of each other")


def _images(links: NDArray[np.int32], step: int, count: int, groups: str) -> NDArray[np.int64]:
    """Return where the shift takes each link, from routes [shifts, pairs, width]. [links]

    Examples
    --------
    Two shifts of one pair: its route over links 0 and 2 is taken to that over 1 and 3, and back.

    >>> _images(np.array([[[0, 2]], [[1, 3]]]), step=1, count=4, groups="one group and the next").tolist()
    [1, 0, 3, 2]
    """
    # The route that each is taken to, link by link. [shifts, pairs, width]
    moved = np.roll(links, -step, axis=0)
    used = links != NO_LINK
    if (used != (moved != NO_LINK)).any():
        raise NoSymmetryError(f"routes differ in length between {groups}")

    # Each (link, image) once: one image for each link, different for different links.
    key = sorted_unique(links[used].astype(np.int64) * count + moved[used])
    source, target = key // max(count, 1), key % max(count, 1)
    if len(key) != count or len(sorted_unique(target)) != count:
        raise NoSymmetryError(f"routes share links in different ways between {groups}")
    return np.asarray(target[np.argsort(source)])


def _smallest_images(image: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the smallest link that repeated shifts take each link to: the name of its orbit. [links]

    >>> _smallest_images(np.array([1, 2, 0, 3])).tolist()
    [0, 0, 0, 3]
    """
    # After k rounds, the smallest of 2^k images; `image` goes 2^k shifts on.
    smallest = np.arange(len(image))
    while True:
        wider = np.minimum(smallest, smallest[image])
        if (wider == smallest).all():
            return smallest
        smallest, image = wider, image[image]


def _folded(
    pairs: Pairs,
    network: Network,
    orbits: _Orbits,
    step: int,
    control: CircuitControl | None,
    tasks_of: Callable[[Lowering, int], Tasks] = Lowering.tasks,
) -> Folded:
    """Return the first groups, on orbits in place of links.

    Examples
    --------
    One of two groups of the worked example on a switch. GPU 0 sends to GPUs 1, 2 and its counterpart 3, and
    so on; each pair has the links of its sender and its receiver's image, numbered as orbits.

    >>> from sipml_core.testing.worked import lowering, switch
    >>> pairs = Pairs.of(lowering(dp=2))
    >>> network = Network.of(switch(6), pairs.tasks)
    >>> orbits = _Orbits.of(pairs, network, network.link_gbps, step=1)
    >>> part = _folded(pairs, network, orbits, step=1, control=None)
    >>> part.network.pair_src.tolist(), part.network.pair_dst.tolist()
    ([0, 0, 0, 1, 1, 2, 2], [1, 2, 3, 0, 4, 0, 5])
    >>> part.network.pair_links.tolist()
    [[0, 4], [0, 5], [0, 3], [1, 3], [1, 4], [2, 3], [2, 5]]
    >>> part.network.transfer_pair.tolist(), part.tasks.transfers
    ([0, 1, 3, 5, 4, 6, 2], 7)
    """
    lowering = pairs.lowering
    groups = step * lowering.period
    tasks = tasks_of(lowering, groups)

    # Ends of the first groups' pairs, and who stands for each receiver in the accounts. [pairs]
    src, sent_to = pairs.src[:step].reshape(-1), pairs.dst[:step].reshape(-1)
    dst = _stand_ins(lowering, groups, src, sent_to)
    index = PairIndex(tasks.gpus)
    key = index.key(src, sent_to)

    # Pairs sorted by (src, dst); `place` is where each then stands. [pairs]
    order = np.lexsort((sent_to, dst, src))
    by_key = np.argsort(key)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))

    # Pair of each transfer of the first groups, and each pair's row in the whole network.
    place, sorted_key = place[by_key].astype(np.int32), key[by_key]
    sends_from, sends_to = tasks.ends
    transfer_pair = np.empty(len(sends_from), dtype=np.int32)
    for part in parts_of(len(sends_from)):
        found = np.searchsorted(sorted_key, index.key(sends_from[part], sends_to[part]))
        transfer_pair[part] = place[found]
    row = network.transfer_pair[: step * pairs.src.shape[1]][order]

    # Orbits in place of links; circuits still come last.
    links = network.pair_links[row]
    first_circuit = int(np.searchsorted(orbits.first, network.first_circuit))
    circuits = orbits.first[first_circuit:] - network.first_circuit
    return Folded(
        groups=groups,
        control=control,
        gpus=lowering.gpu_of[:groups].reshape(-1),
        pair_dst=sent_to[order],
        whole_id=network.link_id,
        whole_image=orbits.image,
        whole_orbit=orbits.of_link,
        whole_share=orbits.share[orbits.of_link],
        tasks=_received_by(tasks, dst[order][transfer_pair]),
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


def _received_by(tasks: Tasks, dst: NDArray[np.int32]) -> Tasks:
    """Return the tasks with other receivers, of `RelayedTasks` those of all `ends`."""
    if isinstance(tasks, TaskGraph):
        return attrs.evolve(tasks, dst=dst)
    legs = len(tasks.ways.src)
    return attrs.evolve(
        tasks, ways=attrs.evolve(tasks.ways, dst=dst[:legs]), rows=attrs.evolve(tasks.rows, dst=dst[legs:])
    )


def _stand_ins(
    lowering: Lowering, groups: int, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return whom each destination is the image of among the first groups, for the accounts. [pairs]

    Where that is the sender, the destination stays: what comes in at the sender is pending exactly
    when this transfer is, so the sender's own account has it already.
    """
    gpu_at = lowering.gpu_of.reshape(-1)
    image = gpu_at[np.argsort(gpu_at)[dst] % (groups * lowering.plan.replica_gpus)]
    return np.where(image == src, dst, image)
