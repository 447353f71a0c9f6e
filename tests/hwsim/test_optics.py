"""Closed forms against the table of micro-ring numbers, worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwsim import GRIDS, HwsimError, optics


def test_free_spectral_range_of_a_5_um_ring():
    """1310^2 nm^2 / (4.2 x 31.416 um) = 1 716 100 / 131 947 = 13.006 nm; c / (4.2 x 31.416 um) = 2272 GHz."""
    assert optics.fsr_nm() == pytest.approx(13.006, abs=1e-3)
    assert optics.fsr_ghz() == pytest.approx(2272.1, abs=0.1)


def test_width_of_a_resonance_with_q_10000():
    """c / 1310 nm = 228 849 GHz; over 1e4: 22.88 GHz."""
    assert float(optics.fwhm_ghz(quality=1e4)) == pytest.approx(22.885, abs=1e-3)


def test_drop_port_is_a_lorentzian():
    """T_peak at 0, half of it at half the width, a fifth at the full width."""
    assert optics.drop([0.0, 10.0, -10.0, 20.0], 20.0, 0.8) == pytest.approx([0.8, 0.4, 0.4, 0.16])


@pytest.mark.parametrize(
    ("spacing_ghz", "fwhm_ghz", "table_db", "by_hand_db"),
    [
        (200, 40, -20, -10 * np.log10(101)),  # (2 x 200 / 40)^2 = 100
        (200, 25, -24, -10 * np.log10(257)),  # 16^2
        (100, 25, -18, -10 * np.log10(65)),  # 8^2
        (100, 40, -14, -10 * np.log10(26)),  # 5^2
    ],
)
def test_adjacent_channel_crosstalk(spacing_ghz, fwhm_ghz, table_db, by_hand_db):
    """Each row of the table within 0.5 dB, and the hand-worked value exactly."""
    crosstalk = float(optics.adjacent_crosstalk_db(spacing_ghz, fwhm_ghz))
    assert crosstalk == pytest.approx(by_hand_db, abs=1e-12)
    assert abs(crosstalk - table_db) < 0.5


@pytest.mark.parametrize(
    ("hop_ghz", "tau_us", "expected_us"),
    [
        (200, 4, 17.53),  # 4 ln 80 = 4 x 4.3820
        (800, 4, 23.07),  # 4 ln 320 = 4 x 5.7683
        (1600, 4, 25.85),  # 4 ln 640 = 4 x 6.4615
        (1600, 5, 32.31),
    ],
)
def test_first_order_settling(hop_ghz, tau_us, expected_us):
    """t = tau ln(hop / 2.5 GHz)."""
    assert float(optics.settling_us(hop_ghz, tau_us=tau_us, tolerance_ghz=2.5)) == pytest.approx(
        expected_us, abs=0.005
    )


def test_200_ghz_is_1_145_nm():
    """1310^2 nm^2 x 200 GHz / c = 1.1449 nm."""
    assert optics.spacing_nm(200.0) == pytest.approx(1.145, abs=5e-4)


@pytest.mark.parametrize(
    ("span_nm", "lines"), [(9, 8), (9, 16), (18, 8), (18, 16), (18, 32), (36, 8), (36, 16), (36, 32)]
)
def test_grids_of_the_cw_wdm_msa(span_nm, lines):
    """A span of 9, 18 or 36 nm holds its lines: lines x spacing is the span, rounded."""
    (grid,) = (g for g in GRIDS.values() if g.lines == lines and round(g.span_nm / 9.0) * 9 == span_nm)
    assert grid.span_nm == pytest.approx(span_nm, rel=0.02)
    assert np.diff(grid.line_ghz) == pytest.approx(grid.spacing_ghz)
    assert grid.line_ghz.sum() == pytest.approx(0.0)


@given(
    detuning=st.floats(-1e4, 1e4),
    fwhm=st.floats(0.1, 1e3),
    peak=st.floats(1e-6, 1.0),
)
def test_a_ring_gives_out_no_more_than_it_gets(detuning, fwhm, peak):
    """drop + through <= 1, both >= 0."""
    drop, through = (float(f(detuning, fwhm, peak)) for f in (optics.drop, optics.through))
    assert drop >= 0.0
    assert through >= -1e-15
    assert drop + through <= 1.0 + 1e-12


def test_a_lossless_ring_takes_its_line_whole():
    """Peak drop 1 leaves (1 - 1)^2 = 0 on the bus; peak drop 0.81 leaves (1 - 0.9)^2 = 0.01."""
    assert optics.through(0.0, 20.0, [1.0, 0.81]) == pytest.approx([0.0, 0.01])


def test_rings_of_a_bus_share_what_there_is():
    """Two rings on one line: the second gets what the first lets pass; in all no more than 1."""
    drop = np.array([[0.6], [0.6]])
    through = np.array([[0.3], [0.3]])
    assert optics.bus_power(drop, through).ravel() == pytest.approx([0.6, 0.18])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, "wide"])
def test_a_bad_parameter_is_named(bad):
    """The message names the parameter."""
    with pytest.raises(HwsimError, match="radius_um must be"):
        optics.fsr_ghz(radius_um=bad)
