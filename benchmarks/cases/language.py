"""swiglu and rope against what they replace, in the sizes of a small and a large layer of a transformer."""

from __future__ import annotations

import numpy as np

import metal_ops
from benchmarks import elementwise

HEADS, SIZE = 8, 64


def swiglu(n: int) -> elementwise.Work:
    def arrays() -> list[np.ndarray]:
        random = np.random.default_rng(0)
        return [random.standard_normal(n, np.float32) for _ in range(2)]

    return elementwise.Work(
        ours=metal_ops.swiglu,
        stock={"sigmoid and products": "swiglu"},
        arrays=arrays,
        gradients=(0, 1),
        # Two in, one out; and then again two and the gradient in, two out.
        forward_traffic=(2 * n, n),
        gradient_traffic=(5 * n, 3 * n),
        calls=elementwise.calls_of(n),
    )


def rope(length: int) -> elementwise.Work:
    n = HEADS * length * SIZE

    def arrays() -> list[np.ndarray]:
        x = np.random.default_rng(0).standard_normal((1, HEADS, length, SIZE), np.float32)
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
        return [x, *(wave(angles).astype(np.float32) for wave in (np.sin, np.cos))]

    return elementwise.Work(
        ours=lambda x, sines, cosines: metal_ops.rope(x),
        stock={"slices and products": "rope"},
        arrays=arrays,
        gradients=(0,),
        forward_traffic=(n, n),
        gradient_traffic=(2 * n, 2 * n),
        calls=elementwise.calls_of(n),
        note="makes its sines and cosines; the others were given them.",
    )


elementwise.register_cases(
    "language", "swiglu", "swiglu of {} float32", swiglu, (1 << 22, 1 << 18), "elements"
)
elementwise.register_cases(
    "language",
    "rope",
    f"rope of {{}} positions, {HEADS} heads of {SIZE}",
    rope,
    (4096, 512),
    "positions",
)
