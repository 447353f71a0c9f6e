"""Laws of the ring bank that hold whatever the control."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwsim import ControlLaw, HwsimError, RingBank, RingDesign, WdmGrid

#: One line at 0 GHz, so that the shift a ring needs is its bias less the frequency it is tuned to.
BENCH = WdmGrid(name="bench", lines=1, spacing_ghz=1.0)


def bench_bank(rings=1, *, design=None, **options):
    """Rings alone on their ports unless told otherwise, made on the line, with 3000 GHz of heat."""
    design = {"bias_ghz": 0.0, "heater_limit_mw": 30.0, "efficiency_ghz_per_mw": 100.0, "fsr_ghz": 1e6} | (
        design or {}
    )
    options = {"rings_per_port": 1} | options
    return RingBank(rings=rings, grid=BENCH, design=RingDesign(**design), **options)


def test_step_response_is_exponential():
    """shift(t) = 400 (1 - exp(-t/4)) after a step to 400 GHz; at t = 4 ln 2 it is half-way."""
    bank = bench_bank()
    bank.tune_ghz(-400.0)
    bank.advance(4.0 * np.log(2.0))
    assert bank.shift_ghz == pytest.approx([200.0], abs=1e-10)
    bank.advance(4.0 * np.log(2.0))
    assert bank.shift_ghz == pytest.approx([300.0], abs=1e-10)
    assert bank.temperature_k == pytest.approx([30.0])  # 10 GHz/K


def test_cooling_is_exponential_too():
    """From 400 to 100 GHz: 100 + 300 exp(-t/tau)."""
    bank = bench_bank(design={"tau_us": 2.0})
    bank.tune_ghz(-400.0)
    bank.advance(200.0)
    bank.tune_ghz(-100.0)
    bank.advance(2.0)
    assert bank.shift_ghz == pytest.approx([100.0 + 300.0 / np.e], abs=1e-9)


def test_heat_of_neighbours_adds_up():
    """Crosstalk is linear: the shift with both neighbours hot is the sum of the shifts with one hot."""

    def shift(left_ghz, right_ghz):
        bank = bench_bank(
            3,
            rings_per_port=3,
            design={"crosstalk": (0.04, 0.01)},
            control=ControlLaw(compensate_crosstalk=False),
        )
        bank.tune_ghz([-left_ghz, 0.0, -right_ghz])
        bank.advance(7.0)
        return bank.shift_ghz

    both = shift(800.0, 300.0)
    assert both == pytest.approx(shift(800.0, 0.0) + shift(0.0, 300.0), rel=1e-13)
    # Middle: 4 % of 1100 GHz, as far as 7 us of tau 4 us go.
    assert both[1] == pytest.approx(0.04 * 1100.0 * (1 - np.exp(-7 / 4)), rel=1e-12)


def test_ports_do_not_warm_each_other():
    """The last ring of one port and the first of the next are strangers."""
    bank = bench_bank(
        4, rings_per_port=2, design={"crosstalk": (0.1,)}, control=ControlLaw(compensate_crosstalk=False)
    )
    bank.tune_ghz([-900.0, 0.0, 0.0, 0.0])
    bank.advance(50.0)
    assert bank.shift_ghz[1] > 80.0
    assert (bank.shift_ghz[2:] == 0.0).all()


def test_compensated_powers_put_every_ring_on_its_line():
    """With crosstalk allowed for, all rings settle where they should, and a retuned one moves no other."""
    bank = bench_bank(4, rings_per_port=4, design={"crosstalk": (0.05, 0.01)})
    bank.tune_ghz([-300.0, -500.0, -400.0, -600.0])
    bank.advance(400.0)
    assert bank.shift_ghz == pytest.approx([300.0, 500.0, 400.0, 600.0], abs=1e-9)
    bank.tune_ghz(-900.0, rings=[1])
    for _ in range(20):
        bank.advance(1.0)
        assert bank.shift_ghz[[0, 2, 3]] == pytest.approx([300.0, 400.0, 600.0], abs=1e-9)


def test_uncompensated_neighbour_is_pushed_off_its_line():
    """A neighbour that heats by 600 GHz with 5 % crosstalk pushes a locked ring by 30 GHz, out of lock."""
    bank = bench_bank(
        2, rings_per_port=2, design={"crosstalk": (0.05,)}, control=ControlLaw(compensate_crosstalk=False)
    )
    bank.tune_ghz([0.0, 0.0])
    bank.advance(1.0)
    assert bank.locked.all()
    bank.tune_ghz(-600.0, rings=[1])
    bank.advance(200.0)
    assert bank.detuning_ghz[0] == pytest.approx(-30.0, abs=1e-6)
    assert not bank.locked[0]


def test_energy_is_the_integral_of_power():
    """4 mW for 10 us is 40 nJ; and a loop's changing power adds up step by step."""
    bank = bench_bank()
    bank.tune_ghz(-400.0)
    bank.advance(10.0)
    assert bank.energy_nj == pytest.approx([40.0], rel=1e-12)

    loop = bench_bank(control=ControlLaw(law="pi-lock", calibration_error=0.02))
    loop.tune_ghz(-400.0)
    total = 0.0
    for _ in range(100):
        total += loop.power_mw[0] * 1.0  # power changes at the ends of steps only
        loop.advance(1.0)
    assert loop.energy_nj[0] == pytest.approx(total, rel=1e-12)


