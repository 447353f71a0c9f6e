"""Links of a torus and routes along the fewest of them."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Cluster, Fabric, FabricHints, FabricWords, PairArray, Routes, hashed_choice
from sipml_torus.lattice import Lattice, Vectors

#: Units that the last dimension, the last two, ... of a torus are.
_UNITS = ("row", "plane", "cube", "4-cube", "5-cube")


@attrs.frozen(eq=False)
class Wiring:
    """Every GPU has a link to the next one either way along each dimension of more than one GPU.

    Link ``node * 2 D + 2 d`` leads from `node` up along the d-th of D such dimensions, the one after it down.
    """

    lattice: Lattice
    #: Of one link. [us]
    latency_us: float
    spray: bool
    #: Steps of the paths to each node from node 0: see `_steps`.
    _found: dict[int, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = attrs.Factory(dict)

    @property
    def dimensions(self) -> list[int]:
        """Return the dimensions that have links."""
        return [d for d, size in enumerate(self.lattice.shape) if size > 1]

    @property
    def links_per_gpu(self) -> int:
        return 2 * len(self.dimensions)

    def fabric(self, cluster: Cluster, notes: tuple[str, ...] = ()) -> Fabric:
        """Return the torus as a fabric; each link has its part of the bandwidth of a GPU."""
        lattice, per_gpu = self.lattice, self.links_per_gpu
        node = np.repeat(np.arange(lattice.nodes), per_gpu)
        steps = np.zeros((per_gpu, len(lattice.shape)), np.int64)
        for k, dimension in enumerate(self.dimensions):
            steps[2 * k, dimension], steps[2 * k + 1, dimension] = 1, -1
        head = lattice.index(lattice.coordinates(node) + np.tile(steps, (lattice.nodes, 1)))

        # Consecutive GPUs share a row, rows a plane. The units of more than one GPU, and less than all.
        sizes = np.cumprod(lattice.shape[::-1])[:-1].tolist()
        named = {size: name for name, size in zip(_UNITS, sizes, strict=False) if 1 < size < lattice.nodes}
        return Fabric(
            gpus=lattice.nodes,
            link_gbps=np.full(len(node), cluster.bandwidth_gbps / per_gpu),
            link_tail=node,
            link_head=head,
            route=self.route,
            hints=FabricHints(
                tiers=tuple((name, size) for size, name in named.items()),
                torus=() if lattice.shift.any() else tuple(lattice.shape),
            ),
            words=FabricWords(link_names=self._name, notes=notes),
        )

    def _name(self, link: int) -> str:
        node, way = divmod(link, self.links_per_gpu)
        return f"GPU {node} {'+-'[way % 2]}{'xyzuvw'[self.dimensions[way // 2]]}"

    def route(self, src: PairArray, dst: PairArray) -> Routes:
        """Return the routes of pairs: one path by a hash of the pair, or all at once."""
        return self._route(np.asarray(src, np.int64), np.asarray(dst, np.int64))

    def _route(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        lattice = self.lattice
        base = lattice.coordinates(src)
        to = lattice.index(lattice.coordinates(dst) - base)
        places, inverse = np.unique(to, return_inverse=True)
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        latency = np.zeros(len(src))
        for k, place in enumerate(places.tolist()):
            rows = np.flatnonzero(inverse == k)
            paths = self._paths(place)
            latency[rows] = self.latency_us * len(paths[0][0])
            if self.spray:
                parts.append(self._crossed(rows, base[rows], paths, 1.0 / len(paths)))
                continue
            choice = hashed_choice(src[rows] * lattice.nodes + dst[rows], len(paths))
            for which, path in enumerate(paths):
                chosen = rows[choice == which]
                parts.append(self._crossed(chosen, base[chosen], [path], 1.0))
        if not parts:
            parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
        pair = np.concatenate([part[0] for part in parts])
        link = np.concatenate([part[1] for part in parts])
        weight = np.concatenate([part[2] for part in parts])
        return Routes.of_entries(len(src), pair, link, weight, latency, in_order=True)

    def _crossed(
        self,
        rows: NDArray[np.int64],
        base: Vectors,
        paths: list[tuple[NDArray[np.int64], Vectors]],
        weight: float,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return pair, link and weight of all that pairs with sources at `base` cross on these paths."""
        ways = np.concatenate([way for way, _ in paths])
        offsets = np.concatenate([offset for _, offset in paths])
        node = self.lattice.index(base[:, None, :] + offsets[None, :, :])
        link = node * self.links_per_gpu + ways
        return np.repeat(rows, len(ways)), link.ravel(), np.full(link.size, weight)

    def _paths(self, place: int) -> list[tuple[NDArray[np.int64], Vectors]]:
        """Return the paths from node 0 to a place: dimension after dimension, in every order of them.

        Each is its links' ways out of a node [steps] and where these leave, from node 0 [steps, dimensions].
        """
        if place not in self._found:
            found: dict[bytes, tuple[NDArray[np.int64], Vectors]] = {}
            for vector in self.lattice.shortest(place):
                for order in itertools.permutations(self.dimensions):
                    path = self._along(vector, order)
                    found.setdefault(path[0].tobytes(), path)
            self._found[place] = list(found.values())
        return self._found[place]

    def _along(self, vector: Vectors, order: tuple[int, ...]) -> tuple[NDArray[np.int64], Vectors]:
        """Return the path that takes all steps along one dimension, then along the next in this order."""
        ways, offsets = [], []
        at = np.zeros(len(vector), np.int64)
        for dimension in order:
            step = int(np.sign(vector[dimension]))
            for _ in range(abs(int(vector[dimension]))):
                ways.append(2 * self.dimensions.index(dimension) + (step < 0))
                offsets.append(at.copy())
                at[dimension] += step
        return np.array(ways, np.int64), np.array(offsets, np.int64).reshape(-1, len(vector))
