"""Banks of micro-rings, stepped in time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim.design import ControlLaw, RingDesign
from hwsim.errors import HwsimError, check, choice, whole
from hwsim.grid import WdmGrid, grid_named
from hwsim.kernel import FAULTS, BankArrays, CKernel
from hwsim.msa_rings import ring_design
from hwsim.optics import fwhm_ghz
from hwsim.reference import NumpyKernel

__all__ = ["RingBank"]

_KERNELS: dict[str, type[CKernel] | type[NumpyKernel]] = {"c": CKernel, "numpy": NumpyKernel}

FloatArray = NDArray[np.float64]


class RingBank:
    """Micro-rings with heaters, in ports whose rings warm each other.

    Ring `j` of a port is made for line `j % grid.lines`: cold, at the reference ambient, its resonance lies
    `design.bias_ghz` (and its manufacturing offset) above that line. Time starts at 0 with all heaters off.

    Parameters
    ----------
    rings : int
        Number of rings.
    rings_per_port : int, optional
        Rings side by side on one port; all of them by default. Must divide `rings`.
    grid : str or WdmGrid
        The lines, by the name of a CW-WDM MSA grid or spelled out.
    design : RingDesign or {'9nm', '18nm', '36nm'}, optional
        What the rings are; unless given, the largest of the named designs whose range holds the grid.
    control : ControlLaw, optional
        How the rings are held.
    seed : int
        Seed of the manufacturing offsets. Equal seeds give equal bytes.
    step_us : float
        Time between two judgements of the locks. [us] Between them the solution is exact.
    kernel : {'c', 'numpy'}
        The C bank, or the plain numpy reference (slow).

    Raises
    ------
    HwsimError
        When a parameter is not finite, out of range or of the wrong length, or when the free spectral range
        is narrower than the grid, so that a ring would answer to two lines.
    """

    def __init__(
        self,
        *,
        rings: int,
        rings_per_port: int | None = None,
        grid: str | WdmGrid = "cw-wdm-9nm-8x200",
        design: RingDesign | str | None = None,
        control: ControlLaw | None = None,
        seed: int = 0,
        step_us: float = 1.0,
        kernel: str = "c",
    ) -> None:
        self.rings = whole("rings", rings, at_least=1)
        self.rings_per_port = whole("rings_per_port", rings_per_port or rings, at_least=1)
        if self.rings % self.rings_per_port:
            raise HwsimError(
                f"rings_per_port must divide the number of rings, {self.rings}, got {self.rings_per_port}"
            )
        self.grid = grid_named(grid)
        self.design = design if isinstance(design, RingDesign) else ring_design(self.grid, design)
        self.control = control if control is not None else ControlLaw()
        self.step_us = float(check("step_us", step_us, above=0.0))
        arrays = self._arrays(whole("seed", seed, at_least=0))
        self._kernel = _KERNELS[choice("kernel", kernel, tuple(_KERNELS))](arrays)
        self._arrays_in = arrays

    def _arrays(self, seed: int) -> BankArrays:
        design, control, rings = self.design, self.control, self.rings
        fsr = design.each("fsr_ghz", rings)
        if fsr.min() < self.grid.span_ghz:
            raise HwsimError(
                f"RingDesign.fsr_ghz must be at least {self.grid.span_ghz:g}, the span of {self.grid.name}, "
                f"got {fsr.min():g}: a ring would answer to two lines; leave it out for rings that fit"
            )
        fwhm = np.ascontiguousarray(
            fwhm_ghz(quality=design.each("quality", rings), wavelength_nm=self.grid.center_nm)
        )
        if (fwhm >= fsr).any():
            raise HwsimError(
                f"RingDesign.quality must make resonances narrower than fsr_ghz, {fsr[fwhm >= fsr][0]:g}, "
                f"got a width of {fwhm[fwhm >= fsr][0]:g} GHz"
            )
        offset = np.random.default_rng(seed).standard_normal(rings) * design.each("offset_sigma_ghz", rings)
        slot = np.arange(rings) % self.rings_per_port
        own_line = self.grid.line_ghz[slot % self.grid.lines]
        return BankArrays(
            rings=rings,
            rings_per_port=self.rings_per_port,
            step_us=self.step_us,
            lock_ghz=control.tolerance_ghz,
            unlock_ghz=control.unlock_ghz,
            overdrive_gain=control.overdrive_gain,
            loop_ticks=control.loop_ticks(self.step_us),
            loop_ratio=float(np.exp(-control.loop_us / control.loop_response_us)),
            dither_ghz=control.dither_ghz,
            capture=control.capture,
            compensate=control.compensate_crosstalk,
            crosstalk=np.array(design.crosstalk[: self.rings_per_port - 1]),
            tau_us=design.each("tau_us", rings),
            gain_ghz_per_mw=design.each("efficiency_ghz_per_mw", rings),
            limit_mw=design.each("heater_limit_mw", rings),
            fsr_ghz=fsr,
            fwhm_ghz=fwhm,
            peak_drop=design.each("peak_drop", rings),
            drift_ghz_per_k=design.each("drift_ghz_per_k", rings),
            cold_ghz=own_line + design.each("bias_ghz", rings) + offset,
            calibration=control.calibration(rings),
            law=control.codes(rings),
        )

    def _indices(self, rings: "ArrayLike | None") -> NDArray[np.int64]:
        if rings is None:
            return np.arange(self.rings)
        index = np.atleast_1d(np.asarray(rings))
        if index.dtype == bool and index.shape == (self.rings,):
            index = np.flatnonzero(index)
        if index.size == 0:
            return np.empty(0, dtype=np.int64)
        if index.dtype.kind not in "iu" or index.ndim != 1:
            raise HwsimError(
                f"rings must be whole numbers in one row or a mask of {self.rings}, got {rings!r}"
            )
        wrong = index[(index < 0) | (index >= self.rings)]
        if wrong.size:
            raise HwsimError(f"rings must be at least 0 and at most {self.rings - 1}, got {wrong[0]}")
        return index.astype(np.int64)

    def tune(self, channels: ArrayLike, *, rings: ArrayLike | None = None) -> None:
        """Give rings new lines, now.

        Each takes the order of its resonance nearest to where it stands among those its heater can hold. The
        other rings of its port keep their lines; only their powers change, to make up for crosstalk.

        Parameters
        ----------
        channels : int or [len(rings)]
            Lines of the grid.
        rings : [n] of int, or mask [rings], optional
            Which rings; all of them by default.
        """
        lines = np.atleast_1d(np.asarray(channels))
        if lines.size and lines.dtype.kind not in "iu":
            raise HwsimError(f"channels must be whole numbers, got {channels!r}")
        wrong = lines[(lines < 0) | (lines >= self.grid.lines)]
        if wrong.size:
            raise HwsimError(
                f"channels must be at least 0 and at most {self.grid.lines - 1} on {self.grid.name}, "
                f"got {wrong[0]}"
            )
        self.tune_ghz(self.grid.line_ghz[lines.astype(np.int64)], rings=rings)

    def tune_ghz(self, line_ghz: ArrayLike, *, rings: ArrayLike | None = None) -> None:
        """Give rings new lines, as `tune` does, by frequency against the grid's centre. [GHz]"""
        index = self._indices(rings)
        lines = check("line_ghz", line_ghz)
        if lines.ndim and lines.size not in (1, index.size):
            raise HwsimError(f"lines must be one or as many as the rings, {index.size}, got {lines.size}")
        self._kernel.tune(index, np.ascontiguousarray(np.broadcast_to(lines, index.size)))

    def advance(self, us: float) -> None:
        """Let `us` microseconds pass."""
        self._kernel.advance(float(check("us", us, at_least=0.0)))

    def set_ambient(self, offset_k: float, *, ramp_k_per_ms: float = 0.0) -> None:
        """Put the ambient `offset_k` above its reference and let it rise by `ramp_k_per_ms` from now on."""
        self._kernel.set_ambient(
            float(check("offset_k", offset_k)), float(check("ramp_k_per_ms", ramp_k_per_ms)) * 1e-3
        )

    def set_heater(self, state: str, *, rings: ArrayLike) -> None:
        """Break or mend heaters, now: 'healthy', 'dead heater' (no power), 'stuck' (power stays as it is)."""
        code = FAULTS.index(choice("state", state, FAULTS))
        for ring in self._indices(rings):
            self._kernel.set_fault(int(ring), code)

    def set_light(self, lit: bool | Sequence[bool] | NDArray[np.bool_], *, rings: ArrayLike) -> None:
        """Say whether light of its line reaches each ring; without it a lock loop holds still."""
        index = self._indices(rings)
        for ring, on in zip(index, np.broadcast_to(np.asarray(lit, dtype=bool), index.size), strict=True):
            self._kernel.set_lit(int(ring), bool(on))

    @property
    def time_us(self) -> float:
        """Time since the bank was made. [us]"""
        return self._kernel.time_us

    @property
    def ambient_k(self) -> float:
        """Ambient above its reference. [K]"""
        return self._kernel.ambient_k

    @property
    def shift_ghz(self) -> FloatArray:
        """How far heat has moved each resonance down. [rings] [GHz]"""
        return self._kernel.read("shift_ghz")

    @property
    def temperature_k(self) -> FloatArray:
        """Temperature of each ring above the reference ambient. [rings] [K] Needs a drift above 0."""
        drift = check("RingDesign.drift_ghz_per_k", self._arrays_in.drift_ghz_per_k, above=0.0)
        return self.shift_ghz / drift + self.ambient_k

    @property
    def power_mw(self) -> FloatArray:
        """Power of each heater. [rings] [mW]"""
        return self._kernel.read("power_mw")

    @property
    def energy_nj(self) -> FloatArray:
        """Energy each heater has taken. [rings] [nJ]"""
        return self._kernel.read("energy_nj")

    @property
    def resonance_ghz(self) -> FloatArray:
        """One resonance of each ring against the grid's centre; others lie whole FSRs away. [rings] [GHz]"""
        return self._kernel.read("resonance_ghz")

    @property
    def fsr_ghz(self) -> FloatArray:
        """Free spectral range. [rings] [GHz]"""
        return self._arrays_in.fsr_ghz.copy()

    @property
    def fwhm_ghz(self) -> FloatArray:
        """Width of a resonance. [rings] [GHz]"""
        return self._arrays_in.fwhm_ghz.copy()

    @property
    def detuning_ghz(self) -> FloatArray:
        """Nearest resonance less line: positive when a ring wants heat. [rings] [GHz]"""
        return self._kernel.read("detuning_ghz")

    @property
    def drop(self) -> FloatArray:
        """Fraction of its line's power at each drop port. [rings]"""
        return self._kernel.read("drop")

    @property
    def through(self) -> FloatArray:
        """Fraction of its line's power that passes each ring. [rings]"""
        return self._kernel.read("through")

    @property
    def locked(self) -> NDArray[np.bool_]:
        """Whether each ring is within tolerance, with hysteresis, as judged at the last step. [rings]"""
        return self._kernel.read("locked") > 0.5

    @property
    def locked_since_us(self) -> FloatArray:
        """When each locked ring locked; for the others the next instant at which it may. [rings] [us]"""
        return self._kernel.read("since_us")

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether the power that would hold each ring on its line lies within its heater's range. [rings]"""
        return self._kernel.read("reachable") > 0.5
