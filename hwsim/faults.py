"""What can break in a port. Each fault is applied to a port when it is injected, and is logged."""

from typing import ClassVar, Protocol

import attrs

from hwsim.errors import choice, whole, within

__all__ = ["SIDES", "AmbientRamp", "Breakable", "DeadHeater", "Fault", "MissingLine", "StuckRing"]

#: Transmitting and receiving rings, in the order of every array whose first axis is the side.
SIDES = ("tx", "rx")


class Breakable(Protocol):
    """What a fault may do to a port; `hwsim.TeraPhy` is one."""

    def break_heater(self, side: str, macro: int, slot: int, state: str) -> None:
        """Put one heater in one of the states of `hwsim.RingBank.set_heater`."""

    def lose_line(self, line: int) -> None:
        """Put a laser line out."""

    def ramp_ambient(self, k_per_ms: float) -> None:
        """Let the ambient change at a steady rate from now on. [K/ms]"""


class Fault(Protocol):
    """Anything that can be injected into a port."""

    def apply(self, port: Breakable) -> str:
        """Break something of `port` and return the line for its log."""
        ...


@attrs.frozen(kw_only=True)
class _HeaterFault:
    """A fault of one ring."""

    #: One of the states of `hwsim.RingBank.set_heater`.
    state: ClassVar[str]

    side: str = attrs.field(converter=lambda side: choice("side", side, SIDES))
    macro: int = attrs.field(converter=lambda n: whole("macro", n, at_least=0))
    slot: int = attrs.field(converter=lambda n: whole("slot", n, at_least=0))

    def apply(self, port: Breakable) -> str:
        """Break the heater and return the line for the log."""
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

    def apply(self, port: Breakable) -> str:
        """Put the line out and return the line for the log."""
        port.lose_line(self.line)
        return f"laser line {self.line} missing"


@attrs.frozen(kw_only=True)
class AmbientRamp:
    """An ambient that warms or cools at a steady rate, until another ramp is injected."""

    #: [K/ms]
    k_per_ms: float = attrs.field(validator=within())

    def apply(self, port: Breakable) -> str:
        """Start the ramp and return the line for the log."""
        port.ramp_ambient(self.k_per_ms)
        return f"ambient changes by {self.k_per_ms:g} K/ms"
