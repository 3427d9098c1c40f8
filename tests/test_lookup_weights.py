"""Weights by lookup tables against NumPy in float64: quantize, dequantize, quantized_matmul, layers and models."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from tests import test_quantized_layers
from tests.calls import Call, normal
from tests.test_quantized_matmul import ROUNDING, make

pytestmark = pytest.mark.ops

BITS = (2, 3, 4, 6, 8)


@functools.cache
def fixed(bits):
    with tf.init_scope():
        return metal_ops.quantize(normal(103, 9, seed=1), bits, lookup=4)


CALLS = {
    f"quantized_matmul, tables of {bits} bits": Call(
        lambda x, bits=bits: metal_ops.quantized_matmul(x, fixed(bits)),
        lambda: {"x": normal(301, 103)},
        ("x",),
    )
    for bits in (3, 8)
}
# rows, inputs, outputs: one element, codes that end within a byte, sixteens whose bytes end with the tensor, each
# number of rows that has a loop of its own, more than one chunk, tiles of rows and outputs and their remainders.
SIZES = [
    (1, 1, 1), (1, 5, 3), (2, 33, 5), (3, 96, 7), (4, 48, 40), (5, 64, 33), (1, 4100, 5), (7, 2051, 17), (30, 70, 18),
]  # fmt: skip


def made(size, bits=3, lookup=4, dtype="float32", **more):
    """x, a kernel and that in tables."""
    x, kernel = make(*size, dtype)
    return x, kernel, metal_ops.quantize(kernel, bits, lookup=lookup, **more)


def codes_of(weights):
    """[outputs, inputs]."""
    each = np.unpackbits(weights.codes.numpy(), axis=1, bitorder="little")
    each = each[:, : weights.inputs * weights.bits].reshape(-1, weights.inputs, weights.bits)
    return each.astype(int) @ (1 << np.arange(weights.bits))


def meant(weights):
    """The values of the codes, [inputs, outputs] in float64."""
    codes, tables = codes_of(weights), weights.tables.numpy().astype(np.float64)
    groups = np.arange(len(codes)) // (weights.group or max(len(codes), 1))
    return tables[groups[:, np.newaxis], codes].T


def check_product(x, weights, dtype="float32"):
    y = metal_ops.quantized_matmul(tf.constant(x), weights)
    assert y.dtype == dtype
    right = x.astype(np.float64) @ meant(weights)
    size = np.abs(x.astype(np.float64)) @ np.abs(meant(weights))
    error = np.abs(y.numpy().astype(np.float64) - right)
    # A GPU's tiles take weights of x's dtype.
    narrow = 2 * ROUNDING[dtype] * (dtype != "float32")
    allowed = narrow * (np.abs(right) + size) + 16 * 2.0**-24 * size
    assert y.shape == right.shape and (error <= allowed).all(), np.max(
        error / np.maximum(size, 1e-30)
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("lookup", [0, 1, 16])
def test_values(lookup, bits, size):
    x, kernel, weights = made(size, bits, lookup)
    assert weights.shape == kernel.shape and weights.bits == bits and weights.group == lookup
    np.testing.assert_array_equal(metal_ops.dequantize(weights), meant(weights))
    check_product(x, weights)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("scales", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("bits", BITS)
def test_dtypes(bits, rows, scales, dtype):
    x, _, weights = made((rows, 70, 33), bits, 8, dtype, scales=scales)
    assert weights.tables.dtype == scales
    check_product(x, weights, dtype)
    found, right = metal_ops.dequantize(weights, dtype).numpy(), meant(weights)
    assert (np.abs(found - right) <= ROUNDING[dtype] * np.abs(right)).all()


# ---- which values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", BITS)
def test_codes_are_of_the_nearest_value(bits):
    _, kernel, weights = made((1, 100, 20), bits, 8)
    tables = np.repeat(weights.tables.numpy().astype(np.float64), 8, 0)[:20]
    assert (np.diff(tables) >= 0).all()
    nearest = np.abs(tables[:, np.newaxis] - kernel.T[..., np.newaxis]).min(-1)
    np.testing.assert_allclose(np.abs(meant(weights) - kernel).T, nearest, atol=1e-7)


@pytest.mark.parametrize(
    "bits, least", [(2, 0.1175), (3, 0.03454), (4, 0.009497)], ids=["2", "3", "4"]
)
def test_normal_weights_are_as_near_as_can_be(bits, least):
    """Squares of errors of Max's quantizer, 1960, table I; of equal steps they would be 0.1188, 0.03744, 0.01154."""
    kernel = np.random.default_rng(0).normal(size=(4000, 50)).astype(np.float32)
    weights = metal_ops.quantize(kernel, bits, lookup=0, scales="float32")
    error = np.mean((metal_ops.dequantize(weights).numpy() - kernel) ** 2)
    assert error <= least * 1.02


