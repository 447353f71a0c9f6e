"""What pairs of GPUs cross on their way."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import float64_vector, frozen, int64_matrix, int64_vector

#: No link in this column of a route table.
NO_LINK = -1

#: GPUs at one end of some pairs. [pairs]
PairArray = NDArray[np.int32]


def _int64_links(value: Any) -> NDArray[np.int64]:
    """Converter of `Routes.links`: a vector or a matrix."""
    return int64_vector(value) if np.ndim(value) == 1 else int64_matrix(value)


@frozen(kw_only=True, eq=False)
class Routes:
    """What pairs cross on their way. Row i belongs to the i-th pair asked for.

    Two forms. One path for each pair: `links` is a matrix, and `start` and `weight` are left out. Any
    number of links, and several paths at once: the entries ``start[i]`` to ``start[i + 1] - 1`` are those
    of pair i. A transfer of rate x then takes ``weight * x`` of each link; of a path that carries the part
    w of all bytes, each link has the weight w, and a link of several paths the sum, in one entry or more.

    Examples
    --------
    The second of two pairs sends a quarter of its bytes over link 4, the rest over 5, all over 1 and 9:

    >>> routes = Routes(
    ...     start=[0, 2, 6],
    ...     links=[0, 8, 1, 4, 5, 9],
    ...     weight=[1, 1, 1, 0.25, 0.75, 1],
    ...     latency_us=[0.5, 0.5],
    ... )
    >>> routes.matrix.tolist()
    [[0, 8, -1, -1], [1, 4, 5, 9]]
    >>> Routes(links=[[0, 8, NO_LINK], [1, 4, 9]], latency_us=[0.5, 0.5]).flat().start.tolist()
    [0, 2, 5]
    """

    #: Link ids, padded with NO_LINK; a row of only NO_LINK means the pair cannot talk. [pairs, width]
    #: With `start`, those of all pairs without padding. [entries]
    links: NDArray[np.int64] = attrs.field(converter=_int64_links)
    #: [pairs] [us]
    latency_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: First entry of each pair, and the number of entries. [pairs + 1]
    start: NDArray[np.int64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int64_vector)
    )
    #: None: 1 everywhere. [entries]
    weight: NDArray[np.float64] | None = attrs.field(
        default=None, converter=attrs.converters.optional(float64_vector)
    )

    def __attrs_post_init__(self) -> None:
        if self.start is None:
            if self.links.ndim != 2 or self.weight is not None:
                raise ConfigError("Routes: links without start are a matrix [pairs, width], without weights")
            return
        start, entries = self.start, len(self.links)
        if self.links.ndim != 1 or not len(start) or start[0] != 0 or start[-1] != entries:
            raise ConfigError(f"Routes.start must go from 0 to the number of links, {entries}")
        if (np.diff(start) < 0).any():
            raise ConfigError("Routes.start must not fall")
        if self.weight is not None and len(self.weight) != entries:
            raise ConfigError(f"Routes.weight must have one value for each of {entries} links")

    @classmethod
    def of_paths(
        cls,
        paths: NDArray[np.int64],
        *,
        weight: NDArray[np.float64] | None = None,
        latency_us: NDArray[np.float64],
    ) -> Routes:
        """Return routes over several paths at once; a link that paths of a pair share is one entry.

        Parameters
        ----------
        paths
            Links of each path, with NO_LINK anywhere between. [pairs, paths, width]
        weight
            Part of the bytes on each path, 0 for none; None: the same on each. [pairs, paths]
        latency_us
            Of each path, in us; a route is as late as its latest path that is used. [pairs, paths]

        Examples
        --------
        Half of the bytes over links 1 and 3, half over 1, 2 and 3:

        >>> late = np.array([[0.5, 0.7]])
        >>> routes = Routes.of_paths(np.array([[[1, NO_LINK, 3], [1, 2, 3]]]), latency_us=late)
        >>> routes.links.tolist(), routes.weight.tolist(), routes.latency_us.tolist()
        ([1, 2, 3], [1.0, 0.5, 1.0], [0.7])
        """
        pairs, count, _ = paths.shape
        if weight is None:
            weight = np.full((pairs, count), 1.0 / count)
        used = (paths != NO_LINK) & (weight > 0)[:, :, None]
        pair, path, _ = np.nonzero(used)
        link = paths[used]

        latest_us = np.where(weight > 0, latency_us, 0.0).max(axis=1, initial=0.0)
        return cls.of_entries(pairs, pair, link, weight[pair, path], latest_us)

    @classmethod
    def of_entries(
        cls,
        pairs: int,
        pair: NDArray[np.int64],
        link: NDArray[np.int64],
        weight: NDArray[np.float64],
        latency_us: NDArray[np.float64],
        *,
        in_order: bool = False,
    ) -> Routes:
        """Return routes from pair, link and weight of each entry, in any order.

        Entries of the same pair and link become one, with the sum of their weights, 1 at most.

        Parameters
        ----------
        latency_us
            Of each pair, in us. [pairs]
        in_order
            Links of a pair stay in the order of their first entries; else they are sorted. Where whole routes
            are images of each other (as those of a torus are) groups of a job can only be folded in order.

        Examples
        --------
        >>> pair, link, weight = np.array([1, 0, 1]), np.array([7, 5, 7]), np.array([0.5, 1.0, 0.5])
        >>> routes = Routes.of_entries(2, pair, link, weight, np.zeros(2))
        >>> routes.links.tolist(), routes.weight.tolist(), routes.start.tolist()
        ([5, 7], [1.0, 1.0], [0, 1, 2])
        >>> pair, link, weight = np.array([0, 0, 0]), np.array([9, 3, 9]), np.array([0.5, 0.5, 0.5])
        >>> [
        ...     Routes.of_entries(1, pair, link, weight, np.zeros(1), in_order=in_order).links.tolist()
        ...     for in_order in (False, True)
        ... ]
        [[3, 9], [9, 3]]
        """
        order = np.lexsort((link, pair))
        pair, link, weight = pair[order], link[order], weight[order]
        first = np.flatnonzero((np.diff(pair, prepend=-1) != 0) | (np.diff(link, prepend=-1) != 0))
        summed = np.add.reduceat(weight, first) if len(first) else weight
        start = np.searchsorted(pair[first], np.arange(pairs + 1))
        if in_order and len(first):
            # Entry at which each (pair, link) was first seen.
            seen = np.lexsort((np.minimum.reduceat(order, first), pair[first]))
            first, summed = first[seen], summed[seen]
        return cls(start=start, links=link[first], weight=np.minimum(summed, 1.0), latency_us=latency_us)

    @property
    def pairs(self) -> int:
        return len(self.links) if self.start is None else len(self.start) - 1

    def flat(self) -> Routes:
        """The same routes with `start` and `weight`."""
        if self.start is None:
            used = self.links != NO_LINK
            start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
            return Routes(start=start, links=self.links[used], latency_us=self.latency_us).flat()
        return self if self.weight is not None else attrs.evolve(self, weight=np.ones(len(self.links)))

    @property
    def matrix(self) -> NDArray[np.int64]:
        """The links of each pair, padded with NO_LINK. [pairs, width]"""
        return self.links if self.start is None else padded(self.start, self.links, NO_LINK)


def padded(start: NDArray[np.int64], entries: NDArray[Any], fill: Any) -> NDArray[Any]:
    """Rows ``entries[start[i] : start[i + 1]]`` as a matrix, filled up behind. [rows, width]

    >>> padded(np.array([0, 1, 3]), np.array([7, 8, 9]), -1).tolist()
    [[7, -1], [8, 9]]
    """
    length = np.diff(start)
    used = np.arange(int(length.max(initial=1))) < length[:, None]
    matrix = np.full(used.shape, fill, dtype=entries.dtype)
    matrix[used] = entries
    return matrix
