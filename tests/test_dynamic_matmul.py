"""quantized_matmul of x that is rounded to 8 bits, against NumPy in float64 on the same integers; layers and models."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.layers import QuantizedDense
from tests.calls import normal
from tests.test_quantized_matmul import BAD_RAW, FORMATS, KERNEL, ROUNDING, SIZES, X, make, meant

pytestmark = [pytest.mark.ops, pytest.mark.avx512_bytes]


def rounded(x):
    """x as the integers stand for it, in float64; by products of float32 as the op has them."""
    x = np.asarray(x).astype(np.float32)
    most = np.abs(x).max(-1, keepdims=True, initial=0)
    steps = np.where(most < 1e-36, 1, most)
    return np.rint(x * (np.float32(127) / steps)).astype(np.float64) * steps / 127


def check(x, weights, dtype="float32"):
    y = metal_ops.quantized_matmul(tf.constant(x), weights, dynamic=True)
    assert y.dtype == dtype
    right = rounded(x) @ meant(weights)
    size = np.abs(rounded(x)) @ np.abs(meant(weights))
    error = np.abs(y.numpy().astype(np.float64) - right)
    # Codes and minima are summed apart, and are larger than the weights they stand for.
    allowed = 2 * ROUNDING[dtype] * np.abs(right) + 64 * 2.0**-24 * size
    assert y.shape == right.shape and (error <= allowed).all(), np.max(
        error / np.maximum(size, 1e-30)
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bits, block", FORMATS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_values(symmetric, bits, block, size):
    x, kernel = make(*size)
    check(x, metal_ops.quantize(kernel, bits, block, symmetric))


@pytest.mark.parametrize("bits, block", [(4, 96), (4, 160), (8, 32), (8, 96), (4, 256), (8, 64)])
@pytest.mark.parametrize("inputs", [320, 517])
def test_blocks_beside_vectors(inputs, bits, block):
    """Blocks that share vectors of codes, that have whole ones, and that end within one."""
    x, kernel = make(5, inputs, 19)
    for symmetric in (False, True):
        check(x, metal_ops.quantize(kernel, bits, block, symmetric))


@pytest.mark.parametrize("bits, block", [(4, 32), (4, 64), (8, 32)])
@pytest.mark.parametrize("scales", ["float32", "float16"])
def test_outputs_side_by_side(scales, bits, block):
    """Four at a time, of one row: by the same sums as of two, and those that are left."""
    x, kernel = make(2, 1024, 39)
    for symmetric in (False, True):
        weights = metal_ops.quantize(kernel, bits, block, symmetric, scales=scales)
        check(x[:1], weights)
        alone, both = (
            metal_ops.quantized_matmul(some, weights, dynamic=True) for some in (x[:1], x)
        )
        np.testing.assert_array_equal(alone[0], both[0])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("scales", ["float32", "float16"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_dtypes(per_tensor, bits, scales, dtype):
    x, kernel = make(6, 70, 33, dtype)
    check(
        x,
        metal_ops.quantize(kernel, bits, scales=scales, per_tensor=per_tensor),
        dtype,
    )


def test_integers_are_exact():
    """Cancelling terms leave the rest, though a lane's sums on the way are no floats of 24 bits."""
    q = np.repeat(np.float32([127, -127, 1]), [30001, 30001, 3])[np.newaxis]
    kernel = np.full((60005, 2), 127, np.float32)
    kernel[-3:] = [[1, -5]] * 3
    weights = metal_ops.quantize(kernel, 8, None, symmetric=True)
    assert np.array_equal(weights.scales, [[1], [1]])
    found = metal_ops.quantized_matmul(q, weights, dynamic=True)
    np.testing.assert_array_equal(found, [[3, -15]])


def test_long_rows_do_not_overflow():
    x, kernel = np.ones((1, 270000), np.float32), np.ones((270000, 1), np.float32)
    weights = metal_ops.quantize(kernel, 8, None, symmetric=True)
    np.testing.assert_allclose(
        metal_ops.quantized_matmul(x, weights, dynamic=True), [[270000]], rtol=1e-6
    )


def test_error_is_that_of_half_a_step():
    """The documentation's bound, and that rows have steps of their own."""
    x, kernel = make(8, 512, 64)
    x *= 10.0 ** np.arange(8)[:, np.newaxis]
    weights = metal_ops.quantize(kernel, 8)
    off = metal_ops.quantized_matmul(x, weights, dynamic=True) - metal_ops.quantized_matmul(
        x, weights
    )
    step = np.abs(x).max(1, keepdims=True) / 127
    bound = 0.5 * step * np.abs(meant(weights)).sum(0)
    relative = np.linalg.norm(off, axis=1) / np.linalg.norm(x @ kernel, axis=1)
    assert (np.abs(off) <= bound * 1.001).all()
    assert (relative > 1e-3).all() and (relative < 0.02).all(), relative


