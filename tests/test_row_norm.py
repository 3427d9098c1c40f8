"""layer_norm and rms_norm against NumPy in float64, and Keras' layers."""

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
    "layer_norm": Call(
        metal_ops.layer_norm,
        lambda: {"x": normal(301, 103), "scale": normal(103, seed=1), "offset": normal(103, seed=2)},
        ("x", "scale", "offset"),
    ),
    "rms_norm": Call(
        metal_ops.rms_norm,
        lambda: {"x": normal(301, 103), "scale": normal(103, seed=1)},
        ("x", "scale"),
    ),
}  # fmt: skip
# One element, odd sizes, rows of several parts of the gradient's sums, long rows.
SHAPES = [(1, 1), (3, 5), (2, 3, 16), (130, 33), (5000, 8), (4, 4099)]


def make(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    x, incoming = (random.normal(size=shape).astype(kind) for _ in range(2))
    scale, offset = (random.normal(size=shape[-1]).astype(kind) for _ in range(2))
    return x + np.array(2, kind), scale, offset, incoming


def right(x, scale, offset, incoming, epsilon, center):
    """The result, and gradients of x, scale and offset."""
    x, scale, incoming = (v.astype(np.float64) for v in (x, scale, incoming))
    d = x - x.mean(axis=-1, keepdims=True) if center else x
    factor = 1 / np.sqrt((d**2).mean(axis=-1, keepdims=True) + epsilon)
    g, unit = incoming * scale, d * factor
    d_x = g - unit * (g * unit).mean(axis=-1, keepdims=True)
    if center:
        d_x = d_x - g.mean(axis=-1, keepdims=True)
    rows = tuple(range(x.ndim - 1))
    y = unit * scale + (0 if offset is None else offset.astype(np.float64))
    return y, d_x * factor, (incoming * unit).sum(axis=rows), incoming.sum(axis=rows)


def check(x, scale, offset, incoming, dtype, epsilon):
    sources = [tf.constant(v) for v in (x, scale, *([] if offset is None else [offset]))]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        norm = metal_ops.rms_norm if offset is None else metal_ops.layer_norm
        y = norm(*sources, epsilon=epsilon)
    found = [y, *tape.gradient(y, sources, output_gradients=tf.constant(incoming))]
    expected = right(x, scale, offset, incoming, epsilon, offset is not None)
    for name, a, b in zip(("y", "d_x", "d_scale", "d_offset"), found, expected, strict=False):
        assert a.dtype == dtype and a.shape == b.shape
        error = np.max(np.abs(np.asarray(a.numpy()).astype(np.float64) - b), initial=0)
        size = max(np.max(np.abs(b), initial=0), 1)
        allowed = ROUNDING[dtype] * (dtype != "float32") + 32 * ROUNDING["float32"]
        assert error <= allowed * size, f"{name}: off by {error / size:.3g}"


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("center", [False, True])
def test_value_and_gradients(center, shape, dtype):
    x, scale, offset, incoming = make(shape, dtype)
    check(x, scale, offset if center else None, incoming, dtype, 1e-3)


def test_far_from_zero():
    """The mean is taken away before squares are made, rounded to half a step of 2^-11 at most."""
    x, scale, offset, incoming = make((7, 500), "float32")
    x = np.round(64 * x) / 64 + np.float32(4096)
    y = metal_ops.layer_norm(x, scale, offset, epsilon=0.0)
    expected = right(x, scale, offset, incoming, 0.0, True)[0]
    assert np.max(np.abs(y - expected)) < 2.0**-11 * np.max(np.abs(scale))


def test_without_offset():
    x, scale, offset, _ = make((6, 9), "float32")
    np.testing.assert_array_equal(
        metal_ops.layer_norm(x, scale), metal_ops.layer_norm(x, scale, np.zeros_like(offset))
    )


def test_is_that_of_keras():
    x, scale, offset, _ = make((6, 5, 9), "float32")
    layer = keras.layers.LayerNormalization()
    layer.build(x.shape)
    layer.set_weights([scale, offset])
    np.testing.assert_allclose(metal_ops.layer_norm(x, scale, offset), layer(x), atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty(shape):
    x, scale, offset, _ = make(shape, "float32")
    scale, offset = tf.constant(scale), tf.constant(offset)
    with tf.GradientTape() as tape:
        tape.watch([scale, offset])
        y = metal_ops.layer_norm(x, scale, offset if shape[-1] else None)
    assert y.shape == shape
    np.testing.assert_array_equal(tape.gradient(y, scale), np.zeros(shape[-1]))


@pytest.mark.parametrize("center", [True, False])
def test_means_of_nothing_are_nan(center):
    """And not the memory's old contents."""
    x, none = tf.zeros([3, 0]), tf.zeros([0])
    _, mean, factor = raw_ops.row_norm(x, none, none, center=center)
    np.testing.assert_array_equal(mean, np.full(3, np.nan if center else 0.0))
    np.testing.assert_array_equal(factor, np.full(3, np.nan))


def test_nan_stays_in_its_row():
    x, scale, offset, _ = make((8, 40), "float32")
    clean = metal_ops.layer_norm(x, scale, offset).numpy()
    x[3, 7] = np.nan
    spoilt = metal_ops.layer_norm(x, scale, offset).numpy()
    assert np.isnan(spoilt[3]).all()
    np.testing.assert_array_equal(np.delete(spoilt, 3, 0), np.delete(clean, 3, 0))


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(scale=np.ones(4, np.float32)), tf.errors.InvalidArgumentError,
         r"layer_norm: scale must have shape \[columns\] with columns = 3 as in x, got \[4\]"),
        (dict(offset=np.ones(4, np.float32)), tf.errors.InvalidArgumentError, r"layer_norm: offset must have shape"),
        (dict(offset=np.ones(0, np.float32)), ValueError, r"\[layer_norm\] offset: expected shape \[columns\]"),
        (dict(scale=tf.ones([3], tf.float16)), TypeError, r"\[layer_norm\] scale: expected dtype float32 as of x"),
        (dict(x=np.float32(1)), ValueError, r"\[layer_norm\] x: expected shape"),
        (dict(epsilon=-1.0), tf.errors.InvalidArgumentError, r"epsilon must be 0 or more, got -1"),
        (dict(epsilon="0"), TypeError, r"\[layer_norm\] epsilon: expected a Python number"),
    ],
)  # fmt: skip
def test_bad_calls(change, error, words):
    ones = np.ones((2, 3), np.float32)
    given = dict(x=ones, scale=ones[0], offset=ones[0])
    metal_ops.layer_norm(**given)
    with pytest.raises(error, match=words):
        metal_ops.layer_norm(**{**given, **change})


def test_bad_gradients():
    given = dict(
        gradients=tf.ones([2, 3]), x=tf.ones([2, 3]), scale=tf.ones([3]),
        mean=tf.ones([2]), factor=tf.ones([2]),
    )  # fmt: skip
    raw_ops.row_norm_grad(**given)
    for name in ("gradients", "mean", "factor"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"RowNormGrad: {name} must"):
            raw_ops.row_norm_grad(**{**given, name: tf.ones([4])})
