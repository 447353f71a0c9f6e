"""A TeraPHY-like port: macros of wavelengths, each with a transmitting and a receiving ring.

Arrays are [2, macros, wavelengths] with the side first, 0 = tx and 1 = rx.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim.align import WordAlignment
from hwsim.bank import RingBank
from hwsim.budget import LinkBudget, port_drop, receiver_margin_db
from hwsim.design import ControlLaw, RingDesign
from hwsim.errors import HwsimError, check, choice, whole
from hwsim.eventlog import EventLog
from hwsim.faults import SIDES, Fault
from hwsim.fibre import FIBRE_NS_PER_M, Fibre
from hwsim.grid import WdmGrid, grid_named
from hwsim.lanes import Lanes, LinkTiming, State
from hwsim.slots import check_distinct, lines_of, slots_of
from hwsim.waits import NEGATIVE_MARGIN, why_waiting

__all__ = ["TeraPhy", "advance_together"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Through one chiplet without the fibre, as its vendor states. [ns]
CHIPLET_NS = 10.0
TX, RX = range(2)


class TeraPhy:
    """One optical port of a chiplet, made settled: every ring parked half a spacing above its own line.

    Parameters
    ----------
    macros, wavelengths : int
        Macros of the port, and wavelengths (slots) of a macro; 10 x 8 as the 2 Tbps TeraPHY of the paper.
    grid : str or WdmGrid
        The laser's lines; at least as many as wavelengths.
    rate_gbps : float
        Data rate of one wavelength. [Gbps]
    fibre_m : float
        Fibre from the far end. [m]
    pj_per_bit : float
        Energy of everything but the heaters, for each bit received. [pJ/bit] About 5: OFC'21.
    design, control, timing, budget
        Rings, their control, the times of the link, its power budget.
    seed : int
        Seed of the manufacturing offsets.
    step_us : float
        Step of the emulation, at least a nanosecond. [us]

    Notes
    -----
    Without `connect` the port is looped back: its receivers see what its own transmitters send.
    """

    def __init__(
        self,
        *,
        macros: int = 10,
        wavelengths: int = 8,
        grid: str | WdmGrid = "cw-wdm-9nm-8x200",
        rate_gbps: float = 25.0,
        fibre_m: float = 10.0,
        pj_per_bit: float = 5.0,
        design: RingDesign | str | None = None,
        control: ControlLaw | None = None,
        timing: LinkTiming | None = None,
        budget: LinkBudget | None = None,
        seed: int = 0,
        step_us: float = 1.0,
    ) -> None:
        self.macros = whole("macros", macros, at_least=1)
        self.grid = grid_named(grid)
        self.wavelengths = whole("wavelengths", wavelengths, at_least=1, at_most=self.grid.lines)
        self.rate_gbps = float(check("rate_gbps", rate_gbps, above=0.0))
        self.fibre_m = float(check("fibre_m", fibre_m, at_least=0.0))
        self.pj_per_bit = float(check("pj_per_bit", pj_per_bit, at_least=0.0))
        self.timing = timing if timing is not None else LinkTiming()
        self.budget = budget if budget is not None else LinkBudget()
        self.shape = (2, self.macros, self.wavelengths)
        self.bank = RingBank(
            rings=2 * self.macros * self.wavelengths,
            rings_per_port=self.wavelengths,
            grid=self.grid,
            design=design,
            control=control,
            seed=seed,
            step_us=float(check("step_us", step_us, at_least=1e-3)),
        )
        self.step_us = self.bank.step_us
        self.log = EventLog()
        #: Energy of the bits received, without the heaters. [nJ]
        self.link_energy_nj = 0.0

        self._line = np.broadcast_to(np.arange(self.wavelengths), self.shape).copy()
        self._wanted = np.zeros(self.shape, dtype=bool)
        self._write_tick = np.zeros(self.shape, dtype=np.int64)
        self._tick = 0
        self._laser_on = np.ones(self.grid.lines, dtype=bool)
        self._waits = np.full(self.shape, "", dtype=object)
        recovers = np.zeros(self.shape, dtype=bool)
        recovers[RX] = True
        self._lit = np.ones(self.shape, dtype=bool)
        self._lanes = Lanes(recovers=recovers, timing=self.timing, step_us=self.step_us)
        self._far: TeraPhy = self
        self._unlit_ticks = np.zeros(self.shape, dtype=np.int64)
        self._fibre = Fibre(length_m=self.fibre_m, shape=(self.macros, self.grid.lines), step_us=self.step_us)
        self._words = WordAlignment(shape=self.shape[1:], ticks=self.timing.ticks("align", self.step_us))
        self._warm_up()

    def _warm_up(self) -> None:
        self._park(np.ones(self.shape, dtype=bool))
        longest_us = float(np.max(self.bank.design.tau_us))
        self.bank.advance(np.ceil(60.0 * longest_us / self.step_us) * self.step_us)
        self._energy_at_start_nj = self.bank.energy_nj.sum()

    @property
    def time_us(self) -> float:
        """Time since the port was made. [us]"""
        return self._tick * self.step_us

    @property
    def state(self) -> NDArray[np.int8]:
        """`State` of each wavelength. [2, macros, wavelengths]"""
        return self._lanes.state.copy()

    def connect(self, far: "TeraPhy") -> None:
        """Join this port and `far` by a pair of fibres; from now on step them with `advance_together`."""
        if (far.macros, far.grid, far.step_us) != (self.macros, self.grid, self.step_us):
            raise HwsimError(
                f"far must have {self.macros} macros on {self.grid.name} and steps of {self.step_us:g} us, "
                f"got {far.macros} on {far.grid.name} and {far.step_us:g} us"
            )
        self._far, far._far = far, self

    def tune(self, lines: ArrayLike | None = None, *, where: ArrayLike | None = None) -> None:
        """Ask for lines, on the transmitting and the receiving ring of each slot alike.

        Parameters
        ----------
        lines : [macros, wavelengths] of int, or what broadcasts to it, optional
            Line of each slot; slot k on line k by default.
        where : [macros, wavelengths] of bool, or what broadcasts to it, optional
            Which slots; all of them by default. The others, and those already on their lines, carry on.
        """
        slots = self._slots(where)
        asked = lines_of(lines, self.shape[1:], of_grid=self.grid.lines)
        line = np.where(slots, asked, self._line[TX])
        check_distinct(line, slots | self._wanted[TX])
        moved = slots & ((line != self._line[TX]) | ~self._wanted[TX])
        self._line[:] = line
        self._command(np.broadcast_to(moved, self.shape))

    def darken(self, *, where: ArrayLike | None = None) -> None:
        """Give up slots: their rings park half a spacing above their lines."""
        slots = np.broadcast_to(self._slots(where), self.shape)
        before = self._lanes.state.copy()
        self._lanes.darken(slots)
        self._wanted[slots] = False
        self._waits[slots] = ""
        self._park(slots)
        self._log_moves(before)

    def inject(self, fault: Fault) -> None:
        """Apply a fault now and log it."""
        self.log.add(self.time_us, "port", fault.apply(self))

    def break_heater(self, side: str, macro: int, slot: int, state: str) -> None:
        """Put one heater in one of the states of `RingBank.set_heater`."""
        index = (
            SIDES.index(choice("side", side, SIDES)),
            whole("macro", macro, at_least=0, at_most=self.macros - 1),
            whole("slot", slot, at_least=0, at_most=self.wavelengths - 1),
        )
        self.bank.set_heater(state, rings=[np.ravel_multi_index(index, self.shape)])

    def lose_line(self, line: int) -> None:
        """Put a laser line out."""
        self._laser_on[whole("line", line, at_least=0, at_most=self.grid.lines - 1)] = False

    def ramp_ambient(self, k_per_ms: float) -> None:
        """Let the ambient change at a steady rate from now on. [K/ms]"""
        self.bank.set_ambient(self.bank.ambient_k, ramp_k_per_ms=k_per_ms)

    def advance(self, us: float) -> None:
        """Let `us` microseconds pass, a whole number of steps. Connected ports: `advance_together`."""
        if self._far is not self:
            raise HwsimError("advance must not be called on a connected port; use advance_together")
        advance_together((self,), us)

    def _slots(self, where: ArrayLike | None) -> Mask:
        return slots_of(where, self.shape[1:])

    def _command(self, rings: Mask) -> None:
        before = self._lanes.state.copy()
        self._lanes.command(rings)
        self._wanted[rings] = True
        self._words.group(rings[RX])
        self._waits[rings] = ""
        self._write_tick[rings] = self._tick + self.timing.ticks("control", self.step_us)
        self._log_moves(before)

    def _park(self, rings: Mask) -> None:
        flat = np.flatnonzero(rings)
        self.bank.tune_ghz(
            self.grid.line_ghz[self._line.ravel()[flat]] + 0.5 * self.grid.spacing_ghz, rings=flat
        )

    def _write_heaters(self) -> None:
        rings = self._wanted & ~self._lanes.heaters_set & (self._write_tick <= self._tick)
        flat = np.flatnonzero(rings)
        if flat.size:
            self.bank.tune(self._line.ravel()[flat], rings=flat)
            self._lanes.set_heaters(rings)

    def _step_rings(self) -> None:
        self._write_heaters()
        self.link_energy_nj += self.capacity_gbps * self.step_us * self.pj_per_bit
        self.bank.advance(self.step_us)
        self._tick += 1
        sent = np.zeros((self.macros, self.grid.lines), dtype=bool)
        macro, slot = np.nonzero(self._lanes.state[TX] == State.UP)
        sent[macro, self._line[TX, macro, slot]] = True
        self._fibre.send(sent & self._laser_on)

    def _step_lanes(self) -> None:
        before = self._lanes.state.copy()
        light = self._light()
        margin_db = self.margin_db
        changed = light != self._lit
        self.bank.set_light(light[changed], rings=changed.ravel())
        self._lit = light
        clear = light.copy()
        clear[RX] &= margin_db > 0.0
        self._lanes.step(locked=self.bank.locked.reshape(self.shape), clear=clear)
        self._log_moves(before)
        self._explain(light, margin_db)
        self._align()

    def _arriving(self) -> Mask:
        """Return which lines carry light on the receiving bus of each macro. [macros, lines]"""
        return self._far._fibre.arriving

    def _light(self) -> Mask:
        """Return whether light of its line reaches each ring. [2, macros, wavelengths]"""
        light = np.empty(self.shape, dtype=bool)
        light[TX] = self._laser_on[self._line[TX]]
        light[RX] = np.take_along_axis(self._arriving(), self._line[RX], axis=1)
        return light

    def _explain(self, light: Mask, margin_db: FloatArray) -> None:
        """Find out why wavelengths wait, and log what is new. `light` and the arrays below are
        [2, macros, wavelengths], `margin_db` is [macros, wavelengths]."""
        state = self._lanes.state
        slowest_us = 20.0 * float(np.max(self.bank.design.tau_us))
        # A receiver that gets ready with its far end sees light one fibre later: only then is it missing.
        unlit = (state == State.CDR) & ~light
        self._unlit_ticks = np.where(unlit, self._unlit_ticks + 1, 0)
        allowed_ticks = np.array([0, self._far._fibre.steps]).reshape(2, 1, 1)
        waits = why_waiting(
            state,
            line=self._line,
            tuning=self._lanes.heaters_set,
            reachable=self.bank.reachable.reshape(self.shape),
            late=self._lanes.ticks_in_state * self.step_us > slowest_us,
            missing=unlit & (self._unlit_ticks > allowed_ticks),
            lit=light,
            margin_db=np.stack([np.full_like(margin_db, np.inf), margin_db]),
        )

        off_ghz = self.bank.detuning_ghz.reshape(self.shape)
        for ring in zip(*np.nonzero((waits != self._waits) & (waits != "")), strict=True):
            note = f", {off_ghz[ring]:+.1f} GHz off" if state[ring] == State.TUNING else ""
            if waits[ring] == NEGATIVE_MARGIN:
                note = f", {margin_db[ring[1:]]:.1f} dB"
            self.log.add(self.time_us, self._name(ring), f"waits: {waits[ring]}{note}")
        self._waits = waits

    def _align(self) -> None:
        before = self._words.aligned.copy()
        up = self._lanes.state[RX] == State.UP
        pending = self._wanted[RX] & ~up & (self._waits[RX] == "")
        self._words.step(up=up, pending=pending)
        for macro in np.flatnonzero((self._words.aligned & ~before).any(axis=1)):
            lanes = int(self._words.aligned[macro].sum())
            self.log.add(
                self.time_us, f"rx {macro}", f"aligned: {lanes} wavelengths, {lanes * self.rate_gbps:g} Gbps"
            )

    def _name(self, ring: tuple[int, ...]) -> str:
        return f"{SIDES[ring[0]]} {ring[1]}.{ring[2]}"

    def _log_moves(self, before: NDArray[np.int8]) -> None:
        after = self._lanes.state
        for ring in zip(*np.nonzero(after != before), strict=True):
            move = f"{State(before[ring]).name} -> {State(after[ring]).name}"
            self.log.add(self.time_us, self._name(ring), move)

    def _receive(self) -> tuple[FloatArray, FloatArray]:
        resonance, fsr, fwhm = (
            values.reshape(self.shape)[RX]
            for values in (self.bank.resonance_ghz, self.bank.fsr_ghz, self.bank.fwhm_ghz)
        )
        peak = self.bank.design.each("peak_drop", self.bank.rings).reshape(self.shape)[RX]
        dropped = port_drop(resonance, self.grid.line_ghz, fsr=fsr, fwhm=fwhm, peak=peak)
        own = self._line[RX][..., np.newaxis] == np.arange(self.grid.lines)
        return receiver_margin_db(
            self.budget, dropped=dropped, own=own, lit=self._arriving(), fibre_m=self.fibre_m
        )

    @property
    def margin_db(self) -> FloatArray:
        """Optical power over sensitivity of each receiver, were its line lit. [macros, wavelengths] [dB]"""
        return self._receive()[0]

    @property
    def crosstalk_penalty_db(self) -> FloatArray:
        """What the other lit lines cost each receiver. [macros, wavelengths] [dB]"""
        return self._receive()[1]

    @property
    def waits(self) -> NDArray[np.object_]:
        """Why a wavelength does not come up; empty where nothing is wrong. [2, macros, wavelengths] of str"""
        return self._waits.copy()

    @property
    def sending_gbps(self) -> float:
        """Rate of the transmitting wavelengths that are up. [Gbps]"""
        return float((self._lanes.state[TX] == State.UP).sum()) * self.rate_gbps

    @property
    def capacity_gbps(self) -> float:
        """Rate of the receiving wavelengths that are up and aligned: what the port can carry. [Gbps]"""
        return float(self._words.aligned.sum()) * self.rate_gbps

    @property
    def latency_ns(self) -> float:
        """From the chiplet at the far end to this one: two chiplets and the fibre. [ns]"""
        return 2.0 * CHIPLET_NS + FIBRE_NS_PER_M * self.fibre_m

    @property
    def heater_energy_nj(self) -> float:
        """Energy that the heaters of both sides have taken since the port was made. [nJ]"""
        return float(self.bank.energy_nj.sum()) - self._energy_at_start_nj

    @property
    def energy_nj(self) -> float:
        """Heaters and bits. [nJ]"""
        return self.heater_energy_nj + self.link_energy_nj


def advance_together(ports: tuple[TeraPhy, ...], us: float) -> None:
    """Let `us` microseconds, a whole number of steps, pass for ports that are joined by `TeraPhy.connect`."""
    for port in ports:
        if port._far not in ports:
            raise HwsimError("ports must include the far end of each port")
    steps = float(check("us", us, at_least=0.0)) / ports[0].step_us
    if abs(steps - round(steps)) > 1e-6:
        raise HwsimError(f"us must be a whole number of steps of {ports[0].step_us:g} us, got {us:g}")
    for _ in range(round(steps)):
        for port in ports:
            port._step_rings()
        for port in ports:
            port._step_lanes()
