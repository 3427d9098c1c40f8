"""Nodes that ask a vanishing node for nothing but its shape: they ask the fused one, unless that leads in a circle.

Gradients ask so wherever the batch is not known, that is in every training step that Keras' `fit` traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.fusion.harness import look, same_as_eager, values

X = values((2, 5, 6, 4), seed=1)
W = values((3, 3, 4, 6), seed=2) / 4.0
SQUARE = values((3, 3, 4, 4), seed=3) / 4.0
B, B4 = values((6,), seed=4), values((4,), seed=4)
R = values((2, 5, 6, 6), seed=5)
ANY_BATCH = [tf.TensorSpec([None, 5, 6, 4])]


def conv(x: tf.Tensor, w: tf.Tensor = W) -> tf.Tensor:
    return tf.nn.conv2d(x, w, strides=1, padding="SAME")


def shape(x: tf.Tensor) -> tf.Tensor:
    """tf.shape would answer at once, with a constant, where the shape is known."""
    return tf.raw_ops.Shape(input=x)


SHAPE_OPS: dict[str, Callable[[tf.Tensor], Any]] = {
    "Shape": shape,
    "ShapeN": lambda v: tf.raw_ops.ShapeN(input=[X, v, v]),
    "Size": lambda v: tf.raw_ops.Size(input=v),
    "Rank": lambda v: tf.raw_ops.Rank(input=v),
}


@pytest.mark.parametrize("signature", [None, ANY_BATCH], ids=["known", "any-batch"])
@pytest.mark.parametrize("op", SHAPE_OPS)
def test_shape_is_no_consumer(op: str, signature: Any):
    """For each node of a chain; the shape is the one that eager ops return."""
    ask = SHAPE_OPS[op]

    def fn(x):
        v = conv(x)
        w = tf.nn.bias_add(v, B)
        y = tf.nn.gelu(w)
        return y, ask(v), ask(w), ask(y)

    seen = same_as_eager(fn, X, signature=signature)
    assert seen.fused == [["BiasAdd", "GeluExact"]], seen.explanation
    readers = [node for node in seen.explanation.after if node.op == op]
    assert len(readers) == 3
    assert {node.inputs[-1] for node in readers} == {seen.explanation.fused[0].node}


def test_values_are_read_after_all():
    """The mutation: one element of it."""

    def fn(x, read):
        v = conv(x)
        return tf.nn.relu(v), v[0, 0, 0] if read else shape(v)

    assert same_as_eager(lambda x: fn(x, False), X).fused == [["Relu"]]
    seen = same_as_eager(lambda x: fn(x, True), X)
    assert seen.fused == [] and seen.conditions == {"one_consumer"}


def test_shape_of_another_output():
    """That of a batch norm's mean is [6], not the fused node's."""

    def fn(x, port):
        n = tf.raw_ops.FusedBatchNormV3(
            x=conv(x), scale=B, offset=B, mean=B, variance=tf.abs(B), is_training=False
        )
        return tf.nn.relu(n[0]), shape(n[port])

    assert same_as_eager(lambda x: fn(x, 0), X, size=16.0).fused == [["BatchNorm", "Relu"]]
    seen = same_as_eager(lambda x: fn(x, 1), X, size=16.0)
    assert seen.fused == [] and seen.conditions == {"one_output"}


def test_circle():
    """The residual is shaped like the convolution: its shape cannot come from the op that adds the
    residual."""

    def fn(x, circle):
        v = conv(x)
        return tf.nn.relu(v + tf.reshape(R, shape(v if circle else R)))

    assert same_as_eager(lambda x: fn(x, False), X).fused == [["Add", "Relu"]]
    seen = same_as_eager(lambda x: fn(x, True), X)
    assert seen.fused == [] and seen.conditions == {"shape_circle"}
    assert "'Shape' (Shape) asks for the shape of a node before" in seen.reason("shape_circle")


def test_circle_by_a_control_edge():
    def fn(x, circle):
        v = conv(x)
        with tf.control_dependencies([shape(v)] if circle else []):
            residual = tf.identity(x)
        return tf.nn.relu(v + conv(residual, W * 2.0)[:, :, :, :])

    assert ["Add", "Relu"] in same_as_eager(lambda x: fn(x, False), X).fused
    seen = same_as_eager(lambda x: fn(x, True), X)
    assert "shape_circle" in seen.conditions


def test_circle_over_two_chains():
    """Each alone may ask; both together would wait for each other for ever."""

    def fn(x, circle):
        a, b = conv(x), conv(x, W * 2.0)
        of_a, of_b = shape(a), shape(b if circle else a)
        left = tf.nn.relu(a + tf.reshape(R, of_b)) if circle else tf.nn.relu(a + R)
        return left, tf.nn.relu(b + tf.reshape(R, of_a))

    assert same_as_eager(lambda x: fn(x, False), X).fused == [["Add", "Relu"]] * 2
    seen = same_as_eager(lambda x: fn(x, True), X)
    assert seen.fused == [["Add", "Relu"]] and seen.conditions == {"shape_circle"}


def test_what_asks_keeps_its_control_edges():
    def fn(x):
        v = conv(x)
        with tf.control_dependencies([tf.raw_ops.Print(input=x, data=[x], first_n=0)]):
            asked = shape(v)
        return tf.nn.relu(v), asked

    seen = same_as_eager(fn, X)
    assert seen.fused == [["Relu"]]
    (reader,) = [node for node in seen.explanation.after if node.op == "Shape"]
    assert reader.inputs == ["Relu", "^Print"]


def training_step(x: tf.Tensor) -> list[tf.Tensor]:
    """A residual block and its gradients, as Keras writes them."""
    w1, w2 = tf.convert_to_tensor(SQUARE), tf.convert_to_tensor(SQUARE * 2.0)
    b1, b2 = (tf.reshape(B4 * k, [1, 1, 1, 4]) for k in (1.0, 2.0))
    with tf.GradientTape() as tape:
        given = [x, w1, w2, b1, b2]
        tape.watch(given)
        y = tf.nn.relu(conv(x, w1) + b1)
        y = tf.nn.relu((conv(y, w2) + b2) + x)
        loss = tf.reduce_sum(tf.square(y))
    return [loss, *tape.gradient(loss, given)]


def test_training_with_any_batch():
    """The whole forward part is fused, although the gradient of each addition asks for shapes."""
    signature = [tf.TensorSpec([None, None, None, 4])]
    expected = training_step(X)
    size = max(float(tf.reduce_max(tf.abs(each))) for each in expected)
    seen = same_as_eager(training_step, X, signature=signature, size=size)
    forward = [["BiasAdd", "Relu"], ["BiasAdd", "Add", "Relu"]]
    backward = ["ReluGrad", "BiasAddGrad"]
    # Between the last ReLU's gradient and its bias' are the Sum and Reshape that unknown shapes ask for.
    assert seen.fused == [*forward, backward], seen.explanation
    assert all(np.abs(each).max() > 0.1 for each in expected)
    # As with a known batch.
    assert [ops for ops in look(training_step, X).fused if ops != backward] == forward
