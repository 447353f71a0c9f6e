"""What was measured, as cases that can be run: their conditions, and the time that was measured."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from typing import Any

import attrs

from sipml_core.fields import frozen

#: Constants of the software, the same for all sources: docs/gpu-models.md says what they were fitted to.
HOST_US, HOST_COLLECTIVE_US, SLOWEST_SIGMA = 100.0, 20.0, 0.03

#: Largest job that the suite simulates: tasks of one replica.
MAX_TASKS = 1.5e6


@frozen(kw_only=True)
class MeasuredRow:
    """One measurement."""

    name: str
    #: Short name of where it is from; `source` in full.
    family: str
    source: str
    gpu: str
    gpus: int
    #: Degrees, micro-batch and size, for tables.
    setup: str
    measured_us: float
    #: A constant was fitted to it.
    fitted: bool = False
    #: Tables of an experiment, whose workload may be a configuration (`model_type`, ...) instead of a name.
    tables: Mapping[str, Any] | None = None
    #: Or a collective: kind, bytes, algorithm and whether `tables` are of a network alone.
    collective: tuple[str, float, str] | None = None
    #: What was assumed where the source says nothing.
    assumed: str = ""
    #: Why it cannot be run; empty: it can.
    reason: str = ""


def column(doc: str, unit: str = "") -> Any:
    """Declare a field that is a column of a file of results."""
    return attrs.field(metadata={"doc": doc, "unit": unit})


def read_csv(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of this room's data."""
    text = (files("sipml_core.validating") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def data_file(name: str) -> str:
    """Return the path of a file of this room's data."""
    with as_file(files("sipml_core.validating") / "data" / name) as path:
        return str(path)


def training_tables(
    *,
    gpu: str,
    gpus: int,
    port_gbytes_per_s: float,
    workload: Mapping[str, Any],
    plan: Mapping[str, Any],
    server_gbps: float | None = None,
    precision: str = "mixed",
    topology: Mapping[str, Any] | None = None,
    kernels: str = "fused",
) -> dict[str, Any]:
    """Return an experiment on servers of 8 GPUs with a switch, or on `topology`.

    Ops are cut into as many parts as there are GPUs in a group, as frameworks cut them, whatever their size;
    the optimizer starts when all gradients are there. Memory is not checked: what ran did fit.
    """
    if topology is None:
        topology = {"name": "elect-flat"}
        if gpus > 8:
            topology = {"name": "elect-cluster", "uplink_gbps": server_gbps}
    framework = {
        "host_us": HOST_US, "host_collective_us": HOST_COLLECTIVE_US, "slowest_sigma": SLOWEST_SIGMA,
    }  # fmt: skip
    return {
        "title": "validation",
        "cluster": {"gpus": gpus, "bandwidth_gbps": f"{port_gbytes_per_s} GB/s"},
        "gpu": {"name": gpu, "precision": precision, "memory": "100 TB", "kernels": kernels},
        "communication": {"library": "nccl"},
        "framework": framework,
        "plan": {"layout": "megatron", "tau_us": 0.001, "optimizer_step": "last", **_ring(plan), **plan},
        "workload": dict(workload),
        "topology": dict(topology),
    }


def _ring(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the exchange of groups over several servers: a ring in their order, as libraries form it."""
    return {"exchange": "ring"} if plan["mp"] > 8 else {}


def too_large(plan: Mapping[str, Any], layers: int) -> str:
    """Return why a job is left out that takes longer than a minute or two; empty: it does not.

    One replica is simulated whole, every micro-batch of it: about 50 tasks of each layer on each of its GPUs.

    >>> too_large({"mp": 8, "dp": 8, "global_batch": 1536, "micro_batch": 2}, layers=96)
    'about 4 million tasks in one replica: more than the 1.5 million that the suite simulates'
    """
    batches = plan["global_batch"] / plan["dp"] / plan.get("micro_batch", plan["global_batch"])
    tasks = 50.0 * layers * plan["mp"] * max(batches, 1.0)
    if tasks <= MAX_TASKS:
        return ""
    return (
        f"about {tasks / 1e6:.0f} million tasks in one replica: more than the {MAX_TASKS / 1e6:g} million "
        "that the suite simulates"
    )


def network_tables(
    gpus: int, port_gbytes_per_s: float, *, server_gbytes_per_s: float | None = None, adds: bool = False
) -> dict[str, Any]:
    """Return a cluster and a topology of servers of 8 GPUs, or of one server."""
    topology: dict[str, Any] = {"name": "elect-flat", "switches_add": adds}
    if server_gbytes_per_s:
        topology = {
            "name": "elect-cluster", "uplink_gbps": 8 * server_gbytes_per_s, "switches_add": adds,
        }  # fmt: skip
    return {
        "cluster": {"gpus": gpus, "bandwidth_gbps": f"{port_gbytes_per_s} GB/s"},
        "communication": {"library": "nccl"},
        "topology": topology,
    }


def nccl_rows() -> Iterator[MeasuredRow]:
    """Yield the collectives on H100; sizes of the file are elements of 2 bytes."""
    for number, row in enumerate(read_csv("nccl_h100.csv")):
        kind = {"alltoall": "all_to_all"}.get(row["op_name"], row["op_name"])
        ranks, size_bytes = int(row["num_gpus"]), 2.0 * int(row["message_size"])
        yield MeasuredRow(
            name=f"nccl-h100/{kind}/{ranks}/{size_bytes:.0f}",
            family="NCCL on H100",
            source="ai-dynamo/aiconfigurator @ 095f58a (NCCL 2.29)",
            gpu="h100",
            gpus=ranks,
            setup=f"{kind} of {size_bytes:.0f} B",
            measured_us=1e3 * float(row["latency_ms"]),
            fitted=number % 2 == 0,
            tables=network_tables(ranks, 450.0, adds=ranks > 2),
            collective=(kind, size_bytes, "auto"),
        )


def busbw_rows() -> Iterator[MeasuredRow]:
    """Yield bus bandwidths of all-reduces, as times."""
    for row in read_csv("busbw.csv"):
        gpus, size_bytes = int(row["gpus"]), float(row["size_bytes"])
        across = row["server_gbytes_per_s"]
        busbw = float(row["busbw_gbytes_per_s"])
        yield MeasuredRow(
            name=f"busbw/{row['gpu']}/{gpus}/{size_bytes:.0f}/{row['algorithm']}",
            family="bus bandwidths",
            source=row["source"],
            gpu=row["gpu"],
            gpus=gpus,
            setup=f"all_reduce of {size_bytes:.0f} B, {row['algorithm']}",
            measured_us=2.0 * (gpus - 1) / gpus * size_bytes / busbw / 1e3,
            fitted=row["gpu"] == "h200" and gpus > 8,
            tables=network_tables(
                gpus, float(row["link_gbytes_per_s"]),
                server_gbytes_per_s=float(across) if across else None, adds=row["switches_add"] == "true",
            ),
            collective=("all_reduce", size_bytes, row["algorithm"]),
        )  # fmt: skip


def vtrain_rows() -> Iterator[MeasuredRow]:
    """Yield GPT models of Megatron-DeepSpeed on servers of 8 A100 80 GB, one and several."""
    for name in ("vtrain_single", "vtrain_multi"):
        for number, row in enumerate(read_csv(f"{name}.csv")):
            gpus = int(row["gpus"])
            if gpus == 1:
                continue
            degrees = {key: int(row[key]) for key in ("tp", "dp", "pp")}
            several = name == "vtrain_multi"
            size = f"{row['hidden']} x {row['layers']}"
            tables = training_tables(
                gpu="a100-80gb",
                gpus=gpus,
                port_gbytes_per_s=300.0,
                server_gbps=1600.0,
                workload=gpt_workload(row["layers"], row["hidden"], row["heads"], row["sequence"], 51200),
                plan={
                    "mp": degrees["tp"], "pp": degrees["pp"], "dp": degrees["dp"],
                    "global_batch": int(row["global_batch"]), "micro_batch": int(row["micro_batch"]),
                    "bucket_bytes": "1 TB", "recompute": "full" if several else "none",
                },
                kernels="fused" if several else "eager",
            )  # fmt: skip
            yield MeasuredRow(
                name=f"{name}/{number}",
                family="vTrain, several servers" if several else "vTrain, one server",
                source="VIA-Research/vTrain @ f8dda84",
                gpu="A100-80GB",
                gpus=gpus,
                setup=f"{size}, {degrees_text(**degrees)}, mb {row['micro_batch']}",
                measured_us=1e3 * float(row["iteration_ms"]),
                fitted=not several and number % 2 == 0,
                tables=tables,
                reason=too_large(tables["plan"], int(row["layers"])),
                assumed="full recomputation, without which most would not fit; 8 x 200 Gb/s a server"
                if several
                else "no recomputation, vocabulary 51200, softmax not fused",
            )  # fmt: skip


def gpt_workload(layers: str, hidden: str, heads: str, sequence: str, vocabulary: int) -> dict[str, Any]:
    return {
        "name": "gpt", "layers": int(layers), "hidden": int(hidden), "heads": int(heads),
        "sequence": int(sequence), "vocabulary": vocabulary,
    }  # fmt: skip


def degrees_text(*, tp: int, dp: int, pp: int, cp: int = 1, ep: int = 1) -> str:
    """Return the degrees above 1.

    >>> degrees_text(tp=8, dp=4, pp=1), degrees_text(tp=1, dp=1, pp=1)
    ('TP 8 DP 4', 'one GPU')
    """
    named = (("TP", tp), ("CP", cp), ("PP", pp), ("DP", dp), ("EP", ep))
    return " ".join(f"{name} {degree}" for name, degree in named if degree > 1) or "one GPU"
