"""Hottest pair first: a circuit scheduler in forty lines."""

import heapq

import numpy as np

from sipml_core.model import CircuitControl, CircuitPlan
from sipml_core.plugin import Scheduler, hookimpl

SIPML_API = 2


class HottestFirst(Scheduler):
    """One circuit for each pair, the hottest first; then always to the most demand per circuit.

    It knows the rules of a plain `CircuitControl`: which pairs may be connected, and how many circuits may
    start and end at a GPU. That is enough for circuit switches, where any such set of circuits is a set of
    permutations (Koenig's theorem). A control with more rules, such as a ring's shared fibre, is refused
    before it is asked; circuits that a pair had before stay lit.
    """

    name = "hottest-first"
    summary = "greedy: the next circuit goes to the pair with the most demand per circuit"
    plans = CircuitControl

    def plan(self, control, traffic, previous):
        gbps = self._circuits(control, traffic) * control.circuit_gbps
        on = gbps > 0
        return CircuitPlan(gpus=control.gpus, src=traffic.src[on], dst=traffic.dst[on], gbps=gbps[on])

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
