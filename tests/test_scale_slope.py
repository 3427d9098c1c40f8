"""scale_slope and scale_slope_sum, the losses' way back, against products and sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SHAPES = ((), (0,), (1,), (7,), (0, 3), (3, 0), (9, 2), (2049, 1), (3, 1025), (2, 3, 700), (90001,))


def arrays_of(shape, dtype, rows):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    slope = np.asarray(random.normal(size=shape) + 0.5).astype(kind)
    incoming = np.asarray(random.normal(size=shape[:-1] if rows else shape) + 0.5).astype(kind)
    product = slope.astype(np.float64) * (
        incoming.astype(np.float64)[..., None] if rows and shape else incoming.astype(np.float64)
    )
    return tf.constant(incoming), tf.constant(slope), product


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(shape, rows, dtype):
    incoming, slope, expected = arrays_of(shape, dtype, rows)
    actual = raw_ops.scale_slope(incoming, slope)
    assert actual.dtype == dtype and actual.shape == shape
    # float16 has fixed steps near 0
    np.testing.assert_allclose(
        tf.cast(actual, tf.float64), expected, rtol=ROUNDING[dtype] * 1.01, atol=2.0**-25
    )


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums(shape, rows, dtype):
    incoming, slope, products = arrays_of(shape, dtype, rows)
    channels = products.reshape(-1, shape[-1] if shape else 1) if products.size else products
    for parameter, expected, size in (
        (np.float32(0), products.sum(), np.abs(products).sum()),
        (
            np.zeros(shape[-1:], np.float32),
            channels.sum(axis=0) if products.size else np.zeros(shape[-1:]),
            np.abs(channels).sum(axis=0) if products.size else 0,
        ),
    ):
        if parameter.ndim and not shape:
            continue
        actual = raw_ops.scale_slope_sum(incoming, slope, parameter)
        assert actual.dtype == tf.float32 and actual.shape == parameter.shape
        # The product is rounded to float32, and few of them are added up before they join a double.
        expected = expected.reshape(parameter.shape)
        assert np.all(np.abs(actual - expected) <= 32 * 2.0**-24 * size)


def test_infinity_stays_infinity():
    slope = np.ones(3000, np.float32)
    slope[1500] = np.inf
    assert raw_ops.scale_slope_sum(slope, np.ones_like(slope), 0.0) == np.inf


def test_parameter_of_unknown_rank():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def gradient(alpha):
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            loss = metal_ops.robust_loss(tf.constant([[1.0, 2.0], [3.0, 4.0]]), alpha)
        return tape.gradient(loss, alpha)

    whole, each = gradient(tf.constant(1.0)), gradient(tf.constant([1.0, 1.0]))
    assert whole.shape == () and each.shape == (2,)
    np.testing.assert_allclose(tf.reduce_sum(each), whole, rtol=1e-6)


def test_bad_arguments():
    x = np.zeros((4, 3), np.float32)
    Invalid = tf.errors.InvalidArgumentError
    with pytest.raises(Invalid, match=r"incoming must be shaped like slope, \[4, 3\], or that"):
        raw_ops.scale_slope(x[:3], x)
    with pytest.raises(
        Invalid, match=r"parameter must be a scalar or a vector .* 3, got shape \[2\]"
    ):
        raw_ops.scale_slope_sum(x, x, [0.0, 0.0])
    with pytest.raises(ValueError, match="parameter must be a scalar or a vector"):
        tf.function(lambda: raw_ops.scale_slope_sum(x, x, x))()
