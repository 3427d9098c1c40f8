"""hamming_distance of each row to each, against TensorFlow's and NumPy's ways to count bits."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise
from benchmarks.registry import Case, Contender, Context, register, timed

# Queries, rows, bytes of one: one against many, many against some, long ones.
SIZES = ((1, 1_000_000, 32), (64, 100_000, 32), (64, 20_000, 256))


def composite(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    bits = tf.raw_ops.PopulationCount(x=tf.bitwise.bitwise_xor(a, b))
    return tf.reduce_sum(tf.cast(bits, tf.int32), -1)


def contenders(sizes: tuple[int, int, int], context: Context) -> list[Contender]:
    del context
    queries, rows, size = sizes
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 256, (n, size), np.uint8) for n in (queries, rows))
    words = [np.ascontiguousarray(x).view(np.uint64) for x in (a[:, None], b)]
    row = partial(elementwise.tensorflow, which=(), incoming=None)

    def numpy() -> np.ndarray:
        return np.bitwise_count(words[0] ^ words[1]).sum(-1, dtype=np.int32)

    return [
        row("metal_ops", metal_ops.hamming_distance, arrays=[a[:, None], b]),
        row("TensorFlow, xor and PopulationCount of uint64", composite, arrays=words),
        row(
            "TensorFlow, XLA, xor and PopulationCount of uint64",
            composite,
            arrays=words,
            jit_compile=True,
        ),
        Contender(
            "NumPy, xor and bitwise_count of uint64", timed(numpy), lambda: {"output": numpy()}
        ),
    ]


for queries, rows, size in SIZES:
    register(
        Case(
            group="hamming_distance",
            name=f"hamming_distance-{queries}-{rows}-{size}",
            title=f"hamming_distance of {queries} to {rows} rows of {size} bytes",
            contenders=partial(contenders, (queries, rows, size)),
            units=queries * rows,
            unit="distances",
            in_quick=queries == 1,
            tolerance=0.0,
        )
    )
