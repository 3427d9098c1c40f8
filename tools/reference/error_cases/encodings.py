"""Frequencies and spherical harmonics, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.oracles import encodings, numeric
from tools.reference.error_cases import DTYPES, Case, incoming, rounded

POINTS, COUNT, DEGREE = 501, 10, 8
# Central differences need a phase that does not run away: 2^5 pi x.
GRADIENT_POINTS, GRADIENT_COUNT = 23, 6


def cases() -> Iterator[Case]:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (POINTS, 3)).astype(np.float32)
    d = random.normal(size=(POINTS, 3)).astype(np.float32)
    d /= np.linalg.norm(d, axis=-1, keepdims=True)
    few_x, few_d = x[:GRADIENT_POINTS], d[:GRADIENT_POINTS]
    into_x = incoming(random, (GRADIENT_POINTS, 3 * (2 * GRADIENT_COUNT + 1)))
    into_d = incoming(random, (GRADIENT_POINTS, DEGREE**2))
    x_gradient = _frequency_gradient(few_x, into_x)
    d_gradient = numeric.gradient(
        lambda v: float(np.sum(into_d * encodings.spherical_harmonics(v, DEGREE))), few_d
    )
    for dtype in DTYPES:
        narrow_x, narrow_d = rounded(into_x, dtype), rounded(into_d, dtype)
        yield (
            "FrequencyEncode",
            dtype,
            lambda dtype=dtype: metal_ops.frequency_encode(tf.constant(x), COUNT, dtype=dtype),
            encodings.frequencies(x, COUNT, True, True),
        )
        yield (
            "FrequencyEncodeGrad",
            dtype,
            lambda g=narrow_x: raw_ops.frequency_encode_grad(
                tf.constant(g), tf.constant(few_x), n_frequencies=GRADIENT_COUNT
            ),
            x_gradient,
        )
        yield (
            "ShEncode",
            dtype,
            lambda dtype=dtype: metal_ops.sh_encode(tf.constant(d), DEGREE, dtype=dtype),
            encodings.spherical_harmonics(d, DEGREE),
        )
        yield (
            "ShEncodeGrad",
            dtype,
            lambda g=narrow_d: raw_ops.sh_encode_grad(
                tf.constant(g), tf.constant(few_d), degree=DEGREE
            ),
            d_gradient,
        )


def _frequency_gradient(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """sum_k g_sin 2^k pi cos(2^k pi x) - g_cos 2^k pi sin(2^k pi x), and g of the input itself."""
    x, blocks = x.astype(np.float64), np.split(g, 2 * GRADIENT_COUNT + 1, axis=1)
    result = blocks[0].copy()
    for k in range(GRADIENT_COUNT):
        factor = 2.0**k * np.pi
        result += factor * blocks[1 + 2 * k] * np.cos(factor * x)
        result -= factor * blocks[2 + 2 * k] * np.sin(factor * x)
    return result
