"""The only importer of the extension: arrays in, arrays out, codes to exceptions."""

from __future__ import annotations

from threading import local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.model import TrafficMatrix
from sipml_ring._ring import ffi, lib
from sipml_ring.lightpaths import Lightpaths, Ring


@attrs.frozen(kw_only=True, eq=False)
class Planned:
    """What the planner returns."""

    circuits: Lightpaths
    #: 0 for a pair that nobody asked for. [pairs]
    demand: NDArray[np.float64]
    #: [pairs, 2]
    count: NDArray[np.int32]
    #: Lightpaths unchanged since the previous plan. [pairs]
    kept: NDArray[np.int32]
    #: Rows of the traffic matrix without a circuit.
    unserved: NDArray[np.int32]
    #: Largest minimum of circuits / demand over the served pairs without the continuity rule.
    ceiling: float

    #: These are the circuits of the previous plan.
    same: bool


class Capacities(NamedTuple):
    """What circuits give their pairs."""

    #: Once everything has settled, and from the start. [pairs] [Gbps]
    gbps: NDArray[np.float64]
    kept_gbps: NDArray[np.float64]
    #: How long new circuits are dark. [pairs] [us]
    dark_us: NDArray[np.float64]


#: Below, wavelengths / demand would overflow, and bisection on it never end.
LEAST_DEMAND = 1e-200  # as in ring.h


def fast(
    control: Ring,
    traffic: TrafficMatrix,
    waited: NDArray[np.int32] | None,
    previous: Lightpaths | None,
) -> Planned:
    """Return the plan of ``ring-fast``."""
    known, out = _KNOWN, _Outputs(control, traffic, previous)
    demand = known.demand_of(traffic, waited)
    status = lib.sipring_fast(known.ring_of(control), demand, known.circuits_of(previous), out.plan)
    return out.result(status, control, traffic)


def complete(
    control: Ring, traffic: TrafficMatrix, start: Lightpaths, previous: Lightpaths | None
) -> Planned:
    """Return `start`, filled up and brought close to the previous plan."""
    inputs, out = _Inputs(), _Outputs(control, traffic, previous)
    ring, demand = inputs.ring(control), inputs.demand(traffic, None)
    status = lib.sipring_complete(ring, demand, inputs.circuits(start), inputs.circuits(previous), out.plan)
    return out.result(status, control, traffic)


def colour(
    control: Ring,
    traffic: TrafficMatrix,
    count: NDArray[np.int32],
    waited: NDArray[np.int32] | None,
    previous: Lightpaths | None,
) -> Planned:
    """Return wavelengths for numbers of circuits [traffic pairs, 2], as far as there are, then filled up."""
    inputs, out = _Inputs(), _Outputs(control, traffic, previous)
    ring, demand = inputs.ring(control), inputs.demand(traffic, waited)
    counts = inputs.array("int32_t[]", count, np.int32)
    status = lib.sipring_colour(ring, demand, counts, inputs.circuits(previous), out.plan)
    return out.result(status, control, traffic)


def check(control: Ring, circuits: Lightpaths) -> None:
    """Raise `ConfigError` naming a circuit that cannot exist beside the others."""
    inputs, bad = _Inputs(), ffi.new("int64_t *")
    status = lib.sipring_check(inputs.ring(control), inputs.circuits(circuits), bad)
    if status == lib.SIPRING_EMEMORY:
        raise MemoryError
    if status != lib.SIPRING_OK:
        k = int(bad[0])
        raise ConfigError(
            f"circuit {k} (pair row {circuits.pair[k]}, direction {circuits.direction[k]}, "
            f"wavelength {circuits.index[k]}): {_text(status)}"
        )


def capacities(planned: Planned, circuit_gbps: float, reconfiguration_us: float) -> Capacities:
    """Return what planned circuits give their pairs, of which new ones are dark for so long."""
    pairs = len(planned.kept)
    if not pairs:
        return Capacities(np.empty(0), np.empty(0), np.empty(0))
    values = np.empty((3, pairs))
    base = ffi.cast("double *", ffi.from_buffer(values))
    count, kept = (ffi.from_buffer("int32_t[]", each) for each in (planned.count, planned.kept))
    lib.sipring_capacities(
        pairs, count, kept, circuit_gbps, reconfiguration_us, base, base + pairs, base + 2 * pairs
    )
    values.flags.writeable = False
    return Capacities(*values)


