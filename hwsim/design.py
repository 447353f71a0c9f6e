"""What a ring is made of and how it is controlled."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim.errors import HwsimError, check, choice, each_within, within
from hwsim.optics import fsr_ghz

__all__ = ["LAWS", "ControlLaw", "RingDesign"]

#: Control laws, in the order of ``enum hwsim_law``.
LAWS = ("open-loop", "over-drive", "pi-lock")


def _crosstalk(value: Any) -> tuple[float, ...]:
    parts = check("RingDesign.crosstalk", value, at_least=0.0, below=0.5)
    if parts.ndim != 1:
        raise HwsimError(f"RingDesign.crosstalk must be one fraction for each distance, got {value!r}")
    if 2.0 * parts.sum() >= 1.0:
        raise HwsimError(
            f"RingDesign.crosstalk must add up to less than 1 over both sides, got {2 * parts.sum():g}"
        )
    return tuple(float(part) for part in parts)


@attrs.frozen(kw_only=True, eq=False)
class RingDesign:
    """Physical parameters of micro-rings; each may be one number or one for each ring."""

    #: Thermal time constant. [us] 4 us: Atabaki et al., Optics Express 18, 18312 (2010).
    tau_us: ArrayLike = attrs.field(default=4.0, validator=each_within(above=0.0))
    #: Shift of the resonance for each mW of heat. [GHz/mW] 25 mW for one free spectral range of 2270 GHz, the
    #: middle of the 20-30 mW that Padmaraju and Bergman, Nanophotonics 3, 269 (2014), call typical.
    efficiency_ghz_per_mw: ArrayLike = attrs.field(default=90.0, validator=each_within(above=0.0))
    #: Most power the heater takes. [mW] Same source, upper end.
    heater_limit_mw: ArrayLike = attrs.field(default=30.0, validator=each_within(above=0.0))
    #: Free spectral range. [GHz] Group index 4.2, radius 5 um.
    fsr_ghz: ArrayLike = attrs.field(factory=fsr_ghz, validator=each_within(above=0.0))
    #: Loaded quality factor; 1e4 gives 22.9 GHz at 1310 nm.
    quality: ArrayLike = attrs.field(default=1e4, validator=each_within(above=0.0))
    #: Drop-port fraction at resonance. Assumed: 0.46 dB.
    peak_drop: ArrayLike = attrs.field(default=0.9, validator=each_within(above=0.0, at_most=1.0))
    #: Fall of the resonance with temperature. [GHz/K] ~10: MIT MTL report (2012).
    drift_ghz_per_k: ArrayLike = attrs.field(default=10.0, validator=each_within(at_least=0.0))
    #: How far above its own line a ring is made, so that it is held by heat and can move both ways. [GHz]
    bias_ghz: ArrayLike = attrs.field(default=200.0, validator=each_within())
    #: Standard deviation of the manufacturing offset of the resonance. [GHz]
    offset_sigma_ghz: ArrayLike = attrs.field(default=0.0, validator=each_within(at_least=0.0))
    #: Heat that reaches a ring 1, 2, ... places away, as a fraction of its own. Several per cent at 10 um
    #: pitch, little beyond 15 um: DeRose et al. (2014).
    crosstalk: tuple[float, ...] = attrs.field(default=(0.03, 0.005), converter=_crosstalk)

    def each(self, name: str, rings: int) -> NDArray[np.float64]:
        """Return one parameter as an array of `rings` numbers; `HwsimError` when it has another length."""
        value = np.asarray(getattr(self, name), dtype=np.float64)
        if value.ndim > 1 or (value.ndim == 1 and value.size != rings):
            raise HwsimError(
                f"RingDesign.{name} must be one number or {rings}, one for each ring, got {value.shape}"
            )
        return np.ascontiguousarray(np.broadcast_to(value, rings))


def _law_codes(value: "str | Sequence[str]") -> "str | tuple[str, ...]":
    if isinstance(value, str):
        return choice("ControlLaw.law", value, LAWS)
    return tuple(choice("ControlLaw.law", name, LAWS) for name in value)


@attrs.frozen(kw_only=True, eq=False)
class ControlLaw:
    """How rings are brought to their lines and held there."""

    #: One law, or one for each ring.
    law: str | tuple[str, ...] = attrs.field(default="open-loop", converter=_law_codes)
    #: A ring locks when it is within this of its line. [GHz]
    tolerance_ghz: float = attrs.field(default=2.5, validator=within(above=0.0))
    #: A locked ring unlocks beyond this; twice the tolerance unless given. [GHz]
    unlock_ghz: float = attrs.field()
    #: Over-drive: commanded step of power over wanted step, before the heater's limits.
    overdrive_gain: float = attrs.field(default=4.0, validator=within(above=1.0))
    #: Lock loop: time between two samples. [us]
    loop_us: float = attrs.field(default=1.0, validator=within(above=0.0))
    #: Lock loop: time in which it reduces an error to 1/e. [us]
    loop_response_us: float = attrs.field(default=4.0, validator=within(above=0.0))
    #: Lock loop: displacement to either side at which the drop power is sampled. [GHz]
    dither_ghz: float = attrs.field(default=0.5, validator=within(above=0.0))
    #: Lock loop: fraction of the peak drop below which it sees nothing and holds still.
    capture: float = attrs.field(default=0.01, validator=within(above=0.0, below=1.0))
    #: Error of the heater efficiency that the controller believes in; one fraction, or one for each ring.
    calibration_error: ArrayLike = attrs.field(default=0.0, validator=each_within(above=-1.0))
    #: Whether commanded powers allow for the heat of the neighbours.
    compensate_crosstalk: bool = True

    @unlock_ghz.default
    def _twice(self) -> float:
        return 2.0 * self.tolerance_ghz

    @unlock_ghz.validator
    def _wider(self, _: Any, value: float) -> None:
        check("ControlLaw.unlock_ghz", value, above=float(self.tolerance_ghz))

    def codes(self, rings: int) -> NDArray[np.uint8]:
        """Return the law of each ring as ``enum hwsim_law``. [rings]"""
        names = [self.law] * rings if isinstance(self.law, str) else list(self.law)
        if len(names) != rings:
            raise HwsimError(
                f"ControlLaw.law must be one law or {rings}, one for each ring, got {len(names)}"
            )
        return np.array([LAWS.index(name) for name in names], dtype=np.uint8)

    def calibration(self, rings: int) -> NDArray[np.float64]:
        """Return believed over true heater efficiency of each ring. [rings]"""
        error = np.asarray(self.calibration_error, dtype=np.float64)
        if error.ndim > 1 or (error.ndim == 1 and error.size != rings):
            raise HwsimError(
                f"ControlLaw.calibration_error must be one number or {rings}, one for each ring, "
                f"got {error.shape}"
            )
        return np.ascontiguousarray(np.broadcast_to(1.0 + error, rings))

    def loop_ticks(self, step_us: float) -> int:
        """Return the number of steps between two samples of the lock loop."""
        ticks = self.loop_us / step_us
        if round(ticks) < 1 or abs(ticks - round(ticks)) > 1e-6:
            raise HwsimError(
                f"ControlLaw.loop_us must be a whole number of steps of {step_us:g} us, got {self.loop_us:g}"
            )
        return round(ticks)
