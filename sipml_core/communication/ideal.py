"""The paper's library: bytes at the bandwidth of the links, and nothing else."""

from __future__ import annotations

from sipml_core.model import CollectiveCall, CollectiveCost
from sipml_core.plugin import Communication


class Ideal(Communication):
    """No start-up, and the whole bandwidth at every size of message."""

    name = "ideal"
    summary = "no start-up, the whole bandwidth at every size of message (the paper)"
    free = True

    def cost(self, call: CollectiveCall) -> CollectiveCost:
        """See `Communication.cost`."""
        return CollectiveCost()
