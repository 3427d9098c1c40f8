"""Calls of the ops of kernels/quantized_matmul: codes of 4 bits in blocks of 32, or of 3 bits by tables of 16 rows, to
be unpacked or multiplied by."""

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


def tables(outputs: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return dict(
        codes=random.integers(0, 256, (outputs, INPUTS * 3 // 8), np.uint8),
        tables=random.normal(size=(-(-outputs // 16), 8)).astype(np.float16),
        bits=3,
        group=16,
    )


def product(n: int) -> dict[str, Any]:
    """A row of x by as many outputs as there are elements to write."""
    return dict(x=np.ones((1, INPUTS), np.float32), **weights(n))


CALLS = {
    "metal_lookup_weights": lambda n: dict(inputs=INPUTS, T="float32", **tables(n)),
    "metal_lookup_mat_mul": lambda n: dict(x=np.ones((1, INPUTS), np.float32), **tables(n)),
    "metal_dequantize": lambda n: dict(inputs=INPUTS, T="float32", **weights(n)),
    "metal_quantized_mat_mul": product,
    "metal_dynamic_mat_mul": product,
}
