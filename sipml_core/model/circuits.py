"""What a scheduler may decide on a circuit network, and what it decides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import at_least, float64_vector, int32_vector, positive
from sipml_core.model.pairs import PairIndex


@attrs.frozen(kw_only=True, eq=False)
class CircuitControl:
    """The part of a fabric that is switched. Plugins subclass it to add what their scheduler needs."""

    gpus: int
    #: Capacity of one circuit. [Gbps]
    circuit_gbps: float = attrs.field(validator=positive)
    #: Circuits that may start, and that may end, at one GPU.
    circuits_per_gpu: int = attrs.field(validator=at_least(1))
    #: Time between decisions; None: decided once, before the job starts. [us]
    interval_us: float | None = None
    #: Time for which a changed circuit carries nothing. [us]
    reconfiguration_us: float = attrs.field(default=0.0, validator=at_least(0))
    #: Every circuit goes dark at every decision, changed or not (the paper's simulator).
    all_dark: bool = False
    #: One-shot circuits: pairs that get none are relayed through a GPU they both reach.
    relay: bool = False

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which ordered pairs can ever hold a circuit. [pairs]"""
        return np.not_equal(src, dst)

    def folded(self, image: NDArray[np.int32]) -> CircuitControl | None:
        """The part of this that stands for all where GPU g wants what GPU ``image[g]`` wants.

        Where it is not None, schedulers with `Scheduler.treats_alike` plan it for the pairs whose sender
        comes first among its images, and give the pairs of `self`, if asked for all of them, the images
        of the same circuits. None: nothing stands for all under these images. [gpus]
        """
        return None


def at_rows(values: NDArray[np.float64], row: NDArray[np.intp]) -> NDArray[np.float64]:
    """``values[row]``, and 0 where the row is -1."""
    return np.append(values, 0.0)[row]


@attrs.frozen(kw_only=True, eq=False)
class CircuitPlan:
    """Capacities of ordered pairs, sorted by (src, dst). Pairs not named have no circuit.

    Plugins subclass it to add the exact resources: port maps, wavelength indices.
    """

    gpus: int
    src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Capacity once everything has settled. [pairs] [Gbps]
    gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Capacity of the circuits this plan leaves alone: what carries while the rest is dark. [pairs] [Gbps]
    kept_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: How long each pair's changed circuits are dark. [pairs] [us]
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_vector)

    @cached_property
    def key(self) -> NDArray[np.int64]:
        """src * gpus + dst, ascending. [pairs]"""
        return PairIndex(self.gpus).key(self.src, self.dst)

    def capacity_gbps(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.float64]:
        """Settled capacity of any pairs; 0 where the plan has no circuit. [Gbps]"""
        return at_rows(self.gbps, self.row_of(src, dst))

    def row_of(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.intp]:
        """Where any pairs stand in the plan; -1 for one that it does not name."""
        if len(self.src) == 0:
            return np.full(len(src), -1)
        wanted = PairIndex(self.gpus).key(src, dst)
        row = np.searchsorted(self.key, wanted)
        row[row == len(self.key)] = 0
        row[self.key[row] != wanted] = -1
        return row

    @property
    def bound_ratio(self) -> float | None:
        """Least capacity / demand that no plan can exceed, even with fractions of circuits; None: unknown.

        [Gbps per unit of demand]
        """
        return None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record per pair, for CSV and tables; subclasses add their resources."""
        for i in range(len(self.src)):
            yield {"src": int(self.src[i]), "dst": int(self.dst[i]), "capacity_gbps": float(self.gbps[i])}

    def draw(self, axes: Any) -> None:
        """Draw the plan into matplotlib axes: here, a heat map of capacities."""
        dense = np.zeros((self.gpus, self.gpus))
        dense[self.src, self.dst] = self.gbps
        image = axes.imshow(dense, interpolation="nearest", cmap="viridis")
        axes.set_xlabel("to GPU")
        axes.set_ylabel("from GPU")
        axes.figure.colorbar(image, ax=axes, label="capacity [Gbps]")
