"""Two hops where a pair has no circuit, spread over the GPUs that can relay."""

import numpy as np
import pytest

from sipml_core.errors import InfeasibleError
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.fabric import Fabric
from sipml_core.model.hints import FabricWords
from sipml_core.model.network import check_routes
from sipml_core.model.routes import Routes
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.scheduling.portbound import port_bound
from sipml_core.scheduling.relay import relayed_routes, relays, with_relays


def circuit_fabric(gpus, padded=False):
    """Ports and circuits, 1 us each hop; `padded`: with a column that holds no link."""

    def route(src, dst):
        columns = [src, fabric.circuit_link(src, dst), gpus + dst]
        if padded:
            columns.insert(1, np.full(len(src), -1))
        return Routes(links=np.column_stack(columns), latency_us=np.ones(len(src)))

    fabric = Fabric(
        gpus=gpus,
        link_gbps=np.full(2 * gpus, 100.0),
        words=FabricWords(link_names=lambda k: f"egress {k}" if k < gpus else f"ingress {k - gpus}"),
        route=route,
        circuits=CircuitControl(gpus=gpus, circuit_gbps=25.0, circuits_per_gpu=4),
    )
    return fabric


def plan_of(gpus, gbps):
    """From {(src, dst): Gbps}."""
    pairs = sorted(gbps)
    capacity = [gbps[pair] for pair in pairs]
    return CircuitPlan(
        gpus=gpus,
        src=[i for i, _ in pairs],
        dst=[j for _, j in pairs],
        gbps=capacity,
        kept_gbps=capacity,
        dark_us=np.zeros(len(pairs)),
    )


def ask(*pairs):
    return np.array([i for i, _ in pairs], np.int32), np.array([j for _, j in pairs], np.int32)


@pytest.mark.parametrize("padded", [False, True])
def test_a_relayed_pair_crosses_both_circuits_and_the_ports_of_the_gpu_between(padded):
    fabric = circuit_fabric(3, padded)
    routes = relayed_routes(fabric, plan_of(3, {(0, 1): 25.0, (1, 2): 25.0}), *ask((0, 2), (0, 1)))
    names = [[fabric.link_name(int(k)) for k in row if k >= 0] for row in routes.matrix]
    assert names == [
        ["egress 0", "circuit 0->1", "ingress 1", "egress 1", "circuit 1->2", "ingress 2"],
        ["egress 0", "circuit 0->1", "ingress 1"],
    ]
    assert routes.latency_us.tolist() == [2.0, 1.0]
    check_routes(fabric, *ask((0, 2), (0, 1)), routes)


def test_routes_of_pairs_with_circuits_are_the_fabrics_own():
    fabric = circuit_fabric(3)
    plan = plan_of(3, {(0, 1): 25.0, (1, 2): 25.0, (2, 0): 25.0})
    pairs = ask((0, 1), (1, 2), (2, 0))
    assert np.array_equal(with_relays(fabric, plan).route(*pairs).matrix, fabric.route(*pairs).links)


#: GPU 0 reaches 3, 4 and 5 through 1 or 2.
TWO_WAYS = {(0, 1): 25.0, (0, 2): 25.0} | {(mid, end): 25.0 for mid in (1, 2) for end in (3, 4, 5)}


def test_relays_spread():
    """Three equal pairs: the first takes 1 (the lowest), the second 2, the third 1 again."""
    assert relays(plan_of(6, TWO_WAYS), *ask((0, 3), (0, 4), (0, 5))).tolist() == [1, 2, 1]


def test_a_circuit_twice_as_fast_takes_twice_as_much():
    plan = plan_of(6, TWO_WAYS | {(0, 2): 50.0} | {(2, end): 50.0 for end in (3, 4, 5)})
    assert sorted(relays(plan, *ask((0, 3), (0, 4), (0, 5))).tolist()) == [1, 2, 2]


def test_traffic_that_is_there_already_counts():
    """0 -> 1 sends 10 of its own: all relays go through 2."""
    traffic = TrafficMatrix.from_pairs(6, [0] * 4, [1, 3, 4, 5], [10.0, 1.0, 1.0, 1.0])
    chosen = relays(plan_of(6, TWO_WAYS), *ask((0, 1), (0, 3), (0, 4), (0, 5)), traffic)
    assert chosen.tolist() == [1, 2, 2, 2]


def test_the_largest_chooses_first():
    """9 takes relay 1; 4 and 3 then share relay 2."""
    traffic = TrafficMatrix.from_pairs(6, [0] * 3, [3, 4, 5], [4.0, 3.0, 9.0])
    assert relays(plan_of(6, TWO_WAYS), *ask((0, 3), (0, 4), (0, 5)), traffic).tolist() == [2, 2, 1]


def test_the_order_in_which_pairs_are_asked_for_does_not_matter():
    forth = relays(plan_of(6, TWO_WAYS), *ask((0, 3), (0, 4), (0, 5)))
    back = relays(plan_of(6, TWO_WAYS), *ask((0, 5), (0, 4), (0, 3)))
    assert forth.tolist() == back[::-1].tolist()


def test_a_pair_that_nobody_can_relay_is_named():
    fabric = circuit_fabric(4)
    with pytest.raises(InfeasibleError, match="no circuit from GPU 0 to GPU 3"):
        relayed_routes(fabric, plan_of(4, {(0, 1): 25.0, (2, 3): 25.0}), *ask((0, 3)))


def test_a_circuit_of_no_capacity_relays_nothing():
    with pytest.raises(InfeasibleError, match="from GPU 0 to GPU 2"):
        relays(plan_of(3, {(0, 1): 0.0, (1, 2): 25.0}), *ask((0, 2)))


def test_the_port_bound_is_the_port_over_its_largest_demand():
    """GPU 2 receives 3 + 2 of 100 Gbps: 20 Gbps for each unit. GPU 0 sends 4."""
    traffic = TrafficMatrix.from_pairs(3, [0, 0, 1], [1, 2, 2], [1.0, 3.0, 2.0])
    assert port_bound(traffic, 100.0) == 20.0
