"""Models to train: ResNet, Transformer, GPT, and how many steps they need."""

from sipml_core.workloads.gpt import Gpt, Megatron
from sipml_core.workloads.resnet import ResNet50
from sipml_core.workloads.transformer import Transformer

WORKLOADS = (ResNet50, Transformer, Gpt, Megatron)

__all__ = ["WORKLOADS", "Gpt", "Megatron", "ResNet50", "Transformer"]
