"""Whole models of keras.applications, and a ResNet-50 for small pictures that is trained: fused, they compute the same.

On the CPU, by the switch for tests. Weights and statistics are random, as nothing is downloaded; those of the batch
norms too, which would otherwise be 0 and 1 and hide a mistake.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion import exactness
from tests.processes import Process

# Model: pixels; how often each sequence was fused; candidates that were left, by condition.
# Sums of some hundred float32 terms in another order, through up to 121 layers, of outputs of size 1: probabilities.
PROBABILITIES = 2e-5
MODELS: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "ResNet50": (
        64,
        {"BatchNorm Relu": 32, "Pad BatchNorm Relu": 1, "BatchNorm Add Relu": 16, "BatchNorm": 4, "BiasAdd": 1},
        {},
    ),
    "MobileNetV2": (64, {"BatchNorm Relu6": 18, "BatchNorm Add": 10, "BatchNorm": 7, "BiasAdd": 1}, {}),
    "EfficientNetB0": (
        64,
        {"BatchNorm Swish": 16, "Pad BatchNorm Swish": 1, "BiasAdd Swish": 16, "BiasAdd Sigmoid": 16,
         "BatchNorm Add": 9, "BatchNorm": 7, "BiasAdd": 1},
        {},
    ),
    "InceptionV3": (75, {"BatchNorm Relu": 94, "BiasAdd": 1}, {}),
    # Each of its layers ends in a concatenation, which takes the convolution as it is.
    "DenseNet121": (64, {"BatchNorm Relu": 58, "Pad BatchNorm Relu": 1, "BiasAdd": 1}, {"no_epilogue": 61}),
}  # fmt: skip


TRAINS = pytest.mark.full(
    "trains ResNet50; test_conditions.py and test_updates.py have graphs that train"
)


def randomize(model: keras.Model, seed: int = 0) -> None:
    """Statistics, scales and shifts that are not 0 and 1."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        name = weight.path.split("/")[-1]
        if name in ("moving_mean", "beta", "bias"):
            weight.assign(random.normal(0, 0.1, weight.shape))
        elif name in ("moving_variance", "gamma"):
            weight.assign(random.uniform(0.5, 1.5, weight.shape))


def model(name: str) -> Any:
    """The first three have all that the others have."""
    long = name in ("InceptionV3", "DenseNet121")
    return pytest.param(name, marks=[pytest.mark.full("a long graph")] if long else [])


@pytest.mark.parametrize("name", [*map(model, MODELS)])
def test_predictions(name: str):
    pixels, fused, missed = MODELS[name]
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(pixels, pixels, 3), classes=10
    )
    randomize(model)
    images = np.random.default_rng(1).uniform(-1, 1, (2, pixels, pixels, 3)).astype(np.float32)

    def infer(x: tf.Tensor) -> tf.Tensor:
        return model(x, training=False)

    plain = tf.function(infer, jit_compile=False)(images).numpy()
    before = metal_ops.fusion.status()
    with metal_ops.fusion.enabled(cpu=True):
        found = metal_ops.fusion.explain(tf.function(infer), images)
        explained = metal_ops.fusion.status()
        result = tf.function(infer)(images).numpy()
    after = metal_ops.fusion.status()

    assert Counter(" ".join(fusion.fused_ops) for fusion in found.fused) == fused
    assert Counter(miss.condition for miss in found.missed) == missed
    assert after.fused - explained.fused == sum(fused.values()) and after.errors == before.errors
    ops = Counter(node.op for node in found.after)
    assert ops["MetalFusedConv2D"] + ops["MetalFusedMatMul"] == sum(fused.values())
    assert ops["Conv2D"] + ops["MatMul"] == sum(missed.values())
    assert np.ptp(plain) > 1e-3  # not all the same, so that a wrong value would show
    np.testing.assert_allclose(result, plain, rtol=0, atol=PROBABILITIES)
    keras.backend.clear_session()


# ---- against float64 ------------------------------------------------------------------------------------------------

# Results and gradients of a block, in units of the last place of the largest: sums of 144 terms, of either sign, wander
# by about sqrt(144) / 2 half units of a value a fifth as large as the largest.
BLOCK_ULPS = 8
# Fused errors beside unfused ones: both are rounding, in sums of another order.
NETWORK = 1.2


@pytest.fixture(
    scope="module",
    params=[pytest.param("0", marks=pytest.mark.full("oneDNN is TensorFlow's default")), "1"],
    ids=["Eigen", "oneDNN"],
)
def errors(request) -> Any:
    """The errors that `exactness.py` measures where TensorFlow's own products are Eigen's, and
    oneDNN's."""
    default = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")
    # The default is not asked for by name, so that a fork has it.
    asked = {} if request.param == default else {"TF_ENABLE_ONEDNN_OPTS": request.param}
    process = Process("-m", "tests.fusion.exactness", **asked)
    try:
        return process.result()
    finally:
        process.stop()


