"""quantize, dequantize and quantized_matmul against NumPy in float64."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.calls import Call, normal

pytestmark = [
    pytest.mark.ops,
    pytest.mark.instrumented,
    pytest.mark.avx512,
    pytest.mark.avx512_bytes,
]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@functools.cache
def fixed(bits):
    with tf.init_scope():
        return metal_ops.quantize(normal(103, 9, seed=1), bits)


CALLS = {
    f"quantized_matmul, {bits} bits": Call(
        lambda x, bits=bits: metal_ops.quantized_matmul(x, fixed(bits)),
        lambda: {"x": normal(301, 103)},
        ("x",),
    )
    for bits in (4, 8)
}
# rows, inputs, outputs: one element, an odd number of codes, less than a block, a last block that is not full, more
# than one chunk, each number of rows that has a loop of its own, tiles of rows and outputs and their remainders.
SIZES = [
    (1, 1, 1), (1, 5, 3), (2, 33, 5), (3, 96, 7), (4, 257, 40), (5, 64, 33), (1, 4100, 9), (7, 2051, 17), (300, 70, 18),
    (1, 128, 9), (2, 512, 13), (3, 704, 6), (4, 1024, 35),
]  # fmt: skip
FORMATS = [(4, 32), (4, 64), (4, 96), (4, 128), (4, 256), (4, None), (8, 32), (8, None)]


def make(rows, inputs, outputs, dtype="float32", seed=0):
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    return (random.normal(size=shape).astype(kind) for shape in ((rows, inputs), (inputs, outputs)))


def meant(weights):
    """The values of the codes, [inputs, outputs] in float64."""
    codes = weights.codes.numpy()
    if weights.bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)[:, : weights.inputs]
    block = weights.block or weights.inputs
    scales, minima = (
        np.repeat(t.numpy().astype(np.float64), block, -1)[..., : weights.inputs]
        for t in (weights.scales, weights.minima)
    )
    if minima.ndim == 1:
        minima = -scales * 2.0 ** (weights.bits - 1)
    return (codes * scales + minima).T


def check_product(x, weights, dtype="float32"):
    y = metal_ops.quantized_matmul(tf.constant(x), weights)
    assert y.dtype == dtype
    right = x.astype(np.float64) @ meant(weights)
    assert y.shape == right.shape
    size = np.abs(x.astype(np.float64)) @ np.abs(meant(weights))
    error = np.abs(y.numpy().astype(np.float64) - right)
    # A GPU's tiles take weights of x's dtype.
    narrow = 2 * ROUNDING[dtype] * (dtype != "float32")
    allowed = narrow * (np.abs(right) + size) + 16 * 2.0**-24 * size
    assert (error <= allowed).all(), np.max(error / np.maximum(size, 1e-30))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bits, block", FORMATS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_values(symmetric, bits, block, size):
    x, kernel = make(*size)
    weights = metal_ops.quantize(kernel, bits, block, symmetric)
    right = meant(weights)
    found = metal_ops.dequantize(weights).numpy()
    # scale code is twice that at most, and rounded before the sum where a processor has no fused product.
    assert np.max(np.abs(found - right)) <= 2.0**-22 * np.max(np.abs(right))
    check_product(x, weights)


@pytest.mark.parametrize("rows", [1, 4, 20])
@pytest.mark.parametrize("bits, block", FORMATS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_scales_of_all_outputs(symmetric, bits, block, rows):
    x, kernel = make(rows, 517, 19)
    weights = metal_ops.quantize(kernel, bits, block, symmetric, per_tensor=True)
    assert weights.scales.shape[0] == 1
    check_product(x, weights)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("scales", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("bits", [4, 8])
def test_dtypes(bits, rows, scales, dtype):
    x, kernel = make(rows, 70, 33, dtype)
    weights = metal_ops.quantize(kernel, bits, scales=scales)
    assert weights.scales.dtype == weights.minima.dtype == scales
    check_product(x, weights, dtype)
    found, right = metal_ops.dequantize(weights, dtype).numpy(), meant(weights)
    allowed = 2 * ROUNDING[dtype] * np.abs(right) + 2.0**-22 * np.max(np.abs(right))
    assert (np.abs(found - right) <= allowed).all()


@pytest.mark.parametrize("bits, block", FORMATS)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_rounds_to_the_nearest_step(per_tensor, symmetric, bits, block):
    """Half a step, and the rounding errors of the scale and the least weight."""
    _, kernel = make(1, 70, 9)
    weights = metal_ops.quantize(kernel, bits, block, symmetric, per_tensor)
    assert weights.shape == kernel.shape
    assert weights.scales.shape[0] == (1 if per_tensor else 9)
    step = np.repeat(weights.scales.numpy().astype(np.float64), block or 70, -1)[:, :70].T
    rounding = ROUNDING[weights.scales.dtype.name]
    off = np.abs(meant(weights) - kernel)
    assert (off <= 0.5 * step + 2**bits * step * rounding + 4 * rounding).all(), (off / step).max()
    # A control: a step less would not do.
    assert off.max() > 0.4 * step.min()


def test_bytes():
    _, kernel = make(1, 4096, 10)
    assert metal_ops.quantize(kernel).n_bytes == 10 * (2048 + 2 * 2 * 128)
    assert metal_ops.quantize(kernel, 8, None, symmetric=True).n_bytes == 10 * (4096 + 4)


def test_equal_weights_stay():
    """There is no step between them."""
    weights = metal_ops.quantize(np.full((40, 2), 0.3, np.float32), 8)
    np.testing.assert_allclose(metal_ops.dequantize(weights), np.full((40, 2), 0.3), rtol=1e-6)
    zeros = metal_ops.quantize(np.zeros((40, 2), np.float32), symmetric=True)
    np.testing.assert_array_equal(metal_ops.dequantize(zeros), np.zeros((40, 2)))


@pytest.mark.parametrize("inputs", [70, 256])
@pytest.mark.parametrize("rows", [2, 20])
def test_not_finite_as_in_a_product_of_floats(rows, inputs):
    """Inf and NaN come out where TensorFlow's product has them; sums of large numbers are no larger."""
    x, kernel = make(rows, inputs, 5)
    x[0, 3], x[1, 69] = np.inf, np.nan
    weights = metal_ops.quantize(np.abs(kernel) + 0.1)
    found = metal_ops.quantized_matmul(x, weights).numpy()
    assert (found[0] == np.inf).all() and np.isnan(found[1]).all()
    assert np.isfinite(found[2:]).all()
    large = np.where(np.arange(inputs) < inputs / 2, 3e38, 0)[None].repeat(rows, 0)
    small = metal_ops.quantize(np.full((inputs, 5), 1e-4, np.float32), scales="float32")
    found = metal_ops.quantized_matmul(large.astype(np.float32), small).numpy()
    np.testing.assert_allclose(found, np.full((rows, 5), 1.5e34 * inputs), rtol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
def test_gradient_of_x(bits):
    x, kernel = make(3, 37, 6)
    weights = metal_ops.quantize(kernel, bits)
    into = np.random.default_rng(2).normal(size=(3, 6)).astype(np.float32)
    source = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch([source, weights.scales])
        y = metal_ops.quantized_matmul(source, weights)
    d_x, d_scales = tape.gradient(y, [source, weights.scales], output_gradients=tf.constant(into))
    np.testing.assert_allclose(d_x, into @ meant(weights).T, rtol=1e-5, atol=1e-5)
    assert d_scales is None
    with tf.device(y.device):
        theory, numeric = tf.test.compute_gradient(
            lambda v: metal_ops.quantized_matmul(v, weights), [source], delta=0.25
        )
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-3)


