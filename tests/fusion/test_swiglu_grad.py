"""The gradients of gated linear units become one op, and the units with them; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import assert_refused, look, same_as_eager, values, wide

OP = "SwigluGrad"
A, B, D = (values((6, 10), seed=seed) for seed in (1, 2, 3))
Gate = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
GATES: dict[str, Gate] = {
    "silu": lambda a, b: tf.nn.silu(a) * b,
    "keras-silu": lambda a, b: b * keras.activations.silu(a),
    "by-sigmoid": lambda a, b: a * tf.sigmoid(a) * b,
}


def gradients(a: tf.Tensor, b: tf.Tensor, d: tf.Tensor, gate: Gate = GATES["silu"]) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        y = gate(a, b)
    return tape.gradient(y, [a, b], d)


def trained(a: tf.Tensor, b: tf.Tensor, gate: Gate = GATES["silu"]) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        y = gate(a, b)
        loss = tf.reduce_sum(tf.square(y))
    return loss, tape.gradient(loss, [a, b])


def both_ways(fn: Callable[..., Any], *args: Any, **more: Any) -> Any:
    seen = same_as_eager(fn, *args, **more)
    assert sorted(seen.fused) == [["Swiglu"], ["SwigluGrad"]], seen.explanation
    left = {node.op for node in seen.explanation.after}
    assert not left & {"Sigmoid", "SigmoidGrad", "AddN", "Sub", "IdentityN"}, left
    return seen


@pytest.mark.parametrize("name", GATES)
def test_training(name):
    """The unit's own ops have no readers left."""
    both_ways(lambda a, b: trained(a, b, GATES[name]), A, B, size=32.0)


@pytest.mark.parametrize("name", GATES)
def test_any_batch(name):
    def fn(a: tf.Tensor, w: tf.Tensor) -> Any:
        a = tf.exp(a)
        return trained(a, a * w, GATES[name])

    signature = [tf.TensorSpec([None, 10]), tf.TensorSpec([10])]
    seen = same_as_eager(fn, A, B[0], signature=signature, size=64.0)
    assert ["SwigluGrad"] in seen.fused, seen.explanation


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", GATES)
def test_half_precision_is_rounded_once(name, dtype):
    args = [tf.cast(v, dtype) for v in (A, B, D)]
    exact = gradients(*wide(args), GATES[name])
    seen = same_as_eager(lambda *args: gradients(*args, GATES[name]), *args, exact=exact)
    assert seen.fused == [["SwigluGrad"]], seen.explanation


def test_layers():
    """Two products of one tensor, and the weights' gradients."""
    w = [values((10, 4), seed=seed) for seed in (4, 5)]

    def fn(x: tf.Tensor, *w: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, *w])
            y = tf.nn.silu(tf.matmul(x, w[0])) * tf.matmul(x, w[1])
            loss = tf.reduce_sum(tf.square(y))
        return tape.gradient(loss, [x, *w])

    signature = [tf.TensorSpec([None, 10]), tf.TensorSpec([10, 4]), tf.TensorSpec([10, 4])]
    seen = same_as_eager(fn, A, *w, size=256.0)
    # The two gradients of x are added to one of the products.
    assert sorted(seen.fused) == [["Add"], ["Swiglu"], ["SwigluGrad"]], seen.explanation
    seen = same_as_eager(fn, A, *w, signature=signature, size=256.0)
    assert sorted(seen.fused) == [["Add"], ["SwigluGrad"]], seen.explanation


def test_unit_that_is_read_stays():
    """Its gradient does not need it."""

    def fn(a: tf.Tensor, b: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            s = tf.nn.silu(a)
            y = s * b
        return s, tape.gradient(y, [a, b])

    seen = same_as_eager(fn, A, B)
    assert seen.fused == [["SwigluGrad"]], seen.explanation


def test_in_a_loop():
    def fn(a: tf.Tensor, b: tf.Tensor) -> Any:
        for _ in tf.range(3):
            d_a, d_b = gradients(a, b, D)
            a, b = a - 0.1 * d_a, b - 0.1 * d_b
        return a, b

    function, expected = tf.function(fn), fn(A, B)
    with metal_ops.fusion.enabled(cpu=True):
        before = metal_ops.fusion.status()
        got = function(A, B)
        after = metal_ops.fusion.status()
    assert after.errors == before.errors and after.fused > before.fused
    for a, b in zip(expected, got, strict=True):
        tf.debugging.assert_near(a, b, atol=1e-5)


def up_needs_its_gradient(a: tf.Tensor, d: tf.Tensor) -> Any:
    """The factor of the gate depends on the other gradient."""
    silu = a * tf.sigmoid(a)
    d_up = d * silu
    t, s = d * tf.exp(d_up), tf.sigmoid(a)
    return t * s + tf.raw_ops.SigmoidGrad(y=s, dy=t * a), d_up, silu


NEAR: dict[str, tuple[str, Callable[..., Any], list[Any], str]] = {
    "circle": ("pair_circle", up_needs_its_gradient, [A, D], "which the new op reads, needs"),
    "double": ("dtype", gradients, [tf.cast(v, "float64") for v in (A, B, D)], "double"),
    "unknown": (
        "gate_shape",
        gradients,
        [tf.TensorSpec([None, 10]), tf.TensorSpec([None, 10]), tf.TensorSpec([None, 10])],
        "not provably the same",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, args, words = NEAR[name]
    assert_refused(OP, condition, words, fn, *args)


OTHERS: dict[str, Callable[..., Any]] = {
    "gate-alone": lambda a, b, d: gradients(a, b, d)[0],
    "another-beta": lambda a, b, d: gradients(a, b, d, lambda a, b: tf.nn.silu(a, 2.0) * b),
    "gelu": lambda a, b, d: gradients(a, b, d, lambda a, b: tf.nn.gelu(a) * b),
    "sigmoid": lambda a, b, d: gradients(a, b, d, lambda a, b: tf.sigmoid(a) * b),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_candidate(name):
    seen = same_as_eager(OTHERS[name], A, B, D, size=32.0)
    assert OP not in {node.op for node in seen.explanation.after}, seen.explanation


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"swiglu_grad"}
    seen = look(gradients, A, B, D, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'swiglu_grad'" in seen.reason("pattern_off")
