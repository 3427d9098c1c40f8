"""Random graphs of convolutions, additions, activations and batch norms: fused and unfused compute the same."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metal_ops
from tests.fusion.harness import tolerance, values
from tests.suites import at_depth

# Under the sanitizers an op takes several times as long.
GRAPHS = 100 if os.environ.get("METAL_OPS_SANITIZED") else at_depth(200, 500)
C = 3
ACTIVATIONS = [tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.tanh, tf.sigmoid, tf.nn.silu, tf.nn.gelu]
ACTIVATIONS.append(lambda x: x * tf.tanh(tf.math.softplus(x)))
FILTERS = [values((k, k, C, C), seed=k) / (2.0 * k) for k in (1, 2, 3)]
VECTORS = [values((C,), seed=10 + i) for i in range(4)]
POSITIVE = tf.abs(values((C,), seed=20)) + 0.5
# With a filter of 2 x 2 the size stays.
PADDINGS = [
    [[0, 0], rows, columns, [0, 0]]
    for rows, columns in (([1, 0], [0, 1]), ([0, 1], [0, 1]), ([0, 1], [1, 0]))
]
fused_chains: list[int] = []  # of each graph
fused_ops: set[str] = set()  # the fused ops of the first graphs of each kind

# Each step makes one more tensor out of earlier ones: (kind, which, which other, variant). Indices are taken modulo the
# number of tensors, preferring late ones, so that chains arise and sharing does too.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["conv", "bias", "add", "act"] * 2,
                *"conv norm scale matmul mix shape pad row attend".split(),
            ]
        ),
        st.integers(0, 5),
        st.integers(0, 9),
        st.integers(0, 12),
    ),
    min_size=4,
    max_size=11,
)
GRAPH = st.fixed_dictionaries(
    {
        "steps": STEPS,
        "fetch": st.lists(st.integers(0, 9), max_size=2),  # besides the last one
        "control": st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
        "batch": st.integers(1, 2),
        "known_batch": st.booleans(),
    }
)


def step(kind: str, a: tf.Tensor, b: tf.Tensor, variant: int) -> tf.Tensor:
    if kind == "conv":
        padding = "VALID" if variant % 5 == 0 and a.shape[1] > 3 else "SAME"
        strides = 2 if variant % 7 == 3 and a.shape[1] > 3 else 1
        return tf.nn.conv2d(a, FILTERS[variant % 3], strides=strides, padding=padding)
    if kind == "matmul":
        return tf.matmul(a, FILTERS[0][0])
    if kind == "bias":
        vector = VECTORS[variant % 4]
        return [tf.nn.bias_add, tf.add, lambda v, b: b[None] + v][variant % 3](a, vector)
    if kind == "act":
        return ACTIVATIONS[variant % len(ACTIVATIONS)](a)
    if kind == "norm":
        return tf.raw_ops.FusedBatchNormV3(
            x=a, scale=VECTORS[0], offset=VECTORS[1], mean=VECTORS[2], variance=POSITIVE,
            is_training=variant % 6 == 0, epsilon=0.1,
        ).y if variant % 6 else a * VECTORS[3] - VECTORS[2]  # fmt: skip
    if kind == "scale":
        return a * VECTORS[variant % 4] + VECTORS[(variant + 1) % 4]
    if kind == "pad":
        return tf.nn.conv2d(
            tf.pad(a, PADDINGS[variant % 3]), FILTERS[1], strides=1, padding="VALID"
        )
    if kind == "row":  # layer norm over channels, RMS norm, and one that is none
        axis = 2 if variant % 5 == 4 else -1
        m = tf.reduce_mean(a, axis, keepdims=True) if variant % 2 else 0.0
        square = tf.reduce_mean(tf.square(a - m if variant % 2 else a), axis, keepdims=True)
        y = (a - m if variant % 2 else a) * tf.math.rsqrt(square + 0.1)
        return y * VECTORS[variant % 4] + (b[:, :1, :1] if variant % 3 == 0 else VECTORS[2])
    if kind == "attend":  # each row of pixels to those of another tensor
        k = b if a.shape[1] == b.shape[1] else a
        scores = tf.matmul(a, k, transpose_b=True) * (0.1 * variant if variant else a[:, :, :1, :1])
        if variant % 3 == 2:
            scores = tf.where(np.arange(scores.shape[-1]) % 2 == 0, scores, -1e9)
        return tf.matmul(tf.nn.softmax(scores), k)
    if kind == "shape":  # asks a tensor that may vanish for its shape
        asked = tf.raw_ops.Shape(input=b)
        return (
            tf.reshape(a, asked) if a.shape[1:] == b.shape[1:] else a * tf.cast(asked[3], a.dtype)
        )
    # Where shapes differ, one pixel of the other: a broadcast that must not be taken for a residual.
    same = a.shape[1:] == b.shape[1:]
    other = b if same else b[:, :1, :1]
    if kind == "add":
        return [tf.add, lambda x, y: y + x, lambda x, y: tf.add_n([x, y]) if same else x + y][
            variant % 3
        ](a, other)
    if variant % 3 == 1:
        return tf.nn.silu(a) * other
    return a * other  # nothing that a pattern takes


def build(graph: dict[str, Any]) -> Any:
    def fn(x: tf.Tensor) -> list[tf.Tensor]:
        tensors = [x, step("conv", x, x, graph["batch"])]
        for i, (kind, first, second, variant) in enumerate(graph["steps"]):
            a = tensors[-1 - (first if first < 2 else 0) % len(tensors)]  # mostly the last one
            b = tensors[-1 - second % len(tensors)]
            waits = graph["control"] and graph["control"][1] % len(graph["steps"]) == i
            with tf.control_dependencies(
                [tensors[graph["control"][0] % len(tensors)]] if waits else []
            ):
                tensors.append(step(kind, a, b, variant))
        return [tensors[-1], *(tensors[i % len(tensors)] for i in graph["fetch"])]

    return fn


@pytest.fixture(scope="module", autouse=True)
def plain_tensorflow():
    """Without TensorFlow's own optimizers: they take longer than everything else, and are not under test."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.mark.instrumented