def test_nearest_order_that_heat_can_reach():
    """FSR 1000: a line 200 GHz below is reached with 200 of heat from the cold, with 1200 from 900."""
    design = {"fsr_ghz": 1000.0}
    bank = bench_bank(design=design)
    bank.tune_ghz(-200.0)
    bank.advance(300.0)
    assert bank.shift_ghz == pytest.approx([200.0])
    bank.tune_ghz(-900.0)
    bank.advance(300.0)
    # From 200, 900 is 700 up; -100 would be nearer but a heater only heats.
    assert bank.shift_ghz == pytest.approx([900.0])
    bank.tune_ghz(-200.0)
    bank.advance(300.0)
    assert bank.shift_ghz == pytest.approx([1200.0])
    assert bank.detuning_ghz == pytest.approx([0.0], abs=1e-9)


def test_a_heater_only_heats():
    """A line 50 GHz above a cold ring is reached through the next order, 950 GHz of heat."""
    bank = bench_bank(design={"fsr_ghz": 1000.0})
    bank.tune_ghz(50.0)
    bank.advance(300.0)
    assert bank.shift_ghz == pytest.approx([950.0])
    assert bank.locked.all()


def test_power_saturates_and_says_so():
    """5000 GHz needs 50 mW of a 30 mW heater and no other order is near: it stops at 3000 GHz."""
    bank = bench_bank()
    bank.tune_ghz(-5000.0)
    bank.advance(300.0)
    assert bank.power_mw == pytest.approx([30.0])
    assert bank.shift_ghz == pytest.approx([3000.0])
    assert not bank.reachable.any()
    assert not bank.locked.any()


def test_ambient_moves_resonances_down():
    """10 GHz/K: 0.4 K takes a ring 4 GHz below its line, within the hysteresis of 5, and 0.6 K beyond."""
    bank = bench_bank()
    bank.tune_ghz(-400.0)
    bank.advance(100.0)
    bank.set_ambient(0.4)
    bank.advance(1.0)
    assert bank.detuning_ghz == pytest.approx([-4.0])
    assert bank.locked.all()
    bank.set_ambient(0.6)
    bank.advance(1.0)
    assert not bank.locked.any()
    bank.set_ambient(0.4)
    bank.advance(1.0)
    assert not bank.locked.any()  # 4 GHz keeps a lock but makes none
    bank.set_ambient(0.2)
    bank.advance(1.0)
    assert bank.locked.all()


def test_a_ramp_drags_at_its_rate():
    """20 K/ms at 10 GHz/K is 0.2 GHz/us: 6 GHz after 30 us; the lock goes beyond 5 GHz, after 25 us."""
    bank = bench_bank()
    bank.tune_ghz(-400.0)
    bank.advance(200.0)
    bank.set_ambient(0.0, ramp_k_per_ms=20.0)
    bank.advance(24.0)
    assert bank.locked.all()
    bank.advance(6.0)
    assert bank.detuning_ghz == pytest.approx([-6.0], abs=1e-9)
    assert not bank.locked.any()
    assert bank.ambient_k == pytest.approx(0.6)


def test_lock_comes_later_for_a_tighter_tolerance():
    """Lock instants fall as the tolerance grows, each the first step after tau ln(hop / tolerance)."""
    tolerances = [0.5, 1.0, 2.5, 5.0, 20.0]
    instants = []
    for tolerance in tolerances:
        bank = bench_bank(control=ControlLaw(tolerance_ghz=tolerance))
        bank.tune_ghz(-800.0)
        bank.advance(100.0)
        instants.append(bank.locked_since_us[0])
    assert instants == [float(np.ceil(4.0 * np.log(800.0 / tolerance))) for tolerance in tolerances]


