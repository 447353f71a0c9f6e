"""Circuits for one traffic matrix, without a job."""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.cases.steps import built_fabric
from sipml_core.errors import ConfigError
from sipml_core.experiment import apply_overrides, read_interconnect
from sipml_core.fields import parse_gbps
from sipml_core.model import CircuitPlan, Cluster, TrafficMatrix
from sipml_core.plugin import Registry
from sipml_core.scheduling import planned, refuse_out_of_reach


def plan_circuits(
    registry: Registry,
    topology: str,
    scheduler: str | None,
    traffic: TrafficMatrix,
    bandwidth_gbps: float | str,
    overrides: Iterable[str] = (),
) -> tuple[CircuitPlan, tuple[str, ...]]:
    """A plan for `traffic` on the named topology, and what the topology notes about the request.

    Raises
    ------
    ConfigError
        The topology has no circuits or cannot be built, or a demanded pair is out of its reach.
    """
    table = apply_overrides({"name": topology}, overrides)
    if scheduler is not None:
        table["scheduler"] = scheduler
    try:
        cluster = Cluster(gpus=traffic.gpus, bandwidth_gbps=parse_gbps(bandwidth_gbps))
    except ConfigError as error:
        raise ConfigError(f"bandwidth {str(error).removeprefix('bandwidth_gbps ')}") from None
    interconnect = read_interconnect(table, "topology", cluster, registry)
    fabric = built_fabric(interconnect.topology, cluster)
    if fabric.circuits is None or interconnect.scheduler is None:
        raise ConfigError(f"topology {topology!r} has no circuits to plan")
    refuse_out_of_reach(fabric.circuits, traffic)
    return planned(interconnect.scheduler, fabric.circuits, traffic, None), fabric.words.notes
