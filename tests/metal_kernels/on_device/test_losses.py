"""robust_loss, focal_loss and ScaleSlope on the Metal device: the CPU's tests again, and both devices side by side."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import placements, test_focal_loss, test_losses, test_robust_loss, test_scale_slope
from tests.metal_kernels.on_device import again

OPS = ("robust_loss", "sigmoid_focal_loss", "softmax_focal_loss", "scale_slope", "scale_slope_sum",
       "distortion_loss", "scale_rays")  # fmt: skip
# exp and log may differ in their last places between the two, as each loss's own test allows.
TOLERANCE = 2 * test_robust_loss.TOLERANCE
# 256 elements are one thread's share of a mean; 3 and more threads; empty ones.
SHAPES = ((), (0,), (1,), (7,), (0, 3), (3, 0), (5, 3), (3, 255), (2, 257), (2, 3, 1000), (40001,))


guard = again.guarding(OPS, ["test_bad_arguments", "test_configuration_round_trip"])


@pytest.mark.usefixtures("guard")
class TestRobust(again.tests_of(test_robust_loss)):
    pass


@pytest.mark.usefixtures("guard")
class TestFocal(again.tests_of(test_focal_loss)):
    pass


@pytest.mark.usefixtures("guard")
class TestScaleSlope(again.tests_of(test_scale_slope)):
    pass


# Not all that Keras does has kernels on the device.
@pytest.mark.usefixtures("guard", "soft_placement")
class TestKeras(again.tests_of(test_losses)):
    pass


def normal(shape, dtype, seed=0):
    values = np.asarray(np.random.default_rng(seed).normal(size=shape) * 1.5)
    if values.size > 4 and len(shape) == 1:
        values.flat[:3] = [np.nan, np.inf, 0]
    return values.astype(tf.as_dtype(dtype).as_numpy_dtype)


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_robust_loss_equals_the_cpu(shape, dtype):
    x, y = normal(shape, dtype, 1), np.nan_to_num(normal(shape, dtype, 2), posinf=0)
    channels = shape[-1] if shape else 1
    many = np.linspace(-3, 3, channels).astype(np.float32)  # through 0 where channels are odd
    for alpha, scale, reduce_last, targets in (
        (np.float32(1.0), np.float32(0.5), False, y),
        (many, np.float32(0.5), False, y),
        (np.float32(-np.inf), np.exp(-np.abs(many)), True, y),
        (np.float32(0.0), np.float32(2.0), True, np.zeros(0, x.dtype)),
    ):
        if reduce_last and not shape:
            continue
        cpu, device = again.on_both(
            lambda *inputs, reduce_last=reduce_last: raw_ops.robust_loss(
                *inputs, reduce_last=reduce_last, parameter_gradients=True
            ),
            x,
            targets,
            alpha,
            scale,
        )
        again.assert_agree(cpu, device, dtype, TOLERANCE, 1e-6)


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sigmoid_focal_loss_equals_the_cpu(shape, dtype):
    x = normal(shape, dtype)
    y = np.random.default_rng(1).integers(0, 2, shape).astype(x.dtype)
    for gamma, balanced, reduce_last in itertools.product((2.0, 0.7), (False, True), (False, True)):
        if reduce_last and not shape:
            continue
        options = dict(gamma=gamma, balanced=balanced, reduce_last=reduce_last, label_smoothing=0.1)
        cpu, device = again.on_both(
            lambda x, y, options=options: raw_ops.sigmoid_focal_loss(x, y, **options), x, y
        )
        again.assert_agree(cpu, device, dtype, TOLERANCE, 1e-7)


# From 128 classes on a SIMD group shares a row; more than 1024 labels need a buffer of their own.
@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize(
    "shape", [(0, 3), (4, 0), (1, 1), (1500, 7), (3, 127), (35, 128), (5, 1000)], ids=str
)
def test_softmax_focal_loss_equals_the_cpu(shape, dtype):
    random = np.random.default_rng(0)
    x = normal(shape, dtype)
    if x.size > 100:
        x[1, 3], x[2, 0], x[0, 1] = np.nan, np.inf, -np.inf
    labels = random.integers(0, max(shape[1], 1), shape[0])
    soft = random.dirichlet(np.ones(max(shape[1], 1)), shape[0])[:, : shape[1]].astype(np.float32)
    for targets, smoothing in itertools.product(
        (soft, labels.astype(np.int32), labels.astype(np.int64)), (0.0, 0.2)
    ):
        cpu, device = again.on_both(
            lambda x, y, smoothing=smoothing: raw_ops.softmax_focal_loss(
                x, y, gamma=1.5, label_smoothing=smoothing
            ),
            x,
            targets,
        )
        again.assert_agree(cpu, device, dtype, TOLERANCE, 1e-7)


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scale_slope_equals_the_cpu(shape, dtype):
    slope = normal(shape, dtype)
    for incoming in (normal(shape, dtype, 1), normal(shape[:-1], dtype, 2)):
        cpu, device = again.on_both(raw_ops.scale_slope, incoming, slope)
        np.testing.assert_array_equal(device[0], cpu[0])  # one product
        for parameter in (np.float32(0), np.zeros(shape[-1:], np.float32)):
            cpu, device = again.on_both(raw_ops.scale_slope_sum, incoming, slope, parameter)
            again.assert_agree(cpu, device, "float32", 1e-6, 1e-6 * slope.size)


def test_same_bits_twice():
    x, y = (np.nan_to_num(normal((31, 4099), "float32", seed)) for seed in (1, 2))
    alpha = np.linspace(-3, 1, 4099).astype(np.float32)
    labels = np.arange(31) % 4099

    def gradients():
        with tf.GradientTape() as tape:
            shape = tf.constant(alpha)
            inputs = [tf.constant(x), tf.constant(y), shape, tf.constant(0.7)]
            tape.watch(inputs)
            loss = metal_ops.robust_loss(
                inputs[0], shape, inputs[3], targets=inputs[1], reduce_last=True
            )
        return loss, tape.gradient(loss, inputs)

    again.assert_same_bits(gradients)
    again.assert_same_bits(lambda: raw_ops.sigmoid_focal_loss(x, y, reduce_last=True))
    again.assert_same_bits(lambda: raw_ops.softmax_focal_loss(x, labels))


@pytest.mark.usefixtures("soft_placement")
@pytest.mark.parametrize(
    "loss",
    [
        metal_ops.losses.RobustLoss(0.5, 0.3),
        metal_ops.losses.FocalLoss(),
        metal_ops.losses.FocalLoss("softmax"),
    ],
    ids=["robust", "sigmoid", "softmax"],
)
@pytest.mark.parametrize("eager", [False, True])
def test_fit_on_the_device(loss, eager, monkeypatch):
    """As on the CPU, batch by batch; dense layers are placed there in both runs."""
    random = np.random.default_rng(0)
    x = random.normal(size=(96, 4)).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[np.argmax(x @ random.normal(size=(4, 3)), axis=1)]

    def fit(device):
        keras.utils.set_random_seed(0)
        with tf.device(device), placements.placed() as ops:
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
            model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False, run_eagerly=eager)
            fitted = model.fit(x, y, batch_size=32, epochs=4, shuffle=False, verbose=0)
        assert ops["ScaleSlope"] == {device}
        return fitted.history["loss"], model.get_weights()

    expected, expected_weights = fit("CPU:0")
    ran = again.guard(monkeypatch, OPS)
    history, weights = fit("GPU:0")
    # Eager tensors say where they are: twelve batches, loss and gradient.
    assert ran.count("scale_slope") == (12 if eager else 0)
    assert history[-1] < 0.95 * history[0]
    np.testing.assert_allclose(history, expected, rtol=1e-5)
    for actual, want in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-6)


def test_bad_arguments_in_one_voice():
    x, none = np.zeros((4, 3), np.float32), np.zeros(0, np.float32)
    labels = np.array([0, 1, 3, -1])
    for call in (
        lambda: raw_ops.robust_loss(x, none, 1.0, 0.0),
        lambda: raw_ops.robust_loss(x, none, 1.0, [1.0, -2.5, 0.0]),
        lambda: raw_ops.robust_loss(x, x[:3], 1.0, 1.0),
        lambda: raw_ops.robust_loss(x, np.zeros([0, 3], "f"), 1.0, 1.0),
        lambda: raw_ops.robust_loss(x, none, [1.0, 2.0], 1.0),
        lambda: raw_ops.robust_loss(x, none, 1.0, np.ones((3, 1), "f")),
        lambda: raw_ops.robust_loss(1.0, none, 1.0, 1.0, reduce_last=True),
        lambda: raw_ops.sigmoid_focal_loss(x, x[:, :2]),
        lambda: raw_ops.sigmoid_focal_loss(x, x, gamma=-1.0),
        lambda: raw_ops.sigmoid_focal_loss(x, x, label_smoothing=1.5),
        lambda: raw_ops.sigmoid_focal_loss(1.0, 1.0, reduce_last=True),
        lambda: raw_ops.softmax_focal_loss(x[0], x[0]),
        lambda: raw_ops.softmax_focal_loss(x, x[:3]),
        lambda: raw_ops.softmax_focal_loss(x, labels[:3]),
        lambda: raw_ops.softmax_focal_loss(x, labels),
        lambda: raw_ops.softmax_focal_loss(x, labels.astype(np.int32)),
        lambda: raw_ops.softmax_focal_loss(x, x, gamma=float("nan")),
        lambda: raw_ops.scale_slope(x[:3], x),
        lambda: raw_ops.scale_slope(x[0, 0], x),
        lambda: raw_ops.scale_slope_sum(x[:3], x, 0.0),
        lambda: raw_ops.scale_slope_sum(x, x, [1.0, 2.0]),
    ):
        sentence = again.assert_same_sentence(call)
        assert any(name in sentence for name in ("RobustLoss", "FocalLoss", "ScaleSlope"))
