"""Routes in both forms, and what the engine gets of them."""

import doctest

import attrs
import numpy as np
import pytest

from sipml_core.engine import reference
from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError, InfeasibleError, PluginError
from sipml_core.model import fabric as fabric_module
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.fabric import Fabric
from sipml_core.model.hints import FabricHints
from sipml_core.model.network import Network, refuse_excess
from sipml_core.model.routes import NO_LINK, Routes
from sipml_core.model.taskgraph import TaskGraph


def transfers(gpus, src, dst, size_bytes):
    """Transfers that nothing holds up."""
    count = len(src)
    return TaskGraph(
        gpus=gpus,
        gpu=[],
        duration_us=[],
        priority=np.zeros(count, dtype=np.int32),
        src=src,
        dst=dst,
        size_bytes=size_bytes,
        latency_steps=np.ones(count),
        succ_start=np.zeros(count + 1, dtype=np.int64),
        successors=[],
        marks=[],
        label=[],
    )


@pytest.mark.parametrize("module", [fabric_module, reference])
def test_the_examples_of_docstrings_run(module):
    """Each prints what it says."""
    assert doctest.testmod(module).failed == 0


def four_planes():
    """Two GPUs, four links of 25 Gbps from each to the other; links 0 to 3 from 0, 4 to 7 from 1."""

    def route(src, dst):
        links = (4 * np.asarray(src)[:, None] + np.arange(4)).ravel()
        steps = np.arange(len(src) + 1) * 4
        return Routes(
            start=steps, links=links, weight=np.full(len(links), 0.25), latency_us=np.zeros(len(src))
        )

    return Fabric(gpus=2, link_gbps=np.full(8, 25.0), route=route)


def test_a_fabric_of_planes_gives_the_sum_of_them():
    """12 500 bytes over four planes of 25 Gbps take 1 us; each carries a quarter."""
    tasks = transfers(2, [1], [0], [12_500.0])
    network = Network.of(four_planes(), tasks)
    assert network.link_id.tolist() == [4, 5, 6, 7]
    timeline = simulate(tasks, network)
    assert timeline.total_us == pytest.approx(1.0)
    assert timeline.link_bytes == pytest.approx([3125.0] * 4)


def test_both_forms_of_one_path_are_one_network():
    """The padded matrix and the flat arrays of the same routes."""
    tasks = transfers(3, [0, 0, 1], [1, 2, 2], [1.0, 2.0, 3.0])
    matrix = np.array([[0, 5, NO_LINK], [0, 7, 6], [1, 6, NO_LINK]])
    forms = [
        Routes(links=matrix, latency_us=[0.1, 0.2, 0.3]),
        Routes(start=[0, 2, 5, 7], links=[0, 5, 0, 7, 6, 1, 6], latency_us=[0.1, 0.2, 0.3]),
    ]
    networks = [
        Network.of(Fabric(gpus=3, link_gbps=np.full(8, 1.0), route=lambda *_, f=form: f), tasks)
        for form in forms
    ]
    for network in networks:
        assert network.link_id.tolist() == [0, 1, 5, 6, 7]
        assert network.pair_start.tolist() == [0, 2, 5, 7]
        assert network.pair_links.tolist() == [[0, 2, -1], [0, 4, 3], [1, 3, -1]]
        assert network.pair_weights.tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 0]]
        assert network.link_bytes(tasks.size_bytes).tolist() == [3.0, 3.0, 1.0, 5.0, 2.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"links": [0, 1]}, "links without start are a matrix"),
        ({"links": [[0]], "weight": [1.0]}, "links without start are a matrix"),
        ({"links": [0, 1], "start": [0, 1]}, "start must go from 0 to the number of links, 2"),
        ({"links": [[0, 1]], "start": [0, 2]}, "start must go from 0 to the number of links"),
        ({"links": [0, 1], "start": [0, 2, 1, 2]}, "start must not fall"),
        ({"links": [0, 1], "start": [0, 2], "weight": [1.0]}, "one value for each of 2 links"),
    ],
)
def test_forms_that_do_not_fit_are_refused(fields, message):
    """Before anything is read from them."""
    with pytest.raises(ConfigError, match=message):
        Routes(latency_us=[0.0], **fields)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (Routes(links=[[0, 1]], latency_us=[0.0]), "one route for each of 2 pairs, got 1 routes and 1 lat"),
        (Routes(links=[[0], [NO_LINK]], latency_us=[0.0, 0.0]), "no route from GPU 1 to GPU 0"),
        (Routes(start=[0, 1, 1], links=[0], latency_us=[0.0, 0.0]), "no route from GPU 1 to GPU 0"),
        (Routes(links=[[0, 1], [0, 2]], latency_us=[0.0, 0.0]), "GPU 1 to GPU 0 crosses a link the fabric"),
        (
            Routes(start=[0, 1, 2], links=[0, 1], weight=[1.0, 0.0], latency_us=[0.0, 0.0]),
            "GPU 1 to GPU 0 has a link whose weight is not positive",
        ),
        (Routes(links=[[0], [1]], latency_us=[0.0, -1.0]), "finite and not negative"),
    ],
)
def test_routes_of_a_topology_are_checked(routes, message):
    """The pair at fault is named."""
    tasks = transfers(2, [0, 1], [1, 0], [1.0, 1.0])
    with pytest.raises(InfeasibleError, match=message):
        Network.of(Fabric(gpus=2, link_gbps=np.full(2, 1.0), route=lambda *_: routes), tasks)


def ends(tail, head, route):
    """Three GPUs and a switch, node 3."""
    return Fabric(
        gpus=3,
        link_gbps=np.full(len(tail), 1.0),
        link_tail=tail,
        link_head=head,
        route=lambda *_: Routes(links=[route], latency_us=[0.0]),
    )


