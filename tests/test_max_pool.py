"""max_pool_with_global_indices and max_unpool against loops over windows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.calls import normal

pytestmark = pytest.mark.ops

DTYPES = ("float32", "float16", "bfloat16")
# size, strides, padding
WINDOWS = [
    (2, None, "VALID"),
    ((3, 2), (2, 1), "VALID"),
    (3, 2, "SAME"),
    ([2, 3], [3, 1], "SAME"),
    (1, 2, "VALID"),
]


def right(x, size, strides, padding):
    """Values, and where the first of the greatest lies in all of x."""
    window = np.broadcast_to(size, 2)
    steps = window if strides is None else np.broadcast_to(strides, 2)
    sizes = np.array(x.shape[1:3])
    if padding == "SAME":
        out = -(-sizes // steps)
        before = np.maximum((out - 1) * steps + window - sizes, 0) // 2
    else:
        out, before = (sizes - window) // steps + 1, np.zeros(2, int)
    places = np.arange(x.size).reshape(x.shape)
    values = np.zeros((x.shape[0], *out, x.shape[3]), x.dtype)
    indices = np.zeros(values.shape, np.int64)
    for b, i, j, c in np.ndindex(values.shape):
        first = np.array([i, j]) * steps - before
        low, high = np.maximum(first, 0), first + window
        here = np.s_[b, low[0] : high[0], low[1] : high[1], c]
        at = np.argmax(x[here])
        values[b, i, j, c], indices[b, i, j, c] = x[here].ravel()[at], places[here].ravel()[at]
    return values, indices


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_values_indices_and_gradient(window, dtype, graph):
    # Few different numbers, so that windows have equal ones.
    x = np.random.default_rng(0).integers(-4, 5, (3, 7, 8, 2)).astype(np.float32)
    expected, places = right(x, *window)
    incoming = np.random.default_rng(1).integers(1, 4, expected.shape).astype(np.float32)

    def run(x, incoming):
        with tf.GradientTape() as tape:
            tape.watch(x)
            values, indices = metal_ops.max_pool_with_global_indices(x, *window)
        return values, indices, tape.gradient(values, x, incoming)

    given = [tf.cast(array, dtype) for array in (x, incoming)]
    values, indices, slope = (tf.function(run) if graph else run)(*given)
    assert values.dtype == slope.dtype == dtype and indices.dtype == tf.int64
    np.testing.assert_array_equal(tf.cast(values, tf.float32), expected)
    np.testing.assert_array_equal(indices, places)
    np.testing.assert_array_equal(tf.gather(tf.reshape(given[0], [-1]), indices), values)
    d_x = np.zeros(x.size, np.float32)
    np.add.at(d_x, places.ravel(), incoming.ravel())
    np.testing.assert_array_equal(tf.cast(slope, tf.float32), d_x.reshape(x.shape))
    unpooled = metal_ops.max_unpool(given[1], indices, x.shape)
    assert unpooled.dtype == dtype
    np.testing.assert_array_equal(unpooled, slope)


def test_second_derivatives():
    """sum (max x)^2 3 / 2, whose slope is 3 max x at the maxima."""
    x, into = tf.constant(normal(2, 6, 6, 3)), tf.constant(normal(2, 6, 6, 3, seed=1))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            values, indices = metal_ops.max_pool_with_global_indices(x)
            loss = 1.5 * tf.reduce_sum(values**2)
        slope = inner.gradient(loss, x)
    found = outer.gradient(slope, x, into)
    places = np.zeros(x.shape.num_elements(), np.float32)
    places[np.ravel(indices)] = 3
    np.testing.assert_allclose(found, places.reshape(x.shape) * into, rtol=1e-6)


def test_unpooling_and_its_gradient():
    values, indices = tf.constant([[1.0, 2.0], [3.0, 4.0]]), np.array([[5, 0], [3, 5]])
    incoming = tf.reshape(tf.range(6.0), [2, 3])
    for kind in (np.int32, np.int64):
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = metal_ops.max_unpool(values, indices.astype(kind), [2, 3])
        np.testing.assert_array_equal(y, [[2, 0, 0], [3, 0, 5]])
        np.testing.assert_array_equal(tape.gradient(y, values, incoming), [[5, 0], [3, 5]])


def test_shapes_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 8, 2])])
    def run(x):
        values, indices = metal_ops.max_pool_with_global_indices(x)
        assert values.shape.as_list() == indices.shape.as_list() == [None, None, 4, 2]
        assert metal_ops.max_unpool(values, indices, [3, 4, 8, 2]).shape == [3, 4, 8, 2]
        return metal_ops.max_unpool(values, indices, tf.shape(x))

    x = np.abs(normal(3, 4, 8, 2))
    y = run(x)
    np.testing.assert_array_equal(y, np.where(y == 0, 0, x))
    assert np.count_nonzero(y) == x.size / 4


X = np.ones((1, 4, 4, 1), np.float32)


@pytest.mark.parametrize(
    "run, error, words",
    [
        (lambda: metal_ops.max_pool_with_global_indices(X[0]), ValueError, r"indices\] x: expected shape \[batch, h"),
        (lambda: metal_ops.max_pool_with_global_indices(tf.cast(X, tf.int32)), TypeError, r"x: expected dtype"),
        (lambda: metal_ops.max_pool_with_global_indices(X, 0), ValueError, r"size: expected 1 or more, .* got 0"),
        (lambda: metal_ops.max_pool_with_global_indices(X, [1, 2, 3]), ValueError, r"size: .* got \[1, 2, 3\]"),
        (lambda: metal_ops.max_pool_with_global_indices(X, 2, 1.5), TypeError, r"strides: expected"),
        (lambda: metal_ops.max_pool_with_global_indices(X, padding="same"), ValueError, r"padding: .* got 'same'"),
        (lambda: metal_ops.max_unpool([1.0], [1, 2], [3]), ValueError, r"\[max_unpool\] indices: expected the shape"),
        (lambda: metal_ops.max_unpool([1.0], [1.0], [3]), TypeError, r"indices: expected"),
        (lambda: metal_ops.max_unpool([1.0], [1], 3), ValueError, r"shape: expected a list of sizes"),
    ],
)  # fmt: skip
def test_bad_calls(run, error, words):
    with pytest.raises(error, match=words):
        run()
