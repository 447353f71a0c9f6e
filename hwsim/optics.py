"""Closed forms of a micro-ring: resonances, Lorentzian responses, crosstalk, settling.

Frequencies are in GHz, powers as fractions, unless a name says otherwise.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwsim.errors import check

__all__ = [
    "C_M_PER_S",
    "adjacent_crosstalk_db",
    "bus_power",
    "drop",
    "fsr_ghz",
    "fsr_nm",
    "fwhm_ghz",
    "settling_us",
    "spacing_nm",
    "through",
    "wrap",
]

#: Speed of light in vacuum. [m/s] (SI, exact)
C_M_PER_S = 299_792_458.0


def carrier_ghz(wavelength_nm: float) -> float:
    """Return the optical frequency of a vacuum wavelength. [GHz]

    >>> round(carrier_ghz(1310.0))
    228849
    """
    return C_M_PER_S / float(check("wavelength_nm", wavelength_nm, above=0.0))


def fsr_nm(*, group_index: float = 4.2, radius_um: float = 5.0, wavelength_nm: float = 1310.0) -> float:
    """Return the free spectral range lambda^2 / (n_g 2 pi R) of a circular ring. [nm]

    1310^2 nm^2 / (4.2 x 31.416 um) = 13.0 nm:

    >>> round(fsr_nm(radius_um=5.0), 2)
    13.01
    """
    index = float(check("group_index", group_index, at_least=1.0))
    round_trip_um = 2.0 * np.pi * float(check("radius_um", radius_um, above=0.0))
    wavelength = float(check("wavelength_nm", wavelength_nm, above=0.0))
    return wavelength**2 / (index * round_trip_um * 1e3)


def fsr_ghz(*, group_index: float = 4.2, radius_um: float = 5.0) -> float:
    """Return the free spectral range c / (n_g 2 pi R) of a circular ring. [GHz]

    >>> round(fsr_ghz(radius_um=5.0)), round(fsr_ghz(radius_um=2.5))
    (2272, 4544)
    """
    index = float(check("group_index", group_index, at_least=1.0))
    round_trip_m = 2e-6 * np.pi * float(check("radius_um", radius_um, above=0.0))
    return float(C_M_PER_S / (index * round_trip_m) * 1e-9)


def fwhm_ghz(*, quality: ArrayLike, wavelength_nm: float = 1310.0) -> NDArray[np.float64]:
    """Return the full width at half maximum f / Q of a resonance. [GHz]"""
    return carrier_ghz(wavelength_nm) / check("quality", quality, above=0.0)


def spacing_nm(spacing_ghz: float, *, wavelength_nm: float = 1310.0) -> float:
    """Return the wavelength difference lambda^2 df / c of a small frequency difference. [nm]"""
    return wavelength_nm**2 * spacing_ghz / C_M_PER_S


def wrap(offset_ghz: ArrayLike, fsr: ArrayLike) -> NDArray[np.float64]:
    """Return `offset_ghz` less the nearest multiple of the free spectral range, in [-fsr/2, fsr/2]. [GHz]

    >>> wrap([100.0, 900.0, -2100.0], 1000.0)
    array([ 100., -100., -100.])
    """
    offset = np.asarray(offset_ghz, dtype=np.float64)
    return offset - fsr * np.rint(offset / fsr)


def drop(detuning_ghz: ArrayLike, fwhm: ArrayLike, peak_drop: ArrayLike) -> NDArray[np.float64]:
    """Return the fraction at the drop port, T_peak / (1 + (2 delta / FWHM)^2).

    The peak on the line, half of it half a width away:

    >>> drop([0.0, 10.0], 20.0, 0.8)
    array([0.8, 0.4])
    """
    x = 2.0 * np.asarray(detuning_ghz, dtype=np.float64) / fwhm
    return peak_drop / (1.0 + x * x)


def through(detuning_ghz: ArrayLike, fwhm: ArrayLike, peak_drop: ArrayLike) -> NDArray[np.float64]:
    """Return the fraction that stays on the bus.

    Coupled-mode theory of a ring with two equal couplers: a peak drop T leaves (1 - sqrt T)^2 at resonance,
    so that drop + through is at most 1 and the rest is lost in the ring.

    >>> through([0.0, 1e6], 20.0, 0.81).round(3)
    array([0.01, 1.  ])
    """
    left = (1.0 - np.sqrt(peak_drop)) ** 2
    return 1.0 - (1.0 - left) * drop(detuning_ghz, fwhm, 1.0)


def adjacent_crosstalk_db(spacing_ghz: ArrayLike, fwhm: ArrayLike) -> NDArray[np.float64]:
    """Return the neighbouring line's power at the drop port over the own line's, ring on its line. [dB]"""
    spacing = check("spacing_ghz", spacing_ghz, above=0.0)
    return 10.0 * np.log10(drop(spacing, check("fwhm_ghz", fwhm, above=0.0), 1.0))


def settling_us(hop_ghz: ArrayLike, *, tau_us: ArrayLike, tolerance_ghz: ArrayLike) -> NDArray[np.float64]:
    """Return the first-order settling time tau ln(|hop| / tolerance) of one step; 0 within tolerance. [us]

    4 ln(200 / 2.5) = 17.5 us, heating or cooling:

    >>> settling_us([200.0, -200.0, 1.0], tau_us=4.0, tolerance_ghz=2.5).round(1)
    array([17.5, 17.5,  0. ])
    """
    hop = np.abs(check("hop_ghz", hop_ghz))
    tolerance = check("tolerance_ghz", tolerance_ghz, above=0.0)
    return check("tau_us", tau_us, above=0.0) * np.log(np.maximum(hop / tolerance, 1.0))


def bus_power(
    drop_fraction: NDArray[np.float64], through_fraction: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the power of each line at the drop port of each ring of a bus, rings met in order.

    Parameters
    ----------
    drop_fraction, through_fraction : [..., rings, lines]
        Response of each ring to each line.

    Returns
    -------
    [..., rings, lines]
        Fractions of the power at the head of the bus: what the rings before have taken is gone.

    Examples
    --------
    Three rings on one line, each of which drops 0.6 and lets 0.3 pass:

    >>> bus_power(np.full((3, 1), 0.6), np.full((3, 1), 0.3)).ravel()
    array([0.6  , 0.18 , 0.054])
    """
    # What arrives at each ring: the product of what the rings before it let pass. [..., rings, lines]
    arriving = np.ones_like(through_fraction)
    np.cumprod(through_fraction[..., :-1, :], axis=-2, out=arriving[..., 1:, :])
    return arriving * drop_fraction
