"""Dark time from the rings that a plan really retunes, by way of the micro-ring emulator `hwsim`."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, positive
from sipml_ring.lightpaths import Lightpaths

#: One number for the place and line of a micro-ring. [circuits]
Codes = NDArray[np.int64]

#: More macros than a port can have.
_MACROS = 1 << 13


@attrs.frozen(kw_only=True)
class Retuning:
    """Micro-rings at both ends of a circuit.

    A port has, in each direction, macros of `macro_lines` wavelengths with one sending and one
    receiving ring for each; any of a macro's rings can be tuned to any of its lines. Wavelength k is
    line k mod macro_lines of macro k div macro_lines. Where a plan uses a line that the GPU did not
    use before, a ring whose line is no longer used hops to it (the lowest freed line to the lowest new
    one); if none is freed, a ring that was parked half a channel away is tuned in. The receiver of a
    circuit whose rings both stay where they are must still lock to its new sender. Any changed circuit
    carries words only once they are aligned (`hwsim.LinkTiming.align_us`, 0.5 us).
    """

    #: Thermal time constant of a ring. [us]
    tau_us: float = attrs.field(default=4.0, validator=positive)
    #: A ring locks within this of its line. [GHz]
    tolerance_ghz: float = attrs.field(default=2.5, validator=positive)
    #: Between neighbouring lines (CW-WDM MSA, 9 nm span). [GHz]
    spacing_ghz: float = attrs.field(default=200.0, validator=positive)
    macro_lines: int = attrs.field(default=8, validator=at_least(1))
    #: Control law of the heaters, see `hwsim.RetuneBench`.
    law: str = "open-loop"

    def check(self, interval_us: float) -> None:
        """Raise `ConfigError` if the rings cannot make the largest hop that may be asked for in less than
        the time between plans: the next plan would take a circuit that is still dark for a lit one."""
        stages = self._stages(np.array([-1.0, 1.0]) * max(self.macro_lines - 1, 0.5) * self.spacing_ghz)
        slowest_us = float(np.max(stages.words_us))
        if slowest_us >= interval_us:
            raise ConfigError(
                f"interval_us must exceed the {slowest_us:.4g} us that the slowest rings take to retune "
                f"(tau_us = {self.tau_us:g}), got {interval_us:g}"
            )

    def circuit_times_us(
        self, before: Lightpaths | None, after: Lightpaths, *, gpus: int, segments: int
    ) -> NDArray[np.float64]:
        """Return how long each circuit of `after` is dark; 0 where `before` has it already. [circuits] [us]

        Of `gpus` on a ring; where it is folded, its first `segments` GPUs stand for their images.
        """
        same = np.zeros(len(after.pair), bool)
        if before is not None:
            same = np.isin(after.identity(gpus), before.identity(gpus))
        lines = partial(self._lines, ports=segments)
        sending, receiving = (
            self._end_times_us(None if before is None else lines(before, end), lines(after, end))
            for end in ("src", "dst")
        )
        relock = self._stages(np.array([self.spacing_ghz / 2]))
        least_us = float((relock.control_us + relock.cdr_us + relock.align_us)[0])
        return np.where(same, 0.0, np.maximum(np.maximum(sending, receiving), least_us))

    def _lines(self, circuits: Lightpaths, end: str, *, ports: int) -> Codes:
        """Return (port, direction, macro, line) of the micro-ring of each circuit at one end, in one number.

        Of a folded ring the ports of one period stand for their images.
        """
        port = getattr(circuits, end)[circuits.pair].astype(np.int64) % ports
        macro, line = np.divmod(circuits.index.astype(np.int64), self.macro_lines)
        return ((port * 2 + circuits.direction) * _MACROS + macro) * self.macro_lines + line

    def _end_times_us(self, before: Codes | None, after: Codes) -> NDArray[np.float64]:
        """Return the time that the micro-ring at one end of each circuit takes. [circuits] [us]

        0 where its line was in use.
        """
        # Lines lit now and not before, and the other way round, both in ascending order.
        old = np.unique(before) if before is not None else np.empty(0, np.int64)
        fresh, freed = np.setdiff1d(after, old), np.setdiff1d(old, after)

        # The k-th fresh line of a macro is taken by the ring of its k-th freed line, if it has so many.
        # partner: index into freed of that line. [fresh]
        macro, freed_macro = fresh // self.macro_lines, freed // self.macro_lines
        rank = np.arange(len(fresh)) - np.searchsorted(macro, macro)
        partner = np.searchsorted(freed_macro, macro) + rank
        has = partner < np.searchsorted(freed_macro, macro, side="right")

        # A higher line is a higher frequency and needs less heat.
        hop_ghz = np.full(len(fresh), self.spacing_ghz / 2)
        hop_ghz[has] = (freed[partner[has]] - fresh[has]) * self.spacing_ghz
        hops, which = np.unique(hop_ghz, return_inverse=True)
        times_us = np.concatenate([self._stages(hops).words_us[which] if len(hops) else [], [0.0]])

        # at: index into fresh of each circuit's line; len(fresh), whose time is 0, for one that is not fresh.
        at = np.searchsorted(fresh, after)
        at[(at == len(fresh)) | (np.append(fresh, -1)[at] != after)] = len(fresh)
        return times_us[at]

    def _stages(self, hop_ghz: NDArray[np.float64]) -> Any:
        import hwsim

        try:
            return hwsim.retune_stages(
                hop_ghz, tau_us=self.tau_us, tolerance_ghz=self.tolerance_ghz, control=self.law
            )
        except hwsim.HwsimError as refusal:
            raise ConfigError(f"reconfiguration 'hwsim' is impossible: {refusal}") from None