def test_what_has_few_values_stays():
    random = np.random.default_rng(0)
    values = np.array([-3, -1.5, -0.25, 0, 0.125, 2, 2.5, 7], np.float32)
    kernel = random.choice(values, size=(60, 10), p=[0.65, *[0.05] * 7])
    weights = metal_ops.quantize(kernel, 3, lookup=5)
    np.testing.assert_array_equal(metal_ops.dequantize(weights), kernel)
    ones = metal_ops.quantize(np.full((40, 3), 0.25, np.float32), 8, lookup=1)
    np.testing.assert_array_equal(metal_ops.dequantize(ones), np.full((40, 3), 0.25))


def test_tables_are_those_of_their_outputs():
    """The third group is smaller."""
    kernel = np.repeat([[1.0, 1.0, 50.0, 50.0, -7.0]], 8, 0) + np.arange(8)[:, None] % 4
    weights = metal_ops.quantize(kernel.astype(np.float32), 2, lookup=2)
    np.testing.assert_array_equal(
        weights.tables, [[1, 2, 3, 4], [50, 51, 52, 53], [-7, -6, -5, -4]]
    )
    assert weights.n_bytes == 5 * 2 + 3 * 4 * 2


# ---- as what is differentiated, empty, in graphs --------------------------------------------------------------------


@pytest.mark.parametrize("bits", [3, 8])
def test_gradient_of_x(bits):
    x, _, weights = made((3, 37, 6), bits)
    into = np.random.default_rng(2).normal(size=(3, 6)).astype(np.float32)
    source = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch([source, weights.tables])
        y = metal_ops.quantized_matmul(source, weights)
    d_x, d_tables = tape.gradient(y, [source, weights.tables], output_gradients=tf.constant(into))
    np.testing.assert_allclose(d_x, into @ meant(weights).T, rtol=1e-5, atol=1e-5)
    assert d_tables is None
    with tf.device(y.device):
        theory, numeric = tf.test.compute_gradient(
            lambda v: metal_ops.quantized_matmul(v, weights), [source], delta=0.25
        )
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-3)


@pytest.mark.parametrize("size", [(0, 40, 5), (2, 40, 0), (20, 40, 0)], ids=str)
def test_empty(size):
    for lookup in (0, 4):
        x, kernel, weights = made(size, lookup=lookup)
        assert metal_ops.dequantize(weights).shape == kernel.shape
        assert metal_ops.quantized_matmul(x, weights).shape == (size[0], size[2])


def test_no_inputs():
    """Sums of nothing."""
    for rows in (2, 20):
        weights = metal_ops.quantize(np.zeros((0, 3), np.float32), 3, lookup=2)
        y = metal_ops.quantized_matmul(tf.zeros([rows, 0]), weights)
        np.testing.assert_array_equal(y, np.zeros([rows, 3]))


def test_not_finite_as_in_a_product_of_floats():
    """An infinite value of a table, in the last codes and among sixteen."""
    x = np.ones((1, 19), np.float32)
    for at in (3, 18):
        codes = np.zeros((1, 19), np.uint8)
        codes[0, at] = 1
        tables = np.zeros((1, 256), np.float32)
        tables[0, 1] = np.inf
        y = raw_ops.metal_lookup_mat_mul(tf.constant(x), codes, tables, bits=8)
        assert y.numpy() == np.inf


def test_in_functions_and_saved(tmp_path):
    x, _, weights = made((3, 40, 5), 6, 2)

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


# ---- layers and models ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [dict(bits=3, lookup=4), dict(bits=6, lookup=0)], ids=str)
@pytest.mark.parametrize("kind", test_quantized_layers.KINDS)
def test_layers_equal_keras_with_the_rounded_weights(kind, form):
    keras.utils.set_random_seed(1)
    layer, quantized, x = kind()
    layer(x)
    new = quantized.from_layer(layer, **form)
    assert new.name == layer.name and new.scales is None and new.minima is None
    assert [v.name for v in new.non_trainable_variables] == ["codes", "tables"]
    found, expected = new(x), test_quantized_layers.like(layer, new)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    off = np.mean(np.abs(found - layer(x).numpy()))
    assert 0 < off < 0.25 * np.mean(np.abs(expected))


def model():
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Conv2D(6, 3, activation="relu", groups=1, name="conv"),
        keras.layers.Flatten(),
        keras.layers.Dense(40, activation="tanh", name="hidden"),
        keras.layers.Dense(5, name="out"),
    ]
    return keras.Sequential([keras.Input([7, 7, 3]), *layers]), normal(6, 7, 7, 3)


def test_models_save_load_and_are_reported(tmp_path):
    net, x = model()
    spec = {"bits": 3, "lookup": 8, "overrides": {"out": {"bits": 8, "lookup": None}}}
    small = metal_ops.quantize_model(net, spec)
    assert [type(layer) for layer in small.layers[::2]] == [QuantizedConv2D, QuantizedDense]
    assert [small.get_layer(name).format.lookup for name in ("conv", "hidden", "out")] == [
        8,
        8,
        None,
    ]
    right = small.predict(x, verbose=0)
    small.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), right)
    assert loaded.get_layer("hidden").format == small.get_layer("hidden").format
    report = metal_ops.quantization_report(net, small, x)
    assert [row.bits for row in report.rows] == [3, 3, 8]
    assert all(0 < row.alone < 0.3 for row in report.rows)
    hidden = report.rows[1]
    assert hidden.bytes_after == 40 * -(-150 * 3 // 8) + 5 * 8 * 2 + 160
    small.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x), right, atol=1e-5)


