"""The gradients of a batch norm and of the ReLU behind it become one op; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import assert_refused, look, same_as_eager, values, wide

raw = tf.raw_ops
OP = "MetalFusedBatchNormGrad"
SHAPE = (2, 3, 4, 6)
D, Y, X = (values(SHAPE, seed=seed) for seed in (1, 2, 3))
SCALE, MEAN = values((6,), seed=4), values((6,), seed=5)
VARIANCE = tf.abs(values((6,), seed=6))
SLOPES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "ReluGrad": lambda d, y: raw.ReluGrad(gradients=d, features=y),
    "Relu6Grad": lambda d, y: raw.Relu6Grad(gradients=d, features=y),
}


def norm(passed: tf.Tensor, x: tf.Tensor, training: bool = True, **more: Any) -> list[tf.Tensor]:
    found = raw.FusedBatchNormGradV3(
        y_backprop=passed, x=x, scale=SCALE, reserve_space_1=MEAN, reserve_space_2=VARIANCE,
        reserve_space_3=MEAN, epsilon=0.5, is_training=training, **more,
    )  # fmt: skip
    return list(found[:3])


def both(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor, slope: str = "ReluGrad", **more: Any) -> Any:
    return norm(SLOPES[slope](d, y), x, **more)


def one_op(fn: Callable[..., Any], *args: Any, slope: str = "ReluGrad", **more: Any) -> Any:
    seen = same_as_eager(fn, *args, **more)
    assert seen.fused == [[slope, "BatchNormGrad"]], seen.explanation
    ops = [node.op for node in seen.explanation.after]
    assert OP in ops and slope not in ops and "FusedBatchNormGradV3" not in ops
    return seen


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("slope", SLOPES)
def test_pairs(slope, training):
    one_op(lambda d, y, x: both(d, y, x, slope, training=training), D, Y, X, slope=slope, size=16.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    args = [tf.cast(v, dtype) for v in (D, Y, X)]
    exact = both(*wide(args))
    one_op(both, *args, exact=exact)


NCHW = [tf.transpose(v, [0, 3, 1, 2]) for v in (D, Y, X)]


@pytest.mark.parametrize("training", [True, False])
def test_channels_second(training):
    def fn(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
        return both(d, y, x, training=training, data_format="NCHW")

    # Outside training the CPU takes channels second where oneDNN is in use, as it is by default on some processors.
    def channels_last(*args: tf.Tensor) -> Any:
        last = [tf.transpose(v, [0, 2, 3, 1]) for v in args]
        backprop, *sums = both(*last, training=training)
        return [tf.transpose(backprop, [0, 3, 1, 2]), *sums]

    seen = one_op(fn, *NCHW, size=16.0, eager=channels_last)
    (node,) = [node for node in seen.explanation.after if node.op == OP]
    assert "NCHW" in node.attrs["data_format"]


def test_volumes():
    args = [tf.reshape(v, [1, 2, 3, 4, 6]) for v in (D, Y, X)]
    one_op(lambda d, y, x: both(d, y, x, data_format="NDHWC"), *args, size=16.0)


OUTPUTS = {"d_x": [0], "d_scale": [1], "scale-and-offset": [1, 2], "all-twice": [0, 1, 2, 0, 1, 2]}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_go_where_they_went(name):
    def fn(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
        found = both(d, y, x)
        return [found[i] * (1.0 + k) for k, i in enumerate(OUTPUTS[name])]

    one_op(fn, D, Y, X, size=64.0)


W = values((3, 3, 6, 6), seed=7) / 4.0


def network(x: tf.Tensor, scale: tf.Tensor, residual: bool = False) -> Any:
    """A convolution, a batch norm in training and ReLU, and the gradients."""
    with tf.GradientTape() as tape:
        tape.watch([x, scale])
        y = raw.FusedBatchNormV3(
            x=tf.nn.conv2d(x, W, 1, "SAME"), scale=scale, offset=MEAN, mean=[], variance=[]
        ).y
        y = tf.nn.relu(y + x if residual else y)
        loss = tf.reduce_sum(tf.square(y))
    return [loss, *tape.gradient(loss, [x, scale])]


def test_training_with_any_batch():
    signature = [tf.TensorSpec([None, None, None, 6]), tf.TensorSpec([6])]
    one_op(network, X, SCALE, signature=signature, size=1024.0)


def read_twice(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
    passed = SLOPES["ReluGrad"](d, y)
    return norm(passed, x), tf.exp(passed)


def returned(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
    passed = SLOPES["ReluGrad"](d, y)
    return norm(passed, x), passed


def after_a_check(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
    with tf.control_dependencies([tf.debugging.assert_less(d, 2.0)]):
        passed = SLOPES["ReluGrad"](d, y)
    return norm(passed, x)


def placeholder(d: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> Any:
    found = raw.FusedBatchNormGradV3(
        y_backprop=SLOPES["ReluGrad"](d, y), x=x, scale=SCALE, reserve_space_1=MEAN,
        reserve_space_2=VARIANCE, reserve_space_3=MEAN,
    )  # fmt: skip
    return found[0], tf.exp(found[3])


NEAR: dict[str, tuple[str, Callable[..., Any], list[tf.Tensor], str]] = {
    "read-twice": ("one_consumer", read_twice, [D, Y, X], "needs 'ReluGrad'"),
    "returned": ("fetched", returned, [D, Y, X], "The function returns"),
    "waits": ("control_edge", after_a_check, [D, Y, X], "a control edge"),
    "placeholder-read": ("one_output", placeholder, [D, Y, X], "needs output 3 of"),
    "residual": (
        "one_consumer",
        lambda d, y, x: network(x, SCALE, residual=True),
        [D, Y, X],
        "needs 'gradient_tape/ReluGrad'",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, args, words = NEAR[name]
    assert_refused(OP, condition, words, fn, *args)


def test_what_is_no_candidate_is_not_mentioned():
    seen = same_as_eager(lambda d, x: norm(d, x), D, X, size=16.0)
    assert not seen.fused and not seen.explanation.missed


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"batch_norm_grad"}
    seen = look(both, D, Y, X, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'batch_norm_grad'" in seen.reason("pattern_off")
