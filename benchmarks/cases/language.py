"""swiglu and rope against the ops they replace, and a language model that writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import composite_lm, elementwise
from benchmarks.registry import Case, Contender, Context, register, timed
from metal_ops import QuantizedWeights
from metal_ops.lm.config import ModelConfig
from metal_ops.lm.model import Transformer
from metal_ops.lm.passes import Pass

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


# 25 million parameters; so many bytes are there already, and so many are written in a measurement.
DECODER = ModelConfig(width=512, layers=9, heads=8, kv_heads=2, hidden=1408, context=1024)
BEFORE, WRITTEN = 512, 8


def decode(context: Context) -> list[Contender]:
    del context
    model = Transformer(DECODER)
    token = tf.constant([[65]])
    head = DECODER.width // DECODER.heads
    shape = (1, DECODER.kv_heads, BEFORE, head)
    random = np.random.default_rng(0)
    past = [
        tuple(random.standard_normal(shape).astype(np.float32) for _ in range(2))
        for _ in range(DECODER.layers)
    ]

    def ours(name: str, model: Transformer) -> Contender:
        caches = model.caches(DECODER.context)
        for cache, parts in zip(caches, past, strict=True):
            for variable, part in zip((cache.k, cache.v), parts, strict=True):
                # Whole: of variables that slices were assigned to TensorFlow copies all that is read.
                behind = DECODER.context - BEFORE
                variable.assign(np.pad(part, [(0, 0), (0, 0), (0, behind), (0, 0)]))
        extend = Pass(model, caches, 1)

        def write() -> np.ndarray:
            for cache in caches:
                cache.lengths.assign([BEFORE])
            logits = np.zeros(0)
            for _ in range(WRITTEN):
                logits = extend(token).numpy()
            return logits

        # The text of weights with fewer bits differs.
        exact = not isinstance(model.matrices[0]["qkv"], QuantizedWeights)
        return Contender(name, timed(write), (lambda: {"logits": write()}) if exact else None)

    def stock(name: str, **options: Any) -> Contender:
        extend = tf.function(
            lambda token, caches: composite_lm.extend(model, token, caches),
            autograph=False,
            **options,
        )
        first = [tuple(map(tf.constant, parts)) for parts in past]

        def of_length(n: int | None) -> Any:
            """The right one is not looked for in each call. All ops in order, as for ours, gain nothing here."""
            cache = tf.TensorSpec([1, DECODER.kv_heads, n, head])
            layers = [(cache, cache)] * DECODER.layers
            return extend.get_concrete_function(tf.TensorSpec([1, 1], tf.int32), layers)

        lengths = range(BEFORE, BEFORE + WRITTEN) if options else [None] * WRITTEN
        steps = [of_length(n) for n in lengths]

        def write() -> np.ndarray:
            caches, logits = first, tf.zeros([0])
            for step in steps:
                logits, caches = step(token, caches)
            return logits.numpy()

        return Contender(name, timed(write), lambda: {"logits": write()})

    dynamic = model.quantized(4)
    dynamic.dynamic = True
    return [
        ours("metal_ops, weights of 4 bits", model.quantized(4)),
        ours("metal_ops, weights of 4 bits, dynamic", dynamic),
        ours("metal_ops, weights of 8 bits", model.quantized(8)),
        ours("metal_ops, float32", model),
        stock("TensorFlow, stock ops, float32"),
        # A length is a program: those of 512 to 519 are compiled before the first measurement.
        stock("TensorFlow, XLA, float32", jit_compile=True),
    ]


register(
    Case(
        group="language",
        name="decode-25m",
        title=f"Text from a model of 25 million parameters, {WRITTEN} bytes one by one behind {BEFORE}",
        contenders=decode,
        in_quick=False,
    )
)
