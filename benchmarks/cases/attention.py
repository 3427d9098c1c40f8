"""scaled_dot_product_attention against products and a softmax: 8 heads of 64, as many queries as keys."""

from __future__ import annotations

import numpy as np

import metal_ops
from benchmarks import elementwise

HEADS, SIZE = 8, 64


def attention(length: int) -> elementwise.Work:
    def arrays() -> list[np.ndarray]:
        random = np.random.default_rng(0)
        return [random.standard_normal((1, HEADS, length, SIZE), np.float32) for _ in range(3)]

    n = HEADS * length * SIZE
    return elementwise.Work(
        ours=lambda q, k, v: metal_ops.scaled_dot_product_attention(q, k, v),
        stock={"products and a softmax": "attention"},
        arrays=arrays,
        gradients=(0, 1, 2),
        forward_traffic=(3 * n, n),
        # q, k, v, and the outputs and their gradient again; three gradients.
        gradient_traffic=(8 * n, 4 * n),
        calls=elementwise.calls_of(HEADS * length * length),
        processor_time=True,
    )


elementwise.register_cases(
    "attention",
    "attention",
    f"Attention, {{}} queries and keys, {HEADS} heads of {SIZE}",
    attention,
    (512, 4096),
    "queries",
    # Sums of thousands of float32 terms in another order.
    tolerance=1e-3,
)
