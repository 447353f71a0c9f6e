"""Figures. The only module that imports matplotlib, and only when it draws."""

from pathlib import Path
from typing import Any

import numpy as np

from hwsim import optics
from hwsim.bench import RetuneTrace
from hwsim.errors import HwsimError
from hwsim.lanes import State
from hwsim.phy import TeraPhy

__all__ = ["plot_spectrum", "plot_trace"]

#: Colours of the stages of a retune, dark to light as the channel comes to life.
STAGE_COLOURS = {
    "control": "#9e9e9e",
    "thermal": "#d95f0e",
    "lock": "#fec44f",
    "CDR": "#a6bddb",
    "UP": "#74c476",
}
INK = "#253494"


def _figure(width_in: float, height_in: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise HwsimError(
            "a plot needs matplotlib, which is not installed: pip install 'sipml[plot]'"
        ) from None
    return Figure(figsize=(width_in, height_in), layout="constrained")


def _save(figure: Any, path: str | Path) -> None:
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise HwsimError(f"plot must end in .png, .svg or .pdf, got {str(path)!r}")
    if not target.parent.is_dir():
        raise HwsimError(f"plot must be in an existing folder, got {str(path)!r}")
    from matplotlib import rc_context

    # Without dates and with fixed identifiers equal input gives equal bytes.
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(target.suffix.lower())
    with rc_context({"svg.hashsalt": "hwsim"}):
        figure.savefig(target, dpi=150, metadata=undated)


def plot_trace(trace: RetuneTrace, path: str | Path) -> None:
    """Draw one retune: temperature, detuning, drop power and state against time."""
    figure = _figure(8.0, 8.5)
    temperature, detuning, drop, state = figure.subplots(4, 1, sharex=True, height_ratios=[3, 3, 3, 2])
    tolerance_ghz = trace.bench.tolerance_ghz
    time, end_us = trace.time_us, float(trace.stages.total_us)
    temperature.plot(time, trace.temperature_k, color=INK, lw=2)
    temperature.set_ylabel("ring temperature\nabove ambient [K]")
    detuning.semilogy(time, np.maximum(np.abs(trace.detuning_ghz), 1e-9), color=INK, lw=2)
    detuning.axhline(tolerance_ghz, color="black", ls="--", lw=1)
    detuning.annotate(
        f"tolerance {tolerance_ghz:g} GHz", (0.01, tolerance_ghz), (0, 4), xycoords=("axes fraction", "data"),
        textcoords="offset points", fontsize=9,
    )  # fmt: skip
    detuning.set_ylim(bottom=tolerance_ghz / 10.0)
    detuning.set_ylabel("|detuning|\n[GHz]")
    drop.plot(time, trace.drop, color=INK, lw=2)
    drop.set_ylabel("drop port:\nfraction of the line")
    drop.set_ylim(-0.03, 1.03)
    state.step(time, trace.state, where="post", color=INK, lw=2)
    levels = [State.TUNING, State.LOCKING, State.CDR, State.UP]
    state.set_yticks(levels, [level.name for level in levels])
    state.set_ylim(State.TUNING - 0.5, State.UP + 0.5)
    state.set_ylabel("state")
    state.set_xlabel("time since the decision [us]")
    state.set_xlim(0.0, time[-1])

    _shade_stages(trace, (temperature, detuning, drop, state))
    for axes in (temperature, detuning, drop, state):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", lw=0.6)
    figure.suptitle(
        f"A ring hops by {trace.hop_ghz:+g} GHz, tau {trace.bench.tau_us:g} us, {trace.bench.control}: "
        f"up after {end_us:.1f} us"
    )
    _save(figure, path)


def _shade_stages(trace: RetuneTrace, panels: tuple[Any, ...]) -> None:
    stages = trace.stages
    lengths = [float(x) for x in (stages.control_us, stages.thermal_us, stages.lock_us, stages.cdr_us)]
    edges = [0.0, *np.cumsum(lengths), trace.time_us[-1]]
    patches = []
    for name, left, right in zip(STAGE_COLOURS, edges[:-1], edges[1:], strict=True):
        for axes in panels:
            patch = axes.axvspan(left, right, color=STAGE_COLOURS[name], alpha=0.28, lw=0)
        patches.append((patch, name if name == "UP" else f"{name} {right - left:.1f} us"))
    panels[0].legend(
        *zip(*patches, strict=True), ncols=len(patches), loc="lower center", bbox_to_anchor=(0.5, 1.0),
        frameon=False, fontsize=9,
    )  # fmt: skip


def plot_spectrum(port: TeraPhy, path: str | Path, *, macro: int = 0) -> None:
    """Draw the laser's comb and the drop responses of the receiving rings of one macro."""
    figure = _figure(9.0, 5.5)
    from matplotlib import colormaps

    axes = figure.subplots()
    lines = port.grid.line_ghz
    margin = 0.75 * port.grid.spacing_ghz
    frequency = np.linspace(lines[0] - margin, lines[-1] + margin, 4001)
    rings = np.ravel_multi_index(
        (np.ones(port.wavelengths, dtype=int), np.full(port.wavelengths, macro), np.arange(port.wavelengths)),
        port.shape,
    )
    resonance, fsr, fwhm = (
        values[rings] for values in (port.bank.resonance_ghz, port.bank.fsr_ghz, port.bank.fwhm_ghz)
    )
    peak = port.bank.design.each("peak_drop", port.bank.rings)[rings]
    for slot, colour in enumerate(colormaps["viridis"](np.linspace(0.0, 0.88, port.wavelengths))):
        detuning = optics.wrap(resonance[slot] - frequency, fsr[slot])
        response_db = 10.0 * np.log10(optics.drop(detuning, fwhm[slot], peak[slot]))
        axes.plot(frequency, response_db, color=colour, lw=1.6)
        at_peak = lines[0] + np.mod(resonance[slot] - lines[0] + margin, fsr[slot]) - margin
        axes.annotate(
            str(slot), (at_peak, 10.0 * np.log10(peak[slot])), (0, 6), textcoords="offset points",
            ha="center", color=colour, fontsize=9,
        )  # fmt: skip
    axes.vlines(lines, -45.0, 0.0, color="#cb181d", lw=1, ls=":", zorder=0)
    axes.set_ylim(-45.0, 5.0)
    axes.set_xlim(frequency[0], frequency[-1])
    axes.set_xlabel(f"optical frequency less that of {port.grid.center_nm:g} nm [GHz]")
    axes.set_ylabel("drop port of each ring [dB]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_title(
        f"{port.grid.name}: laser lines (dotted) and the rings of macro {macro}, FWHM {fwhm[0]:.1f} GHz",
        fontsize=11,
    )
    _save(figure, path)
