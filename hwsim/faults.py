"""What can break in a port. Each fault strikes a `hwsim.phy.TeraPhy` when it is injected, and is logged."""

from typing import TYPE_CHECKING, ClassVar

import attrs

from hwsim.errors import choice, whole, within

if TYPE_CHECKING:
    from hwsim.phy import TeraPhy

__all__ = ["SIDES", "AmbientRamp", "DeadHeater", "MissingLine", "StuckRing"]

#: Transmitting and receiving rings, in the order of every array whose first axis is the side.
SIDES = ("tx", "rx")


@attrs.frozen(kw_only=True)
class _HeaterFault:
    """A fault of one ring."""

    #: One of the states of `hwsim.RingBank.set_heater`.
    state: ClassVar[str]

    side: str = attrs.field(converter=lambda side: choice("side", side, SIDES))
    macro: int = attrs.field(converter=lambda n: whole("macro", n, at_least=0))
    slot: int = attrs.field(converter=lambda n: whole("slot", n, at_least=0))

    def strike(self, port: "TeraPhy") -> str:
        """Break the heater; the line for the log."""
        port.break_heater(self.side, self.macro, self.slot, self.state)
        return f"{self.state} on {self.side} {self.macro}.{self.slot}"


@attrs.frozen(kw_only=True)
class DeadHeater(_HeaterFault):
    """A heater that gives no power: its ring cools to where it was made."""

    state = "dead heater"


@attrs.frozen(kw_only=True)
class StuckRing(_HeaterFault):
    """A heater that keeps the power it has: its ring follows no command."""

    state = "stuck"


@attrs.frozen(kw_only=True)
class MissingLine:
    """A laser line that goes out, in every macro."""

    line: int = attrs.field(converter=lambda n: whole("line", n, at_least=0))

    def strike(self, port: "TeraPhy") -> str:
        """Put the line out; the line for the log."""
        port.lose_line(self.line)
        return f"laser line {self.line} missing"


@attrs.frozen(kw_only=True)
class AmbientRamp:
    """An ambient that warms or cools at a steady rate, until another ramp is injected."""

    #: [K/ms]
    k_per_ms: float = attrs.field(validator=within())

    def strike(self, port: "TeraPhy") -> str:
        """Start the ramp; the line for the log."""
        port.bank.set_ambient(port.bank.ambient_k, ramp_k_per_ms=self.k_per_ms)
        return f"ambient changes by {self.k_per_ms:g} K/ms"
