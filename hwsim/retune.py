"""How long a ring that changes its line keeps its channel dark.

Nothing here contains the answer: a ring bank is stepped and its state machine watched until every channel
is up.
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim import optics
from hwsim.bank import RingBank
from hwsim.design import LAWS, ControlLaw, RingDesign
from hwsim.errors import HwsimError, check, choice, within
from hwsim.grid import WdmGrid, grid_named
from hwsim.lanes import Lanes, LinkTiming, State

__all__ = [
    "RetuneBench",
    "RetuneStages",
    "RetuneTrace",
    "hop_between_ghz",
    "retune_stages",
    "retune_time_us",
    "retune_trace",
]

FloatArray = NDArray[np.float64]
_CACHE_LIMIT = 100_000
_MOST_STEPS, _FEWEST_STEPS = 200_000, 20
#: Stages of a retune, each of which ends with a whole step.
_STAGES = 4


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
        """One ring on each port, cold on its line, whose other orders are out of reach."""
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
        room = self.heater_range_ghz - self.bias_ghz
        if np.abs(hops).max(initial=0.0) > room:
            raise HwsimError(
                f"hop_ghz must be at most {room:g} either way, the heater's {self.heater_range_ghz:g} GHz "
                f"less the bias of {self.bias_ghz:g} GHz, got {hops[np.argmax(np.abs(hops))]:g}"
            )

    def __attrs_post_init__(self) -> None:
        least_us = _three_digits(self.patience_us / _MOST_STEPS, math.ceil)
        most_us = _three_digits(self.patience_us / _FEWEST_STEPS, math.floor)
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

    @property
    def total_us(self) -> FloatArray:
        """From the decision until the channel is up. [us]"""
        return self.control_us + self.thermal_us + self.lock_us + self.cdr_us


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


def _emulate(
    hops: FloatArray, bench: RetuneBench, watch: Callable[[float, RingBank, Lanes], None] | None = None
) -> FloatArray:
    """Retune one ring by each of `hops` at once; the four stages of each. [4, hops] [us]"""
    rings = len(hops)
    bank = bench.ring_bank(rings)
    start = np.where(hops > 0, bench.bias_ghz, bench.bias_ghz - hops)
    bank.tune_ghz(-start)
    bank.advance(np.ceil(60.0 * (bench.tau_us + 4.0) / bench.step_us) * bench.step_us)

    every = np.ones(rings, dtype=bool)
    lanes = Lanes(recovers=every, timing=bench.timing, step_us=bench.step_us)
    lanes.command(every)
    control_ticks = bench.timing.ticks("control", bench.step_us)
    entered = np.zeros((State.UP + 1, rings))
    before = lanes.state.copy()
    for tick in range(int(np.ceil(bench.patience_us / bench.step_us)) + _STAGES):
        if tick == control_ticks:
            bank.tune_ghz(-(start + hops))
            lanes.written(every)
        if watch is not None:
            watch(tick * bench.step_us, bank, lanes)
        bank.advance(bench.step_us)
        lanes.step(locked=bank.locked, clear=every)
        for state in (State.LOCKING, State.CDR, State.UP):
            arrived = (before < state) & (lanes.state >= state)
            entered[state, arrived] = (tick + 1) * bench.step_us
        before = lanes.state.copy()
        if (before == State.UP).all():
            break
    else:
        stuck = int(np.argmax(before != State.UP))
        raise HwsimError(
            f"control must bring a hop of {hops[stuck]:g} GHz within tolerance_ghz, {bench.tolerance_ghz:g}, "
            f"got {bench.control!r}, which leaves {bank.detuning_ghz[stuck]:.3g} GHz with calibration_error "
            f"{bench.calibration_error:g}; {_remedy(float(hops[stuck]), bench, bank)}"
        )
    if watch is not None:
        # A little of what follows shows that the channel stays up.
        for later in range(tick + 1, tick + 2 + tick // 12):
            watch(later * bench.step_us, bank, lanes)
            bank.advance(bench.step_us)
            lanes.step(locked=bank.locked, clear=every)
    control = np.full(rings, control_ticks * bench.step_us)
    return np.diff(np.vstack([np.zeros(rings), control, entered[State.LOCKING :]]), axis=0)


def _remedy(hop_ghz: float, bench: RetuneBench, bank: RingBank) -> str:
    """What brings a hop within tolerance that a calibration error keeps out of it."""
    locked = attrs.evolve(bench, control="pi-lock")
    if bench != locked:
        try:
            _emulate(np.array([hop_ghz]), locked)
        except HwsimError:
            pass
        else:
            return "'pi-lock' removes such an error"
    # An error e leaves e / (1 + e) of the whole shift, and the lock loop sees the ring from this far.
    seen_ghz = bank.fwhm_ghz[0] / 2.0 * np.sqrt(1.0 / bank.control.capture - 1.0)
    reach_ghz = max(bench.tolerance_ghz, float(seen_ghz))
    shift_ghz = bench.bias_ghz + max(hop_ghz, 0.0)
    least = -_three_digits(reach_ghz / (shift_ghz + reach_ghz), math.floor)
    if shift_ghz <= reach_ghz:
        return f"'pi-lock' removes errors of at least {least:.3g}"
    most = _three_digits(reach_ghz / (shift_ghz - reach_ghz), math.floor)
    return f"'pi-lock' removes errors from {least:.3g} to {most:.3g}"


def _three_digits(value: float, rounded: Callable[[float], int]) -> float:
    """A positive number to three digits, up or down, so that what a message allows is allowed."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{rounded(value / unit) * unit:.3g}")


