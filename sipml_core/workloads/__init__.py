"""Models to train, as graphs of operations.

In: options and a batch. Out: an `OpGraph` with forward, backward and optimizer ops, and convergence.
Imports `plugin` and what is below it.
"""

from sipml_core.workloads import layers
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.gpt import Gpt, Megatron
from sipml_core.workloads.languagemodels import LANGUAGE_MODELS, ConfiguredModel
from sipml_core.workloads.layertable import LayerTable
from sipml_core.workloads.resnet import ResNet50
from sipml_core.workloads.transformer import Transformer

#: Those whose options say how large they are.
SIZED_WORKLOADS = (ResNet50, Transformer, Gpt, Megatron)
WORKLOADS = (*SIZED_WORKLOADS, *LANGUAGE_MODELS, LayerTable)

__all__ = [
    "SIZED_WORKLOADS",
    "WORKLOADS",
    "ConfiguredModel",
    "Gpt",
    "GraphBuilder",
    "LayerTable",
    "Megatron",
    "ResNet50",
    "Transformer",
    "layers",
    "training_step",
]
