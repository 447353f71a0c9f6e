"""What few plugins need: networks that are not shared, and circuits that are planned for a part of the whole.

See docs/plugins/advanced.md.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.fabric import Fabric


@frozen(kw_only=True, eq=False)
class UnsharedFabric(Fabric):
    """A fabric whose transfers do not share links: a run takes its lower bound, the ideal nothing beats."""


@runtime_checkable
class FoldableControl(Protocol):
    """A `CircuitControl` of which a part can stand for the whole, so that alike groups are simulated once."""

    def folded(self, image: NDArray[np.int32]) -> CircuitControl | None:
        """The part of this that stands for all where GPU g wants what GPU ``image[g]`` wants.

        Where it is not None, schedulers that are `TreatsAlike` plan it for the pairs whose sender
        comes first among its images, and give the pairs of `self`, if asked for all of them, the images
        of the same circuits. None: nothing stands for all under these images. [gpus]
        """


class TreatsAlike:
    """Marks a scheduler that gives GPUs that want the same the same, or an estimator that expects it.

    For an estimator: circuits between which the same was sent and waits are expected to be asked for the
    same. Only where scheduler and estimator both say so is a job on re-planned circuits folded.
    """
