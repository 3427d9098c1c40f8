"""Recurrent layers against Keras' own with the same weights, and against its loop over their cells."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from metal_ops import layers, raw_ops
from tests.calls import normal
from tests.oracles import recurrent

pytestmark = pytest.mark.ops

X = normal(4, 6, 3)
# Also where steps are missing at the beginning and in between; every sequence has one.
MASK = np.array(
    [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0]], bool
)


def keras_of(layer):
    """The same layer of Keras': its class, or its loop over the cell."""
    config = layer.get_config()
    if isinstance(layer, keras.layers.LSTM):
        return keras.layers.LSTM.from_config(config)
    if isinstance(layer, keras.layers.GRU):
        return keras.layers.GRU.from_config(config)
    own = ("units", "use_bias", "kernel_initializer", "recurrent_initializer", "bias_initializer")
    own += ("beta", "longest")
    given = {k: v for k, v in config.items() if k not in own}
    cell = type(layer.cell)(layer.units, use_bias=layer.cell.use_bias, dtype=layer.dtype_policy)
    if hasattr(layer.cell, "beta"):
        cell.beta = layer.cell.beta
    return keras.layers.RNN(cell, **given)


def pair(make, **arguments):
    layer = make(7, **arguments)
    other = keras_of(layer)
    for one in (layer, other):
        one.build(X.shape)
    for i, (a, b) in enumerate(zip(layer.weights, other.weights, strict=True)):
        assert a.shape == b.shape
        a.assign(normal(*a.shape, seed=i) / 2)
        b.assign(a)
    return layer, other


def results(layer, x=X, **options):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = tf.nest.flatten(layer(x, **options))
        loss = sum(
            tf.reduce_sum(tf.cast(v, tf.float32) * normal(*v.shape, seed=9 + i))
            for i, v in enumerate(found)
        )
    weights = [v.value for v in layer.trainable_variables]
    return [*found, *tape.gradient(loss, [x, *weights])]


def assert_same(layer, other, tolerance=5e-6, **options):
    for actual, expected in zip(results(layer, **options), results(other, **options), strict=True):
        assert expected.dtype == actual.dtype and expected.shape == actual.shape
        expected, actual = (np.asarray(tf.cast(v, tf.float32)) for v in (expected, actual))
        scale = max(np.max(np.abs(expected)), 1.0)
        assert np.max(np.abs(expected - actual)) <= tolerance * scale


@pytest.fixture
def ops(monkeypatch):
    """A place for each call of the raw op."""
    seen, op = [], raw_ops.recurrent_sequence
    monkeypatch.setattr(
        raw_ops, "recurrent_sequence", lambda *a, **k: seen.append(1) or op(*a, **k)
    )
    return seen


KINDS = {
    "LSTM": layers.LSTM,
    "GRU": layers.GRU,
    "GRU_reset_before": lambda units, **k: layers.GRU(units, reset_after=False, **k),
    "MinimalGatedUnit": layers.MinimalGatedUnit,
    "ForgetGateUnit": lambda units, **k: layers.ForgetGateUnit(units, beta=0.5, **k),
}
ARGUMENTS = {
    "plain": {},
    "all": {"return_sequences": True, "return_state": True},
    "backwards": {"return_sequences": True, "go_backwards": True},
    "without a bias": {"use_bias": False},
    "zeros": {"return_sequences": True, "zero_output_for_mask": True},
}


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_is_that_of_keras(kind, arguments, ops):
    layer, other = pair(KINDS[kind], **ARGUMENTS[arguments])
    assert_same(layer, other)
    assert_same(layer, other, mask=tf.constant(MASK))
    assert len(ops) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_initial_state_before_missing_steps(kind):
    layer, other = pair(KINDS[kind], return_sequences=True, return_state=True)
    states = [tf.constant(normal(4, 7, seed=i)) for i in range(2 if kind == "LSTM" else 1)]
    assert_same(layer, other, initial_state=states, mask=tf.constant(MASK))


def test_dropout_is_that_of_keras():
    layer, other = pair(layers.LSTM, dropout=0.5, seed=3)
    assert_same(layer, other, training=True)
    assert np.any(layer(X, training=True) != layer(X, training=False))


