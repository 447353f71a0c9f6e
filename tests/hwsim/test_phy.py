"""TeraPHY ports: states, times, budget, energy, faults."""

import numpy as np
import pytest

from hwsim import (
    AmbientRamp,
    ControlLaw,
    DeadHeater,
    HwsimError,
    LinkBudget,
    LinkTiming,
    MissingLine,
    RingDesign,
    State,
    StuckRing,
    TeraPhy,
    advance_together,
)
from hwsim.phy import RX, TX


def settled(**options):
    """A small port, all wavelengths up."""
    port = TeraPhy(macros=2, **options)
    port.tune()
    port.advance(200.0)
    assert (port.state == State.UP).all()
    return port


def moves(port, where):
    return [(event.time_us, event.what) for event in port.log.at(where)]


def test_a_wavelength_comes_up_step_by_step():
    """Parked half a spacing off, 100 GHz: 1 us control + 4 ln 40 = 14.8 us of heat, so within tolerance at
    step 16; lock to 18, when the transmitter is up; the receiver 1 us of CDR later; words one step later."""
    port = TeraPhy(macros=2)
    port.tune()
    port.advance(40.0)
    assert moves(port, "tx 0.0") == [
        (0.0, "DARK -> TUNING"),
        (16.0, "TUNING -> LOCKING"),
        (18.0, "LOCKING -> UP"),
    ]
    states = [move for move in moves(port, "rx 1.7") if "->" in move[1]]
    assert states == [
        (0.0, "DARK -> TUNING"),
        (16.0, "TUNING -> LOCKING"),
        (18.0, "LOCKING -> CDR"),
        (19.0, "CDR -> UP"),
    ]
    assert moves(port, "rx 0") == [(20.0, "aligned: 8 wavelengths, 200 Gbps")]


def test_ten_macros_of_eight_wavelengths_carry_2_tbps():
    """10 x 8 x 25 Gbps = 2 Tbps, the port of the paper."""
    port = TeraPhy()
    assert port.capacity_gbps == 0.0
    port.tune()
    port.advance(40.0)
    assert port.capacity_gbps == port.sending_gbps == 2000.0


def test_latency_is_two_chiplets_and_the_fibre():
    """10 ns + 10 ns + 100 m x 4.9 ns/m = 510 ns."""
    assert TeraPhy(macros=1, fibre_m=100.0).latency_ns == pytest.approx(510.0)


def test_energy_is_heat_and_bits():
    """400 Gbps x 10 us = 4 Mbit at 5 pJ are 20 uJ = 20 000 nJ; heaters at rest take power x time."""
    port = settled()
    heat, bits = port.heater_energy_nj, port.link_energy_nj
    power_mw = port.bank.power_mw.sum()
    port.advance(10.0)
    assert port.link_energy_nj - bits == pytest.approx(20_000.0)
    assert port.heater_energy_nj - heat == pytest.approx(10.0 * power_mw, rel=1e-6)
    assert port.energy_nj == port.heater_energy_nj + port.link_energy_nj


def test_only_what_moves_goes_dark():
    """Two slots of one macro swap lines; the other slots never leave UP, and slots already in place stay."""
    port = settled(design=RingDesign(crosstalk=(), bias_ghz=600.0))
    lines = np.array([[0, 1, 2, 3, 4, 5, 7, 6], np.arange(8)])
    entries = len(port.log)
    port.tune(lines)
    assert port.state[:, 0, 6:].tolist() == [[State.TUNING] * 2] * 2
    port.advance(100.0)
    moved = {event.where for event in list(port.log)[entries:] if "-> TUNING" in event.what}
    assert moved == {"tx 0.6", "tx 0.7", "rx 0.6", "rx 0.7"}
    assert (port.state == State.UP).all()
    assert port.capacity_gbps == 400.0


