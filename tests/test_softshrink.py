"""softshrink and its gradients, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import metal_ops

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]


def shrink(x, lambd):
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("lambd", [0.0, 0.5, 2.0])
def test_value_and_gradient(lambd, dtype):
    x = tf.cast(np.linspace(-3, 3, 97), dtype)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = metal_ops.softshrink(x, lambd)
        slope = inner.gradient(y, x, tf.fill([97], tf.cast(1.5, dtype)))
    assert y.dtype == dtype
    wide = np.asarray(tf.cast(x, tf.float32))
    np.testing.assert_array_equal(
        tf.cast(y, tf.float32), tf.cast(tf.cast(shrink(wide, lambd), dtype), tf.float32)
    )
    np.testing.assert_array_equal(tf.cast(slope, tf.float32), 1.5 * (np.abs(wide) > lambd))
    assert outer.gradient(slope, x) is None


def test_gradient_of_the_gradient():
    """Linear in the incoming gradients, with the same mask."""
    x, g = tf.constant([-2.0, 0.1, 2.0]), tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(g)
        backprops = metal_ops.raw_ops.softshrink_grad(g, x, lambd=0.5)
    np.testing.assert_array_equal(tape.gradient(backprops, g), [1.0, 0.0, 1.0])


@settings(max_examples=50, deadline=None)
@given(
    x=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=0, min_side=0, max_side=9),
        elements=st.floats(-1e6, 1e6, width=32),
    ),
    lambd=st.floats(0, 100, width=32),
)
def test_any_shape(x, lambd):
    expected = shrink(x, np.float32(lambd))
    # TensorFlow's threads take subnormal numbers for 0.
    np.testing.assert_allclose(
        metal_ops.softshrink(x, lambd), expected, rtol=0, atol=np.finfo(np.float32).tiny
    )


def test_nan_and_infinity_stay():
    x = tf.constant([np.nan, np.inf, -np.inf, 0.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = metal_ops.softshrink(x)
    np.testing.assert_array_equal(y, [np.nan, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(tape.gradient(y, x), [1.0, 1.0, 1.0, 0.0])


def test_input_is_not_overwritten():
    x = tf.ones([1000])
    metal_ops.softshrink(x)
    assert np.all(x == 1)


def test_bad_arguments():
    with pytest.raises(tf.errors.InvalidArgumentError, match="lambd must be 0 or more, got -1"):
        metal_ops.softshrink([1.0], -1.0)
    with pytest.raises(ValueError, match="lambd must be 0 or more"):
        tf.function(lambda: metal_ops.softshrink([1.0], -1.0))()
    with pytest.raises(TypeError, match="x: expected dtype float32, float16 or bfloat16"):
        metal_ops.softshrink(tf.constant([1]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="gradients must be shaped like features"
    ):
        metal_ops.raw_ops.softshrink_grad([1.0], [1.0, 2.0])
