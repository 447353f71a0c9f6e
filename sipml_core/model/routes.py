"""What pairs of GPUs cross on their way."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import float64_vector, int64_matrix

#: Links on one route, at most.
MAX_ROUTE_LINKS = 8

#: No link in this column of a route table.
NO_LINK = -1

PairArray = NDArray[np.int32]


@attrs.frozen(kw_only=True, eq=False)
class Routes:
    """What pairs cross on their way. Row i belongs to the i-th pair asked for."""

    #: Link ids, padded with NO_LINK; only NO_LINK: the pair cannot talk. [pairs, <= MAX_ROUTE_LINKS]
    links: NDArray[np.int64] = attrs.field(converter=int64_matrix)
    #: [pairs] [us]
    latency_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
