"""Every correctness condition as a pair: a graph that must fuse, and its minimal mutation that must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import look, same_as_eager, values

pytestmark = pytest.mark.instrumented

X = values((2, 5, 6, 4), seed=1)
W = values((3, 3, 4, 6), seed=2)
SQUARE = values((3, 3, 4, 4), seed=3)  # keeps the number of channels
B = values((6,), seed=4)
R = values((2, 5, 6, 6), seed=5)
GAMMA, BETA, MEAN = (values((6,), seed=s) for s in (6, 7, 8))
VARIANCE = tf.abs(values((6,), seed=9)) + 0.5


def conv(x=X, w=W, **kwargs: Any) -> tf.Tensor:
    return tf.nn.conv2d(x, w, **{"strides": 1, "padding": "SAME", **kwargs})


def norm(x: tf.Tensor, training: bool = False) -> Any:
    return tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=GAMMA,
        offset=BETA,
        mean=[] if training else MEAN,
        variance=[] if training else VARIANCE,
        is_training=training,
        epsilon=0.01,
    )


@dataclass
class Pair:
    """Functions without arguments would be folded: each takes x."""

    condition: str
    fuses: Callable[..., Any]
    does_not: Callable[..., Any]
    fused_ops: list[str]
    still: list[list[str]] = field(default_factory=list)  # the fused ops of the mutation
    args: tuple[tf.Tensor, ...] = (X,)
    name: str = ""
    words: str = ""  # in the reason

    def __str__(self) -> str:
        return f"{self.condition}-{self.name}" if self.name else self.condition


def waits(x: tf.Tensor, waiting: bool) -> tf.Tensor:
    v = tf.nn.bias_add(conv(x), B)
    effect = tf.raw_ops.Print(input=x, data=[x], first_n=0)  # stateful: not a node to forget
    with tf.control_dependencies([effect] if waiting else []):
        return tf.nn.relu(v) + effect[..., :1]


def is_waited_for(x: tf.Tensor, interior: bool) -> Any:
    v = tf.nn.bias_add(conv(x), B)
    y = tf.nn.relu(v)
    with tf.control_dependencies([v if interior else y]):
        return y, tf.identity(x)


def two_convs(x: tf.Tensor, shared: bool) -> tf.Tensor:
    a, b = conv(x), conv(x, W * 2.0)
    return tf.nn.relu(a + b) if shared else tf.nn.relu(a + R) + tf.nn.relu(b + R)


SIDES = [[0, 0], [1, 1], [2, 0], [0, 0]]


def padded(x: tf.Tensor, sides: Any = SIDES, padding: str = "VALID") -> tf.Tensor:
    return tf.nn.relu(conv(x if sides is None else tf.pad(x, sides), padding=padding))


PAIRS = [
    Pair(
        "fetched",
        lambda x: tf.nn.relu(conv(x) + B),
        lambda x: (tf.nn.relu(v := conv(x) + B), v),
        ["BiasAdd", "Relu"],
        still=[["BiasAdd"]],
        words="The function returns",
    ),
    Pair(
        "one_consumer",
        lambda x: tf.nn.relu(conv(x) + B),
        lambda x: tf.nn.relu(v := conv(x) + B) + tf.reduce_max(v),
        ["BiasAdd", "Relu"],
        still=[["BiasAdd"]],
        words="2 consumers",
    ),
    Pair(
        "one_consumer",
        lambda x: (conv(x) + B) + R,
        lambda x: (v := conv(x) + B) + v,
        ["BiasAdd", "Add"],
        still=[["BiasAdd"]],
        name="same-edge-twice",
    ),
    Pair(
        "one_consumer",
        lambda x: (v := conv(x)) * tf.sigmoid(v),
        lambda x: (v := conv(x)) * tf.sigmoid(v) + tf.reduce_max(v),
        ["Swish"],
        name="of-swish",
    ),
    Pair(
        "one_consumer",
        lambda x: tf.nn.gelu(conv(x)),
        lambda x: (v := conv(x), tf.nn.gelu(v) * tf.reduce_max(v))[1],
        ["GeluExact"],
        name="of-gelu",
    ),
    Pair(
        "one_output",
        lambda x: norm(conv(x)).y,
        lambda x: (n := norm(conv(x))).y + n.batch_variance,
        ["BatchNorm"],
        words="needs output 2",
    ),
    Pair(
        "control_edge",
        lambda x: waits(x[..., :4], False),
        lambda x: waits(x[..., :4], True),
        ["BiasAdd", "Relu"],
        still=[["BiasAdd"]],
        name="in",
        words="'Print' (Print)",
    ),
    Pair(
        "control_edge",
        lambda x: is_waited_for(x, False),
        lambda x: is_waited_for(x, True),
        ["BiasAdd", "Relu"],
        still=[["BiasAdd"]],
        name="out",
        words="has to wait for 'BiasAdd'",
    ),
    Pair(
        "bias_shape", lambda x: conv(x) + B, lambda x: conv(x) + B[:1], ["BiasAdd"], name="scalar"
    ),
    Pair(
        "bias_shape",
        lambda x: conv(x) + tf.reshape(B, [1, 1, 6]),
        lambda x: conv(x) + tf.reshape(B, [1, 6, 1]),
        ["BiasAdd"],
        name="along-width",
        words="[1, 6, 1], expected [6] or [1, .., 6]",
    ),
    Pair(
        "residual_shape",
        lambda x: conv(x) + R,
        lambda x: conv(x) + R[:1],
        ["Add"],
        name="over-batch",
        words="[1, 5, 6, 6]",
    ),
    Pair(
        "residual_shape",
        lambda x: R + conv(x),
        lambda x: R[:, :, :1] + conv(x),
        ["Add"],
        name="over-width-left",
    ),
    Pair(
        "residual_shape",
        lambda x: conv(x[:1]) + R[:1],
        lambda x: conv(x[:1]) + R,
        ["Add"],
        name="output-broadcast",
    ),
    Pair(
        "add_of_two",
        lambda x: tf.raw_ops.AddN(inputs=[conv(x), R]),
        lambda x: tf.raw_ops.AddN(inputs=[conv(x), R, R]),
        ["Add"],
        words="adds 3 tensors",
    ),
    Pair(
        "dtype",
        lambda x: tf.nn.relu(conv(x)),
        lambda x: tf.nn.relu(conv(tf.cast(x, "float64"), tf.cast(W, "float64"))),
        ["Relu"],
        words="double",
    ),
    Pair(
        "batch_norm_training",
        lambda x: norm(conv(x)).y,
        lambda x: norm(conv(x), training=True).y,
        ["BatchNorm"],
    ),
    Pair(
        "bias_shape",
        lambda x: conv(x) * GAMMA + BETA,
        lambda x: conv(x) * GAMMA + BETA[:1],
        ["BatchNorm"],
        name="of-shift",
    ),
    Pair(
        "no_epilogue",
        lambda x: conv(x) * GAMMA + BETA,
        lambda x: conv(x) * GAMMA[:1] + BETA,
        ["BatchNorm"],
        name="scale-of-one",
    ),
    Pair(
        "no_epilogue",
        lambda x: conv(x) * GAMMA - BETA,
        lambda x: BETA - conv(x) * GAMMA,
        ["BatchNorm"],
        name="shift-minus",
    ),
    Pair(
        "overlap",
        lambda x: two_convs(x, False),
        lambda x: two_convs(x, True),
        ["Add", "Relu"],
        still=[["Add", "Relu"]],
        words="is fused with another chain already",
    ),
    Pair(
        "one_consumer",
        lambda x: tf.nn.silu(conv(x)),
        lambda x: tf.nn.silu(conv(x), beta=2.0),
        ["Swish"],
        name="beta-of-swish",
    ),
    Pair(
        "one_consumer",
        lambda x: 0.5 * (v := conv(x)) * (1.0 + tf.math.erf(v / 1.4142135623730951)),
        lambda x: 0.5 * (v := conv(x)) * (1.0 + tf.math.erf(v / 1.4)),
        ["GeluExact"],
        name="constant-of-gelu",
    ),
    Pair(
        "one_consumer",
        lambda x: (v := conv(x)) * tf.sigmoid(v),
        lambda x: (v := conv(x), tf.sigmoid(v) * tf.sigmoid(v))[1],
        ["Swish"],
        name="swish-of-another",
    ),
    Pair(
        "grouped",
        lambda x: tf.nn.relu(conv(x)),
        lambda x: tf.nn.relu(conv(x, W[:, :, :2])),
        ["Relu"],
        words="4 channels, of which a filter takes 2",
    ),
    Pair(
        "pad_value",
        lambda x: padded(x),
        lambda x: padded(tf.pad(x, SIDES, constant_values=0.5), None),
        ["Pad", "Relu"],
        still=[["Relu"]],
        name="half",
        words="other values than 0",
    ),
    Pair(
        "pad_value",
        lambda x: padded(x),
        lambda x: padded(tf.pad(x, SIDES, "REFLECT"), None),
        ["Pad", "Relu"],
        still=[["Relu"]],
        name="reflect",
    ),
    Pair(
        "grouped",
        lambda x: padded(x),
        lambda x: padded(x, tf.constant(SIDES) + tf.cast(x[0, 0, 0, 0] > 9.0, tf.int32)),
        ["Pad", "Relu"],
        name="computed-pad",
    ),
    Pair(
        "pad_dimensions",
        lambda x: padded(x),
        lambda x: padded(x, [[1, 0], *SIDES[1:]]),
        ["Pad", "Relu"],
        still=[["Relu"]],
        name="batch",
        words="[1, 0, 1, 1, 2, 0, 0, 0]",
    ),
    Pair(
        "pad_same",
        lambda x: padded(x),
        lambda x: padded(x, padding="SAME"),
        ["Pad", "Relu"],
        still=[["Relu"]],
    ),
    Pair(
        "one_consumer",
        lambda x: padded(x),
        lambda x: (p := tf.pad(x, SIDES), padded(p, None) + tf.reduce_max(p))[1],
        ["Pad", "Relu"],
        still=[["Relu"]],
        name="of-pad",
    ),
    Pair(
        "no_epilogue",
        lambda x: tf.nn.relu(conv(x) + B),
        lambda x: tf.nn.selu(conv(x) + B),
        ["BiasAdd", "Relu"],
        still=[["BiasAdd"]],
        words="No pattern takes 'Selu' (Selu)",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pair(pair: Pair):
    seen = same_as_eager(pair.fuses, *pair.args)
    assert pair.fused_ops in seen.fused and pair.condition not in (
        {miss.condition for miss in seen.explanation.missed}
    )
    mutated = same_as_eager(pair.does_not, *pair.args)
    assert mutated.fused == pair.still, mutated.explanation
    assert pair.condition in mutated.conditions, mutated.explanation
    assert pair.words in mutated.reason(pair.condition)


def spec(*shape: int | None, dtype: str = "float32") -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


# Shapes that are not known when the function is optimized.
UNKNOWN = [
    # (condition, function, signature that fuses, signature that does not, arguments of both)
    (
        "bias_shape",
        lambda x, b: conv(x) + b,
        [spec(2, 5, 6, 4), spec(6)],
        [spec(2, 5, 6, 4), spec(None)],
        (X, B),
    ),
    (
        "residual_shape",
        lambda x, r: conv(x) + r,
        [spec(2, 5, 6, 4), spec(2, 5, 6, 6)],
        [spec(None, 5, 6, 4), spec(None, 5, 6, 6)],  # two batches may differ: one of them may be 1
        (X, R),
    ),
    (
        "residual_shape",
        lambda x, r: conv(x, SQUARE) + x + 0.0 * tf.reduce_sum(r),
        [spec(None, None, None, 4), spec(None)],  # one symbol on both sides
        [spec(2, 5, 6, 4), None],
        (X, B),
    ),
    (
        "grouped",
        lambda x, w: tf.nn.relu(conv(x, w)),
        [spec(None, 5, 6, 4), spec(3, 3, 4, 6)],
        [spec(None, 5, 6, None), spec(3, 3, 4, 6)],
        (X, W),
    ),
    (
        "grouped",
        lambda x, w: tf.nn.relu(conv(x, w)),
        [spec(None, None, None, 4), spec(None, None, 4, None)],
        [spec(2, 5, 6, 4), spec(3, 3, None, 6)],
        (X, W),
    ),
    (
        "bias_shape",
        lambda x, w: tf.matmul(x, w) + B,
        [spec(None, 4), spec(4, 6)],
        [spec(None, 4), spec(4, None)],
        (X[0, 0], W[0, 0]),
    ),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: f"{case[0]}-{case[2][0].shape}")
def test_unknown_shapes(case):
    condition, fn, good, bad, args = case
    assert len(same_as_eager(fn, *args, signature=good).fused) == 1
    if bad[1] is not None:
        seen = same_as_eager(fn, *args, signature=bad)
        assert not seen.fused and condition in seen.conditions, seen.explanation


def test_batches_that_differ_after_all():
    """The reason for the condition on shapes: with a batch of 1 on one side the result has the other's
    batch."""

    def fn(x, r):
        return conv(x) + r

    signature = [spec(None, 5, 6, 4), spec(None, 5, 6, 6)]
    assert same_as_eager(fn, X[:1], R, signature=signature).fused == []


def test_overlap_takes_the_longer_chain():
    """Add(conv1, conv2): the choice depends on the graph alone."""

    def fn(x):
        a = conv(x)
        b = conv(x, W * 2.0) + B
        return tf.nn.relu(a + b)

    def swapped(x):
        b = conv(x, W * 2.0) + B
        a = conv(x)
        return tf.nn.relu(b + a)

    for each in (fn, swapped):
        seen = same_as_eager(each, X)
        assert seen.fused == [["BiasAdd", "Add", "Relu"]]
        assert [miss.condition for miss in seen.explanation.missed] == ["overlap"]


@pytest.fixture
def no_remapper():
    """TensorFlow's own remapper fuses this BiasAdd onto the convolution, and adds along the wrong dimension."""
    tf.config.optimizer.set_experimental_options({"remapping": False})
    yield
    tf.config.optimizer.set_experimental_options({"remapping": True})


