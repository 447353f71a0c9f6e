"""What the first groups of a job have of links that they share with all the others.

A link gives them the part of its capacity that their bytes are of all the bytes that the job sends over
it. On networks whose links are loaded unevenly (routes chosen by a hash, a graph without symmetry) other
groups have a worse way: a collective over replicas waits for its slowest pair, and the replicas for the
slowest group. There a pair of the first groups stands for its images in all groups, as if all of them sent
at the same time and at one rate: it crosses each link as often as they do, and links have all they carry.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Network

#: Loads and latencies that differ by less, relative, count as one: sums of bytes have rounding.
_EQUAL = 1e-9


def shared_links(
    network: Network,
    capacity_gbps: NDArray[np.float64],
    pair: NDArray[np.intp],
    pair_bytes: NDArray[np.float64],
) -> Network:
    """Return the network as the first groups see it: with their pairs alone where links are loaded unevenly.

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
    Of four GPUs each sends 10 bytes to the next one, the first two over links of their own, the others over
    one link of 100 Gbps. As a group of one GPU, GPU 0 stands for all: it crosses its own link once, and that
    one twice, for GPU 2 and for GPU 3, which leaves it 50 Gbps.

    >>> network = Network.of_matrix(
    ...     gpus=4, pair_src=[0, 1, 2, 3], pair_dst=[1, 2, 3, 0], pair_links=np.array([[0], [1], [2], [2]]),
    ...     pair_latency_us=np.zeros(4), transfer_pair=[0, 1, 2, 3], link_gbps=np.full(3, 100.0),
    ...     link_id=np.arange(3), first_circuit=3, circuit_src=[], circuit_dst=[],
    ... )
    >>> seen = shared_links(network, network.link_gbps, np.arange(4)[:, None], np.full(4, 10.0))
    >>> seen.link_id[seen.pair_links].tolist(), seen.pair_weights.tolist()
    ([[0, 2]], [[1.0, 2.0]])
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
    worse = pair_time[pair].max(axis=0) > pair_time[pair[0]] * (1 + _EQUAL)
    if not worse.any():
        return attrs.evolve(plain, pair_latency_us=latency_us)

    return _in_step(attrs.evolve(network, pair_latency_us=latency_us), capacity_gbps, pair, link_time)


def _in_step(
    network: Network,
    capacity_gbps: NDArray[np.float64],
    pair: NDArray[np.intp],
    link_time: NDArray[np.float64],
) -> Network:
    """Return the first groups' pairs, each on the links of all its images, as often as these cross them.

    Of all links those that the first groups cross, and of each pair the one that gives it least, and the most
    loaded one.
    """
    # Pair of the first groups that each pair stands beside, and how often its images cross each link, by
    # key (link, pair of the first groups). [pairs], [keys]
    pairs = pair.shape[1]
    stands_for = np.empty(len(network.pair_src), np.int64)
    stands_for[pair] = np.arange(pairs)
    key, at = np.unique(
        network.pair_link * np.int64(pairs) + stands_for[network.entry_pair], return_inverse=True
    )
    weight = np.bincount(at.reshape(-1), network.pair_weight, len(key))
    link, of = key // pairs, key % pairs

    # Links that count. [links kept]
    own = np.zeros(len(network.pair_src), np.bool_)
    own[pair[0]] = True
    needed = np.divide(weight, capacity_gbps[link], out=np.zeros(len(key)), where=capacity_gbps[link] > 0)
    most = [np.lexsort((-measure, of)) for measure in (needed, link_time[link])]
    first = np.searchsorted(of[most[0]], np.arange(pairs))
    kept = np.unique(
        np.concatenate([network.pair_link[own[network.entry_pair]], *(link[order[first]] for order in most)])
    )

    # Entries, by pairs of the first groups in the order of (src, dst).
    rank = np.argsort(np.argsort(pair[0]))
    entries = np.flatnonzero(np.isin(link, kept))
    entries = entries[np.argsort(rank[of[entries]], kind="stable")]
    row = np.sort(pair[0])
    return attrs.evolve(
        network,
        pair_src=network.pair_src[row],
        pair_dst=network.pair_dst[row],
        pair_start=np.concatenate([[0], np.cumsum(np.bincount(rank[of[entries]], minlength=pairs))]),
        pair_link=np.searchsorted(kept, link[entries]),
        pair_weight=weight[entries],
        pair_latency_us=network.pair_latency_us[row],
        transfer_pair=[],
        link_gbps=capacity_gbps[kept],
        link_id=network.link_id[kept],
        first_circuit=len(kept),
        circuit_src=[],
        circuit_dst=[],
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
