"""A placer: sub-op j of every op on device j, if the network lets those devices talk."""

import numpy as np

from sipml_core.errors import InfeasibleError
from sipml_core.model import Placement
from sipml_core.plugin import Placer, hookimpl


class PartByPart(Placer):
    name = "part-by-part"
    summary = "part j of every op on device j"

    def place(self, graph, limits):
        part = np.arange(graph.subops) - graph.first[graph.subop_op]
        device = part % limits.devices
        for a, b in set(zip(device[graph.edge_src].tolist(), device[graph.edge_dst].tolist(), strict=True)):
            if not limits.allows(a, b):
                raise InfeasibleError(f"part-by-part needs devices {a} and {b} to talk, and they may not")
        return Placement(graph=graph, limits=limits, device=device)


@hookimpl
def sipml_placers():
    return [PartByPart]
