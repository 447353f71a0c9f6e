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


#: An `ocs_slice`: from `start` a switch is set to a configuration, is dark, and then carries until `end`.
SLICE = np.dtype([("on", np.int32), ("configuration", np.int32), ("start", np.float64), ("end", np.float64)])


def spread(duration: NDArray[np.float64], switches: int, delay: float) -> NDArray[Any]:
    """Return slices that give every configuration its time on some switches: see `ocs_spread`. [slices]

    Examples
    --------
    5, 4 and 3 us on two switches without a delay: 6 us with a cut, 7 without.

    >>> made = spread(np.array([5.0, 4.0, 3.0]), 2, 0.0)
    >>> made["on"].tolist(), made["configuration"].tolist(), made["end"].round(9).tolist()
    ([0, 0, 1, 1], [0, 1, 1, 2], [5.0, 6.0, 3.0, 6.0])

    A cut of 5 us that costs 2 us is not worth it: 7 us, and 7.5 with it.

    >>> spread(np.array([5.0, 4.0]), 2, 2.0)["end"].tolist()
    [7.0, 6.0]
    """
    room, count = np.zeros(len(duration) + switches, SLICE), ffi.new("int64_t *")
    given, slices = _buffer("double[]", duration, np.float64), ffi.cast("ocs_slice *", ffi.from_buffer(room))
    _raise(lib.ocs_spread(len(duration), given, switches, delay, slices, count))
    return room[: count[0]]


def decomposed(
    traffic: TrafficMatrix, times: NDArray[np.float64], switches: int, delay: float
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[Any]]:
    """Return a schedule that serves pairs for their times: see `ocs_decompose`.

    Port map [configurations, gpus], durations [configurations], slices [slices].
    """
    buffers = [
        _buffer("int32_t[]", traffic.src, np.int32),
        _buffer("int32_t[]", traffic.dst, np.int32),
        _buffer("double[]", times, np.float64),
    ]
    problem = ffi.new("ocs_problem *", [traffic.gpus, switches, traffic.pairs, *buffers])
    _raise(lib.ocs_check(problem))
    made = ffi.gc(ffi.new("ocs_schedule *"), lib.ocs_schedule_free)
    _raise(lib.ocs_decompose(problem, delay, made))
    port_map = _copied(made.port_map, made.configurations * traffic.gpus, np.int32)
    return (
        port_map.reshape(made.configurations, traffic.gpus),
        _copied(made.duration, made.configurations, np.float64),
        _copied(made.slice, made.slices, SLICE),
    )


def _copied(values: Any, count: int, dtype: Any) -> NDArray[Any]:
    """Return an array of the kernel's as one of its own; `values` may be null where it is empty. [count]"""
    kind = np.dtype(dtype)
    return (
        np.frombuffer(ffi.buffer(values, count * kind.itemsize), kind).copy() if count else np.zeros(0, kind)
    )


def _buffer(kind: str, values: NDArray[Any], dtype: Any) -> Any:
    return ffi.from_buffer(kind, np.ascontiguousarray(values, dtype=dtype))


def _map(port_map: NDArray[np.int32] | None) -> Any:
    return ffi.NULL if port_map is None else _buffer("int32_t[]", port_map, np.int32)


def _out(kind: str, values: NDArray[Any]) -> Any:
    return ffi.from_buffer(kind, values, require_writable=True)


def _raise(status: int) -> None:
    if status:
        raise SipmlError(f"OCS planning: {ffi.string(lib.ocs_strerror(status)).decode('ascii')}")
