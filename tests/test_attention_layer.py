"""layers.Attention against Keras' own, with the same weight."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.layers import Attention
from tests.calls import normal

pytestmark = pytest.mark.ops

TOLERANCE = {"float32": 3e-6, "mixed_float16": 4e-3, "mixed_bfloat16": 3e-2}
QUERY, VALUE, KEY = normal(2, 5, 16) / 2, normal(2, 7, 9, seed=1), normal(2, 7, 16, seed=2)
SAME = normal(2, 6, 16) / 2


def pair(inputs, scale=0.7, **arguments):
    """Keras' layer and ours."""
    layers = [kind(**arguments) for kind in (keras.layers.Attention, Attention)]
    for layer in layers:
        layer.build([x.shape for x in inputs])
        if layer.scale is not None:
            layer.scale.assign(scale)
    return layers


def results(layer, inputs, **options):
    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = layer(tensors, **options)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) * normal(*y.shape, seed=9))
    weights = [v.value for v in layer.trainable_variables]
    return [y, *tape.gradient(loss, [*tensors, *weights])]


def assert_same(layers, inputs, tolerance=3e-6, **options):
    for expected, actual in zip(*(results(one, inputs, **options) for one in layers), strict=True):
        assert expected.dtype == actual.dtype and expected.shape == actual.shape
        expected, actual = (np.asarray(tf.cast(x, tf.float32)) for x in (expected, actual))
        scale = max(np.max(np.abs(expected)), 1.0)
        assert np.max(np.abs(expected - actual)) <= 4 * tolerance * scale


@pytest.fixture
def ops(monkeypatch):
    """The names of the raw attention op's calls."""
    seen, op = [], raw_ops.scaled_dot_product_attention
    monkeypatch.setattr(
        raw_ops,
        "scaled_dot_product_attention",
        lambda *args, **kwargs: seen.append(1) or op(*args, **kwargs),
    )
    return seen


MASK = np.array([[1, 1, 0, 1, 0, 1, 1], [0, 1, 1, 1, 1, 0, 0]], bool)
QUERY_MASK = np.array([[1, 0, 1, 1, 1], [1, 1, 1, 0, 0]], bool)


@pytest.mark.parametrize("use_scale", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(use_causal_mask=True),
        dict(mask=[None, MASK]),
        dict(mask=[QUERY_MASK, None]),
        dict(mask=[QUERY_MASK, MASK], training=True),
        dict(mask=[None, MASK | (np.arange(7) == 0)], use_causal_mask=True),
    ],
    ids=lambda options: "-".join(options),
)
def test_equals_keras(options, use_scale, ops):
    inputs = [QUERY, VALUE, KEY]
    assert_same(pair(inputs, use_scale=use_scale), inputs, **options)
    assert len(ops) == 1


@pytest.mark.parametrize("policy", TOLERANCE)
@pytest.mark.parametrize("causal", [False, True])
def test_dtype_policies_on_one_sequence(policy, causal, ops):
    inputs = [SAME, SAME]
    layers = pair(inputs, use_scale=True, dtype=policy)
    assert_same(layers, inputs, TOLERANCE[policy], use_causal_mask=causal)
    assert len(ops) == 1


@pytest.mark.parametrize(
    "inputs, arguments, options",
    [
        ([SAME, SAME], dict(score_mode="concat", use_scale=True), {}),
        ([normal(2, 3, 300) / 9] * 2, {}, {}),
        ([normal(2, 3, 5, 8)] * 2, {}, {}),
    ],
    ids=["concat", "large", "more axes"],
)
def test_what_keras_computes(inputs, arguments, options, ops):
    assert_same(pair(inputs, **arguments), inputs, **options)
    assert not ops


def test_scores_are_those_of_keras(ops):
    theirs, ours = pair([QUERY, VALUE, KEY])
    inputs = [tf.constant(x) for x in (QUERY, VALUE, KEY)]
    for one, other in zip(
        *(layer(inputs, return_attention_scores=True) for layer in (theirs, ours)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert not ops


def test_a_query_that_sees_no_key_gets_0():
    layer = Attention()
    mask = [None, np.array([[False] * 6, [True] * 6])]
    y = layer([tf.constant(SAME)] * 2, mask=mask)
    np.testing.assert_array_equal(y[0], np.zeros((6, 16)))
    assert np.all(np.any(y[1] != 0, -1))
    # The docstring's statement about Keras.
    theirs = keras.layers.Attention()([tf.constant(SAME)] * 2, mask=mask)
    np.testing.assert_allclose(theirs[0], np.tile(SAME[0].mean(0), (6, 1)), rtol=1e-4, atol=1e-6)


def test_dropout_keeps_the_mean_and_changes_from_call_to_call():
    layer, x = Attention(dropout=0.5, seed=3), tf.zeros([1, 4, 8])
    ones = tf.ones([1, 400, 8])
    found = [layer([x, ones, tf.zeros([1, 400, 8])], training=True) for _ in range(2)]
    assert np.any(found[0] != found[1]) and abs(np.mean(found) - 1) < 0.15
    np.testing.assert_allclose(
        layer([x, ones, tf.zeros([1, 400, 8])]), np.ones((1, 4, 8)), rtol=1e-5
    )


def test_in_a_model(tmp_path):
    inputs = keras.Input([None, 16])
    x = Attention(use_scale=True, dropout=0.1, name="attention")(
        [inputs, inputs], use_causal_mask=True
    )
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse")
    assert model.jit_compile is False
    model.fit(SAME, normal(2, 6, 1), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.get_layer("attention"), Attention)
    np.testing.assert_array_equal(loaded.predict(SAME, verbose=0), model.predict(SAME, verbose=0))


def test_bad_calls():
    with pytest.raises(TypeError, match=r"\[Attention\] dtype: .* got float64"):
        Attention(dtype="float64")
    with pytest.raises(ValueError, match="list of inputs"):
        Attention()(tf.constant(SAME))
