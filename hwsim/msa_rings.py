"""Ring designs for the three spans of the CW-WDM MSA, by name or by the grid at hand."""

from hwsim.design import RingDesign
from hwsim.errors import HwsimError, check, choice
from hwsim.grid import WdmGrid
from hwsim.optics import fsr_ghz

__all__ = ["RADIUS_UM", "ring_design", "ring_of_radius"]

#: Radius of the rings for each span. [um] With a group index of 4.2, as `hwsim.optics.fsr_nm` assumes, the
#: free spectral range lambda^2 / (n_g 2 pi R) at 1310 nm leaves a guard of at least 18 % over lines x
#: spacing, so that a few per cent of error in the group index do not make a ring answer to two lines:
#:
#: * 5.0 um: 13.0 nm, 2272 GHz, for 9 nm, 1600 GHz. The ring of `RingDesign`.
#: * 3.0 um: 21.7 nm, 3787 GHz, for 18 nm, 3200 GHz. Silicon wires can be bent below 5 um, with ranges above
#:   20 nm: Bogaerts et al., Laser & Photonics Reviews 6, 47 (2012).
#: * 1.5 um: 43.4 nm, 7574 GHz, for 36 nm, 6400 GHz. Made: Xu, Fattal and Beausoleil, Silicon microring
#:   resonators with 1.5-um radius, Optics Express 16, 4309 (2008).
RADIUS_UM = {"9nm": 5.0, "18nm": 3.0, "36nm": 1.5}

#: Heater efficiency of a ring of 5 um, see `RingDesign`. [GHz/mW] That of others goes with 1 / R, as the
#: range does, so that a free spectral range takes 25 mW whatever the radius; the source of `RingDesign`
#: gives 20-30 mW for a range. Derived: the heat is the same, the ring that it warms is shorter.
_EFFICIENCY_AT_5_UM = 90.0
#: Least heat that holds a ring on its line, see `RingDesign`. [GHz]
_BIAS_GHZ = 200.0


def ring_of_radius(radius_um: float, *, grid: WdmGrid) -> RingDesign:
    """Return the design of circular rings of one radius for the lines of `grid`.

    The heater's 30 mW move a resonance by 1.19 free spectral ranges, so some order of it reaches any line.
    A ring is made at least one spacing above its line: it can then be parked half a spacing above it.

    >>> from hwsim.grid import GRIDS
    >>> ring = ring_of_radius(2.5, grid=GRIDS["cw-wdm-9nm-8x200"])
    >>> round(ring.fsr_ghz), ring.efficiency_ghz_per_mw, ring.bias_ghz
    (4544, 180.0, 200.0)
    """
    radius = float(check("radius_um", radius_um, above=0.0))
    return RingDesign(
        fsr_ghz=fsr_ghz(radius_um=radius),
        efficiency_ghz_per_mw=_EFFICIENCY_AT_5_UM * (5.0 / radius),
        bias_ghz=max(_BIAS_GHZ, float(grid.spacing_ghz)),
    )


def ring_design(grid: WdmGrid, name: str | None = None) -> RingDesign:
    """Return the ring design of that name, or else the largest rings whose free spectral range holds `grid`.

    Raises
    ------
    HwsimError
        When there is no such name, or when no design is wide enough.

    Examples
    --------
    >>> from hwsim.grid import GRIDS
    >>> for name in ("cw-wdm-9nm-16x100", "cw-wdm-18nm-8x400", "cw-wdm-36nm-32x200"):
    ...     print(round(ring_design(GRIDS[name]).fsr_ghz))
    2272
    3787
    7574
    """
    if name is not None:
        return ring_of_radius(RADIUS_UM[choice("design", name, tuple(RADIUS_UM))], grid=grid)
    for radius_um in RADIUS_UM.values():
        if fsr_ghz(radius_um=radius_um) >= grid.span_ghz:
            return ring_of_radius(radius_um, grid=grid)
    widest_ghz = fsr_ghz(radius_um=min(RADIUS_UM.values()))
    raise HwsimError(
        f"no ring design holds {grid.name}: its {grid.lines} lines span {grid.span_ghz:g} GHz, the widest "
        f"free spectral range is {widest_ghz:.0f} GHz; give a RingDesign with a wider one"
    )
