"""softshrink and its gradient against compositions of stock ops."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise
from benchmarks.registry import Case, Contender, Context, register


def array(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n, np.float32)


def work(n: int) -> elementwise.Work:
    return elementwise.Work(
        ours=metal_ops.softshrink,
        stock={"where": "softshrink", "sign and maximum": "softshrink_sign"},
        arrays=lambda: [array(n)],
        gradients=(0,),
        # x to y; and then g and x to dx.
        forward_traffic=(n, n),
        gradient_traffic=(3 * n, 2 * n),
        calls=elementwise.calls_of(n),
    )


def types(context: Context) -> list[Contender]:
    del context
    rows = []
    for dtype in ("float32", "float16", "bfloat16"):
        x = tf.cast(array(1 << 22), dtype)
        row = elementwise.tensorflow(dtype, metal_ops.softshrink, [x], (0,), tf.ones_like(x))
        rows.append(Contender(f"metal_ops, {dtype}", row.time_ms))
    return rows


elementwise.register_cases(
    "softshrink", "softshrink", "softshrink of {} float32", work, (1 << 22, 1 << 18), "elements"
)
register(
    Case(
        group="softshrink",
        name="softshrink-types",
        title="softshrink of 4194304 elements: forward + gradient, by type",
        contenders=types,
        units=1 << 22,
        unit="elements",
    )
)
