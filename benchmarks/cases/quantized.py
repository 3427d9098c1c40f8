"""A row times quantized weights on the CPU: lookup tables of every width, scales, and floats; and weights of 4 bits
that come from memory, beside that and PyTorch's kernel.

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
from benchmarks import elementwise, peers
from benchmarks.registry import Case, Contender, Context, register, timed

SIZE, CALLS = 4096, 10
# So many of such matrices no cache holds.
MATRICES, BLOCK = 32, 32


def tables(bits: int) -> metal_ops.LookupWeights:
    """Of 16 outputs each."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (SIZE, SIZE * bits // 8), np.uint8)
    values = random.normal(size=(SIZE // 16, 2**bits)).astype(np.float16)
    return metal_ops.LookupWeights(
        tf.constant(codes), tf.constant(values), inputs=SIZE, bits=bits, group=16
    )


def in_a_row(work: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        work().numpy()


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
    return [
        Contender(name, timed(partial(in_a_row, work), time.process_time))
        for name, work in works.items()
    ]


register(
    Case(
        group="quantized",
        name="quantized-row",
        title=f"a row by {SIZE} x {SIZE} weights on the CPU, {CALLS} calls in a row, processor time",
        contenders=contenders,
        in_quick=False,
    )
)


def from_memory(context: Context) -> list[Contender]:
    random = np.random.default_rng(0)

    def halves() -> tf.Tensor:
        return tf.constant(random.random((SIZE, SIZE // BLOCK)).astype(np.float16))

    every = [
        metal_ops.QuantizedWeights(
            tf.constant(random.integers(0, 256, (SIZE, SIZE // 2), np.uint8)),
            halves(),
            halves(),
            inputs=SIZE,
            bits=4,
            block=BLOCK,
        )
        for _ in range(MATRICES)
    ]
    x = tf.constant(random.standard_normal((1, SIZE), np.float32))

    def ours(name: str, x: tf.Tensor, dynamic: bool = False) -> Contender:
        products = tf.function(
            lambda x: [metal_ops.quantized_matmul(x, w, dynamic=dynamic) for w in every],
            autograph=False,
        )
        return Contender(name, timed(lambda: products(x), time.process_time))

    n_bytes = sum(w.n_bytes for w in every)
    rows = [
        ours("metal_ops", x),
        *(ours(f"metal_ops, x in {dtype}", tf.cast(x, dtype)) for dtype in ("float16", "bfloat16")),
        ours("metal_ops, dynamic", x, dynamic=True),
        elementwise.memory(context.stack, n_bytes // 4, 0, processor_time=True),
    ]
    rows[-1].note = f"reading {n_bytes * 1e-6:.0f} MB, which are all codes, scales and minima."
    if context.peers:
        settings = {"size": SIZE, "matrices": MATRICES, "block": BLOCK, "processor_time": True}
        torch = peers.start(
            context.stack, "torch", {}, settings, "peer_quantized.py", OMP_WAIT_POLICY="PASSIVE"
        )
        rows.append(torch.contender("PyTorch, _weight_int4pack_mm_for_cpu", "int4", torch.version))
        rows[-1].results = None
    return rows


register(
    Case(
        group="quantized",
        name="quantized-memory",
        title=f"a row by {MATRICES} times {SIZE} x {SIZE} weights of 4 bits in blocks of {BLOCK}, from memory, "
        "processor time",
        contenders=from_memory,
        in_quick=False,
    )
)
