"""Attention's, with all of its options and with none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from tests.oracles.attention import Attention
from tools.reference.error_cases import DTYPES, Case, incoming, rounded


def cases() -> Iterator[Case]:
    random = np.random.default_rng(8)
    shapes = ((2, 4, 70, 24), (2, 2, 90, 24), (2, 2, 90, 33))
    for dtype in DTYPES:
        q, k, v = (rounded(random.normal(size=shape), dtype) for shape in shapes)
        bias = rounded(random.normal(size=(1, 4, 70, 90)), dtype)
        mask = random.random((2, 1, 70, 90)) < 0.8
        into = rounded(incoming(random, (2, 4, 70, 33)), dtype)
        none = (tf.zeros([0], tf.bool), tf.zeros([0], dtype), tf.zeros([0], tf.int32), [0, 0])
        right = Attention(q, k, v)
        plain = lambda a=(q, k, v, *none): raw_ops.scaled_dot_product_attention(*a)[0]  # noqa: E731
        yield "ScaledDotProductAttention", dtype, plain, right.outputs
        seed, lengths = (7, 8), np.array([90, 60], np.int32)
        right = Attention(
            q, k, v, mask=mask, bias=bias, causal=True, window=(30, None), soft_cap=3.0,
            dropout=0.25, seed=seed, key_lengths=lengths,
        )  # fmt: skip
        inputs = [*map(tf.constant, (q, k, v, mask, bias, lengths)), list(seed)]
        options = {
            **dict(window_left=30, window_right=0, soft_cap=3.0, dropout=0.25),
            **dict(use_mask=True, use_bias=True),
        }

        def forward(inputs=inputs, options=options):
            return raw_ops.scaled_dot_product_attention(*inputs, **options)

        yield "ScaledDotProductAttention", dtype, lambda f=forward: f()[0], right.outputs
        *of_inputs, d_bias = right.gradients(into)

        def backward(op, inputs=inputs, options=options, forward=forward, into=into):
            return op(*inputs, *forward(), tf.constant(into), **options)

        for output, expected in enumerate(of_inputs):
            yield (
                "ScaledDotProductAttentionGrad",
                dtype,
                lambda i=output, run=backward: run(raw_ops.scaled_dot_product_attention_grad)[i],
                expected,
            )
        yield (
            "ScaledDotProductAttentionBiasGrad",
            dtype,
            lambda run=backward: run(raw_ops.scaled_dot_product_attention_bias_grad),
            d_bias,
        )
