"""rope against NumPy in float64, and its purpose: scores that know distances alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.calls import Call, normal

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
CALLS = {"rope": Call(metal_ops.rope, lambda: {"x": normal(3, 5, 301, 38)}, ("x",))}
# One pair, no whole vector of pairs, several heads and sequences, one token of many heads.
SHAPES = [(1, 1, 1, 2), (1, 1, 3, 6), (2, 3, 5, 38), (3, 8, 1, 64), (1, 2, 700, 128)]


def make(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    return [random.normal(size=shape).astype(kind) for _ in range(2)]


def angles(positions, size, base=10000.0):
    """[..., length, pairs]"""
    return np.asarray(positions)[..., None] * base ** (-np.arange(0, size, 2) / size)


def right(x, w, interleaved, size=None):
    """x turned by w, [length, pairs] or [batch, 1, length, pairs]."""
    x = np.asarray(x).astype(np.float64)
    size = size or x.shape[-1]
    y = x.copy()
    if interleaved:
        one, other = np.s_[..., 0:size:2], np.s_[..., 1:size:2]
    else:
        one, other = np.s_[..., : size // 2], np.s_[..., size // 2 : size]
    y[one] = x[one] * np.cos(w) - x[other] * np.sin(w)
    y[other] = x[one] * np.sin(w) + x[other] * np.cos(w)
    return y


def compare(found, expected, dtype):
    assert found.dtype == dtype and found.shape == expected.shape
    allowed = ROUNDING[dtype] * (dtype != "float32") + 16 * ROUNDING["float32"]
    error = np.max(np.abs(np.asarray(found.numpy()).astype(np.float64) - expected), initial=0)
    size = np.max(np.abs(expected), initial=1)
    assert error <= allowed * size, f"off by {error:.3g}"


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
def test_value_and_gradient(interleaved, shape, dtype):
    x, incoming = make(shape, dtype)
    w = angles(np.arange(shape[2]), shape[3])
    with tf.GradientTape() as tape:
        source = tf.constant(x)
        tape.watch(source)
        y = metal_ops.rope(source, interleaved=interleaved)
    compare(y, right(x, w, interleaved), dtype)
    slope = tape.gradient(y, source, output_gradients=tf.constant(incoming))
    compare(slope, right(incoming, -w, interleaved), dtype)


@pytest.mark.parametrize("start", [0, 7, 131072, 2**24 - 8, -5])
def test_far_positions(start):
    """An angle of 10^7 radians, rounded to float32, would be off by one."""
    x, _ = make((1, 2, 8, 64), "float32")
    w = angles(start + np.arange(8), 64)
    compare(metal_ops.rope(x, start), right(x, w, False), "float32")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions_of_each_sequence(dtype):
    x, _ = make((3, 2, 4, 10), "float32")
    positions = np.array([[0, 1, 2, 3], [9, 9, 0, 1], [100, 50, 25, 12]], dtype)
    expected = right(x, angles(positions, 10)[:, None], False)
    compare(metal_ops.rope(x, positions), expected, "float32")
    # One sequence's positions for all, and the same as a matrix of one row.
    for given in (positions[1], positions[1:2]):
        compare(metal_ops.rope(x, given), right(x, angles(positions[1], 10), False), "float32")


@pytest.mark.parametrize("interleaved", [False, True])
def test_part_of_the_elements(interleaved):
    x, _ = make((2, 2, 5, 13), "float32")
    y = metal_ops.rope(x, rotary_size=6, base=100.0, interleaved=interleaved)
    w = angles(np.arange(5), 6, 100.0)
    compare(y, right(x, w, interleaved, size=6), "float32")
    np.testing.assert_array_equal(y[..., 6:], x[..., 6:])
    np.testing.assert_array_equal(metal_ops.rope(x, rotary_size=0), x)


@pytest.mark.parametrize(
    "of",
    [list, np.float32, np.float64, tf.constant, tf.Variable],
    ids=["list", "float32", "float64", "tensor", "variable"],
)
def test_frequencies(of):
    x, _ = make((2, 2, 5, 7), "float32")
    given = [0.5, 0.25, 3.0]
    y = metal_ops.rope(x, 1000, frequencies=of(given), rotary_size=6)
    w = (1000 + np.arange(5))[:, None] * np.array(given)
    compare(y, right(x, w, False, size=6), "float32")
    # And inside of a function, where numbers must not become symbols before they are taken apart.
    again = tf.function(lambda x: metal_ops.rope(x, 1000, frequencies=of(given), rotary_size=6))
    if of is not tf.Variable:
        np.testing.assert_array_equal(again(x), y)


def test_scores_know_distances():
    (q, k), both = make((1, 2, 6, 32), "float32"), []
    for start in (0, 5000):
        turned = metal_ops.rope(q, start), metal_ops.rope(k, start)
        both.append(tf.matmul(*turned, transpose_b=True))
    np.testing.assert_allclose(*both, atol=1e-4)


def test_second_gradient():
    """Linear: the gradient of a square's gradient is 2, whatever the angle."""
    x = tf.constant(make((1, 1, 3, 8), "float32")[0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(metal_ops.rope(x) ** 2)
        slope = inner.gradient(loss, x)
    np.testing.assert_allclose(outer.gradient(slope, x), np.full(x.shape, 2.0), rtol=1e-5)


def test_after_a_cache():
    cache = metal_ops.KVCache(2, 1, 8, 4)
    x = tf.ones([2, 1, 3, 4])
    cache.attend(x, x, x)
    np.testing.assert_array_equal(
        metal_ops.rope(x[:, :, :1], cache.positions()), metal_ops.rope(x[:, :, :1], 3)
    )


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty(shape):
    assert metal_ops.rope(tf.zeros(shape)).shape == shape


def test_in_a_graph():
    @tf.function(input_signature=[tf.TensorSpec([None, 2, None, 6]), tf.TensorSpec([], tf.int32)])
    def run(x, start):
        y = metal_ops.rope(x, start)
        assert y.shape.as_list() == [None, 2, None, 6]
        return y

    x, _ = make((2, 2, 3, 6), "float32")
    np.testing.assert_array_equal(run(x, 4), metal_ops.rope(x, 4))


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(x=tf.ones([2, 3, 4])), ValueError, r"\[rope\] x: expected \[batch, heads, length, size\]"),
        (dict(x=tf.ones([1, 1, 2, 5])), ValueError, r"expected an even last dimension, got 5.*rotary_size=4"),
        (dict(rotary_size=3), ValueError, r"\[rope\] rotary_size: expected an even number of at most 4"),
        (dict(rotary_size=6), ValueError, r"\[rope\] rotary_size: expected an even number of at most 4"),
        (dict(base=0.0), ValueError, r"\[rope\] base: expected a number above 0, got 0.0"),
        (dict(base="10"), TypeError, r"\[rope\] base: expected a Python number"),
        (dict(base=2.0, frequencies=[1.0]), ValueError, r"\[rope\] frequencies, base: expected one of them"),
        (dict(frequencies=[[1.0]]), ValueError, r"\[rope\] frequencies: expected shape \[pairs\]"),
        (dict(frequencies=[1.0], rotary_size=4), ValueError, r"rotary_size: expected 2, twice"),
        (dict(frequencies=[1.0] * 3), tf.errors.InvalidArgumentError, r"rope: turns must have at most half"),
        (dict(positions=[1.5, 2.0]), TypeError, r"\[rope\] positions: expected"),
        (dict(positions=[1, 2, 3]), tf.errors.InvalidArgumentError, r"rope: positions must have shape"),
        (dict(positions=[[1, 2]] * 3), tf.errors.InvalidArgumentError,
         r"positions must have shape \[1, length\] or \[batch, length\] with batch = 2"),
        (dict(positions=tf.zeros([1, 1, 2], tf.int32)), ValueError, r"\[rope\] positions: expected a scalar"),
        (dict(interleaved=1), TypeError, r"\[rope\] interleaved: expected True or False"),
    ],
)  # fmt: skip
def test_bad_calls(change, error, words):
    given = dict(x=tf.ones([2, 1, 2, 4]))
    metal_ops.rope(**given)
    with pytest.raises(error, match=words):
        metal_ops.rope(**{**given, **change})


def test_the_raw_op_turns_back():
    x, _ = make((2, 2, 3, 6), "float32")
    positions, turns = tf.range(3)[None], tf.constant([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0]])
    y = raw_ops.rope(x, positions, turns)
    np.testing.assert_allclose(raw_ops.rope(y, positions, turns, inverse=True), x, atol=1e-6)
