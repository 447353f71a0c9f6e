"""SiP-OCS as a BCube: small optical switches along every dimension of a grid, GPUs between them."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, each, option, parse_us
from sipml_core.model import MAX_GPUS, Cluster, Fabric
from sipml_core.plugin import Topology
from sipml_photonic.grid import Grid, checked_shape, grid_fabric, parts_of, shape_list
from sipml_photonic.parts import circuits_of, interval, reconfiguration


@attrs.frozen(kw_only=True)
class SipOcsBcubeOptions:
    shape: tuple[int, ...] | None = option(
        None, doc="ports of the switches of each level, such as [16, 16]; left out: nearest to a cube",
        converter=attrs.converters.optional(shape_list),
        validator=attrs.validators.optional(each(between(2, MAX_GPUS))),
    )  # fmt: skip
    levels: int = option(2, doc="where shape is left out", validator=between(2, 6))
    links: int = option(
        16, doc="links of a GPU of B / links each, the same number to each level", validator=between(2, 1024)
    )
    interval_us: float | None = interval()
    reconfiguration_us: float | None = reconfiguration()
    relay: bool = option(
        False,
        doc="with one plan for the job: pairs without a circuit go through a GPU that both reach",
        validator=attrs.validators.instance_of(bool),
    )
    latency_us: float = option(
        0.0, doc="time a byte takes through one circuit", unit="us", converter=parse_us, validator=at_least(0)
    )


class SipOcsBcube(Topology):
    """A GPU has links / levels links to the switches of each level, as of `sip-ocs`.

    A switch joins the GPUs whose coordinates differ only in that dimension. All others go along one
    dimension after the other, and the GPUs at the corners forward.
    """

    name = "sip-ocs-bcube"
    summary = "small optical circuit switches along each dimension of a grid; GPUs forward between them"
    scheduler = "ocs-exact"
    Options = SipOcsBcubeOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        shape = checked_shape(options.shape, options.levels, cluster.gpus, "BCube")
        levels = len(shape)
        if options.links % levels:
            below = options.links // levels * levels
            near = f"{below} or {below + levels}" if below else str(levels)
            raise ConfigError(
                f"links must be a multiple of the {levels} levels, got {options.links}; nearest: {near}"
            )
        each_level = options.links // levels
        controls = [
            circuits_of(
                "sip-ocs", size, cluster.bandwidth_gbps / levels, switches=each_level,
                interval_us=options.interval_us, reconfiguration_us=options.reconfiguration_us,
            )
            for size in shape
        ]  # fmt: skip
        grid = Grid(shape)
        switches = each_level * sum(cluster.gpus // size for size in shape)
        told = (
            f"{switches} switches of {' and '.join(map(str, sorted(set(shape))))} ports, instead of "
            f"{options.links} of {cluster.gpus}"
        )
        return grid_fabric(
            grid,
            parts_of(grid, controls, relay=options.relay),
            port_gbps=cluster.bandwidth_gbps,
            latency_us=options.latency_us,
            reach=None,
            notes=(told,),
        )