def test_leading_dimensions():
    x, kernel = make(6, 40, 5)
    weights = metal_ops.quantize(kernel)
    flat = metal_ops.quantized_matmul(x, weights).numpy()
    found = metal_ops.quantized_matmul(x.reshape(2, 3, 40), weights)
    np.testing.assert_array_equal(found, flat.reshape(2, 3, 5))


@pytest.mark.parametrize("size", [(0, 40, 5), (2, 40, 0), (20, 40, 0)], ids=str)
def test_empty(size):
    x, kernel = make(*size)
    weights = metal_ops.quantize(kernel)
    assert metal_ops.dequantize(weights).shape == kernel.shape
    assert metal_ops.quantized_matmul(x, weights).shape == (size[0], size[2])


def test_no_inputs():
    """Sums of nothing."""
    none = tf.zeros([3, 0], tf.uint8), tf.zeros([3, 0], tf.float16), tf.zeros([0], tf.float16)
    for rows in (2, 20):
        y = raw_ops.metal_quantized_mat_mul(tf.zeros([rows, 0]), *none)
        np.testing.assert_array_equal(y, np.zeros([rows, 3]))


def test_in_functions_and_saved(tmp_path):
    x, kernel = make(3, 40, 5)
    weights = metal_ops.quantize(kernel)

    class Layer(tf.Module):
        def __init__(self):
            self.weights = weights

        @tf.function(input_signature=[tf.TensorSpec([None, 40])])
        def __call__(self, x):
            return metal_ops.quantized_matmul(x, self.weights)

    right = metal_ops.quantized_matmul(x, weights).numpy()
    again = tf.function(metal_ops.quantized_matmul)(x, weights)
    np.testing.assert_array_equal(again, right)
    tf.saved_model.save(Layer(), str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path))(x), right)


