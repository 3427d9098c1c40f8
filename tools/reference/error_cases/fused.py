"""The ops that the fusion pass makes, a product and the ops after it; and small networks with their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from tests.oracles import mlp
from tools.reference.error_cases import DTYPES, Case, incoming, rounded, wide


def cases() -> Iterator[Case]:
    random = np.random.default_rng(5)
    for dtype in DTYPES:
        shapes = ((2, 9, 10, 5), (3, 3, 5, 6), (6,), (2, 9, 10, 6))
        image, filters, bias, residual = (
            rounded(random.normal(size=shape), dtype) for shape in shapes
        )
        padded = np.pad(wide(image), ((0, 0), (1, 1), (1, 1), (0, 0)))
        product = sum(
            padded[:, i : i + 9, j : j + 10] @ wide(filters)[i, j]
            for i in range(3)
            for j in range(3)
        )
        yield (
            "MetalFusedConv2D",
            dtype,
            lambda a=(image, filters, bias, residual): raw_ops.metal_fused_conv2d(
                tf.constant(a[0]),
                tf.constant(a[1]),
                [tf.constant(a[2]), tf.constant(a[3])],
                strides=[1, 1, 1, 1],
                padding="SAME",
                fused_ops=["BiasAdd", "Add", "Relu"],
            ),
            np.maximum(product + wide(bias) + wide(residual), 0),
        )
        a, b, offset = (
            rounded(random.normal(size=shape), dtype) for shape in ((17, 33), (33, 21), (21,))
        )
        yield (
            "MetalFusedMatMul",
            dtype,
            lambda a=(a, b, offset): raw_ops.metal_fused_mat_mul(
                tf.constant(a[0]),
                tf.constant(a[1]),
                [tf.constant(a[2])],
                fused_ops=["BiasAdd", "Relu"],
            ),
            np.maximum(wide(a) @ wide(b) + wide(offset), 0),
        )
        yield from _networks(dtype)


def _networks(dtype: str) -> Iterator[Case]:
    """Smooth activations: one rounding near 0 decides a ReLU's output."""
    random = np.random.default_rng(6)
    sizes, batch = (24, 32, 32, 5), 300
    x = rounded(random.normal(size=(batch, sizes[0])), dtype)
    kernels = [
        rounded(random.normal(size=shape) / np.sqrt(shape[0]), dtype)
        for shape in zip(sizes, sizes[1:], strict=False)
    ]
    biases = [rounded(random.normal(size=n) / 4, dtype) for n in sizes[1:]]
    into = rounded(np.abs(incoming(random, (batch, sizes[-1]))), dtype)
    options = {"activation": "squareplus", "output_activation": "sigmoid"}
    layers = list(zip(kernels, biases, strict=True))
    weights = np.concatenate([part.ravel() for layer in layers for part in layer])
    d_x, d_kernels, d_biases = mlp.gradients(into, x, kernels, biases, **options)
    d_layers = zip(d_kernels, d_biases, strict=True)
    d_weights = np.concatenate([part.ravel() for layer in d_layers for part in layer])
    attributes = {
        **options,
        "n_outputs": sizes[-1],
        "n_neurons": sizes[1],
        "n_hidden_layers": len(kernels) - 1,
        "use_bias": True,
    }
    yield (
        "FusedMlp",
        dtype,
        lambda: raw_ops.fused_mlp(tf.constant(x), tf.constant(weights), **attributes),
        mlp.forward(x, kernels, biases, **options),
    )
    for output, expected in enumerate((d_x, d_weights)):
        yield (
            "FusedMlpGrad",
            dtype,
            lambda output=output: raw_ops.fused_mlp_grad(
                tf.constant(into), tf.constant(x), tf.constant(weights), **attributes
            )[output],
            expected,
        )