def is_sound(control: Ring, circuits: Lightpaths, circuit_gbps: float, given: Capacities) -> bool:
    """Return whether circuits can exist beside each other, and are what the capacities of the pairs say.

    False where that must be looked at more closely: see `RingCircuits.check`.
    """
    if not len(given.gbps):
        return False
    if not len(given.gbps) == len(given.kept_gbps) == len(given.dark_us) == len(circuits.src):
        return False
    gbps, kept_gbps, dark_us = (ffi.from_buffer("double[]", values) for values in given)
    known = _KNOWN
    status = lib.sipring_check_plan(
        known.ring_of(control), known.circuits_of(circuits), circuit_gbps, gbps, kept_gbps, dark_us, known.bad
    )
    if status == lib.SIPRING_EMEMORY:
        raise MemoryError
    return bool(status == lib.SIPRING_OK)


#: C structs of rings and of circuits, which are asked for again with every plan.
_RINGS: WeakKeyDictionary[Ring, Any] = WeakKeyDictionary()
_CIRCUITS: WeakKeyDictionary[Lightpaths, _Inputs] = WeakKeyDictionary()


class _Inputs:
    """C structs of what a kernel reads; what they point to lives as long as this."""

    def __init__(self) -> None:
        self.alive: list[Any] = []

    def array(self, kind: str, values: Any, dtype: Any) -> Any:
        contiguous = np.ascontiguousarray(values, dtype=dtype)
        buffer = ffi.from_buffer(kind, contiguous) if contiguous.size else ffi.NULL
        self.alive += [contiguous, buffer]
        return buffer

    def ring(self, control: Ring) -> Any:
        found = _RINGS.get(control)
        if found is None:
            continuous = int(control.wavelength == "continuous")
            wavelengths = [control.clockwise, control.counterclockwise]
            ring = [control.gpus, wavelengths, control.reach_hops, continuous, control.segments]
            found = _RINGS[control] = ffi.new("sipring_ring *", ring)
        return found

    def demand(self, traffic: TrafficMatrix, waited: NDArray[np.int32] | None) -> Any:
        return ffi.new(
            "sipring_demand *",
            {
                "pairs": traffic.pairs,
                "src": self.array("int32_t[]", traffic.src, np.int32),
                "dst": self.array("int32_t[]", traffic.dst, np.int32),
                "demand": self.array("double[]", traffic.demand, np.float64),
                "waited": ffi.NULL if waited is None else self.array("int32_t[]", waited, np.int32),
            },
        )

    def circuits(self, circuits: Lightpaths | None) -> Any:
        if circuits is None:
            return ffi.NULL
        found = _CIRCUITS.get(circuits)
        if found is None:
            found = _CIRCUITS[circuits] = _Inputs()
            found.alive.append(found._new_circuits(circuits))
        self.alive.append(found)
        return found.alive[-1]

    def _new_circuits(self, circuits: Lightpaths) -> Any:
        return ffi.new(
            "sipring_circuits *",
            {
                "pairs": len(circuits.src),
                "src": self.array("int32_t[]", circuits.src, np.int32),
                "dst": self.array("int32_t[]", circuits.dst, np.int32),
                "circuits": len(circuits.pair),
                "pair": self.array("int32_t[]", circuits.pair, np.int32),
                "direction": self.array("int32_t[]", circuits.direction, np.int32),
                "index": self.array("int32_t[]", circuits.index, np.int32),
            },
        )


class _Known(local):
    """What was handed to a kernel last, for it is often asked again for the same; of each thread its own."""

    def __init__(self) -> None:
        self.bad = ffi.new("int64_t *")
        self._control: Ring | None = None
        self._ring: Any = None
        self._circuits: Lightpaths | None = None
        self._paths: Any = None
        self._demand = ffi.new("sipring_demand *")
        #: Arrays that the demand points to.
        self._src: NDArray[np.int32] | None = None
        self._dst: NDArray[np.int32] | None = None

    def ring_of(self, control: Ring) -> Any:
        if control is not self._control:
            self._control, self._ring = control, _Inputs().ring(control)
        return self._ring

    def circuits_of(self, circuits: Lightpaths | None) -> Any:
        if circuits is None:
            return ffi.NULL
        if circuits is not self._circuits:
            self.circuits_are(circuits, _Inputs().circuits(circuits))
        return self._paths

    def circuits_are(self, circuits: Lightpaths, paths: Any) -> None:
        """Take note of the C struct of circuits, which lives as long as they are the last ones."""
        self._circuits, self._paths = circuits, paths

    def demand_of(self, traffic: TrafficMatrix, waited: NDArray[np.int32] | None) -> Any:
        demand = self._demand
        if not traffic.pairs:
            return _Inputs().demand(traffic, waited)
        if traffic.src is not self._src or traffic.dst is not self._dst:
            self._src, self._dst = traffic.src, traffic.dst
            demand.pairs = len(self._src)
            demand.src = ffi.from_buffer("int32_t[]", self._src)
            demand.dst = ffi.from_buffer("int32_t[]", self._dst)
        demand.demand = ffi.from_buffer("double[]", traffic.demand)
        demand.waited = ffi.NULL if waited is None else ffi.from_buffer("int32_t[]", waited)
        return demand


