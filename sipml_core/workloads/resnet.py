"""ResNet-50 v1.5 (He et al. 2015; stride in the 3x3 convolution of a block, as frameworks train it).

Dimensions: `n` samples, `h` and `w` output positions, `i` input and `o` output channels.
Fused: batch norm with the ReLU that follows it. Batch norm may be split along samples or rows of
the image: each part then uses the statistics of its part, as data parallelism does.
"""

from __future__ import annotations

from typing import Any

from sipml_core.fields import between, frozen, option
from sipml_core.model import Axis, OpGraph, Split
from sipml_core.plugin import Convergence, Workload
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import Axes, GraphBuilder
from sipml_core.workloads.convergence import convergence_at, curve_option, load_curve
from sipml_core.workloads.layers import INDEX_BYTES, classify
from sipml_core.workloads.sizes import MAX_CLASSES, MAX_PIXELS

#: Blocks, inner channels and first stride of the four stages (He et al. 2015, table 1).
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
#: A block puts out four times its inner channels.
EXPANSION = 4

_IMAGE = {"n": Split.SAMPLE, "h": Split.SPATIAL}


class ResNet50(Workload):
    """Every layer of ResNet-50 v1.5: 25 557 032 parameters, 4.09 GMAC forward per 224x224 image."""

    name = "resnet50"
    summary = "ResNet-50 v1.5, every layer, 25.6 million parameters"
    default_global_batch = 8192

    @frozen(kw_only=True)
    class Options:
        """Images of ImageNet."""

        image: int = option(
            224, doc="height and width of an image", unit="pixels", validator=between(32, MAX_PIXELS)
        )
        classes: int = option(1000, doc="classes", validator=between(2, MAX_CLASSES))
        curve: str = curve_option("resnet50")

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._curve = load_curve(options.curve, measured="resnet50", anchor=(8192, 8192.0), own=("resnet50",))

    def graph(self, samples: int, precision: str) -> OpGraph:
        """See `Workload.graph`."""
        b = GraphBuilder(self.name, samples, precision)
        x = b.input("images", (samples, self.options.image, self.options.image, 3))
        x = batch_norm(b, "stem.norm", conv(b, "stem.conv", x, 64, kernel=7, stride=2), relu=True)
        x = max_pool(b, "stem.pool", x)
        for stage, (blocks, channels, stride) in enumerate(STAGES, start=1):
            for block in range(blocks):
                x = bottleneck(b, f"stage{stage}.{block}", x, channels, stride if block == 0 else 1)
        classify(b, average_pool(b, "pool", x), self.options.classes)
        return training_step(b)

    def convergence(self, global_batch: int) -> Convergence | None:
        """See `Workload.convergence`."""
        return convergence_at(self._curve, global_batch)


