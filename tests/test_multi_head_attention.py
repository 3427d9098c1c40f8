"""layers.MultiHeadAttention against Keras' own, with the same weights."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.layers import MultiHeadAttention
from tests.calls import normal

pytestmark = pytest.mark.ops

TOLERANCE = {"float32": 3e-6, "mixed_float16": 4e-3, "mixed_bfloat16": 3e-2}


def pair(query, value, **arguments):
    """Keras' layer and ours, with weights of a spread that tells keys apart."""
    arguments = dict(num_heads=4, key_dim=16, bias_initializer="normal") | arguments
    layers = [kind(**arguments) for kind in (keras.layers.MultiHeadAttention, MultiHeadAttention)]
    for layer in layers:
        layer.build(query, value)
    random = np.random.default_rng(0)
    layers[0].set_weights([random.normal(size=w.shape) / 3 for w in layers[0].get_weights()])
    layers[1].set_weights(layers[0].get_weights())
    return layers


def assert_same(layers, inputs, tolerance=3e-6, **options):
    """Outputs and gradients of inputs and weights."""
    results = []
    for layer in layers:
        tensors = [tf.constant(x) for x in inputs]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = layer(*tensors, **options)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) * normal(*y.shape, seed=9))
        weights = [v.value for v in layer.trainable_variables]
        results.append([y, *tape.gradient(loss, [*tensors, *weights])])
    names = [v.path for v in layers[0].trainable_variables]
    for name, expected, actual in zip(
        ["outputs", *map(str, range(len(inputs))), *names], *results, strict=True
    ):
        assert expected.dtype == actual.dtype
        expected, actual = (np.asarray(tf.cast(x, tf.float32)) for x in (expected, actual))
        # A key's bias changes no weight: its gradient is the rounding error of thousands of cancelling slopes.
        scale = max(np.max(np.abs(expected)), 16.0 if name.endswith("key/bias") else 1.0)
        error = np.max(np.abs(expected - actual)) / scale
        assert error <= 4 * tolerance, f"{name}: off by {error:.3g}"
    return results


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        dict(value_dim=24, use_bias=False),
        dict(num_heads=1, key_dim=7, output_shape=5),
        dict(num_heads=3, key_dim=33, value_dim=17, kernel_initializer="normal"),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_equals_keras(arguments, causal):
    query, value = (3, 50, 32), (3, 50, 20)
    layers = pair(query, value, **arguments)
    assert [(v.path.split("/")[1:], v.shape) for v in layers[0].weights] == [
        (v.path.split("/")[1:], v.shape) for v in layers[1].weights
    ]
    assert_same(layers, [normal(*query), normal(*value, seed=1)], use_causal_mask=causal)


@pytest.mark.parametrize("lengths", [(40, 60), (60, 40)])
def test_causal_counts_from_the_first_key_as_keras_does(lengths):
    query, value = (2, lengths[0], 8), (2, lengths[1], 8)
    layers = pair(query, value)
    inputs = [normal(*query), normal(*value, seed=1), normal(*value, seed=2)]
    assert_same(layers, inputs, use_causal_mask=True)


@pytest.mark.parametrize("lengths", [(50, 50), (40, 60)])
def test_sliding_window(lengths):
    query, value = (2, lengths[0], 8), (2, lengths[1], 8)
    try:
        layers = pair(query, value, sliding_window=7)
    except ValueError as error:
        pytest.skip(f"Keras {keras.__version__} has none: {error}")
    inputs = [normal(*query), normal(*value, seed=1)]
    # Every query sees a key: where one does not, Keras takes the mean.
    for causal in (False, True):
        assert_same(layers, inputs, use_causal_mask=causal)


@pytest.mark.parametrize("shape", [(2, 30, 40), (1, 30, 40), (2, 4, 30, 40)], ids=str)
def test_attention_masks(shape):
    query, value = (2, 30, 8), (2, 40, 8)
    mask = np.random.default_rng(3).random(shape) < 0.5
    mask[..., 0] = True  # each sees something
    assert_same(pair(query, value), [normal(*query), normal(*value, seed=1)], attention_mask=mask)


def test_masks_of_embeddings():
    tokens = np.array([[3, 5, 0, 0, 0], [1, 2, 3, 4, 0], [9, 9, 9, 9, 9]])
    embedding = keras.layers.Embedding(10, 8, mask_zero=True)
    layers = pair((3, 5, 8), (3, 5, 8))
    results = []
    for layer in layers:
        x = embedding(tokens)  # anew: Keras' layer takes its inputs' masks away
        results.append(layer(x, x, use_causal_mask=True))
    seen = tokens != 0
    for y in results:
        np.testing.assert_array_equal(y._keras_mask, seen)
    expected, actual = (y.numpy() for y in results)
    np.testing.assert_allclose(actual[seen], expected[seen], atol=1e-5)
    # A query that sees nothing gets the last layer's output for 0.
    bias = layers[1].output_dense.bias.numpy()
    np.testing.assert_allclose(actual[~seen], np.broadcast_to(bias, (4, 8)), atol=1e-6)


