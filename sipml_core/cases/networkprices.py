"""What a network gives a GPU to send, as prices by which ops are cut."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Fabric, Plan, Prices

#: Prices that differ by less, relative, count as one.
_EQUAL = 1e-9


def network_prices(fabric: Fabric, plan: Plan, gpu_gbps: float) -> Prices:
    """Return what the fabric gives a GPU that sends to all of its group, and to its counterpart, at once.

    Pairs of the first group, and all counterparts, send equally at the same time; a link that they share
    divides its capacity. What circuits will be given to a pair is not known yet: there only the ports count.
    """
    return _prices(fabric, plan, gpu_gbps, alone=False)


def layout_prices(fabric: Fabric, plan: Plan, gpu_gbps: float) -> tuple[Prices, ...]:
    """Return the prices by which ops may be cut: those of all GPUs at once first, up to those of the port.

    How many of the GPUs on a link send at the same time is known only once a layout has run. So a GPU may
    also get what its routes carry if it sends alone, or all that its port does. Where no link is shared that
    is one price.
    """
    usual = network_prices(fabric, plan, gpu_gbps)
    if min(usual.group_gbps, usual.replica_gbps) >= gpu_gbps * (1 - _EQUAL):
        return (usual,)
    alone, port = _prices(fabric, plan, gpu_gbps, alone=True), Prices.flat(gpu_gbps)
    return (usual, *(each for each, before in ((alone, usual), (port, alone)) if _differ(each, before)))


def price_note(prices: Prices, usual: Prices) -> str:
    """Return how prices differ from those of all GPUs at once; nothing if they do not.

    >>> usual = Prices(group_gbps=512.0, replica_gbps=50.0)
    >>> price_note(Prices(group_gbps=512.0, replica_gbps=400.0), usual)
    'ops are cut as if a GPU had 400 Gbps for gradients, not the 50 Gbps of all GPUs at once'
    >>> price_note(usual, usual)
    ''
    """
    kinds = (
        (prices.group_gbps, usual.group_gbps, "inside its group"),
        (prices.replica_gbps, usual.replica_gbps, "for gradients"),
    )
    other = [(gbps, before, what) for gbps, before, what in kinds if abs(gbps - before) > _EQUAL * before]
    if not other:
        return ""
    mine = " and ".join(f"{gbps:.4g} Gbps {what}" for gbps, _, what in other)
    all_at_once = " and ".join(f"{before:.4g}" for _, before, _ in other)
    return f"ops are cut as if a GPU had {mine}, not the {all_at_once} Gbps of all GPUs at once"


def _differ(prices: Prices, other: Prices) -> bool:
    """Return whether prices differ by more than rounding.

    >>> _differ(Prices.flat(400.0), Prices.flat(400.0 + 1e-12))
    False
    """
    return not np.allclose(attrs.astuple(prices), attrs.astuple(other), rtol=_EQUAL, atol=0)


def _prices(fabric: Fabric, plan: Plan, gpu_gbps: float, *, alone: bool) -> Prices:
    """Return the prices of GPUs that all send at once, or of the worst of those that send one by one."""
    # GPU at each position, and GPU of each device of each replica. [gpus], [dp, replica]
    gpu_at = np.arange(plan.gpus, dtype=np.int32) if fabric.hints.order is None else fabric.hints.order
    gpu_of = gpu_at[plan.positions]
    group = gpu_of[0, : plan.mp]
    src, dst = (ends.reshape(-1) for ends in np.meshgrid(group, group, indexing="ij"))
    inside = src != dst
    peer_gbps = _pair_gbps(fabric, src[inside], dst[inside], gpu_gbps, alone=alone)
    counterparts = gpu_of.reshape(-1), np.roll(gpu_of, -1, axis=0).reshape(-1)
    return Prices(
        group_gbps=min(gpu_gbps, max(plan.mp - 1, 1) * peer_gbps),
        replica_gbps=min(gpu_gbps, _pair_gbps(fabric, *counterparts, gpu_gbps, alone=alone)),
    )


def _pair_gbps(
    fabric: Fabric, src: NDArray[np.int32], dst: NDArray[np.int32], unlimited_gbps: float, *, alone: bool
) -> float:
    """Return what each pair gets, at least, where all send equally, or `alone` those of one GPU. [Gbps]"""
    if not len(src) or (src == dst).any():
        return unlimited_gbps
    routes = fabric.route(src, dst).flat()
    assert routes.start is not None
    fixed = routes.links < fabric.fixed_links
    links, weight = routes.links[fixed], np.asarray(routes.weight)[fixed]
    if alone:
        # Sender of each link on a route; each sender has a copy of every link for itself.
        sender = np.repeat(src.astype(np.int64), np.diff(routes.start))[fixed]
        own, links = np.unique(sender * fabric.fixed_links + links, return_inverse=True)
        link_gbps = fabric.link_gbps[own % fabric.fixed_links]
    else:
        link_gbps = fabric.link_gbps[: fabric.fixed_links]
    load = np.bincount(links, weights=weight, minlength=len(link_gbps))
    used = load > 0
    return float((link_gbps[used] / load[used]).min(initial=unlimited_gbps))
