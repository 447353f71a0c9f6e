"""The C bank against the plain numpy one."""

import numpy as np
import pytest

from hwsim import ControlLaw, RingBank, RingDesign
from hwsim.design import LAWS

RINGS, PER_PORT = 48, 8

#: Size of each quantity, to which 1e-12 is relative. Drop and through follow the detuning at up to 0.1 per
#: GHz, and so hardly better than its rounding: 1e-13 of 1e3 GHz is 1e-11 of the light.
SCALES = {
    "shift_ghz": 1e3,
    "detuning_ghz": 1e3,
    "resonance_ghz": 1e3,
    "power_mw": 30.0,
    "energy_nj": 1e4,
    "drop": 10.0,
    "through": 10.0,
    "locked": 1.0,
    "locked_since_us": 1e3,
    "reachable": 1.0,
}


def random_bank(seed, kernel):
    """A bank whose every parameter is drawn for each ring."""
    rng = np.random.default_rng(seed)
    design = RingDesign(
        tau_us=rng.uniform(1.0, 10.0, RINGS),
        efficiency_ghz_per_mw=rng.uniform(30.0, 120.0, RINGS),
        heater_limit_mw=rng.uniform(20.0, 60.0, RINGS),
        quality=rng.uniform(5e3, 2e4, RINGS),
        peak_drop=rng.uniform(0.5, 1.0, RINGS),
        drift_ghz_per_k=rng.uniform(5.0, 12.0, RINGS),
        offset_sigma_ghz=300.0,
        crosstalk=(0.05, 0.01),
    )
    control = ControlLaw(
        law=[LAWS[k] for k in rng.integers(0, len(LAWS), RINGS)],
        calibration_error=rng.uniform(-0.02, 0.02, RINGS),
        loop_us=2.0,
    )
    return RingBank(
        rings=RINGS, rings_per_port=PER_PORT, design=design, control=control, seed=seed, kernel=kernel
    )


def long_run(seed, kernel):
    """Many retunes at odd instants, faults, an ambient ramp, lost light; every quantity after each."""
    bank = random_bank(seed, kernel)
    rng = np.random.default_rng(1000 + seed)
    bank.tune(rng.integers(0, 8, RINGS))
    seen = []
    for turn in range(60):
        bank.advance(rng.choice([0.3, 1.0, 7.0, 23.4]))
        bank.tune(rng.integers(0, 8, 3), rings=rng.integers(0, RINGS, 3))
        if turn == 10:
            bank.set_heater("dead heater", rings=[3])
            bank.set_heater("stuck", rings=[11])
        if turn == 20:
            bank.set_ambient(1.0, ramp_k_per_ms=20.0)
        if turn == 30:
            bank.set_light(False, rings=[5, 6, 7])
        bank.advance(3.1)
        seen.append([getattr(bank, name) / scale for name, scale in SCALES.items()])
    return np.array(seen)


@pytest.mark.parametrize("seed", range(6))
def test_kernels_agree(seed):
    """To 1e-12 of each quantity's size, over random banks and long runs."""
    assert long_run(seed, "c") == pytest.approx(long_run(seed, "numpy"), rel=0.0, abs=1e-12)


def test_kernels_refuse_alike():
    """A reading without a line is refused by both with the same words."""
    messages = []
    for kernel in ("c", "numpy"):
        with pytest.raises(ValueError, match="no line yet") as refusal:
            _ = random_bank(0, kernel).drop
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