@pytest.mark.parametrize("policy", TOLERANCE)
def test_dtype_policies(policy):
    x = normal(2, 30, 32) / 4
    layers = pair(x.shape, x.shape, dtype=policy)
    results = assert_same(layers, [x, x], TOLERANCE[policy], use_causal_mask=True)
    assert results[1][0].dtype == layers[0].compute_dtype


def test_unknown_lengths():
    x = normal(2, 30, 8)
    theirs, ours = pair(x.shape, x.shape)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def function(x):
        return ours(x, x, use_causal_mask=True)

    expected = theirs(x, x, use_causal_mask=True)
    np.testing.assert_allclose(function(x), expected, atol=1e-5)


def test_scores_are_asked_of_keras():
    x = normal(2, 10, 8)
    theirs, ours = pair(x.shape, x.shape)
    for expected, actual in zip(
        *(layer(x, x, return_attention_scores=True) for layer in (theirs, ours)), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_dropout_in_training_alone():
    x = normal(2, 40, 8)
    theirs, ours = pair(x.shape, x.shape, dropout=0.4, seed=3)
    np.testing.assert_allclose(ours(x, x), theirs(x, x), atol=1e-5)
    first, second = (ours(x, x, training=True).numpy() for _ in range(2))
    assert not np.allclose(first, second, atol=1e-3)
    _, again = pair(x.shape, x.shape, dropout=0.4, seed=3)
    np.testing.assert_array_equal(again(x, x, training=True), first)
    # Dropout leaves the mean as it is.
    mean = np.mean([ours(x, x, training=True) for _ in range(300)], axis=0)
    assert np.abs(mean - ours(x, x)).max() < 0.3


def test_model_saves_loads_and_trains(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 12, 8)).astype(np.float32)
    y = x[np.arange(256), np.argmax(x[..., 0], axis=1)]  # the row that begins with the largest
    inputs = keras.Input([12, 8])
    outputs = MultiHeadAttention(2, 16, name="attention")(inputs, inputs)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(outputs))
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    assert model.jit_compile is False
    losses = model.fit(x, y, batch_size=32, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0], losses
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # without custom_objects
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    # Weights that ours has saved load into Keras' own.
    theirs = keras.layers.MultiHeadAttention(2, 16, name="attention")(inputs, inputs)
    stock = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(theirs))
    model.save_weights(tmp_path / "model.weights.h5")
    stock.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(stock.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(num_heads=2, key_dim=257), ValueError, r"\[MultiHeadAttention\] key_dim: expected at most 256, got 257"),
        (dict(num_heads=2, key_dim=8, value_dim=300), ValueError, r"value_dim: expected at most 256, got 300"),
        (dict(num_heads=2, key_dim=8, dtype="float64"), TypeError, r"\[MultiHeadAttention\] dtype: .* got float64"),
    ],
)  # fmt: skip
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        MultiHeadAttention(**arguments)


def test_it_is_the_op_that_computes(monkeypatch):
    called = []
    op = raw_ops.scaled_dot_product_attention

    def watched(*args, **kwargs):
        called.append(kwargs["window_right"])
        return op(*args, **kwargs)

    monkeypatch.setattr(raw_ops, "scaled_dot_product_attention", watched)
    x = normal(1, 6, 8)
    layer = metal_ops.layers.MultiHeadAttention(2, 4)
    layer(x, x, use_causal_mask=True)
    assert called == [0]  # and no mask of queries times keys


def test_a_query_that_sees_no_key_gets_0():
    """And so does Keras' with scores or a dropout, but the mean by its default path: the docstring says so."""
    x, mask = tf.constant(normal(1, 4, 8)), np.ones((1, 4, 4), bool)
    mask[0, 1] = False
    for kind, rate, scores in itertools.product(
        (MultiHeadAttention, keras.layers.MultiHeadAttention), (0.0, 0.5), (False, True)
    ):
        layer = kind(2, 4, dropout=rate, use_bias=False)
        y = layer(x, x, attention_mask=tf.constant(mask), return_attention_scores=scores)
        query = (y[0] if scores else y)[0, 1]
        mean = kind is not MultiHeadAttention and not rate and not scores
        assert np.any(query != 0) == mean
        if mean:
            values = np.einsum("kf,fhd->khd", x[0], layer._value_dense.kernel.numpy()).mean(0)
            want = np.einsum("hd,hdf->f", values, layer._output_dense.kernel.numpy())
            np.testing.assert_allclose(query, want, rtol=1e-4, atol=1e-6)