def test_data_format_of_bias(no_remapper):
    """As high as there are channels, so that the wrong dimension would not be noticed by its size."""
    x = values((2, 6, 5, 4))
    seen = same_as_eager(lambda x: tf.nn.bias_add(conv(x), B), x)
    assert seen.fused == [["BiasAdd"]]
    seen = same_as_eager(lambda x: tf.nn.bias_add(conv(x), B, data_format="NCHW"), x)
    assert seen.fused == [] and seen.conditions == {"data_format"}
    assert "adds along NCHW" in seen.reason("data_format")


# ---- conditions on graphs that do not run here; what the pass would do is asked of explain ------------------------


def test_bias_port():
    """A result that is the bias of a BiasAdd: only unknown ranks let such a graph be built."""

    def fn(a, b, x):
        return tf.raw_ops.BiasAdd(value=x, bias=tf.raw_ops.BatchMatMulV2(x=a, y=b))

    unknown = tf.TensorSpec(None)
    seen = look(fn, unknown, unknown, unknown)
    assert seen.fused == [] and seen.conditions == {"bias_port"}


def test_nchw_bias_along_width():
    """A [C] that is added to NCHW runs along the width; with as many columns as channels, the mistake would
    go unnoticed."""

    def fn(x, w, b):
        return tf.nn.conv2d(x, w, strides=1, padding="SAME", data_format="NCHW") + b

    x, w = spec(2, 4, 5, 6), spec(3, 3, 4, 6)
    assert look(fn, x, w, spec(6, 1, 1)).fused == [["BiasAdd"]]
    assert look(fn, x, w, spec(1, 6, 1, 1)).fused == [["BiasAdd"]]
    for vector in (spec(6), spec(1, 6)):
        seen = look(fn, x, w, vector)
        assert seen.fused == [] and seen.conditions == {"bias_layout"}


