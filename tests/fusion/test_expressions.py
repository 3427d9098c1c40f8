"""Expressions that become one op: norms, gated units, attention, in every form and dtype; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import assert_rounded, look, same_as_eager, values, wide

DTYPES = ("float32", "float16", "bfloat16")
Tensors = tuple[tf.Tensor, ...]
C = 8


def spec(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape)


# ---- what is fused --------------------------------------------------------------------------------------------------


def mean(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(x, -1, keepdims=True)


def operand(x: tf.Tensor, shape: tuple[int, ...], seed: int) -> tf.Tensor:
    """In x's dtype; the same numbers in each."""
    return tf.cast(tf.cast(values(shape, seed=seed), "bfloat16"), x.dtype)


def vectors(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A scale and an offset."""
    return operand(x, (C,), 2), operand(x, (C,), 3)


def by_moments(x: tf.Tensor, offset: bool = True, scale: bool = True) -> tf.Tensor:
    g, b = vectors(x)
    m, v = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, m, v, b if offset else None, g if scale else None, 1e-3)


def by_hand(x: tf.Tensor) -> tf.Tensor:
    g, b = vectors(x)
    c = x - mean(x)
    return g * (c * tf.math.rsqrt(mean(tf.square(c)) + 1e-3)) + b


def rms(x: tf.Tensor) -> tf.Tensor:
    return x * tf.math.rsqrt(mean(x * x) + 1e-3)


def keras_layer(made: keras.layers.Layer) -> Callable[[tf.Tensor], tf.Tensor]:
    """With weights that are not 0 and 1."""
    made.build((None, None, C))
    for i, weight in enumerate(made.weights):
        weight.assign(values(tuple(weight.shape), seed=10 + i))
    return lambda x: made(x)


NORMS: dict[str, tuple[str, Callable[[tf.Tensor], tf.Tensor]]] = {
    "keras": ("LayerNorm", keras_layer(keras.layers.LayerNormalization())),
    "keras-bare": (
        "LayerNorm",
        keras_layer(keras.layers.LayerNormalization(center=False, scale=False)),
    ),
    "keras-rms": ("RmsNorm", keras_layer(keras.layers.RMSNormalization())),
    "tf.nn.batch_normalization": ("LayerNorm", by_moments),
    "without-offset": ("LayerNorm", lambda x: by_moments(x, offset=False)),
    "without-scale": ("LayerNorm", lambda x: by_moments(x, scale=False)),
    "by-hand": ("LayerNorm", by_hand),
    "rms": ("RmsNorm", lambda x: rms(x) * vectors(x)[0]),
    "rms-left": ("RmsNorm", lambda x: vectors(x)[0] * rms(x)),
    "rms-bare": ("RmsNorm", rms),
    "rms-of-square": (
        "RmsNorm",
        lambda x: x * (tf.math.rsqrt(mean(tf.square(x)) + 1e-3) * vectors(x)[0]),
    ),
    "rms-of-pow": ("RmsNorm", lambda x: rms_of_pow(x) + vectors(x)[1]),
    # The addition is none of the norm's.
    "rms-residual": ("RmsNorm", lambda x: rms(x) * vectors(x)[0] + tf.exp(x)),
    "of-a-difference": ("RmsNorm", lambda x: rms(x - vectors(x)[1])),
}


def rms_of_pow(x: tf.Tensor) -> tf.Tensor:
    return x * tf.math.rsqrt(mean(tf.pow(x, tf.cast(2.0, x.dtype))) + 1e-3)


def gated(x: tf.Tensor) -> Tensors:
    return x, operand(x, tuple(x.shape), 4)


def split(x: tf.Tensor) -> tf.Tensor:
    gate, up = tf.split(x, 2, axis=-1)
    return tf.nn.silu(gate) * up


GATES: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "tf.nn.silu": lambda x: tf.nn.silu(x) * gated(x)[1],
    "keras.silu": lambda x: gated(x)[1] * keras.activations.silu(x),
    "x-sigmoid": lambda x: x * tf.sigmoid(x) * gated(x)[1],
    "sigmoid-first": lambda x: (tf.sigmoid(x) * gated(x)[1]) * x,
    "split": split,
    "halves-exchanged": lambda x: (parts := tf.split(x, 2, axis=-1))[0] * tf.nn.silu(parts[1]),
    "squared": lambda x: tf.nn.silu(x) * x,
}


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, scale: Any = 0.4, bias: Any = None) -> Any:
    s = tf.matmul(q, k, transpose_b=True)
    s = s if scale is None else s * tf.cast(scale, s.dtype)
    s = s if bias is None else s + tf.cast(bias, s.dtype)
    return tf.matmul(tf.nn.softmax(s), v)


def qkv(dtype: str = "float32", heads: tuple[int, ...] = (3,)) -> Tensors:
    """7 queries, 5 keys; sizes 8 and 6."""
    q, k, v = (values((2, *heads, *s), dtype, s[0]) for s in ((7, 8), (5, 8), (5, 6)))
    return q, k, v


def by_transposes(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """[batch, length, heads, size], as projections give it."""
    q, k, v = (tf.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
    columns = tf.transpose(k, [0, 1, 3, 2])
    return tf.transpose(tf.matmul(tf.nn.softmax(tf.matmul(q, columns) / 2.0), v), [0, 2, 1, 3])


def by_einsum(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """As older releases of Keras write it."""
    weights = tf.nn.softmax(tf.einsum("aecd,abcd->acbe", k, q) * 0.25)
    return tf.einsum("acbe,aecd->abcd", weights, v)


def einsum_of_three(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """The result turned round."""
    return tf.einsum("bsv,bts->bvt", v, tf.nn.softmax(tf.einsum("btd,bsd->bts", q, k)))


BIAS = operand(tf.constant(0.0), (2, 1, 7, 5), 7)
MASK = BIAS > 0.0
LENGTH_FIRST = [tf.transpose(t, [0, 2, 1, 3]) for t in qkv()]
ATTENTIONS: dict[str, tuple[list[str], Callable[..., tf.Tensor], Any]] = {
    "plain": ([], lambda *t: attend(*t, scale=None), qkv()),
    "scale": (["Scale"], attend, qkv()),
    "by-root": (["Scale"], lambda *t: attend(*t, scale=1 / tf.sqrt(8.0)), qkv()),
    "bias": (["Scale", "Add"], lambda *t: attend(*t, bias=BIAS), qkv()),
    "bias-of-two": (["Scale", "Add"], lambda *t: attend(*t, bias=BIAS[0, 0]), qkv()),
    "bias-of-keys": (["Add"], lambda *t: attend(*t, scale=None, bias=BIAS[0, 0, 0]), qkv()),
    "mask": (["Scale", "Mask"], lambda *t: masked(*t, MASK), qkv()),
    "mask-inverted": (["Scale", "Mask"], lambda *t: masked(*t, MASK[0], True), qkv()),
    # No query sees a key: softmax gives all the same weight.
    "nothing-seen": (["Scale", "Mask"], lambda *t: masked(*t, MASK & False), qkv()),
    "three": (["Scale"], attend, qkv(heads=())),
    "three-bias": (["Scale", "Add"], lambda *t: attend(*t, bias=BIAS[:, 0]), qkv(heads=())),
    "three-mask": (["Scale", "Mask"], lambda *t: masked(*t, MASK[0, 0]), qkv(heads=())),
    "transposes": (["Scale"], by_transposes, LENGTH_FIRST),
    "einsum": (["Scale"], by_einsum, LENGTH_FIRST),
    "einsum-of-three": ([], einsum_of_three, qkv(heads=())),
    "identities": ([], lambda q, k, v: passed_on(q, k, v), qkv()),
}


def masked(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: Any, inverted: bool = False) -> Any:
    s = tf.matmul(q, k, transpose_b=True) * 3.0
    low = tf.constant(-1e9, s.dtype)
    s = tf.where(tf.logical_not(mask), low, s) if inverted else tf.where(mask, s, low)
    return tf.matmul(tf.nn.softmax(s), v)


def passed_on(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    s = tf.identity(tf.matmul(q, k, transpose_b=True))
    return tf.matmul(tf.identity(tf.nn.softmax(s)), v)


def one_node(fn: Callable[..., Any], args: Any, op: str, fused_ops: list[str], **more: Any) -> None:
    """The report, and that none of the unfused ops are left."""
    seen = same_as_eager(fn, *args, **more)
    assert seen.fused == [fused_ops], seen.explanation
    assert [fusion.fused_op for fusion in seen.explanation.fused] == [op]
    assert not seen.explanation.missed
    ops = {node.op for node in seen.explanation.after}
    assert op in ops and not ops & {"Rsqrt", "Mean", "Sigmoid", "Softmax", "BatchMatMulV2"}


@pytest.mark.parametrize("shape", [(2, 5, C), (3, C)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name, shape):
    kind, fn = NORMS[name]
    if "keras" in name and len(shape) == 2:
        fn = keras_layer(type(NORMS[name][1].__closure__[0].cell_contents)())
    one_node(fn, [values(shape, seed=1)], "RowNorm", [kind])


@pytest.mark.parametrize("name", GATES)
def test_gates(name):
    one_node(GATES[name], [values((2, 3, C), seed=1)], "Swiglu", ["Swiglu"])


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name):
    steps, fn, args = ATTENTIONS[name]
    one_node(fn, args, "ScaledDotProductAttention", ["MatMul", *steps, "Softmax", "MatMul"])


def test_split_goes_with_the_gate():
    """The op takes both halves as they lie; where one of them is read elsewhere too, the split stays."""
    x = values((2, 3, C))
    for fn, splits in ((split, 0), (lambda x: split(x) + tf.split(x, 2, -1)[0], 1)):
        seen = same_as_eager(fn, x)
        assert sum(node.op == "Split" for node in seen.explanation.after) == splits
    seen = same_as_eager(lambda x: (p := tf.split(x, 2, -1), tf.nn.silu(p[0]) * p[1] + p[1])[1], x)
    assert seen.fused == [["Swiglu"]]
    assert "Split" in {node.op for node in seen.explanation.after}


HALF: dict[str, tuple[Callable[..., Any], Any]] = {
    "layer-norm": (by_moments, [values((2, 5, C), seed=1)]),
    "rms-norm": (rms, [values((2, 5, C), seed=1)]),
    "swiglu": (GATES["x-sigmoid"], [values((2, 5, C), seed=1)]),
    "split": (split, [values((2, 5, C), seed=1)]),
    "attention": (attend, qkv()),
    "attention-bias": (ATTENTIONS["bias-of-two"][1], qkv()),
}


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_rounded_once(name, dtype):
    fn, args = HALF[name]
    args = [tf.cast(arg, dtype) for arg in args]
    seen = same_as_eager(fn, *args, exact=fn(*wide(args)), before=0.02 if name != "swiglu" else 0.0)
    assert len(seen.fused) == 1, seen.explanation


@pytest.mark.parametrize(
    "fn, args, signature",
    [
        (by_moments, [values((2, 5, C))], [spec(None, None, C)]),
        (rms, [values((2, 5, C))], [spec(None, None, C)]),
        (split, [values((2, 5, C))], [spec(None, None, C)]),
        (attend, qkv(heads=()), [spec(2, None, 8), spec(2, None, 8), spec(2, None, 6)]),
        (by_einsum, LENGTH_FIRST, [spec(None, None, 3, s) for s in (8, 8, 6)]),
        (NORMS["keras"][1], [values((2, 5, C))], [spec(None, None, C)]),
    ],
    ids=["layer-norm", "rms-norm", "split", "attention", "einsum", "keras"],
)
def test_sizes_that_are_known_late(fn, args, signature):
    assert len(same_as_eager(fn, *args, signature=signature).fused) == 1
    for size in (1, 0):  # no row, or no sequence
        some = [arg[:size] if signature[0].shape[0] is None else arg[:, :size] for arg in args]
        if size or fn is not attend:
            assert len(same_as_eager(fn, *some, signature=signature).fused) == 1


@pytest.mark.parametrize("v2", [True, False], ids=["while-v2", "while-v1"])
def test_in_loops(v2):
    """Constants that are made for the new op belong to each turn."""
    q, k, v = qkv()

    def body(x):
        return rms(split(tf.concat([attend(x, k, k, bias=BIAS), x], -1)))

    def loop(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, body(x)), [0, x])[1]

    function = tf.function(loop, autograph=False)
    if not v2:
        function = tf.compat.v1.wrap_function(loop, [tf.TensorSpec(q.shape)])
    before = metal_ops.fusion.status()
    with metal_ops.fusion.enabled(cpu=True):
        got = function(q)
    after = metal_ops.fusion.status()
    assert after.fused - before.fused == 3 and after.errors == before.errors
    np.testing.assert_allclose(got, body(body(body(q))), rtol=0, atol=2e-5)


# ---- what is left as it is ------------------------------------------------------------------------------------------

X = values((2, 5, C), seed=1)
Q, K, V = qkv()


@dataclass
class Pair:
    """A graph that is fused, and a mutation that must not be."""

    condition: str
    fuses: Callable[..., Any]
    does_not: Callable[..., Any]
    args: Any = (X,)
    name: str = ""
    words: str = ""

    def __str__(self) -> str:
        return f"{self.condition}-{self.name}"


def norm_over(x: tf.Tensor, axis: Any, keepdims: bool = True) -> tf.Tensor:
    s = tf.reduce_mean(x * x, axis, keepdims)
    return x * tf.math.rsqrt((s if keepdims else s[..., None]) + 1e-3)


def waiting(x: tf.Tensor, waits: bool) -> tf.Tensor:
    effect = tf.raw_ops.Print(input=x, data=[x], first_n=0)
    with tf.control_dependencies([effect] if waits else []):
        square = tf.square(x)
    return x * tf.math.rsqrt(mean(square) + 1e-3) + 0.0 * effect


def gate_of(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.nn.silu(x) * y


PAIRS = [
    Pair(
        "norm_axis", rms, lambda x: norm_over(x, 1), name="another", words="[1], expected the last"
    ),
    Pair("norm_axis", rms, lambda x: norm_over(x, [1, 2]), name="two", words="[1, 2]"),
    Pair("norm_shape", rms, lambda x: norm_over(x[0, 0], 0), name="vector", words="[8]"),
    Pair(
        "norm_epsilon",
        rms,
        lambda x: x * tf.math.rsqrt(mean(x * x) + x[0, 0, 0] ** 2),
        name="computed",
        words="no constant",
    ),
    Pair(
        "one_consumer",
        rms,
        lambda x: (s := mean(x * x), x * tf.math.rsqrt(s + 1e-3) + tf.exp(s))[1],
        name="mean-of-norm",
    ),
    Pair(
        "fetched",
        rms,
        lambda x: (r := tf.math.rsqrt(mean(x * x) + 1e-3), x * r),
        name="factor-of-norm",
    ),
    Pair(
        "bias_shape",
        lambda x: by_hand(x),
        lambda x: (c := x - mean(x), c * (tf.math.rsqrt(mean(c * c) + 1e-3) * X[:, :1]))[1],
        name="scale-of-norm",
        words="The scale",
    ),
    Pair("control_edge", lambda x: waiting(x, False), lambda x: waiting(x, True), name="in-norm"),
    Pair(
        "dtype",
        rms,
        lambda x: rms(tf.cast(x, "float64")),
        name="of-norm",
        words="double",
    ),
    Pair(
        "fetched",
        lambda x: tf.nn.silu(x) * X,
        lambda x: (s := tf.nn.silu(x), s * X),
        name="of-gate",
    ),
    Pair(
        "dtype",
        lambda x: tf.nn.silu(x) * X,
        lambda x: tf.nn.silu(tf.cast(x, "float64")) * tf.cast(X, "float64"),
        name="of-gate",
    ),
    Pair(
        "one_consumer",
        lambda x: tf.nn.silu(x) * X,
        lambda x: (s := tf.nn.silu(x), s * s)[1],
        name="gate-is-up",
        words="twice",
    ),
    Pair(
        "attention_scale",
        attend,
        lambda q, k, v: attend(q, k, v, scale=q[0, 0, 0, 0]),
        (Q, K, V),
        name="computed",
        words="no constant number",
    ),
    Pair(
        "attention_bias",
        lambda q, k, v: attend(q, k, v, bias=BIAS),
        lambda q, k, v: attend(q, k, v, bias=BIAS[0, 0, 0, 0]),
        (Q, K, V),
        name="scalar",
    ),
    Pair(
        "attention_bias",
        lambda q, k, v: attend(q, k, v, bias=BIAS),
        # Scaled, TensorFlow's own remapper would give this a batch of 1.
        lambda q, k, v: attend(q[:1], k[:1], v[:1], scale=None, bias=BIAS),
        (Q, K, V),
        name="broadcasts-scores",
        words="[2, 1, 7, 5]",
    ),
    Pair(
        "attention_mask",
        lambda *t: masked(*t, MASK),
        lambda q, k, v: attend_where(q, k, v, -100.0),
        (Q, K, V),
        name="small",
        words="-10000",
    ),
    Pair(
        "attention_mask",
        lambda *t: masked(*t, MASK),
        lambda q, k, v: attend_where(q, k, v, float("-inf")),
        (Q, K, V),
        name="infinite",
        words="finite",
    ),
    Pair(
        "attention_mask",
        lambda *t: masked(*t, MASK),
        lambda q, k, v: attend_where(q, k, v, -1e9, BIAS),
        (Q, K, V),
        name="and-bias",
        words="with a bias",
    ),
    Pair(
        "attention_shape",
        attend,
        lambda q, k, v: attend(tf.tile(q, [1, 1, 1, 33]), tf.tile(k, [1, 1, 1, 33]), v),
        (Q, K, V),
        name="size",
        words="1 to 256",
    ),
    Pair(
        "attention_shape",
        attend,
        lambda q, k, v: attend(q, k[:1], v),
        (Q, K, V),
        name="batches",
        words="the same batches",
    ),
    Pair(
        "fetched",
        attend,
        lambda q, k, v: (w := tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), tf.matmul(w, v)),
        (Q, K, V),
        name="weights",
        words="The function returns 'Softmax'",
    ),
    Pair(
        "one_consumer",
        attend,
        lambda q, k, v: (
            s := tf.matmul(q, k, transpose_b=True),
            tf.matmul(tf.nn.softmax(s), v) * tf.reduce_max(s),
        )[1],
        (Q, K, V),
        name="scores",
    ),
    Pair(
        "dtype",
        attend,
        lambda *t: attend(*(tf.cast(each, "float64") for each in t)),
        (Q, K, V),
        name="of-attention",
    ),
]


def attend_where(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, low: float, bias: Any = None) -> Any:
    s = tf.matmul(q, k, transpose_b=True)
    s = tf.where(MASK, s if bias is None else s + bias, low)
    return tf.matmul(tf.nn.softmax(s), v)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pair(pair: Pair):
    ops = ("RowNorm", "Swiglu", "ScaledDotProductAttention")
    seen = same_as_eager(pair.fuses, *pair.args)
    assert [f.fused_op for f in seen.explanation.fused if f.fused_op in ops], seen.explanation
    assert not seen.explanation.missed
    mutated = same_as_eager(pair.does_not, *pair.args)
    assert not [f for f in mutated.explanation.fused if f.fused_op in ops], mutated.explanation
    assert pair.condition in mutated.conditions, mutated.explanation
    assert pair.words in mutated.reason(pair.condition), mutated.reason(pair.condition)


UNKNOWN = [
    # (condition, function, signature that fuses, signature that does not, arguments)
    ("norm_shape", rms, [spec(None, None, C)], [spec(None, None, None)], [X]),
    (
        "gate_shape",
        gate_of,
        [spec(2, 5, C), spec(2, 5, C)],
        [spec(None, 5, C), spec(None, 5, C)],  # either may be 1
        [X, X],
    ),
    (
        "attention_shape",
        attend,
        [spec(2, None, None, 8), spec(2, None, None, 8), spec(2, None, None, 6)],
        None,
        [Q, K, V],
    ),
    (
        "attention_shape",
        lambda q, k, v: attend(q, k, v),
        [spec(2, 3, None, 8), spec(2, 3, None, 8), spec(2, 3, None, 6)],
        [spec(2, 3, None, 8), spec(2, 3, None, 8), spec(2, 3, None, None)],
        [Q, K, V],
    ),
    (
        "attention_shape",
        lambda q, k, v: attend(q, k, v),
        [spec(2, 3, 7, 8), spec(2, 3, None, 8), spec(2, 3, None, 6)],
        [spec(None, 3, 7, 8), spec(None, 3, 5, 8), spec(None, 3, 5, 6)],  # any of them may be 1
        [Q, K, V],
    ),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case[0])
def test_unknown_shapes(case):
    condition, fn, good, bad, args = case
    fused = len(same_as_eager(fn, *args, signature=good).fused)
    if bad is None:  # heads that may differ
        assert fused == 0
        return
    assert fused == 1
    seen = same_as_eager(fn, *args, signature=bad)
    assert not seen.fused and condition in seen.conditions, seen.explanation


def test_shape_of_what_vanishes():
    """Keras makes its mask in the scores' shape: where that is unknown it asks them."""

    def fn(q, k, v):
        s = tf.matmul(q, k, transpose_b=True)
        s = s + tf.zeros(tf.shape(s)[-2:])
        return tf.matmul(tf.nn.softmax(s), v)

    signature = [spec(2, 3, None, 8), spec(2, 3, None, 8), spec(2, 3, None, 6)]
    seen = same_as_eager(fn, Q, K, V, signature=signature)
    assert not seen.fused and seen.conditions & {"attention_bias", "shape_asked"}


def test_gradients_keep_what_they_read():
    """A training step reads weights and means again: then they are made. A gate's own op reads no such thing."""

    def step(q, k, v, x):
        with tf.GradientTape() as tape:
            tape.watch([q, k, v, x])
            results = attend(q, k, v), by_moments(x), split(x)
            loss = tf.add_n([tf.reduce_sum(tf.square(y)) for y in results])
        return loss, tape.gradient(loss, [q, k, v, x])

    seen = same_as_eager(step, Q, K, V, X, size=64.0)
    left = {node.op for node in seen.explanation.after}
    assert not {"RowNorm", "ScaledDotProductAttention"} & left
    assert {"Swiglu", "SwigluGrad"} <= left
    assert "one_consumer" in seen.conditions


def test_what_is_no_candidate_is_not_mentioned():
    """A classifier's softmax, a gate that is broadcast, the root of a variance."""

    def fn(x):
        weights = tf.nn.softmax(x[..., 0])
        return tf.nn.silu(x) * weights[..., None] + tf.math.rsqrt(tf.abs(x[..., :1]) + 1.0)

    seen = same_as_eager(fn, X)
    assert not seen.fused and not seen.explanation.missed


def test_float16_has_no_number_for_a_mask():
    args = [tf.cast(each, "float16") for each in (Q, K, V)]

    def fn(q, k, v):
        scores = tf.where(MASK, tf.matmul(q, k, transpose_b=True), -6e4)
        return tf.matmul(tf.nn.softmax(scores), v)

    seen = look(fn, *args)
    assert not seen.fused and "in half" in seen.reason("attention_mask")
    assert len(look(fn, *wide(args)).fused) == 1


def test_norms_take_switches():
    others = {p.name for p in metal_ops.fusion.patterns()}
    for name, fn, args in (
        ("norm", rms, [X]),
        ("swiglu", split, [X]),
        ("attention", attend, [Q, K, V]),
    ):
        seen = look(fn, *args, patterns=others - {name})
        assert not seen.fused and "pattern_off" in seen.conditions
        assert len(look(fn, *args).fused) == 1


def test_control_half_precision():
    """A scale that is forgotten, or a mean that is not taken off, is noticed."""
    x = values((4, C), "float16")
    exact = by_moments(wide(x))
    for wrong in (by_moments(x, scale=False), rms(x) * vectors(x)[0] + vectors(x)[1]):
        with pytest.raises(AssertionError, match="off by"):
            assert_rounded(wrong, exact, before=0.02)


def test_keras_multi_head_attention():
    layer = keras.layers.MultiHeadAttention(2, 4)
    x = values((2, 5, C), seed=1)
    layer.build(x.shape, x.shape)
    one = ["MatMul", "Scale", "Softmax", "MatMul"]
    assert one in same_as_eager(lambda x: layer(x, x), x).fused
    assert one in same_as_eager(lambda x: layer(x, x), x, signature=[spec(None, None, C)]).fused
    causal = same_as_eager(lambda x: layer(x, x, use_causal_mask=True), x)
    assert [*one[:2], "Mask", *one[2:]] in causal.fused


# ---- against float64 ------------------------------------------------------------------------------------------------

EXACT: dict[str, tuple[Callable[..., Any], Any]] = {
    "layer-norm": (by_moments, [values((64, 33, C), seed=1)]),
    "rms-norm": (rms, [values((64, 33, C), seed=1)]),
    "swiglu": (GATES["x-sigmoid"], [values((64, 33, C), seed=1)]),
    "attention": (attend, [values((2, 3, n, 16), seed=n) * 4.0 for n in (65, 67, 67)]),
    "einsum": (by_einsum, [values((2, n, 3, 16), seed=n) for n in (65, 67, 67)]),
    "mish": (
        lambda x: keras.activations.mish(tf.matmul(x, operand(x, (C, 33), 5))),
        [values((64, C), seed=1) * 4.0],
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_as_exact_as_unfused(name):
    """Median error beside float64: both are rounding, in sums of another order."""
    fn, args = EXACT[name]
    exact = np.asarray(fn(*(tf.cast(arg, tf.float64) for arg in args)))
    assert exact.dtype == np.float64
    function = tf.function(fn, autograph=False)
    before = metal_ops.fusion.status().fused
    with metal_ops.fusion.enabled(cpu=True):
        fused = function(*args)
    assert metal_ops.fusion.status().fused == before + 1
    with metal_ops.fusion.disabled():
        unfused = tf.function(fn, autograph=False)(*args)
    errors = [np.median(np.abs(np.asarray(y, np.float64) - exact)) for y in (fused, unfused)]
    assert 0 < errors[0] <= 1.2 * errors[1], errors
