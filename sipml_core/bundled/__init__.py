"""What the core itself offers, registered as any plugin is.

In: nothing. Out: the hooks of the plugin `core`.
Imports `collectives`, which every job chooses from; the rooms of all else when an experiment names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.collectives import ALL_REDUCES, EXCHANGES
from sipml_core.plugin import AllReduce, Deferred, Exchange, hookimpl


@hookimpl
def sipml_workloads() -> Iterable[Deferred]:
    classes = {
        "resnet50": "ResNet50",
        "transformer": "Transformer",
        "gpt": "Gpt",
        "megatron": "Megatron",
        "hf": "ConfiguredModel",
        "gpt3-175b": "Gpt3",
        "llama3-8b": "Llama8",
        "llama3-70b": "Llama70",
        "llama3-405b": "Llama405",
        "mixtral-8x7b": "Mixtral",
        "bert-large": "BertLarge",
        "vit-l": "VitLarge",
        "layers": "LayerTable",
    }
    return Deferred.of("sipml_core.workloads", classes)


@hookimpl
def sipml_gpu_models() -> Iterable[Deferred]:
    classes = {
        "v100": "V100",
        "a100": "A100",
        "h100": "H100",
        "h200": "H200",
        "v100-16gb": "V100Sxm2",
        "a100-40gb": "A100Sxm40",
        "a100-80gb": "A100Sxm80",
        "h100-80gb": "H100Sxm",
        "h200-141gb": "H200Sxm",
        "b200-180gb": "B200Sxm",
        "table": "TableGpu",
    }
    return Deferred.of("sipml_core.gpus", classes)


@hookimpl
def sipml_placers() -> Iterable[Deferred]:
    return Deferred.of("sipml_core.placement", {"algorithm1": "Algorithm1", "aligned": "Aligned"})


@hookimpl
def sipml_estimators() -> Iterable[Deferred]:
    classes = {"window": "Window", "backlog": "Backlog", "oracle": "Oracle"}
    return Deferred.of("sipml_core.estimators", classes)


@hookimpl
def sipml_exchanges() -> Iterable[type[Exchange]]:
    return EXCHANGES


@hookimpl
def sipml_all_reduces() -> Iterable[type[AllReduce]]:
    return ALL_REDUCES


@hookimpl
def sipml_communication() -> Iterable[Deferred]:
    return Deferred.of("sipml_core.communication", {"ideal": "Ideal", "nccl": "Nccl"})


@hookimpl
def sipml_allocators() -> Iterable[Deferred]:
    classes = {"first-fit": "FirstFit", "contiguous": "Contiguous", "compact": "Compact", "random": "Random"}
    return Deferred.of("sipml_core.allocation", classes)
