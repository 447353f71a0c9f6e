"""Rows of `data/training.csv`: each source with its own network, plan and formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sipml_core.validating.rows import (
    MeasuredRow,
    data_file,
    degrees_text,
    gpt_workload,
    read_csv,
    too_large,
    training_tables,
)

Row = Mapping[str, str]

#: Tables, time that was measured [us], and what was assumed.
Found = tuple[dict[str, Any], float, str]


class NotRunError(Exception):
    """A row that cannot be run, and why."""


def training_rows() -> Iterator[MeasuredRow]:
    """Yield every row of the file but bus bandwidths, which `busbw_rows` has."""
    for number, row in enumerate(read_csv("training.csv")):
        if row["id"].startswith("nccl/"):
            continue
        prefix = row["id"].partition("/")[0]
        family, read = SOURCES[prefix]
        tables, measured_us, assumed, reason = None, 0.0, "", ""
        try:
            tables, measured_us, assumed = read(row)
            reason = too_large(tables["plan"], int(row["layers"] or 0) or 32)
        except NotRunError as error:
            reason = str(error)
        yield MeasuredRow(
            name=row["id"],
            family=family,
            source=row["source"],
            gpu=row["gpu"],
            gpus=int(row["n_gpus"]),
            setup=_setup(row),
            measured_us=measured_us,
            fitted=_is_fitted(row, number),
            tables=tables,
            assumed=assumed,
            reason=reason,
        )


def _is_fitted(row: Row, number: int) -> bool:
    """Return whether a constant was fitted to a row: every second of B200, and of MPT on H100; one GPU's."""
    sources = ("simumax-b200/", "mpt/h100_80gb/")
    dense = int(row["CP"] or 1) == int(row["EP"] or 1) == 1
    half = row["id"].startswith(sources) and number % 2 == 0 and dense
    one_gpu = row["id"].startswith(("dlperf/", "resnet50/")) and int(row["n_gpus"]) == 1
    return half or one_gpu


def _setup(row: Row) -> str:
    degrees = {key: int(row[key.upper()] or 1) for key in ("tp", "cp", "pp", "ep")}
    degrees["dp"] = int(row["DP"] or 0) or int(row["n_gpus"]) // (
        degrees["tp"] * degrees["pp"] * degrees["cp"]
    )
    model = row["model"].partition(" (")[0]
    size = f"{row['hidden']} x {row['layers']}" if row["hidden"] and row["model"] == "GPT" else model
    batch = f", mb {row['micro_batch']}" if row["micro_batch"] else ""
    return f"{size}, {degrees_text(**degrees)}{batch}"


def _plan(row: Row, **others: Any) -> dict[str, Any]:
    """Return degrees and batches as the row states them."""
    tp, pp, cp = int(row["TP"] or 1), int(row["PP"] or 1), int(row["CP"] or 1)
    dp = int(row["DP"] or 0) or int(row["n_gpus"]) // (tp * pp * cp)
    plan = {"mp": tp, "pp": pp, "dp": dp, "global_batch": int(row["global_batch"] or 0), **others}
    if cp > 1:
        plan["cp"] = cp
    if int(row["EP"] or 1) > 1:
        plan["ep"] = int(row["EP"])
    if row["micro_batch"]:
        plan.setdefault("micro_batch", int(row["micro_batch"]))
    return plan


def _recompute(row: Row) -> str:
    return {"full": "full", "seq+selective": "selective"}.get(row["recompute"], "none")