@settings(
    max_examples=GRAPHS,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(GRAPH)
def test_fused_is_unfused(graph):
    fn = build(graph)
    x = values((graph["batch"], 5, 4, C), seed=30)
    batch = graph["batch"] if graph["known_batch"] else None
    expected = fn(x)
    function = tf.function(fn, input_signature=[tf.TensorSpec([batch, 5, 4, C])], autograph=False)
    with metal_ops.fusion.enabled(cpu=True):
        before = metal_ops.fusion.status()
        got = function(x)
        after = metal_ops.fusion.status()
    assert after.errors == before.errors
    fused_chains.append(after.fused - before.fused)
    if {kind for kind, *_ in graph["steps"]} & {"pad", "row", "attend", "mix"} and len(
        fused_chains
    ) < 100:
        with metal_ops.fusion.enabled(cpu=True):
            found = metal_ops.fusion.explain(function)
        fused_ops.update(
            op for fusion in found.fused for op in [*fusion.fused_ops, fusion.fused_op]
        )
    size = max(8.0, *(float(tf.reduce_max(tf.abs(t))) for t in expected))
    for a, b in zip(expected, got, strict=True):
        # Each of up to 11 steps passes an error on, at most about twice as large.
        np.testing.assert_allclose(b, a, rtol=0, atol=64 * tolerance("float32", size))


def test_the_graphs_above_were_fused():
    """Random graphs in which nothing is fused would show nothing."""
    assert len(fused_chains) >= GRAPHS
    for chains, graphs in ((1, GRAPHS / 2), (2, GRAPHS / 10)):
        assert sum(n >= chains for n in fused_chains) > graphs
    wanted = {"Pad", "LayerNorm", "RmsNorm", "Swiglu", "ScaledDotProductAttention", "Mask"}
    assert wanted <= fused_ops, wanted - fused_ops
