"""Calls of the ops of kernels/quantized_matmul: codes of 4 bits in blocks of 32, to be unpacked or multiplied by."""

from typing import Any

import numpy as np

INPUTS = 1024


def weights(outputs: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    shape = (outputs, INPUTS // 32)
    return dict(
        codes=random.integers(0, 256, (outputs, INPUTS // 2), np.uint8),
        scales=random.uniform(0.5, 1, shape).astype(np.float16),
        minima=random.uniform(-1, 1, shape).astype(np.float16),
        bits=4,
        block=32,
    )


def product(n: int) -> dict[str, Any]:
    """A row of x by as many outputs as there are elements to write."""
    return dict(x=np.ones((1, INPUTS), np.float32), **weights(n))


CALLS = {
    "metal_dequantize": lambda n: dict(inputs=INPUTS, T="float32", **weights(n)),
    "metal_quantized_mat_mul": product,
}
