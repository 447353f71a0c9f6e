"""Verdicts on one claim of each network, from invented times: which ratio is taken, and what decides."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("network_claims", ROOT / "benchmarks" / "network_claims.py")
claims = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(claims)

HOLDS, FAILS = "reproduced in shape", "not reproduced"


@pytest.fixture
def judged(monkeypatch):
    """Return what is told and the verdict of each row of a claim, for what each measurement would give."""

    def of(claim, measurement, *given):
        values = iter(given)
        monkeypatch.setattr(claims, measurement, lambda *_: next(values))
        rows = getattr(claims, claim)()
        rows = [rows] if isinstance(rows, tuple) else list(rows)
        assert next(values, None) is None
        found = [dict(zip(claims.COLUMNS, row, strict=True)) for row in rows]
        return [(row["ours"], row["verdict"]) for row in found]

    return of


def test_rings_in_two_dimensions_are_held_against_one_switch(judged):
    """Switch, grid by default and tuned, one ring. The faster grid may take 1.15 times the switch: 114 of 100
    may, 116 may not; only where the tuned one is the faster are its options named."""
    first, second = judged("rings", "times_ms", [100.0, 120.0, 114.0, 300.0], [100.0, 116.0, 130.0, 50.0])
    tuned = '; three quarters in the row and `demand = "gating"`'
    assert first == (f"1.14x the time of SiP-OCS (as by default 1.20x, one ring 3.00x{tuned})", HOLDS)
    assert second == ("1.16x the time of SiP-OCS (as by default 1.16x, one ring 0.50x)", FAILS)


def test_a_rearrangeable_network_is_as_fast_as_one_switch(judged):
    """One switch, as many links up as down, half of them: the second must be exactly the first."""
    first, second = judged("clos", "times_ms", [100.0, 100.0, 150.0], [100.0, 101.0, 100.0])
    assert first == ("1.00x the time of SiP-OCS (half the links up: 1.50x)", HOLDS)
    assert second == ("1.01x the time of SiP-OCS (half the links up: 1.00x)", FAILS)


@pytest.mark.parametrize(("ports", "verdict"), [(20.4, HOLDS), (19.6, HOLDS), (19.4, FAILS), (20.6, FAILS)])
def test_an_all_to_all_moves_as_much_as_twenty_ports(judged, ports, verdict):
    assert judged("bcube", "all_to_all_ports", ports) == [(f"{ports:.1f}", verdict)]


def test_circuits_beside_packets_by_the_dollar(judged):
    """Per NIC of 100 Gbps: a tree of two layers 659 + 99 + 3 (187 + 99) = 1616 $, of three 2188 $; six on
    circuits, 659 + 99 + 520 = 1278 $ each, and two on the tree: (6 1278 + 2 1616) / 8 = 1362.50 $, and
    1505.50 $. So trees cost 1.186 and 1.453 times as much; of 400 Gbps 7405 / 3859.75 = 1.919 and
    10 903 / 4734.25 = 2.303. Divided by the time over packets: 1.4, and 1.1."""
    slow, fast = judged("hybrid", "times_ms", [100.0, 140.0], [100.0, 110.0])
    assert slow == ("0.85 to 1.04x (cost 1.19 to 1.45x, time 1.40x)", FAILS)
    assert fast == ("1.74 to 2.09x (cost 1.92 to 2.30x, time 1.10x)", HOLDS)


@pytest.mark.parametrize(
    ("ring", "switch", "ours", "verdict"),
    [
        (366.0, 473.0, "473 and 366 GB/s, 1.29x", HOLDS),
        (400.0, 420.0, "420 and 400 GB/s, 1.05x", FAILS),
        (200.0, 400.0, "400 and 200 GB/s, 2.00x", FAILS),
    ],
)
def test_sums_in_the_switch_over_a_ring(judged, ring, switch, ours, verdict):
    """More than 1.1 times the ring, and no more than nearly two: each byte crosses a port once."""
    assert judged("dgx", "bus_gbytes_per_s", [ring, switch]) == [(ours, verdict)]


def test_circuits_along_rails_take_little_longer_than_packets(judged):
    """Packets, set once, re-planned: the slower of the two may take 6 % longer."""
    first, second = judged("rails", "times_ms", [100.0, 102.0, 105.0], [100.0, 107.0, 101.0])
    assert first == ("2.0 % set once, 5.0 % re-planned", HOLDS)
    assert second == ("7.0 % set once, 1.0 % re-planned", FAILS)


@pytest.mark.parametrize(
    ("rails_ms", "servers_ms", "verdict"), [(80.0, 100.0, HOLDS), (95.0, 100.0, FAILS), (100.0, 80.0, FAILS)]
)
def test_rails_are_faster_where_leaves_are_oversubscribed(judged, rails_ms, servers_ms, verdict):
    """By a tenth at least."""
    told = f"{rails_ms:.1f} ms with rails, {servers_ms:.1f} without"
    assert judged("oversubscribed", "times_ms", [rails_ms, servers_ms]) == [(told, verdict)]


@pytest.mark.parametrize(
    ("all_links", "one", "verdict"), [(280.0, 150.0, HOLDS), (260.0, 150.0, FAILS), (290.0, 280.0, FAILS)]
)
def test_a_torus_uses_all_links(judged, all_links, one, verdict):
    """More than the 269 GB/s of the source, which one ring alone does not reach."""
    told = f"{all_links:.0f} of 300 GB/s (one ring: {one:.0f})"
    assert judged("tori", "bus_gbytes_per_s", [all_links, one]) == [(told, verdict)]
