"""SiP-Torus: cubes of GPUs with fixed links inside, joined by optical switches (TPU v4, ISCA 2023)."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, each, one_of, option, parse_us
from sipml_core.model import MAX_GPUS, Cluster, Fabric
from sipml_core.plugin import Topology
from sipml_torus.lattice import Lattice, nearest_cube, twisted
from sipml_torus.torus import check_product, sizes
from sipml_torus.wiring import Wiring


@attrs.frozen(kw_only=True)
class SipTorusOptions:
    shape: tuple[int, ...] | None = option(
        None,
        doc="GPUs along each of three dimensions, multiples of cube; left out: as near to a cube as N allows",
        converter=attrs.converters.optional(sizes),
        validator=attrs.validators.optional(each(between(1, MAX_GPUS))),
    )
    cube: int = option(4, doc="GPUs along each edge of one cube", validator=between(2, 16))
    twisted: bool = option(
        False,
        doc="once round a short dimension leads halfway round long ones; shapes n x n x 2n, n x 2n x 2n",
        validator=attrs.validators.instance_of(bool),
    )
    switch_ports: int = option(136, doc="ports of one optical switch", validator=between(2, 4096))
    routing: str = option("spray", doc="as of torus", validator=one_of("spray", "hash"))
    hop_latency_us: float = option(
        0.0, doc="latency of one link", unit="us", converter=parse_us, validator=at_least(0)
    )


class SipTorus(Topology):
    """A 3-D torus whose shape and twist are set by circuits when a job starts, and stay while it runs.

    Each of the cube^2 lines of links through a cube in each dimension ends, on both sides, at the optical
    switch of that line; the switch joins it to the next cube of the job. So any shape of whole cubes can be
    made of any free cubes, and links are the same inside cubes and between them.
    """

    name = "sip-torus"
    summary = "cubes of GPUs that optical circuit switches join to a 3-D torus for a job, twisted or not"
    Options = SipTorusOptions

    def build(self, cluster: Cluster) -> Fabric:
        options = self.options
        side, cubes = options.cube, self._cubes(cluster.gpus)
        near = tuple(side * size for size in nearest_cube(cubes, 3))
        shape = options.shape or near
        check_product(shape, cluster.gpus, near)
        if len(shape) != 3 or any(size % side for size in shape):
            text = " x ".join(map(str, shape))
            raise ConfigError(
                f"shape must have three dimensions that are multiples of {side} (cube), got {text}"
            )
        lattice = twisted(shape) if options.twisted else Lattice.straight(shape)
        if lattice is None:
            raise ConfigError(
                f"twisted needs a shape n x n x 2n or n x 2n x 2n, such as {side} x {side} x {2 * side}, the "
                f"short dimensions first; got {' x '.join(map(str, shape))}"
            )
        told = f"{cubes} cubes as {' x '.join(map(str, shape))}, on {3 * side * side} optical switches"
        return Wiring(lattice, options.hop_latency_us, options.routing == "spray").fabric(cluster, (told,))

    def _cubes(self, gpus: int) -> int:
        """Return the cubes of the job; a job takes whole ones."""
        size = self.options.cube**3
        if gpus % size:
            below = gpus // size * size
            near = f"{below} or {below + size}" if below else str(size)
            raise ConfigError(f"cluster.gpus must be whole cubes of {size} GPUs, got {gpus}; nearest: {near}")
        most = self.options.switch_ports // 2
        if gpus // size > most:
            raise ConfigError(
                f"{gpus // size} cubes need switches of {2 * gpus // size} ports, they have {2 * most} "
                f"(switch_ports): at most {most * size} GPUs"
            )
        return int(gpus // size)