def test_stateful():
    layer, other = pair(layers.GRU, stateful=True)
    for one in (layer, other):
        one.reset_state()
    for _ in range(2):
        np.testing.assert_allclose(layer(X), other(X), atol=2e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_mixed_policies(kind, policy):
    layer, other = pair(KINDS[kind], dtype=policy)
    assert layer(X).dtype == policy.removeprefix("mixed_")
    found, expected = (np.asarray(tf.cast(one(X), tf.float32)) for one in (layer, other))
    np.testing.assert_allclose(found, expected, atol=4e-3 if policy == "mixed_float16" else 3e-2)


def test_other_activations_are_those_of_keras(ops):
    for arguments in ({"activation": "relu"}, {"recurrent_activation": "hard_sigmoid"}):
        layer, other = pair(layers.LSTM, **arguments)
        np.testing.assert_allclose(layer(X), other(X), atol=1e-6)
    assert not ops


def test_after_an_embedding(ops):
    """Its mask, from zeros in the input."""
    words = tf.constant([[3, 1, 2, 0, 0], [4, 0, 0, 0, 0]])
    given = keras.layers.Embedding(6, 4, mask_zero=True)
    layer = layers.LSTM(5)
    model = keras.Sequential([given, layer])
    found = model(words)
    short = layer(given(words)[1:, :1])
    np.testing.assert_allclose(found[1:], short, atol=1e-6)
    assert len(ops) == 2


LENGTHS = [6, 0, 3, 1]


def ragged(x=X):
    return tf.RaggedTensor.from_tensor(tf.constant(x), LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_steps_are_a_mask(kind, ops):
    arguments = {"return_sequences": True, "return_state": True}
    layer, _ = pair(KINDS[kind], **arguments)
    mask = tf.sequence_mask(LENGTHS, 6)
    y, *states = layer(ragged())
    expected, *others = layer(X, mask=mask)
    assert y.row_lengths().numpy().tolist() == LENGTHS
    np.testing.assert_allclose(y.flat_values, expected.numpy()[mask.numpy()], atol=2e-6)
    for a, b in zip(states, others, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    for more in ({}, {"go_backwards": True}, {"dtype": "mixed_float16"}):
        last = pair(KINDS[kind], **more)[0]
        np.testing.assert_allclose(last(ragged()), last(X, mask=mask), atol=2e-6)
    assert len(ops) == 8


def test_a_model_of_ragged_steps_trains_and_is_saved(tmp_path):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            keras.Input([None, 3], ragged=True),
            layers.LSTM(8, return_sequences=True),
            layers.MinimalGatedUnit(8),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.03), "mse", jit_compile=False)
    target = tf.constant([[1.0], [0.0], [-1.0], [0.5]])
    data = tf.data.Dataset.from_tensors((ragged(), target)).repeat(30)
    losses = [model.fit(data, verbose=0).history["loss"][0] for _ in range(2)]
    assert losses[1] < losses[0] / 4
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(ragged()), model(ragged()), atol=1e-6)
    # One that has learnt of ragged steps knows the same of padded ones.
    mask = tf.sequence_mask(LENGTHS, 6)
    y = model.layers[1](model.layers[0](X, mask=mask), mask=mask)
    np.testing.assert_allclose(model.layers[2](y), model(ragged()), atol=1e-5)


def test_ragged_steps_in_their_own_order_alone():
    with pytest.raises(ValueError, match=r"\[GRU\] go_backwards: expected False where a Ragged"):
        layers.GRU(3, go_backwards=True, return_sequences=True)(ragged())
    with pytest.raises(ValueError, match="mask: expected None, as x is a RaggedTensor"):
        layers.GRU(3)(ragged(), mask=tf.constant(MASK))


