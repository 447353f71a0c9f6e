"""Matrix products by shape: tiles, and waves of tiles over the multiprocessors.

A kernel computes its result in tiles, one on each multiprocessor at a time. A tile that is not full costs
what a full one does (tile quantisation), and so does a last wave with few tiles (wave quantisation); NVIDIA,
"Matrix Multiplication Background User's Guide". The library takes the best of its tiles, and may divide a
long contraction over several tiles of the result where these are few. With s parts of k, on P
multiprocessors,

    waves = ceil(batch x ceil(m / tile_m) x ceil(n / tile_n) x s / P)
    time  = waves x 2 tile_m tile_n (ceil(k / s) + k0) / (peak / P x efficiency x share of the tile)

and the least over tiles and s is the time of the product. All else is as in `roofline`.
"""

from __future__ import annotations

import math
from typing import Any

from sipml_core.gpus.roofline import Roofline
from sipml_core.model import MatrixProduct, OpWork, Phase

#: Tiles of the result, and the part of the rate of the largest that they reach: a smaller one loads more
#: for each FLOP. Assumed; with the largest at 0.79 of the peak, square products of 2048 to 12 288 then reach
#: 0.5 to 0.78 of it on an A100, where 0.60 to 0.79, median 0.73, were measured.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.85), (128, 64, 0.65), (64, 128, 0.65), (64, 64, 0.45))
#: Parts into which a contraction may be divided where tiles alone do not fill a wave, each of at least
#: `SPLIT_K` steps.
SPLITS = (1, 2, 4, 8, 16)
SPLIT_K = 256
#: Steps of k that it takes to begin and to end a tile: its first operands come in, its result goes out.
#: Fitted with the efficiencies: products of small models reach less than those of large ones.
TILE_STEPS = 192

#: Bytes that kernels of an eager framework move, over those of one fused kernel, of mixed precision. PyTorch
#: works out softmax and loss in fp32, one kernel for each step: from 2 bytes to 4, scaled, masked, softmax,
#: back to 2 bytes are 6 + 8 + 8 + 8 + 6 bytes for each score where one kernel has 2 + 2; their gradients
#: 6 + 12 + 8 + 8 + 6 for 6. The loss: to 4 bytes and log-softmax 6 + 8 for 2, and 8 + 6 for 4. Counted, not
#: fitted.
EAGER_PASSES = {
    ("softmax", Phase.FORWARD): 9.0,
    ("softmax", Phase.BACKWARD): 40.0 / 6.0,
    ("loss", Phase.FORWARD): 7.0,
    ("loss", Phase.BACKWARD): 3.5,
}

#: Bytes that are moved to cast an activation to FP8: 2 read, 1 written, and 1 for its transpose (Transformer
#: Engine's cast-transpose). The products of a backward pass share those of the output's gradient. Weights are
#: cast once a step. Counted, not fitted.
CAST_BYTES = 4.0


def wave_efficiency(product: MatrixProduct, multiprocessors: int) -> float:
    """Return the part of the rate of full tiles in full waves that a product reaches.

    Examples
    --------
    Two tiles of 256 x 128 on two multiprocessors, and one on two: 192 steps of k begin and end a tile.

    >>> wave_efficiency(MatrixProduct(1, 512, 128, 192), multiprocessors=2)
    0.5
    >>> wave_efficiency(MatrixProduct(1, 256, 128, 192), multiprocessors=2)
    0.425
    """
    full = product.batch * product.m * product.n * product.k
    least = math.inf
    for rows, columns, share in TILES:
        tiles = product.batch * math.ceil(product.m / rows) * math.ceil(product.n / columns)
        for parts in SPLITS:
            if parts > 1 and (product.k / parts < SPLIT_K or tiles * parts > multiprocessors):
                break
            waves = math.ceil(tiles * parts / multiprocessors)
            steps = math.ceil(product.k / parts) + TILE_STEPS
            least = min(least, waves * rows * columns * steps / share)
    return min(full / (least * multiprocessors), 1.0)


class ShapedGpu(Roofline):
    """A GPU of datasheet peaks whose matrix products take what their shape makes them take.

    Beside the options of `Roofline`: ``fp8_tflops`` (0: it has none), ``multiprocessors``. Of its compute
    efficiencies "matmul" is that of full tiles in full waves, in TF32, BF16 and FP8; "tf32" that of
    convolutions in TF32; "attention" that of attention in one kernel, which is no single product.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        if options.fp8_tflops:
            self._peak_tflops["fp8"] = options.fp8_tflops

    @property
    def multiprocessors(self) -> int:
        """See `GpuModel.multiprocessors`."""
        return int(self.options.multiprocessors)

    def op_time_us(self, work: OpWork) -> float:
        """See `Roofline.op_time_us`; products in FP8 wait for their operands to be cast."""
        return super().op_time_us(work) + self._cast_us(work)

    def _cast_us(self, work: OpWork) -> float:
        """Return what kernels take that make FP8 of what a product of weights reads. [us]"""
        if work.precision != "fp8" or work.kind != "matmul":
            return 0.0
        elements = sum(product.batch * product.m * product.k for product in work.products)
        moved_bytes = elements * CAST_BYTES * (1.0 if work.phase is Phase.FORWARD else 0.5)
        return float(moved_bytes / (self.options.bandwidth_gbytes_per_s * 1e3 * self._bandwidth["other"]))

    def memory_us(self, work: OpWork) -> float:
        """See `Roofline.memory_us`; eager kernels pass over their bytes more than once."""
        once_us = super().memory_us(work)
        if self.options.kernels == "fused":
            return once_us
        return once_us * EAGER_PASSES.get((work.kind, work.phase), 1.0)

    def compute_us(self, work: OpWork) -> float:
        """See `Roofline.compute_us` and the module's law."""
        if not work.products or self._units(work) == "fp32":
            return super().compute_us(work)
        # Products of one kernel run one after the other.
        slowed = sum(
            product.flops / wave_efficiency(product, self.options.multiprocessors)
            for product in work.products
        )
        asked = sum(product.flops for product in work.products)
        share = self._compute["matmul"]
        return float(work.flops * (slowed / asked) / (self._tflops(work) * 1e6 * share))

    def _tflops(self, work: OpWork) -> float:
        """Return the peak; in FP8 all but matrix products of weights run at mixed precision. [TFLOP/s]"""
        if work.precision == "fp8" and work.kind != "matmul" and self.options.fp8_tflops:
            return float(self._peak_tflops["mixed"])
        return super()._tflops(work)

    def _units(self, work: OpWork) -> str:
        """Key of the efficiency of a matrix kind: "tf32" is that of convolutions."""
        if work.precision == "fp8":
            return work.kind
        return super()._units(work)