@pytest.mark.parametrize(
    ("spacing_ghz", "width_ghz", "expected_db"),
    [(200, 40, -20.04), (200, 25, -24.10), (100, 25, -18.13), (100, 40, -14.15)],
)
def test_settled_ring_shows_the_crosstalk_of_the_table(spacing_ghz, width_ghz, expected_db):
    """A ring settled on its line sees the next line at the table's level (by hand in test_optics)."""
    bank = bench_bank(design={"quality": 228_849.2 / width_ghz})
    bank.tune_ghz(-500.0)
    bank.advance(400.0)
    own = bank.drop[0]
    bank.tune_ghz(-500.0 + spacing_ghz)  # the ring has not moved yet
    assert 10 * np.log10(bank.drop[0] / own) == pytest.approx(expected_db, abs=0.01)


@given(seed=st.integers(0, 2**32), lines=st.lists(st.integers(0, 7), min_size=16, max_size=16))
@settings(max_examples=30, deadline=None)
def test_light_is_never_made_and_heat_never_negative(seed, lines):
    """drop + through <= 1, shift >= 0, 0 <= power <= limit, in any bank at any time."""
    bank = RingBank(
        rings=16,
        rings_per_port=8,
        design=RingDesign(offset_sigma_ghz=400.0),
        control=ControlLaw(law="over-drive"),
        seed=seed,
    )
    for us in (0.0, 0.7, 3.0, 40.0):
        bank.tune(np.roll(lines, int(us)))
        bank.advance(us)
        assert (bank.drop + bank.through <= 1.0 + 1e-12).all()
        assert (bank.shift_ghz >= 0.0).all()
        assert ((bank.power_mw >= 0.0) & (bank.power_mw <= 30.0)).all()


def test_same_seed_same_bytes():
    """Equal seeds give equal bytes, other seeds other rings."""

    def final(seed):
        bank = RingBank(rings=64, rings_per_port=8, design=RingDesign(offset_sigma_ghz=30.0), seed=seed)
        bank.tune(np.arange(64) % 8)
        bank.advance(20.5)
        return np.concatenate([bank.shift_ghz, bank.energy_nj, bank.detuning_ghz]).tobytes()

    assert final(7) == final(7)
    assert final(7) != final(8)


@pytest.mark.parametrize("law", ["open-loop", "over-drive", "pi-lock"])
def test_one_go_equals_many_steps(law):
    """A run cut into pieces of any length ends in the same state to 1e-9."""

    def run(pieces):
        bank = RingBank(
            rings=16,
            rings_per_port=8,
            control=ControlLaw(law=law, calibration_error=0.01),
            design=RingDesign(tau_us=3.0),
        )
        bank.tune(np.arange(16) % 8)
        for piece in pieces:
            bank.advance(piece)
        return np.concatenate([bank.shift_ghz, bank.energy_nj, bank.detuning_ghz, bank.locked, bank.power_mw])

    whole = run([47.25])
    assert run([0.25] * 189) == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert run([0.1, 13.35, 0.05, 33.75]) == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_dead_heater_cools_and_stuck_heater_stays():
    """Dead: back to cold with tau. Stuck: the power stays whatever is asked. Mended: obeys again."""
    bank = bench_bank(2)
    bank.tune_ghz(-400.0)
    bank.advance(400.0)
    bank.set_heater("dead heater", rings=[0])
    bank.set_heater("stuck", rings=[1])
    bank.tune_ghz(-700.0)
    bank.advance(4.0)
    assert bank.shift_ghz == pytest.approx([400.0 / np.e, 400.0])
    assert bank.power_mw == pytest.approx([0.0, 4.0])
    bank.set_heater("healthy", rings=[0, 1])
    bank.advance(400.0)
    assert bank.shift_ghz == pytest.approx([700.0, 700.0])


