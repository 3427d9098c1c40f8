"""A row times quantized weights on the CPU: lookup tables of every width, scales, and floats.

Times are the processor's, of all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks.registry import Case, Contender, Context, register

SIZE, CALLS = 4096, 10


def tables(bits: int) -> metal_ops.LookupWeights:
    """Of 16 outputs each."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (SIZE, SIZE * bits // 8), np.uint8)
    values = random.normal(size=(SIZE // 16, 2**bits)).astype(np.float16)
    return metal_ops.LookupWeights(
        tf.constant(codes), tf.constant(values), inputs=SIZE, bits=bits, group=16
    )


def timed(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    for _ in range(CALLS):
        work().numpy()
    return (time.process_time() - begin) * 1e3


def contenders(context: Context) -> list[Contender]:
    del context
    kernel = np.random.default_rng(1).standard_normal((SIZE, SIZE), np.float32)
    x, w = tf.ones([1, SIZE]), tf.constant(kernel)
    weights: dict[str, Any] = {f"tables of {bits} bits": tables(bits) for bits in (3, 2, 4, 6, 8)}
    weights["4 bits, block=32"] = metal_ops.quantize(kernel)
    weights["8 bits a row"] = metal_ops.quantize(kernel, 8, block=None, symmetric=True)
    works: dict[str, Callable[[], Any]] = {
        name: partial(metal_ops.quantized_matmul, x, each) for name, each in weights.items()
    }
    works["float32, tf.matmul"] = partial(tf.matmul, x, w)
    return [Contender(name, partial(timed, work)) for name, work in works.items()]


register(
    Case(
        group="quantized",
        name="quantized-row",
        title=f"a row by {SIZE} x {SIZE} weights on the CPU, {CALLS} calls in a row, processor time",
        contenders=contenders,
        in_quick=False,
    )
)
