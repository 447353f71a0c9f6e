"""hwsim: micro-ring resonators and TeraPHY ports, microsecond by microsecond.

Useful alone, and the source of the reconfiguration time that a ring of silicon-photonic ports pays. See
``docs/hwsim.md``.
"""

from hwsim.bank import RingBank
from hwsim.design import ControlLaw, RingDesign
from hwsim.errors import HwsimError
from hwsim.grid import GRIDS, WdmGrid

__all__ = ["GRIDS", "ControlLaw", "HwsimError", "RingBank", "RingDesign", "WdmGrid"]
