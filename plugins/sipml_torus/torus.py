"""Torus: GPUs in a grid of any dimensions, each with a link to its neighbours, round and round."""

from __future__ import annotations

import math
from typing import Any

import attrs

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import at_least, between, each, one_of, option, parse_us
from sipml_core.model import MAX_GPUS, Cluster, Fabric
from sipml_core.plugin import Topology
from sipml_torus.lattice import Lattice, nearest_cube
from sipml_torus.wiring import Wiring

#: More have no names for their directions.
MAX_DIMENSIONS = 6


def sizes(value: Any) -> tuple[Any, ...]:
    """Return a list of sizes as a tuple; what is no list is refused."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"must be a list of sizes such as [4, 4, 8], got {shown(value)}")
    return tuple(value)


@attrs.frozen(kw_only=True)
class TorusOptions:
    shape: tuple[int, ...] | None = option(
        None, doc="GPUs along each dimension, such as [4, 4, 8]; left out: as near to a cube as N allows",
        converter=attrs.converters.optional(sizes),
        validator=attrs.validators.optional(each(between(1, MAX_GPUS))),
    )  # fmt: skip
    dimensions: int = option(3, doc="where shape is left out", validator=between(1, MAX_DIMENSIONS))
    routing: str = option(
        "spray",
        doc="over paths of the fewest links, dimension after dimension. spray: in every order of the "
        "dimensions, the same part of the bytes in each; hash: in one order for each pair, by a hash",
        validator=one_of("spray", "hash"),
    )
    hop_latency_us: float = option(
        0.0, doc="latency of one link", unit="us", converter=parse_us, validator=at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.shape is not None and len(self.shape) > MAX_DIMENSIONS:
            raise ConfigError(f"shape must have up to {MAX_DIMENSIONS} dimensions, got {len(self.shape)}")


class Torus(Topology):
    """Links of B / (2 D) with D dimensions; what GPUs forward takes nothing else of theirs."""

    name = "torus"
    summary = "torus of any dimensions without switches: links of B / (2 D) to the neighbours"
    Options = TorusOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        shape = options.shape
        if shape is None:
            shape = nearest_cube(cluster.gpus, options.dimensions)
            refuse_line(cluster.gpus, shape)
        check_product(shape, cluster.gpus)
        wiring = Wiring(Lattice.straight(shape), options.hop_latency_us, options.routing == "spray")
        notes = () if options.shape else (f"a torus of {' x '.join(map(str, shape))} GPUs",)
        return wiring.fabric(cluster, notes)


def check_product(shape: tuple[int, ...], gpus: int, near: tuple[int, ...] | None = None) -> None:
    """Refuse a shape that holds another number of GPUs than the cluster; `near` would be a right one."""
    if math.prod(shape) != gpus:
        text, near = " x ".join(map(str, shape)), near or nearest_cube(gpus, len(shape))
        other = f"shape = {list(near)}, or " if min(near) > 1 else ""
        raise ConfigError(
            f"topology.shape {text} holds {math.prod(shape)} GPUs, but cluster.gpus is {gpus}: give {other}"
            f"cluster.gpus = {math.prod(shape)}"
        )
    if gpus == 1:
        raise ConfigError("a torus needs at least 2 GPUs, got cluster.gpus = 1")


def refuse_line(gpus: int, shape: tuple[int, ...]) -> None:
    """Refuse a shape that was not given and is a single ring, where more dimensions were asked for."""
    if len(shape) > 1 and shape[-2] == 1:
        near = [n for n in range(max(4, gpus - 2), gpus + 3) if n != gpus and nearest_cube(n, 2)[0] > 1]
        allowed = sorted(sorted(near or [4], key=lambda n: (abs(n - gpus), n))[:2])
        if gpus == 1:
            raise ConfigError("a torus needs at least 2 GPUs, got cluster.gpus = 1")
        raise ConfigError(
            f"{gpus} GPUs make no torus of {len(shape)} dimensions, only a ring; nearest: "
            f"cluster.gpus = {' or '.join(map(str, allowed))}, or give shape = [{gpus}]"
        )
