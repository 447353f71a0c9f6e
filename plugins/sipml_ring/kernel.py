"""The only importer of the extension: arrays in, arrays out, codes to exceptions."""

from __future__ import annotations

from typing import Any
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

    def all_kept(self, previous: Lightpaths | None) -> bool:
        """Return whether these are the circuits of the previous plan: as many, and all of them kept."""
        circuits = len(self.circuits.pair)
        return previous is not None and len(previous.pair) == circuits == self.kept.sum()


def fast(
    control: Ring,
    traffic: TrafficMatrix,
    waited: NDArray[np.int32] | None,
    previous: Lightpaths | None,
) -> Planned:
    """Return the plan of ``ring-fast``."""
    inputs, out = _Inputs(), _Outputs(control, traffic, previous)
    ring, demand = inputs.ring(control), inputs.demand(traffic, waited)
    status = lib.sipring_fast(ring, demand, inputs.circuits(previous), out.plan)
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


class _Outputs:
    """Memory for the plan that a kernel writes."""

    def __init__(self, control: Ring, traffic: TrafficMatrix, previous: Lightpaths | None) -> None:
        self.rows = rows = traffic.pairs + (len(previous.src) if previous else 0)
        self.circuits = circuits = control.segments * (control.clockwise + control.counterclockwise)
        #: Of rows: demand; then of rows: src, dst, count (two each), kept; of demands: unserved; of circuits:
        #: pair, direction, index.
        self.demand = np.empty(rows + 1)
        self.numbers = np.empty(5 * rows + traffic.pairs + 3 * circuits + 1, np.int32)
        self.plan = plan = ffi.new("sipring_plan *", {"demand": ffi.from_buffer("double[]", self.demand)})
        plan.src = base = ffi.from_buffer("int32_t[]", self.numbers)
        plan.dst = base + rows
        plan.count = base + 2 * rows
        plan.kept = base + 4 * rows
        plan.pair = base + 5 * rows
        plan.direction = base + (5 * rows + circuits)
        plan.index = base + (5 * rows + 2 * circuits)
        plan.unserved = base + (5 * rows + 3 * circuits)

    def result(self, status: int, control: Ring, traffic: TrafficMatrix) -> Planned:
        if status == lib.SIPRING_EMEMORY:
            raise MemoryError
        if status != lib.SIPRING_OK:
            raise ConfigError(_explain(status, int(self.plan.bad), control, traffic))
        pairs, circuits, rows, numbers = self.plan.pairs, self.plan.circuits, self.rows, self.numbers
        first = 5 * rows + 3 * self.circuits  # of those without a circuit

        def of_circuits(number: int) -> NDArray[np.int32]:
            start = 5 * rows + number * self.circuits
            return numbers[start : start + circuits]

        return Planned(
            circuits=Lightpaths(
                src=numbers[:pairs],
                dst=numbers[rows : rows + pairs],
                pair=of_circuits(0),
                direction=of_circuits(1),
                index=of_circuits(2),
            ),
            demand=self.demand[:pairs],
            count=numbers[2 * rows : 2 * rows + 2 * pairs].reshape(-1, 2),
            kept=numbers[4 * rows : 4 * rows + pairs],
            unserved=numbers[first : first + self.plan.unpaired],
            ceiling=self.plan.ceiling,
        )


def _text(status: int) -> str:
    return ffi.string(lib.sipring_strerror(status)).decode()


def _explain(status: int, bad: int, control: Ring, traffic: TrafficMatrix) -> str:
    if status == lib.SIPRING_EREACH:
        src, dst = int(traffic.src[bad]), int(traffic.dst[bad])
        return (
            f"traffic pair ({src}, {dst}) is out of reach: {(dst - src) % control.gpus} hops clockwise, "
            f"{(src - dst) % control.gpus} counter-clockwise, reach_hops = {control.reach_hops}, "
            f"wavelengths {control.clockwise} and {control.counterclockwise}"
        )
    return f"{_text(status)} (at {bad})"
