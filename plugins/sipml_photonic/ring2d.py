"""SiP-Ring in two dimensions: every GPU is on a ring along its row and on one along its column."""

from __future__ import annotations

import math

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, each, option, parse_gbps, positive
from sipml_core.model import MAX_GPUS, Cluster, Fabric
from sipml_core.plugin import Topology, installed
from sipml_photonic.grid import Grid, checked_shape, grid_fabric, parts_of, shape_list
from sipml_photonic.parts import circuits_of, optional_us


@attrs.frozen(kw_only=True)
class SipRing2dOptions:
    shape: tuple[int, ...] | None = option(
        None, doc="rows, and GPUs in each, such as [8, 16]; left out: as near to a square as N allows",
        converter=attrs.converters.optional(shape_list),
        validator=attrs.validators.optional(each(between(2, MAX_GPUS))),
    )  # fmt: skip
    row_share: float = option(
        0.5, doc="part of a GPU's wavelengths that is on the ring of its row", validator=between(0, 1)
    )
    reach_hops: int | None = option(
        None, doc="neighbours a circuit can reach along its ring, each way; left out: as of sip-ring",
        validator=attrs.validators.optional(at_least(1)),
    )  # fmt: skip
    channel_gbps: float | None = option(
        None, unit="Gbps", doc="one wavelength; left out: as of sip-ring",
        converter=attrs.converters.optional(parse_gbps), validator=attrs.validators.optional(positive),
    )  # fmt: skip
    interval_us: float | None = optional_us("time between plans; left out: as of sip-ring")
    reconfiguration_us: float | None = optional_us(
        "time a changed circuit is dark; left out: as of sip-ring", at_least(0)
    )
    latency_us: float | None = optional_us(
        "time a byte takes through one circuit; left out: as of sip-ring", at_least(0)
    )

    def __attrs_post_init__(self) -> None:
        if self.shape is not None and len(self.shape) != 2:
            raise ConfigError(f"shape must be two sizes, rows and GPUs in each, got {len(self.shape)}")


class SipRing2d(Topology):
    """K rows of N GPUs: K horizontal rings and N vertical ones, each planned for itself.

    A pair in the same row or column has circuits of that ring. Any other goes along the row to the column
    of its destination, whose GPU there forwards. What lies beyond the reach on a ring takes several circuits.
    """

    name = "sip-ring-2d"
    summary = "rings of fibres along the rows and columns of a grid, each planned as sip-ring"
    scheduler = "ring-fast"
    Options = SipRing2dOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        shape = checked_shape(options.shape, 2, cluster.gpus, "grid of rings")
        own = {
            name: getattr(options, name)
            for name in ("reach_hops", "channel_gbps", "interval_us", "reconfiguration_us", "latency_us")
            if getattr(options, name) is not None
        }
        ring = installed("topology", "sip-ring").Options(**own)
        wavelengths = math.floor(cluster.bandwidth_gbps / ring.channel_gbps * (1 + 1e-12))
        if wavelengths < 2:
            raise ConfigError(
                f"bandwidth_gbps must be at least two wavelengths of {ring.channel_gbps:g} Gbps "
                f"(channel_gbps), one for each ring of a GPU; got {cluster.bandwidth_gbps:g}"
            )
        in_row = min(max(round(wavelengths * options.row_share), 1), wavelengths - 1)
        counts = (wavelengths - in_row, in_row)
        controls = [
            circuits_of("sip-ring", size, count * ring.channel_gbps, **own)
            for size, count in zip(shape, counts, strict=True)
        ]
        grid = Grid(shape)
        told = (
            f"{shape[0]} rows of {shape[1]} GPUs; of {wavelengths} wavelengths {in_row} are on the ring "
            f"of the row, {wavelengths - in_row} on that of the column"
        )
        return grid_fabric(
            grid,
            parts_of(grid, controls),
            port_gbps=wavelengths * ring.channel_gbps,
            latency_us=ring.latency_us,
            reach=ring.reach_hops,
            notes=(told,),
        )
