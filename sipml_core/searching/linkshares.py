"""What the first groups of a job have of links that they share with all the others.

A link gives them the part of its capacity that their bytes are of all the bytes that the job sends over
it. On networks whose links are loaded unevenly (routes chosen by a hash, a graph without symmetry) other
groups have a worse way: a collective over replicas waits for its slowest pair, and the replicas for the
slowest group. So each pair of the first groups also crosses the way of that one of its images, in other
groups, that has the most loaded link, with the part of its links that the groups of that image have.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Network, ranges

#: Loads and latencies that differ by less, relative, count as one: sums of bytes have rounding.
_EQUAL = 1e-9


def shared_links(
    network: Network,
    capacity_gbps: NDArray[np.float64],
    pair: NDArray[np.intp],
    pair_bytes: NDArray[np.float64],
) -> Network:
    """Return the network as the first groups see it; pairs stay as they are numbered.

    Parameters
    ----------
    network
        That of the whole job.
    capacity_gbps
        Of its links. [links] [Gbps]
    pair
        Pair of the network that each pair of the first groups is, in row 0, and its images in other groups,
        in the rows below. [images, pairs of the first groups]
    pair_bytes
        What each pair of the network sends. [pairs of the network] [bytes]

    Examples
    --------
    Of four GPUs each sends 10 bytes to the next one: three over a link each, that from 3 to 0 over a link
    that carries 30 bytes more of GPU 1. As a group of one GPU, GPU 0 stands for all. Of its own
    link it has the whole, 100 Gbps, and beside it the part of GPU 3 on the link of that, a quarter.

    >>> network = Network.of_matrix(
    ...     gpus=4, pair_src=[0, 1, 1, 2, 3], pair_dst=[1, 2, 3, 3, 0],
    ...     pair_links=np.array([[0], [1], [3], [2], [3]]), pair_latency_us=np.zeros(5),
    ...     transfer_pair=[0, 1, 2, 3, 4], link_gbps=np.full(4, 100.0), link_id=np.arange(4), first_circuit=4,
    ...     circuit_src=[], circuit_dst=[],
    ... )
    >>> seen = shared_links(
    ...     network, network.link_gbps, np.array([[0], [1], [3], [4]]), np.array([10.0, 10, 30, 10, 10])
    ... )
    >>> seen.pair_links[0].tolist(), seen.link_gbps[[0, 4]].tolist()
    ([0, 4], [100.0, 25.0])
    """
    all_bytes = network.link_sum(pair_bytes)
    plain = _part_of_first(network, capacity_gbps, pair[0], pair_bytes, all_bytes)
    if not pair.size:
        return plain

    # Time that each link takes for all its bytes, and that of the most loaded link of each pair.
    link_time = np.divide(all_bytes, capacity_gbps, out=np.zeros(len(all_bytes)), where=capacity_gbps > 0)
    pair_time = np.maximum.reduceat(link_time[network.pair_link], network.pair_start[:-1])
    latency_us = network.pair_latency_us.copy()
    latency_us[pair[0]] = network.pair_latency_us[pair].max(axis=0)
    worst = pair_time[pair].argmax(axis=0)
    image = pair[worst, np.arange(pair.shape[1])]
    worse = pair_time[image] > pair_time[pair[0]] * (1 + _EQUAL)
    if not worse.any():
        return attrs.evolve(plain, pair_latency_us=latency_us)

    # Bytes of the groups of each image on each link, by key (image, link). [keys]
    links = len(all_bytes)
    of_image = np.zeros(len(network.pair_src), np.int64)
    of_image[pair] = np.arange(len(pair))[:, None]
    key, at = np.unique(of_image[network.entry_pair] * links + network.pair_link, return_inverse=True)
    at = at.reshape(-1)
    image_bytes = np.bincount(at, pair_bytes[network.entry_pair] * network.pair_weight, len(key))

    # Entries of the images, which stand beside those of the first groups' own pairs.
    mine, theirs = pair[0][worse], image[worse]
    count = np.diff(network.pair_start)[theirs]
    entry = ranges(network.pair_start[theirs], count)
    used, place = np.unique(at[entry], return_inverse=True)
    link = key[used] % links
    part = np.divide(image_bytes[used], all_bytes[link], out=np.ones(len(used)), where=all_bytes[link] > 0)

    entry_pair = np.concatenate([network.entry_pair, np.repeat(mine, count)])
    order = np.argsort(entry_pair, kind="stable")
    entries = np.bincount(entry_pair, minlength=len(network.pair_src))
    return attrs.evolve(
        plain,
        pair_start=np.concatenate([[0], np.cumsum(entries)]),
        pair_link=np.concatenate([network.pair_link, links + place.reshape(-1)])[order],
        pair_weight=np.concatenate([network.pair_weight, network.pair_weight[entry]])[order],
        pair_latency_us=latency_us,
        link_gbps=np.concatenate([plain.link_gbps, capacity_gbps[link] * part]),
        link_id=np.concatenate([network.link_id, network.link_id[link]]),
        first_circuit=links + len(used),
    )


def _part_of_first(
    network: Network,
    capacity_gbps: NDArray[np.float64],
    pair: NDArray[np.intp],
    pair_bytes: NDArray[np.float64],
    all_bytes: NDArray[np.float64],
) -> Network:
    """Return the network with links of which the first groups, whose pairs are given, have their part."""
    own = np.zeros(len(pair_bytes), np.bool_)
    own[pair] = True
    own_bytes = network.link_sum(np.where(own, pair_bytes, 0.0))
    share = np.ones(len(all_bytes))
    np.divide(own_bytes, all_bytes, out=share, where=own_bytes > 0)
    return attrs.evolve(
        network,
        link_gbps=capacity_gbps * share,
        first_circuit=len(share),
        circuit_src=[],
        circuit_dst=[],
    )
