"""Traffic matrices, sparse: who wants to send how much to whom."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import float64_vector, frozen, int32_vector
from sipml_core.model.pairs import PairIndex


@frozen(kw_only=True, eq=False)
class TrafficMatrix:
    """Demands between ordered pairs of GPUs, sorted by (src, dst), each pair once, all positive.

    Units are the caller's (bytes, usually): schedulers use ratios only.
    """

    gpus: int
    src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    demand: NDArray[np.float64] = attrs.field(converter=float64_vector)

    @classmethod
    def from_pairs(cls, gpus: int, src: ArrayLike, dst: ArrayLike, demand: ArrayLike) -> TrafficMatrix:
        """From any list of pairs: repeated pairs are added, zero demands dropped.

        Raises
        ------
        ConfigError
            A demand is negative, not finite or no number, a GPU is out of range, or sends to itself, or there
            are not as many senders, receivers and demands.
        """
        src, dst = _numbers("senders", src, np.int64), _numbers("receivers", dst, np.int64)
        demand = _numbers("demands", demand, np.float64)
        if not len(src) == len(dst) == len(demand):
            raise ConfigError(
                f"traffic needs as many senders, receivers and demands, got {len(src)}, {len(dst)} and "
                f"{len(demand)}"
            )
        bad = ~(np.isfinite(demand) & (demand >= 0))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise ConfigError(f"traffic[{src[k]}, {dst[k]}] must be finite and not negative, got {demand[k]}")
        out = (src < 0) | (src >= gpus) | (dst < 0) | (dst >= gpus)
        if out.any():
            k = int(np.flatnonzero(out)[0])
            raise ConfigError(f"traffic pair ({src[k]}, {dst[k]}) is outside 0..{gpus - 1}")
        if ((src == dst) & (demand > 0)).any():
            k = int(np.flatnonzero((src == dst) & (demand > 0))[0])
            raise ConfigError(
                f"traffic[{src[k]}, {dst[k]}] is on the diagonal: a GPU needs no circuit to itself"
            )
        index = PairIndex(gpus)
        key, inverse = index.unique(src, dst)
        total = np.bincount(inverse, weights=demand, minlength=len(key))
        keep = total > 0
        ends = index.ends(key[keep])
        return cls(gpus=gpus, src=ends[0], dst=ends[1], demand=total[keep])

    @classmethod
    def from_dense(cls, matrix: ArrayLike) -> TrafficMatrix:
        """From a square matrix [N, N] whose row is the sender.

        Raises
        ------
        ConfigError
            It is not square, its rows are not as long as each other, or see `from_pairs`.
        """
        try:
            dense = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError):
            raise ConfigError(
                f"a traffic matrix must be square and of numbers in rows of one length, got {shown(matrix)}"
            ) from None
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
            raise ConfigError(f"a traffic matrix must be square, got shape {dense.shape}")
        src, dst = np.nonzero(dense != 0)
        return cls.from_pairs(dense.shape[0], src, dst, dense[src, dst])

    def with_demand(self, demand: NDArray[np.float64]) -> TrafficMatrix:
        """Return other demands of the same pairs, whose arrays are shared. [pairs]

        They must be positive and finite, and may not be written to afterwards: nothing is checked or copied,
        for a driver of circuits asks for this at every decision instant.
        """
        demand.flags.writeable = False
        made = object.__new__(TrafficMatrix)
        for name, value in (
            ("gpus", self.gpus), ("src", self.src), ("dst", self.dst), ("key", self.key), ("demand", demand)
        ):  # fmt: skip
            object.__setattr__(made, name, value)
        return made

    @property
    def pairs(self) -> int:
        return len(self.src)

    @cached_property
    def key(self) -> NDArray[np.int64]:
        """src * gpus + dst, ascending: what pairs are looked up by. [pairs]"""
        return PairIndex(self.gpus).key(self.src, self.dst)

    def dense(self) -> NDArray[np.float64]:
        matrix = np.zeros((self.gpus, self.gpus))
        matrix[self.src, self.dst] = self.demand
        return matrix


def _numbers(what: str, values: ArrayLike, kind: type[Any]) -> NDArray[Any]:
    """Return a vector, or refuse what is none."""
    try:
        vector = np.asarray(values, dtype=kind)
        if vector.ndim == 1:
            return vector
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"traffic: {what} must be a list of numbers, got {shown(values)}")
