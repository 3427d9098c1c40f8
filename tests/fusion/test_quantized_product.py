"""Weights of 4 or 8 bits that are turned into floats for one product become one op; and the cases that stay as
they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import look, same_as_eager, values, wide

INPUTS, OUTPUTS = 70, 6
X = values((5, INPUTS), seed=1)
KERNEL = values((INPUTS, OUTPUTS), seed=2)
CODES = tf.constant(np.random.default_rng(3).integers(0, 256, (OUTPUTS, INPUTS)), tf.uint8)
SCALES = tf.abs(values((OUTPUTS, 1), seed=4)) / 128.0
MINIMA = values((OUTPUTS, 1), seed=5)
OP = "MetalQuantizedMatMul"


def around_128(x: tf.Tensor, codes: Any = CODES, scales: Any = SCALES, zero: Any = 128.0) -> Any:
    zero = zero if tf.is_tensor(zero) else tf.constant(zero, x.dtype)
    w = (tf.cast(codes, x.dtype) - zero) * tf.cast(scales, x.dtype)
    return tf.matmul(x, w, transpose_b=True)


def from_minima(x: tf.Tensor, scales: Any = SCALES, minima: Any = MINIMA) -> tf.Tensor:
    w = tf.cast(scales, x.dtype) * tf.cast(CODES, x.dtype) + tf.cast(minima, x.dtype)
    return tf.matmul(x, tf.transpose(w))


def dequantized(x: tf.Tensor, weights: Any = None, **form: Any) -> tf.Tensor:
    weights = metal_ops.quantize(KERNEL, **form) if weights is None else weights
    return tf.matmul(x, metal_ops.dequantize(weights, x.dtype))


FORMATS: dict[str, dict[str, Any]] = {
    "4-bits": {},
    "4-bits-of-64": {"block": 64, "symmetric": True},
    "8-bits": {"bits": 8},
    "8-bits-symmetric": {"bits": 8, "block": None, "symmetric": True, "per_tensor": True},
    "8-bits-in-half": {"bits": 8, "block": None, "scales": tf.float16},
}
TABLES: dict[str, dict[str, Any]] = {
    f"{bits}-bits-of-{group}": {"bits": bits, "lookup": group}
    for bits, group in ((2, 4), (3, 0), (4, 1), (6, 16), (8, 4))
}
LOOKED_UP = {name: metal_ops.quantize(KERNEL, **form) for name, form in TABLES.items()}
MADE = {name: metal_ops.quantize(KERNEL, **form) for name, form in FORMATS.items()}
ELEMENTS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "around-128": around_128,
    "minima": from_minima,
    "one-scale": lambda x: around_128(x, scales=SCALES[:1]),
    "one-of-each": lambda x: from_minima(x, SCALES[:1], MINIMA[:1]),
    "identity": lambda x: tf.identity(around_128(tf.identity(x))),
}


def one_product(fn: Callable[..., Any], *args: Any, **more: Any) -> None:
    seen = same_as_eager(fn, *args, size=64.0, **more)
    assert seen.fused == [["Dequantize", "MatMul"]], seen.explanation
    assert [fusion.fused_op for fusion in seen.explanation.fused] == [OP]
    assert not seen.explanation.missed
    ops = {node.op for node in seen.explanation.after}
    assert OP in ops and not ops & {"MatMul", "Transpose", "MetalDequantize", "Cast"}


@pytest.mark.parametrize("name", TABLES)
def test_lookup_tables(name):
    weights = LOOKED_UP[name]
    for x, signature in ((X, None), (X[:1], [tf.TensorSpec([None, INPUTS])])):
        seen = same_as_eager(lambda x: dequantized(x, weights), x, signature=signature, size=64.0)
        assert seen.fused == [["LookupWeights", "MatMul"]], seen.explanation
        assert [fusion.fused_op for fusion in seen.explanation.fused] == ["MetalLookupMatMul"]
        ops = {node.op for node in seen.explanation.after}
        assert not ops & {"MatMul", "Transpose", "MetalLookupWeights"}


@pytest.mark.parametrize("name", FORMATS)
def test_dequantize(name):
    one_product(lambda x, w: dequantized(x, w), X, MADE[name])


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements(name):
    one_product(ELEMENTS[name], X)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    x = tf.cast(X, dtype)
    weights = MADE["4-bits"]
    one_product(lambda x: dequantized(x, weights), x, exact=dequantized(wide(x), weights))
    if dtype == "float16":
        scales = tf.cast(SCALES, dtype)  # as it is stored, also in the exact result
        exact = around_128(wide(x), scales=scales)
        one_product(lambda x: around_128(x, scales=scales), x, exact=exact)


def test_rows_that_are_known_late():
    for rows in (5, 1, 0):
        for fn in (around_128, lambda x: dequantized(x, MADE["4-bits"])):
            one_product(fn, X[:rows], signature=[tf.TensorSpec([None, INPUTS])])


def test_what_follows_stays():
    """A bias is an op of its own behind it."""
    seen = same_as_eager(lambda x: tf.nn.relu(around_128(x) + MINIMA[:, 0]), X, size=64.0)
    assert seen.fused == [["Dequantize", "MatMul"]]
    assert {"Relu", OP} <= {node.op for node in seen.explanation.after}


def shared(x: tf.Tensor, made: Callable[[], tf.Tensor]) -> tf.Tensor:
    w = made()
    return tf.matmul(x, w) + tf.reduce_sum(w)


LOOKED_UP_SQUARE = metal_ops.quantize(values((64, 64), seed=6), 3, lookup=16)
SQUARE = metal_ops.quantize(values((64, 64), seed=6))
NEAR: dict[str, tuple[str, Callable[[tf.Tensor], Any], str]] = {
    "two-readers": (
        "one_consumer",
        lambda x: shared(x, lambda: metal_ops.dequantize(MADE["8-bits"])),
        "needs",
    ),
    "tables-not-turned": (
        "quantized_layout",
        lambda x: tf.matmul(x[:, :64], metal_ops.dequantize(LOOKED_UP_SQUARE), transpose_b=True),
        "rows of codes as its inputs",
    ),
    "tables-of-two-readers": (
        "one_consumer",
        lambda x: shared(x, lambda: metal_ops.dequantize(LOOKED_UP["3-bits-of-0"])),
        "needs",
    ),
    "weights-returned": (
        "fetched",
        lambda x: (w := metal_ops.dequantize(MADE["8-bits"]), tf.matmul(x, w)),
        "returns",
    ),
    "not-turned": (
        "quantized_layout",
        lambda x: tf.matmul(x[:, :64], metal_ops.dequantize(SQUARE), transpose_b=True),
        "rows of codes as its inputs",
    ),
    "elements-not-turned": (
        "quantized_layout",
        lambda x: tf.matmul(x[:, :OUTPUTS], (tf.cast(CODES, x.dtype) - 128.0) * SCALES),
        "expected as its outputs",
    ),
    "first-turned": (
        "quantized_layout",
        lambda x: tf.matmul(tf.transpose(x), metal_ops.dequantize(MADE["8-bits"]), True),
        "first operand",
    ),
    "another-zero": ("quantized_zero", lambda x: around_128(x, zero=127.0), "the constant 128"),
    "computed-zero": ("quantized_zero", lambda x: around_128(x, zero=x[0, 0]), "128"),
    "scales-of-columns": (
        "quantized_scales",
        lambda x: around_128(x, scales=tf.ones([1, INPUTS])),
        "[1, 70] beside codes of [6, 70]",
    ),
    "scale-of-no-dimension": (
        "quantized_scales",
        lambda x: around_128(x, scales=SCALES[0, 0]),
        "[outputs, 1]",
    ),
    "minima-of-all": (
        "quantized_scales",
        lambda x: from_minima(x, minima=MINIMA[:1]),
        "as the scales",
    ),
    "bfloat16-scales": ("dtype", lambda x: around_128(tf.cast(x, "bfloat16")), "float or half"),
    "double": ("dtype", lambda x: around_128(tf.cast(x, "float64")), "double"),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses(name):
    condition, fn, words = NEAR[name]
    seen = look(fn, X)
    left = {node.op for node in seen.explanation.after}
    assert not left & {OP, "MetalLookupMatMul"}, seen.explanation
    assert condition in seen.conditions, seen.explanation
    assert words in seen.reason(condition), seen.reason(condition)
    expected = tf.nest.flatten(fn(X))
    with metal_ops.fusion.enabled(cpu=True):
        got = tf.nest.flatten(tf.function(fn, autograph=False)(X))
    for a, b in zip(expected, got, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        # bfloat16 is summed in another order in a graph.
        rounding = 2.0**-7 if name.startswith("bfloat16") else 1e-5
        np.testing.assert_allclose(b, a, rtol=0, atol=rounding * max(1.0, np.abs(a).max()))


@pytest.mark.parametrize("name", ["4-bits", "8-bits", "2-bits-of-4", "8-bits-of-4"])
def test_columns_that_the_product_alone_checks(name):
    """69 codes of 4 bits have as many bytes as 70: a product that failed still does."""
    weights, made = {**MADE, **LOOKED_UP}[name], "LookupWeights" if name in TABLES else "Dequantize"
    fn = tf.function(
        lambda x: dequantized(x, weights), input_signature=[tf.TensorSpec([None, None])]
    )
    with metal_ops.fusion.enabled(cpu=True):
        assert look(fn).fused == [[made, "MatMul"]]
        np.testing.assert_allclose(fn(X), dequantized(X, weights), rtol=0, atol=1e-4)
        with pytest.raises(tf.errors.InvalidArgumentError):
            fn(X[:, :-1])


def test_rows_of_unknown_length():
    """Nothing says how many codes there are."""
    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([None, None], tf.uint8)]
    seen = same_as_eager(
        lambda x, codes: around_128(x, codes, SCALES[:1]), X, CODES, signature=signature, size=64.0
    )
    assert OP not in {node.op for node in seen.explanation.after}
    assert "columns" in seen.reason("quantized_shape")


def test_what_is_no_candidate_is_not_mentioned():
    """Pictures of bytes, which are scaled and multiplied with weights."""

    def fn(pictures: tf.Tensor) -> tf.Tensor:
        return tf.matmul((tf.cast(pictures, tf.float32) - 128.0) * (1.0 / 128.0), KERNEL)

    seen = same_as_eager(fn, CODES)
    assert not seen.fused and all(miss.op != "Cast" for miss in seen.explanation.missed)


def test_gradients_keep_the_weights():
    """That of x reads them again."""

    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(around_128(x)))
        return loss, tape.gradient(loss, x)

    seen = same_as_eager(step, X, size=256.0)
    assert "one_consumer" in seen.conditions
    assert OP not in {node.op for node in seen.explanation.after}


def test_its_switch():
    others = {p.name for p in metal_ops.fusion.patterns()} - {"quantized_matmul"}
    seen = look(around_128, X, patterns=others)
    assert OP not in {node.op for node in seen.explanation.after}
    assert "'quantized_matmul'" in seen.reason("pattern_off")
