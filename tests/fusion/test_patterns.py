"""Every form that a pattern takes, in every dtype: all of it becomes one node, with the same result."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import UNIT, assert_rounded, same_as_eager, values, wide

pytestmark = pytest.mark.instrumented

DTYPES = ("float32", "float16", "bfloat16")


class Given:
    """Operands of one dtype. With `matmul` the root is a product, else a convolution; both have 6 channels."""

    def __init__(self, dtype: str, matmul: bool = False):
        self.x = values((7, 5) if matmul else (2, 5, 6, 4), dtype, 1)
        # Small enough that sums stay of size 1.
        self.w = values((5, 6) if matmul else (3, 3, 4, 6), dtype, 2) / tf.constant(4.0, dtype)
        self.out = (7, 6) if matmul else (2, 5, 6, 6)
        self.b, self.gamma, self.beta = (values((6,), dtype, s) for s in (3, 4, 5))
        self.mean = values((6,), "float32", 6)
        self.variance = tf.abs(values((6,), "float32", 7)) + 0.5
        self.r = values(self.out, dtype, 8)
        self.matmul = matmul

    def wide(self) -> Given:
        """The same values in float32."""
        given = copy.copy(self)
        for name in ("x", "w", "b", "gamma", "beta", "r"):
            setattr(given, name, wide(getattr(self, name)))
        return given

    def root(self, x: tf.Tensor) -> tf.Tensor:
        if self.matmul:
            return tf.matmul(x, self.w)
        return tf.nn.conv2d(x, self.w, strides=1, padding="SAME")


CHANNELS: dict[str, tuple[list[str], Callable[[Given, tf.Tensor], tf.Tensor]]] = {
    "none": ([], lambda g, v: v),
    "BiasAdd": (["BiasAdd"], lambda g, v: tf.nn.bias_add(v, g.b)),
    "BiasAddV1": (["BiasAdd"], lambda g, v: tf.raw_ops.BiasAddV1(value=v, bias=g.b)),
    "AddV2": (["BiasAdd"], lambda g, v: tf.raw_ops.AddV2(x=v, y=g.b)),
    "AddV2-left": (["BiasAdd"], lambda g, v: g.b + v),
    "Add": (["BiasAdd"], lambda g, v: tf.raw_ops.Add(x=v, y=g.b)),
    "Add-[1, C]": (["BiasAdd"], lambda g, v: v + g.b[None]),
    "batch-norm": (["BatchNorm"], lambda g, v: fused_norm(g, v)),
    "bias-batch-norm": (["BatchNorm"], lambda g, v: fused_norm(g, tf.nn.bias_add(v, g.b))),
    "scale-shift": (["BatchNorm"], lambda g, v: v * g.gamma + g.beta),
    "scale-shift-left": (["BatchNorm"], lambda g, v: g.beta + g.gamma * v),
    "scale-shift-Sub": (["BatchNorm"], lambda g, v: v * g.gamma - g.beta),
    "scale-shift-[1, C]": (["BatchNorm"], lambda g, v: v * g.gamma[None] + g.beta[None]),
    "bias-scale-shift": (["BatchNorm"], lambda g, v: (v + g.b) * g.gamma + g.beta),
    "tf.nn.batch_normalization": (
        ["BatchNorm"],
        lambda g, v: tf.nn.batch_normalization(
            v,
            tf.cast(g.mean, v.dtype),
            tf.cast(g.variance, v.dtype),
            g.beta,
            g.gamma,
            0.01,
        ),
    ),
}
# For scales and shifts that plain ops make before the fused one: the sizes of the rounded values on the way, added
# up.
ROUNDED_BEFORE = {"bias-scale-shift": 3.0, "tf.nn.batch_normalization": 12.0}
ADDS: dict[str, tuple[list[str], Callable[[Given, tf.Tensor], tf.Tensor]]] = {
    "none": ([], lambda g, v: v),
    "AddV2": (["Add"], lambda g, v: v + g.r),
    "AddV2-left": (["Add"], lambda g, v: g.r + v),
    "Add": (["Add"], lambda g, v: tf.raw_ops.Add(x=g.r, y=v)),
    "AddN": (["Add"], lambda g, v: tf.raw_ops.AddN(inputs=[v, g.r])),
    "AddN-left": (["Add"], lambda g, v: tf.raw_ops.AddN(inputs=[g.r, v])),
    "behind-Identity": (["Add"], lambda g, v: tf.identity(tf.identity(v)) + g.r),
}
ACTIVATIONS: dict[str, tuple[list[str], Callable[[tf.Tensor], tf.Tensor]]] = {
    "none": ([], lambda v: v),
    "Relu": (["Relu"], tf.nn.relu),
    "Relu6": (["Relu6"], tf.nn.relu6),
    "Elu": (["Elu"], tf.nn.elu),
    "LeakyRelu": (["LeakyRelu"], lambda v: tf.nn.leaky_relu(v, alpha=0.3)),
    "Sigmoid": (["Sigmoid"], tf.sigmoid),
    "Tanh": (["Tanh"], tf.tanh),
    "x-sigmoid": (["Swish"], lambda v: v * tf.sigmoid(v)),
    "sigmoid-x": (["Swish"], lambda v: tf.sigmoid(v) * v),
    "tf.nn.silu": (["Swish"], tf.nn.silu),
    "keras.silu": (["Swish"], keras.activations.silu),
    "tf.nn.gelu": (["GeluExact"], tf.nn.gelu),
    "tf.nn.gelu-tanh": (["GeluApproximate"], lambda v: tf.nn.gelu(v, approximate=True)),
    "keras.gelu": (["GeluExact"], keras.activations.gelu),
    "keras.gelu-tanh": (
        ["GeluApproximate"],
        lambda v: keras.activations.gelu(v, approximate=True),
    ),
    "keras.mish": (["Mish"], keras.activations.mish),
    "tanh-softplus-x": (["Mish"], lambda v: tf.tanh(tf.math.softplus(v)) * v),
    "mish-by-log1p": (["Mish"], lambda v: v * tf.tanh(tf.math.log1p(tf.exp(v)))),
    "gelu-by-product": (
        ["GeluExact"],
        lambda v: v * (0.5 * (tf.math.erf(v * 0.7071067811865476) + 1.0)),
    ),
    # As tf.nn.gelu is from TensorFlow 2.20 on.
    "gelu-by-erfc": (
        ["GeluExact"],
        lambda v: 0.5 * v * tf.math.erfc(-v * tf.cast(0.7071067811865476, v.dtype)),
    ),
    "gelu-by-erfc-of-minus": (
        ["GeluExact"],
        lambda v: 0.5 * (v * tf.math.erfc(v * -0.7071067811865476)),
    ),
}


def fused_norm(g: Given, v: tf.Tensor) -> tf.Tensor:
    gamma, beta = tf.cast(g.gamma, "float32"), tf.cast(g.beta, "float32")
    return tf.raw_ops.FusedBatchNormV3(
        x=v,
        scale=gamma,
        offset=beta,
        mean=g.mean,
        variance=g.variance,
        is_training=False,
        epsilon=0.02,
    ).y


# Each form with each of the others' commonest.
PAIRED = [
    *itertools.product(CHANNELS, ["none", "AddV2"], ["none", "Relu"]),
    *itertools.product(["none", "BiasAdd", "batch-norm"], ADDS, ["none", "Elu"]),
    *itertools.product(["none", "BiasAdd"], ["none", "AddV2-left"], ACTIVATIONS),
]
FORMS = sorted(set(PAIRED) - {("none", "none", "none")})


def check(g: Given, dtype: str, channels: str, add: str, activation: str) -> None:
    steps = [CHANNELS[channels], ADDS[add], ACTIVATIONS[activation]]

    def fn(x: tf.Tensor, g: Given = g) -> tf.Tensor:
        v = ADDS[add][1](g, CHANNELS[channels][1](g, g.root(x)))
        return ACTIVATIONS[activation][1](v)

    exact = None if dtype == "float32" else fn(g.wide().x, g.wide())
    # Batch norm divides by as little as 0.7, and multiplies a bias' rounding error.
    seen = same_as_eager(fn, g.x, size=16.0, exact=exact, before=ROUNDED_BEFORE.get(channels, 0.0))
    assert seen.fused == [[op for ops, _ in steps for op in ops]], seen.explanation
    assert not seen.explanation.missed and not seen.conditions & {"one_consumer", "kernel"}


@pytest.mark.parametrize("form", FORMS, ids="+".join)
def test_conv2d(form):
    check(Given("float32"), "float32", *form)


# FusedBatchNorm takes four dimensions.
MATMUL_FORMS = [form for form in FORMS if "batch-norm" not in form[0]]


@pytest.mark.parametrize("form", MATMUL_FORMS, ids="+".join)
def test_matmul(form):
    check(Given("float32", matmul=True), "float32", *form)


HALF_FORMS = [(c, "AddV2", "Relu") for c in CHANNELS] + [
    ("BiasAdd", "none", a) for a in ACTIVATIONS
]


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("form", HALF_FORMS, ids="+".join)
def test_conv2d_in_half_precision(form, dtype):
    check(Given(dtype), dtype, *form)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("form", [f for f in HALF_FORMS if f in MATMUL_FORMS], ids="+".join)
def test_matmul_in_half_precision(form, dtype):
    check(Given(dtype, matmul=True), dtype, *form)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [[0, 0], [2, 1], [0, 3], [0, 0]]], ids=str)
@pytest.mark.parametrize("strides", [1, 2, (2, 1)], ids=str)
@pytest.mark.parametrize("dilations", [1, (1, 2)], ids=str)
def test_attributes_are_carried_over(padding, strides, dilations):
    g = Given("float32")
    x = values((2, 9, 8, 4), seed=9)

    def fn(x):
        v = tf.nn.conv2d(x, g.w, strides=strides, padding=padding, dilations=dilations)
        return tf.nn.relu(v + g.b)

    seen = same_as_eager(fn, x)
    assert seen.fused == [["BiasAdd", "Relu"]]


PADDINGS = [[0, 0], [1, 2], [3, 0], [0, 0]]
PADS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "tf.pad": lambda x: tf.pad(x, PADDINGS),
    "zero": lambda x: tf.raw_ops.PadV2(input=x, paddings=PADDINGS, constant_values=0.0),
    "keras": lambda x: keras.layers.ZeroPadding2D(((1, 2), (3, 0)))(x),
}


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("padding", ["VALID", [[0, 0], [2, 1], [0, 3], [0, 0]]], ids=str)
@pytest.mark.parametrize("epilogue", [["BiasAdd", "Relu"], []], ids=str)
def test_pad_before_a_convolution(pad, padding, epilogue):
    g = Given("float32")
    x = values((2, 9, 8, 4), seed=9)

    def fn(x):
        v = tf.nn.conv2d(PADS[pad](x), g.w, strides=2, padding=padding, dilations=1)
        return tf.nn.relu(v + g.b) if epilogue else v

    seen = same_as_eager(fn, x)
    assert seen.fused == [["Pad", *epilogue]], seen.explanation
    assert not {"Pad", "PadV2"} & {node.op for node in seen.explanation.after}
    op = "MetalFusedConv2D" if epilogue else "Conv2D"
    assert seen.explanation.fused[0].fused_op == op
    assert len(same_as_eager(fn, x, signature=[tf.TensorSpec([None, None, None, 4])]).fused) == 1


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_transposed_and_batched_products(transpose_a, transpose_b, batch):
    a = values((*batch, 5, 7) if transpose_a else (*batch, 7, 5), seed=1)
    b = values((*batch[1:], 6, 5) if transpose_b else (*batch[1:], 5, 6), seed=2)  # broadcast
    bias, residual = values((6,), seed=3), values((*batch, 7, 6), seed=4)

    def fn(a, b):
        return tf.nn.gelu(tf.matmul(a, b, transpose_a, transpose_b) + bias + residual)

    seen = same_as_eager(fn, a, b)
    assert seen.fused == [["BiasAdd", "Add", "GeluExact"]], seen.explanation
    ops = {node.name: node.op for node in seen.explanation.before}
    assert ops[seen.explanation.fused[0].root] == ("BatchMatMulV2" if batch else "MatMul")


KINDS = ("root", "prologue", "epilogue", "expression", "update")


def test_every_pattern_is_registered_with_a_drawing():
    found = metal_ops.fusion.patterns()
    order = [KINDS.index(pattern.kind) for pattern in found]
    assert order == sorted(order) and set(order) == set(range(len(KINDS)))
    files = {"conv2d", "matmul", "bias", "batch_norm", "batch_norm_decomposed", "residual"}
    assert {p.name for p in found} == files | {
        "activation",
        "swish",
        "gelu",
        "mish",
        "pad",
        "norm",
        "swiglu",
        "attention",
        "momentum",
        "adam",
        "rmsprop",
        "adagrad",
        "batch_norm_grad",
        "bias_grad",
        "rope",
        "rope_grad",
        "swiglu_grad",
        "quantized_matmul",
    }
    for pattern in found:
        assert pattern.summary.endswith(".") and pattern.kind in KINDS
        assert len(pattern.before.splitlines()) > 2 and "fused" in pattern.after.lower()


@pytest.mark.parametrize("name", ["bias", "batch_norm", "batch_norm_decomposed", "residual"])
def test_every_pattern_has_its_switch(name):
    g = Given("float32")
    graph: dict[str, Any] = {
        "bias": lambda x: tf.nn.bias_add(g.root(x), g.b),
        "batch_norm": lambda x: fused_norm(g, g.root(x)),
        "batch_norm_decomposed": lambda x: g.root(x) * g.gamma + g.beta,
        "residual": lambda x: g.root(x) + g.r,
    }
    others = {p.name for p in metal_ops.fusion.patterns()} - {name}
    fn = tf.function(graph[name])
    with metal_ops.fusion.enabled(cpu=True):
        assert len(metal_ops.fusion.explain(fn, g.x).fused) == 1
    with metal_ops.fusion.enabled(others, cpu=True):
        explanation = metal_ops.fusion.explain(fn, g.x)
    assert not explanation.fused and explanation.missed[0].condition == "pattern_off"
    assert f"'{name}'" in explanation.missed[0].reason


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_control_half_precision_is_rounded_once(dtype):
    """Two units in the last place, or a bias that is missing, are noticed."""
    exact = values((50, 6))
    good = tf.cast(exact, dtype)
    assert_rounded(good, exact)
    unit = 2.0 * UNIT[dtype]
    for wrong in (good * tf.constant(1 + 2 * unit, dtype), good - values((6,), dtype) * unit * 16):
        with pytest.raises(AssertionError, match="off by"):
            assert_rounded(wrong, exact)