#: Links 0 .. 2 lead from each GPU to the switch, 3 .. 5 back.
STAR = ([0, 1, 2, 3, 3, 3], [3, 3, 3, 0, 1, 2])


@pytest.mark.parametrize(
    ("route", "named"),
    [
        ([1, 5], "link 1, link 5"),
        ([0], "link 0"),
        ([5], "link 5"),
        ([0, 4], "link 0, link 4"),
        ([0, 1, 5], "link 0"),
    ],
)  # fmt: skip
def test_routes_that_jump_are_refused(route, named):
    """From GPU 0 to GPU 2: another's egress, egress or ingress alone, another's ingress, one too many."""
    with pytest.raises(InfeasibleError, match=f"from GPU 0 to GPU 2 do not lead there: {named}"):
        Network.of(ends(*STAR, route), transfers(3, [0], [2], [1.0]))


def test_routes_that_lead_there_are_not():
    assert Network.of(ends(*STAR, [0, 5]), transfers(3, [0], [2], [1.0])).link_id.tolist() == [0, 5]


def test_circuits_lead_from_gpu_to_gpu():
    """The circuit of another pair is a jump."""
    control = CircuitControl(gpus=3, circuit_gbps=1.0, circuits_per_gpu=1)
    fabric = Fabric.with_ports(circuits=control, port_gbps=1.0)
    jumps = attrs.evolve(fabric, route=lambda src, dst: fabric.route(dst, src))
    tasks = transfers(3, [0], [2], [1.0])
    assert len(Network.of(fabric, tasks).link_id) == 3
    with pytest.raises(InfeasibleError, match="lead there: egress 2, circuit 2->0, ingress 0"):
        Network.of(jumps, tasks)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"link_tail": [0]}, "link_tail must have a node, from 0, for each of 2 links"),
        ({"link_tail": [0, -1], "link_head": [1, 0]}, "link_tail must have a node, from 0"),
        ({"link_tail": [0, 1]}, "link_tail and link_head must be given together"),
        ({"hints": FabricHints(order=[0, 1, 2])}, "order must be a permutation of 0..1"),
    ],
)
def test_ends_and_hints_must_fit_the_fabric(change, told):
    with pytest.raises(ConfigError, match=told):
        Fabric(gpus=2, link_gbps=[1.0, 1.0], route=None, **change)


@pytest.mark.parametrize(
    ("hints", "told"),
    [
        ({"order": [0, 0]}, "order must be a permutation of 0..1"),
        ({"degree": 0}, "degree must be at least 1"),
        ({"reach_hops": 0}, "reach_hops must be at least 1"),
        ({"tiers": (("server", 8), ("rack", 12))}, "'rack' has 12 GPUs, which is no multiple of 8"),
        ({"tiers": (("server", 0),)}, "tiers must be nested"),
    ],
)
def test_hints_that_cannot_be_are_refused(hints, told):
    with pytest.raises(ConfigError, match=told):
        FabricHints(**hints)


def star(out, into, **hints):
    """Four GPUs with links of so many Gbps to a switch, and from it."""
    return Fabric(
        gpus=4,
        link_gbps=np.r_[np.full(4, out), np.full(4, into)],
        route=lambda src, dst: Routes(links=np.column_stack([src, 4 + dst]), latency_us=np.zeros(len(src))),
        hints=FabricHints(**hints),
    )


def job(*pairs):
    return transfers(4, [i for i, _ in pairs], [j for _, j in pairs], np.ones(len(pairs)))


@pytest.mark.parametrize(
    ("fabric", "pairs", "told"),
    [
        (star(200.0, 400.0), [(0, 1), (0, 2), (0, 3)], "GPU 0 can send 200 Gbps"),
        (star(100.0, 400.0), [(0, 1), (0, 2), (1, 2), (3, 2)], "GPU 2 can receive 300 Gbps"),
        (star(150.0, 150.0), [(3, 1)], "GPU 3 can send 150 Gbps"),
    ],
)
def test_a_gpu_that_can_send_or_receive_more_than_its_bandwidth_is_refused(fabric, pairs, told):
    """100 Gbps; three senders of 100 into one port of 400."""
    with pytest.raises(PluginError, match=told):
        refuse_excess(fabric, Network.of(fabric, job(*pairs)), 100.0)


def test_more_is_allowed_where_hints_say_so_and_on_links_that_one_gpu_does_not_fill():
    """Uplinks may be as wide as they like; so may a port, if the topology says that it is meant."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (3, 2)]
    for fabric in (star(100.0, 100.0), star(200.0, 400.0, above_bandwidth=True)):
        refuse_excess(fabric, Network.of(fabric, job(*pairs)), 100.0)


def bare_circuits(each):
    """Circuits of 60 Gbps, and no ports."""
    control = CircuitControl(gpus=4, circuit_gbps=60.0, circuits_per_gpu=each)

    def route(src, dst):
        return Routes(links=fabric.circuit_link(src, dst)[:, None], latency_us=np.zeros(len(src)))

    fabric = Fabric(gpus=4, link_gbps=[], circuits=control, route=route)
    return fabric


def test_circuits_are_limited_by_their_number():
    """One circuit of 60 Gbps is less than 100, two are more."""
    one, two = bare_circuits(1), bare_circuits(2)
    refuse_excess(one, Network.of(one, job((0, 1), (2, 3))), 100.0)
    with pytest.raises(PluginError, match="GPU 0 can send 120 Gbps"):
        refuse_excess(two, Network.of(two, job((0, 1), (2, 3))), 100.0)
