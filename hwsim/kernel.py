"""The only module that imports the extension; it turns status codes into `HwsimError`."""

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from hwsim._hwsim import ffi, lib
from hwsim.errors import HwsimError

__all__ = ["FAULTS", "FIELDS", "BankArrays", "CKernel"]

#: Fields a kernel can read, in the order of ``enum hwsim_field``.
FIELDS = (
    "shift_ghz",
    "power_mw",
    "energy_nj",
    "resonance_ghz",
    "detuning_ghz",
    "drop",
    "through",
    "locked",
    "since_us",
    "reachable",
)

#: States of a heater, in the order of ``enum hwsim_fault``.
FAULTS = ("healthy", "dead heater", "stuck")


@attrs.frozen(kw_only=True, eq=False)
class BankArrays:
    """A checked bank as numbers and arrays: the input of both kernels. Names as in ``hwsim.h``."""

    rings: int
    rings_per_port: int
    step_us: float
    lock_ghz: float
    unlock_ghz: float
    overdrive_gain: float
    loop_ticks: int
    loop_ratio: float
    dither_ghz: float
    capture: float
    compensate: bool
    crosstalk: NDArray[np.float64]
    tau_us: NDArray[np.float64]
    gain_ghz_per_mw: NDArray[np.float64]
    limit_mw: NDArray[np.float64]
    fsr_ghz: NDArray[np.float64]
    fwhm_ghz: NDArray[np.float64]
    peak_drop: NDArray[np.float64]
    drift_ghz_per_k: NDArray[np.float64]
    cold_ghz: NDArray[np.float64]
    calibration: NDArray[np.float64]
    law: NDArray[np.uint8]


def _checked(status: int) -> None:
    if status != lib.HWSIM_OK:
        raise HwsimError(ffi.string(lib.hwsim_strerror(status)).decode())


def _doubles(array: NDArray[np.float64]) -> Any:
    return ffi.from_buffer("double[]", np.ascontiguousarray(array, dtype=np.float64))


class CKernel:
    """A bank that lives in C."""

    def __init__(self, arrays: BankArrays) -> None:
        self._rings = arrays.rings
        config = ffi.new("hwsim_config *")
        rings = ffi.new("hwsim_rings *")
        crosstalk = _doubles(arrays.crosstalk)
        for name in attrs.fields_dict(BankArrays):
            if hasattr(config, name) and name != "crosstalk":
                setattr(config, name, getattr(arrays, name))
        config.crosstalk_reach = len(arrays.crosstalk)
        config.crosstalk = crosstalk
        held = []  # the C struct keeps no reference to the arrays it points at
        for name, _ in ffi.typeof("hwsim_rings").fields:
            if name != "law":
                held.append(_doubles(getattr(arrays, name)))
                setattr(rings, name, held[-1])
        law = ffi.from_buffer("uint8_t[]", np.ascontiguousarray(arrays.law, dtype=np.uint8))
        rings.law = law
        out = ffi.new("hwsim_bank **")
        _checked(lib.hwsim_bank_new(config, rings, out))
        self._bank = ffi.gc(out[0], lib.hwsim_bank_free)

    @property
    def time_us(self) -> float:
        return float(lib.hwsim_bank_time_us(self._bank))

    @property
    def ambient_k(self) -> float:
        return float(lib.hwsim_bank_ambient_k(self._bank))

    def tune(self, rings: NDArray[np.int64], line_ghz: NDArray[np.float64]) -> None:
        index = ffi.from_buffer("int64_t[]", np.ascontiguousarray(rings, dtype=np.int64))
        _checked(lib.hwsim_bank_tune(self._bank, len(rings), index, _doubles(line_ghz)))

    def advance(self, dt_us: float) -> None:
        _checked(lib.hwsim_bank_advance(self._bank, dt_us))

    def set_ambient(self, offset_k: float, ramp_k_per_us: float) -> None:
        _checked(lib.hwsim_bank_set_ambient(self._bank, offset_k, ramp_k_per_us))

    def set_fault(self, ring: int, fault: int) -> None:
        _checked(lib.hwsim_bank_set_fault(self._bank, ring, fault))

    def set_lit(self, ring: int, lit: bool) -> None:
        _checked(lib.hwsim_bank_set_lit(self._bank, ring, int(lit)))

    def read(self, field: str) -> NDArray[np.float64]:
        out = np.empty(self._rings)
        buffer = ffi.from_buffer("double[]", out, require_writable=True)
        _checked(lib.hwsim_bank_read(self._bank, FIELDS.index(field), buffer, self._rings))
        return out