def test_blocks_are_exact_to_a_few_ulp(errors):
    for name in exactness.BLOCKS:
        found = errors[name]
        mistakes = [found[mistake] for mistake in exactness.MISTAKES if mistake in found]
        assert max(found["fused"], found["unfused"]) <= BLOCK_ULPS < min(mistakes), (name, found)


def test_gradients_are_as_exact_as_unfused(errors):
    for stage in exactness.STAGES:
        found = errors[stage]
        mistakes = [found[mistake] for mistake in exactness.MISTAKES if mistake in found]
        assert len(mistakes) >= 2
        assert found["fused"] <= NETWORK * found["unfused"] < min(mistakes), (stage, found)


# ---- the residual network for 32x32 pictures ------------------------------------------------------------------------


def resnet50(width: int = 4, seed: int = 0) -> keras.Model:
    """ResNet-50's shape for 32x32 pictures: a 7x7 stem; 3, 4, 6, 3 bottleneck blocks; `width` for 64 channels."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers

    def conv(x, channels, size, strides=1):
        return layers.Conv2D(channels, size, strides, padding="same")(x)

    def block(x, channels, strides):
        skip = x
        x = layers.ReLU()(layers.BatchNormalization()(conv(x, channels, 1)))
        x = layers.ReLU()(layers.BatchNormalization()(conv(x, channels, 3, strides)))
        x = layers.BatchNormalization()(conv(x, 4 * channels, 1))
        if strides != 1 or skip.shape[-1] != 4 * channels:  # a projection
            skip = layers.BatchNormalization()(conv(skip, 4 * channels, 1, strides))
        return layers.ReLU()(layers.Add()([x, skip]))

    x = image = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(conv(x, width, 7)))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            x = block(x, width << stage, strides=2 if stage and not i else 1)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def pictures(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes: a stripe pattern each, with noise."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:32, 0:32] / 32
    labels = np.arange(count) % 10
    angles = labels[:, None, None] * np.pi / 10
    waves = np.sin(20 * (np.cos(angles) * x + np.sin(angles) * y))
    images = waves[..., None] + random.normal(0, 0.3, (count, 32, 32, 3))
    return images.astype(np.float32), labels


# The bias is all that a training step lets vanish here. SGD, as Adam divides gradients by their size: those of biases
# before a batch norm are only rounding, and would become steps.
FEW_STEPS, STEPS, MOST_STEPS = 3, 20, 80


def step(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Loss and accuracy of this step alone, where Keras gives running means."""
    model.reset_metrics()
    loss, accuracy = model.train_on_batch(images, labels)
    return float(loss), float(accuracy)


@dataclass
class Trained:
    """A network after some steps on all pictures, the loss before each, and how many chains were fused meanwhile."""

    model: keras.Model
    losses: list[float]
    fused: int


@pytest.fixture(scope="module")
def trained() -> Trained:
    """After FEW_STEPS steps, fused."""
    model = resnet50()
    model.compile(
        keras.optimizers.SGD(0.02, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    images, labels = pictures()
    before = metal_ops.fusion.status()
    with metal_ops.fusion.enabled(cpu=True):
        losses = [step(model, images, labels)[0] for _ in range(FEW_STEPS)]
    after = metal_ops.fusion.status()
    assert after.errors == before.errors
    return Trained(model, losses, after.fused - before.fused)


@TRAINS
def test_training_fuses_each_convolution(trained: Trained):
    """In training each ends in its bias: batch norm's statistics need the result. The gradients read it too."""
    assert trained.fused >= 53


@TRAINS
def test_training(trained: Trained):
    """Until it overfits. Its losses are not those of the unfused network, nor of another processor's: rounding
    decides the output of many a ReLU, and grows from step to step; `exactness.py` compares the rest."""
    images, labels = pictures()
    for _ in range(STEPS - FEW_STEPS):
        trained.losses.append(step(trained.model, images, labels)[0])
    assert trained.losses[-1] < 0.2 * trained.losses[0]
    for _ in range(MOST_STEPS - STEPS):
        loss, accuracy = step(trained.model, images, labels)
        if accuracy == 1.0 and loss < 0.1:
            break
    else:
        pytest.fail(f"it did not learn 40 pictures by heart: loss {loss}, accuracy {accuracy}")


@TRAINS
def test_inference_of_the_trained_network(trained: Trained):
    """All of its convolutions, with batch norm, residual and activation."""
    model = trained.model
    images, _ = pictures(8)
    with metal_ops.fusion.enabled(cpu=True):
        function = tf.function(lambda x: model(x, training=False))
        found = metal_ops.fusion.explain(function, images)
        result = function(images).numpy()
    counts = Counter(" ".join(fusion.fused_ops) for fusion in found.fused)
    assert counts == {"BatchNorm Relu": 33, "BatchNorm Add Relu": 16, "BatchNorm": 4, "BiasAdd": 1}
    expected = model(images, training=False).numpy()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
