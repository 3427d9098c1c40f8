"""Residual blocks on the Metal device, conv + bias + add + relu: fused into one op against the same kernels one by one,
and against TensorFlow on the CPU, with oneDNN, which fuses the same, and without.

With a 3x3 filter (ResNet-18) a point is multiplied hundreds of times for each time it is read; with a 1x1 filter
(the last convolution of a block of ResNet-50) the passes over memory that fusing saves are the larger part.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import peers
from benchmarks.elementwise import memory
from benchmarks.registry import Case, Contender, Context, register

# Side of the image and channels of ResNet's four stages.
STAGES = ((56, 64), (28, 128), (14, 256), (7, 512))
BATCHES = (8, 32)
# In a row, as in a network: the smallest block is done in less time than a sleeping thread takes to wake.
CALLS = 8


def traffic(batch: int, size: int, channels: int, window: int) -> dict[str, tuple[int, int]]:
    """(floats read, floats written) by each way's kernels, every tensor once per kernel that takes it."""
    image, filters = batch * size * size * channels, window * window * channels * channels
    return {
        # input, filter, bias and residual to the result
        "fused": (2 * image + filters + channels, image),
        # Conv2D; BiasAdd; AddV2; Relu
        "unfused": (image + filters + image + channels + 2 * image + image, 4 * image),
    }


def contenders(
    batch: int, size: int, channels: int, window: int, context: Context
) -> list[Contender]:
    """The two ways on the device; ours and TensorFlow's on the CPU; and the machine's memory doing the reads and
    writes that the fused one cannot do without."""
    random = np.random.default_rng(0)
    shape = (batch, size, size, channels)
    arrays = {
        "a0": random.standard_normal(shape, np.float32),
        "a1": random.standard_normal((window, window, channels, channels), np.float32)
        / np.float32(window * np.sqrt(channels)),
        "a2": random.standard_normal(channels, np.float32),
        "a3": random.standard_normal(shape, np.float32),
    }

    def start(name: str, **environment: str) -> peers.Peer:
        python, settings = Path(sys.executable), {"calls": CALLS}
        worker = "fused_worker.py"
        return peers.start(context.stack, name, arrays, settings, worker, python, **environment)

    worker = start("fused")
    moved = traffic(batch, size, channels, window)
    rows = []
    for name, title in (
        ("fused", "MetalFusedConv2D[BiasAdd, Add, Relu]"),
        ("unfused", "Conv2D, BiasAdd, AddV2, Relu"),
    ):
        read, written = moved[name]
        note = f"a call reads {read * 4e-6:.1f} MB and writes {written * 4e-6:.1f} MB; {worker.version}"
        rows.append(worker.contender(title, name, note))
    eigen, onednn = (
        start(name, TF_ENABLE_ONEDNN_OPTS=switch)
        for name, switch in (("eigen", "0"), ("onednn", "1"))
    )
    rows += [
        eigen.contender("metal_ops.fused_conv2d, CPU", "ours", "one op, without the device"),
        onednn.contender("TensorFlow, CPU with oneDNN", "stock", onednn.version),
        eigen.contender("TensorFlow, CPU without oneDNN", "stock", eigen.version),
    ]
    return [*rows, memory(context.stack, *moved["fused"], CALLS)]


for _window in (1, 3):
    for _size, _channels in STAGES:
        for _batch in BATCHES:
            register(
                Case(
                    group="fused_conv",
                    name=f"fused_conv-{_window}x{_window}-{_size}x{_size}x{_channels}-{_batch}",
                    title=f"residual block {_size}x{_size}x{_channels}, filter {_window}x{_window}, batch {_batch}, "
                    f"{CALLS} calls in a row",
                    contenders=partial(contenders, _batch, _size, _channels, _window),
                    # Multiplications and additions.
                    units=2.0 * CALLS * _batch * (_size * _channels * _window) ** 2,
                    unit="operations",
                    in_quick=_size == 56 and _batch == 8,
                )
            )