def bottleneck(b: GraphBuilder, name: str, x: str, channels: int, stride: int) -> str:
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, which is projected where the shape changes."""
    y = batch_norm(b, f"{name}.norm1", conv(b, f"{name}.conv1", x, channels), relu=True)
    y = conv(b, f"{name}.conv2", y, channels, kernel=3, stride=stride)
    y = batch_norm(b, f"{name}.norm2", y, relu=True)
    y = batch_norm(b, f"{name}.norm3", conv(b, f"{name}.conv3", y, EXPANSION * channels))
    if b.shape(x) != b.shape(y):
        projected = conv(b, f"{name}.shortcut.conv", x, EXPANSION * channels, stride=stride)
        x = batch_norm(b, f"{name}.shortcut.norm", projected)
    return relu(b, f"{name}.relu", add(b, f"{name}.add", y, x))


def _window(dim: str, kernel: int, stride: int) -> Axis:
    padding = kernel // 2
    return Axis(dim, num=stride, low=-padding, high=kernel - 1 - padding)


def _output(size: int, kernel: int, stride: int) -> int:
    return (size + 2 * (kernel // 2) - kernel) // stride + 1


def conv(b: GraphBuilder, name: str, x: str, channels: int, *, kernel: int = 1, stride: int = 1) -> str:
    """A convolution without bias, padded to keep the size at stride 1."""
    n, height, width, i = b.shape(x)
    h, w = _output(height, kernel, stride), _output(width, kernel, stride)
    weight = b.parameter(f"{name}.weight", (kernel, kernel, i, channels))
    y = f"{name}.y"
    window: Axes = ["n", _window("h", kernel, stride), _window("w", kernel, stride), "i"]
    b.op(
        name,
        "conv",
        {"n": n, "h": h, "w": w, "i": i, "o": channels},
        {**_IMAGE, "o": Split.COLUMN, "i": Split.ROW},
        flops=2.0 * n * h * w * kernel * kernel * i * channels,
        reads={x: window, weight: "* * i o"},
        writes={y: "n h w o"},
        factors=(x, weight),
    )
    return y


def batch_norm(b: GraphBuilder, name: str, x: str, *, relu: bool = False) -> str:
    """Normalises every channel over the samples and positions at hand."""
    n, h, w, c = b.shape(x)
    scale = b.parameter(f"{name}.scale", (c,))
    shift = b.parameter(f"{name}.shift", (c,))
    y = f"{name}.y"
    b.op(
        name,
        "norm",
        {"n": n, "h": h, "w": w, "c": c},
        {**_IMAGE, "c": Split.COLUMN},
        flops=(9.0 if relu else 8.0) * n * h * w * c,
        reads={x: "n h w c", scale: "c", shift: "c"},
        writes={y: "n h w c"},
        saved=(x, y, scale) if relu else (x, scale),
    )
    return y


def add(b: GraphBuilder, name: str, x: str, shortcut: str) -> str:
    """x + shortcut; both have the gradient of the sum."""
    n, h, w, c = b.shape(x)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "h": h, "w": w, "c": c},
        {**_IMAGE, "c": Split.COLUMN},
        flops=1.0 * n * h * w * c,
        reads={x: "n h w c", shortcut: "n h w c"},
        writes={y: "n h w c"},
        passes=(x, shortcut),
    )
    return y


def relu(b: GraphBuilder, name: str, x: str) -> str:
    """max(x, 0); its gradient reads its output."""
    n, h, w, c = b.shape(x)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "h": h, "w": w, "c": c},
        {**_IMAGE, "c": Split.COLUMN},
        flops=1.0 * n * h * w * c,
        reads={x: "n h w c"},
        writes={y: "n h w c"},
        saved=(y,),
    )
    return y


def max_pool(b: GraphBuilder, name: str, x: str) -> str:
    """3x3 windows at stride 2; the index of each maximum is kept for the gradient."""
    n, height, width, c = b.shape(x)
    h, w = _output(height, 3, 2), _output(width, 3, 2)
    y, indices = f"{name}.y", f"{name}.indices"
    b.op(
        name,
        "pool",
        {"n": n, "h": h, "w": w, "c": c},
        {**_IMAGE, "c": Split.COLUMN},
        flops=9.0 * n * h * w * c,
        reads={x: ["n", _window("h", 3, 2), _window("w", 3, 2), "c"]},
        writes={y: "n h w c", indices: "n h w c"},
        saved=(indices,),
        kept={indices: INDEX_BYTES},
    )
    return y


def average_pool(b: GraphBuilder, name: str, x: str) -> str:
    """The mean of each channel over the image."""
    n, h, w, c = b.shape(x)
    y = f"{name}.y"
    b.op(
        name,
        "pool",
        {"n": n, "h": h, "w": w, "c": c},
        {"n": Split.SAMPLE, "c": Split.COLUMN, "h": Split.ROW},
        flops=1.0 * n * h * w * c,
        reads={x: "n h w c"},
        writes={y: "n c"},
    )
    return y
