"""The C engine. The only module that imports the extension; it turns status codes into exceptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.engine.session import (
    ActiveTransfers,
    LinkTraffic,
    Recording,
    State,
    check_capacity,
    check_match,
    link_samples,
)
from sipml_core.errors import SipmlError, StalledError
from sipml_core.model import Network, RelayedTasks, TaskGraph, Timeline, TransferTimes

_why_missing = ""
try:
    import sipml_core.engine._engine as _engine
except ImportError as error:
    _engine = None
    _why_missing = str(error)

#: More events than any run has: no budget.
_NO_BUDGET = 2**62

#: `engine_record`.
_RECORD = np.dtype(
    [("head_us", "f8"), ("moved_us", "f8"), ("left_us", "f8"), ("held_by", "i4"), ("unused", "i4")]
)

#: The pointers of a C struct: array and C type of each.
Fields = dict[str, tuple[NDArray[Any], str]]


def _extension() -> Any:
    if _engine is None:
        raise SipmlError(
            "the engine's C extension is missing: it needs a C compiler (gcc or clang); install one, then "
            f"reinstall with 'python -m pip install -e .' ({_why_missing})"
        )
    return _engine


def _check(status: int) -> int:
    """The state, or the exception that a negative status stands for."""
    if status >= 0:
        return status
    extension = _extension()
    if status == extension.lib.ENGINE_E_MEMORY:
        raise MemoryError("the engine ran out of memory")
    message = extension.ffi.string(extension.lib.engine_strerror(status)).decode()
    if status == extension.lib.ENGINE_E_CYCLE:
        raise StalledError(message)
    raise SipmlError(f"engine: {message}")


def _graph(work: TaskGraph | RelayedTasks, network: Network | None) -> tuple[Any, list[Any]]:
    """The C view of a graph, and the buffers it needs alive."""
    tasks = work if isinstance(work, TaskGraph) else work.rows
    fields: Fields = {
        "gpu": (tasks.gpu, "int32_t[]"),
        "duration_us": (tasks.duration_us, "double[]"),
        "priority": (tasks.priority, "int32_t[]"),
        "size_bytes": (tasks.size_bytes, "double[]"),
        "hops": (tasks.latency_steps, "float[]"),
        **({"startup_us": (tasks.startup_us, "double[]")} if len(tasks.startup_us) else {}),
        **({"slows": (tasks.slows.view(np.uint8), "uint8_t[]")} if len(tasks.slows) else {}),
        "succ_start": (tasks.succ_start, "int32_t[]"),
        "successors": (tasks.successors, "int32_t[]"),
        "mark": (tasks.marks, "int32_t[]"),
    }
    if tasks.succ_start[-1] != len(tasks.successors):
        raise SipmlError(f"TaskGraph.succ_start must end with {len(tasks.successors)}")
    counts = {
        "gpus": tasks.gpus,
        "tasks": tasks.compute_tasks,
        "transfers": tasks.transfers,
        "marks": len(tasks.marks),
        "slowdown": tasks.slowdown,
    }
    graph, buffers = _struct("engine_graph *", counts, fields)
    if isinstance(work, RelayedTasks):
        assert network is not None
        relays, more = _relays(work, network)
        graph.relays = relays
        buffers += more
    return graph, buffers


def _relays(tasks: RelayedTasks, network: Network) -> tuple[Any, list[Any]]:
    fields: Fields = {
        "way": (tasks.way, "int32_t[]"),
        "way_start": (tasks.ways.start, "int32_t[]"),
        "leg_pair": (network.transfer_pair[: len(tasks.ways.src)], "int32_t[]"),
        "leg_place": (tasks.ways.place, "int32_t[]"),
        "place": (tasks.place, "int32_t[]"),
        "priority": (tasks.priority, "int32_t[]"),
    }
    counts = {"ways": tasks.ways.count, "legs": len(tasks.ways.src), "places": tasks.transfers}
    return _struct("engine_relays *", counts, fields)


def _network(network: Network, legs: int) -> tuple[Any, list[Any]]:
    """The C view of a network whose first pairs are those of so many legs: see `RelayedTasks.ends`."""
    fields: Fields = {
        "pair_src": (network.pair_src, "int32_t[]"),
        "pair_dst": (network.pair_dst, "int32_t[]"),
        "pair_start": (network.pair_start, "int64_t[]"),
        "pair_link": (network.pair_link, "int32_t[]"),
        "pair_weight": (network.pair_weight, "double[]"),
        "pair_latency_us": (network.pair_latency_us, "double[]"),
        "transfer_pair": (network.transfer_pair[legs:], "int32_t[]"),
        "link_gbps": (network.link_gbps, "double[]"),
    }
    counts = {
        "pairs": len(network.pair_src),
        "links": len(network.link_gbps),
        "first_circuit": network.first_circuit,
    }
    return _struct("engine_network *", counts, fields)


def _struct(ctype: str, counts: Mapping[str, float], fields: Fields) -> tuple[Any, list[Any]]:
    ffi = _extension().ffi
    struct = ffi.new(ctype, counts)
    buffers = []
    for name, (values, array_type) in fields.items():
        buffer = ffi.from_buffer(array_type, values)
        setattr(struct, name, buffer)
        buffers.append(buffer)
    return struct, [struct, *buffers]


class KernelSession:
    """A `Session` of the C engine."""

    def __init__(
        self,
        work: TaskGraph | RelayedTasks,
        network: Network,
        queue: str,
        recording: Recording | None = None,
    ) -> None:
        self._ffi, self._lib = _extension().ffi, _extension().lib
        check_match(work, network)
        self.work, self.network = work, network
        self.tasks = tasks = work if isinstance(work, TaskGraph) else work.rows
        links, rows = len(network.link_gbps), len(tasks.marks) + 1
        self.start_us = np.empty(tasks.nodes)
        self.end_us = np.empty(tasks.nodes)
        self._accounts = {
            "snapshot_us": np.zeros(rows),
            "compute_us": np.zeros((rows, tasks.gpus)),
            "exposed_us": np.zeros((rows, tasks.gpus)),
            "dark_us": np.zeros((rows, tasks.gpus)),
            "link_bytes": np.zeros(links),
            "link_busy_us": np.zeros(links),
        }
        written = {"start_us": self.start_us, "end_us": self.end_us, **self._accounts}
        graph, graph_buffers = _graph(work, network)
        legs = 0 if work is tasks else len(network.transfer_pair) - tasks.transfers
        net, net_buffers = _network(network, legs)
        outputs: Fields = {name: (values, "double[]") for name, values in written.items()}
        self._record, self._sample_bytes = np.empty(0, _RECORD), np.empty((0, links))
        counts: dict[str, float] = {}
        if recording is not None:
            self._record = np.empty(max(tasks.transfers, 1), _RECORD)
            self._sample_bytes = np.zeros((recording.samples, max(links, 1)))
            outputs["record"] = self._record.view(np.uint8), "engine_record[]"
            outputs["sample_bytes"] = self._sample_bytes.reshape(-1), "double[]"
            counts = {"samples": recording.samples, "sample_us": recording.sample_us}
        output, output_buffers = _struct("engine_output *", counts, outputs)
        self._alive = [graph_buffers, net_buffers, output_buffers]
        made = self._ffi.new("engine **")
        mode = {"pair": self._lib.ENGINE_QUEUE_PAIR, "source": self._lib.ENGINE_QUEUE_SOURCE}[queue]
        _check(self._lib.engine_new(graph, net, output, mode, made))
        self._run = self._ffi.gc(made[0], self._lib.engine_free)

    @property
    def now_us(self) -> float:
        return float(self._lib.engine_now_us(self._run))

    @property
    def events(self) -> int:
        return int(self._lib.engine_events(self._run))

    @property
    def ended(self) -> int:
        return int(self._lib.engine_ended(self._run))

    @property
    def moving(self) -> bool:
        return bool(self._lib.engine_is_moving(self._run))

    def run(self, until_us: float = math.inf, max_events: int | None = None) -> State:
        budget = _NO_BUDGET if max_events is None else max_events
        return State(_check(self._lib.engine_run(self._run, until_us, budget)))

    def stop_after(self, nodes: NDArray[np.int32]) -> None:
        nodes = np.ascontiguousarray(nodes, dtype=np.int32)
        _check(self._lib.engine_await(self._run, len(nodes), self._ffi.from_buffer("int32_t[]", nodes)))

    def set_capacity(self, links: NDArray[np.int32], gbps: NDArray[np.float64]) -> None:
        check_capacity(gbps)
        links = np.ascontiguousarray(links, dtype=np.int32)
        gbps = np.ascontiguousarray(gbps, dtype=np.float64)
        _check(
            self._lib.engine_set_capacity(
                self._run,
                len(links),
                self._ffi.from_buffer("int32_t[]", links),
                self._ffi.from_buffer("double[]", gbps),
            )
        )

    def watch(self) -> None:
        """Check the rates after every change from now on: slow, for tests.

        `run` and `set_capacity` raise `SipmlError` once rates are not max-min fair.
        """
        _check(self._lib.engine_watch(self._run))

    def active(self) -> ActiveTransfers:
        transfer = np.empty(len(self.network.pair_src), dtype=np.int32)
        gbps = np.empty(len(transfer))
        count = self._lib.engine_active(
            self._run, self._ffi.from_buffer("int32_t[]", transfer), self._ffi.from_buffer("double[]", gbps)
        )
        transfer = self.places()[0][transfer[:count]]
        order = np.argsort(transfer)
        return ActiveTransfers(transfer=transfer[order], gbps=gbps[:count][order])

    def places(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        place = np.empty(self.tasks.transfers, dtype=np.int32)
        pair = np.empty(len(place), dtype=np.int32)
        buffers = (self._ffi.from_buffer("int32_t[]", values) for values in (place, pair))
        self._lib.engine_places(self._run, *buffers)
        return place, pair

    def carried_bytes(self) -> NDArray[np.float64]:
        return self._per_link(self._lib.engine_carried)

    def backlog_bytes(self) -> NDArray[np.float64]:
        return self._per_link(self._lib.engine_backlog)

    def traffic_since(self, before_bytes: NDArray[np.float64]) -> LinkTraffic:
        links = len(before_bytes)
        rows = np.empty((3, max(links, 1)))
        carried = self._ffi.cast("double *", self._ffi.from_buffer(rows))
        before = self._ffi.from_buffer("double[]", before_bytes)
        told = self._lib.engine_traffic(self._run, before, carried, carried + links, carried + 2 * links)
        return LinkTraffic(rows[0], rows[1], rows[2], told & 1 > 0, told & 2 > 0)

    def _per_link(self, read: Any) -> NDArray[np.float64]:
        result = np.empty(len(self.network.link_gbps))
        read(self._run, self._ffi.from_buffer("double[]", result))
        return result

    def waits(self) -> NDArray[np.int32]:
        result = np.empty(self.tasks.nodes, dtype=np.int32)
        self._lib.engine_waits(self._run, self._ffi.from_buffer("int32_t[]", result))
        return result

    def timeline(self, decisions: int = 0) -> Timeline:
        self._lib.engine_report(self._run)
        copies: dict[str, Any] = {name: values.copy() for name, values in self._accounts.items()}
        recorded: dict[str, Any] = {}
        if len(self._sample_bytes):
            interval_us = self._ffi.new("double *")
            rows = self._lib.engine_samples(self._run, interval_us)
            recorded = {
                "transfers": TransferTimes(
                    **{
                        name: self._record[name][: self.tasks.transfers]
                        for name in ("head_us", "moved_us", "left_us", "held_by")
                    }
                ),
                "samples": link_samples(
                    interval_us[0], self._sample_bytes[:rows], copies["link_bytes"], self.now_us
                ),
            }
        return Timeline(
            start_us=self.start_us,
            end_us=self.end_us,
            events=self.events,
            decisions=decisions,
            **recorded,
            **copies,
        )


class AskedDemand:
    """Demands on circuits that are above 0, to 36 binary digits, and whether the same circuits were before.

    Demands are rounded so that those which are equal but for rounding are equal.
    """

    def __init__(self, circuits: int) -> None:
        extension = _extension()
        self._ffi, self._asked_of = extension.ffi, extension.lib.engine_asked
        self._circuits = circuits
        #: Whether each circuit was asked for. [circuits]
        self.asked = np.zeros(circuits, np.bool_)
        self._mask = self._ffi.from_buffer("uint8_t[]", self.asked.view(np.uint8))
        self._same = self._ffi.new("int32_t *")

    def __call__(self, demand: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
        """Return the demands of circuits that are asked for [asked], and whether these are the last ones.

        The first time those before are none.
        """
        values, ffi = np.empty(self._circuits), self._ffi
        count = self._asked_of(
            self._circuits,
            ffi.from_buffer("double[]", demand),
            self._mask,
            ffi.from_buffer("double[]", values),
            self._same,
        )
        return values[:count], self._same[0] == 1


def critical_path_us(
    work: TaskGraph | RelayedTasks,
    node_us: NDArray[np.float64],
    network: Network | None = None,
    pair_bytes_per_us: NDArray[np.float64] | None = None,
) -> float:
    """Length of the longest chain of tasks when node i takes ``node_us[i]``. [us]

    Parameters
    ----------
    network, pair_bytes_per_us
        Of `RelayedTasks`: their network, and the rate that each pair gives a leg. [pairs] [bytes/us]

    Raises
    ------
    StalledError
        The graph has a dependency cycle.
    """
    extension = _extension()
    graph, alive = _graph(work, network)
    longest = extension.ffi.new("double *")
    latency_us = network.pair_latency_us if network is not None else np.zeros(0)
    rates = np.zeros(0) if pair_bytes_per_us is None else pair_bytes_per_us
    times, *pairs = (
        extension.ffi.from_buffer("double[]", np.ascontiguousarray(values, dtype=np.float64))
        for values in (node_us, latency_us, rates)
    )
    _check(extension.lib.engine_critical_path(graph, times, *pairs, longest))
    del alive
    return float(longest[0])
