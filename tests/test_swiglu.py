"""swiglu against NumPy in float64, and against Keras' ops."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.calls import Call, normal

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
CALLS = {
    "swiglu": Call(
        metal_ops.swiglu,
        lambda: {"gate": normal(301, 103), "up": normal(301, 103, seed=1)},
        ("gate", "up"),
    )
}
# Scalars, odd sizes, a piece of 512 and more, rows that are no whole vectors.
SHAPES = [(), (1,), (3, 5), (2, 3, 16), (7, 515), (1, 5000)]


def make(shape, dtype):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    return [(3 * random.normal(size=shape)).astype(kind) for _ in range(3)]


def right(gate, up, incoming):
    """The result, and gradients of gate and up."""
    gate, up, incoming = (v.astype(np.float64) for v in (gate, up, incoming))
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-gate))
    return gate * s * up, incoming * up * s * (1 + gate * (1 - s)), incoming * gate * s


def compare(found, expected, dtype):
    for name, a, b in zip(("y", "d_gate", "d_up"), found, expected, strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        allowed = ROUNDING[dtype] * (dtype != "float32") + 8 * ROUNDING["float32"]
        error = np.abs(np.asarray(a.numpy()).astype(np.float64) - b)
        # Near silu's lowest point two terms of its slope cancel, and they are up to 30 times as large as 1 here.
        worst = np.max(error - allowed * np.abs(b) - 32 * ROUNDING["float32"], initial=-1)
        assert worst <= 0, f"{name}: off by {worst:.3g} beyond {allowed:.3g}"


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_value_and_gradients(shape, dtype):
    gate, up, incoming = make(shape, dtype)
    sources = [tf.constant(gate), tf.constant(up)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = metal_ops.swiglu(*sources)
    found = [y, *tape.gradient(y, sources, output_gradients=tf.constant(incoming))]
    compare(found, right(gate, up, incoming), dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3, 32), (5, 1030)], ids=str)
def test_both_in_one(shape, dtype):
    """The same numbers, bit for bit, as of the halves."""
    both, _, incoming = make(shape, dtype)
    both, half = tf.constant(both), shape[-1] // 2
    with tf.GradientTape() as tape:
        tape.watch(both)
        y = metal_ops.swiglu(both)
    gate, up = both[..., :half], both[..., half:]
    incoming = tf.constant(incoming[..., :half])
    np.testing.assert_array_equal(y, metal_ops.swiglu(gate, up))
    np.testing.assert_array_equal(
        tape.gradient(y, both, output_gradients=incoming),
        tf.concat(raw_ops.swiglu_grad(incoming, gate, up), -1),
    )


def test_is_that_of_keras():
    gate, up, _ = make((6, 50), "float32")
    np.testing.assert_allclose(metal_ops.swiglu(gate, up), keras.ops.silu(gate) * up, rtol=1e-5)


def test_far_out():
    """Where e^-x is infinite, and where it is nothing."""
    gate = np.array(
        [-np.inf, -1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e30, np.inf, np.nan], np.float32
    )
    with tf.GradientTape() as tape:
        x = tf.constant(gate)
        tape.watch(x)
        y = metal_ops.swiglu(x, tf.ones_like(x))
    slopes = tape.gradient(y, x)
    np.testing.assert_allclose(y[1:-1], [0, 0, 0, 0, 88, 200, 1e30, np.inf], atol=1e-30, rtol=1e-6)
    np.testing.assert_allclose(slopes[1:-2], [0, 0, 0, 0.5, 1, 1, 1], atol=1e-30, rtol=1e-6)
    assert np.isnan(y[-1]) and np.isnan(slopes[-1])


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)], ids=str)
def test_empty(shape):
    x = tf.zeros(shape)
    assert metal_ops.swiglu(x, x).shape == shape
    half = (*shape[:-1], shape[-1] // 2)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = metal_ops.swiglu(x)
    assert y.shape == half and tape.gradient(y, x).shape == shape


def test_shapes_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, None])])
    def run(known, unknown):
        y, z = metal_ops.swiglu(known), metal_ops.swiglu(unknown)
        assert y.shape.as_list() == [None, 4] and z.shape.as_list() == [None, None]
        return y, z

    y, z = run(tf.ones([3, 8]), tf.ones([2, 6]))
    assert y.shape == [3, 4] and z.shape == [2, 3]


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(up=tf.ones([3, 2])), tf.errors.InvalidArgumentError,
         r"swiglu: up must be shaped like gate, \[2, 4\], got \[3, 2\]"),
        (dict(gate=tf.ones([2, 3]), up=None), tf.errors.InvalidArgumentError,
         r"swiglu: gate must have an even last dimension.*got \[2, 3\]"),
        (dict(gate=tf.ones([]), up=None), tf.errors.InvalidArgumentError, r"gate must have an even last dimension"),
        (dict(up=tf.ones([0])), ValueError, r"\[swiglu\] up: expected the shape of gate"),
        (dict(up=tf.ones([2, 4], tf.float16)), TypeError, r"\[swiglu\] up: expected dtype float32 as of gate"),
        (dict(gate=tf.ones([2, 4], tf.int32)), TypeError, r"\[swiglu\] gate: expected dtype float32"),
    ],
)  # fmt: skip
def test_bad_calls(change, error, words):
    given = dict(gate=tf.ones([2, 4]), up=tf.ones([2, 4]))
    metal_ops.swiglu(**given)
    with pytest.raises(error, match=words):
        metal_ops.swiglu(**{**given, **change})


def test_bad_gradients():
    x, none = tf.ones([2, 4]), tf.zeros([0])
    raw_ops.swiglu_grad(x, x, x)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="gradients must be shaped like the result"
    ):
        raw_ops.swiglu_grad(tf.ones([4, 2]), x, x)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="gradients must be shaped like the result"
    ):
        raw_ops.swiglu_grad(x, x, none)