X, KERNEL = np.ones((2, 40), np.float32), np.ones((40, 3), np.float32)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(bits=5), ValueError, r"\[quantize\] bits: expected 4 or 8, got 5"),
        (dict(bits=4.5), TypeError, r"\[quantize\] bits: expected an integer"),
        (dict(block=40), ValueError, r"\[quantize\] block: expected a multiple of 32, or None, got 40"),
        (dict(symmetric=None), TypeError, r"\[quantize\] symmetric: expected True or False"),
        (dict(scales="bfloat16"), TypeError, r"\[quantize\] scales: expected float32 or float16, got bfloat16"),
        (dict(weights=np.ones(3, np.float32)), ValueError, r"\[quantize\] weights: expected shape \[inputs, outputs\]"),
        (dict(weights=KERNEL * np.nan), tf.errors.InvalidArgumentError, r"\[quantize\] weights: expected finite"),
        (dict(weights=KERNEL * np.inf), tf.errors.InvalidArgumentError, r"\[quantize\] weights: expected finite"),
        (dict(weights=KERNEL * 1e9, symmetric=True), tf.errors.InvalidArgumentError, "scales=tf.float32 has room"),
    ],
)  # fmt: skip
def test_bad_quantize(change, error, words):
    with pytest.raises(error, match=words):
        metal_ops.quantize(**{"weights": KERNEL, **change})


def test_bad_calls():
    weights = metal_ops.quantize(KERNEL)
    with pytest.raises(TypeError, match=r"\[quantized_matmul\] weights: expected metal_ops.Quant"):
        metal_ops.quantized_matmul(X, KERNEL)
    with pytest.raises(TypeError, match=r"\[dequantize\] weights: expected metal_ops.Quantized"):
        metal_ops.dequantize(KERNEL)
    with pytest.raises(TypeError, match=r"\[dequantize\] dtype: expected float32"):
        metal_ops.dequantize(weights, tf.int32)
    with pytest.raises(ValueError, match=r"\[quantized_matmul\] x: expected shape \[..., 40\]"):
        metal_ops.quantized_matmul(X[:, :39], weights)
    with pytest.raises(TypeError, match=r"\[quantized_matmul\] x: expected"):
        metal_ops.quantized_matmul(tf.cast(X, tf.int32), weights)


BAD_RAW = [
    (dict(bits=3), "bits must be 4 or 8, got 3"),
    (dict(block=33), "block must be 0, for all of a row, or a multiple of 32, got 33"),
    (dict(codes=np.ones((3, 19), np.uint8)), "has 20 bytes, got codes of 19"),
    (dict(scales=np.ones((3, 1), np.float16)), "in blocks of 32 has 2 scales, got 1"),
    (dict(scales=np.ones((2, 2), np.float16)), "a row for each of the 3 rows of codes, or one for all, got 2"),
    (dict(minima=np.ones((1, 2), np.float16)), "minima must have shape"),
    (dict(minima=np.ones(3, np.float16)), "minima must have shape"),
]  # fmt: skip


@pytest.mark.parametrize("change, words", BAD_RAW)
def test_bad_raw_calls(change, words):
    weights = metal_ops.quantize(KERNEL)
    given = dict(
        codes=weights.codes, scales=weights.scales, minima=weights.minima, bits=4, block=32
    )
    raw_ops.metal_quantized_mat_mul(x=X, **given)
    given |= {
        name: tf.constant(v) if isinstance(v, np.ndarray) else v for name, v in change.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_quantized_mat_mul(x=X, **given)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_dequantize(inputs=40, T=tf.float32, **given)