_KNOWN = _Known()


class _Outputs:
    """Memory for the plan that a kernel writes."""

    def __init__(self, control: Ring, traffic: TrafficMatrix, previous: Lightpaths | None) -> None:
        pairs, self.previous = traffic.pairs, previous
        self.rows = rows = pairs + (len(previous.src) if previous else 0)
        self.circuits = circuits = control.segments * (control.clockwise + control.counterclockwise)
        self.demand = np.empty(rows + 1)
        #: As laid out by `sipring_lay_out`.
        self.numbers = np.empty(lib.sipring_numbers(rows, circuits, pairs) + 1, np.int32)
        self.base = ffi.from_buffer("int32_t[]", self.numbers)
        self.plan = ffi.new("sipring_plan *")
        lib.sipring_lay_out(self.plan, rows, circuits, self.base, ffi.from_buffer("double[]", self.demand))

    def result(self, status: int, control: Ring, traffic: TrafficMatrix) -> Planned:
        if status == lib.SIPRING_EMEMORY:
            raise MemoryError
        if status != lib.SIPRING_OK:
            raise ConfigError(_explain(status, int(self.plan.bad), control, traffic))
        plan, rows, numbers = self.plan, self.rows, self.numbers
        numbers.flags.writeable = self.demand.flags.writeable = False
        pairs, same = plan.pairs, bool(plan.same)
        first = 5 * rows + 3 * self.circuits  # of those without a circuit
        return Planned(
            circuits=self.previous if same and self.previous else self._lightpaths(),
            demand=self.demand[:pairs],
            count=numbers[2 * rows : 2 * rows + 2 * pairs].reshape(-1, 2),
            kept=numbers[4 * rows : 4 * rows + pairs],
            unserved=numbers[first : first + plan.unpaired],
            ceiling=plan.ceiling,
            same=same,
        )

    def _lightpaths(self) -> Lightpaths:
        """Return the circuits that were planned."""
        plan, rows, numbers = self.plan, self.rows, self.numbers
        pairs, circuits, start = plan.pairs, plan.circuits, 5 * rows
        pair, direction, index = (
            numbers[first : first + circuits]
            for first in (start, start + self.circuits, start + 2 * self.circuits)
        )
        found = Lightpaths(
            src=numbers[:pairs], dst=numbers[rows : rows + pairs], pair=pair, direction=direction, index=index
        )
        if pairs:  # they are the next ones to be asked for
            struct = [pairs, plan.src, plan.dst, circuits, plan.pair, plan.direction, plan.index]
            _KNOWN.circuits_are(found, ffi.new("sipring_circuits *", struct))
        return found


def small_demand(demand: float) -> str:
    """Return why a demand below `LEAST_DEMAND` is refused."""
    return f"demands on the ring must be at least {LEAST_DEMAND:g}, got {demand}; any unit will do"


def _text(status: int) -> str:
    return ffi.string(lib.sipring_strerror(status)).decode()


def _explain(status: int, bad: int, control: Ring, traffic: TrafficMatrix) -> str:
    if status == lib.SIPRING_EPAIRS and 0 < traffic.demand[bad] < LEAST_DEMAND:
        return small_demand(float(traffic.demand.min()))
    if status == lib.SIPRING_EREACH:
        src, dst = int(traffic.src[bad]), int(traffic.dst[bad])
        return (
            f"traffic pair ({src}, {dst}) is out of reach: {(dst - src) % control.gpus} hops clockwise, "
            f"{(src - dst) % control.gpus} counter-clockwise, reach_hops = {control.reach_hops}, "
            f"wavelengths {control.clockwise} and {control.counterclockwise}"
        )
    return f"{_text(status)} (at {bad})"
