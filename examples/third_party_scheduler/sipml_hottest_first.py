"""Hottest pair first: a circuit scheduler in forty lines."""

import heapq

import numpy as np

from sipml_core.errors import ConfigError
from sipml_core.model import CircuitControl, CircuitPlan
from sipml_core.plugin import Scheduler, hookimpl

SIPML_API = 1


class HottestFirst(Scheduler):
    """One circuit for each pair, the hottest first; then always to the most demand per circuit.

    It knows one rule, how many circuits may start and end at a GPU: enough for circuit switches, where
    any such set of circuits is a set of permutations (Koenig's theorem), not for a ring's shared fibre.
    Circuits that a pair had before count as unchanged.
    """

    name = "hottest-first"
    summary = "greedy: the next circuit goes to the pair with the most demand per circuit"

    def plan(self, control, traffic, previous):
        if type(control).may_connect is not CircuitControl.may_connect:
            raise ConfigError(
                f"scheduler 'hottest-first' knows ports only, and {type(control).__name__} has more rules"
            )
        gbps = self._circuits(control, traffic) * control.circuit_gbps
        on = gbps > 0
        src, dst, gbps = traffic.src[on], traffic.dst[on], gbps[on]
        before = previous.capacity_gbps(src, dst) if previous else np.zeros(len(src))
        return CircuitPlan(
            gpus=control.gpus,
            src=src,
            dst=dst,
            gbps=gbps,
            kept_gbps=np.minimum(gbps, before),
            dark_us=np.full(len(src), control.reconfiguration_us),
        )

    def _circuits(self, control, traffic):
        """Circuits of each pair. [pairs]"""
        circuits = np.zeros(traffic.pairs)
        out, into = np.full((2, control.gpus), control.circuits_per_gpu)
        queue = [(False, -demand, k) for k, demand in enumerate(traffic.demand)]
        heapq.heapify(queue)
        while queue:
            *_, k = heapq.heappop(queue)
            src, dst = traffic.src[k], traffic.dst[k]
            if out[src] and into[dst]:
                out[src] -= 1
                into[dst] -= 1
                circuits[k] += 1
                heapq.heappush(queue, (True, -traffic.demand[k] / circuits[k], k))
        return circuits


@hookimpl
def sipml_schedulers():
    return [HottestFirst]
