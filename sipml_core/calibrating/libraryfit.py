"""Constants of NCCL's model fitted to measured collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sipml_core.calibrating.descent import fitted
from sipml_core.calibrating.measurements import MeasuredCall
from sipml_core.communication import Nccl
from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import CollectiveCall

#: What calls of each kind can tell.
_TOLD_BY = {
    "ring": ("ll_base_us", "ll_hop_us"),
    "sum": ("reduce_base_us", "reduce_hop_us"),
    "copy": ("simple_base_us", "simple_hop_us", "copy_gbytes_per_s"),
    "switch": ("switch_base_us", "switch_efficiency"),
    "send": ("send_base_us", "send_efficiency"),
}
_SENDS = ("all_to_all", "send")


@frozen(kw_only=True)
class LibraryFit:
    """Fitted constants of [communication], and how far each measurement is from them."""

    #: Those that the measurements tell something of; the others keep their defaults.
    options: Mapping[str, float]
    #: Predicted over measured, less 1. [calls]
    residuals: tuple[float, ...]


def fit_library(
    calls: Sequence[MeasuredCall], *, gbps: float, servers: int = 1, switches_add: bool = False
) -> LibraryFit:
    """Return constants with the least squares of logarithms of predicted over measured times.

    Parameters
    ----------
    gbps
        What a GPU can send at: NVLink in one server, its part of the network cards over several. [Gbps]
    servers
        Over which the ranks are spread.
    switches_add
        Switches may add up all-reduces: the library takes that where it is faster.
    """
    if not calls:
        raise ConfigError("there are no collectives to fit [communication] to")
    names = _constants(calls, servers, switches_add)
    defaults = {name: float(getattr(Nccl.Options(), name)) for name in names}
    most = {name: 1.0 for name in names if name.endswith("efficiency")}

    def residuals(options: Mapping[str, Any]) -> list[float]:
        library = Nccl(Nccl.Options(**options))
        return [predicted_us(library, call, gbps, servers, switches_add) / call.time_us - 1 for call in calls]

    def loss(options: Mapping[str, float]) -> float:
        # Softened: a few wild times count in proportion, not by their square.
        logs = np.log1p(residuals(options)) / 0.1
        return float(np.sqrt(1 + logs**2).sum())

    found = fitted(defaults, most, loss)
    options = {name: float(f"{value:.4g}") for name, value in found.items()}
    return LibraryFit(options=options, residuals=tuple(residuals(options)))


def _constants(calls: Sequence[MeasuredCall], servers: int, switches_add: bool) -> list[str]:
    """Return the constants that calls of these kinds depend on."""
    kinds = {call.kind for call in calls}
    names: list[str] = []
    if kinds - set(_SENDS):
        names += _TOLD_BY["ring"]
    if "all_reduce" in kinds:
        names += _TOLD_BY["sum"]
    if kinds - {*_SENDS, "all_reduce"}:
        names += _TOLD_BY["copy"]
    if len({call.ranks for call in calls if call.kind not in _SENDS}) < 2:
        # With one number of ranks hops cannot be told from what all calls take: the smaller part stays.
        names = [name for name in names if name not in ("ll_hop_us", "simple_hop_us", "reduce_base_us")]
    if switches_add and "all_reduce" in kinds:
        names += _TOLD_BY["switch"]
    if kinds & set(_SENDS):
        names += _TOLD_BY["send"]
    if kinds - set(_SENDS):
        # After what calls take to start, or it would stand in for that.
        names.append("ring_efficiency")
    if servers > 1:
        names = [name for name in names if name not in ("ring_efficiency", "send_efficiency")]
        names.append("network_efficiency")
    return names


def predicted_us(library: Nccl, call: MeasuredCall, gbps: float, servers: int, switches_add: bool) -> float:
    """Return what a call takes on an idle network: the faster of a ring and the switch. [us]"""
    found = []
    for in_network in (False, True) if switches_add and call.kind == "all_reduce" else (False,):
        asked = CollectiveCall(
            kind=call.kind, ranks=call.ranks, size_bytes=call.size_bytes, gbps=gbps, servers=servers,
            in_network=in_network,
        )  # fmt: skip
        cost = library.cost(asked)
        found.append(cost.startup_us + cost.wire_factor * asked.rank_bytes * 8e-3 / gbps)
    return min(found)
