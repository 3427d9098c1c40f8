"""Calls of the op of kernels/fused_conv2d: nothing of the small call grows, an image's sides stand for its size."""

from typing import Any

import numpy as np

SIDE, CHANNELS = 16, 64


def conv(n: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    images = (max(1, n // SIDE**2), SIDE, SIDE, CHANNELS)
    return dict(
        input=random.standard_normal(images, np.float32),
        filter=random.standard_normal((3, 3, CHANNELS, CHANNELS), np.float32),
        args=[np.ones(CHANNELS, np.float32)],
        strides=[1, 1, 1, 1],
        padding="SAME",
        fused_ops=["BiasAdd", "Relu"],
    )


CALLS = {"metal_fused_conv2d": conv}
