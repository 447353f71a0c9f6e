"""What a network gives a pair of GPUs, as far as partition and placement may know it."""

from __future__ import annotations

import attrs

from sipml_core.fields import frozen, positive


@frozen(kw_only=True)
class Prices:
    """Bandwidth of a pair of GPUs by what they are to each other. [Gbps]

    >>> Prices.flat(200.0)
    Prices(group_gbps=200.0, replica_gbps=200.0)
    """

    #: What a GPU gets to send to its peers inside one model-parallel group: activations.
    group_gbps: float = attrs.field(validator=positive)
    #: What a GPU gets to send to its counterparts in neighbouring replicas: gradients.
    replica_gbps: float = attrs.field(validator=positive)

    @classmethod
    def flat(cls, gbps: float) -> Prices:
        """Return the prices of a network that gives every pair the bandwidth of a GPU."""
        return cls(group_gbps=gbps, replica_gbps=gbps)