def test_not_finite_rows():
    x, kernel = make(5, 70, 5)
    x[0, 3], x[1, 69], x[3] = np.inf, np.nan, 0
    found = metal_ops.quantized_matmul(x, metal_ops.quantize(kernel), dynamic=True).numpy()
    assert np.isnan(found[:2]).all() and np.isfinite(found[2:]).all()
    assert not found[3].any()


def test_gradient_is_that_without_rounding():
    x, kernel = make(3, 37, 6)
    weights = metal_ops.quantize(kernel, 8)
    source = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(source)
        y = metal_ops.quantized_matmul(source, weights, dynamic=True)
    into = normal(3, 6, seed=2)
    d_x = tape.gradient(y, source, output_gradients=tf.constant(into))
    np.testing.assert_allclose(d_x, into @ meant(weights).T, rtol=1e-5, atol=1e-5)


def test_empty():
    for size in ((0, 40, 5), (2, 40, 0)):
        x, kernel = make(*size)
        y = metal_ops.quantized_matmul(x, metal_ops.quantize(kernel), dynamic=True)
        assert y.shape == (size[0], size[2])
    none = tf.zeros([3, 0], tf.uint8), tf.zeros([3, 0], tf.float16), tf.zeros([0], tf.float16)
    np.testing.assert_array_equal(
        raw_ops.metal_dynamic_mat_mul(tf.zeros([2, 0]), *none), np.zeros([2, 3])
    )


def test_layers_and_models(tmp_path):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Conv2D(4, 3), keras.layers.Flatten(), keras.layers.Dense(40, "relu")]
    model = keras.Sequential([keras.Input([6, 6, 2]), *layers, keras.layers.Dense(3, name="out")])
    x = normal(4, 6, 6, 2)
    spec = {"bits": 8, "dynamic": True, "overrides": {"out": {"dynamic": False}}}
    small = metal_ops.quantize_model(model, spec, calibrate=x)
    hidden, out = small.layers[2:]
    assert isinstance(hidden, QuantizedDense) and hidden.dynamic and not out.dynamic
    inputs = normal(5, 64, seed=3)
    expected = keras.activations.relu(
        metal_ops.quantized_matmul(inputs, hidden.quantized, dynamic=True) + hidden.bias
    )
    np.testing.assert_array_equal(hidden(inputs), expected)
    small.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[2].dynamic and not loaded.layers[3].dynamic
    np.testing.assert_array_equal(loaded(x), small(x))
    report = metal_ops.quantization_report(model, small, x)
    assert 0 < report.error < 0.05
    old = QuantizedDense(3).get_config()
    del old["dynamic"]
    assert not QuantizedDense.from_config(old).dynamic


TABLES = r"\] dynamic: expected False with lookup tables"


@pytest.mark.parametrize(
    "make_it, error, words",
    [
        (lambda: metal_ops.quantized_matmul(X, metal_ops.quantize(KERNEL, 3, lookup=1), dynamic=True), ValueError,
         r"\[quantized_matmul" + TABLES),
        (lambda: metal_ops.quantized_matmul(X, metal_ops.quantize(KERNEL), dynamic=2), TypeError,
         r"\[quantized_matmul\] dynamic: expected True or False"),
        (lambda: QuantizedDense(3, lookup=4, dynamic=True), ValueError, r"\[QuantizedDense" + TABLES),
        (lambda: metal_ops.QuantizationSpec(lookup=4, dynamic=True), ValueError, r"\[QuantizationSpec" + TABLES),
        (lambda: metal_ops.QuantizationSpec(overrides={"a": {"dynamic": 3}}), TypeError, r"dynamic: expected True"),
    ],
)  # fmt: skip
def test_bad_arguments(make_it, error, words):
    with pytest.raises(error, match=words):
        make_it()


@pytest.mark.parametrize("change, words", BAD_RAW)
def test_bad_raw_calls(change, words):
    weights = metal_ops.quantize(KERNEL)
    given = dict(
        codes=weights.codes, scales=weights.scales, minima=weights.minima, bits=4, block=32
    )
    given |= {
        name: tf.constant(v) if isinstance(v, np.ndarray) else v for name, v in change.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_dynamic_mat_mul(x=X, **given)
