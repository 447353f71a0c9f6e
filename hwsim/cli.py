"""``python -m hwsim``: one retune in time, and the spectrum of one port."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import attrs
import click
import numpy as np

from hwsim import optics
from hwsim.bench import RetuneTrace, bench_of_grid
from hwsim.design import LAWS
from hwsim.errors import HwsimError
from hwsim.grid import GRIDS
from hwsim.lanes import LinkTiming, State
from hwsim.msa_rings import RADIUS_UM, ring_design, ring_of_radius
from hwsim.phy import RX, TeraPhy
from hwsim.retune import retune_trace

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


def _refusals_in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
        except (HwsimError, OSError) as refusal:
            click.echo(f"Error: {refusal}", err=True)
            raise SystemExit(2) from None

    return run


@click.group(context_settings=_CONTEXT)
def main() -> None:
    """Micro-ring resonators and TeraPHY ports, microsecond by microsecond.

    \b
    A silicon-photonic port picks a wavelength with a ring whose heater moves its resonance. This emulates the
    ring, its control and the state machine of the link, and so says how long a change of wavelength takes:
      python -m hwsim settle --hop-ghz 800 --tau-us 4       one retune, in time
      python -m hwsim spectrum                              the lines and rings of one port
    """


@main.command()
@click.option("--hop-ghz", type=float, required=True, help="Shift of the resonance; + heats, - cools.")
@click.option("--tau-us", type=float, default=4.0, help="Thermal time constant of the ring.")
@click.option("--tolerance-ghz", type=float, default=2.5, help="The ring locks within this of its line.")
@click.option("--control", type=click.Choice(LAWS), default="open-loop", help="Control law.")
@click.option("--calibration-error", type=float, default=0.0, help="Error of the believed heater efficiency.")
@click.option("--grid", type=click.Choice(tuple(GRIDS)), help="Take bias and heater of the rings for a grid.")
@click.option("--bias-ghz", type=float, show_default="200", help="Least shift at which the ring works.")
@click.option("--heater-range-ghz", type=float, show_default="2700", help="Shift at the heater's limit.")
@click.option("--control-us", type=float, default=1.0, help="From the decision to new heater powers.")
@click.option("--lock-us", type=float, default=2.0, help="How long the tolerance must be held.")
@click.option("--cdr-us", type=float, default=1.0, help="Clock and data recovery.")
@click.option("--step-us", type=float, default=0.1, help="Step of the emulation.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw it too: .png, .svg or .pdf.")
@_refusals_in_one_line
def settle(
    plot: str | None, grid: str | None, control_us: float, lock_us: float, cdr_us: float, **bench: Any
) -> None:
    """Print the timeline of one retune.

    A ring leaves its line, moves by --hop-ghz, and its channel is dark until the ring is within tolerance,
    has stayed there, and the receiver has its clock. With one step of heater power the ring settles in
    tau ln(hop / tolerance); the other stages come on top.

    \b
    Examples:
      python -m hwsim settle --hop-ghz 200
      python -m hwsim settle --hop-ghz -1600 --tau-us 5 --control over-drive
      python -m hwsim settle --hop-ghz 800 --control pi-lock --calibration-error 0.02 --plot retune.png
      python -m hwsim settle --hop-ghz 5600 --grid cw-wdm-36nm-8x800
    """
    timing = LinkTiming(control_us=control_us, lock_us=lock_us, cdr_us=cdr_us)
    given = {name: value for name, value in bench.items() if value is not None}
    of_grid = bench_of_grid(grid) if grid else {}
    trace = retune_trace(timing=timing, **{**of_grid, **given})
    if plot:
        from hwsim.plots import plot_trace

        plot_trace(trace, plot)
    _print_trace(trace)
    if plot:
        click.echo(f"\ndrawn in {plot}")


def _rows_to_print(trace: RetuneTrace) -> list[int]:
    """Return the samples at which the state changes, and about ten between them."""
    changes = np.flatnonzero(np.diff(trace.state, prepend=-1))
    regular = np.linspace(0, len(trace.time_us) - 1, 11).round().astype(int)
    return sorted({*changes.tolist(), *regular.tolist()})


def _print_trace(trace: RetuneTrace) -> None:
    bench = trace.bench
    click.echo(
        f"hop {trace.hop_ghz:+g} GHz, tau {bench.tau_us:g} us, tolerance {bench.tolerance_ghz:g} GHz, "
        f"{bench.control}\n"
    )
    click.echo("   time us  state      detuning GHz    drop dB   ring K   heater mW")
    for k in _rows_to_print(trace):
        click.echo(
            f"{trace.time_us[k]:10.1f}  {State(trace.state[k]).name:<8}  {trace.detuning_ghz[k]:+13.2f}  "
            f"{10.0 * np.log10(trace.drop[k]):9.1f}  {trace.temperature_k[k]:7.1f}  {trace.power_mw[k]:10.2f}"
        )
    stages = trace.stages
    click.echo("\nwhere the time goes [us]")
    for name in ("control", "thermal", "lock", "cdr", "total"):
        click.echo(f"  {name:<8} {float(getattr(stages, f'{name}_us')):7.1f}")
    click.echo(
        f"words pass {float(stages.align_us):.1f} us later, when the wavelengths of a macro are aligned"
    )
    formula = optics.settling_us(trace.hop_ghz, tau_us=bench.tau_us, tolerance_ghz=bench.tolerance_ghz)
    click.echo(f"one step of power settles in tau ln(hop / tolerance) = {float(formula):.2f} us")


@main.command()
@click.option("--grid", type=click.Choice(tuple(GRIDS)), default="cw-wdm-9nm-8x200", help="CW-WDM MSA grid.")
@click.option("--wavelengths", type=int, help="Rings of the port; one for each line unless given.")
@click.option("--quality", type=float, default=1e4, help="Quality factor of the rings.")
@click.option(
    "--design", type=click.Choice(tuple(RADIUS_UM)), help="Rings for a span; by the grid if not given."
)
@click.option("--radius-um", type=float, help="Radius of the rings, in place of a design by name.")
@click.option(
    "--offset-ghz", type=float, default=0.0, help="Standard deviation of the manufacturing offsets."
)
@click.option("--seed", type=int, default=0, help="Seed of those offsets.")
@click.option("--fibre-m", type=float, default=10.0, help="Fibre from the far end.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw it too: .png, .svg or .pdf.")
@_refusals_in_one_line
def spectrum(
    grid: str,
    wavelengths: int | None,
    quality: float,
    design: str | None,
    radius_um: float | None,
    offset_ghz: float,
    seed: int,
    fibre_m: float,
    plot: str | None,
) -> None:
    """Print the comb and the ring responses of one port, tuned and settled.

    For each receiving ring: its line, how far off it rests, the heat that holds it, what reaches its
    photodiode, what the neighbouring lines cost, and the margin of the power budget.

    \b
    Examples:
      python -m hwsim spectrum
      python -m hwsim spectrum --grid cw-wdm-9nm-16x100 --quality 6000 --plot comb.png
      python -m hwsim spectrum --grid cw-wdm-36nm-8x800
      python -m hwsim spectrum --grid cw-wdm-18nm-16x200 --radius-um 2.5
    """
    if design is not None and radius_um is not None:
        raise HwsimError(f"design and radius_um exclude each other, got {design!r} and {radius_um:g}")
    lines = GRIDS[grid]
    rings = ring_design(lines, design) if radius_um is None else ring_of_radius(radius_um, grid=lines)
    port = TeraPhy(
        macros=1,
        wavelengths=lines.lines if wavelengths is None else wavelengths,
        grid=lines,
        fibre_m=fibre_m,
        seed=seed,
        design=attrs.evolve(
            rings,
            quality=quality,
            offset_sigma_ghz=offset_ghz,
            # A heater for one free spectral range and the bias, whatever the radius.
            heater_limit_mw=1.1 * (rings.fsr_ghz + rings.bias_ghz) / rings.efficiency_ghz_per_mw,
        ),
    )
    port.tune()
    port.advance(200.0)
    if plot:
        from hwsim.plots import plot_spectrum

        plot_spectrum(port, plot)
    _print_spectrum(port)
    if plot:
        click.echo(f"\ndrawn in {plot}")


def _print_spectrum(port: TeraPhy) -> None:
    bank = port.bank
    click.echo(
        f"{port.grid.name}: {port.grid.lines} lines of {port.grid.spacing_ghz:g} GHz, rings with FSR "
        f"{bank.fsr_ghz[0]:.0f} GHz and FWHM {bank.fwhm_ghz[0]:.1f} GHz; neighbour at "
        f"{float(optics.adjacent_crosstalk_db(port.grid.spacing_ghz, bank.fwhm_ghz[0])):.1f} dB\n"
    )
    click.echo("slot  line GHz  detuning GHz  heater mW  drop dB  penalty dB  margin dB  state")
    drop = bank.drop.reshape(port.shape)[RX, 0]
    detuning = bank.detuning_ghz.reshape(port.shape)[RX, 0]
    power = bank.power_mw.reshape(port.shape)[RX, 0]
    for slot in range(port.wavelengths):
        click.echo(
            f"{slot:4d}  {port.grid.line_ghz[slot]:8.0f}  {detuning[slot]:+12.3f}  {power[slot]:9.2f}  "
            f"{10.0 * np.log10(drop[slot]):7.2f}  {port.crosstalk_penalty_db[0, slot]:10.3f}  "
            f"{port.margin_db[0, slot]:9.2f}  {State(port.state[RX, 0, slot]).name}"
        )
    waits = [f"slot {slot}: {why}" for slot, why in enumerate(port.waits[RX, 0]) if why]
    click.echo(
        f"\n{port.capacity_gbps:g} Gbps in words, {port.latency_ns:.0f} ns; {'; '.join(waits) or 'all up'}"
    )
