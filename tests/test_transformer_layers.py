"""The layers of transformers and of fields that stand for one op each, against Keras' own or the functions."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import layers, raw_ops
from tests.calls import normal

pytestmark = pytest.mark.ops

TOLERANCE = {"float32": 3e-6, "mixed_float16": 4e-3, "mixed_bfloat16": 3e-2}


def random_weights(*kinds_of_layers):
    """The same weights in all of them, of a spread that tells keys apart."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=w.shape) / 3 for w in kinds_of_layers[0].get_weights()]
    for layer in kinds_of_layers:
        layer.set_weights(weights)


def results(layer, inputs, **options):
    """Output, then gradients of inputs and weights, as float32 arrays."""
    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = layer(*tensors, **options)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) * normal(*y.shape, seed=9))
    weights = [v.value for v in layer.trainable_variables]
    return y, [
        np.asarray(tf.cast(x, tf.float32)) for x in [y, *tape.gradient(loss, [*tensors, *weights])]
    ]


def assert_same(theirs, ours, inputs, tolerance=3e-6, **options):
    (left, expected), (right, actual) = (results(one, inputs, **options) for one in (theirs, ours))
    assert left.dtype == right.dtype and left.shape == right.shape
    names = ["outputs", *map(str, range(len(inputs))), *(v.path for v in ours.trainable_variables)]
    for name, a, b in zip(names, expected, actual, strict=True):
        # A key's bias changes no weight: its gradient is the rounding error of sums that cancel.
        scale = max(np.max(np.abs(a)), 16.0 if name.endswith("key/bias") else 1.0)
        assert np.max(np.abs(a - b)) <= 8 * tolerance * scale, name


# ---- grouped attention ----------------------------------------------------------------------------------------------


def of_keras(*arguments):
    """Skips a test of arguments that this release of Keras does not have."""
    there = inspect.signature(keras.layers.GroupQueryAttention.__init__).parameters
    if missing := {*arguments} - {*there}:
        pytest.skip(f"Keras {keras.__version__} does not have {', '.join(sorted(missing))}")


def grouped(query, value, **arguments):
    arguments = dict(head_dim=16, num_query_heads=6, num_key_value_heads=2) | arguments
    pair = [
        kind(**arguments) for kind in (keras.layers.GroupQueryAttention, layers.GroupQueryAttention)
    ]
    for layer in pair:
        layer.build(query, value)
    random_weights(*pair)
    return pair