_cache: dict[tuple[float, RetuneBench], tuple[float, ...]] = {}


def _stages_of(hops: FloatArray, bench: RetuneBench) -> FloatArray:
    """The four stages of each hop, each hop emulated once in the life of the program. [4, hops] [us]"""
    bench.check_hops(hops)
    distinct, which = np.unique(np.round(hops, 6), return_inverse=True)
    moving = [hop for hop in distinct.tolist() if hop != 0.0]
    if len(_cache) + len(moving) > _CACHE_LIMIT:
        _cache.clear()
    new = [hop for hop in moving if (hop, bench) not in _cache]
    if new:
        for hop, stages in zip(new, _emulate(np.array(new), bench).T.tolist(), strict=True):
            _cache[hop, bench] = tuple(stages)
    rest = (0.0, 0.0, 0.0, 0.0)
    known = np.array([_cache[hop, bench] if hop else rest for hop in distinct.tolist()]).reshape(-1, 4)
    return known[which].T


def retune_stages(hop_ghz: ArrayLike, **bench: Any) -> RetuneStages:
    """Emulate rings that hop by `hop_ghz` until their channels are up, and say where the time went.

    Parameters
    ----------
    hop_ghz : float or array
        How much farther the heater must shift the resonance: up heats, down cools. [GHz] A ring that hops by
        0 keeps its line and its channel: 0 us.
    **bench
        Fields of `RetuneBench`: ``tau_us=4.0, tolerance_ghz=2.5, control="open-loop"``, ...

    Returns
    -------
    RetuneStages
        Arrays of the shape of `hop_ghz`.

    Raises
    ------
    HwsimError
        When a parameter is out of range, a hop is beyond the heater's range, or the law cannot bring the ring
        within tolerance.
    """
    hops = check("hop_ghz", hop_ghz)
    stages = _stages_of(hops.ravel(), RetuneBench(**bench)).reshape(4, *hops.shape)
    return RetuneStages(control_us=stages[0], thermal_us=stages[1], lock_us=stages[2], cdr_us=stages[3])


def retune_time_us(hop_ghz: ArrayLike, **bench: Any) -> float | FloatArray:
    """Time from the decision to retune until the channel is up again. [us]

    Parameters and errors as for `retune_stages`. Equal hops are emulated once in the life of the program.

    Returns
    -------
    float or array
        A float for one hop, else an array of the shape of `hop_ghz`.
    """
    total = retune_stages(hop_ghz, **bench).total_us
    return float(total) if np.ndim(hop_ghz) == 0 else total


def hop_between_ghz(
    before: ArrayLike, after: ArrayLike, *, grid: str | WdmGrid = "cw-wdm-9nm-8x200"
) -> FloatArray:
    """Hop of rings that go from lines `before` to lines `after` of a grid. [GHz]

    A higher line has a higher frequency and needs less heat, so that going up the grid is a hop down.
    """
    lines = grid_named(grid).line_ghz
    ends = []
    for name, value in (("before", before), ("after", after)):
        index = np.asarray(value)
        if index.dtype.kind not in "iu" or (index.size and (index.min() < 0 or index.max() >= len(lines))):
            raise HwsimError(
                f"{name} must be whole numbers of at least 0 and at most {len(lines) - 1}, got {value!r}"
            )
        ends.append(lines[index])
    return ends[0] - ends[1]


def retune_trace(hop_ghz: float, **bench_fields: Any) -> RetuneTrace:
    """One retune with all that happens at every step. Parameters and errors as for `retune_stages`."""
    hop = float(check("hop_ghz", hop_ghz))
    if hop == 0.0:
        raise HwsimError("hop_ghz must not be 0 in a trace: nothing would happen")
    bench = RetuneBench(**bench_fields)
    bench.check_hops(np.array([hop]))
    target_ghz = (bench.bias_ghz if hop > 0 else bench.bias_ghz - hop) + hop
    samples: list[tuple[float, ...]] = []

    def watch(time_us: float, bank: RingBank, lanes: Lanes) -> None:
        # Against the new line from the start: before the heaters hear of it the bank still knows the old one.
        detuning = target_ghz - bank.shift_ghz[0]
        drop = float(optics.drop(detuning, bank.fwhm_ghz[0], bank.design.peak_drop))
        samples.append(
            (time_us, bank.temperature_k[0], detuning, drop, bank.power_mw[0], float(lanes.state[0]))
        )

    control_us, thermal_us, lock_us, cdr_us = _emulate(np.array([hop]), bench, watch)[:, 0]
    time, temperature, detuning, drop, power, state = np.array(samples).T
    return RetuneTrace(
        hop_ghz=hop,
        bench=bench,
        stages=RetuneStages(control_us=control_us, thermal_us=thermal_us, lock_us=lock_us, cdr_us=cdr_us),
        time_us=time,
        temperature_k=temperature,
        detuning_ghz=detuning,
        drop=drop,
        power_mw=power,
        state=state.astype(np.int8),
    )
