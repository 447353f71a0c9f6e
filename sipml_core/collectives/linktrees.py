"""An exchange inside a group along the links between its GPUs, where these have links of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import InfeasibleError
from sipml_core.model import GroupShape
from sipml_core.plugin import Exchange


class LinkTrees(Exchange):
    """Down a tree of links from each maker, such that all links together are used as evenly as possible.

    On a mesh of GPUs a result that goes straight to each user crosses links that others need as well; along
    a tree of links it crosses n - 1 of them, the least that reaches everybody.
    """

    name = "link-trees"
    summary = "down trees of the links between GPUs, all links used evenly"

    def offered(self, shape: GroupShape) -> bool:
        """See `Exchange.offered`: where links join all GPUs, but not each to each."""
        links = np.array(shape.links, dtype=np.float64)
        return shape.devices > 2 and bool(shape.links) and _joined(links)

    def parents(self, shape: GroupShape) -> NDArray[np.int32]:
        """Return the trees, grown together, each by the link that is then the least used of all it may take.

        Examples
        --------
        Four GPUs on a line; there is one tree from each:

        >>> line = ((0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0), (0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0))
        >>> LinkTrees(None).parents(GroupShape.of(devices=4, links=line)).tolist()
        [[0, 0, 1, 2], [1, 1, 1, 2], [1, 2, 2, 2], [1, 2, 3, 3]]
        """
        gbps = np.array(shape.links, dtype=np.float64)
        if not shape.links or not _joined(gbps):
            raise InfeasibleError(
                f"exchange 'link-trees' needs links without a switch that join all {shape.devices} GPUs of a "
                "group: use 'direct' or 'ring'"
            )
        n = shape.devices
        # Parent of each device in each tree, -1 before it is reached; its distance from the root. [n, n]
        parents, depth = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n), dtype=np.int32)
        np.fill_diagonal(parents, np.arange(n))
        used = np.zeros((n, n))
        for _ in range(n - 1):
            for root in range(n):
                _grow(parents[root], depth[root], used, gbps)
        return parents


def _grow(
    parents: NDArray[np.int32], depth: NDArray[np.int32], used: NDArray[np.float64], gbps: NDArray[np.float64]
) -> None:
    """Add one device to a tree, over the link that is least used with it; of equals the nearest the root."""
    reached = parents >= 0
    may = (gbps > 0) & reached[:, None] & ~reached[None]
    tail, head = np.nonzero(may)
    after = (used[tail, head] + 1) / gbps[tail, head]
    best = np.lexsort((head, tail, depth[tail], after))[0]
    parents[head[best]] = tail[best]
    depth[head[best]] = depth[tail[best]] + 1
    used[tail[best], head[best]] += 1


def _joined(gbps: NDArray[np.float64]) -> bool:
    """Return whether links lead from every member to every other."""
    reach = gbps > 0
    for _ in range(len(gbps)):
        reach = reach | ((reach.astype(int) @ reach.astype(int)) > 0)
    return bool((reach | np.eye(len(gbps), dtype=bool)).all())
