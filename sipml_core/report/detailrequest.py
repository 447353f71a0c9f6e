"""What of a run's details a command was asked for."""

from __future__ import annotations

from pathlib import Path

from sipml_core.details import Selection
from sipml_core.fields import frozen


@frozen(kw_only=True)
class DetailRequest:
    """What of a run's details is written, and where: the tables, a trace, or both."""

    #: Folder that gets a folder for each case; None: no tables.
    folder: Path | None
    #: Name of the trace; with several cases each is added to it. None: no trace.
    trace: Path | None
    selection: Selection
    #: Of all tables, and of all traces. [bytes]
    limit_bytes: float

    @property
    def wanted(self) -> bool:
        """Return whether anything is to be written."""
        return self.folder is not None or self.trace is not None
