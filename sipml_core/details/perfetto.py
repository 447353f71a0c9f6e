"""Perfetto's trace format, as far as it is needed: slices, counters and arrows on tracks, written in bulk.

A trace is a list of packets (`protos/perfetto/trace/trace.proto` and its neighbours; the field numbers below
are theirs). Varints may be longer than they must be, so fields have fixed widths and all slices are encoded
as one matrix of bytes: a million take a second or two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen

VARINT, FIXED64, BYTES = 0, 1, 2

#: Trace; TracePacket.
PACKET = 1
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, INTERNED_DATA, SEQUENCE_FLAGS, TRACK_DESCRIPTOR = 8, 10, 11, 12, 13, 60
#: TrackEvent.
TYPE, NAME_IID, TRACK_UUID, DOUBLE_COUNTER_VALUE, FLOW_IDS, TERMINATING_FLOW_IDS = 9, 10, 11, 44, 47, 48
#: TrackEvent.Type.
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
#: TrackDescriptor; CounterDescriptor; InternedData; EventName.
UUID, TRACK_NAME, PARENT_UUID, COUNTER_DESCRIPTOR, CHILD_ORDERING, SIBLING_RANK = 1, 2, 5, 8, 11, 12
UNIT_NAME, EVENT_NAMES, IID, NAME = 6, 2, 1, 2
#: TracePacket.sequence_flags: names are new from here on; this packet uses them.
CLEARED, NEEDS_NAMES = 1, 2
#: TrackDescriptor.child_ordering: by rank.
EXPLICIT = 3

#: Bytes of a time [ns] (two years), of a track or name (2^28 of them), and of the length of an event.
_TIME, _ID, _LENGTH = 8, 4, 3
#: Arrows at one slice, at most.
MAX_FLOWS = 1000
#: Slices encoded at a time.
_CHUNK = 100_000

#: Ids of slices, or of arrows.
Ids = NDArray[np.int64]


def varint(value: int) -> bytes:
    """Return a number, seven bits to a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def padded_varints(values: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Return numbers as varints of a fixed width. [values, width]

    >>> padded_varints(np.array([300]), 4)[0].tobytes().hex()
    'ac828000'
    """
    shift = 7 * np.arange(width, dtype=np.uint64)
    found = (np.asarray(values, dtype=np.uint64)[:, None] >> shift & np.uint64(0x7F)).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found


def field(number: int, value: int | str | bytes | float) -> bytes:
    """Return one field: an integer as varint, text and messages with their length, a float in 8 bytes.

    >>> field(2, "ab").hex(), field(1, 5).hex()
    ('12026162', '0805')
    """
    if isinstance(value, float):
        return varint(number << 3 | FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(content)) + content


@attrs.define
class Trace:
    """A trace under construction: first tracks and names, then what happens on them."""

    _head: list[bytes] = attrs.Factory(list)
    _names: dict[str, int] = attrs.Factory(dict)
    _body: list[bytes] = attrs.Factory(list)
    _tracks: int = 0
    slices: int = 0

    def track(self, name: str, parent: int | None = None, unit: str | None = None) -> int:
        """Return a new track, below another one; with a unit, of a counter. Tracks keep their order."""
        self._tracks += 1
        descriptor = field(UUID, self._tracks) + field(TRACK_NAME, name)
        descriptor += field(PARENT_UUID, parent) if parent is not None else b""
        descriptor += field(COUNTER_DESCRIPTOR, field(UNIT_NAME, unit)) if unit is not None else b""
        descriptor += field(CHILD_ORDERING, EXPLICIT) + field(SIBLING_RANK, self._tracks)
        self._head.append(field(PACKET, field(SEQUENCE_ID, 1) + field(TRACK_DESCRIPTOR, descriptor)))
        return self._tracks

    def name(self, text: str) -> int:
        """Return the number of a name of slices."""
        return self._names.setdefault(text, len(self._names) + 1)

    def add_slices(
        self,
        track: NDArray[Any],
        name: NDArray[Any],
        since_us: NDArray[np.float64],
        until_us: NDArray[np.float64],
        flow_at: Ids | None = None,
        flow_id: Ids | None = None,
        flow_ends: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add slices in order of time on each track, where they must not overlap.

        Parameters
        ----------
        track, name
            As `track` and `name` returned them. [slices]
        flow_at, flow_id, flow_ends
            Arrows: slice of this call that each touches, the number of the arrow, and whether it ends there.
            An arrow goes from slice to slice in order of time. [touches]
        """
        flow_at = np.empty(0, np.int64) if flow_at is None else flow_at
        flow_id = np.empty(0, np.int64) if flow_id is None else flow_id
        ends = np.zeros(len(flow_at), np.bool_) if flow_ends is None else flow_ends
        order = np.argsort(flow_at, kind="stable")
        flow_at, flow_id, ends = flow_at[order], flow_id[order], ends[order]
        since_ns, until_ns = (np.rint(1e3 * times).astype(np.int64) for times in (since_us, until_us))
        self.slices += len(since_ns)
        for first in range(0, len(since_ns), _CHUNK):
            part = slice(first, first + _CHUNK)
            low, high = np.searchsorted(flow_at, [first, first + _CHUNK])
            touches = slice(low, high)
            self._body.append(
                _slices(
                    np.asarray(track[part]), np.asarray(name[part]), since_ns[part], until_ns[part],
                    flow_at[touches] - first, flow_id[touches], ends[touches],
                )
            )  # fmt: skip

    def add_counts(self, track: int, at_us: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        """Add values of a counter, each from its time on."""
        at_ns = np.rint(1e3 * at_us).astype(np.int64)
        count = len(at_ns)
        value = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(count, 8)
        event = _columns(
            count, field(TYPE, COUNTER), varint(TRACK_UUID << 3), padded_varints(np.full(count, track), _ID),
            varint(DOUBLE_COUNTER_VALUE << 3 | FIXED64), value,
        )  # fmt: skip
        extra = np.zeros(count, np.int64)
        self._body.append(_packets(at_ns, event, extra).tobytes())

    def content(self) -> bytes:
        """Return the whole trace."""
        interned = b"".join(
            field(EVENT_NAMES, field(IID, number) + field(NAME, text)) for text, number in self._names.items()
        )
        names = field(SEQUENCE_ID, 1) + field(SEQUENCE_FLAGS, CLEARED) + field(INTERNED_DATA, interned)
        return b"".join([*self._head, field(PACKET, names), *self._body])


def _columns(count: int, *parts: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return parts beside each other: bytes that are the same in all rows, and matrices. [count, width]"""
    return np.hstack(
        [
            np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part)))
            if isinstance(part, bytes)
            else part
            for part in parts
        ]
    )


def _packets(at_ns: Ids, event: NDArray[np.uint8], extra: Ids) -> NDArray[np.uint8]:
    """Return a packet around each event, which grows by `extra` bytes behind it. [events, width]"""
    count = len(event)
    event_length = event.shape[1] + extra
    tag = varint(TRACK_EVENT << 3 | BYTES)
    head = _columns(
        count, varint(TIMESTAMP << 3), padded_varints(at_ns, _TIME), field(SEQUENCE_ID, 1),
        field(SEQUENCE_FLAGS, NEEDS_NAMES), tag, padded_varints(event_length, _LENGTH),
    )  # fmt: skip
    length = padded_varints(head.shape[1] + event_length, _ID)
    return _columns(count, varint(PACKET << 3 | BYTES), length, head, event)


def _slices(
    track: NDArray[Any], name: NDArray[Any], since_ns: Ids, until_ns: Ids,
    flow_at: Ids, flow_id: Ids, ends: NDArray[np.bool_],
) -> bytes:  # fmt: skip
    """Return the packets of slices: each begins, touches its arrows, and ends."""
    count = len(track)
    # Place of each arrow at its slice; too many are left out. [touches]
    place = np.arange(len(flow_at)) - np.searchsorted(flow_at, flow_at)
    kept = place < MAX_FLOWS
    flow_at, flow_id, ends, place = flow_at[kept], flow_id[kept], ends[kept], place[kept]
    tags = np.array(
        [list(varint(number << 3 | FIXED64)) for number in (FLOW_IDS, TERMINATING_FLOW_IDS)], np.uint8
    )
    arrows = _columns(
        len(flow_id), tags[ends.astype(int)], flow_id.astype("<u8").view(np.uint8).reshape(len(flow_id), 8)
    )
    width = arrows.shape[1]
    extra = width * np.bincount(flow_at, minlength=count)

    def event(kind: int, *parts: bytes | NDArray[np.uint8]) -> NDArray[np.uint8]:
        return _columns(count, field(TYPE, kind), varint(TRACK_UUID << 3), padded_varints(track, _ID), *parts)

    begin = _packets(since_ns, event(SLICE_BEGIN, varint(NAME_IID << 3), padded_varints(name, _ID)), extra)
    end = _packets(until_ns, event(SLICE_END), np.zeros(count, np.int64))
    if not len(flow_id):
        return np.hstack([begin, end]).tobytes()

    # Where each slice begins among the bytes, its arrows, and its end.
    starts = np.concatenate([[0], np.cumsum(begin.shape[1] + extra + end.shape[1])])
    found = np.empty(starts[-1], np.uint8)
    found[starts[:-1, None] + np.arange(begin.shape[1])] = begin
    found[(starts[:-1] + begin.shape[1] + extra)[:, None] + np.arange(end.shape[1])] = end
    at = starts[flow_at] + begin.shape[1] + width * place
    found[at[:, None] + np.arange(width)] = arrows
    return found.tobytes()


@frozen(kw_only=True)
class Packet:
    """One packet of a trace, as `decoded` reads it."""

    #: "track", "begin", "end" or "counter".
    what: str
    track: int
    at_ns: int = 0
    #: Of a slice or a track.
    name: str = ""
    parent: int | None = None
    unit: str = ""
    value: float | None = None
    flows: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def decoded(content: bytes) -> Iterator[Packet]:
    """Yield the packets of a trace that `Trace` wrote: the fields that it writes, whatever their widths.

    >>> trace = Trace()
    >>> track = trace.track("GPU 0")
    >>> trace.add_slices(np.array([track]), np.array([trace.name("gemm")]), np.array([1.5]), np.array([2.0]))
    >>> [(packet.what, packet.name, packet.at_ns) for packet in decoded(trace.content())]
    [('track', 'GPU 0', 0), ('begin', 'gemm', 1500), ('end', '', 2000)]
    """
    names: dict[int, str] = {}
    for _, packet in _fields(content):
        parts = dict(_fields(packet))
        if INTERNED_DATA in parts:
            for _, entry in _fields(parts[INTERNED_DATA]):
                told = dict(_fields(entry))
                names[told[IID]] = told[NAME].decode()
        elif TRACK_DESCRIPTOR in parts:
            told = dict(_fields(parts[TRACK_DESCRIPTOR]))
            unit = (
                dict(_fields(told[COUNTER_DESCRIPTOR]))[UNIT_NAME].decode()
                if COUNTER_DESCRIPTOR in told
                else ""
            )
            yield Packet(
                what="track", track=told[UUID], name=told[TRACK_NAME].decode(), parent=told.get(PARENT_UUID),
                unit=unit,
            )  # fmt: skip
        else:
            event = list(_fields(parts[TRACK_EVENT]))
            told = dict(event)
            value = told.get(DOUBLE_COUNTER_VALUE)
            yield Packet(
                what={SLICE_BEGIN: "begin", SLICE_END: "end", COUNTER: "counter"}[told[TYPE]],
                track=told[TRACK_UUID],
                at_ns=parts[TIMESTAMP],
                name=names.get(told.get(NAME_IID, 0), ""),
                value=struct.unpack("<d", value)[0] if value is not None else None,
                flows=tuple(int.from_bytes(v, "little") for n, v in event if n == FLOW_IDS),
                ends=tuple(int.from_bytes(v, "little") for n, v in event if n == TERMINATING_FLOW_IDS),
            )


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each field: an integer, or bytes."""
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = read()
        if tag & 7 == VARINT:
            yield tag >> 3, read()
            continue
        size = 8 if tag & 7 == FIXED64 else read()
        yield tag >> 3, message[at : at + size]
        at += size
