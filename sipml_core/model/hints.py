"""What placement and collectives may know of a network beside its links, and what reports call things."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, frozen, int32_vector


@frozen(kw_only=True, eq=False)
class FabricHints:
    """What helps to use a network well. None of it changes what the network carries.

    >>> FabricHints(tiers=(("server", 8), ("rack", 32))).server_gpus
    8
    """

    #: Peers a GPU can talk to at one moment; None: all of them.
    degree: int | None = attrs.field(default=None, validator=attrs.validators.optional(at_least(1)))
    #: Largest distance |i - j| on a circle of N between GPUs that can talk; None: any.
    reach_hops: int | None = attrs.field(default=None, validator=attrs.validators.optional(at_least(1)))
    #: GPU at each position along which groups are laid out (a permutation of 0 .. N-1); None: by number.
    order: NDArray[np.int32] | None = attrs.field(
        default=None, converter=attrs.converters.optional(int32_vector)
    )
    #: Nested units that are faster inside than across: name and GPUs of each, the innermost first. GPUs i
    #: and j share a unit of n GPUs if i // n == j // n; the last unit may hold fewer.
    tiers: tuple[tuple[str, int], ...] = ()
    #: Switches add up what passes through them, so that an all-reduce may be done in the network; where
    #: there are units, only those inside the innermost do.
    switches_add: bool = False
    #: Sizes of a torus that the GPUs form, numbered with the last dimension fastest: lines along a dimension
    #: are rings, each of links (or circuits) that no other line needs. Empty: they form none.
    torus: tuple[int, ...] = ()
    #: GPUs may send or receive more than `cluster.bandwidth_gbps`, on purpose: noted, not refused.
    above_bandwidth: bool = False

    def __attrs_post_init__(self) -> None:
        if self.order is not None and sorted(self.order.tolist()) != list(range(len(self.order))):
            raise ConfigError(f"order must be a permutation of 0..{len(self.order) - 1}")
        inner = 1
        for name, gpus in self.tiers:
            if gpus < 1 or gpus % inner:
                raise ConfigError(
                    f"tiers must be nested, the innermost first: {name!r} has {gpus} GPUs, which is no "
                    f"multiple of {inner}"
                )
            inner = gpus

    @property
    def server_gpus(self) -> int | None:
        """GPUs of the innermost unit; None: there are no units."""
        return self.tiers[0][1] if self.tiers else None


@frozen(kw_only=True, eq=False)
class FabricWords:
    """What reports and messages say of a network."""

    #: Names of fixed links: one for each, or a function of the id.
    link_names: tuple[str, ...] | Callable[[int], str] = ()
    #: What a user should know of how the request was met, e.g. a bandwidth rounded down.
    notes: tuple[str, ...] = ()

    def link_name(self, link: int) -> str:
        """The name of a fixed link."""
        if callable(self.link_names):
            return self.link_names(link)
        return self.link_names[link] if link < len(self.link_names) else f"link {link}"