def test_dark_slots_carry_nothing():
    """Half the slots given up: half the capacity; their rings park and the log says so."""
    port = settled()
    port.darken(where=np.arange(8) % 2 == 1)
    port.advance(200.0)
    assert (port.state[:, :, 1::2] == State.DARK).all()
    assert port.capacity_gbps == 200.0
    assert moves(port, "rx 0.1")[-1][1] == "UP -> DARK"
    assert np.abs(port.bank.detuning_ghz.reshape(port.shape)[:, :, 1::2]).max() < 1e-6


def test_margin_follows_from_the_budget():
    """One wavelength, no neighbours: 3 - 4.5 - 4.5 - 0.35 x 2 - 0.458 (drop 0.9) + 12 = 4.842 dB."""
    port = TeraPhy(macros=1, wavelengths=1, fibre_m=2000.0)
    port.tune()
    port.advance(300.0)
    assert port.margin_db == pytest.approx(4.842, abs=1e-3)
    assert port.crosstalk_penalty_db == pytest.approx(0.0)


def test_neighbours_cost_what_their_tails_carry():
    """Two lines of 200 GHz and rings 40 GHz wide: the first ring drops 1/101 of its neighbour,
    -10 log10(1 - 1/101) = 0.043 dB; the second is past the ring that took the first line and pays nothing."""
    port = TeraPhy(
        macros=1,
        wavelengths=2,
        design=RingDesign(quality=228_849.2 / 40.0, peak_drop=1.0),
        budget=LinkBudget(),
    )
    port.tune()
    port.advance(300.0)
    first, second = port.crosstalk_penalty_db[0]
    assert first == pytest.approx(-10 * np.log10(1 - 1 / 101), abs=1e-4)
    assert second == pytest.approx(0.0, abs=1e-6)


def test_no_margin_no_channel():
    """A receiver that needs 7 dB more than arrives keeps its wavelengths in CDR and says why."""
    port = TeraPhy(macros=1, budget=LinkBudget(sensitivity_dbm=-5.0))
    port.tune()
    port.advance(100.0)
    assert (port.margin_db < 0.0).all()
    assert (port.state[RX] == State.CDR).all()
    assert (port.waits[RX] == "negative margin").all()
    assert port.capacity_gbps == 0.0
    assert any("negative margin, -1.5 dB" in event.what for event in port.log.at("rx 0.3"))


def test_connected_ports_wait_for_the_fibre():
    """2 km are 9.8 us: light of the far transmitter, up at 18, is seen 10 steps later; CDR to 29, not 19."""
    left, right = (TeraPhy(macros=1, fibre_m=2000.0) for _ in range(2))
    left.connect(right)
    left.tune()
    right.tune()
    advance_together((left, right), 60.0)
    assert ("CDR -> UP") in [what for _, what in moves(left, "rx 0.0")]
    assert [time for time, what in moves(left, "rx 0.0") if what == "CDR -> UP"] == [29.0]


def test_a_receiver_needs_its_far_end():
    """Only the left port is tuned: it sends, but no light comes back, and its receivers say so."""
    left, right = (TeraPhy(macros=1) for _ in range(2))
    left.connect(right)
    left.tune()
    advance_together((left, right), 60.0)
    assert left.sending_gbps == 200.0
    assert left.capacity_gbps == 0.0
    assert left.waits[RX, 0, 2] == "no light on line 2"


def test_dead_heater_takes_its_wavelength_out():
    """One receiving heater dies: one wavelength of 16 is lost, the log says how far off the ring is."""
    port = settled()
    port.inject(DeadHeater(side="rx", macro=1, slot=3))
    port.advance(200.0)
    assert port.capacity_gbps == 400.0 - 25.0 * (port.state[RX] != State.UP).sum()
    assert port.state[RX, 1, 3] == State.TUNING
    assert port.waits[RX, 1, 3] == "the ring does not reach its line"
    assert [event.what for event in port.log.at("port")] == ["dead heater on rx 1.3"]
    assert port.log.at("rx 1.3")[-1].what.startswith("waits: the ring does not reach its line, +1")


