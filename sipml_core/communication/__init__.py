"""Communication libraries: what a collective costs by its kind, its ranks and the size of its message.

In: a `CollectiveCall`. Out: its `CollectiveCost`.
Imports `plugin` and what is below it; each file only when something of it is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.communication.ideal import Ideal
    from sipml_core.communication.nccl import Nccl

__getattr__ = files_when_asked(__name__, {"ideal": ("Ideal",), "nccl": ("Nccl",)})

__all__ = ["Ideal", "Nccl"]