def test_fit_save_and_load(tmp_path):
    """One model with a layer of each kind."""
    keras.utils.set_random_seed(2)
    kinds = (layers.LSTM, layers.GRU, layers.MinimalGatedUnit)
    stack = [kind(8, return_sequences=True) for kind in kinds]
    model = keras.Sequential(
        [keras.Input((6, 3)), *stack, layers.ForgetGateUnit(8, beta=0.5), keras.layers.Dense(1)]
    )
    y = X[:, -1, :1]
    model.compile(keras.optimizers.Adam(0.03), "mse")
    history = model.fit(X, y, epochs=20, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [type(v) for v in loaded.layers] == [type(v) for v in model.layers]
    np.testing.assert_allclose(loaded(X), model(X), atol=1e-6)


NORMED = {
    "LSTM": ("lstm", layers.LSTM, {}),
    "LSTM_projected": ("lstm", layers.LSTM, {"projection": 3}),
    "GRU": ("gru", layers.GRU, {}),
    "GRU_reset_before": ("gru_reset_before", layers.GRU, {"reset_after": False}),
    "MinimalGatedUnit": ("minimal_gated", layers.MinimalGatedUnit, {}),
    "ForgetGateUnit": ("forget_gate", layers.ForgetGateUnit, {"beta": 0.5}),
}


@pytest.mark.parametrize("kind, norm", [("LSTM_projected", False), *((k, True) for k in NORMED)])
def test_layer_norm_and_projection(kind, norm):
    """Layers that Keras does not have, against the oracle; and the same after the configuration has been read
    again."""
    cell, make, arguments = NORMED[kind]
    layer = make(7, return_sequences=True, return_state=True, layer_norm=norm, **arguments)
    again = make.from_config(layer.get_config())
    for one in (layer, again):
        one.build(X.shape)
        for i, weight in enumerate(one.weights):
            assert weight.path.startswith(one.name)
            weight.assign(normal(*weight.shape, seed=i) / 2)
    given = {"x": X} | {w.name: np.asarray(w) for w in layer.weights} | {"beta": 0.5, "mask": MASK}
    if cell == "gru":
        given["bias"], given["recurrent_bias"] = given["bias"]
    assert ("cell_gamma" in given) == (norm and cell == "lstm")
    assert ("recurrent_gamma" in given) == norm
    y, h, *_ = recurrent.sequence(cell, given)
    y = np.where(np.cumsum(MASK, 1)[..., None] > 0, y, 0)
    for one in (layer, again):
        found = one(X, mask=tf.constant(MASK))
        assert one.compute_output_shape(X.shape)[0] == found[0].shape
        np.testing.assert_allclose(found[0], y, atol=1e-5)
        np.testing.assert_allclose(found[1], h, atol=1e-5)
    assert all(np.any(v) for v in results(layer)[-len(layer.trainable_variables) :])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_normed_layers_are_saved(tmp_path, policy):
    stack = [
        make(5, return_sequences=True, layer_norm=True, dtype=policy, **arguments)
        for _, make, arguments in NORMED.values()
    ]
    model = keras.Sequential([keras.Input((6, 3)), *stack])
    for i, weight in enumerate(model.weights):
        weight.assign(normal(*weight.shape, seed=i) / 2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(X), model(X))


def test_chrono_bias():
    layer = layers.ForgetGateUnit(50, longest=20)
    layer.build(X.shape)
    f, n = np.split(np.asarray(layer.cell.bias), 2)
    assert 0 <= f.min() and 2 < f.max() <= np.log(19) and not n.any()
    layer(X)


def test_bad_layers():
    with pytest.raises(ValueError, match="layer_norm: expected the activations tanh and sigmoid"):
        layers.GRU(3, layer_norm=True, activation="relu")
    with pytest.raises(ValueError, match="layer_norm and projection: expected the activations"):
        layers.LSTM(3, layer_norm=True, projection=2, recurrent_dropout=0.5)
    with pytest.raises(ValueError, match="layer_norm_epsilon: expected 0 or more, got -1"):
        layers.LSTM(3, layer_norm=True, layer_norm_epsilon=-1.0)
    with pytest.raises(ValueError, match="projection: expected an integer above 0, or None, got 0"):
        layers.LSTM(3, projection=0)
    with pytest.raises(TypeError, match="float32"):
        layers.LSTM(3, dtype="float64")
    with pytest.raises(ValueError, match="units: expected an integer above 0"):
        layers.MinimalGatedUnit(0)
    with pytest.raises(ValueError, match="longest: expected more than 2"):
        layers.ForgetGateUnit(3, longest=2)
    with pytest.raises(ValueError, match="beta: expected a finite number"):
        layers.ForgetGateUnit(3, beta=float("nan"))