def test_old_layers_know_no_tables():
    """A config that was saved before there were any."""
    config = QuantizedDense(3).get_config()
    del config["lookup"]
    assert QuantizedDense.from_config(config).format.lookup is None


@pytest.mark.parametrize("groups", [1, 2])
def test_calibrated_tables_are_better_for_the_data(groups):
    """Inputs that count by as much as 100 times another."""
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input([4, 4, 16]), keras.layers.Conv2D(8, 1, groups=groups)])
    x = normal(200, 4, 4, 16) * np.logspace(-1, 1, 16).astype(np.float32)
    kernel = np.reshape(net.layers[0].kernel, [16 // groups, 8])

    def error(small):
        off = (np.reshape(small.layers[0].kernel, kernel.shape) - kernel).astype(np.float64)
        squares = np.mean(x.astype(np.float64) ** 2, (0, 1, 2)).reshape(groups, -1)
        return np.sum(np.repeat(squares, 8 // groups, 0).T * off**2)

    plain, one = (
        metal_ops.quantize_model(net, {"bits": 3, "lookup": 4}, data) for data in (None, x)
    )
    assert error(one) < 0.75 * error(plain)
    embedding = keras.Sequential([keras.Input([3], dtype="int32"), keras.layers.Embedding(50, 40)])
    rows = [
        metal_ops.quantize_model(embedding, {"bits": 3, "lookup": 4}, data).layers[0]
        for data in (None, np.zeros((4, 3), np.int32))
    ]
    assert isinstance(rows[0], QuantizedEmbedding)
    np.testing.assert_array_equal(rows[0].codes, rows[1].codes)


# ---- what is refused ------------------------------------------------------------------------------------------------

KERNEL = np.ones((40, 3), np.float32)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(bits=5), ValueError, r"\[quantize\] bits: expected 2, 3, 4, 6 or 8 with lookup tables, got 5"),
        (dict(bits=3, lookup=None), ValueError, r"bits: expected 4 or 8, got 3; a lookup table has 2, .*lookup=16"),
        (dict(lookup=-1), ValueError, r"\[quantize\] lookup: expected how many outputs share a table, .* got -1"),
        (dict(lookup=2.5), TypeError, r"\[quantize\] lookup: expected an integer"),
        (dict(block=64), ValueError, r"\[quantize\] block: expected 32, .* lookup=None for scales"),
        (dict(symmetric=True), ValueError, r"\[quantize\] symmetric: expected False"),
        (dict(per_tensor=True), ValueError, r"\[quantize\] per_tensor: expected False"),
        (dict(weights=KERNEL * np.nan), tf.errors.InvalidArgumentError, r"\[quantize\] weights: expected finite"),
        (dict(weights=KERNEL * 1e9), tf.errors.InvalidArgumentError, "scales=tf.float32 has room"),
    ],
)  # fmt: skip
def test_bad_quantize(change, error, words):
    with pytest.raises(error, match=words):
        metal_ops.quantize(**{"weights": KERNEL, "lookup": 2, **change})


def test_graphs_have_no_numbers_to_search():
    with pytest.raises(ValueError, match=r"\[quantize\] weights: expected numbers that are known"):
        tf.function(lambda w: metal_ops.quantize(w, 4, lookup=2).codes)(tf.constant(KERNEL))


BAD_RAW = [
    (dict(bits=5), "bits must be 2, 3, 4, 6 or 8, got 5"),
    (dict(group=-1), "group must be"),
    (dict(codes=np.ones((3, 14), np.uint8)), "a row of 40 codes of 3 bits has 15 bytes, got codes of 14"),
    (dict(tables=np.ones((2, 16), np.float16)), "a table for codes of 3 bits has 8 values, got 16"),
    (dict(tables=np.ones((3, 8), np.float16)), "3 rows of codes, 2 to a table, have 2 tables, got 3"),
    (dict(group=0), "3 rows of codes, all with one table, have 1 tables, got 2"),
]  # fmt: skip


@pytest.mark.parametrize("change, words", BAD_RAW)
def test_bad_raw_calls(change, words):
    weights = metal_ops.quantize(KERNEL, 3, lookup=2)
    given = dict(codes=weights.codes, tables=weights.tables, bits=3, group=2)
    x = tf.ones([2, 40])
    raw_ops.metal_lookup_mat_mul(x=x, **given)
    given |= {
        name: tf.constant(v) if isinstance(v, np.ndarray) else v for name, v in change.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_lookup_mat_mul(x=x, **given)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_lookup_weights(inputs=40, T=tf.float32, **given)
