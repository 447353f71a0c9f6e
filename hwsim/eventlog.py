"""What happened in a port, and when."""

from collections.abc import Iterator

import attrs

__all__ = ["Event", "EventLog"]


@attrs.frozen(kw_only=True)
class Event:
    """One entry of the log."""

    #: Since the port was made. [us]
    time_us: float
    #: 'tx 3.5' for side, macro and slot of a wavelength; 'rx 3' for a macro; 'port'.
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.time_us:10.2f} us  {self.where:<9} {self.what}"


class EventLog:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, time_us: float, where: str, what: str) -> None:
        """Append one event."""
        self._events.append(Event(time_us=time_us, where=where, what=what))

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def at(self, where: str) -> tuple[Event, ...]:
        """Return the events of one place."""
        return tuple(event for event in self._events if event.where == where)

    def __str__(self) -> str:
        return "\n".join(str(event) for event in self._events)
