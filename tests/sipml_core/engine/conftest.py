"""Small jobs and networks, written down node by node, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import pytest

from sipml_core.engine.kernel import KernelSession
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import BARRIER, TaskGraph

#: Bytes that 1 Gbps carries in 1 us.
GBPS = 125.0


@attrs.define
class Job:
    """A task graph under construction. Nodes are named by the strings given to them."""

    gpus: int
    computes: list[tuple[str, int, float, int]] = attrs.Factory(list)
    sends: list[tuple[str, int, int, float, float, int]] = attrs.Factory(list)
    edges: list[tuple[str, str]] = attrs.Factory(list)
    marks: list[str] = attrs.Factory(list)
    startup_us: dict[str, float] = attrs.Factory(dict)

    def task(self, name: str, gpu: int, us: float, *, after: Sequence[str] = (), priority: int = 0) -> None:
        self.computes.append((name, gpu, us, priority))
        self.edges += [(before, name) for before in after]

    def barrier(self, name: str, *, after: Sequence[str] = (), mark: bool = False, us: float = 0.0) -> None:
        self.task(name, BARRIER, us, after=after)
        self.marks += [name] * mark

    def send(
        self,
        name: str,
        src: int,
        dst: int,
        size: float,
        *,
        after: Sequence[str] = (),
        latency_steps: float = 1.0,
        priority: int = 0,
        startup_us: float = 0.0,
    ) -> None:
        self.startup_us[name] = startup_us
        self.sends.append((name, src, dst, size, latency_steps, priority))
        self.edges += [(before, name) for before in after]

    def node(self, name: str) -> int:
        return [entry[0] for entry in (*self.computes, *self.sends)].index(name)

    def build(self) -> TaskGraph:
        number = {entry[0]: k for k, entry in enumerate((*self.computes, *self.sends))}
        after: list[list[int]] = [[] for _ in number]
        for before, name in self.edges:
            after[number[before]].append(number[name])
        return TaskGraph(
            gpus=self.gpus,
            gpu=[c[1] for c in self.computes],
            duration_us=[c[2] for c in self.computes],
            priority=[c[3] for c in self.computes] + [s[5] for s in self.sends],
            src=[s[1] for s in self.sends],
            dst=[s[2] for s in self.sends],
            size_bytes=[s[3] for s in self.sends],
            latency_steps=[s[4] for s in self.sends],
            succ_start=np.cumsum([0, *map(len, after)]),
            successors=[successor for successors in after for successor in successors],
            marks=[number[name] for name in self.marks],
            label=[0] * len(self.computes),
            startup_us=[self.startup_us[s[0]] for s in self.sends] if any(self.startup_us.values()) else [],
        )


def network(
    tasks: TaskGraph,
    gbps: Sequence[float],
    route: Callable[[int, int], Sequence[int] | dict[int, float]],
    *,
    latency_us: float = 0.0,
    circuits: Sequence[tuple[int, int]] = (),
) -> Network:
    """Fixed links of `gbps`, then one circuit link for each of `circuits`.

    A route is a list of links, or the weight of each.
    """
    pairs = sorted(set(zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True)))
    routes = [route(src, dst) for src, dst in pairs]
    weights = [list(r.values()) if isinstance(r, dict) else [1.0] * len(r) for r in routes]
    return Network(
        gpus=tasks.gpus,
        pair_src=[src for src, _ in pairs],
        pair_dst=[dst for _, dst in pairs],
        pair_start=np.cumsum([0, *map(len, routes)]),
        pair_link=[link for r in routes for link in r],
        pair_weight=[weight for row in weights for weight in row],
        pair_latency_us=[latency_us] * len(pairs),
        transfer_pair=[
            pairs.index(ends) for ends in zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True)
        ],
        link_gbps=[*gbps, *[0.0] * len(circuits)],
        link_id=range(len(gbps) + len(circuits)),
        first_circuit=len(gbps),
        circuit_src=[src for src, _ in circuits],
        circuit_dst=[dst for _, dst in circuits],
    )


def ports(tasks: TaskGraph, gbps: float, *, latency_us: float = 0.0) -> Network:
    """An ideal switch: every GPU sends and receives at `gbps`. Link i is egress i, N + j ingress j."""
    gpus = tasks.gpus
    return network(tasks, [gbps] * (2 * gpus), lambda src, dst: (src, gpus + dst), latency_us=latency_us)


def wires(tasks: TaskGraph, *, latency_us: float = 0.0) -> Network:
    """One circuit link for each pair that talks, and nothing else."""
    pairs = sorted(set(zip(tasks.src.tolist(), tasks.dst.tolist(), strict=True)))
    return network(
        tasks, [], lambda src, dst: (pairs.index((src, dst)),), latency_us=latency_us, circuits=pairs
    )


def random_job(
    rng: np.random.Generator,
    *,
    gpus: int = 6,
    tasks: int = 30,
    sends: int = 40,
    latency: bool = True,
    weighted: bool = False,
) -> tuple[TaskGraph, Network]:
    """A random DAG of tasks, barriers and transfers on random routes of up to eight links."""
    job = Job(gpus=gpus)
    names: list[str] = []
    kinds = rng.permutation([0] * tasks + [1] * sends)
    for k, kind in enumerate(kinds.tolist()):
        after = rng.choice(names, size=min(len(names), int(rng.integers(0, 3))), replace=False).tolist()
        name, priority = f"n{k}", int(rng.integers(0, 3))
        if kind == 0 and rng.random() < 0.2:
            delay_us = float(rng.exponential(1.0)) if rng.random() < 0.3 else 0.0
            job.barrier(name, after=after, mark=rng.random() < 0.5, us=delay_us)
        elif kind == 0:
            job.task(
                name, int(rng.integers(gpus)), float(rng.exponential(1.0)), after=after, priority=priority
            )
        else:
            src, dst = rng.choice(gpus, size=2, replace=False).tolist()
            size = 0.0 if rng.random() < 0.1 else float(rng.exponential(20_000.0))
            job.send(
                name, src, dst, size, after=after, latency_steps=float(rng.integers(1, 3)), priority=priority,
                startup_us=float(rng.choice([0.0, 0.0, 1.3])),
            )  # fmt: skip
        names.append(name)
    graph = job.build()
    links = int(rng.integers(4, 16))
    table = {
        (src, dst): rng.choice(links, size=int(rng.integers(1, min(links, 8) + 1)), replace=False).tolist()
        for src in range(gpus)
        for dst in range(gpus)
    }
    if weighted:
        table = {
            ends: {link: float(rng.uniform(0.1, 1.0)) for link in links} for ends, links in table.items()
        }
    gbps = rng.choice([25.0, 50.0, 100.0, 100.0, 137.5], size=links)
    latency_us = float(rng.choice([0.0, 0.7])) if latency else 0.0
    return graph, network(graph, gbps.tolist(), lambda src, dst: table[src, dst], latency_us=latency_us)


def watched(tasks: TaskGraph, network: Network, queue: str = "pair") -> KernelSession:
    """A run of the C engine that checks after every change that rates are max-min fair."""
    session = KernelSession(tasks, network, queue)
    session.watch()
    return session


def halved(whole: Network) -> Network:
    """The same routes with each entry split into two of half its weight."""
    return attrs.evolve(
        whole,
        pair_start=2 * whole.pair_start,
        pair_link=np.repeat(whole.pair_link, 2),
        pair_weight=np.repeat(whole.pair_weight / 2, 2),
    )


@attrs.frozen
class Kit:
    """What the tests of this folder build with."""

    job = Job
    network = staticmethod(network)
    ports = staticmethod(ports)
    wires = staticmethod(wires)
    random_job = staticmethod(random_job)
    watched = staticmethod(watched)
    halved = staticmethod(halved)
    gbps_bytes = GBPS


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()


@pytest.fixture(params=["c", "reference"])
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)
