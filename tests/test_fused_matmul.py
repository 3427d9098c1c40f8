"""MetalFusedMatMul and metal_ops.fused_matmul against float64: values, gradients, bad arguments, threads."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.fused_cases import (
    ACTIVATIONS,
    CHAINS,
    DTYPES,
    SOME,
    Chain,
    assert_close,
    numpy_type,
    rounded,
)
from tests.oracles import fused, numeric

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# a [..., m, k] and b [..., k, n] before they are transposed. Odd sizes, one row or column, more than a tile of each
# kernel (12 x 32, 4 x 16, 64 x 64), k from none to more than a piece of packing, batches that are broadcast either way.
SHAPES = [
    ((1, 1), (1, 1)),
    ((3, 5), (5, 7)),
    ((1, 70), (70, 33)),
    ((67, 3), (3, 1)),
    ((49, 130), (130, 65)),
    ((130, 17), (17, 47)),
    ((2, 3), (3, 200)),
    ((0, 3), (3, 4)),
    ((3, 4), (4, 0)),
    ((3, 0), (0, 4)),
    ((5, 0), (0, 40)),
    ((2, 3, 4, 5), (2, 3, 5, 6)),
    ((4, 5), (3, 5, 6)),
    ((3, 7, 5), (5, 33)),
    ((3, 1, 4, 5), (1, 2, 5, 6)),
    ((2, 1, 3, 1, 4, 5), (1, 2, 1, 3, 5, 18)),
    ((1, 3, 40, 5), (2, 1, 5, 20)),
    ((0, 4, 5), (0, 5, 6)),
    ((0, 4, 5), (5, 6)),
]


def normal(shape, dtype, seed):
    return rounded(np.random.default_rng(seed).normal(size=shape), dtype)


def check(chain, a_shape, b_shape, dtype, transpose_a=False, transpose_b=False):
    a = normal(a_shape, dtype, 1)
    b = normal(b_shape, dtype, 2)
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if transpose_a else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
    product = fused.matmul(a, b, transpose_a, transpose_b)
    args = chain.args(b_shape[-1], product[0].shape, dtype, 3)
    got = raw_ops.metal_fused_mat_mul(
        a, b, args, transpose_a=transpose_a, transpose_b=transpose_b, **chain.attributes()
    )
    context = f"{chain} {a_shape} {b_shape} {dtype} {transpose_a} {transpose_b}"
    assert_close(got, chain.expected(product, args), a_shape[-1], dtype, context)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_sequence(dtype):
    for chain in CHAINS:
        check(chain, (7, 19), (19, 21), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes(dtype):
    chains = itertools.cycle(SOME)
    for (a, b), ta, tb in itertools.product(SHAPES, (False, True), (False, True)):
        check(next(chains), a, b, dtype, ta, tb)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_their_range(activation, dtype):
    """The product is x itself, so the result is the activation, to the last digits of its result."""
    x = np.concatenate([np.linspace(-100, 100, 4001), np.logspace(-10, 1, 300), -np.logspace(-10, 1, 300),
                        [0, np.inf, -np.inf, np.nan]])  # fmt: skip
    x = rounded(x, dtype)
    got = raw_ops.metal_fused_mat_mul(
        x[:, None], np.ones((1, 1), x.dtype), [], fused_ops=[activation], leakyrelu_alpha=0.3
    )
    want = fused.activate(activation, x.astype(np.float64), 0.3)
    # 16 half units of float32, then one rounding. exp(-t) carries the roundings of t, t half units of the result each.
    size = np.abs(np.where(np.isfinite(x.astype(np.float64)), x.astype(np.float64), 0))
    t = {"GeluExact": size**2 / 2, "GeluApproximate": 1.6 * (size + 0.044715 * size**3)}
    rtol = 2.0**-24 * (16 + 3 * t.get(activation, size))
    # Swish is x times a sigmoid that may underflow.
    rtol = np.minimum(rtol, 1e-4) + {"float32": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    atol = 2.0**-24 if dtype == "float16" else 100 * 2.0**-126
    got = np.asarray(got).astype(np.float64)[:, 0]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    with np.errstate(invalid="ignore"):
        wrong = finite & ~(np.abs(got - want) <= rtol * np.abs(want) + atol)
    assert not wrong.any(), list(zip(x[wrong], got[wrong], want[wrong], strict=True))[:5]


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_reach_their_row_alone(dtype):
    a, b = np.ones((40, 70), numpy_type(dtype)), np.ones((70, 50), numpy_type(dtype))
    a[3, 69], a[5, 0] = np.nan, np.inf
    got = np.asarray(raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["Relu"])).astype("f8")
    assert np.isnan(got[3]).all() and np.isposinf(got[5]).all()
    np.testing.assert_array_equal(np.delete(got, [3, 5], axis=0), 70)


def test_rounded_once():
    """2048 + 1 has no place in float16, 2049 - 2048 has: rounding after each step would give 0."""
    a, b = np.float16([[2048, 1]]), np.float16([[1], [1]])
    got = raw_ops.metal_fused_mat_mul(a, b, [np.float16([-2048])], fused_ops=["BiasAdd"])
    assert got.numpy() == 1


def test_inputs_are_not_overwritten():
    a, b, r = (tf.constant(normal((40, 40), "float32", i)) for i in range(3))
    kept = [x.numpy().copy() for x in (a, b, r)]
    raw_ops.metal_fused_mat_mul(a, b, [r], fused_ops=["Add", "Relu"])
    for x, before in zip((a, b, r), kept, strict=True):
        np.testing.assert_array_equal(x, before)


# ---- the function ---------------------------------------------------------------------------------------------------


def test_function_says_the_same_as_the_op():
    a, b = normal((2, 5, 6), "float32", 0), normal((6, 3), "float32", 1)
    names = {v: k for k, v in metal_ops.ops._fused.ACTIVATIONS.items()}
    for chain in SOME:
        args = chain.args(3, (2, 5, 3), "float32", 2)
        stage = args[: len(args) - chain.add]
        named: dict[str, Any] = dict(residual=args[-1]) if chain.add else {}
        if stage:
            named |= dict(bias=stage[0]) if chain.stage == "BiasAdd" else dict(batch_norm=stage)
        got = metal_ops.fused_matmul(
            a, b, activation=names.get(chain.activation), epsilon=chain.epsilon,
            alpha=chain.alpha, **named,
        )  # fmt: skip
        want = raw_ops.metal_fused_mat_mul(a, b, args, **chain.attributes())
        np.testing.assert_array_equal(got, want)


def test_arguments_take_the_dtype_of_a():
    a = tf.ones([2, 3], tf.bfloat16)
    y = metal_ops.fused_matmul(a, [[1.0, 2.0]] * 3, bias=[1, 2], residual=[[1, 1], [0, 0]])
    assert y.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(y, tf.float32), [[5, 9], [4, 8]])


def test_shapes_are_known_in_graphs():
    spec = tf.TensorSpec

    def shape(a, b, *args, fused_ops=("Relu",), **attributes):
        @tf.function(input_signature=[a, b, *args])
        def f(a, b, *args):
            return raw_ops.metal_fused_mat_mul(a, b, args, fused_ops=list(fused_ops), **attributes)

        return f.get_concrete_function().output_shapes

    assert shape(spec([None, 3]), spec([3, 4])).as_list() == [None, 4]
    assert shape(spec([3, None]), spec([4, 3]), transpose_a=True, transpose_b=True).as_list() == [
        None,
        4,
    ]
    assert shape(spec([7, None, 2, 3]), spec([5, 3, 4])).as_list() == [7, 5, 2, 4]
    assert shape(spec(None), spec([3, 4])).rank is None
    # The residual may know more.
    add = dict(fused_ops=("Add",))
    assert shape(spec([None, 3]), spec([3, 4]), spec([8, None]), **add).as_list() == [8, 4]
    assert shape(spec(None), spec(None), spec([8, 2]), **add).as_list() == [8, 2]


# ---- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", [Chain("BiasAdd", True, a) for a in ACTIVATIONS] + SOME, ids=str)
def test_gradients(chain):
    """Against differences of the oracle."""
    a, b = normal((2, 3, 4), "float32", 5), normal((4, 3), "float32", 6)
    args = chain.args(3, (2, 3, 3), "float32", 7)
    incoming = normal((2, 3, 3), "float32", 8)

    def loss(at, value):
        given = [a, b, *args]
        given[at] = value
        product = fused.matmul(given[0], given[1], False, False)
        return float(np.sum(chain.expected(product, given[2:])[0] * incoming))

    sources = [tf.constant(x) for x in (a, b, *args)]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = raw_ops.metal_fused_mat_mul(sources[0], sources[1], sources[2:], **chain.attributes())
    for at, got in enumerate(tape.gradient(y, sources, tf.constant(incoming))):
        want = numeric.gradient(lambda value, at=at: loss(at, value), sources[at].numpy())
        numeric.assert_gradient(got, want, 2e-5, f"{chain}, input {at}")


@pytest.mark.parametrize("ta, tb", [*itertools.product((False, True), (False, True))])
def test_gradients_of_transposed_and_broadcast(ta, tb):
    a = tf.constant(normal((3, 1, 4, 2) if ta else (3, 1, 2, 4), "float32", 0))
    b = tf.constant(normal((1, 2, 5, 4) if tb else (1, 2, 4, 5), "float32", 1))

    def slopes(function):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            y = function()
        return tape.gradient(y, [a, b])

    got = slopes(lambda: metal_ops.fused_matmul(a, b, ta, tb, bias=tf.ones(5), activation="tanh"))
    want = slopes(lambda: tf.tanh(tf.matmul(a, b, ta, tb) + 1))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_in_half_precision_are_rounded_once(dtype):
    a, b, bias = (tf.constant(normal(s, dtype, i)) for i, s in enumerate([(9, 40), (40, 7), (7,)]))
    wide = [tf.cast(x, tf.float32) for x in (a, b, bias)]
    results = []
    for inputs in ([a, b, bias], wide):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = metal_ops.fused_matmul(inputs[0], inputs[1], bias=inputs[2], activation="silu")
        results.append(tape.gradient(y, inputs))
    for got, want in zip(*results, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(
            tf.cast(got, tf.float32), tf.cast(tf.cast(want, dtype), tf.float32)
        )


def test_gradient_of_the_gradient():
    a, b = tf.constant(normal((3, 4), "float32", 0)), tf.constant(normal((4, 2), "float32", 1))

    def second(function):
        with tf.GradientTape() as outer:
            outer.watch(a)
            with tf.GradientTape() as inner:
                inner.watch(a)
                y = function()
            slope = inner.gradient(y, a)
        return outer.gradient(slope, a)

    got = second(lambda: metal_ops.fused_matmul(a, b, activation="tanh"))
    want = second(lambda: tf.tanh(a @ b))
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gradients_in_loops_and_functions():
    a = tf.constant(normal((3, 3), "float32", 0))

    @tf.function
    def slope(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            for _ in tf.range(3):
                x = metal_ops.fused_matmul(x, w, activation="tanh")
        return tape.gradient(x, w)

    with tf.GradientTape() as tape:
        tape.watch(a)
        x = a
        for _ in range(3):
            x = tf.tanh(x @ a)
    x = tf.constant(a.numpy())
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = x
        for _ in range(3):
            y = tf.tanh(y @ a)
    np.testing.assert_allclose(slope(x, a), tape.gradient(y, a), rtol=1e-5, atol=1e-6)


# ---- determinism, threads -------------------------------------------------------------------------------------------


def test_many_threads_at_once():
    """Calls do not disturb each other: each gives the bits that it gives alone, and gives them again."""
    inputs = [
        (normal((50 + i, 60), "float32", i), normal((60, 33), "float32", 100 + i)) for i in range(8)
    ]

    def run(pair):
        return raw_ops.metal_fused_mat_mul(*pair, [], fused_ops=["Tanh"]).numpy().tobytes()

    alone = [run(pair) for pair in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert list(pool.map(run, inputs)) == alone


# ---- bad arguments --------------------------------------------------------------------------------------------------

F, H = np.float32, np.float16
A, B = np.ones((2, 3), F), np.ones((3, 4), F)
ORDER = (
    r"MetalFusedMatMul: fused_ops must be \[BiasAdd or BatchNorm\], \[Add\], \[Relu, .*\] in this order, each at "
    r"most once and one at least, got "
)
BAD = [
    # a, b, args, attributes, the sentence
    (np.ones(3, F), B, [], {}, r"MetalFusedMatMul: a must have at least 2 dimensions, got \[3\]"),
    (A, np.ones((), F), [], {}, r"b must have at least 2 dimensions, got \[\]"),
    (A, A, [], {}, r"a and b must agree in the dimension that is summed over, got \[2, 3\] and \[2, 3\]"),
    (A, B, [], dict(transpose_a=True), r"got \[2, 3\] \(transposed\) and \[3, 4\]"),
    (np.ones((2, 2, 3), F), np.ones((3, 3, 4), F), [], {},
     r"the batch dimensions of a and b must be equal or 1, got \[2, 2, 3\] and \[3, 3, 4\]"),
    (A, B, [np.ones(3, F)], dict(fused_ops=["BiasAdd"]), r"bias \(args\[0\]\) must have shape \[4\], got \[3\]"),
    (A, B, [np.ones((1, 4), F)], dict(fused_ops=["BiasAdd"]), r"bias \(args\[0\]\) must have shape \[4\]"),
    (A, B, [np.ones(4, H)], dict(fused_ops=["BiasAdd"]),
     r"args\[0\] must be float32 as input, got float16. Cast it first"),
    (A, B, [np.ones((1, 4), F)], dict(fused_ops=["Add"]),
     r"residual \(args\[0\]\) must have the output's shape \[2, 4\], got \[1, 4\]. It is not broadcast"),
    (A, B, [np.ones(4, F)] * 3, dict(fused_ops=["BatchNorm"]),
     r"args must have 2 or 4 tensors for fused_ops \[BatchNorm\] .*, got 3"),
    (A, B, [np.ones(4, F)] * 3 + [np.ones(5, F)], dict(fused_ops=["BatchNorm"]),
     r"variance \(args\[3\]\) must have shape \[4\], got \[5\]"),
    (A.astype(H), B.astype(H), [np.ones(4, H)] * 4, dict(fused_ops=["BatchNorm"]), r"args\[0\] must be float32"),
    (A.astype(H), B.astype(H), [np.ones(4, H), np.ones(4, F)], dict(fused_ops=["BatchNorm"]),
     r"args\[1\] must be float16 as args\[0\], got float32"),
    (A, B, [], dict(fused_ops=["BiasAdd"]), r"args must have 1 tensors for fused_ops \[BiasAdd\], got 0"),
    (A, B, [np.ones(4, F)], dict(fused_ops=["Relu"]), r"args must have 0 tensors for fused_ops \[Relu\], got 1"),
    (A, B, [], dict(fused_ops=[]), ORDER + r"\[\]"),
    (A, B, [], dict(fused_ops=["Gelu"]), ORDER + r"\[Gelu\]"),
    (A, B, [], dict(fused_ops=["Relu", "Relu"]), ORDER + r"\[Relu, Relu\]"),
    (A, B, [np.ones((2, 4), F)], dict(fused_ops=["Relu", "Add"]), ORDER + r"\[Relu, Add\]"),
    (A, B, [np.ones(4, F)] * 2, dict(fused_ops=["Add", "BiasAdd"]), ORDER),
    (A, B, [np.ones(4, F)] * 3, dict(fused_ops=["BiasAdd", "BatchNorm"]), ORDER),
    (np.ones((2, 1) * 7 + (1, 1), F), np.ones((1, 2) * 7 + (1, 1), F), [], {},
     r"the batch dimensions of a and b alternate more than 6 times. Reshape or broadcast one of them"),
]  # fmt: skip


@pytest.mark.parametrize("a, b, args, attributes, sentence", BAD)
def test_bad_arguments(a, b, args, attributes, sentence):
    attributes = dict(fused_ops=["Relu"]) | attributes
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        raw_ops.metal_fused_mat_mul(a, b, args, **attributes)
    if "alternate" in sentence:  # the kernel's limit, not the op's
        return
    with pytest.raises(ValueError, match=sentence):
        tf.function(lambda: raw_ops.metal_fused_mat_mul(a, b, args, **attributes))()


def test_bad_arguments_found_when_the_graph_runs():
    unknown = tf.function(
        lambda a, b, c: raw_ops.metal_fused_mat_mul(a, b, [c], fused_ops=["BiasAdd"]),
        input_signature=[tf.TensorSpec(None)] * 3,
    )
    np.testing.assert_array_equal(unknown(A, B, np.ones(4, F)), np.full((2, 4), 4))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"bias \(args\[0\]\) must have shape \[4\], got \[5\]"
    ):
        unknown(A, B, np.ones(5, F))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must agree in the dimension"):
        unknown(A, A, np.ones(4, F))


def test_bad_arguments_of_the_function():
    call = metal_ops.fused_matmul
    with pytest.raises(
        ValueError,
        match=r"\[fused_matmul\] .*at least one of them, got none. Without them it is tf.matmul",
    ):
        call(A, B)
    with pytest.raises(
        ValueError, match=r"\[fused_matmul\] bias, batch_norm: expected one of them, got both"
    ):
        call(A, B, bias=np.ones(4), batch_norm=(np.ones(4), np.ones(4)))
    with pytest.raises(
        ValueError, match=r"batch_norm: expected \(gamma, .*\) or \(scale, shift\), got 3 tensors"
    ):
        call(A, B, batch_norm=[np.ones(4)] * 3)
    with pytest.raises(
        ValueError, match=r"activation: expected one of relu, .* or None, got 'softmax'"
    ):
        call(A, B, activation="softmax")
    with pytest.raises(
        TypeError,
        match=r"\[fused_matmul\] a: expected dtype float32, float16 or bfloat16, got int32",
    ):
        call(tf.constant([[1]]), tf.constant([[1]]), activation="relu")
    with pytest.raises(
        TypeError, match=r"\[fused_matmul\] b: expected dtype float32 as of a, got float16"
    ):
        call(A, tf.constant(B.astype(H)), activation="relu")
    with pytest.raises(TypeError, match=r"residual: expected dtype float32, got bfloat16"):
        call(A, B, residual=tf.ones([2, 4], tf.bfloat16))
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"\[fused_matmul\] cannot be compiled by XLA"
    ):
        tf.function(lambda: call(A, B, activation="relu"), jit_compile=True)()
