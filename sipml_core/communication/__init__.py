"""Communication libraries: what a collective costs by its kind, its ranks and the size of its message.

In: a `CollectiveCall`. Out: its `CollectiveCost`.
Imports `plugin` and what is below it.
"""

from sipml_core.communication.ideal import Ideal
from sipml_core.communication.nccl import Nccl
from sipml_core.plugin import Communication

LIBRARIES: tuple[type[Communication], ...] = (Ideal, Nccl)

__all__ = ["LIBRARIES", "Ideal", "Nccl"]
