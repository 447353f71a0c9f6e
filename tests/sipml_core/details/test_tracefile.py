"""The bytes of a trace, read back: tracks, slices, counters and arrows of the job of conftest.py."""

import numpy as np
import pytest

from sipml_core.details import Selection, decoded, perfetto, trace_bytes, trace_size
from sipml_core.details.perfetto import MAX_FLOWS, Trace


@pytest.fixture(scope="module")
def packets(details):
    return list(decoded(trace_bytes(details)))


def slices(packets):
    """Path of the track, name, begin and end of each slice, and its arrows. [ns]"""
    tracks = {packet.track: packet for packet in packets if packet.what == "track"}

    def path(track):
        packet = tracks[track]
        return (*(path(packet.parent) if packet.parent else ()), packet.name)

    opened, found = {}, []
    for packet in packets:
        if packet.what == "begin":
            assert packet.track not in opened, "slices of a track must not overlap"
            opened[packet.track] = packet
        elif packet.what == "end":
            begin = opened.pop(packet.track)
            found.append((path(packet.track), begin.name, begin.at_ns, packet.at_ns, begin.flows, begin.ends))
    assert not opened
    return found


def test_gpus_compute_send_and_receive(packets):
    found = {(track, name): (begin, end) for track, name, begin, end, _, _ in slices(packets)}
    gpu = [
        f"GPU {n} (replica {replica}, stage {stage})"
        for n, replica, stage in ((0, 0, 0), (1, 0, 1), (2, 1, 0))
    ]
    assert found[(gpu[0], "compute"), "a"] == (0, 10_000)
    assert found[(gpu[1], "compute"), "b"] == (16_000, 21_000)
    assert found[(gpu[2], "compute"), "c"] == (24_000, 26_000)
    assert found[(gpu[0], "sends", "to 1"), "pipeline"] == (10_000, 16_000)
    assert found[(gpu[0], "sends", "to 2"), "gradient"] == (10_000, 14_000)
    assert found[(gpu[2], "receives", "from 1"), "gradient"] == (21_000, 24_000)
    assert found[("pipeline stages", "replica 0 stage 1"), "F0"] == (16_000, 21_000)
    assert found[("collectives", "all-reduces"), "gradients, bucket 0"] == (10_000, 24_000)


def test_arrows_lead_from_what_made_a_tensor_over_its_transfer_to_what_waited(packets):
    """x is transfer 0, so arrow 1: it leaves a and ends at b; y gates nothing; z goes from b to c."""
    by_name = {}
    for track, name, _, _, flows, ends in slices(packets):
        if track[0].startswith("GPU"):
            by_name.setdefault((track[1], name), []).append((flows, ends))
    assert by_name["compute", "a"] == [((1, 2), ())]
    assert by_name["compute", "b"] == [((3,), (1,))]
    assert by_name["compute", "c"] == [((), (3,))]
    assert sorted(by_name["sends", "gradient"] + by_name["sends", "pipeline"]) == [
        ((n,), ()) for n in (1, 2, 3)
    ]
    assert len(by_name["receives", "gradient"]) == 2


def test_counters_have_the_rates_of_links_in_gbps(packets):
    (track,) = [packet for packet in packets if packet.what == "track" and packet.name == "egress 0"]
    assert track.unit == "Gbps"
    rates = [
        (packet.at_ns, packet.value)
        for packet in packets
        if (packet.what, packet.track) == ("counter", track.track)
    ]
    assert all(value == pytest.approx(8.0 if 10_000 <= at < 16_000 else 0.0) for at, value in rates)
    assert any(value > 0 for _, value in rates)


def test_a_selection_shows_its_gpus_only(details):
    part = details.selected(Selection(gpus=(2,), window_us=(20.0, 30.0)))
    found = slices(list(decoded(trace_bytes(part))))
    gpus = [(name, begin) for track, name, begin, _, _, _ in found if track[0].startswith("GPU")]
    assert gpus == [("c", 24_000), ("gradient", 21_000)]


def test_the_size_is_stated_about_right(details):
    slices_there = sum(packet.what == "begin" for packet in decoded(trace_bytes(details)))
    stated, size_bytes = trace_size(details)
    assert stated <= slices_there <= stated + 8  # passes and sums are few, and not counted
    assert size_bytes > 0


def test_many_slices_and_arrows_come_back_in_order(monkeypatch):
    """More slices than are encoded at a time, each touching as many arrows as its number modulo 3."""
    monkeypatch.setattr(perfetto, "_CHUNK", 100)
    count = 250
    trace = Trace()
    track, name = trace.track("t"), trace.name("n")
    at = np.repeat(np.arange(count), np.arange(count) % 3)
    times_us = np.arange(count, dtype=float)
    trace.add_slices(
        np.full(count, track), np.full(count, name), times_us, times_us + 0.5, at, at * 7, at % 2 == 1
    )
    content = trace.content()
    begins = [packet for packet in decoded(content) if packet.what == "begin"]
    assert [packet.at_ns for packet in begins] == [1000 * k for k in range(count)]
    for k in range(count):
        arrows = (7 * k,) * (k % 3)
        assert (begins[k].flows, begins[k].ends) == (((), arrows) if k % 2 else (arrows, ()))
    assert len(begins) == trace.slices == count


def test_arrows_at_one_slice_are_bounded():
    trace = Trace()
    track, name = trace.track("t"), trace.name("n")
    many = np.zeros(MAX_FLOWS + 5, dtype=np.int64)
    trace.add_slices(np.array([track]), np.array([name]), np.array([0.0]), np.array([1.0]), many, many + 9)
    (begin,) = [packet for packet in decoded(trace.content()) if packet.what == "begin"]
    assert len(begin.flows) == MAX_FLOWS