def _interleaved(row: Row, layers: int) -> dict[str, Any]:
    """Return the schedule of Megatron-LM with two layers a chunk, or 1F1B where that does not fit."""
    stages = int(row["PP"] or 1)
    a_stage = layers // stages
    chunks = max(a_stage // 2, 1) if a_stage > 2 else a_stage
    if stages == 1 or chunks < 2 or layers % (stages * chunks):
        return {}
    return {"schedule": "interleaved", "chunks": chunks}


def sc21_flops(row: Row) -> float:
    """Return the FLOPs of a step by the formula of SC'21, with full recomputation (equation 3)."""
    b, s, n_layers = float(row["global_batch"]), float(row["seq"]), float(row["layers"])
    h, v = float(row["hidden"]), float(row["vocab"])
    return 96.0 * b * s * n_layers * h**2 * (1.0 + s / (6.0 * h) + v / (16.0 * n_layers * h))


def model_flops(row: Row) -> float:
    """Return the FLOPs of a step without recomputation."""
    b, s, n_layers = float(row["global_batch"]), float(row["seq"]), float(row["layers"])
    h, v = float(row["hidden"]), float(row["vocab"])
    return 72.0 * b * s * n_layers * h**2 * (1.0 + s / (6.0 * h) + v / (12.0 * n_layers * h))


def _dlperf(row: Row) -> Found:
    """DLPerf's V100 servers, wired as a cube mesh; gradients at the end in Megatron-LM, else overlapped."""
    gpus = int(row["n_gpus"])
    mesh = {8: "v100_cube_mesh.csv", 16: "v100_cube_mesh_pair.csv"}.get(gpus)
    topology: dict[str, Any] = {"name": "elect-cluster", "uplink_gbps": 100.0}
    if mesh:
        topology = {"name": "graph", "file": data_file(mesh), "server_gpus": 8}
    overlapped = row["id"].endswith("OneFlow")
    plan = _plan(row, recompute="full", bucket_bytes="25 MB" if overlapped else "1 TB")
    tables = training_tables(
        gpu="v100-16gb", gpus=gpus, port_gbytes_per_s=150.0, plan=plan, topology=topology,
        workload=_gpt_of(row),
    )  # fmt: skip
    return tables, int(row["global_batch"]) / float(row["measured"]) * 1e6, ""


def _sc21(row: Row) -> Found:
    """SC'21, table 1: A100 servers with 8 x 200 Gb/s, full recomputation, interleaved stages."""
    layers = int(row["layers"])
    plan = _plan(row, recompute="full", bucket_bytes="1 TB", **_interleaved(row, layers))
    plan.setdefault("micro_batch", 1 if plan["pp"] > 1 else 4)
    tables = training_tables(
        gpu="a100-80gb", gpus=int(row["n_gpus"]), port_gbytes_per_s=300.0, server_gbps=1600.0, plan=plan,
        workload=_gpt_of(row),
    )  # fmt: skip
    time_us = sc21_flops(row) / (int(row["n_gpus"]) * float(row["measured"]) * 1e6)
    return tables, time_us, f"micro-batch {plan['micro_batch']}"


def _seqsel(row: Row) -> Found:
    """Korthikanti et al. 2022, table 5."""
    if not row["layers"]:
        # Table 3 of the same paper: 1T is 128 layers of 25600 with 160 heads.
        row = {**row, "layers": "128", "hidden": "25600", "heads": "160"}
    plan = _plan(row, recompute=_recompute(row), bucket_bytes="1 TB")
    plan.setdefault("micro_batch", 4 if plan["pp"] == 1 else 1)
    plan["layout"] = "tensor" if row["recompute"].startswith("seq") else "megatron"
    tables = training_tables(
        gpu="a100-80gb", gpus=int(row["n_gpus"]), port_gbytes_per_s=300.0, server_gbps=1600.0, plan=plan,
        workload=_gpt_of(row),
    )  # fmt: skip
    return tables, float(row["measured"]) * 1e6, f"micro-batch {plan['micro_batch']}"


def _megatron_h100(row: Row) -> Found:
    """Megatron-LM's table for H100: TFLOP/s of the model, distributed optimizer, sequence parallelism."""
    plan = _plan(row, zero=1, layout="tensor", **_interleaved(row, int(row["layers"])))
    plan.setdefault("micro_batch", 1)
    tables = training_tables(
        gpu="h100-80gb", gpus=int(row["n_gpus"]), port_gbytes_per_s=450.0, server_gbps=3200.0, plan=plan,
        workload=_fused_gpt_of(row),
    )  # fmt: skip
    time_us = model_flops(row) / (int(row["n_gpus"]) * float(row["measured"]) * 1e6)
    return tables, time_us, "micro-batch 1, fused attention, no recomputation, 8 x 400 Gb/s"


def _mpt(row: Row) -> Found:
    """llm-foundry: FSDP in units of a layer, fused attention."""
    shared = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2}[row["sharding"]]
    a100 = row["gpu"].startswith("a100")
    unit_bytes = 24.0 * float(row["hidden"]) ** 2
    plan = _plan(row, zero=shared, recompute=_recompute(row), bucket_bytes=unit_bytes)
    tables = training_tables(
        gpu=row["gpu"].replace("_", "-"), gpus=int(row["n_gpus"]),
        port_gbytes_per_s=300.0 if a100 else 450.0, server_gbps=1600.0 if a100 else 3200.0, plan=plan,
        workload=_fused_gpt_of(row), kernels="eager",
    )  # fmt: skip
    tokens = int(row["global_batch"]) * int(row["seq"]) / int(row["n_gpus"])
    return tables, tokens / float(row["measured"]) * 1e6, "" if a100 else "8 x 400 Gb/s a server"


