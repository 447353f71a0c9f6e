"""Models to train, as graphs of operations.

In: options and a batch. Out: an `OpGraph` with forward, backward and optimizer ops, and convergence.
Imports `plugin` and what is below it; each file only when something of it is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.workloads import layers
    from sipml_core.workloads.backward import training_step
    from sipml_core.workloads.builder import GraphBuilder
    from sipml_core.workloads.gpt import Gpt, Megatron
    from sipml_core.workloads.languagemodels import (
        LANGUAGE_MODELS,
        BertLarge,
        ConfiguredModel,
        Gpt3,
        Llama8,
        Llama70,
        Llama405,
        Mixtral,
        VitLarge,
    )
    from sipml_core.workloads.layertable import LayerTable
    from sipml_core.workloads.resnet import ResNet50
    from sipml_core.workloads.sizedworkloads import SIZED_WORKLOADS
    from sipml_core.workloads.transformer import Transformer

__getattr__ = files_when_asked(
    __name__,
    {
        "backward": ("training_step",),
        "builder": ("GraphBuilder",),
        "gpt": ("Gpt", "Megatron"),
        "languagemodels": (
            "LANGUAGE_MODELS", "BertLarge", "ConfiguredModel", "Gpt3", "Llama8", "Llama70", "Llama405",
            "Mixtral", "VitLarge",
        ),
        "layertable": ("LayerTable",),
        "resnet": ("ResNet50",),
        "sizedworkloads": ("SIZED_WORKLOADS",),
        "transformer": ("Transformer",),
    },
)  # fmt: skip

__all__ = [
    "LANGUAGE_MODELS",
    "SIZED_WORKLOADS",
    "BertLarge",
    "ConfiguredModel",
    "Gpt",
    "Gpt3",
    "GraphBuilder",
    "LayerTable",
    "Llama8",
    "Llama70",
    "Llama405",
    "Megatron",
    "Mixtral",
    "ResNet50",
    "Transformer",
    "VitLarge",
    "layers",
    "training_step",
]
