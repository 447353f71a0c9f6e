"""What a scheduler may decide on optical circuit switches, and the plan it makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import float64_vector, int32_matrix, int32_vector, positive
from sipml_core.model import CircuitControl, CircuitOccupancy, CircuitPlan, TrafficMatrix
from sipml_core.scheduling import port_bound
from sipml_ocs.kernel import DARK


@attrs.frozen(kw_only=True, eq=False)
class OcsCircuits(CircuitControl):
    """Q switches of N ports each: a GPU has one link to every switch."""

    @property
    def switches(self) -> int:
        return self.circuits_per_gpu


@attrs.frozen(kw_only=True, eq=False)
class OcsPlan(CircuitPlan):
    """Circuits per pair, and what every switch connects.

    Pairs are those with circuits: demanded ones, and ones without demand whose old circuits nobody
    needed to disturb.
    """

    kept_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: The demand that was planned for.
    traffic: TrafficMatrix
    #: Capacity of one circuit. [Gbps]
    link_gbps: float = attrs.field(validator=positive)
    #: Circuits of each pair, and how many of them the plan before had on the same switch. [pairs]
    circuits: NDArray[np.int32] = attrs.field(converter=int32_vector)
    kept: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Output of each input on each switch; -1: dark. [switches, gpus]
    port_map: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    #: Demanded pairs without a circuit, and for how many plans in a row now. [unserved]
    unserved_src: NDArray[np.int32] = attrs.field(converter=int32_vector)
    unserved_dst: NDArray[np.int32] = attrs.field(converter=int32_vector)
    unserved_plans: NDArray[np.int32] = attrs.field(converter=int32_vector)
    algorithm: str = "ocs-exact"
    #: The minimum throughput is proven to be the best possible for the pairs that are served.
    proved: bool = True

    def __attrs_post_init__(self) -> None:
        if self.port_map.shape[1] != self.gpus:
            raise ConfigError(f"port_map must have {self.gpus} columns, got shape {self.port_map.shape}")
        lit = self.port_map[self.port_map != DARK]
        if len(lit) and (lit.min() < 0 or lit.max() >= self.gpus):
            raise ConfigError(f"port_map must name outputs 0..{self.gpus - 1}, or {DARK} for a dark port")
        offset = np.arange(self.switches, dtype=np.int64)[:, None] * self.gpus
        uses = np.bincount((self.port_map + offset)[self.port_map != DARK])
        if len(uses) and uses.max() > 1:
            switch, output = divmod(int(uses.argmax()), self.gpus)
            raise ConfigError(f"switch {switch} connects output {output} to {uses.max()} inputs")

    @property
    def switches(self) -> int:
        return len(self.port_map)

    def stays(self, previous: CircuitPlan) -> bool:
        """Return whether every port leads where it did, and nothing is dark."""
        return (
            isinstance(previous, OcsPlan)
            and np.array_equal(self.kept_gbps, self.gbps)
            and not self.dark_us.any()
            and np.array_equal(self.port_map, previous.port_map)
            and np.array_equal(self.gbps, previous.gbps)
            and np.array_equal(self.dst, previous.dst)
            and np.array_equal(self.src, previous.src)
        )

    @property
    def total_gbps(self) -> float:
        """Return the capacity of all circuits together. [Gbps]"""
        return float(self.gbps.sum())

    @property
    def minimum_ratio(self) -> float:
        """Return the least capacity / demand over demanded pairs, the objective. [Gbps per unit of demand]

        0 if a pair is unserved, infinite without demand.
        """
        return self._least(np.ones(self.traffic.pairs, dtype=bool))

    @property
    def served_ratio(self) -> float:
        """Return the same over demanded pairs that have a circuit. [Gbps per unit of demand]"""
        return self._least(self._demanded_gbps > 0)

    @property
    def bound_ratio(self) -> float | None:
        """Return what `minimum_ratio` cannot exceed even if circuits were fractions (the LP bound).

        None without demand.
        """
        if self.traffic.pairs == 0:
            return None
        return port_bound(self.traffic, self.link_gbps * self.switches)

    @property
    def _demanded_gbps(self) -> NDArray[np.float64]:
        return self.capacity_gbps(self.traffic.src, self.traffic.dst)

    def _least(self, chosen: NDArray[np.bool_]) -> float:
        ratios = (self._demanded_gbps / self.traffic.demand)[chosen]
        return float(ratios.min()) if len(ratios) else np.inf

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one record per pair: circuits, how many were already there, and their switches."""
        for k, row in enumerate(super().rows()):
            on = np.flatnonzero(self.port_map[:, row["src"]] == row["dst"])
            yield row | {
                "circuits": int(self.circuits[k]),
                "kept": int(self.kept[k]),
                "switches": ";".join(map(str, on)),
            }

    def occupancy(self) -> CircuitOccupancy:
        """Return the inputs in use at each switch."""
        switch, source = np.nonzero(self.port_map != DARK)
        return CircuitOccupancy(
            place_name="input of a GPU",
            channel_name="switch",
            groups=("",),
            places=self.gpus,
            channels=(self.switches,),
            group=np.zeros(len(switch)),
            place=source,
            channel=switch,
            src=source,
            dst=self.port_map[switch, source],
        )

    def draw(self, axes: Any) -> None:
        """Draw every switch as a row: a cell per input, coloured by and labelled with its output."""
        masked = np.ma.masked_equal(self.port_map, DARK)
        axes.set_facecolor("0.9")
        image = axes.imshow(
            masked, cmap="cividis", vmin=0, vmax=self.gpus, alpha=0.6, aspect="auto", interpolation="nearest"
        )
        if self.gpus <= 64 and self.switches <= 32:
            cell_points = axes.bbox.width * 72 / axes.figure.dpi / self.gpus
            size = min(9.0, 1.4 * cell_points / len(str(self.gpus - 1)))
            for switch, source in np.argwhere(self.port_map != DARK):
                output = self.port_map[switch, source]
                axes.text(source, switch, output, ha="center", va="center", fontsize=size)
        axes.set_xlabel("input: GPU that sends")
        axes.set_ylabel("switch")
        axes.set_title("output of each input (grey: dark)", fontsize="medium")
        axes.figure.colorbar(image, ax=axes, label="output: GPU that receives")

    def check(self) -> None:
        """Verify what the plan promises: the port maps hold just the circuits, and no port idles that a
        demanded pair could use.

        Raises
        ------
        PluginError
            Naming the first promise that is broken.
        """
        _, source = np.nonzero(self.port_map != DARK)
        key = source * np.int64(self.gpus) + self.port_map[self.port_map != DARK]
        found, count = np.unique(key, return_counts=True)
        if not (np.array_equal(found, self.key) and np.array_equal(count, self.circuits)):
            raise PluginError("OCS plan: the port maps do not hold the circuits of each pair")
        if not np.allclose(self.gbps, self.circuits * self.link_gbps, rtol=1e-12):
            raise PluginError("OCS plan: capacities are not circuits times the capacity of one")
        if (self.kept > self.circuits).any():
            raise PluginError("OCS plan: more circuits kept than there are")
        self._check_no_port_idles()
        waiting = self._demanded_gbps == 0
        expected = self.traffic.src[waiting].tolist(), self.traffic.dst[waiting].tolist()
        if (self.unserved_src.tolist(), self.unserved_dst.tolist()) != expected:
            raise PluginError("OCS plan: unserved pairs are not the demanded ones without a circuit")

    def _check_no_port_idles(self) -> None:
        wanted = np.isin(self.key, self.traffic.key)
        leave = np.bincount(self.src[wanted], self.circuits[wanted], self.gpus)
        enter = np.bincount(self.dst[wanted], self.circuits[wanted], self.gpus)
        idle = (leave[self.traffic.src] < self.switches) & (enter[self.traffic.dst] < self.switches)
        if idle.any():
            k = int(np.flatnonzero(idle)[0])
            raise PluginError(
                f"OCS plan: pair {self.traffic.src[k]}->{self.traffic.dst[k]} could have another circuit"
            )
