"""Control laws against their closed forms."""

import numpy as np
import pytest

from hwsim import ControlLaw, RingBank, RingDesign, WdmGrid

BENCH = WdmGrid(name="bench", lines=1, spacing_ghz=1.0)


def bank_at(start_ghz, *, step_us=0.01, **control):
    """One ring at rest with `start_ghz` of heat, 2700 GHz at its heater's limit, tau 4 us."""
    design = RingDesign(bias_ghz=0.0, fsr_ghz=1e6, efficiency_ghz_per_mw=90.0, heater_limit_mw=30.0)
    bank = RingBank(rings=1, grid=BENCH, design=design, control=ControlLaw(**control), step_us=step_us)
    bank.tune_ghz(-start_ghz)
    bank.advance(400.0)
    return bank


def settling_us(bank, target_ghz):
    start_us = bank.time_us
    bank.tune_ghz(-target_ghz)
    bank.advance(100.0)
    assert bank.locked.all()
    return bank.locked_since_us[0] - start_us


def test_over_drive_upwards():
    """200 -> 1000 with gain 4 asks 200 + 3200, the limit gives 2700: 4 ln(2500 / (1700 + 2.5)) = 1.537 us."""
    assert settling_us(bank_at(200.0, law="over-drive"), 1000.0) == pytest.approx(1.537, abs=0.011)


def test_over_drive_downwards_is_slower():
    """1000 -> 200 asks less than nothing, the heater goes off: 4 ln(1000 / (200 + 2.5)) = 6.388 us."""
    assert settling_us(bank_at(1000.0, law="over-drive"), 200.0) == pytest.approx(6.388, abs=0.011)


def test_over_drive_within_the_limits():
    """200 -> 300 with gain 4 drives to 600: 4 ln(400 / (300 + 2.5)) = 1.117 us; and 300 -> 280."""
    assert settling_us(bank_at(200.0, law="over-drive"), 300.0) == pytest.approx(1.117, abs=0.011)
    # gain 4 drives to 220: 4 ln(80 / (60 + 2.5)) = 0.987 us
    assert settling_us(bank_at(300.0, law="over-drive"), 280.0) == pytest.approx(0.987, abs=0.011)


def test_over_drive_stays_where_it_arrives():
    """After the over-drive the calibrated power holds the ring exactly."""
    bank = bank_at(200.0, law="over-drive")
    settling_us(bank, 1000.0)
    assert bank.detuning_ghz == pytest.approx([0.0], abs=1e-9)


def test_open_loop_steps_are_symmetric():
    """Below saturation up and down take the same 4 ln(800 / 2.5) = 23.07 us."""
    up = settling_us(bank_at(200.0), 1000.0)
    down = settling_us(bank_at(1000.0), 200.0)
    assert up == pytest.approx(23.073, abs=0.011)
    assert down == pytest.approx(up, abs=0.011)


def test_at_the_limit_there_is_nothing_to_over_drive_with():
    """A target at the heater's very limit is approached as in open loop."""
    assert settling_us(bank_at(200.0, law="over-drive"), 2700.0) == pytest.approx(
        4.0 * np.log(2500.0 / 2.5), abs=0.011
    )


def test_open_loop_keeps_its_calibration_error():
    """A believed efficiency 1 % too high leaves 1000 - 1000 / 1.01 = 9.90 GHz."""
    bank = bank_at(1000.0, calibration_error=0.01)
    assert bank.detuning_ghz == pytest.approx([9.901], abs=1e-3)
    assert not bank.locked.any()


def test_lock_loop_shrinks_an_error_by_its_ratio():
    """A step of ambient leaves an error of 1 GHz; each period of 1 us leaves exp(-1/4) of it."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock", loop_us=1.0, loop_response_us=4.0)
    bank.advance(100.0)
    assert bank.detuning_ghz == pytest.approx([0.0], abs=1e-9)
    bank.set_ambient(-0.1)  # 10 GHz/K: 1 GHz too blue
    errors = []
    for _ in range(12):
        bank.advance(1.0)
        errors.append(bank.detuning_ghz[0])
    # The first sample already finds the whole error, since the ring itself has not moved.
    assert errors[0] == pytest.approx(1.0, rel=1e-9)
    start = next(k for k, error in enumerate(errors) if error < 0.999)
    ratios = np.array(errors[start + 1 :]) / np.array(errors[start:-1])
    assert ratios[3:] == pytest.approx(np.exp(-0.25), rel=1e-6)


def test_lock_loop_removes_a_calibration_error():
    """What open loop leaves for ever the loop removes, and the ring locks."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock", calibration_error=0.02)
    assert bank.detuning_ghz == pytest.approx([0.0], abs=1e-9)
    assert bank.locked.all()


def test_lock_loop_follows_a_ramp_at_a_known_distance():
    """20 K/ms is 0.2 GHz each sample; the lag is 0.2 / (1 - exp(-1/4)) = 0.904 GHz and the lock holds."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock")
    bank.set_ambient(0.0, ramp_k_per_ms=20.0)
    bank.advance(500.0)
    assert bank.detuning_ghz == pytest.approx([-0.2 / (1.0 - np.exp(-0.25))], rel=1e-6)
    assert bank.locked.all()


def test_a_ramp_too_fast_breaks_the_lock_until_it_ends():
    """200 K/ms lags 9.04 GHz, more than the 5 GHz of hysteresis; when it ends the loop comes back."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock")
    bank.set_ambient(0.0, ramp_k_per_ms=200.0)
    bank.advance(40.0)
    assert not bank.locked.any()
    bank.set_ambient(bank.ambient_k)
    bank.advance(40.0)
    assert bank.locked.all()


def test_without_light_the_loop_holds_still():
    """A loop that sees nothing changes no power, and picks up when the light returns."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock")
    bank.set_light(False, rings=[0])
    bank.set_ambient(0.8)
    power = bank.power_mw[0]
    bank.advance(50.0)
    assert bank.power_mw[0] == power
    assert bank.detuning_ghz == pytest.approx([-8.0], abs=1e-9)
    bank.set_light(True, rings=[0])
    bank.advance(100.0)
    assert bank.detuning_ghz == pytest.approx([0.0], abs=1e-6)


def test_beyond_its_capture_range_the_loop_is_blind():
    """At 20 % calibration error the ring rests 167 GHz off, where less than 1 % of the light drops."""
    bank = bank_at(1000.0, step_us=1.0, law="pi-lock", calibration_error=0.2)
    assert bank.detuning_ghz == pytest.approx([1000.0 - 1000.0 / 1.2], abs=1e-6)
    assert not bank.locked.any()
