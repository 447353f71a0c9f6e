"""The C kernel as numpy functions. The only importer of the extension; status codes become errors here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.model import TrafficMatrix
from sipml_ocs._ocs import ffi, lib

#: A port of a port map that is connected to nothing (`OCS_DARK` in ocs.h).
DARK = -1


class Problem:
    """A traffic matrix and a number of switches, as the kernel reads them."""

    def __init__(self, traffic: TrafficMatrix, switches: int) -> None:
        self.pairs, self.gpus, self.switches = traffic.pairs, traffic.gpus, switches
        #: Demand as a fraction of the largest: ratios of it are of the order of the switches. [pairs]
        self.share = traffic.demand / (traffic.demand.max() if traffic.pairs else 1.0)
        self._buffers = [
            _buffer("int32_t[]", traffic.src, np.int32),
            _buffer("int32_t[]", traffic.dst, np.int32),
            _buffer("double[]", self.share, np.float64),
        ]
        self._c = ffi.new("ocs_problem *", [self.gpus, switches, self.pairs, *self._buffers])
        _raise(lib.ocs_check(self._c))

    def admit(self, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which pairs, in this order, get circuits if GPUs have more peers than switches. [pairs]"""
        admitted = np.zeros(self.pairs, dtype=np.bool_)
        _raise(lib.ocs_admit(self._c, _buffer("int64_t[]", order, np.int64), _out("uint8_t[]", admitted)))
        return admitted

    def maxmin(self) -> NDArray[np.int32]:
        """Return the fewest circuits that maximise min(circuits / demand), at least one each. [pairs]"""
        circuits = np.zeros(self.pairs, dtype=np.int32)
        _raise(lib.ocs_maxmin(self._c, _out("int32_t[]", circuits)))
        return circuits

    def fill(self, circuits: NDArray[np.int32], previous: NDArray[np.int32] | None) -> NDArray[np.int32]:
        """Return `circuits`, and more on ports still free: least circuits / demand first. [pairs]"""
        filled = circuits.astype(np.int32)
        _raise(lib.ocs_fill(self._c, _map(previous), _out("int32_t[]", filled)))
        return filled

    def colour(
        self, circuits: NDArray[np.int32], previous: NDArray[np.int32] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
        """Return port map [switches, gpus], circuits that stayed [pairs], circuits retained."""
        port_map = np.empty((self.switches, self.gpus), dtype=np.int32)
        kept = np.empty(self.pairs, dtype=np.int32)
        retained = ffi.new("int64_t *")
        status = lib.ocs_colour(
            self._c,
            _buffer("int32_t[]", circuits, np.int32),
            _map(previous),
            _out("int32_t[]", port_map),
            _out("int32_t[]", kept),
            retained,
        )
        _raise(status)
        return port_map, kept, retained[0]


def match(gpus: int, src: NDArray[np.int32], dst: NDArray[np.int32], colours: int) -> NDArray[np.int32]:
    """Return the configuration of each piece, the largest piece first: see `ocs_match`. [pieces]"""
    colour = np.empty(len(src), dtype=np.int32)
    ends = _buffer("int32_t[]", src, np.int32), _buffer("int32_t[]", dst, np.int32)
    _raise(lib.ocs_match(gpus, len(src), *ends, colours, _out("int32_t[]", colour)))
    return colour


def _buffer(kind: str, values: NDArray[Any], dtype: Any) -> Any:
    return ffi.from_buffer(kind, np.ascontiguousarray(values, dtype=dtype))


def _map(port_map: NDArray[np.int32] | None) -> Any:
    return ffi.NULL if port_map is None else _buffer("int32_t[]", port_map, np.int32)


def _out(kind: str, values: NDArray[Any]) -> Any:
    return ffi.from_buffer(kind, values, require_writable=True)


def _raise(status: int) -> None:
    if status:
        raise SipmlError(f"OCS planning: {ffi.string(lib.ocs_strerror(status)).decode('ascii')}")
