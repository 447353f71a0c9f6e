"""A placement lowered to the tasks of all GPUs in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.joblowering import Lowering
from sipml_core.lowering.treesteps import Trees
from sipml_core.model import Cluster, Placement, Plan, TaskGraph


def lower(
    placement: Placement,
    plan: Plan,
    cluster: Cluster,
    *,
    order: NDArray[np.int32] | None = None,
    server_gpus: int | None = None,
    trees: Trees | None = None,
) -> TaskGraph:
    """Return tasks, transfers and collectives of `plan.iterations` training steps on all mp x pp x dp GPUs.

    Device r of replica g is at position `plan.positions[g, r]`. Each iteration ends in a mark.

    Parameters
    ----------
    placement
        One replica; the others are copies of it.
    cluster
        The GPUs; those of half the speed take twice as long for every task.
    order
        GPU at each position, a permutation of 0 .. N-1; None: the identity. [N]
    server_gpus
        Synchronise in two tiers, inside servers of this many consecutive positions, then across
        (see `replicas_in_server`); None: one flat ring over the replicas.

    trees
        Along which a group exchanges; None: from each maker to each user.

    Raises
    ------
    ConfigError
        Placement, strategy and cluster disagree about the number of GPUs; `order` is no
        permutation; groups and servers do not nest.
    """
    template = GroupTemplate.of(placement, plan, trees)
    return Lowering.of(template, cluster, order=order, server_gpus=server_gpus).tasks()
