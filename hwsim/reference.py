"""The same bank in plain numpy: what the C is tested against, and the slower bar in the benchmark.

Arrays are [ports, rings_per_port]. The rules are those of ``csrc/hwsim.h``, written as they read there.
"""

import numpy as np
from numpy.typing import NDArray

from hwsim import optics
from hwsim.design import LAWS
from hwsim.errors import HwsimError
from hwsim.kernel import FAULTS, BankArrays

__all__ = ["NumpyKernel"]

OVER_DRIVE, PI_LOCK = LAWS.index("over-drive"), LAWS.index("pi-lock")
DEAD, HEALTHY = FAULTS.index("dead heater"), FAULTS.index("healthy")


class NumpyKernel:
    """A bank that lives in numpy arrays; same calls as `hwsim.kernel.CKernel`."""

    def __init__(self, arrays: BankArrays) -> None:
        self.p = arrays
        shape = (arrays.rings // arrays.rings_per_port, arrays.rings_per_port)
        self.tau, self.gain, self.limit = (
            x.reshape(shape) for x in (arrays.tau_us, arrays.gain_ghz_per_mw, arrays.limit_mw)
        )
        self.fsr, self.fwhm, self.peak = (
            x.reshape(shape) for x in (arrays.fsr_ghz, arrays.fwhm_ghz, arrays.peak_drop)
        )
        self.drift, self.cold, self.law = (
            x.reshape(shape) for x in (arrays.drift_ghz_per_k, arrays.cold_ghz, arrays.law)
        )
        self.believed = self.gain * arrays.calibration.reshape(shape)
        self.decay = np.exp(-arrays.step_us / self.tau)
        self.shift, self.drive, self.line, self.wanted, self.since = np.zeros((5, *shape))
        self.steady, self.trim, self.boost, self.power = np.zeros((4, *shape))
        self.energy, self.error = np.zeros((2, *shape))
        self.boost_end = np.full(shape, np.inf)
        self.goal = np.full(shape, np.inf)
        self.tuned, self.engaged, self.inside = np.zeros((3, *shape), dtype=bool)
        self.fault = np.zeros(shape, dtype=np.uint8)
        self.lit = np.ones(shape, dtype=bool)
        self.tick, self.phase_us, self.mark_us = 0, 0.0, 0.0
        self.ambient = (0.0, 0.0, 0.0)  # at_us, offset_k, ramp_k_per_us

    @property
    def time_us(self) -> float:
        return self.tick * self.p.step_us + self.phase_us

    @property
    def ambient_k(self) -> float:
        return self._ambient_at(self.time_us)

    def _ambient_at(self, time_us: float) -> float:
        at_us, offset_k, ramp = self.ambient
        return offset_k + ramp * (time_us - at_us)

    def _neighbours(self, power: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros_like(power)
        for distance, fraction in enumerate(self.p.crosstalk, start=1):
            total[:, distance:] += fraction * power[:, :-distance]
            total[:, :-distance] += fraction * power[:, distance:]
        return total

    def _apply(self, time_us: float) -> None:
        self.energy += self.power * (time_us - self.mark_us)
        self.mark_us = time_us
        command = np.where(
            np.isfinite(self.boost_end), self.boost, np.clip(self.steady + self.trim, 0.0, self.limit)
        )
        self.power = np.where(self.fault == HEALTHY, command, np.where(self.fault == DEAD, 0.0, self.power))
        self.drive = self.gain * (self.power + self._neighbours(self.power))

    def tune(self, rings: NDArray[np.int64], line_ghz: NDArray[np.float64]) -> None:
        now_us = self.time_us
        retuned = np.zeros(self.p.rings, dtype=bool)
        retuned[rings] = True
        retuned = retuned.reshape(self.shift.shape)
        self.line.ravel()[rings] = line_ghz
        self.tuned |= retuned
        self._solve(retuned, now_us)
        self.trim[retuned] = 0.0
        self.engaged[retuned] = False
        self.boost_end[retuned] = np.inf
        self._start_boosts(retuned & (self.law == OVER_DRIVE), now_us)
        error = np.abs(self.goal - self.drift * self._ambient_at(now_us) - self.shift)
        self.inside = np.where(retuned, error <= self.p.lock_ghz, self.inside)
        self.since[retuned] = now_us
        self._apply(now_us)

    def _solve(self, retuned: NDArray[np.bool_], now_us: float) -> None:
        """Find the steady powers that hold every tuned ring on its line, by projected Gauss-Seidel.

        Solves believed (P_i + sum_d c_d P_(i +- d)) = wanted_i with 0 <= P_i <= limit_i. `retuned` is
        [ports, rings_per_port]; ring k of all ports is solved at once, in the order of k as in C.

        One port of two rings of 90 GHz/mW with 10 % of crosstalk; ring 0 wants 99 GHz, ring 1 wants 45 GHz:
        P_0 + 0.1 P_1 = 1.1 mW and P_1 + 0.1 P_0 = 0.5 mW: P_1 = (0.5 - 0.11) / 0.99 = 0.3939 mW.

        >>> bank = hwsim.RingBank(
        ...     rings=2, design=hwsim.RingDesign(bias_ghz=0.0, crosstalk=(0.1,)), kernel="numpy"
        ... )
        >>> bank.tune_ghz(bank.resonance_ghz - [99.0, 45.0])
        >>> bank.power_mw.round(4).tolist()
        [1.0606, 0.3939]
        """
        touched = retuned.any(axis=1)  # [ports] where anything may change
        for sweep in range(200):
            moved = 0.0
            for k in range(self.p.rings_per_port):
                # Least and greatest shift that the heater of ring k can hold beside its neighbours. [ports]
                low = np.zeros(len(touched))
                if self.p.compensate:
                    low = self.believed[:, k] * self._neighbours(self.steady)[:, k]
                high = low + self.believed[:, k] * self.limit[:, k]
                outside = (self.wanted[:, k] < low) | (self.wanted[:, k] > high)
                choose = retuned[:, k] & (outside | (sweep == 0)) & (sweep < 20)
                self._choose_order(choose, k, low, high, now_us)

                power = np.clip((self.wanted[:, k] - low) / self.believed[:, k], 0.0, self.limit[:, k])
                power = np.where(touched & self.tuned[:, k], power, self.steady[:, k])
                moved = max(moved, float(np.max(np.abs(power - self.steady[:, k]) * self.believed[:, k])))
                self.steady[:, k] = power
            if moved <= 1e-12:
                return

    def _choose_order(
        self,
        choose: NDArray[np.bool_],
        k: int,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        now_us: float,
    ) -> None:
        """Put into `wanted` the shift of the order nearest to where ring k of each port stands.

        It lies in [low, high]; where the heater holds none, it is the lowest above `low`. `choose`, `low` and
        `high` are [ports].
        """
        warm = self.drift[:, k] * self._ambient_at(now_us)
        need = self.cold[:, k] - warm - self.line[:, k]
        lowest = np.ceil((low - need) / self.fsr[:, k])
        highest = np.floor((high - need) / self.fsr[:, k])
        nearest = np.rint((self.shift[:, k] - need) / self.fsr[:, k])
        # Numbers of orders: shift = need + order x FSR puts one on the line. [ports]
        order = np.where(lowest > highest, lowest, np.minimum(np.maximum(nearest, lowest), highest))
        self.wanted[choose, k] = (need + order * self.fsr[:, k])[choose]
        self.goal[choose, k] = (self.wanted[:, k] + warm)[choose]

    def _start_boosts(self, rings: NDArray[np.bool_], now_us: float) -> None:
        asked = self.power + self.p.overdrive_gain * (self.steady - self.power)
        boost = np.clip(asked, 0.0, self.limit)
        drive = self.believed * (boost + self._neighbours(self.steady))
        whole, rest = drive - self.shift, drive - self.wanted
        passes = rings & (whole * rest > 0.0) & (np.abs(whole) > np.abs(rest))
        passes &= np.abs(rest) > self.p.lock_ghz
        self.boost[passes] = boost[passes]
        self.boost_end[passes] = now_us + self.tau[passes] * np.log(whole[passes] / rest[passes])

    def advance(self, dt_us: float) -> None:
        step = self.p.step_us
        whole = int(np.floor((self.phase_us + dt_us) / step + 1e-9))
        last_tick = self.tick + whole
        last_phase = max(self.phase_us + dt_us - whole * step, 0.0)
        last_phase = 0.0 if last_phase < 1e-9 * step else last_phase
        for tick in range(self.tick, last_tick):
            to_us = (tick + 1) * step
            self._glide(tick * step + self.phase_us, to_us, whole_step=self.phase_us == 0.0)
            self._judge(to_us, (tick + 2) * step)
            if (tick + 1) % self.p.loop_ticks == 0 and (self.law == PI_LOCK).any():
                self._loop(to_us)
            self.phase_us = 0.0
        if last_phase > self.phase_us:
            self._glide(last_tick * step + self.phase_us, last_tick * step + last_phase, whole_step=False)
        self.tick, self.phase_us = last_tick, last_phase
        self.energy += self.power * (self.time_us - self.mark_us)
        self.mark_us = self.time_us

    def _glide(self, from_us: float, to_us: float, *, whole_step: bool) -> None:
        while (next_end := float(self.boost_end.min())) <= to_us:
            end_us = max(next_end, from_us)
            self._relax(np.exp(-(end_us - from_us) / self.tau))
            self.boost_end[self.boost_end <= end_us] = np.inf
            self._apply(end_us)
            from_us, whole_step = end_us, False
        self._relax(self.decay if whole_step else np.exp(-(to_us - from_us) / self.tau))

    def _relax(self, factor: NDArray[np.float64]) -> None:
        self.shift = self.drive + (self.shift - self.drive) * factor

    def _judge(self, time_us: float, next_us: float) -> None:
        error = np.abs(self.goal - self.drift * self._ambient_at(time_us) - self.shift)
        self.inside = error <= np.where(self.inside, self.p.unlock_ghz, self.p.lock_ghz)
        self.since = np.where(self.inside, self.since, next_us)

    def _loop(self, time_us: float) -> None:
        p = self.p
        detuning = self._detuning(time_us)
        above = optics.drop(detuning + p.dither_ghz, self.fwhm, 1.0)
        below = optics.drop(detuning - p.dither_ghz, self.fwhm, 1.0)
        looping = self.law == PI_LOCK
        seen = looping & self.tuned & self.lit & (0.5 * (above + below) >= p.capture)
        error = self.fwhm**2 / (16.0 * p.dither_ghz) * (1.0 / above - 1.0 / below)
        pole = np.exp(-p.loop_ticks * p.step_us / self.tau)
        gain = (1.0 - p.loop_ratio) / (1.0 - pole)
        asked = self.steady + self.trim + gain * (error - pole * self.error) / self.believed
        trim = np.clip(asked, 0.0, self.limit) - self.steady
        self.trim = np.where(seen & self.engaged, trim, self.trim)
        self.error = np.where(seen, error, self.error)
        self.engaged = np.where(looping, seen, self.engaged)
        self._apply(time_us)

    def set_ambient(self, offset_k: float, ramp_k_per_us: float) -> None:
        self.ambient = (self.time_us, offset_k, ramp_k_per_us)

    def set_fault(self, ring: int, fault: int) -> None:
        self.fault.ravel()[ring] = fault
        self._apply(self.time_us)

    def set_lit(self, ring: int, lit: bool) -> None:
        self.lit.ravel()[ring] = lit

    def _resonance(self, time_us: float) -> NDArray[np.float64]:
        return self.cold - self.drift * self._ambient_at(time_us) - self.shift

    def _detuning(self, time_us: float) -> NDArray[np.float64]:
        return optics.wrap(self._resonance(time_us) - self.line, self.fsr)

    def _reachable(self) -> NDArray[np.float64]:
        others = self.believed * self._neighbours(self.steady) if self.p.compensate else 0.0
        reached = self.believed * self.steady + others
        return (np.abs(reached - self.wanted) <= self.p.lock_ghz).astype(float)

    def read(self, field: str) -> NDArray[np.float64]:
        now_us = self.time_us
        if field in ("detuning_ghz", "drop", "through", "since_us", "reachable") and not self.tuned.all():
            raise HwsimError("a ring has no line yet; tune every ring first")
        compute = {
            "shift_ghz": lambda: self.shift,
            "power_mw": lambda: self.power,
            "energy_nj": lambda: self.energy,
            "resonance_ghz": lambda: self._resonance(now_us),
            "detuning_ghz": lambda: self._detuning(now_us),
            "drop": lambda: optics.drop(self._detuning(now_us), self.fwhm, self.peak),
            "through": lambda: optics.through(self._detuning(now_us), self.fwhm, self.peak),
            "locked": lambda: (self.inside & self.tuned).astype(float),
            "since_us": lambda: self.since,
            "reachable": self._reachable,
        }
        return compute[field]().ravel().copy()
