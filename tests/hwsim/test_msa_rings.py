"""Rings for the grids of the CW-WDM MSA, worked by hand."""

import numpy as np
import pytest

from hwsim import (
    GRIDS,
    RADIUS_UM,
    RingBank,
    RingDesign,
    State,
    TeraPhy,
    WdmGrid,
    bench_of_grid,
    optics,
    retune_time_us,
    ring_design,
)

#: 1310^2 nm^2 / (4.2 x 2 pi R) and c / (4.2 x 2 pi R), with 2 pi R = 31.416, 18.850 and 9.4248 um; then the
#: span, lines x spacing, in GHz.
BY_HAND = {"9nm": (13.006, 2272.1, 1600), "18nm": (21.677, 3786.8, 3200), "36nm": (43.353, 7573.6, 6400)}


@pytest.mark.parametrize("name", BY_HAND)
def test_free_spectral_range_holds_the_span_and_a_guard(name):
    """At least 15 % over the span is left."""
    range_nm, range_ghz, span_ghz = BY_HAND[name]
    assert optics.fsr_nm(radius_um=RADIUS_UM[name]) == pytest.approx(range_nm, abs=1e-3)
    for grid in (grid for grid in GRIDS.values() if f"-{name}-" in grid.name):
        design = ring_design(grid)
        assert grid.span_ghz == span_ghz
        assert design.fsr_ghz == pytest.approx(range_ghz, abs=0.1)
        assert design.fsr_ghz > 1.15 * span_ghz
        assert design.fsr_ghz == ring_design(grid, name).fsr_ghz


@pytest.mark.parametrize(
    ("grid", "efficiency", "bias"),
    [  # 90 GHz/mW x 5 um / R; one spacing, but at least 200 GHz
        ("9nm-8x200", 90, 200),
        ("9nm-16x100", 90, 200),
        ("18nm-8x400", 150, 400),
        ("18nm-32x100", 150, 200),
        ("36nm-8x800", 300, 800),
        ("36nm-32x200", 300, 200),
    ],
)
def test_a_range_takes_25_mw_and_a_ring_can_be_parked(grid, efficiency, bias):
    """2272 GHz / 90 GHz/mW = 3787 / 150 = 7574 / 300 = 25.2 mW."""
    design = ring_design(GRIDS[f"cw-wdm-{grid}"])
    assert design.efficiency_ghz_per_mw == pytest.approx(efficiency)
    assert design.fsr_ghz / design.efficiency_ghz_per_mw == pytest.approx(25.245, abs=1e-3)
    assert design.bias_ghz == bias


def test_rings_for_9_nm_are_those_of_the_default_design():
    """Naming the span changes nothing for grids that always ran."""
    chosen, default = ring_design(GRIDS["cw-wdm-9nm-8x200"]), RingDesign()
    for name in ("fsr_ghz", "efficiency_ghz_per_mw", "heater_limit_mw", "bias_ghz", "quality", "tau_us"):
        assert getattr(chosen, name) == getattr(default, name)


@pytest.mark.parametrize("grid", GRIDS)
def test_every_grid_runs_on_rings_chosen_for_it(grid):
    """Ring k comes to line k by the heat of its bias, and neighbouring rings may swap lines."""
    lines = GRIDS[grid].lines
    bank = RingBank(rings=lines, grid=grid)
    bank.tune(np.arange(lines))
    bank.advance(60.0)
    assert bank.locked.all()
    assert bank.shift_ghz == pytest.approx(bank.design.bias_ghz, abs=1e-3)
    bank.tune([1, 0], rings=[0, 1])
    bank.advance(60.0)
    assert bank.locked.all()


@pytest.mark.parametrize("grid", GRIDS)
def test_every_grid_carries_words(grid):
    """One macro, every line: lines x 25 Gbps, and parked rings stand half a spacing above their lines."""
    lines = GRIDS[grid].lines
    port = TeraPhy(macros=1, wavelengths=lines, grid=grid)
    bias_ghz, spacing_ghz = port.bank.design.bias_ghz, GRIDS[grid].spacing_ghz
    assert port.bank.shift_ghz == pytest.approx(bias_ghz - spacing_ghz / 2, abs=1e-3)
    port.tune()
    port.advance(60.0)
    assert (port.state == State.UP).all()
    assert port.capacity_gbps == 25.0 * lines


@pytest.mark.parametrize("grid", GRIDS)
def test_a_ring_may_hop_from_end_to_end_of_its_grid(grid):
    """(lines - 1) x spacing, up or down: 4 + 4 ln(hop / 2.5 GHz) us, in steps of 0.1 us."""
    span_ghz = (GRIDS[grid].lines - 1) * GRIDS[grid].spacing_ghz
    up, down = retune_time_us([span_ghz, -span_ghz], **bench_of_grid(grid))
    assert up == down == pytest.approx(4.0 + 4.0 * np.log(span_ghz / 2.5), abs=0.11)


def test_a_grid_of_ones_own_gets_the_largest_rings_that_hold_it():
    """4 x 500 GHz are 2000, below 2272; 5 x 500 = 2500 are not."""
    for lines, radius_um in ((4, 5.0), (5, 3.0)):
        grid = WdmGrid(name="own", lines=lines, spacing_ghz=500.0)
        assert RingBank(rings=4, grid=grid).design.fsr_ghz == optics.fsr_ghz(radius_um=radius_um)
    assert RingBank(rings=4, grid=grid, design="36nm").design.fsr_ghz == optics.fsr_ghz(radius_um=1.5)