@pytest.mark.parametrize("name", ["strides", "dilations"])
@pytest.mark.parametrize("axis", [0, 3])
def test_steps_along_batch_and_channels(name, axis):
    def fn(x, w, steps):
        arguments = {"strides": [1, 1, 1, 1], "padding": "SAME", name: steps}
        return tf.nn.relu(tf.raw_ops.Conv2D(input=x, filter=w, **arguments))

    def steps(at):
        return [2 if i == at else 1 for i in range(4)]

    x, w = spec(4, 5, 6, 4), spec(3, 3, 4, 6)
    assert look(lambda x, w: fn(x, w, steps(1)), x, w).fused == [["Relu"]]
    try:
        seen = look(lambda x, w: fn(x, w, steps(axis)), x, w)
    except ValueError:  # TensorFlow refuses to build it
        assert name == "dilations"
        return
    assert seen.fused == [] and seen.conditions == {"strides"}


def test_device_of_another_type_has_no_kernel():
    """Whether there is a fused kernel is asked of TensorFlow's registry; nothing is assumed of a "GPU"."""
    assert look(lambda x: tf.nn.relu(conv(x)), X).fused == [["Relu"]]
    seen = look(lambda x: tf.nn.relu(conv(x)), X, cpu=False)
    assert seen.fused == [] and seen.conditions == {"cpu"}


def test_users_that_nobody_reads_go_with_the_chain():
    """However many follow each other: one that stayed would read a node that is gone."""

    def fn(x):
        v = conv(x)
        tf.sqrt(tf.exp(tf.negative(v)))
        return tf.nn.relu(v)

    seen = same_as_eager(fn, X)
    assert seen.fused == [["Relu"]]
    assert {"Neg", "Exp", "Sqrt"} <= {node.op for node in seen.explanation.before}
    assert not {"Neg", "Exp", "Sqrt"} & {node.op for node in seen.explanation.after}


def test_cpu_is_left_to_tensorflow_unless_asked():
    status = metal_ops.fusion.status()
    assert status.enabled and not status.cpu


def test_switches_are_conditions():
    def fn(x):
        return tf.nn.relu(conv(x) + B)

    seen = look(fn, X, patterns=["bias"])
    assert seen.fused == [["BiasAdd"]] and seen.conditions == {"pattern_off"}
    assert "'activation'" in seen.reason("pattern_off")
    with metal_ops.fusion.disabled():
        explanation = metal_ops.fusion.explain(fn, X)
    assert [miss.condition for miss in explanation.missed] == ["disabled"]
    assert [node.op for node in explanation.before] == [node.op for node in explanation.after]
