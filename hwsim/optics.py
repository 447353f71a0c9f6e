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
    """Optical frequency of a vacuum wavelength. [GHz]"""
    return C_M_PER_S / float(check("wavelength_nm", wavelength_nm, above=0.0))


def fsr_nm(*, group_index: float = 4.2, radius_um: float = 5.0, wavelength_nm: float = 1310.0) -> float:
    """Free spectral range lambda^2 / (n_g 2 pi R) of a circular ring. [nm]"""
    index = float(check("group_index", group_index, at_least=1.0))
    round_trip_um = 2.0 * np.pi * float(check("radius_um", radius_um, above=0.0))
    wavelength = float(check("wavelength_nm", wavelength_nm, above=0.0))
    return wavelength**2 / (index * round_trip_um * 1e3)


def fsr_ghz(*, group_index: float = 4.2, radius_um: float = 5.0) -> float:
    """Free spectral range c / (n_g 2 pi R) of a circular ring. [GHz]"""
    index = float(check("group_index", group_index, at_least=1.0))
    round_trip_m = 2e-6 * np.pi * float(check("radius_um", radius_um, above=0.0))
    return float(C_M_PER_S / (index * round_trip_m) * 1e-9)


def fwhm_ghz(*, quality: ArrayLike, wavelength_nm: float = 1310.0) -> NDArray[np.float64]:
    """Full width at half maximum f / Q of a resonance. [GHz]"""
    return carrier_ghz(wavelength_nm) / check("quality", quality, above=0.0)


def spacing_nm(spacing_ghz: float, *, wavelength_nm: float = 1310.0) -> float:
    """Wavelength difference lambda^2 df / c of a small frequency difference. [nm]"""
    return wavelength_nm**2 * spacing_ghz / C_M_PER_S


def wrap(offset_ghz: ArrayLike, fsr: ArrayLike) -> NDArray[np.float64]:
    """`offset_ghz` less the nearest multiple of the free spectral range: within [-fsr/2, fsr/2]. [GHz]"""
    offset = np.asarray(offset_ghz, dtype=np.float64)
    return offset - fsr * np.rint(offset / fsr)


def drop(detuning_ghz: ArrayLike, fwhm: ArrayLike, peak_drop: ArrayLike) -> NDArray[np.float64]:
    """Fraction at the drop port, T_peak / (1 + (2 delta / FWHM)^2)."""
    x = 2.0 * np.asarray(detuning_ghz, dtype=np.float64) / fwhm
    return peak_drop / (1.0 + x * x)


def through(detuning_ghz: ArrayLike, fwhm: ArrayLike, peak_drop: ArrayLike) -> NDArray[np.float64]:
    """Fraction that stays on the bus.

    Coupled-mode theory of a ring with two equal couplers: a peak drop T leaves (1 - sqrt T)^2 at resonance,
    so that drop + through is at most 1 and the rest is lost in the ring.
    """
    left = (1.0 - np.sqrt(peak_drop)) ** 2
    return 1.0 - (1.0 - left) * drop(detuning_ghz, fwhm, 1.0)


def adjacent_crosstalk_db(spacing_ghz: ArrayLike, fwhm: ArrayLike) -> NDArray[np.float64]:
    """Power of the neighbouring line at the drop port against the ring's own line, ring on its line. [dB]"""
    spacing = check("spacing_ghz", spacing_ghz, above=0.0)
    return 10.0 * np.log10(drop(spacing, check("fwhm_ghz", fwhm, above=0.0), 1.0))


def settling_us(hop_ghz: ArrayLike, *, tau_us: ArrayLike, tolerance_ghz: ArrayLike) -> NDArray[np.float64]:
    """First-order settling tau ln(|hop| / tolerance) after one step of power; 0 within tolerance. [us]"""
    hop = np.abs(check("hop_ghz", hop_ghz))
    tolerance = check("tolerance_ghz", tolerance_ghz, above=0.0)
    return check("tau_us", tau_us, above=0.0) * np.log(np.maximum(hop / tolerance, 1.0))


def bus_power(
    drop_fraction: NDArray[np.float64], through_fraction: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Power of each line at the drop port of each ring of a bus, rings met in order.

    Parameters
    ----------
    drop_fraction, through_fraction : [..., rings, lines]
        Response of each ring to each line.

    Returns
    -------
    [..., rings, lines]
        Fractions of the power at the head of the bus: what the rings before have taken is gone.
    """
    arriving = np.ones_like(through_fraction)
    np.cumprod(through_fraction[..., :-1, :], axis=-2, out=arriving[..., 1:, :])
    return arriving * drop_fraction
