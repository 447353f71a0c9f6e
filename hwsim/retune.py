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
from hwsim.bench import RetuneBench, RetuneStages, RetuneTrace, three_digits
from hwsim.errors import HwsimError, check
from hwsim.grid import WdmGrid, grid_named
from hwsim.lanes import Lanes, State

__all__ = ["hop_between_ghz", "retune_stages", "retune_time_us", "retune_trace"]

FloatArray = NDArray[np.float64]
_CACHE_LIMIT = 100_000
#: Stages of a retune, each of which ends with a whole step.
_STAGES = 4


def _emulate(
    hops: FloatArray, bench: RetuneBench, watch: Callable[[float, RingBank, Lanes], None] | None = None
) -> FloatArray:
    """Retune one ring by each of `hops` at once and return the four stages of each. [4, hops] [us]

    `watch(time_us, bank, lanes)` is called at every step, and a little beyond the end.
    """
    rings = len(hops)
    bank = bench.ring_bank(rings)
    start = np.where(hops > 0, bench.bias_ghz, bench.bias_ghz - hops)
    bank.tune_ghz(-start)
    bank.advance(np.ceil(60.0 * (bench.tau_us + 4.0) / bench.step_us) * bench.step_us)

    every = np.ones(rings, dtype=bool)
    lanes = Lanes(recovers=every, timing=bench.timing, step_us=bench.step_us)
    lanes.command(every)
    control_ticks = bench.timing.ticks("control", bench.step_us)
    # Time at which each ring first reached each state. [states, hops] [us]
    entered = np.zeros((State.UP + 1, rings))
    before = lanes.state.copy()
    for tick in range(int(np.ceil(bench.patience_us / bench.step_us)) + _STAGES):
        if tick == control_ticks:
            bank.tune_ghz(-(start + hops))
            lanes.set_heaters(every)
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
    """Return what to do about a hop that a calibration error keeps out of tolerance, in words."""
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
    least = -three_digits(reach_ghz / (shift_ghz + reach_ghz), math.floor)
    if shift_ghz <= reach_ghz:
        return f"'pi-lock' removes errors of at least {least:.3g}"
    most = three_digits(reach_ghz / (shift_ghz - reach_ghz), math.floor)
    return f"'pi-lock' removes errors from {least:.3g} to {most:.3g}"


_cache: dict[tuple[float, RetuneBench], tuple[float, ...]] = {}


def _stages_of(hops: FloatArray, bench: RetuneBench) -> FloatArray:
    """Return the four stages of each hop, each emulated once in the life of the program. [4, hops] [us]

    >>> _stages_of(np.array([200.0, 0.0, 200.0]), RetuneBench()).round(1)
    array([[ 1. ,  0. ,  1. ],
           [17.6,  0. , 17.6],
           [ 2. ,  0. ,  2. ],
           [ 1. ,  0. ,  1. ]])
    """
    bench.check_hops(hops)
    # The different hops in ascending order, and which of them each hop is. [distinct], [hops]
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
        Arrays of the shape of `hop_ghz`: the stages, `total_us` until the channel is up, and `words_us`, with
        word alignment, until it carries words.

    Raises
    ------
    HwsimError
        When a parameter is out of range, a hop is beyond the heater's range, or the law cannot bring the ring
        within tolerance.

    Examples
    --------
    1 us of control, 4 ln(200 / 2.5) = 17.6 us of heat in steps of 0.1 us, 2 us of lock, 1 us of recovery;
    then 0.5 us of alignment. A ring that stays on its line pays nothing:

    >>> stages = retune_stages([200.0, 0.0])
    >>> stages.total_us.round(1), stages.words_us.round(1)
    (array([21.6,  0. ]), array([22.1,  0. ]))
    """
    hops = check("hop_ghz", hop_ghz)
    on_bench = RetuneBench(**bench)
    stages = _stages_of(hops.ravel(), on_bench).reshape(4, *hops.shape)
    return _named(stages, on_bench, moving=hops != 0.0)


def _named(stages: FloatArray, bench: RetuneBench, *, moving: ArrayLike) -> RetuneStages:
    """Return the four stages of each hop by name, and the alignment of those that move. [4, ...]"""
    control_us, thermal_us, lock_us, cdr_us = stages
    align_us = bench.timing.ticks("align", bench.step_us) * bench.step_us
    return RetuneStages(
        control_us=control_us,
        thermal_us=thermal_us,
        lock_us=lock_us,
        cdr_us=cdr_us,
        align_us=np.where(moving, align_us, 0.0),
    )


def retune_time_us(hop_ghz: ArrayLike, **bench: Any) -> float | FloatArray:
    """Return the time from the decision to retune until the channel is up again, without alignment. [us]

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
    """Return the hop of rings that go from lines `before` to lines `after` of a grid. [GHz]

    A higher line has a higher frequency and needs less heat, so that going up the grid is a hop down.

    >>> hop_between_ghz([0, 3], [7, 2])
    array([-1400.,   200.])
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
    """Emulate one retune and return all that happens at every step.

    Parameters and errors are those of `retune_stages`.
    """
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

    stages = _emulate(np.array([hop]), bench, watch)[:, 0]
    time, temperature, detuning, drop, power, state = np.array(samples).T
    return RetuneTrace(
        hop_ghz=hop,
        bench=bench,
        stages=_named(stages, bench, moving=True),
        time_us=time,
        temperature_k=temperature,
        detuning_ghz=detuning,
        drop=drop,
        power_mw=power,
        state=state.astype(np.int8),
    )
