"""The Keras losses: reductions, sample weights, masks, configuration, training."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.oracles import losses as oracle

pytestmark = pytest.mark.ops

REDUCTIONS = ["sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none", None]


def reduce(values, reduction, weight):
    """Keras' definitions, in NumPy."""
    weight = np.ones_like(values) if weight is None else np.broadcast_to(weight, values.shape)
    weighted = values * weight
    if reduction in ("none", None):
        return weighted
    if reduction == "sum":
        return weighted.sum()
    if reduction == "mean_with_sample_weight":
        return weighted.sum() / weight.sum()
    return weighted.mean()


def cases():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 12, 5)).astype(np.float32)
    labels = random.integers(0, 5, 12)
    hot = np.eye(5, dtype=np.float32)[labels]
    edges = np.sort(random.uniform(size=(12, 6)), axis=1).astype(np.float32)
    w = random.uniform(size=(12, 5)).astype(np.float32)
    middle = (edges[:, 1:] + edges[:, :-1]) / 2
    pairs = np.abs(middle[:, :, None] - middle[:, None, :])
    distortion = np.einsum("ri,rij,rj->r", w, pairs, w) + np.sum(w**2 * np.diff(edges), 1) / 3
    losses = metal_ops.losses
    robust = oracle.robust(x - y, 0.5, 0.7).mean(axis=1).astype(np.float64)
    sigmoid = oracle.sigmoid_focal(x, hot, 0.25).mean(axis=1).astype(np.float64)
    softmax = oracle.softmax_focal(x, hot, 0.25).astype(np.float64)
    entropy = oracle.softmax_cross_entropy(x, hot).astype(np.float64)
    return {
        "robust": (lambda r: losses.RobustLoss(0.5, 0.7, reduction=r), y, x, robust),
        "sigmoid": (lambda r: losses.FocalLoss(reduction=r), hot, x, sigmoid),
        "softmax": (lambda r: losses.FocalLoss("softmax", reduction=r), hot, x, softmax),
        "sparse": (lambda r: losses.FocalLoss("softmax", reduction=r), labels, x, softmax),
        "column": (lambda r: losses.FocalLoss("softmax", reduction=r), labels[:, None], x, softmax),
        "entropy": (lambda r: losses.SoftmaxCrossEntropy(reduction=r), labels, x, entropy),
        "distortion": (lambda r: losses.DistortionLoss(reduction=r), edges, w, distortion),
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", cases())
def test_reductions_and_sample_weights(name, reduction, weighted):
    make, y_true, y_pred, values = cases()[name]
    weight = np.linspace(0, 2, 12).astype(np.float32) if weighted else None
    actual = make(reduction)(y_true, y_pred, sample_weight=weight)
    np.testing.assert_allclose(actual, reduce(values, reduction, weight), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["robust", "sigmoid", "softmax", "distortion"])
def test_masks_of_keras(name):
    make, y_true, y_pred, values = cases()[name]
    mask = np.arange(12) % 3 > 0
    masked = tf.constant(y_pred)
    keras.src.backend.set_keras_mask(masked, tf.constant(mask))
    actual = make("sum")(y_true, masked)
    np.testing.assert_allclose(actual, values[mask].sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        metal_ops.losses.RobustLoss(-np.inf, 0.3, reduction="sum", name="welsch"),
        metal_ops.losses.RobustLoss(1.5),
        metal_ops.losses.FocalLoss("softmax", None, 1.5, 0.1),
        metal_ops.losses.FocalLoss(),
        metal_ops.losses.SoftmaxCrossEntropy(0.1, 1e-4, -1),
        metal_ops.losses.DistortionLoss(reduction="none"),
    ],
    ids=lambda loss: loss.name,
)
def test_configuration_round_trip(loss):
    saved = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is type(loss) and again.get_config() == loss.get_config()
    assert again.reduction == loss.reduction
    if hasattr(loss, "alpha"):
        assert again.alpha == loss.alpha


def test_robust_loss_ignores_outliers_in_fit(tmp_path):
    """A line through points of which a quarter are far off: the purpose of the loss."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (400, 1)).astype(np.float32)
    y = 2 * x + 1 + 0.02 * random.normal(size=x.shape).astype(np.float32)
    y[::4] += 20

    def fit(loss):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.2), loss, jit_compile=False)
        model.fit(x, y, epochs=10, batch_size=50, verbose=0)
        return model

    model = fit(metal_ops.losses.RobustLoss(alpha=-2.0, scale=1.0))
    kernel, bias = model.get_weights()
    np.testing.assert_allclose([kernel[0, 0], bias[0]], [2, 1], atol=0.05)
    assert abs(fit("mse").get_weights()[1][0] - 1) > 2
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.alpha == -2.0
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), loaded.evaluate(x, y, verbose=0))


def test_focal_loss_trains_a_classifier():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4)).astype(np.float32)
    labels = np.argmax(x @ random.normal(size=(4, 3)), axis=1)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    loss = metal_ops.losses.FocalLoss("softmax", label_smoothing=0.05)
    model.compile(keras.optimizers.Adam(0.2), loss, jit_compile=False)
    model.fit(x, labels, epochs=7, verbose=0)
    assert np.mean(np.argmax(model.predict(x, verbose=0), axis=1) == labels) > 0.93


def test_bad_arguments():
    with pytest.raises(ValueError, match="scale: expected a number above 0, got 0"):
        metal_ops.losses.RobustLoss(scale=0.0)
    with pytest.raises(ValueError, match="kind: expected 'sigmoid' or 'softmax'"):
        metal_ops.losses.FocalLoss("hinge")
    with pytest.raises(ValueError, match="reduction"):
        metal_ops.losses.RobustLoss(reduction="median")
    with pytest.raises(tf.errors.UnimplementedError, match="jit_compile=False"):
        loss = metal_ops.losses.RobustLoss()
        tf.function(lambda: loss(tf.zeros([2, 2]), tf.ones([2, 2])), jit_compile=True)()