def test_dead_heater_cools_its_neighbours_out_of_lock():
    """Each neighbour loses 3 % of about 187 GHz, 5.6 GHz, more than the hysteresis of 5: open loop loses them
    too. A lock loop keeps them."""
    port = settled()
    port.inject(DeadHeater(side="rx", macro=1, slot=3))
    port.advance(200.0)
    assert (port.state[RX, 1, [2, 4]] == State.TUNING).all()
    followed = settled(control=ControlLaw(law="pi-lock"))
    followed.inject(DeadHeater(side="rx", macro=1, slot=3))
    followed.advance(200.0)
    assert (followed.state[RX, 1, [2, 4]] == State.UP).all()
    assert followed.capacity_gbps == 375.0


def test_stuck_ring_does_not_follow():
    """A stuck ring stays on its old line: nothing is lost until it is told to move."""
    port = settled(design=RingDesign(crosstalk=(), bias_ghz=600.0))
    port.inject(StuckRing(side="tx", macro=0, slot=7))
    port.advance(50.0)
    assert port.capacity_gbps == 400.0
    port.darken(where=np.array([[False] * 6 + [True] * 2, [False] * 8]))
    port.tune(6, where=np.array([[False] * 7 + [True], [False] * 8]))
    port.advance(150.0)
    assert port.state[TX, 0, 7] == State.TUNING
    assert port.state[RX, 0, 7] == State.CDR
    assert port.waits[RX, 0, 7] == "no light on line 6"
    assert port.capacity_gbps == 350.0


def test_missing_line_darkens_every_macro():
    """A laser line goes out: that wavelength is lost in both macros, 2 x 25 Gbps; the others stay."""
    port = settled()
    port.inject(MissingLine(line=5))
    port.advance(50.0)
    assert port.capacity_gbps == 350.0
    assert (port.waits[:, :, 5] == "no light on line 5").all()
    assert (port.state[:, :, [0, 1, 2, 3, 4, 6, 7]] == State.UP).all()


def test_ambient_ramp_needs_a_loop():
    """20 K/ms: open loop is dragged beyond 5 GHz 25 us later and loses everything; a lock loop follows."""
    still = settled()
    still.inject(AmbientRamp(k_per_ms=20.0))
    still.advance(24.0)
    assert still.capacity_gbps == 400.0
    still.advance(10.0)
    assert still.capacity_gbps == 0.0
    followed = settled(control=ControlLaw(law="pi-lock"))
    followed.inject(AmbientRamp(k_per_ms=20.0))
    followed.advance(500.0)
    assert followed.capacity_gbps == 400.0


def test_ring_passing_over_other_lines_takes_their_light():
    """While ring 0 crosses the grid to line 3 it drops the lines on its way: receivers behind it lose light
    for a while and come back. It crosses line 2 at 200 GHz / 4 us and hides it for 0.3 us."""
    design = RingDesign(crosstalk=(), bias_ghz=900.0)
    port = TeraPhy(macros=1, wavelengths=3, design=design, step_us=0.05)
    port.tune()
    port.advance(200.0)
    port.tune(3, where=np.array([True, False, False]))
    port.advance(200.0)
    assert (port.state == State.UP).all()
    for behind in ("rx 0.1", "rx 0.2"):
        assert [what for _, what in moves(port, behind) if "UP ->" in what] == ["UP -> CDR"]


