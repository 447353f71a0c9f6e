"""Mutated experiments, graph files and matrices: each ends in a result that adds up, or in one line.

The same seeds every time. `python -m pytest -m slow tests/end_to_end/test_fuzz.py` tries many more.
"""

import copy
import io
import json
import math
import random

import numpy as np
import pytest
import tomli_w
from click.testing import CliRunner

from sipml_core.cli.main import main

#: Seeds of a quick look, and of the long one; each is one file.
SEEDS = range(40)
MORE_SEEDS = range(1000, 3000)

TOPOLOGIES = [
    {"name": "elect-flat", "latency_us": 1.0},
    {"name": "elect-cluster", "server_gpus": 2, "uplink_gbps": 100},
    {"name": "sip-ring", "reach_hops": 2, "interval_us": 50.0, "reconfiguration_us": 10.0},
    {"name": "sip-ocs", "switches": 4},
]

EXPERIMENT = {
    "title": "fuzz",
    "seed": 1,
    "cluster": {"gpus": 4, "bandwidth_gbps": 100, "launch_us": 5.0, "jitter": 0.1},
    "gpu": {"name": "v100", "precision": "mixed"},
    "strategy": {"tau_us": 10.0, "layout": "auto", "ring_steps": "fluid", "exchange": "auto"},
    "engine": {"queue": "pair", "fold": "auto"},
    "workload": [{
        "name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100,
        "strategy": {"mp": 2, "dp": 2, "global_batch": 8, "iterations": 1},
    }],
    "topology": TOPOLOGIES,
}  # fmt: skip

#: What may stand where another value stood. Large sizes are left out: they may take long to refuse.
VALUES = [
    0, 1, 2, 3, 4, 8, 12, -1, 0.5, 1.5, -0.0, 1e-9, 1e9, 1e300, 5e-324, float("nan"), float("inf"), True, "",
    "a", "[/a]", "ü", "x" * 300, "1 Tbps", "5 us", "2 GB", "1 parsec", "sip-ring", "ring-fast", "ring-ilp",
    "auto", "sample", "tensor", "megatron", "direct", "chain", "ring", "require", "never", "source", "oracle",
    [], [1, 2], {}, {"a": 1}, {"0": 0.5}, [{"name": "elect-flat"}],
]  # fmt: skip
KEYS = [
    "gpu_speed", "jitter", "relay", "all_dark", "wavelength", "switches", "estimator", "scheduler", "label",
    "mp", "dp", "counter_rotating", "recompute", "bucket_bytes", "placer", "memory", "latency_us", "speed",
    "wavelength_gbps", "max_time_us", "file",
]  # fmt: skip

#: Values that make sense, in their places, so that some of the files run. "topology" is one of them.
PLAUSIBLE = {
    ("cluster",): {
        "gpus": [1, 2, 3, 4, 6, 8], "bandwidth_gbps": [0.001, 25, 60, 800, "4 Tbps"], "launch_us": [0, 100],
        "jitter": [0, 0.5], "gpu_speed": [{"0": 0.3}, {"1": 0.9, "0": 0.5}], "minimum_op_us": [0, 40],
    },
    ("gpu",): {"name": ["a100", "v100"], "precision": ["fp32", "mixed"], "memory": ["1 MB", "3 MB", "1 TB"]},
    ("engine",): {"queue": ["source", "pair"], "fold": ["auto", "never"], "max_time_us": [100, 1e5]},
    ("workload", 0): {
        "layers": [1, 2, 3], "hidden": [8, 32, 96], "heads": [1, 2, 8], "sequence": [1, 7, 64],
        "vocabulary": [2, 99, 1000],
    },
    ("workload", 0, "strategy"): {
        "mp": [1, 2, 3, 4], "dp": [1, 2, 3, 4], "global_batch": [1, 4, 12, 24], "iterations": [1, 2, 4],
        "tau_us": [0.01, 1, 1e6], "layout": ["auto", "tensor", "sample", "megatron"], "recompute": [True],
        "ring_steps": ["explicit", "fluid"], "exchange": ["direct", "chain"], "counter_rotating": [True],
        "bucket_bytes": [1, "10 kB", "1 TB"], "placer": ["aligned", "algorithm1"],
    },
    ("topology", 0): {
        "latency_us": [0, 3, 1000], "server_gpus": [1, 3, 4], "uplink_gbps": [0.01, 800],
        "reach_hops": [1, 3], "interval_us": [20, 1000], "reconfiguration_us": [0, 15],
        "switches": [1, 2, 3, 8], "relay": [True], "all_dark": [True], "estimator": ["backlog", "oracle"],
        "label": ["net [a]", "Größe"], "scheduler": ["ring-mcf", "ring-ilp", "ocs-ilp"],
    },
}  # fmt: skip


