"""The gradients of a batch norm and of the ReLU behind it against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
EPSILON = 1e-2
# Vectors and parts of rows, odd ones; one row; more parts than are summed at least.
SHAPES = [(1,), (3, 5), (2, 3, 4, 32), (129, 33), (1, 70), (700, 3), (17000, 1)]
NAMES = ("gradients", "features", "x", "scale", "mean", "variance")


def make(shape, dtype):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    large = [random.normal(size=shape) for _ in range(3)]
    large[1] *= 5
    large[1][random.random(shape) < 0.1] = 0.0  # where ReLU was off
    channels = [random.normal(size=shape[-1:]).astype("f") for _ in range(2)]
    variance = random.uniform(0.5, 2.0, shape[-1:]).astype("f")
    return [*(v.astype(kind) for v in large), *channels, variance]


def right(given, activation="Relu", training=True):
    gradients, features, x, scale, mean, variance = (v.astype(np.float64) for v in given)
    passed = gradients * (features > 0)
    if activation == "Relu6":
        passed = passed * (features < 6)
    inverse = 1 / np.sqrt(variance + EPSILON)
    normal = (x - mean) * inverse
    axes = tuple(range(x.ndim - 1))
    d_offset, d_scale = passed.sum(axes), (passed * normal).sum(axes)
    slopes = passed
    if training:
        count = max(np.prod(x.shape[:-1]), 1)
        slopes = passed - d_offset / count - normal * d_scale / count
    return scale * inverse * slopes, d_scale, d_offset


def call(given, activation="Relu", training=True, planes=False):
    """Where channels are planes, they are moved to the second dimension, and back."""
    if planes:
        given = [*(np.moveaxis(v, -1, 1) for v in given[:3]), *given[3:]]
    found = raw_ops.metal_fused_batch_norm_grad(
        *map(tf.constant, given), activation=activation, epsilon=EPSILON, is_training=training,
        data_format="NCHW" if planes else "NHWC",
    )  # fmt: skip
    return [tf.constant(np.moveaxis(found[0].numpy(), 1, -1)), *found[1:]] if planes else found


def check(activation, training, dtype, shapes, planes=False):
    for shape in shapes:
        given = make(shape, dtype)
        found = call(given, activation, training, planes)
        for i, (got, expected) in enumerate(
            zip(found, right(given, activation, training), strict=True)
        ):
            assert got.dtype == (dtype if i == 0 else "float32") and got.shape == expected.shape
            error = np.abs(np.asarray(got.numpy()).astype(np.float64) - expected)
            half = ROUNDING[dtype] * (dtype != "float32" and i == 0)
            # Sums of terms of size 3 or so, of which up to sqrt(n) are left.
            terms = 1 if i == 0 else np.sqrt(np.prod(shape[:-1]))
            allowed = half * np.abs(expected) + 128 * ROUNDING["float32"] * max(terms, 1)
            assert np.all(error <= allowed), (shape, i, np.max(error / allowed))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_value(activation, training, dtype):
    check(activation, training, dtype, SHAPES)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("activation", ["Relu", "Relu6"])
def test_channels_second(activation, dtype):
    shapes = [(1, 1), (3, 5), (2, 3, 4, 32), (4, 700, 3), (1, 2, 3, 2, 5)]
    for training in (True, False):
        check(activation, training, dtype, shapes, planes=True)


def test_is_that_of_tensorflow():
    """The result of the two ops, with the values that training saved."""
    gradients, _, x, scale, *_ = make((4, 5, 6, 7), "float32")
    with tf.GradientTape() as tape:
        sources = [tf.constant(x), tf.constant(scale), tf.zeros(7)]
        tape.watch(sources)
        norm = tf.raw_ops.FusedBatchNormV3(
            x=sources[0], scale=sources[1], offset=sources[2], mean=[], variance=[],
            epsilon=EPSILON,
        )  # fmt: skip
        y = tf.nn.relu(norm.y)
    expected = tape.gradient(y, sources, output_gradients=tf.constant(gradients))
    given = (gradients, y, x, scale, norm.reserve_space_1, norm.reserve_space_2)
    for got, of_tensorflow in zip(call(given), expected, strict=True):
        np.testing.assert_allclose(got, of_tensorflow, rtol=0, atol=2e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)], ids=str)
def test_empty(shape):
    d_x, d_scale, d_offset = call(make(shape, "float32"))
    assert d_x.shape == shape
    np.testing.assert_array_equal(d_scale, np.zeros(shape[-1:]))
    np.testing.assert_array_equal(d_offset, np.zeros(shape[-1:]))


def test_shapes_in_graphs():
    channels = tf.TensorSpec([None])

    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec(None), channels])
    def run(known, unknown, v):
        d_x, d_scale, _ = raw_ops.metal_fused_batch_norm_grad(known, known, known, v, v, v)
        assert d_x.shape.as_list() == [None, 8] and d_scale.shape.rank == 1
        assert (
            raw_ops.metal_fused_batch_norm_grad(unknown, unknown, unknown, v, v, v)[0].shape.rank
            is None
        )
        return d_scale

    assert run(tf.ones([3, 8]), tf.ones([2, 8]), tf.ones([8])).shape == [8]


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(features=tf.ones([2, 3])), r"features must be shaped like gradients, \[2, 4\], got \[2, 3\]"),
        (dict(x=tf.ones([4])), r"x must be shaped like gradients, \[2, 4\], got \[4\]"),
        (dict(gradients=tf.ones([]), features=tf.ones([]), x=tf.ones([])), "at least one dimension.*Reshape"),
        (dict(scale=tf.ones([3])), r"scale must have shape \[4\].*got \[3\]"),
        (dict(mean=tf.ones([1, 4])), r"mean must have shape \[4\].*got \[1, 4\]"),
        (dict(variance=tf.ones([])), r"variance must have shape \[4\].*got \[\]"),
        (dict(epsilon=-1.0), r"epsilon must be .*0.*got -1"),
        (dict(scale=tf.ones([3]), data_format="NCHW"), r"scale must have shape \[4\], the second dimension"),
        (dict(gradients=tf.ones([4]), features=tf.ones([4]), x=tf.ones([4]), data_format="NCHW"),
         r"at least two dimensions in NCHW.*got \[4\]. Reshape"),
        (dict(activation="Elu"), "'?activation'?.*Elu"),
    ],
)  # fmt: skip
def test_bad_calls(change, words):
    given = dict(zip(NAMES, [tf.ones([2, 4])] * 3 + [tf.ones([4])] * 3, strict=True))
    raw_ops.metal_fused_batch_norm_grad(**given)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        raw_ops.metal_fused_batch_norm_grad(**{**given, **change})
