"""frequency_encode against sines in extended precision, and its first and second derivative against differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal
from tests.oracles import encodings, numeric

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Reduced phase, series and final rounding: about one unit in the last place of 1.
TOLERANCE = 2.5e-7
ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("times_pi", [True, False])
@pytest.mark.parametrize("include_input", [True, False])
@pytest.mark.parametrize("n_frequencies", [0, 1, 4, 10, 32])
def test_values(n_frequencies, include_input, times_pi, dtype):
    x = np.random.default_rng(0).uniform(-3, 3, (203, 3)).astype(np.float32)
    x[:5] = [[0, 0, 0], [1, -1, 0.5], [0.25, -0.25, 2], [1e-30, -1e-38, 1e-3], [1.5, 3, -3]]
    options = dict(include_input=include_input, times_pi=times_pi)
    actual = metal_ops.frequency_encode(x, n_frequencies, dtype=dtype, **options)
    assert actual.dtype == dtype
    expected = encodings.frequencies(x, n_frequencies, **options)
    tolerance = TOLERANCE
    if not times_pi:
        # 1 / (2 pi) as two floats is good to 2^-50 of the phase, which matters from 2^24 turns on.
        tolerance += 3 * 2.0 ** (n_frequencies - 50) * 2 * np.pi
    np.testing.assert_allclose(
        tf.cast(actual, tf.float64), expected, rtol=ROUNDING[dtype], atol=tolerance
    )


@settings(max_examples=40, deadline=None)
@given(x=st.floats(-1e6, 1e6, width=32), times_pi=st.booleans())
def test_any_phase(x, times_pi):
    x = np.float32([[x]])
    actual = metal_ops.frequency_encode(x, 3, times_pi=times_pi)[0, 1:]
    expected = encodings.frequencies(x, 3, False, times_pi)[0]
    np.testing.assert_allclose(actual, expected, atol=4e-7)


@settings(max_examples=30, deadline=None)
@given(
    leading=st.lists(st.integers(0, 5), max_size=3),
    dims=st.integers(0, 7),
    count=st.integers(0, 5),
    include_input=st.booleans(),
)
def test_any_shape(leading, dims, count, include_input):
    x = np.random.default_rng(1).normal(size=(*leading, dims)).astype(np.float32)
    y = metal_ops.frequency_encode(x, count, include_input=include_input)
    assert y.shape == (*leading, dims * (2 * count + include_input))
    flat = x.reshape(int(np.prod(leading)), dims)
    expected = encodings.frequencies(flat, count, include_input, True)
    np.testing.assert_allclose(y, expected.reshape(y.shape), atol=TOLERANCE)


@pytest.mark.parametrize("times_pi", [True, False])
@pytest.mark.parametrize("include_input", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_first_and_second_derivative(count, include_input, times_pi):
    random = np.random.default_rng(3)
    x = random.normal(size=(21, 2)).astype(np.float32)
    mix = random.normal(size=(21, 2 * (2 * count + include_input))) + 0.3
    along = random.normal(size=(21, 2)) + 0.3
    options = dict(include_input=include_input, times_pi=times_pi)

    def loss_of(x):
        return np.sum(mix * encodings.frequencies(x, count, **options))

    points, weights = tf.constant(x), tf.constant(mix, tf.float32)
    with tf.GradientTape() as outer:
        outer.watch([points, weights])
        with tf.GradientTape() as inner:
            inner.watch(points)
            loss = tf.reduce_sum(metal_ops.frequency_encode(points, count, **options) * weights)
        slope = inner.gradient(loss, points)
        along_slope = tf.reduce_sum(slope * tf.cast(along, tf.float32))
    expected = numeric.gradient(loss_of, x)
    numeric.assert_gradient(slope, expected, 1e-6, "x")

    bend, jvp = outer.gradient(along_slope, [points, weights])
    step = 1e-5
    expected_jvp = encodings.frequencies(x + step * along, count, **options)
    expected_jvp = (expected_jvp - encodings.frequencies(x - step * along, count, **options)) / (
        2 * step
    )
    numeric.assert_gradient(jvp, expected_jvp, 1e-6, "J v")

    def slope_along(x):
        # The encoding's own derivative, by hand: d sin = w cos, d cos = -w sin.
        waves = encodings.frequencies(x, count, False, times_pi).reshape(21, count, 2, 2)
        g = mix[:, 2 * include_input :].reshape(21, count, 2, 2)
        w = 2.0 ** np.arange(count)[:, None] * (np.pi if times_pi else 1.0)
        slopes = np.sum(w * (g[:, :, 0] * waves[:, :, 1] - g[:, :, 1] * waves[:, :, 0]), axis=1)
        return np.sum(along * (slopes + (mix[:, :2] if include_input else 0)))

    numeric.assert_gradient(bend, numeric.gradient(slope_along, x), 2e-6, "second derivative")


def test_half_precision_gradients():
    x = tf.constant(np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32))
    slopes = []
    for dtype in ("float16", "bfloat16", "float32"):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = metal_ops.frequency_encode(x, 4, dtype=dtype)
            loss = tf.reduce_sum(tf.cast(y, tf.float32))
        slopes.append(tape.gradient(loss, x).numpy())
    np.testing.assert_array_equal(slopes[0], slopes[2])  # ones are exact in every dtype
    np.testing.assert_array_equal(slopes[1], slopes[2])


def test_nan_and_infinity_stay_where_they_are():
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    clean = metal_ops.frequency_encode(x, 3).numpy()
    x[11, 0], x[12, 1] = np.nan, -np.inf
    spoilt = metal_ops.frequency_encode(x, 3).numpy()
    np.testing.assert_array_equal(np.delete(spoilt, [11, 12], 0), np.delete(clean, [11, 12], 0))
    assert np.all(np.isnan(spoilt[11, 0::2])) and np.all(np.isfinite(spoilt[11, 1::2]))
    assert spoilt[12, 1] == -np.inf and np.all(np.isnan(spoilt[12, 3::2]))


def test_bad_arguments():
    # Without points there may be any number of dims; so many columns that 63 bits do not count them ended the process.
    for call in (metal_ops.frequency_encode, tf.function(metal_ops.frequency_encode)):
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match="x must have at most 2"
        ):
            call(tf.zeros([0, 2**62]))
    for count in (-1, 33):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"n_frequencies must be between 0 and 32, got {count}",
        ):
            metal_ops.frequency_encode([[0.0]], count)
    with pytest.raises(ValueError, match=r"x: expected shape \[..., dims\], got a scalar"):
        metal_ops.frequency_encode(0.0)
    with pytest.raises(TypeError, match="x: expected dtype float32, got bfloat16"):
        metal_ops.frequency_encode(tf.zeros([1, 3], tf.bfloat16))


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


CALLS = {
    "frequency_encode": Call(
        lambda x: metal_ops.frequency_encode(x, 6), lambda: {"x": normal(4001, 3)}, ("x",)
    ),
}
