"""Forms in which one strategy can run on a network, the fastest of which is taken."""

from __future__ import annotations

import attrs

from sipml_core.model import Fabric, Placement, Plan


@attrs.frozen(kw_only=True, eq=False)
class Variant:
    """A case with everything decided: how groups exchange, where sub-ops are, how gradients are summed."""

    plan: Plan
    fabric: Fabric
    placement: Placement
    memory_bytes: float
    #: Servers in two tiers, or None for one flat ring.
    server_gpus: int | None

    @property
    def all_reduce(self) -> str:
        return "two-tier" if self.server_gpus else "flat"


def exchanges(fabric: Fabric, plan: Plan) -> list[str]:
    """Forms of exchange inside a group to choose from: on circuits both, unless all are neighbours anyway.

    With two devices they differ only where parts of a sum on one device leave together.
    """
    if plan.exchange != "auto":
        return [plan.exchange]
    return ["direct"] if fabric.circuits is None or plan.mp <= 2 else ["chain", "direct"]


def all_reduce_servers(fabric: Fabric, plan: Plan) -> list[int | None]:
    """Servers by which gradients are synchronised in two tiers, or None for one flat ring.

    Two tiers are possible where whole groups fill whole servers, and more than one server.
    """
    size = fabric.server_gpus
    if not size or size <= plan.mp or size % plan.mp or plan.gpus % size or plan.gpus == size:
        return [None]
    return [None, size]
