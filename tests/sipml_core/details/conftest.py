"""A job of three GPUs that is simulated and recorded: small enough to be worked out by hand.

replica 0: GPU 0 (stage 0), GPU 1 (stage 1); replica 1: GPU 2. A port carries 1000 bytes/us.
a on GPU 0, 0 to 10 us
x 0 -> 1, 4000 bytes, and y 0 -> 2, 2000 bytes, after a: they share egress 0 until y is done at 14; x ends at
16 b on GPU 1 after x, 16 to 21
z 1 -> 2, 3000 bytes, after b, 21 to 24
c on GPU 2 after y and z, 24 to 26
"""

import numpy as np
import pytest

from sipml_core.details import CaseDetails
from sipml_core.engine import Recording, simulate
from sipml_core.model import GRADIENT, PIPELINE, CaseRecord, TaskBuilder


@pytest.fixture(scope="session")
def record(flat):
    builder = TaskBuilder(3, ("op", "sync"))
    tasks = builder.tasks([0, 1, 2], [10.0, 5.0, 2.0], 0, 0)
    kind = [PIPELINE, GRADIENT, GRADIENT]
    x, y, z = builder.transfers([0, 0, 1], [1, 2, 2], [4000.0, 2000.0, 3000.0], [0, 1, 1], kind=kind)
    gate = builder.barriers(1, label=1)
    for before, after in ((tasks[0], x), (tasks[0], y), (x, tasks[1]), (tasks[1], z), (y, gate), (z, gate)):
        builder.depend(before, after)
    builder.depend(gate, tasks[2])
    graph = builder.build(gate)
    network = flat(graph)
    timeline = simulate(graph, network, recording=Recording(samples=64, sample_us=1.0))
    names = [*(f"egress {gpu}" for gpu in range(3)), *(f"ingress {gpu}" for gpu in range(3))]
    return CaseRecord(
        workload="hand", topology="ports", queue="pair", iterations=1, tasks=graph, network=network,
        timeline=timeline, replica=np.array([0, 0, 1]), stage=np.array([0, 1, 0]), device=np.zeros(3, int),
        op=np.array([0, 1, 2, -1]), op_names=("a", "b", "c"), micro_batch=np.array([0, 0, 0, -1]),
        pass_kind=np.array([0, 0, 1, -1]), part=np.array([0, 1, 0, -1]),
        bucket=np.array([-1, 0, 0]), link_name=names.__getitem__,
        link_tail=None, link_head=None, decisions=(), images=None,
    )  # fmt: skip


@pytest.fixture(scope="session")
def details(record):
    return CaseDetails(record=record)
