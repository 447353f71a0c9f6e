"""One ring on a test bench: what the time of a retune depends on, and where it goes."""

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from hwsim.bank import RingBank
from hwsim.design import LAWS, ControlLaw, RingDesign
from hwsim.errors import HwsimError, choice, within
from hwsim.grid import WdmGrid, grid_named
from hwsim.lanes import LinkTiming
from hwsim.msa_rings import ring_design

__all__ = ["RetuneBench", "RetuneStages", "RetuneTrace", "bench_of_grid", "three_digits"]

FloatArray = NDArray[np.float64]
_MOST_STEPS, _FEWEST_STEPS = 200_000, 20


def three_digits(value: float, rounded: Callable[[float], int]) -> float:
    """Return a positive number to three digits, up or down, so that what a message allows is allowed.

    >>> three_digits(0.012345, math.floor), three_digits(0.012345, math.ceil)
    (0.0123, 0.0124)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{rounded(value / unit) * unit:.3g}")


@attrs.frozen(kw_only=True)
class RetuneBench:
    """One ring on a bench: what the time of a retune depends on besides the hop."""

    #: Thermal time constant. [us]
    tau_us: float = attrs.field(default=4.0, validator=within(above=0.0))
    #: The ring locks within this of its line. [GHz]
    tolerance_ghz: float = attrs.field(default=2.5, validator=within(above=0.0))
    #: Control law: 'open-loop', 'over-drive' or 'pi-lock'.
    control: str = attrs.field(default="open-loop")
    #: Times that are not physics of the ring.
    timing: LinkTiming = attrs.field(factory=LinkTiming, validator=attrs.validators.instance_of(LinkTiming))
    #: Least shift at which a ring works; a hop up starts there and a hop down ends there. [GHz]
    bias_ghz: float = attrs.field(default=200.0, validator=within(at_least=0.0))
    #: Shift at the heater's limit, which over-drive runs into. [GHz] As `RingDesign`: 30 mW of 90 GHz/mW.
    heater_range_ghz: float = attrs.field(default=2700.0, validator=within(above=0.0))
    #: Error of the heater efficiency that the controller believes in, as a fraction.
    calibration_error: float = attrs.field(default=0.0, validator=within(above=-1.0, at_most=1e6))
    #: Step of the emulation, and so the resolution of the answer. [us]
    step_us: float = attrs.field(default=0.1, validator=within(above=0.0))

    @control.validator
    def _known_law(self, _: Any, value: str) -> None:
        choice("RetuneBench.control", value, LAWS)

    def ring_bank(self, rings: int) -> RingBank:
        """Return `rings` ports of one ring each, cold on its line, with all other orders out of reach."""
        efficiency = 90.0
        loop_us = max(1, round(1.0 / self.step_us)) * self.step_us
        return RingBank(
            rings=rings,
            rings_per_port=1,
            grid=WdmGrid(name="bench", lines=1, spacing_ghz=1.0),
            design=RingDesign(
                tau_us=self.tau_us,
                efficiency_ghz_per_mw=efficiency,
                heater_limit_mw=self.heater_range_ghz / efficiency,
                fsr_ghz=1e3 * self.heater_range_ghz,
                bias_ghz=0.0,
                crosstalk=(),
            ),
            control=ControlLaw(
                law=self.control,
                tolerance_ghz=self.tolerance_ghz,
                loop_us=loop_us,
                loop_response_us=max(4.0, loop_us),
                calibration_error=self.calibration_error,
            ),
            step_us=self.step_us,
        )

    def check_hops(self, hops: FloatArray) -> None:
        """Refuse hops that the heater's range does not hold. [hops] [GHz]"""
        room = self.heater_range_ghz - self.bias_ghz
        if np.abs(hops).max(initial=0.0) > room:
            raise HwsimError(
                f"hop_ghz must be at most {room:g} either way, the heater's {self.heater_range_ghz:g} GHz "
                f"less the bias of {self.bias_ghz:g} GHz, got {hops[np.argmax(np.abs(hops))]:g}"
            )

    def __attrs_post_init__(self) -> None:
        least_us = three_digits(self.patience_us / _MOST_STEPS, math.ceil)
        most_us = three_digits(self.patience_us / _FEWEST_STEPS, math.floor)
        if not least_us <= self.step_us <= most_us:
            raise HwsimError(
                f"RetuneBench.step_us must be from {least_us:.3g} to {most_us:.3g} for retunes as slow as "
                f"these, got {self.step_us:g}"
            )

    @property
    def patience_us(self) -> float:
        """Beyond this nothing comes up any more: every exponential has fallen by e^-60. [us]"""
        timing = self.timing
        fixed_us = timing.control_us + timing.lock_us + timing.cdr_us
        return fixed_us + 60.0 * (self.tau_us + 4.0) + 10.0


def bench_of_grid(grid: str | WdmGrid, *, design: str | None = None) -> dict[str, float]:
    """Return the fields of `RetuneBench` that the rings for a grid set, see `hwsim.ring_design`.

    30 mW of 90 GHz/mW for 9 nm, of 300 GHz/mW for 36 nm; the bias is one spacing, but at least 200 GHz:

    >>> bench_of_grid("cw-wdm-9nm-8x200")
    {'bias_ghz': 200.0, 'heater_range_ghz': 2700.0}
    >>> bench_of_grid("cw-wdm-36nm-8x800")
    {'bias_ghz': 800.0, 'heater_range_ghz': 9000.0}
    """
    rings = ring_design(grid_named(grid), design)
    range_ghz = np.multiply(rings.heater_limit_mw, rings.efficiency_ghz_per_mw)
    return {"bias_ghz": float(np.asarray(rings.bias_ghz)), "heater_range_ghz": float(range_ghz)}


@attrs.frozen(kw_only=True, eq=False)
class RetuneStages:
    """Where the time of a retune goes; every field has the shape of the hops. [us]"""

    #: From the decision to new heater powers.
    control_us: FloatArray
    #: From there until the ring is within tolerance for good.
    thermal_us: FloatArray
    #: Staying within it.
    lock_us: FloatArray
    #: Clock and data recovery.
    cdr_us: FloatArray
    #: Word alignment, once all channels that were retuned together are up.
    align_us: FloatArray

    @property
    def total_us(self) -> FloatArray:
        """From the decision until the channel is up: bits pass. [us]"""
        return self.control_us + self.thermal_us + self.lock_us + self.cdr_us

    @property
    def words_us(self) -> FloatArray:
        """From the decision until the channel carries words; of several, the slowest decides. [us]"""
        return self.total_us + self.align_us


@attrs.frozen(kw_only=True, eq=False)
class RetuneTrace:
    """One retune and a little of what follows, sampled at every step; arrays are [samples]."""

    hop_ghz: float
    bench: RetuneBench
    stages: RetuneStages
    time_us: FloatArray
    #: Above the ambient.
    temperature_k: FloatArray
    detuning_ghz: FloatArray
    #: Fraction of the new line's power at the drop port.
    drop: FloatArray
    power_mw: FloatArray
    state: NDArray[np.int8]
