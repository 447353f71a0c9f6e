"""Which devices of a group may talk: what degree and reach of a circuit network leave to MP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.model import BalancedGraph, PlacementLimits, Plan


def placement_limits(
    devices: int,
    dp: int,
    degree: int | None = None,
    reach_hops: int | None = None,
    *,
    ring_peers: int = 1,
    stage_peers: int = 0,
    block_peers: int = 0,
    chain: bool = False,
    forwarding: bool = True,
) -> PlacementLimits:
    """Return the limits of a group of `devices` GPUs, a stage of one of `dp` replicas (section 3.2, ii).

    Circuits to neighbouring stages (`stage_peers`) and to replicas that share experts or sequences
    (`block_peers`) come first. With replicas, one circuit of the degree
    goes to the counterpart in the next group (or two, to both neighbours: `ring_peers`), and the rest is
    left for peers. If they do not cover the group, devices may talk up to floor(peers / 2) apart on the
    circle of the group, which gives each at most that many peers.

    On a ring, groups lie one after the other, so a counterpart is `devices` hops away and must be
    within reach; then so is every pair of a group. A single group is the whole ring, and its
    circle is the ring's.

    Parameters
    ----------
    devices
        GPUs of a group, k (the MP degree).
    dp
        Groups, l.
    degree
        Peers that a GPU may hold circuits to, D; None: any number.
    reach_hops
        Ring neighbours on either side that a circuit can span; None: not a ring.
    chain
        Devices talk to their neighbours only, wherever sub-ops sit (`chains`): the degree must leave two
        peers, and neither it nor the reach is a limit beyond.
    ring_peers
        Counterparts that a GPU sends gradients to, if there are replicas: 1, or 2 both ways round.
    stage_peers
        GPUs of other pipeline stages that a GPU talks to.
    block_peers
        GPUs of other replicas that a GPU exchanges rows of experts, keys and values with.
    forwarding
        False: a refusal may name it as a remedy, for fewer such peers.

    Raises
    ------
    InfeasibleError
        The counterpart is out of reach, or no peer is left for MP.
    """
    for name, value in (("devices", devices), ("dp", dp), ("degree", degree), ("reach_hops", reach_hops)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    if reach_hops is not None and dp > 1 and devices > reach_hops and not stage_peers + block_peers:
        raise InfeasibleError(
            f"mp={devices} with dp={dp} puts the next replica {devices} hops away on the ring, "
            f"but reach_hops is {reach_hops}; the largest mp is {reach_hops}"
        )
    taken = {
        f"for the ring of dp={dp} replicas": ring_peers if dp > 1 else 0,
        "for neighbouring pipeline stages": stage_peers,
        "for replicas that share experts or sequences": block_peers,
    }
    instead = ", or forwarding = true" if block_peers and not forwarding else ""
    by_degree = _degree_range(devices, degree, taken, instead)
    ranges = [] if chain else [by_degree, _reach_range(devices, dp, reach_hops)]
    known = [hops for hops in ranges if hops is not None]
    return PlacementLimits(devices=devices, range_hops=min(known) if known else None)


def _degree_range(devices: int, degree: int | None, taken: Mapping[str, int], instead: str) -> int | None:
    """Return how far devices may talk with what others leave of the degree; `taken`: peers by their use."""
    if degree is None:
        return None
    peers = degree - sum(taken.values())
    if peers >= devices - 1:
        return None
    if peers < 2:
        needed = min(2, devices - 1)
        uses = [f"{count} {what}" for what, count in taken.items() if count]
        uses[:1] = [use.replace(" ", " of it ", 1) for use in uses[:1]]
        shared = f", {' and '.join(uses)}," if uses else ""
        remedy = f"the largest mp is {peers + 1}" if peers >= 0 else f"it takes {degree - peers + needed}"
        group = f"mp={devices} needs two peers for each GPU at least, but " if needed else ""
        raise InfeasibleError(f"{group}degree {degree}{shared} leaves {peers}; {remedy}{instead}")
    return peers // 2


def expert_grid(ranks: int, peers: int, stride: int = 1, reach_hops: int | None = None) -> tuple[int, ...]:
    """Return the grid over which so many GPUs send each other rows, each to at most so many peers.

    Of grids of fewest axes the one of fewest peers; where no grid does with so many peers, that of fewest.

    Parameters
    ----------
    ranks
        GPUs that all send to each other, e.
    peers
        At most; all ranks - 1 of them if that many are allowed.
    stride
        GPUs from one rank to the next on a ring.
    reach_hops
        Ring neighbours on either side that a circuit can span; None: not a ring.

    Examples
    --------
    >>> expert_grid(64, 70), expert_grid(64, 14), expert_grid(64, 13), expert_grid(7, 2)
    ((64,), (8, 8), (4, 4, 4), (7,))

    On a ring with reach 16 a GPU passes on along columns of stride 8, to two on either side:

    >>> expert_grid(64, 14, reach_hops=16), grid_peers((8, 8), 1, 16)
    ((8, 8), 11)
    """
    best: tuple[int, ...] = (ranks,)
    for axes in range(1, ranks.bit_length() + 1):
        shapes = list(_factorisations(ranks, axes))
        if not shapes:
            break
        found = min(shapes, key=lambda shape: (grid_peers(shape, stride, reach_hops), shape))
        if grid_peers(found, stride, reach_hops) < grid_peers(best, stride, reach_hops) or axes == 1:
            best = found
        if grid_peers(best, stride, reach_hops) <= peers:
            break
    return best


def _factorisations(number: int, factors: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as a product of so many factors of at least 2, or as itself.

    >>> list(_factorisations(12, 2))
    [(2, 6), (3, 4), (4, 3), (6, 2)]
    """
    if factors == 1:
        yield (number,)
        return
    for first in range(2, number // 2 + 1):
        if number % first == 0:
            for rest in _factorisations(number // first, factors - 1):
                if rest[-1] > 1:
                    yield (first, *rest)


def grid_peers(shape: tuple[int, ...], stride: int = 1, reach_hops: int | None = None) -> int:
    """Return with how many others a GPU of a grid exchanges directly; all, where there is one axis."""
    if len(shape) == 1 or reach_hops is None:
        return sum(length - 1 for length in shape)
    found = 0
    for length in reversed(shape):
        within = length - 1 if stride * (length - 1) <= reach_hops else 2 * max(reach_hops // stride, 1)
        found += min(length - 1, within) if stride <= reach_hops else within
        stride *= length
    return found


def check_reach(plan: Plan, reach_hops: int | None) -> None:
    """Refuse a plan with stages whose neighbours along a degree are out of reach on a ring.

    Parameters
    ----------
    reach_hops
        Ring neighbours on either side that a circuit can span; None: not a ring.

    Raises
    ------
    InfeasibleError
        The message has the distances along all degrees and the reach that the plan takes.

    Examples
    --------
    >>> check_reach(Plan(mp=4, pp=4, dp=2, global_batch=2), reach_hops=16)
    """
    if reach_hops is None or (plan.pp == 1 and plan.block == 1):
        return
    place = plan.positions.reshape(plan.replicas, plan.pp, plan.mp).astype(np.int64)
    circle = plan.chunks > 1
    steps = (
        np.diff(place, axis=2),
        np.roll(place, -1, axis=1) - place if circle else np.diff(place, axis=1),
        np.roll(place, -1, axis=0) - place,
    )
    group, stage, replica = (int(_around(step, plan.gpus).max(initial=0)) for step in steps)
    block = place.reshape(-1, plan.block, plan.pp, plan.mp)
    exchanged = int(_around(block - block[:, :1], plan.gpus).max(initial=0))
    needed = max(group, stage, replica, exchanged)
    if needed <= reach_hops:
        return
    degrees = [f"{name}={getattr(plan, name)}" for name in ("mp", "cp", "ep", "pp", "dp")]
    shown = [each for each in degrees if each[:2] in ("mp", "pp", "dp") or plan.block > 1]
    shares = f", of the furthest that shares sequences or experts {exchanged}" if plan.block > 1 else ""
    raise InfeasibleError(
        f"{', '.join(shown)}: on the ring the next GPU of a group is {group}, of the next stage {stage}, of "
        f"the next replica {replica}{shares} hops away, but reach_hops is {reach_hops}; it takes {needed}, "
        "or forwarding = true"
    )


def _around(step: NDArray[np.int64], gpus: int) -> NDArray[np.int64]:
    """Return the shorter way round a ring of `gpus` GPUs."""
    return np.asarray(np.minimum(step % gpus, -step % gpus))


def _reach_range(devices: int, dp: int, reach_hops: int | None) -> int | None:
    if reach_hops is None or dp > 1 or reach_hops >= devices // 2:
        return None
    return reach_hops


def hops_between(devices: int) -> NDArray[np.int64]:
    """Return distances on a circle of devices. [devices, devices]"""
    index = np.arange(devices)
    around = (index[:, None] - index[None, :]) % devices
    return np.asarray(np.minimum(around, devices - around), dtype=np.int64)


def reach_table(limits: PlacementLimits) -> NDArray[np.bool_]:
    """Return which device may talk to which, itself included. [devices, devices]"""
    hops = hops_between(limits.devices)
    return np.ones_like(hops, dtype=np.bool_) if limits.range_hops is None else hops <= limits.range_hops


def broken_edges(
    graph: BalancedGraph, device: NDArray[np.int32], limits: PlacementLimits
) -> NDArray[np.int64]:
    """Return data edges whose ends sit on devices that may not talk. [broken edges]"""
    allowed = reach_table(limits)[device[graph.edge_src], device[graph.edge_dst]]
    return np.flatnonzero(~allowed)
