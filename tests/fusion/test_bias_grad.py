"""The gradient of a bias and that of the activation behind it become one op; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import assert_refused, look, same_as_eager, values, wide

raw = tf.raw_ops
OP = "MetalFusedBiasGrad"
D, Y = values((30, 6), seed=1), values((30, 6), seed=2)
SLOPES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "ReluGrad": lambda d, y: raw.ReluGrad(gradients=d, features=y),
    "Relu6Grad": lambda d, y: raw.Relu6Grad(gradients=d, features=y),
    "EluGrad": lambda d, y: raw.EluGrad(gradients=d, outputs=y),
    "LeakyReluGrad": lambda d, y: raw.LeakyReluGrad(gradients=d, features=y, alpha=0.4),
    "SigmoidGrad": lambda d, y: raw.SigmoidGrad(y=y, dy=d),
    "TanhGrad": lambda d, y: raw.TanhGrad(y=y, dy=d),
}
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "ReluGrad": tf.nn.relu,
    "Relu6Grad": tf.nn.relu6,
    "EluGrad": tf.nn.elu,
    "LeakyReluGrad": lambda x: tf.nn.leaky_relu(x, 0.4),
    "SigmoidGrad": tf.sigmoid,
    "TanhGrad": tf.tanh,
}
SUMS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "bias-add": lambda d: raw.BiasAddGrad(out_backprop=d),
    "sum": lambda d: tf.reduce_sum(d, [0]),
    "kept": lambda d: tf.reduce_sum(d, [-2], keepdims=True),
}


def both(d: tf.Tensor, y: tf.Tensor, slope: str = "ReluGrad", total: str = "bias-add") -> Any:
    backprops = SLOPES[slope](d, y)
    return SUMS[total](backprops), backprops, backprops * 2.0


def one_op(fn: Callable[..., Any], *args: Any, slope: str = "ReluGrad", **more: Any) -> Any:
    seen = same_as_eager(fn, *args, **more)
    assert [slope, "BiasAddGrad"] in seen.fused, seen.explanation
    ops = [node.op for node in seen.explanation.after]
    assert OP in ops and slope not in ops and "BiasAddGrad" not in ops
    return seen


@pytest.mark.parametrize("slope", SLOPES)
def test_pairs(slope):
    for total in SUMS:
        one_op(lambda d, y, t=total: both(d, y, slope, t), D, Y, slope=slope)


NCHW = [tf.reshape(v, [2, 6, 3, 5]) for v in (D, Y)]
PLANES: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "bias-add": lambda d: raw.BiasAddGrad(out_backprop=d, data_format="NCHW"),
    "sum": lambda d: tf.reduce_sum(d, [0, 2, 3]),
    "kept": lambda d: tf.reduce_sum(d, [-1, 0, 2], keepdims=True),
}


@pytest.mark.parametrize("total", PLANES)
def test_channels_second(total):
    def fn(d: tf.Tensor, y: tf.Tensor) -> Any:
        backprops = SLOPES["EluGrad"](d, y)
        return PLANES[total](backprops), backprops

    seen = one_op(fn, *NCHW, slope="EluGrad", size=16.0)
    (node,) = [node for node in seen.explanation.after if node.op == OP]
    assert "NCHW" in node.attrs["data_format"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    d, y = (tf.cast(v, dtype) for v in (D, Y))
    one_op(both, d, y, exact=both(*wide([d, y])))


def layer(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, slope: str, add: Any) -> Any:
    """A layer's gradients, as a training step has them."""
    with tf.GradientTape() as tape:
        tape.watch([x, w, b])
        y = ACTIVATIONS[slope](add(tf.matmul(x, w), b))
        loss = tf.reduce_sum(y * y)
    return tape.gradient(loss, [x, w, b])


W = values((6, 4), seed=3)
ADDS = {"bias_add": tf.nn.bias_add, "plus": lambda x, b: x + tf.reshape(b, [1, 4])}