def _gpt_of(row: Row) -> dict[str, Any]:
    """Return the GPT of a row, with a kernel for each step of attention."""
    return gpt_workload(row["layers"], row["hidden"], row["heads"], row["seq"], int(row["vocab"]))


def _fused_gpt_of(row: Row) -> dict[str, Any]:
    """Return the GPT of a row, with fused attention and no dropout."""
    shape = (row["layers"], row["hidden"], row["heads"], row["seq"], int(row["vocab"]))
    return _gpt2(*shape, dropout=0.0)


def _gpt2(
    layers: str | int, hidden: str | int, heads: str | int, sequence: str | int, vocabulary: int,
    *, dropout: float, tied: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return a GPT by its configuration, with fused attention."""
    return {
        "sequence": int(sequence),
        "configuration": {
            "model_type": "gpt2", "n_embd": int(hidden), "n_layer": int(layers), "n_head": int(heads),
            "n_positions": int(sequence), "vocab_size": vocabulary, "resid_pdrop": dropout,
            "tie_word_embeddings": tied,
        },
    }  # fmt: skip


def _llama(
    layers: int, hidden: int, heads: int, groups: int, width: int, vocabulary: int, sequence: int
) -> Any:
    return {
        "sequence": sequence,
        "configuration": {
            "model_type": "llama", "hidden_size": hidden, "intermediate_size": width,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups,
            "vocab_size": vocabulary, "max_position_embeddings": sequence, "tie_word_embeddings": False,
        },
    }  # fmt: skip


def _deepseek(layers: int, sequence: int, **shape: int) -> dict[str, Any]:
    """Return DeepSeek-V2 or V3 with one dense layer and fewer layers in all, as SimuMax ran them."""
    return {
        "sequence": sequence,
        "configuration": {
            "model_type": "deepseek_v3", "num_hidden_layers": layers, "first_k_dense_replace": 1,
            "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "max_position_embeddings": sequence, "tie_word_embeddings": False, **shape,
        },
    }  # fmt: skip


def _qwen3_moe(layers: int, sequence: int) -> dict[str, Any]:
    """Return Qwen3-30B-A3B."""
    return {
        "sequence": sequence,
        "configuration": {
            "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": layers,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
            "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
            "decoder_sparse_step": 1, "vocab_size": 151936, "max_position_embeddings": sequence,
            "tie_word_embeddings": False,
        },
    }  # fmt: skip


#: Shapes as published: layers, and the workload at a sequence.
_NEMO: Mapping[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "GPT3-20B": (44, lambda s: _gpt2(44, 6144, 48, s, 51200, dropout=0.1)),
    "GPT3-175B": (96, lambda s: _gpt2(96, 12288, 96, s, 51200, dropout=0.1)),
    "LLAMA2-7B": (32, lambda s: _llama(32, 4096, 32, 32, 11008, 32000, s)),
    "LLAMA2-13B": (40, lambda s: _llama(40, 5120, 40, 40, 13824, 32000, s)),
    "LLAMA3.1_405B": (126, lambda s: _llama(126, 16384, 128, 8, 53248, 128256, s)),
    "Qwen3_30B_a3B": (48, lambda s: _qwen3_moe(48, s)),
    "Nemotron-8B": (32, lambda s: _gpt2(32, 4096, 32, s, 256000, dropout=0.0, tied=False)),
}


def _nemo(row: Row) -> Found:
    """NeMo 24.07 in FP8 on DGX H100: distributed optimizer, sequence parallelism, interleaved stages."""
    if row["model"] not in _NEMO:
        raise NotRunError(f"no shape of {row['model']} is at hand")
    layers, workload = _NEMO[row["model"]]
    plan = _plan(row, zero=1, layout="tensor", **_interleaved(row, layers))
    sequence = int(row["seq"])
    tables = training_tables(
        gpu="h100-80gb", gpus=int(row["n_gpus"]), port_gbytes_per_s=450.0, server_gbps=3200.0, plan=plan,
        workload=workload(sequence), precision="fp8",
    )  # fmt: skip
    tokens = int(row["global_batch"]) * sequence / int(row["n_gpus"])
    return tables, tokens / float(row["measured"]) * 1e6, "two layers a chunk of a stage"


#: SimuMax's models: those published, with fewer layers.
SIMUMAX: Mapping[str, Callable[[int, int], dict[str, Any]]] = {
    "deepseekv2": lambda layers, s: _deepseek(
        layers,
        s,
        hidden_size=5120,
        intermediate_size=12288,
        n_routed_experts=160,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1536,
        vocab_size=102400,
    ),
    "deepseekv3": lambda layers, s: _deepseek(
        layers,
        s,
        hidden_size=7168,
        intermediate_size=18432,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        vocab_size=129280,
    ),
    "llama3_70b": lambda layers, s: _llama(layers, 8192, 64, 8, 28672, 128256, s),
    "llama3_405b": lambda layers, s: _llama(layers, 16384, 128, 8, 53248, 128256, s),
}


def _simumax(row: Row) -> Found:
    """SimuMax's measured steps on one server of 8 B200."""
    name = row["id"].partition("/")[2]
    family = next((known for known in SIMUMAX if name.startswith(known)), None)
    if family is None:
        raise NotRunError(f"no shape of {name} is at hand")
    layers = 12 if "l12" in name else 4
    batches, micro_batch = int(row["grad_accum"]), int(row["micro_batch"])
    plan = _plan(row, zero=1, layout="tensor", fp32_gradients=True)
    plan["global_batch"] = plan["dp"] * batches * micro_batch
    tables = training_tables(
        gpu="b200-180gb", gpus=int(row["n_gpus"]), port_gbytes_per_s=900.0, plan=plan,
        workload=SIMUMAX[family](layers, int(row["seq"])),
    )  # fmt: skip
    return tables, float(row["measured"]) * 1e3, "distributed optimizer"


#: Words of the target in a batch of fairseq over those there is room for: 402 000 in 128 x 3584 (Ott et al.
#: 2018, "Scaling Neural Machine Translation"; fairseq's example of it; from memory). What is left is padding.
WORDS_OF_BATCH = 402_000 / (128 * 3584)

_DLE_GPUS = {
    "v100-16GB": ("v100-16gb", 150.0),
    "a100-80GB": ("a100-80gb", 300.0),
    "a100-40GB": ("a100-40gb", 300.0),
}


def _single_server(row: Row, workload: Mapping[str, Any], batch: int, per_step: float) -> Found:
    gpu, port = _DLE_GPUS[row["gpu"]]
    gpus = int(row["n_gpus"])
    topology = None
    if gpus == 8 and gpu == "v100-16gb":
        topology = {"name": "graph", "file": data_file("v100_cube_mesh.csv"), "server_gpus": 8}
    plan = {"mp": 1, "dp": gpus, "global_batch": batch}
    tables = training_tables(
        gpu=gpu, gpus=gpus, port_gbytes_per_s=port, workload=workload, plan=plan, precision=row["precision"],
        topology=topology,
    )  # fmt: skip
    return tables, per_step / float(row["measured"]) * 1e6, ""


def _resnet(row: Row) -> Found:
    """DeepLearningExamples, ResNet-50 v1.5: images/s."""
    batch = int(row["global_batch"])
    return _single_server(row, {"name": "resnet50"}, batch, batch)


def _transformer(row: Row) -> Found:
    """DeepLearningExamples, Transformer-big of 2019: words of the target/s, sentences taken as 32 words.

    Only words count, and a batch is filled up with padding.
    """
    batch = int(row["micro_batch"]) * int(row["n_gpus"])
    words = int(row["seq"])
    workload = {
        "name": "transformer", "layers": int(row["layers"]), "hidden": int(row["hidden"]),
        "feed_forward": 4096, "heads": int(row["heads"]), "vocabulary": int(row["vocab"]),
        "source_sequence": words, "target_sequence": words,
    }  # fmt: skip
    tables, time_us, _ = _single_server(row, workload, batch, WORDS_OF_BATCH * batch * words)
    return tables, time_us, "sentences of 32 words, an eighth of each batch is padding"


def _unstated(_: Row) -> Found:
    raise NotRunError("sequence, batch or layers are not stated")


def _time_to_train(_: Row) -> Found:
    raise NotRunError("a time to train: neither the plan nor the steps are stated")


#: By the first part of a row's name: what tables call the source, and how its rows are read.
SOURCES: Mapping[str, tuple[str, Callable[[Row], Found]]] = {
    "dlperf": ("DLPerf, V100", _dlperf),
    "megatron-sc21": ("Megatron SC'21", _sc21),
    "megatron-h100": ("Megatron-LM on H100", _megatron_h100),
    "seqsel": ("Korthikanti et al.", _seqsel),
    "mpt": ("llm-foundry MPT", _mpt),
    "dle-transformer": ("Transformer-big", _transformer),
    "resnet50": ("ResNet-50", _resnet),
    "nemo2407": ("NeMo 24.07, FP8", _nemo),
    "megatron-bridge": ("Megatron-Bridge, FP8", _nemo),
    "llama3-405b": ("Llama 3", _unstated),
    "simumax-b200": ("SimuMax, B200", _simumax),
    "mlperf51": ("MLPerf", _time_to_train),
}
