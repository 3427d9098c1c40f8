"""The gradient of rotary positions becomes one op, as tapes write it; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import assert_refused, look, same_as_eager, values, wide
from tests.fusion.test_rope import COS, FORMS, OP, SIN, X, apply, hugging_face

D = values((2, 6, 3, 8), seed=4)
LEFT = {"Neg", "Slice", "Unpack", "StridedSliceGrad", "AddN", "ConcatV2"}


def trained(name: str) -> Callable[[tf.Tensor], Any]:
    def fn(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.square(apply(FORMS[name][0], x))
        return y, tape.gradient(y, x)

    return fn


def gradient(d: tf.Tensor, x: tf.Tensor, name: str = "hugging-face", **tables: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = apply(FORMS[name][0], x, **tables)
    return tape.gradient(y, x, d)


def both_ways(fn: Callable[..., Any], *args: Any, interleaved: bool = False, **more: Any) -> Any:
    seen = same_as_eager(fn, *args, **more)
    assert sorted(seen.fused) == [["Rope"], ["RopeGrad"]], seen.explanation
    assert not seen.explanation.missed
    nodes = [node for node in seen.explanation.after if node.op == OP]
    assert sorted(node.attrs["backward"].lower() for node in nodes) == ["false", "true"]
    assert {node.attrs["interleaved"].lower() for node in nodes} == {str(interleaved).lower()}
    assert not {node.op for node in seen.explanation.after} & LEFT
    return seen


@pytest.mark.parametrize("name", FORMS)
def test_training(name):
    both_ways(trained(name), X, interleaved=FORMS[name][1], size=32.0)


@pytest.mark.parametrize("name", ["keras-hub", "hugging-face"])
def test_any_batch(name):
    """Nothing asks the embedding's own nodes for their shapes any more: it is one op, too."""
    both_ways(trained(name), X, signature=[tf.TensorSpec([None, 6, 3, 8])], size=32.0)


@pytest.mark.parametrize("name", FORMS)
def test_nothing_is_known(name):
    """Tensors that are not provably of one shape stay, and results are right."""
    same_as_eager(trained(name), X, signature=[tf.TensorSpec([None, None, 3, 8])], size=32.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_half_precision_is_rounded_once(name, dtype):
    d, x, cos, sin = (tf.cast(v, dtype) for v in (D, X, COS, SIN))
    exact = gradient(
        *wide([d, x]), name, **dict(zip(("cos", "sin"), wide([cos, sin]), strict=True))
    )
    seen = same_as_eager(lambda d, x: gradient(d, x, name, cos=cos, sin=sin), d, x, exact=exact)
    assert seen.fused == [["RopeGrad"]], seen.explanation


def test_learned_tables():
    """Their own gradients stay."""

    def fn(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, cos, sin])
            y = tf.square(apply(hugging_face, x, cos, sin))
        return tape.gradient(y, [x, cos, sin])

    seen = same_as_eager(
        fn, X, values((2, 6, 3, 8), seed=5), values((2, 6, 3, 8), seed=6), size=64.0
    )
    assert ["RopeGrad"] in seen.fused, seen.explanation


def test_queries_and_keys():
    """Two of them, whose gradients are added."""

    def fn(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            q, k = apply(hugging_face, x * 2.0), apply(FORMS["keras-hub"][0], x * 3.0)
            y = tf.matmul(q, k, transpose_b=True)
        return tape.gradient(y, x)

    seen = same_as_eager(fn, X, size=256.0)
    assert sorted(seen.fused) == [["Rope"]] * 2 + [["RopeGrad"]] * 2, seen.explanation


def test_a_table_that_differs_in_its_halves():
    """Sines are those of where an element comes from."""
    assert not bool(tf.reduce_all(SIN[..., :4] == SIN[..., 4:]))
    seen = same_as_eager(gradient, D, X)
    assert seen.fused == [["RopeGrad"]], seen.explanation


def with_parts(d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    z = d * SIN
    z1, z2 = tf.split(z, 2, -1)
    minus = -z1
    return d * COS + tf.concat([z2, minus], -1), z, minus


def test_by_hand():
    """With AddV2 and Split."""
    seen = same_as_eager(lambda d: with_parts(d)[0], D)
    assert seen.fused == [["RopeGrad"]], seen.explanation


def read(d: tf.Tensor) -> Any:
    y, _, minus = with_parts(d)
    return y, tf.exp(minus)


NEAR: dict[str, tuple[str, Callable[[tf.Tensor], Any], Any, str]] = {
    "product-returned": ("fetched", lambda d: with_parts(d)[:2], D, "The function returns"),
    "negated-read": ("one_consumer", read, D, "one of them 'Exp'"),
    "double": (
        "dtype",
        lambda d: gradient(d, tf.cast(X, d.dtype)),
        tf.cast(D, "float64"),
        "double",
    ),
    "one-cosine": (
        "rope_shape",
        lambda d: gradient(d, X, cos=COS[..., :1]),
        D,
        "the last one of 8",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, arg, words = NEAR[name]
    assert_refused(OP, condition, words, fn, arg)


def halves(z: tf.Tensor) -> list[tf.Tensor]:
    return tf.split(z, 2, -1)


OTHERS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "forward-of-a-product": lambda z: tf.concat([-halves(z)[1], halves(z)[0]], -1),
    "not-turned": lambda z: tf.concat([-halves(z)[0], halves(z)[1]], -1),
    "first-twice": lambda z: tf.concat([halves(z)[0], -halves(z)[0]], -1),
    "another-axis": lambda z: tf.concat([tf.split(z, 2, 1)[1], -tf.split(z, 2, 1)[0]], 1),
    "neighbours-to-halves": lambda z: tf.concat([z[..., 1::2], -z[..., ::2]], -1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_candidate_is_not_mentioned(name):
    seen = same_as_eager(lambda d: d * COS + OTHERS[name](d * SIN), D)
    assert not seen.fused and not seen.explanation.missed, seen.explanation


def test_of_two_gradients():
    """The sines' and the cosines' are not the same one."""
    seen = same_as_eager(
        lambda d, x: x * COS + tf.concat([halves(d * SIN)[1], -halves(d * SIN)[0]], -1), D, X
    )
    assert not seen.fused, seen.explanation


def test_where_x_was_broadcast():
    """Its gradient is summed."""
    seen = same_as_eager(lambda d: gradient(d, X[:, :1]), D, size=64.0)
    assert not seen.fused, seen.explanation


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"rope_grad"}
    seen = look(gradient, D, X, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'rope_grad'" in seen.reason("pattern_off")
