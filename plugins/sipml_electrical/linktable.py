"""Links of a network, one kind after the other, each with its ends and its names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray


@attrs.define
class LinkTable:
    """Links numbered in the order in which kinds of them are added.

    Examples
    --------
    Two GPUs (nodes 0 and 1) and a switch (node 2):

    >>> table = LinkTable()
    >>> up = table.add("egress {}", 8.0, tail=[0, 1], head=[2, 2])
    >>> down = table.add("ingress {}", 8.0, tail=[2, 2], head=[0, 1])
    >>> up, down, table.name(3), table.gbps.tolist()
    (0, 2, 'ingress 1', [8.0, 8.0, 8.0, 8.0])
    """

    #: First link, name, and what turns a link's number within its kind into what the name says, by kind.
    _kinds: list[tuple[int, str, Callable[[int], tuple[int, ...]]]] = attrs.Factory(list)
    _gbps: list[NDArray[np.float64]] = attrs.Factory(list)
    _tail: list[NDArray[np.int64]] = attrs.Factory(list)
    _head: list[NDArray[np.int64]] = attrs.Factory(list)
    _count: int = 0

    def add(
        self,
        name: str,
        gbps: float,
        *,
        tail: ArrayLike,
        head: ArrayLike,
        shape: tuple[int, ...] = (),
        numbers: Sequence[tuple[int, ...]] = (),
    ) -> int:
        """Add a link from each node of `tail` to the one of `head`; return the number of the first.

        Parameters
        ----------
        name
            With a place for each of the numbers of a link.
        numbers
            Of each link; left out: its indices in an array of `shape`, the last one fastest.
        shape
            Left out: links have one number, from 0 on.
        """
        ends = [np.asarray(end, np.int64).reshape(-1) for end in (tail, head)]
        first, shape = self._count, shape or (len(ends[0]),)

        def numbers_of(k: int) -> tuple[int, ...]:
            return numbers[k] if numbers else tuple(int(i) for i in np.unravel_index(k, shape))

        self._kinds.append((first, name, numbers_of))
        self._gbps.append(np.full(len(ends[0]), gbps))
        self._tail.append(ends[0])
        self._head.append(ends[1])
        self._count += len(ends[0])
        return first

    @property
    def gbps(self) -> NDArray[np.float64]:
        """Return the capacity of each link. [links] [Gbps]"""
        return np.concatenate(self._gbps)

    def name(self, link: int) -> str:
        """Return the name of a link."""
        first, name, numbers = next(kind for kind in reversed(self._kinds) if kind[0] <= link)
        return name.format(*numbers(link - first))

    def fields(self) -> dict[str, Any]:
        """Return the links as `Fabric` takes them."""
        return {
            "link_gbps": self.gbps,
            "link_tail": np.concatenate(self._tail),
            "link_head": np.concatenate(self._head),
        }