@pytest.mark.parametrize(
    "name",
    ["tau_us", "efficiency_ghz_per_mw", "heater_limit_mw", "fsr_ghz", "quality", "peak_drop"],
)
@pytest.mark.parametrize("bad", [0.0, -3.0, np.nan, np.inf, [1.0, np.nan], "hot"])
def test_bad_ring_parameters_are_refused_by_name(name, bad):
    """Non-finite, zero or negative: one line that names the parameter."""
    with pytest.raises(HwsimError, match=f"RingDesign.{name} must be"):
        RingDesign(**{name: bad})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rings": 0}, "rings must be a whole number of at least 1, got 0"),
        ({"rings": 2.5}, "rings must be a whole number"),
        ({"rings": 10, "rings_per_port": 4}, "rings_per_port must divide the number of rings, 10, got 4"),
        ({"rings": 8, "step_us": 0.0}, "step_us must be finite and above 0, got 0"),
        ({"rings": 8, "grid": "cw-wdm-9nm-8x201"}, "did you mean 'cw-wdm-9nm-8x200'"),
        (
            {"rings": 8, "grid": "cw-wdm-18nm-16x200", "design": RingDesign()},
            "fsr_ghz must be at least 3200",
        ),
        ({"rings": 8, "design": "19nm"}, "design must be one of 9nm, 18nm, 36nm, got '19nm'; did you mean"),
        (
            {"rings": 8, "grid": WdmGrid(name="wide", lines=8, spacing_ghz=1000.0)},
            "no ring design holds wide: its 8 lines span 8000 GHz",
        ),
        ({"rings": 8, "seed": -1}, "seed must be a whole number of at least 0"),
        ({"rings": 8, "kernel": "fortran"}, "kernel must be one of c, numpy"),
        ({"rings": 8, "design": RingDesign(tau_us=[1.0, 2.0])}, "RingDesign.tau_us must be one number or 8"),
        ({"rings": 8, "design": RingDesign(quality=10.0)}, "RingDesign.quality must make"),
        ({"rings": 8, "control": ControlLaw(loop_us=1.5)}, "loop_us must be a whole number of steps of 1 us"),
        ({"rings": 8, "control": ControlLaw(law=["pi-lock"] * 3)}, "ControlLaw.law must be one law or 8"),
        ({"rings": 8, "control": ControlLaw(calibration_error=[0.0] * 3)}, "must be one number or 8"),
    ],
)  # fmt: skip
def test_impossible_banks_are_refused(options, message):
    """Place, value and what is allowed, in one line."""
    with pytest.raises(HwsimError, match=message):
        RingBank(**options)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"law": "open_loop"}, "did you mean 'open-loop'"),
        ({"tolerance_ghz": -1.0}, "ControlLaw.tolerance_ghz must be finite and above 0"),
        ({"tolerance_ghz": 2.0, "unlock_ghz": 2.0}, "ControlLaw.unlock_ghz must be finite and above 2"),
        ({"overdrive_gain": 1.0}, "ControlLaw.overdrive_gain must be finite and above 1"),
        ({"capture": 1.0}, "ControlLaw.capture must be finite and above 0 and below 1"),
        ({"calibration_error": -1.0}, "ControlLaw.calibration_error must be finite and above -1"),
    ],
)
def test_bad_control_parameters_are_refused_by_name(parameters, message):
    """As for rings."""
    with pytest.raises(HwsimError, match=message):
        ControlLaw(**parameters)


def test_crosstalk_must_add_up_to_less_than_all():
    """Fractions that sum to 1 or more over both sides would heat without end."""
    with pytest.raises(HwsimError, match="crosstalk must add up to less than 1"):
        RingDesign(crosstalk=(0.4, 0.1))


def test_refused_requests_leave_the_bank_as_it_was():
    """Rings or lines that do not exist, negative time, a reading without a line: refused, nothing changed."""
    bank = RingBank(rings=8)
    for request, message in (
        (lambda: bank.tune(8), "channels must be at least 0 and at most 7"),
        (lambda: bank.tune(0.5), "channels must be whole numbers"),
        (lambda: bank.tune(0, rings=[8]), "rings must be at least 0 and at most 7, got 8"),
        (lambda: bank.tune([0, 1], rings=[0, 1, 2]), "lines must be one or as many as the rings, 3, got 2"),
        (lambda: bank.tune_ghz(np.nan), "line_ghz must be finite"),
        (lambda: bank.advance(-1.0), "us must be finite and at least 0"),
        (lambda: bank.advance(1e300), "duration"),
        (lambda: bank.set_heater("tired", rings=[0]), "state must be one of healthy, dead heater, stuck"),
        (lambda: bank.detuning_ghz, "no line yet"),
    ):
        with pytest.raises(HwsimError, match=message):
            request()
    assert bank.time_us == 0.0
    assert (bank.shift_ghz == 0.0).all()
