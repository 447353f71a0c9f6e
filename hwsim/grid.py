"""Wavelength grids: the lines a laser offers to a port."""

import attrs
import numpy as np
from numpy.typing import NDArray

from hwsim.errors import choice, whole, within
from hwsim.optics import spacing_nm

__all__ = ["GRIDS", "WdmGrid", "grid_named"]


@attrs.frozen(kw_only=True)
class WdmGrid:
    """Equally spaced laser lines around a centre wavelength; a higher line has a higher frequency."""

    name: str
    lines: int = attrs.field(converter=lambda n: whole("WdmGrid.lines", n, at_least=1))
    #: Distance of neighbouring lines. [GHz]
    spacing_ghz: float = attrs.field(validator=within(above=0.0))
    #: Wavelength at the middle of the grid. [nm]
    center_nm: float = attrs.field(default=1310.0, validator=within(above=0.0))

    @property
    def line_ghz(self) -> NDArray[np.float64]:
        """Frequency of each line against the centre. [lines] [GHz]"""
        return (np.arange(self.lines) - 0.5 * (self.lines - 1)) * self.spacing_ghz

    @property
    def span_ghz(self) -> float:
        """Room the lines take, one spacing each; a free spectral range below it serves two lines. [GHz]"""
        return self.lines * self.spacing_ghz

    @property
    def span_nm(self) -> float:
        """The same in wavelength. [nm]"""
        return spacing_nm(self.span_ghz, wavelength_nm=self.center_nm)


def _cw_wdm(span_nm: int, lines: int, spacing_ghz: int) -> WdmGrid:
    return WdmGrid(name=f"cw-wdm-{span_nm}nm-{lines}x{spacing_ghz}", lines=lines, spacing_ghz=spacing_ghz)


#: O-band grids of the CW-WDM MSA, technical specification 1.0: spans of 9, 18 and 36 nm.
GRIDS = {
    grid.name: grid
    for grid in (
        _cw_wdm(9, 8, 200),
        _cw_wdm(9, 16, 100),
        _cw_wdm(18, 8, 400),
        _cw_wdm(18, 16, 200),
        _cw_wdm(18, 32, 100),
        _cw_wdm(36, 8, 800),
        _cw_wdm(36, 16, 400),
        _cw_wdm(36, 32, 200),
    )
}


def grid_named(grid: "str | WdmGrid") -> WdmGrid:
    """Return the grid itself, or the MSA grid of that name; `HwsimError` when there is none."""
    if isinstance(grid, WdmGrid):
        return grid
    return GRIDS[choice("grid", grid, tuple(GRIDS))]