@pytest.mark.parametrize("add", ADDS)
@pytest.mark.parametrize("slope", SLOPES)
def test_layers(slope, add):
    one_op(
        lambda x, w, b: layer(x, w, b, slope, ADDS[add]),
        D, W, values((4,), seed=4), slope=slope, size=64.0,
        signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([6, 4]), tf.TensorSpec([4])],
    )  # fmt: skip


SEVERAL: dict[str, tuple[str, Callable[[tf.Tensor], tf.Tensor]]] = {
    # As tf.nn.gelu is up to TensorFlow 2.19, and as later releases write it.
    "gelu-exact": ("GeluExactGrad", lambda x: 0.5 * x * (1.0 + tf.math.erf(x / 2.0**0.5))),
    "gelu-by-erfc": (
        "GeluExactGrad",
        lambda x: 0.5 * x * tf.math.erfc(-x * tf.cast(0.7071067811865476, x.dtype)),
    ),
    "keras-gelu": ("GeluExactGrad", lambda x: keras.activations.gelu(x, approximate=False)),
    "gelu-approximate": ("GeluApproximateGrad", lambda x: tf.nn.gelu(x, approximate=True)),
    "silu": ("SwishGrad", tf.nn.silu),
    "keras-silu": ("SwishGrad", keras.activations.silu),
    "by-sigmoid": ("SwishGrad", lambda x: x * tf.sigmoid(x)),
    "mish": ("MishGrad", keras.activations.mish),
}
# The ops of a gradient that nothing else reads.
GRADIENT = ("TanhGrad", "SigmoidGrad", "AddN", "Square", "BroadcastGradientArgs")


def dense(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, activation: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([x, w, b])
        y = activation(tf.nn.bias_add(tf.matmul(x, w), b))
        loss = tf.reduce_sum(tf.square(y))
    return tape.gradient(loss, [x, w, b])


@pytest.mark.parametrize("rows", [30, None])
@pytest.mark.parametrize("name", SEVERAL)
def test_activations_of_several_ops(name, rows):
    slope, activation = SEVERAL[name]
    signature = [tf.TensorSpec([rows, 6]), tf.TensorSpec([6, 4]), tf.TensorSpec([4])]
    seen = one_op(
        lambda x, w, b: dense(x, w, b, activation),
        D, W, values((4,), seed=4), slope=slope, size=64.0, signature=signature,
    )  # fmt: skip
    left = [node.op for node in seen.explanation.after if "gradient_tape" in node.name]
    assert not set(left) & set(GRADIENT), left


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SEVERAL)
def test_several_in_half_precision(name, dtype):
    slope, activation = SEVERAL[name]

    def fn(d: tf.Tensor, x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = activation(x)
        d_x = tape.gradient(y, x, d)
        return SUMS["bias-add"](d_x), d_x

    args = [tf.cast(v, dtype) for v in (D, Y)]
    one_op(fn, *args, slope=slope, exact=fn(*wide(args)))


def of_another(d: tf.Tensor, x: tf.Tensor) -> Any:
    """Sigmoids of two tensors."""
    s, other = tf.sigmoid(x), tf.sigmoid(2.0 * x)
    return raw.BiasAddGrad(out_backprop=s * d + raw.SigmoidGrad(y=other, dy=x * d))


def by_two(d: tf.Tensor, x: tf.Tensor) -> Any:
    """The function of tf.nn.silu(x, beta=2.0)."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.silu(x, 2.0)
    return raw.BiasAddGrad(out_backprop=tape.gradient(y, x, d))


def broadcast(d: tf.Tensor, x: tf.Tensor) -> Any:
    """silu's gradient of fewer rows than the incoming one has."""
    x = x[:1]
    s = tf.sigmoid(x)
    return raw.BiasAddGrad(out_backprop=d * (s * (1.0 + x * (1.0 - s))))


def picture_classifier() -> keras.Model:
    keras.utils.set_random_seed(0)
    conv = keras.layers.Conv2D(5, 3, activation="relu")
    dense = [keras.layers.Dense(7, "tanh"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6, 6, 3)), conv, keras.layers.Flatten(), *dense])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return model


