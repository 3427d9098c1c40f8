"""Keras' layers with quantized weights against Keras' own with the weights that the codes stand for."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from tests.calls import normal

pytestmark = pytest.mark.ops

FORMATS = [
    dict(),
    dict(bits=8),
    dict(symmetric=True),
    dict(bits=8, block=None, per_tensor=True),
    dict(block=None, symmetric=True, per_tensor=True, scales="float32"),
]
ROUNDING = {"float32": 2.0**-24, "mixed_float16": 2.0**-11, "mixed_bfloat16": 2.0**-8}


@pytest.fixture(autouse=True)
def same_weights():
    keras.utils.set_random_seed(1)


def dense(dtype="float32"):
    layer = keras.layers.Dense(
        11, activation="tanh", bias_initializer="normal", name="logits", dtype=dtype
    )
    return layer, QuantizedDense, normal(3, 5, 70)


def conv(dtype="float32", **arguments):
    arguments = dict(strides=2, padding="same") | arguments
    layer = keras.layers.Conv2D(
        6, (3, 2), activation="relu", bias_initializer="normal", dtype=dtype, **arguments
    )
    return layer, QuantizedConv2D, normal(2, 9, 8, 10)


def embedding(dtype="float32"):
    layer = keras.layers.Embedding(50, 37, mask_zero=True, dtype=dtype)
    return layer, QuantizedEmbedding, np.random.default_rng(0).integers(0, 50, (4, 6))


KINDS = [dense, conv, embedding]


def like(layer, new):
    """Keras' layer again, with the values of the codes of `new`."""
    twin = type(layer).from_config(layer.get_config())
    twin.build_from_config(layer.get_build_config())
    twin.set_weights([w.numpy() for w in layer.weights])
    matrix = metal_ops.dequantize(new.quantized)
    first = twin.weights[0]
    if isinstance(new, QuantizedEmbedding):
        matrix = tf.transpose(matrix)
    first.assign(tf.reshape(matrix, first.shape))
    return twin


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_keras_with_the_rounded_weights(kind, form):
    layer, quantized, x = kind()
    layer(x)
    new = quantized.from_layer(layer, **form)
    assert new.name == layer.name and new.format.bits == form.get("bits", 4)
    expected = like(layer, new)(x)
    found = new(x)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    # Rounded results are near, and are not the same.
    off = np.mean(np.abs(found - layer(x).numpy()))
    assert 0 < off < 0.2 * np.mean(np.abs(expected))


@pytest.mark.parametrize("policy", [*ROUNDING, "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_dtype_policies(kind, policy):
    layer, quantized, x = kind(policy)
    layer(x)
    new = quantized.from_layer(layer)
    assert new.codes.dtype == "uint8" and new.scales.dtype == new.minima.dtype == "float16"
    expected, found = like(layer, new)(x), new(x)
    assert found.dtype == new.compute_dtype == expected.dtype
    expected, found = (tf.cast(y, tf.float32).numpy() for y in (expected, found))
    step = ROUNDING.get(policy, 2.0**-8)
    assert np.max(np.abs(found - expected)) <= (16 * step + 1e-5) * np.max(np.abs(expected))


@pytest.mark.parametrize("graph", ["none", "of all", "of the layer"])
@pytest.mark.parametrize("kind", [dense, conv])
def test_gradients_of_inputs_and_bias_alone(kind, graph):
    layer, quantized, x = kind()
    layer(x)
    new = quantized.from_layer(layer)
    assert [v.name for v in new.trainable_variables] == ["bias"]
    assert [v.name for v in new.non_trainable_variables] == ["codes", "scales", "minima"]
    twin = like(layer, new)

    def gradients(layer, x):
        called = tf.function(layer) if graph == "of the layer" else layer
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = called(x)
            loss = tf.reduce_sum(y * normal(*y.shape, seed=3))
        return tape.gradient(loss, [x, layer.bias.value])

    for one, other in zip(
        *(
            (tf.function(gradients) if graph == "of all" else gradients)(one, tf.constant(x))
            for one in (twin, new)
        ),
        strict=True,
    ):
        assert np.any(one)
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_packed_weights_are_small():
    layer = keras.layers.Dense(100)
    layer.build((None, 4096))
    new = QuantizedDense.from_layer(layer)
    size = sum(np.prod(v.shape) * tf.as_dtype(v.dtype).size for v in new.non_trainable_variables)
    assert size == new.quantized.n_bytes == 100 * (2048 + 4 * 128)


def test_embedding_unpacks_what_is_asked_for(monkeypatch):
    layer, _, x = embedding()
    layer(x)
    new = QuantizedEmbedding.from_layer(layer)
    seen = []
    op = metal_ops.raw_ops.metal_dequantize
    monkeypatch.setattr(
        metal_ops.raw_ops, "metal_dequantize",
        lambda codes, *rest, **more: seen.append(codes.shape[0]) or op(codes, *rest, **more),
    )  # fmt: skip
    y = new(x)
    assert seen == [x.size]
    np.testing.assert_array_equal(y, tf.gather(new.embeddings, x))
    np.testing.assert_array_equal(y._keras_mask, x != 0)
    assert new(tf.zeros([0, 3], tf.int32)).shape == (0, 3, 37)


@pytest.mark.parametrize("arguments", [dict(groups=2), dict(strides=1, dilation_rate=2)], ids=str)
def test_convolutions_are_those_of_keras(arguments):
    layer, _, x = conv(**arguments)
    layer.build(x.shape)
    new = QuantizedConv2D.from_layer(layer)
    np.testing.assert_allclose(new(x), like(layer, new)(x), atol=1e-5)


def test_channels_first():
    """TensorFlow computes it with oneDNN alone on the CPU."""
    layer, _, _ = conv(data_format="channels_first")
    layer.build((2, 10, 9, 8))
    new = QuantizedConv2D.from_layer(layer)
    np.testing.assert_array_equal(new.kernel, like(layer, new).kernel)
    assert new(keras.KerasTensor((2, 10, 9, 8))).shape == (2, 6, 5, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_layers_round_their_initializer(kind):
    layer, quantized, x = kind()
    kept = {
        k: v for k, v in layer.get_config().items() if not k.endswith(("regularizer", "constraint"))
    }
    kept["embeddings_initializer" if kind is embedding else "kernel_initializer"] = "ones"
    new = quantized.from_config(kept | dict(bits=8))
    symbolic = new(keras.KerasTensor(x.shape, "int32" if kind is embedding else "float32"))
    assert symbolic.shape == new(x).shape == layer(x).shape
    np.testing.assert_allclose(metal_ops.dequantize(new.quantized), np.ones(new.quantized.shape))


def model():
    layers = [
        QuantizedConv2D(4, 3, symmetric=True),
        keras.layers.Flatten(),
        QuantizedDense(5, bits=8),
    ]
    return keras.Sequential([keras.Input([8, 8, 3]), *layers])


def test_model_saves_loads_and_trains_what_is_left(tmp_path):
    net, x = model(), normal(32, 8, 8, 3)
    net.compile(keras.optimizers.Adam(1e-2), "mse")
    assert net.jit_compile is False
    packed = [w.numpy() for w in net.non_trainable_variables]
    losses = net.fit(x, x[:, 0, :5, 0] + 2, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for before, after in zip(packed, net.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(after, before)
    right = net.predict(x, verbose=0)
    net.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # without custom_objects
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), right)
    assert loaded.layers[-1].format == net.layers[-1].format
    net.save_weights(tmp_path / "model.weights.h5")
    other = model()
    assert not np.array_equal(other.predict(x, verbose=0), right)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.predict(x, verbose=0), right)
    net.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x), right, atol=1e-5)


