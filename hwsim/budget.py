"""Optical power budget of a receiver and the penalty of its neighbours."""

import attrs
import numpy as np
from numpy.typing import NDArray

from hwsim import optics
from hwsim.errors import within

__all__ = ["LinkBudget", "receiver_margin_db"]

FloatArray = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class LinkBudget:
    """Losses between a laser and a receiver. Assumptions of the right size, not a product's values."""

    #: Power of each line at the transmitter chip. [dBm]
    laser_dbm: float = attrs.field(default=3.0, validator=within())
    #: Loss of one fibre-to-chip coupling; light crosses three: laser in, transmitter out, receiver in. [dB]
    coupling_db: float = attrs.field(default=1.5, validator=within(at_least=0.0))
    #: Loss of the modulator, with the half of the light that the zeros take. [dB]
    modulator_db: float = attrs.field(default=4.5, validator=within(at_least=0.0))
    #: Loss of the fibre, ITU-T G.652 at 1310 nm. [dB/km]
    fibre_db_per_km: float = attrs.field(default=0.35, validator=within(at_least=0.0))
    #: Least power a receiver needs at 25 Gbps. [dBm]
    sensitivity_dbm: float = attrs.field(default=-12.0, validator=within())

    def arriving_dbm(self, fibre_m: float) -> float:
        """Return the power of one line on the receiver's bus. [dBm]

        3 dBm less three couplings of 1.5 dB, the modulator's 4.5 dB and 10 m of 0.35 dB/km:

        >>> round(LinkBudget().arriving_dbm(10.0), 4)
        -6.0035
        """
        losses_db = 3.0 * self.coupling_db + self.modulator_db + self.fibre_db_per_km * fibre_m * 1e-3
        return self.laser_dbm - losses_db


def receiver_margin_db(
    budget: LinkBudget,
    *,
    dropped: FloatArray,
    own: NDArray[np.bool_],
    lit: NDArray[np.bool_],
    fibre_m: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the margin and the crosstalk penalty of each receiving ring.

    Parameters
    ----------
    dropped : [..., rings, lines]
        Fraction of each line that reaches each photodiode, as from `hwsim.optics.bus_power`.
    own : [..., rings, lines] of bool
        Which line each ring is for; a ring without one has the margin of no light.
    lit : [..., lines] of bool
        Which lines carry light.

    Returns
    -------
    margin_db, penalty_db : [..., rings]
        Power over sensitivity after every loss and the penalty; and the penalty -10 log10(1 - x), where x is
        the power of the other lines over that of the own (Ramaswami and Sivarajan, Optical Networks,
        chapter 5: crosstalk between different wavelengths). A closed eye, x >= 1, is a penalty of infinity.

    Examples
    --------
    Two rings, two lines of which one is lit for both. Ring 0 drops 0.9 of its own line and 0.09 of the other:
    x = 0.1, a penalty of -10 log10(0.9) = 0.458 dB. Ring 1 drops as much of the other line as of its own:

    >>> margin, penalty = receiver_margin_db(
    ...     LinkBudget(),
    ...     dropped=np.array([[0.9, 0.09], [0.5, 0.5]]),
    ...     own=np.array([[True, False], [False, True]]),
    ...     lit=np.array([True, True]),
    ...     fibre_m=0.0,
    ... )
    >>> penalty.round(3)
    array([0.458,   inf])
    >>> margin.round(3)  # -6 dBm + 10 log10(0.9) - 0.458 dB + 12 dB
    array([5.085,  -inf])
    """
    # Power at each photodiode by line, where a line that is out brings none. [..., rings, lines]
    light = dropped * lit[..., np.newaxis, :]
    # Of its own line, as if that were lit, and of all others together. [..., rings]
    signal = np.where(own, dropped, 0.0).sum(axis=-1)
    others = np.where(own, 0.0, light).sum(axis=-1)

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(signal > 0.0, others / signal, np.inf)
        penalty_db = -10.0 * np.log10(np.maximum(1.0 - ratio, 0.0))
        power_dbm = budget.arriving_dbm(fibre_m) + 10.0 * np.log10(signal)
        margin_db = np.where(
            np.isfinite(penalty_db), power_dbm - penalty_db - budget.sensitivity_dbm, -np.inf
        )
    return margin_db, penalty_db


def port_drop(
    resonance_ghz: FloatArray, line_ghz: FloatArray, *, fsr: FloatArray, fwhm: FloatArray, peak: FloatArray
) -> FloatArray:
    """Return the fraction of each line at the drop port of each ring, rings met in order. [..., rings, lines]

    The ring parameters are [..., rings], `line_ghz` is [lines].

    Two rings of FWHM 20 GHz on lines 100 GHz apart, each on its own line. It drops 0.9 of that and
    0.9 / (1 + 10^2) of the other; ring 1 meets what ring 0 has left, 0.003 of line 0 and 0.99 of line 1.

    >>> same = {"fsr": np.full(2, 2000.0), "fwhm": np.full(2, 20.0), "peak": np.full(2, 0.9)}
    >>> lines = np.array([0.0, 100.0])
    >>> port_drop(lines, lines, **same).round(4)
    array([[0.9   , 0.0089],
           [0.    , 0.8911]])
    """
    ring = (..., np.newaxis)
    detuning = optics.wrap(resonance_ghz[ring] - line_ghz, fsr[ring])
    return optics.bus_power(
        optics.drop(detuning, fwhm[ring], peak[ring]), optics.through(detuning, fwhm[ring], peak[ring])
    )