def adjust(tables, rng):
    """One change to something that makes sense, or would in another experiment."""
    path = rng.choice(list(PLAUSIBLE))
    key = rng.choice(list(PLAUSIBLE[path]))
    table_at(tables, path)[key] = copy.deepcopy(rng.choice(PLAUSIBLE[path][key]))


def call(*arguments):
    """Status and both streams of a command that ends as commands should."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code in (0, 1, 2), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    if done.exit_code == 2:
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("sipml: ")
        assert len(lines[0]) < 4000
    return done


def places(value, path=()):
    """Paths of all keys and list entries of nested tables."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def table_at(tables, path):
    for key in path:
        tables = tables[key]
    return tables


def mutate(tables, rng):
    """One change: another value, a key more, a key less, a table twice."""
    *path, key = rng.choice(list(places(tables)))
    table = table_at(tables, path)
    kind = rng.random()
    if kind < 0.55:
        table[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind < 0.75 and isinstance(table, dict):
        table[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
    elif kind < 0.9:
        del table[key]
    elif isinstance(table, list):
        table.append(copy.deepcopy(table[key]))


def scratch(text, rng):
    """A character more, less, another or twice, in a few places."""
    letters = list(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(letters))
        letters[at] = rng.choice(["", letters[at] * 2, rng.choice('0-9.,"[]=\n #ae\x00ü')])
        if not letters:
            break
    return "".join(letters) or " "


def finite(value):
    """No number in nested results is NaN or infinite."""
    if isinstance(value, dict):
        return all(finite(inner) for inner in value.values())
    if isinstance(value, list):
        return all(finite(inner) for inner in value)
    return not isinstance(value, float) or math.isfinite(value)


def check_run(file, folder):
    """`run` ends well, its numbers add up, and `validate` had said so."""
    valid = call("validate", file)
    ran = call("run", file, "--out", folder / "out", "--max-wall", "20")
    assert "nan" not in ran.stdout.replace("nanosecond", "").lower().split()
    if ran.exit_code == 2:
        assert (valid.exit_code, valid.stderr) == (2, ran.stderr)
        return
    result = json.loads((folder / "out" / "result.json").read_text())
    assert finite(result["cases"])
    unfit = {case["topology"] for case in result["cases"] if case["status"] == "infeasible"}
    assert (ran.exit_code == 1) == any(case["status"] != "ok" for case in result["cases"])
    if not any(case["status"] in ("failed", "unfinished") for case in result["cases"]):
        assert (valid.exit_code == 1) == bool(unfit)
    base = next(case for case in result["cases"] if case["topology"] == result["baseline"])
    for case in result["cases"]:
        if case["status"] != "ok":
            assert case["reason"]
            assert case["iteration_us"] is case["speedup"] is None
            continue
        accounts = [case[name] for name in ("compute_us", "exposed_us", "dark_us", "idle_us")]
        assert min(accounts) >= -1e-9 * case["iteration_us"]
        assert sum(accounts) == pytest.approx(case["iteration_us"], rel=1e-6)
        assert case["iteration_us"] >= case["lower_bound_us"] * (1 - 1e-6)
        assert case["compute_us"] > 0
        assert case["speedup"] > 0 if base["status"] == "ok" else case["speedup"] is None
        assert 0 <= case["gradient_bytes"] <= case["network_bytes"] * (1 + 1e-9)
        assert case["memory_bytes"] > 0


def experiment(seed, folder):
    rng = random.Random(seed)
    tables = copy.deepcopy(EXPERIMENT)
    tables["topology"] = rng.sample(TOPOLOGIES, rng.choice([1, 1, 2]))
    tables = copy.deepcopy(tables)
    for _ in range(rng.choice([1, 2, 3, 5])):
        adjust(tables, rng)
    if rng.random() < 0.4:
        mutate(tables, rng)
    text = tomli_w.dumps(tables)
    (folder / "fuzz.toml").write_text(scratch(text, rng) if rng.random() < 0.1 else text, encoding="utf-8")
    return folder / "fuzz.toml"


GRAPH = """\
from,to,gbps,latency_us
gpu0,a,100,0.5
gpu1,a,,0.5
gpu2,b,50,0.5
gpu3,b,400,0.5
a,spine,100,1
b,spine,100,1
"""
CELLS = ["", "0", "-1", "nan", "inf", "1e400", "gpu1", "gpu4", "gpu01", "a", "ü", "1 Tbps", "2 ms", "5,5"]


def graph(seed, folder):
    """An experiment on a network from a file in which cells, lines or characters changed."""
    rng = random.Random(seed)
    rows = [line.split(",") for line in GRAPH.splitlines()]
    for row in rows[1:]:
        row[2] = rng.choice(["", "100", "25 Gbps", "1 Tbps", "0.5"])
        row[3] = rng.choice(["", "0", "2 us", "1"])
    if rng.random() < 0.5:
        rows.append(["gpu0", rng.choice(["spine", "b", "gpu3"]), "10", "0"])
    for _ in range(rng.choice([0, 1, 1, 2])):
        row = rng.randrange(len(rows))
        kind = rng.random()
        if kind < 0.6:
            rows[row][rng.randrange(len(rows[row]))] = rng.choice(CELLS)
        elif kind < 0.75 and len(rows) > 1:
            del rows[row]
        elif kind < 0.9:
            rows.insert(row, list(rng.choice(rows)))
        else:
            rng.shuffle(rows[row])
    text = "\n".join(",".join(row) for row in rows) + "\n"
    (folder / "net.csv").write_text(scratch(text, rng) if rng.random() < 0.2 else text, encoding="utf-8")
    topology = {"name": "graph", "file": "net.csv", **({"directed": True} if rng.random() < 0.2 else {})}
    (folder / "fuzz.toml").write_text(tomli_w.dumps({**EXPERIMENT, "topology": [topology]}))
    return folder / "fuzz.toml"


def matrix(seed, folder):
    """A matrix of demands as text or as an array, with odd entries, or damaged."""
    rng = random.Random(seed)
    size = rng.choice([0, 1, 2, 3, 5, 8])
    dense = [[rng.choice([0, 0, 1, 2.5, 1e6]) if i != j else 0 for j in range(size)] for i in range(size)]
    odd = [0, -1, float("nan"), float("inf"), 1e300, 1e-100, 1]
    if size and rng.random() < 0.5:
        dense[rng.randrange(size)][rng.randrange(size)] = rng.choice(odd)
    if rng.random() < 0.3:
        kind = rng.choice(["f8", "f4", "i8", "bool", "U3"])
        with np.errstate(all="ignore"):
            array = np.array(dense).astype("f4" if kind in ("i8", "bool") else "f8")
            array = np.nan_to_num(array).astype(kind) if kind != "f8" else array
        buffer = io.BytesIO()
        np.save(buffer, array)
        content = bytearray(buffer.getvalue())
        if rng.random() < 0.5:
            content = content[: rng.randrange(1, len(content) + 1)]
        (folder / "tm.npy").write_bytes(content)
        return folder / "tm.npy"
    text = "\n".join(",".join(map(str, row)) for row in dense) + "\n"
    (folder / "tm.csv").write_text(scratch(text, rng) if rng.random() < 0.3 else text, encoding="utf-8")
    return folder / "tm.csv"


def check_plan(file, folder, seed):
    """A plan gives no GPU more than its bandwidth, and names exactly the pairs that it leaves out."""
    topology = ["sip-ring", "sip-ocs"][seed % 2]
    out = folder / "out"
    done = call(
        "circuits", "--topology", topology, "--matrix", file, "--out", out, "--no-picture", "--bandwidth", 100
    )
    if done.exit_code:
        return
    summary = json.loads((out / "plan.json").read_text())
    assert finite(summary)
    assert summary["total_gbps"] <= 100 * summary["gpus"] * (1 + 1e-9)
    assert (summary["minimum_gbps_per_demand"] == 0) == bool(summary["unserved_pairs"]) or not summary[
        "demanded_pairs"
    ]


CHECKS = {
    "experiment": (experiment, lambda file, folder, seed: check_run(file, folder)),
    "graph": (graph, lambda file, folder, seed: check_run(file, folder)),
    "matrix": (matrix, check_plan),
}


def fuzz(kind, seeds, folder):
    """Each seed in a folder of its own; the first that fails is named, with its file."""
    make, check = CHECKS[kind]
    for seed in seeds:
        here = folder / str(seed)
        here.mkdir()
        file = make(seed, here)
        try:
            check(file, here, seed)
        except AssertionError as error:
            raise AssertionError(f"{kind}, seed {seed}: {file}: {error}") from error


@pytest.mark.parametrize("kind", CHECKS)
def test_whatever_is_in_a_file_there_is_a_result_or_one_line(kind, tmp_path):
    fuzz(kind, SEEDS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_whatever_is_in_many_files_there_is_a_result_or_one_line(kind, tmp_path):
    fuzz(kind, MORE_SEEDS, tmp_path)
