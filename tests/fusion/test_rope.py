"""Rotary positions in elementary ops become one op, as libraries write them; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import metal_ops
from tests.fusion.harness import assert_refused, look, same_as_eager, values, wide

OP = "MetalRopeTables"
X, COS, SIN = values((2, 6, 3, 8), seed=1), values((1, 6, 1, 8), seed=2), values((6, 1, 8), seed=3)
Turn = Callable[[tf.Tensor], tf.Tensor]


def keras_hub(x: tf.Tensor) -> tf.Tensor:
    x1, x2 = ops.split(x, 2, axis=-1)
    return ops.reshape(ops.stack((-x2, x1), axis=-2), ops.shape(x))


def hugging_face(x: tf.Tensor) -> tf.Tensor:
    x1, x2 = tf.split(x, 2, axis=-1)
    return tf.concat((-x2, x1), axis=-1)


def slices(x: tf.Tensor) -> tf.Tensor:
    half = x.shape[-1] // 2
    return tf.concat([-x[..., half:], x[..., :half]], -1)


def full_slices(x: tf.Tensor) -> tf.Tensor:
    return tf.concat([-x[:, :, :, -4:], x[:, :, :, :-4]], 3)


def every_two(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.stack([-x[:, :, :, 1::2], x[:, :, :, ::2]], -1), tf.shape(x))


def apply(turn: Turn, x: tf.Tensor, cos: Any = COS, sin: Any = SIN) -> tf.Tensor:
    return x * tf.cast(cos, x.dtype) + turn(x) * tf.cast(sin, x.dtype)


FORMS: dict[str, tuple[Turn, bool]] = {
    "keras-hub": (keras_hub, False),
    "hugging-face": (hugging_face, False),
    "slices": (slices, False),
    "full-slices": (full_slices, False),
    "every-two": (every_two, True),
}


def one_rope(fn: Callable[..., Any], *args: Any, interleaved: bool = False, **more: Any) -> Any:
    seen = same_as_eager(fn, *args, **more)
    assert seen.fused == [["Rope"]] and not seen.explanation.missed, seen.explanation
    (node,) = [node for node in seen.explanation.after if node.op == OP]
    assert node.attrs["interleaved"].lower() == str(interleaved).lower()
    left = {node.op for node in seen.explanation.after}
    assert not left & {"Neg", "Split", "ConcatV2", "AddV2", "Mul"}
    return seen


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    turn, interleaved = FORMS[name]
    one_rope(lambda x: apply(turn, x), X, interleaved=interleaved)
    # In another order.
    one_rope(lambda x: SIN * tf.identity(turn(x)) + COS * x, X, interleaved=interleaved)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    x, cos, sin = (tf.cast(v, dtype) for v in (X, COS, SIN))
    exact = apply(hugging_face, *wide([x, cos, sin]))
    one_rope(lambda x: apply(hugging_face, x, cos, sin), x, exact=exact)


def tables(length: tf.Tensor) -> list[tf.Tensor]:
    """As layers make them, whose shapes nothing says."""
    w = tf.cast(tf.range(length), tf.float32)[:, None, None] * [0.5, 0.25, 3.0, 1.0]
    w = tf.concat([w, w], -1)
    return [tf.cos(w), tf.sin(w)]


@pytest.mark.parametrize("name", ["hugging-face", "slices"])
def test_batch_and_length_known_late(name):
    def fn(x: tf.Tensor) -> tf.Tensor:
        return apply(FORMS[name][0], x, *tables(tf.shape(x)[1]))

    seen = same_as_eager(fn, X, signature=[tf.TensorSpec([None, None, 3, 8])])
    assert ["Rope"] in seen.fused, seen.explanation


@pytest.mark.parametrize("name", ["keras-hub", "every-two"])
def test_batch_known_late(name):
    turn, interleaved = FORMS[name]
    one_rope(
        lambda x: apply(turn, x), X, interleaved=interleaved,
        signature=[tf.TensorSpec([None, 6, 3, 8])],
    )  # fmt: skip


def test_x_is_broadcast():
    """The turned one, too, as the elementary ops do it."""
    one_rope(lambda x: apply(hugging_face, x), X[:, :1])
    one_rope(lambda x: apply(hugging_face, x), X[0, 0, 0])


def attention(x: tf.Tensor) -> Any:
    """Queries and keys by the same tables, and part of a row alone."""
    q, k = apply(keras_hub, x), apply(keras_hub, x * 2.0)
    part = tf.concat([apply(hugging_face, x[..., :4], COS[..., :4], SIN[..., :4]), x[..., 4:]], -1)
    return tf.matmul(q, k, transpose_b=True), part


def test_several():
    seen = same_as_eager(attention, X, size=32.0)
    assert seen.fused == [["Rope"]] * 3, seen.explanation


def returned(x: tf.Tensor) -> Any:
    turned = hugging_face(x)
    return x * COS + turned * SIN, turned


def read_twice(x: tf.Tensor) -> Any:
    x1, x2 = tf.split(x, 2, axis=-1)
    return x * COS + tf.concat((-x2, x1), axis=-1) * SIN, tf.exp(x2)


def asked(x: tf.Tensor) -> Any:
    x1, x2 = tf.split(x, 2, axis=-1)
    return x * COS + tf.concat((-x2, x1), axis=-1) * SIN, tf.raw_ops.Shape(input=x2)


ANY = tf.TensorSpec([None, None, 3, 8])
NEAR: dict[str, tuple[str, Callable[[tf.Tensor], Any], Any, str]] = {
    "returned": ("fetched", returned, X, "The function returns"),
    "read-twice": ("one_consumer", read_twice, X, "needs output 1 of"),
    "half-asked-for-its-shape": (
        "one_consumer",
        asked,
        tf.TensorSpec([None, 6, 3, 8]),
        "needs output 1",
    ),
    "reshaped-to-what-is-unknown": (
        "rope_shape",
        lambda x: apply(keras_hub, x),
        ANY,
        "not provably the same",
    ),
    "one-cosine": (
        "rope_shape",
        lambda x: apply(hugging_face, x, COS[..., :1]),
        X,
        "expected at most four dimensions, the last one of 8",
    ),
    "five-dimensions": (
        "rope_shape",
        lambda x: apply(hugging_face, x, COS[..., :1, :], SIN),
        tf.TensorSpec([2, 1, 6, 3, 8]),
        "at most four dimensions",
    ),
    "double": ("dtype", lambda x: apply(hugging_face, x), tf.cast(X, "float64"), "double"),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, arg, words = NEAR[name]
    assert_refused(OP, condition, words, fn, arg)


def halves(x: tf.Tensor) -> list[tf.Tensor]:
    return tf.split(x, 2, axis=-1)


OTHERS: dict[str, Turn] = {
    "the-other-way": lambda x: tf.concat([halves(x)[1], -halves(x)[0]], -1),
    "first-negated": lambda x: tf.concat([-halves(x)[0], halves(x)[1]], -1),
    "another-axis": lambda x: tf.concat([-x[:, :, :, 4:], x[:, :, :, :4]], -1)[:, ::-1],
    "split-elsewhere": lambda x: tf.concat([-tf.split(x, 2, 1)[1], tf.split(x, 2, 1)[0]], 1),
    "uneven": lambda x: tf.concat([-x[..., 3:], x[..., :3]], -1),
    "shifted": lambda x: tf.concat([-x[..., 3:7], x[..., :4]], -1),
    "not-all-rows": lambda x: tf.concat([-x[:, ::-1, :, 4:], x[:, :, :, :4]], -1),
    "every-two-of-halves": lambda x: tf.reshape(tf.stack([-x[..., 4:], x[..., :4]], -1), x.shape),
    "odd-first": lambda x: tf.reshape(tf.stack([-x[..., ::2], x[..., 1::2]], -1), x.shape),
    "of-another": lambda x: hugging_face(x * 2.0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_candidate_is_not_mentioned(name):
    seen = same_as_eager(lambda x: apply(OTHERS[name], x), X)
    assert not seen.fused and not seen.explanation.missed, seen.explanation


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"rope"}
    seen = look(lambda x: apply(hugging_face, x), X, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'rope'" in seen.reason("pattern_off")


def test_values_are_those_of_rope():
    """The result of this library's own op."""
    w = np.arange(6)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    w = np.concatenate([w, w], -1)[:, None].astype("f")
    with metal_ops.fusion.enabled(cpu=True):
        got = tf.function(lambda x: apply(hugging_face, x, np.cos(w), np.sin(w)))(X)
    expected = metal_ops.rope(tf.transpose(X, [0, 2, 1, 3]))
    np.testing.assert_allclose(got, tf.transpose(expected, [0, 2, 1, 3]), atol=1e-5)