def test_keras_trains_the_same():
    """Convolutions and dense layers, whose biases Keras adds by BiasAdd."""
    x, t = values((8, 6, 6, 3), seed=5), values((8, 2), seed=6)
    found = []
    for context in (metal_ops.fusion.disabled, lambda: metal_ops.fusion.enabled(cpu=True)):
        model = picture_classifier()
        with context():
            before = metal_ops.fusion.status().fused
            for _ in range(3):
                loss = model.train_on_batch(x, t)
            fused = metal_ops.fusion.status().fused - before
        found.append((loss, fused, [np.asarray(v) for v in model.trainable_variables]))
    (loss, none, plain), (fused_loss, some, fused_weights) = found
    assert none == 0 and some >= 2
    np.testing.assert_allclose(fused_loss, loss, rtol=1e-5)
    for a, b in zip(plain, fused_weights, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5)


def in_a_loop(d: tf.Tensor, y: tf.Tensor) -> Any:
    total = tf.zeros([1, 6])
    for _ in tf.range(3):
        total, backprops, _ = both(d, y + 0.01 * total, total="kept")
        d = d + 0.1 * backprops
    return total, d


def test_loops():
    function = tf.function(in_a_loop)
    expected = in_a_loop(D, Y)
    with metal_ops.fusion.enabled(cpu=True):
        before = metal_ops.fusion.status()
        got = function(D, Y)
        after = metal_ops.fusion.status()
    assert after.errors == before.errors and after.fused > before.fused
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-4)


def after_a_check(d: tf.Tensor, y: tf.Tensor) -> Any:
    with tf.control_dependencies([tf.debugging.assert_less(d, 2.0)]):
        backprops = SLOPES["ReluGrad"](d, y)
    return SUMS["bias-add"](backprops), backprops


def two_sums(d: tf.Tensor, y: tf.Tensor) -> Any:
    backprops = SLOPES["ReluGrad"](d, y)
    return SUMS["bias-add"](backprops), SUMS["kept"](backprops)


NEAR: dict[str, tuple[str, Callable[..., Any], list[tf.Tensor], str]] = {
    "double": ("dtype", both, [tf.cast(v, "float64") for v in (D, Y)], "double"),
    "slope-waits": ("control_edge", after_a_check, [D, Y], "a control edge"),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, args, words = NEAR[name]
    assert_refused(OP, condition, words, fn, *args)


OTHERS: dict[str, Callable[[tf.Tensor, tf.Tensor], Any]] = {
    "other-axes": lambda d, y: tf.reduce_sum(SLOPES["ReluGrad"](d, y), [1]),
    "all-axes": lambda d, y: tf.reduce_sum(SLOPES["ReluGrad"](d, y)),
    "axes-known-late": lambda d, y: tf.reduce_sum(
        SLOPES["ReluGrad"](d, y), tf.cast(d[:1, 0] > 9, tf.int32)
    ),
    "sigmoid-of-another": of_another,
    "silu-of-two": by_two,
    "broadcast": broadcast,
    "no-slope": lambda d, y: raw.BiasAddGrad(out_backprop=d + y),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_candidate_is_not_mentioned(name):
    seen = same_as_eager(OTHERS[name], D, Y, size=64.0)
    assert not seen.fused and not seen.explanation.missed


def test_one_sum_of_two():
    """The other one reads the op's result."""
    seen = one_op(two_sums, D, Y)
    assert len(seen.fused) == 1 and len(seen.explanation.missed) == 1
    assert "overlap" in seen.conditions


def test_what_waits_for_the_sum_still_does():
    told = tf.Variable(0.0)

    def fn(d: tf.Tensor, y: tf.Tensor) -> Any:
        backprops = SLOPES["ReluGrad"](d, y)
        d_bias = SUMS["bias-add"](backprops)
        with tf.control_dependencies([d_bias]):
            told.assign_add(1.0)
        return backprops

    one_op(fn, D, Y)
    assert told.numpy() > 0


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"bias_grad"}
    seen = look(both, D, Y, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'bias_grad'" in seen.reason("pattern_off")