def test_embedding_in_a_model(tmp_path):
    layers = [
        QuantizedEmbedding(50, 16, mask_zero=True),
        keras.layers.LSTM(4),
        keras.layers.Dense(2),
    ]
    net = keras.Sequential([keras.Input([6], dtype="int32"), *layers])
    x = np.random.default_rng(0).integers(0, 50, (20, 6))
    net.compile("adam", "mse")
    net.fit(x, normal(20, 2), verbose=0)
    net.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), net.predict(x, verbose=0))


def built(layer, shape=(None, 40)):
    layer.build(shape)
    return layer


class Doubled(keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: QuantizedDense(3, bits=5), ValueError, r"\[QuantizedDense\] bits: expected 4 or 8, got 5"),
        (lambda: QuantizedEmbedding(3, 4, block=33), ValueError, r"\[QuantizedEmbedding\] block: expected a multiple"),
        (lambda: QuantizedDense(3, dtype="float64"), TypeError, r"\[QuantizedDense\] dtype: .* got float64"),
        (lambda: QuantizedDense(3, kernel_regularizer="l2"), ValueError, r"kernel_regularizer: expected None"),
        (lambda: QuantizedDense(3, lora_rank=2), ValueError, r"lora_rank: expected None"),
        (lambda: QuantizedDense(3).build((2, None)), ValueError, r"inputs: expected a last dimension"),
        (lambda: QuantizedConv2D(3, 3).build((2, 5, 5, None)), ValueError, r"expected a multiple of 1"),
        (lambda: QuantizedDense.from_layer(keras.layers.Dense(3)), ValueError, r"layer: .* which is not built"),
        (lambda: QuantizedDense.from_layer(built(Doubled(3))), TypeError, r"Keras' own call, got Doubled"),
        (lambda: QuantizedDense.from_layer(built(QuantizedDense(3))), TypeError, r"got QuantizedDense"),
        (lambda: QuantizedConv2D.from_layer(built(keras.layers.Dense(3))), TypeError, r"Conv2D .* got Dense"),
        (lambda: QuantizedDense.from_layer(built(keras.layers.Dense(3)), bits=2), ValueError, r"from_layer\] bits"),
        (lambda: built(QuantizedDense(3)).enable_lora(2), ValueError, r"enable_lora"),
        (lambda: built(QuantizedDense(3)).quantize("int8"), ValueError, r"it is quantized to 4 bits"),
    ],
)  # fmt: skip
def test_bad_arguments(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_keras_quantized_layers_are_refused():
    layer = built(keras.layers.Dense(3))
    layer.quantize("int8")
    with pytest.raises(ValueError, match="which Keras has quantized to int8"):
        QuantizedDense.from_layer(layer)