def test_same_seed_same_log():
    """Equal seeds give equal logs and energies, to the last bit; other seeds other rings."""

    def run(seed):
        port = TeraPhy(macros=2, design=RingDesign(offset_sigma_ghz=40.0), seed=seed)
        port.tune()
        port.inject(AmbientRamp(k_per_ms=20.0))
        port.advance(80.0)
        return str(port.log), port.energy_nj

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_words_wait_for_the_slowest_of_their_command():
    """Slots 0 and 1 move by 200 and 600 GHz in one command: neither carries words before both are up."""
    port = settled(design=RingDesign(crosstalk=(), bias_ghz=900.0), wavelengths=4)
    where = np.array([[True, True, False, False], [False] * 4])
    before = len(port.log)
    port.tune(np.array([4, 5, 2, 3]), where=where)
    port.advance(100.0)
    up = {e.where: e.time_us for e in list(port.log)[before:] if e.what == "CDR -> UP"}
    (aligned,) = (e.time_us for e in list(port.log)[before:] if e.where == "rx 0" and "aligned" in e.what)
    assert aligned == max(up["rx 0.0"], up["rx 0.1"]) + 1.0
    assert port.capacity_gbps == 200.0


def test_light_on_its_way_is_not_missing():
    """With 2 km of fibre a receiver is ready 10 us before light comes; words wait for the slower slot."""
    design = RingDesign(crosstalk=(), bias_ghz=900.0)
    port = settled(design=design, wavelengths=4, fibre_m=2000.0)
    before = len(port.log)
    port.tune(np.array([4, 5, 2, 3]), where=np.array([[True, True, False, False], [False] * 4]))
    port.advance(100.0)
    happened = list(port.log)[before:]
    assert not any("waits" in event.what for event in happened)
    up = [event.time_us for event in happened if event.what == "CDR -> UP"]
    assert [event.time_us for event in happened if "aligned" in event.what] == [max(up) + 1.0]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda port: port.tune(8), "lines must be at least 0 and at most 7, got 8"),
        (lambda port: port.tune(np.zeros((2, 8), dtype=int)), "line 0 twice in macro 0"),
        (lambda port: port.tune([0.5] * 8), "lines must be whole numbers"),
        (lambda port: port.tune([0, 1, 2]), r"lines must have the shape \(2, 8\), got \(3,\)"),
        (lambda port: port.tune(where=[1] * 8), "where must be a mask of slots"),
        (lambda port: port.darken(where=[True] * 3), r"where must have the shape \(2, 8\)"),
        (lambda port: port.advance(0.5), "us must be a whole number of steps of 1 us"),
        (lambda port: port.advance(np.nan), "us must be finite"),
        (
            lambda port: port.inject(DeadHeater(side="rx", macro=2, slot=0)),
            "macro must be .* at most 1, got 2",
        ),
        (lambda port: port.inject(MissingLine(line=8)), "line must be .* at most 7, got 8"),
        (lambda port: port.connect(TeraPhy(macros=1)), "far must have 2 macros"),
        (lambda _: DeadHeater(side="up", macro=0, slot=0), "side must be one of tx, rx"),
        (lambda _: AmbientRamp(k_per_ms=np.inf), "AmbientRamp.k_per_ms must be finite"),
        (lambda _: TeraPhy(wavelengths=9), "wavelengths must be .* at most 8, got 9"),
        (lambda _: TeraPhy(step_us=1e-6), "step_us must be finite and at least 0.001, got 1e-06"),
        (lambda _: TeraPhy(rate_gbps=0.0), "rate_gbps must be finite and above 0"),
        (lambda _: LinkBudget(coupling_db=-1.0), "LinkBudget.coupling_db must be finite and at least 0"),
    ],
)
def test_bad_requests_are_refused_by_name(act, message):
    """One line with the parameter, its value and what is allowed; the port stays dark."""
    port = TeraPhy(macros=2)
    with pytest.raises(HwsimError, match=message):
        act(port)
    assert (port.state == State.DARK).all()


def test_connected_ports_advance_together():
    """One end alone cannot be stepped."""
    left, right = (TeraPhy(macros=1, timing=LinkTiming()) for _ in range(2))
    left.connect(right)
    with pytest.raises(HwsimError, match="use advance_together"):
        left.advance(1.0)
    with pytest.raises(HwsimError, match="ports must include the far end"):
        advance_together((left,), 1.0)
