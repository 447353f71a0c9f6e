"""Circuits for one traffic matrix, without a job."""

from __future__ import annotations

from typing import Any

from sipml_core.cases.culprits import blamed
from sipml_core.cases.steps import built_fabric
from sipml_core.errors import ConfigError
from sipml_core.experiment import Interconnect, read_interconnect
from sipml_core.fields import parse_gbps
from sipml_core.model import CircuitPlan, Cluster, TrafficMatrix
from sipml_core.plugin import Registry
from sipml_core.scheduling import planned, refuse_out_of_reach


def plan_circuits(
    registry: Registry, table: dict[str, Any], traffic: TrafficMatrix, bandwidth_gbps: float | str
) -> tuple[CircuitPlan, tuple[str, ...]]:
    """Return a plan for `traffic` on a topology, and what the topology notes about the request.

    `table` is that of the topology, as an experiment has it: name, options, scheduler.

    Raises
    ------
    ConfigError
        The topology has no circuits or cannot be built, or a demanded pair is out of its reach.
    """
    try:
        cluster = Cluster(gpus=traffic.gpus, bandwidth_gbps=parse_gbps(bandwidth_gbps))
    except ConfigError as error:
        raise ConfigError(f"bandwidth {str(error).removeprefix('bandwidth_gbps ')}") from None
    interconnect = read_interconnect(table, "topology", cluster, registry)
    for key in ("demand", "replan", "replan_above", "rounds"):
        if key in table:
            raise ConfigError(f"topology.{key} is for circuits of a job; leave it out for one matrix")
    with blamed(interconnect.scheduler, interconnect.topology):
        return _planned(interconnect, cluster, traffic)


def _planned(
    interconnect: Interconnect, cluster: Cluster, traffic: TrafficMatrix
) -> tuple[CircuitPlan, tuple[str, ...]]:
    fabric = built_fabric(interconnect.topology, cluster)
    if fabric.circuits is None or interconnect.scheduler is None:
        raise ConfigError(f"topology {interconnect.topology.name!r} has no circuits to plan")
    refuse_out_of_reach(fabric.circuits, traffic)
    return planned(interconnect.scheduler, fabric.circuits, traffic, None), fabric.words.notes