@pytest.mark.parametrize(
    "arguments",
    [{}, dict(num_key_value_heads=1, use_bias=False), dict(num_key_value_heads=6, head_dim=7), dict(use_gate=True)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_attention_equals_keras(arguments, causal):
    query = value = (2, 20, 24)
    of_keras(*arguments)
    theirs, ours = grouped(query, value, **arguments)
    assert [v.path.split("/")[1:] for v in theirs.weights] == [
        v.path.split("/")[1:] for v in ours.weights
    ]
    assert_same(theirs, ours, [normal(*query), normal(*value, seed=1)], use_causal_mask=causal)


@pytest.mark.parametrize("shape", [(2, 10, 15), (1, 10, 15), (2, 6, 10, 15)], ids=str)
def test_grouped_attention_masks(shape):
    mask = np.random.default_rng(3).random(shape) < 0.5
    mask[..., 0] = True  # each query sees a key; where one does not, Keras takes the mean
    theirs, ours = grouped((2, 10, 8), (2, 15, 8))
    inputs = [normal(2, 10, 8), normal(2, 15, 8, seed=1)]
    assert_same(theirs, ours, inputs, attention_mask=mask)
    assert_same(theirs, ours, inputs, attention_mask=mask, use_causal_mask=True)
    lengths = np.arange(15) < np.array([[4], [15]])
    assert_same(theirs, ours, inputs, value_mask=tf.constant(lengths))


@pytest.mark.parametrize("lengths", [(20, 20), (15, 20)])
def test_grouped_attention_sliding_window(lengths):
    query, value = (2, lengths[0], 8), (2, lengths[1], 8)
    of_keras("sliding_window")
    theirs, ours = grouped(query, value, sliding_window=4)
    for causal in (False, True):
        assert_same(theirs, ours, [normal(*query), normal(*value, seed=1)], use_causal_mask=causal)


@pytest.mark.parametrize("policy", TOLERANCE)
def test_grouped_attention_dtype_policies(policy):
    x = normal(2, 20, 24) / 4
    theirs, ours = grouped(x.shape, x.shape, dtype=policy)
    assert_same(theirs, ours, [x, x], TOLERANCE[policy], use_causal_mask=True)


def test_grouped_attention_dropout_scores_and_unseen_queries():
    x = normal(2, 10, 8)
    theirs, ours = grouped(x.shape, x.shape, dropout=0.5, seed=1, use_bias=False)
    y = ours(x, x, training=True)
    assert np.any(y != ours(x, x)) and np.any(y != ours(x, x, training=True))
    for expected, actual in zip(
        *(layer(x, x, return_attention_scores=True) for layer in (theirs, ours)), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    mask = np.ones((2, 10, 10), bool)
    mask[:, 3] = False
    np.testing.assert_array_equal(
        ours(x, x, attention_mask=tf.constant(mask))[:, 3], np.zeros((2, 8))
    )


def test_grouped_attention_does_not_repeat_keys(monkeypatch):
    called = []
    op = raw_ops.scaled_dot_product_attention

    def watched(q, k, v, *args, **kwargs):
        called.append((q.shape[1], k.shape[1], kwargs["window_right"], kwargs["use_mask"]))
        return op(q, k, v, *args, **kwargs)

    monkeypatch.setattr(raw_ops, "scaled_dot_product_attention", watched)
    x = normal(1, 6, 8)
    layers.GroupQueryAttention(4, 6, 2)(x, x, use_causal_mask=True)
    assert called == [(6, 2, 0, False)]


# ---- RMS norm -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 1, [-1], [1, 2], [-1, 0]], ids=str)
@pytest.mark.parametrize("policy", TOLERANCE)
def test_rms_normalization_equals_keras(axis, policy):
    theirs, ours = (
        kind(axis=axis, epsilon=1e-3, dtype=policy)
        for kind in (keras.layers.RMSNormalization, layers.RMSNormalization)
    )
    x = normal(3, 5, 8)
    if isinstance(axis, list) and len(axis) > 1:  # Keras gives the axes in its own order
        theirs.axis = sorted(one % 3 for one in axis)
    for layer in (theirs, ours):
        layer.build(x.shape)
    assert [(v.path.split("/")[1:], v.shape) for v in theirs.weights] == [
        (v.path.split("/")[1:], v.shape) for v in ours.weights
    ]
    random_weights(theirs, ours)
    wide = x.astype(np.float64)
    axes = tuple(sorted(one % 3 for one in (axis if isinstance(axis, list) else [axis])))
    scale = ours.scale.numpy().reshape([x.shape[i] if i in axes else 1 for i in range(3)])
    expected = wide / np.sqrt(np.mean(wide**2, axis=axes, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(
        tf.cast(ours(x), tf.float32), expected, rtol=0, atol=8 * TOLERANCE[policy]
    )
    if axes == (
        2,
    ):  # along any other axis, Keras 3.15 multiplies by the scale as if it were the last
        assert_same(theirs, ours, [x], TOLERANCE[policy])


def test_rms_normalization_of_unknown_sizes_keeps_masks():
    layer = layers.RMSNormalization(axis=2)
    x = normal(2, 5, 3, 4)
    expected = layer(x)
    function = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 3, None])])
    np.testing.assert_array_equal(function(x), expected)
    tokens = keras.layers.Embedding(10, 8, mask_zero=True)(np.array([[3, 0]]))
    np.testing.assert_array_equal(layers.RMSNormalization()(tokens)._keras_mask, [[True, False]])


# ---- rotary embedding -----------------------------------------------------------------------------------------------


def turned(x, positions, base=10000.0, factor=1.0):
    """[length, features] in float64, halves as pairs."""
    half = x.shape[-1] // 2
    angles = positions[..., None] / factor * base ** (-2 * np.arange(half) / x.shape[-1])
    a, b = x[..., :half], x[..., half:]
    sine, cosine = np.sin(angles), np.cos(angles)
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


@pytest.mark.parametrize(
    "shape, axis",
    [((2, 7, 6), 1), ((2, 7, 3, 6), 1), ((2, 3, 7, 6), 2)],
    ids=str,
)
@pytest.mark.parametrize(
    "options", [{}, dict(max_wavelength=500000), dict(scaling_factor=4.0)], ids=str
)
def test_rotary_embedding(shape, axis, options):
    layer = layers.RotaryEmbedding(sequence_axis=axis, **options)
    x = normal(*shape)
    base, factor = options.get("max_wavelength", 10000), options.get("scaling_factor", 1.0)
    rows = np.moveaxis(x, axis, -2).astype(np.float64)  # [..., length, features]

    def expected(positions):
        positions = np.asarray(positions)
        if positions.ndim == 2 and rows.ndim == 4:
            positions = positions[:, None]
        return np.moveaxis(turned(rows, positions, base, factor), -2, axis)

    np.testing.assert_allclose(layer(x), expected(np.arange(7)), atol=1e-5)
    np.testing.assert_allclose(layer(x, start_index=5), expected(5 + np.arange(7)), atol=1e-5)
    each = np.array([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
    np.testing.assert_allclose(layer(x, positions=each), expected(each), atol=1e-5)
    np.testing.assert_allclose(layer(x, positions=each[0]), expected(each[0]), atol=1e-5)
    unknown = tf.function(
        lambda x: layer(x, start_index=5),
        input_signature=[tf.TensorSpec([None] * (len(shape) - 1) + [6])],
    )
    np.testing.assert_allclose(unknown(x), expected(5 + np.arange(7)), atol=1e-5)


def test_rotary_embedding_interleaved_and_gradient():
    layer = layers.RotaryEmbedding(sequence_axis=2, interleaved=True, dtype="mixed_float16")
    x = tf.constant(normal(2, 3, 7, 6), tf.float16)
    np.testing.assert_array_equal(layer(x), metal_ops.rope(x, interleaved=True))
    x = tf.constant(normal(2, 7, 6))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.RotaryEmbedding()(x)
    # Turned back by the same angles.
    back = turned(np.ones([7, 6]), -np.arange(7))
    np.testing.assert_allclose(tape.gradient(y, x), np.broadcast_to(back, x.shape), atol=1e-5)


# ---- SwiGLU ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("use_bias", [False, True])
def test_swiglu(policy, use_bias):
    layer = layers.SwiGLU(20, 5, use_bias, dtype=policy, bias_initializer="normal")
    dense = [keras.layers.Dense(units, use_bias=use_bias, dtype=policy) for units in (20, 20, 5)]

    class Stock(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype=policy)
            self.gate, self.up, self.down = dense

        def call(self, x):
            return self.down(tf.nn.silu(self.gate(x)) * self.up(x))

    x, stock = normal(2, 3, 8), Stock()
    for one in (layer, stock):
        one(x)
    assert not np.array_equal(layer.gate.kernel, layer.up.kernel)
    random_weights(layer, stock)
    assert_same(stock, layer, [x], TOLERANCE[policy])


def test_swiglu_takes_adapters_and_codes():
    model = keras.Sequential([keras.Input([None, 32]), layers.SwiGLU(64, name="feed_forward")])
    x = normal(2, 3, 32)
    quantized = metal_ops.quantize_model(model, metal_ops.QuantizationSpec(bits=8))
    kinds = [type(layer).__name__ for layer in quantized._flatten_layers()]
    assert kinds.count("QuantizedDense") == 3
    np.testing.assert_allclose(quantized(x), model(x), atol=0.05)
    metal_ops.adapters.add(model, rank=2, layers="feed_forward/gate")
    assert len(model.trainable_variables) == 2


# ---- spherical harmonics and frequencies ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_encodings_equal_the_functions(policy):
    x = normal(2, 5, 3)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    dtype = keras.DTypePolicy(policy).compute_dtype
    y = layers.SphericalHarmonics(3, dtype=policy)(x)
    np.testing.assert_array_equal(y, metal_ops.sh_encode(x, 3, dtype=dtype))
    assert layers.SphericalHarmonics(3, dtype=policy)(tf.cast(x, tf.float16)).dtype == dtype
    options = dict(include_input=False, times_pi=False)
    y = layers.FrequencyEncoding(4, **options, dtype=policy)(x)
    np.testing.assert_array_equal(y, metal_ops.frequency_encode(x, 4, **options, dtype=dtype))
    with pytest.raises(
        TypeError, match=r"\[FrequencyEncoding\] points: expected float32, got float16"
    ):
        layers.FrequencyEncoding()(tf.cast(x, tf.float16))


# ---- all of them ----------------------------------------------------------------------------------------------------


def model_of_all():
    x = keras.Input([6, 3])
    ids = keras.Input([6], dtype="int32")
    y = keras.layers.Concatenate()(
        [layers.SphericalHarmonics(2)(x), layers.FrequencyEncoding(2, times_pi=False)(x)]
    )
    y = keras.layers.Dense(24)(y) + keras.layers.Embedding(9, 24, mask_zero=True)(ids)
    y = layers.RMSNormalization(epsilon=1e-5)(y)
    turned = layers.RotaryEmbedding(max_wavelength=100)(y)
    y = y + layers.GroupQueryAttention(8, 4, 2, seed=1)(turned, y, use_causal_mask=True)
    y = y + layers.SwiGLU(16)(y)
    return keras.Model([x, ids], keras.layers.Dense(1)(y))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_fit_and_keras_file(tmp_path, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = model_of_all()
    finally:
        keras.config.set_dtype_policy("float32")
    x = [normal(32, 6, 3), np.random.default_rng(0).integers(0, 9, [32, 6])]
    model.compile(metal_ops.optimizers.Adam(1e-2), "mse")
    assert model.jit_compile is False
    losses = model.fit(x, x[0][..., :1], batch_size=16, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0], losses
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # without custom_objects
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    assert [type(a) for a in loaded.layers] == [type(a) for a in model.layers]


@pytest.mark.parametrize(
    "layer",
    [
        layers.SphericalHarmonics(3, name="a"),
        layers.FrequencyEncoding(3, False, False, dtype="mixed_float16"),
        layers.RMSNormalization([1, 2], 1e-5),
        layers.RotaryEmbedding(500000.0, 2.0, 2, 3, True),
        layers.SwiGLU(8, 3, True, "he_normal"),
        layers.GroupQueryAttention(8, 4, 2, dropout=0.25, seed=3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_round_trip(layer):
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config() and again.dtype_policy == layer.dtype_policy


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: layers.SphericalHarmonics(9), ValueError, r"\[SphericalHarmonics\] degree: expected 1 to 8, got 9"),
        (lambda: layers.SphericalHarmonics(2.0), TypeError, r"degree: expected an integer"),
        (lambda: layers.FrequencyEncoding(33), ValueError, r"n_frequencies: expected 0 to 32, got 33"),
        (lambda: layers.FrequencyEncoding(3, 1), TypeError, r"include_input: expected True or False"),
        (lambda: layers.RMSNormalization(axis=2)(tf.ones([2, 3])), ValueError, r"\[RMSNormalization\] axis: .* got 2"),
        (lambda: layers.RMSNormalization().build((2, None)), ValueError, r"inputs: expected known sizes"),
        (lambda: layers.RotaryEmbedding()(tf.ones([2, 3])), ValueError, r"\[RotaryEmbedding\] inputs: expected"),
        (lambda: layers.RotaryEmbedding()(tf.ones([2, 3, 5])), ValueError, r"an even number of features.*got 5"),
        (lambda: layers.RotaryEmbedding(sequence_axis=2)(tf.ones([2, 3, 4])), ValueError, r"sequence_axis: expected 1"),
        (lambda: layers.RotaryEmbedding(feature_axis=1)(tf.ones([2, 3, 4])), ValueError, r"feature_axis: expected -1"),
        (lambda: layers.RotaryEmbedding(0), ValueError, r"max_wavelength: expected a number above 0, got 0"),
        (lambda: layers.RotaryEmbedding()(tf.ones([2, 3, 4]), positions=tf.ones([3])), TypeError, "positions"),
        (lambda: layers.SwiGLU(0), ValueError, r"\[SwiGLU\] hidden_units: expected 1 or more, got 0"),
        (lambda: layers.SwiGLU(4).build((2, None)), ValueError, r"\[SwiGLU\] inputs: expected a last dimension known"),
        (lambda: layers.GroupQueryAttention(300, 2, 1), ValueError, r"head_dim: expected at most 256, got 300"),
    ],
)  # fmt: skip
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "kind, given",
    [
        (layers.SphericalHarmonics, {}),
        (layers.FrequencyEncoding, {}),
        (layers.RMSNormalization, {}),
        (layers.RotaryEmbedding, {}),
        (layers.SwiGLU, dict(hidden_units=4)),
        (layers.GroupQueryAttention, dict(head_dim=8, num_query_heads=2, num_key_value_heads=1)),
    ],
)
def test_float64_is_refused(kind, given):
    with pytest.raises(TypeError, match=rf"\[{kind.__name__}\] dtype: .* got float64"):
        kind(**given, dtype="float64")
