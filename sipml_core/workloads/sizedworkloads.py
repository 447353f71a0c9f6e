"""The workloads whose options say how large they are."""

from sipml_core.workloads.gpt import Gpt, Megatron
from sipml_core.workloads.resnet import ResNet50
from sipml_core.workloads.transformer import Transformer

SIZED_WORKLOADS = (ResNet50, Transformer, Gpt, Megatron)
