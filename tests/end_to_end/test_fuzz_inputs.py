"""Files that a user brings, damaged at random: a value comes out, or one short line that says why not."""

import io
import random

import networkx as nx
import numpy as np
import pytest
from sipml_graph import Graph

from sipml_core.errors import SipmlError
from sipml_core.experiment import apply_overrides, read_experiment, read_tables
from sipml_core.model import Cluster
from sipml_core.scheduling import read_matrix

EXPERIMENT = """
title = "fuzz"
seed = 3
baseline = "flat"
cluster = { gpus = 8, bandwidth_gbps = "100 Gb/s", gpu_speed = { "3" = 0.5 }, jitter = 0.1 }
gpu = { name = "a100", memory = "80 GB", precision = "mixed" }
strategy = { tau_us = "10 us", bucket_bytes = "25 MB", layout = "tensor", placer = { name = "aligned" } }
engine = { queue = "pair", max_time_us = "1 h", fold = "auto" }
search = { global_batches = [8, 16], mp = [1, 2], top = 2, placers = ["aligned", { name = "algorithm1" }] }

[[workload]]
name = "gpt"
layers = 1
hidden = 64
heads = 4
strategy = { mp = 2, dp = 4, global_batch = 16 }

[[topology]]
name = "elect-flat"
label = "flat"
latency_us = "500 ns"

[[topology]]
name = "sip-ring"
reach_hops = 4
interval_us = 100
estimator = { name = "backlog" }
scheduler = "ring-fast"
"""

CSV = "from,to,gbps,latency_us\n" + "".join(f"gpu{i},leaf{i % 2},100 Gb/s,0.5\n" for i in range(4))
TOML = """
edge = [{ from = "a", to = "s", gbps = 100 }, { from = "b", to = "s", latency_us = "1 us" }]
node = [{ name = "a", gpu = 0 }, { name = "b", gpu = 1 }, { name = "s" }]
"""

#: What is put into a text in place of a piece of it.
PIECES = [
    "", "0", "-1", "1e400", "nan", "inf", "1e-320", "9" * 30, "9" * 5000, "true", "'", '"', "[", "]" * 3, "{",
    "[" * 3000, "=", ",", "\n", "\0", "\u00b2", "\ud7ff", "x" * 3000, "gb/s", "Ms", "[[topology]]",
    "name = 3", "01",
]  # fmt: skip


def graphml():
    file = io.BytesIO()
    nx.write_graphml(nx.Graph([("gpu0", "s"), ("gpu1", "s")]), file)
    return file.getvalue().decode()


def damaged(text, rng):
    """A text with one to three pieces cut out, doubled, or replaced."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.choice([0, 1, 1, 2, 5, 20]))
        piece = rng.choice([*PIECES, text[start:stop] * 2, chr(rng.randrange(1, 0x3000))])
        text = text[:start] + piece + text[stop:]
    return text


def outcome(act):
    """What came out, or the one line that refuses; anything else than `SipmlError` fails the test."""
    try:
        return act()
    except SipmlError as refusal:
        line = str(refusal)
        assert line
        assert "\n" not in line
        assert len(line) < 900, line
        return None


def experiments(tmp_path, text, rng, registry):
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    key = rng.choice(
        ["cluster.gpus", "topology.1.reach_hops", "workload.gpt.heads", "strategy.tau_us", "seed"]
    )
    changes = rng.choice([[], [f"{key}={rng.choice(PIECES)}"]])
    return read_experiment(apply_overrides(read_tables(path), changes), registry)


def graphs(name):
    def act(tmp_path, text, rng, registry):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return Graph(Graph.Options(file=str(path))).build(Cluster(gpus=4, bandwidth_gbps=100))

    return act


def matrices(tmp_path, text, rng, registry):
    path = tmp_path / "tm.csv"
    path.write_text(text, encoding="utf-8")
    return read_matrix(path)


KINDS = {
    "experiment": (EXPERIMENT, experiments),
    "csv": (CSV, graphs("net.csv")),
    "toml": (TOML, graphs("net.toml")),
    "graphml": (graphml(), graphs("net.graphml")),
    "matrix": ("0,1,2\n3,0,4\n5,6,0\n", matrices),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_damaged_text_is_read_or_refused_in_one_line(tmp_path, registry, kind, rounds):
    text, act = KINDS[kind]
    rng = random.Random(f"{kind} {rounds}")
    for _ in range(rounds):
        broken = damaged(text, rng)
        outcome(lambda broken=broken: act(tmp_path, broken, rng, registry))


@pytest.mark.parametrize("ending", [".npy", ".npz"])
@pytest.mark.parametrize("rounds", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_arrays_are_read_or_refused_in_one_line(tmp_path, ending, rounds):
    """What is read has finite demands, however the file was damaged."""
    rng = random.Random(f"{ending} {rounds}")
    path = tmp_path / f"tm{ending}"
    if ending == ".npy":
        np.save(path, np.array([[0, 1.5], [2, 0]]))
    else:
        np.savez(path, format=b"csr", shape=[2, 2], indices=[1, 0], indptr=[0, 1, 2], data=[1.5, 2.0])
    whole = path.read_bytes()
    for _ in range(rounds):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(bytes(content[: rng.choice([len(content), rng.randrange(len(content))])]))
        traffic = outcome(lambda: read_matrix(path))
        assert traffic is None or np.isfinite(traffic.demand).all()
