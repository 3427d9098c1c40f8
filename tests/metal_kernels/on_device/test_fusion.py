"""The fusion pass on the Metal device: on by default, for what is placed there, with the result of the plain ops."""

from __future__ import annotations

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import look, same_as_eager, values
from tests.processes import Process

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.fixture(autouse=True)
def on_the_device(request):
    """With soft placement off: what has no kernel there fails. Keras needs it for seeds and counters."""
    with_keras = "keras" in request.node.name
    tf.config.set_soft_device_placement(with_keras)
    with contextlib.nullcontext() if with_keras else tf.device("/GPU:0"):
        yield
    tf.config.set_soft_device_placement(False)


def operands(dtype: str = "float32", nchw: bool = False) -> dict[str, tf.Tensor]:
    shape, out = ((2, 4, 5, 6), (2, 6, 5, 6)) if nchw else ((2, 5, 6, 4), (2, 5, 6, 6))
    given = {"x": shape, "w": (3, 3, 4, 6), "b": (6,), "r": out}
    made = {name: values(shape, dtype, seed) for seed, (name, shape) in enumerate(given.items())}
    return made | {"w": made["w"] / tf.constant(4.0, dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_by_default(dtype):
    t = operands(dtype)

    def fn(x):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"]) + t["r"])

    expected = fn(t["x"])
    assert expected.device.endswith("GPU:0")
    before = metal_ops.fusion.status()
    got = tf.function(fn)(t["x"])
    assert got.device.endswith("GPU:0")
    assert metal_ops.fusion.status().fused == before.fused + 1
    unit = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}[dtype]
    np.testing.assert_allclose(
        np.asarray(got, "f"), np.asarray(expected, "f"), rtol=0, atol=8 * unit
    )
    assert np.abs(np.asarray(got, "f")).max() > 0.5


@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_layouts(nchw, strides, padding):
    t = operands(nchw=nchw)
    layout = "NCHW" if nchw else "NHWC"

    def fn(x):
        v = tf.nn.conv2d(x, t["w"], strides, padding, data_format=layout)
        return tf.nn.elu(tf.nn.bias_add(v, t["b"], data_format=layout))

    assert same_as_eager(fn, t["x"], cpu=False).fused == [["BiasAdd", "Elu"]]


def test_nchw_bias_along_width():
    """A [C] on NCHW runs along the width, which here is as long as there are channels; a [C, 1, 1] is a bias."""
    t = operands(nchw=True)

    def fn(x, b):
        return tf.nn.conv2d(x, t["w"], 1, "SAME", data_format="NCHW") + b

    bias = tf.reshape(t["b"], [6, 1, 1])
    assert same_as_eager(fn, t["x"], bias, cpu=False).fused == [["BiasAdd"]]
    seen = same_as_eager(fn, t["x"], t["b"], cpu=False)
    assert seen.fused == [] and seen.conditions == {"bias_layout"}


def test_one_device():
    t = operands()

    def fn(x, device):
        v = tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"])
        with tf.device(device):
            return tf.nn.relu(v)

    assert same_as_eager(lambda x: fn(x, "/GPU:0"), t["x"], cpu=False).fused == [
        ["BiasAdd", "Relu"]
    ]
    seen = same_as_eager(lambda x: fn(x, "/CPU:0"), t["x"], cpu=True)
    assert seen.fused == [["BiasAdd"]] and seen.conditions == {"one_device"}


def test_the_cpu_is_left_alone():
    t = operands()

    def fn(x):
        with tf.device("/CPU:0"):
            return tf.nn.relu(tf.nn.conv2d(x, t["w"], 1, "SAME"))

    seen = same_as_eager(fn, t["x"], cpu=False)
    assert seen.fused == [] and seen.conditions == {"cpu"}


@pytest.mark.parametrize("transpose", [False, True])
def test_products(transpose):
    a, b, bias = values((3, 7, 5)), values((6, 5) if transpose else (5, 6)), values((6,))

    def fn(a):
        return tf.nn.gelu(tf.matmul(a[0], b, transpose_b=transpose) + bias)

    assert same_as_eager(fn, a, cpu=False).fused == [["BiasAdd", "GeluExact"]]


def test_batch_norm_with_its_bias():
    t = operands()
    gamma, mean, variance = (
        values((6,), seed=7),
        values((6,), seed=8),
        tf.constant(np.abs(values((6,), seed=9))),
    )

    def fn(x):
        v = tf.nn.bias_add(tf.nn.conv2d(x, t["w"], 1, "SAME"), t["b"])
        v = tf.nn.batch_normalization(v, mean, variance + 0.5, t["b"], gamma, 0.01)
        return tf.nn.relu(v + t["r"])

    seen = same_as_eager(fn, t["x"], cpu=False, size=16.0)
    assert seen.fused == [["BatchNorm", "Add", "Relu"]]
    assert len(seen.explanation.fused[0].added) == 2


def test_keras_model():
    x = image = keras.Input((8, 8, 3))
    x = shortcut = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, padding="same")(x))
    x = keras.layers.Activation("silu")(keras.layers.Add()([x, shortcut]))
    model = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    model.compile("sgd", "mse", jit_compile=False)  # XLA has no compiler for METAL
    images = np.asarray(values((5, 8, 8, 3)))
    expected = model(images, training=False)

    before = metal_ops.fusion.status()
    got = model.predict(images, batch_size=2, verbose=0)
    after = metal_ops.fusion.status()
    assert after.fused >= before.fused + 3 and after.errors == before.errors
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_without_fused_kernels_there_is_nothing_to_fuse():
    """A "GPU" may be any device: whether it has fused kernels is asked of TensorFlow's registry."""
    code = """
import json, tensorflow as tf, metal_ops
metal_ops.device.load(kernels=False)
w = tf.ones([3, 3, 4, 6])
found = metal_ops.fusion.explain(
    lambda x: tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")), tf.TensorSpec([2, 5, 6, 4]))
print(json.dumps([len(found.fused), *((m.condition, m.reason) for m in found.missed)]))
"""
    fused, (condition, reason) = Process("-c", code).result()
    assert (fused, condition) == (0, "kernel")
    assert reason.startswith(
        "No kernel of MetalFusedConv2D for float on GPU devices takes 'Conv2D'"
    )
    t = operands()
    assert look(lambda x: tf.nn.relu(tf.nn.conv2d(x, t["w"], 1, "SAME")), t["x"], cpu=False).fused
