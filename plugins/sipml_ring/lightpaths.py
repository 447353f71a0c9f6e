"""Circuits with their wavelengths: what a plan holds and what the kernel reads."""

from __future__ import annotations

from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import PluginError

#: Wavelengths of one direction that the planner can number.
MAX_WAVELENGTHS = 4096


@attrs.frozen(kw_only=True, eq=False)
class Lightpaths:
    """Circuits of ordered pairs, each with a direction and a wavelength."""

    #: Ends of each pair. [pairs]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    #: Row of src, dst that the circuit belongs to. [circuits]
    pair: NDArray[np.int32]
    #: 0 clockwise, 1 counter-clockwise. [circuits]
    direction: NDArray[np.int32]
    #: Wavelength; with conversion, that of the sender. [circuits]
    index: NDArray[np.int32]

    def __attrs_post_init__(self) -> None:
        # What reads them in C goes through all by the length of one.
        if len(self.src) != len(self.dst):
            raise PluginError(f"{len(self.src)} pairs of circuits have {len(self.dst)} destinations")
        if not len(self.pair) == len(self.direction) == len(self.index):
            raise PluginError(
                f"{len(self.pair)} circuits have {len(self.direction)} directions and "
                f"{len(self.index)} wavelengths"
            )

    def identity(self, gpus: int) -> NDArray[np.int64]:
        """Return one number for source, destination, direction and wavelength. [circuits]"""
        pair = self.src.astype(np.int64) * gpus + self.dst
        return (pair[self.pair] * 2 + self.direction) * MAX_WAVELENGTHS + self.index

    def chosen(self, which: NDArray[np.bool_]) -> Lightpaths:
        """Return some of the circuits, of the same pairs. [circuits]"""
        return attrs.evolve(
            self, pair=self.pair[which], direction=self.direction[which], index=self.index[which]
        )


class Ring(Protocol):
    """What the kernel reads of a ring: see `sipml_ring.circuits.RingCircuits`."""

    @property
    def gpus(self) -> int: ...
    @property
    def clockwise(self) -> int: ...
    @property
    def counterclockwise(self) -> int: ...
    @property
    def reach_hops(self) -> int: ...
    @property
    def wavelength(self) -> str: ...
    @property
    def segments(self) -> int: ...
