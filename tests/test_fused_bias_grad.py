"""The gradients of a bias and of the activation behind it against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ALPHA = 0.3


def of(derivative):
    """By automatic differentiation in float64."""

    def slopes(d, x):
        with tf.device("CPU"):
            x = tf.constant(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = derivative(x)
            return d * tape.gradient(y, x).numpy()

    return slopes


# Slopes by the incoming gradient and the activation's output, or the input for LeakyRelu and those that are
# several ops.
SLOPES = {
    "Relu": lambda d, y: d * (y > 0),
    "Relu6": lambda d, y: d * ((y > 0) & (y < 6)),
    "Elu": lambda d, y: np.where(y < 0, d * (y + 1), d),
    "LeakyRelu": lambda d, y: np.where(y > 0, d, ALPHA * d),
    "Sigmoid": lambda d, y: d * y * (1 - y),
    "Tanh": lambda d, y: d * (1 - y * y),
    "Swish": of(lambda x: x * tf.sigmoid(x)),
    "GeluExact": of(lambda x: tf.nn.gelu(x, approximate=False)),
    "GeluApproximate": of(lambda x: tf.nn.gelu(x, approximate=True)),
    "Mish": of(lambda x: x * tf.tanh(tf.math.softplus(x))),
}
# Vectors and parts of rows, odd ones; one row; more parts than are summed at least.
SHAPES = [(1,), (3, 5), (2, 3, 4, 32), (129, 33), (1, 70), (700, 3), (17000, 1)]


def make(shape, dtype):
    random = np.random.default_rng(0)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    gradients, features = random.normal(size=shape), 4 * random.normal(size=shape)
    features[random.random(shape) < 0.1] = 0.0  # where ReLU was off
    return gradients.astype(kind), features.astype(kind)


def right(gradients, features, activation):
    slopes = SLOPES[activation](gradients.astype(np.float64), features.astype(np.float64))
    return slopes, slopes.reshape(-1, slopes.shape[-1]).sum(0)


def call(gradients, features, activation, **more):
    return raw_ops.metal_fused_bias_grad(
        tf.constant(gradients), tf.constant(features), activation=activation,
        leakyrelu_alpha=ALPHA, **more,
    )  # fmt: skip


def check(activation, dtype, shapes, planes=False):
    """Where channels are planes they are second, and all shapes have a dimension in front."""
    for shape in shapes:
        gradients, features = make(shape, dtype)
        slopes, sums = right(gradients, features, activation)
        if planes:
            given = [np.moveaxis(v, -1, 1) for v in (gradients, features)]
            backprops, d_bias = call(*given, activation, data_format="NCHW")
            backprops = tf.constant(np.moveaxis(backprops.numpy(), 1, -1))
        else:
            backprops, d_bias = call(gradients, features, activation)
        half = ROUNDING[dtype] * (dtype != "float32")
        for got, expected, size in (
            (backprops, slopes, np.abs(slopes)),
            (d_bias, sums, np.abs(slopes).reshape(-1, shape[-1]).sum(0)),
        ):
            assert got.dtype == dtype and got.shape == expected.shape
            error = np.abs(np.asarray(got.numpy()).astype(np.float64) - expected)
            # A part's terms and the parts are added up one after the other.
            allowed = half * np.abs(expected) + 16 * ROUNDING["float32"] * size + 2.0**-24
            # Differences such as 1 - y^2 lose the rounding error of y^2.
            loses = activation not in ("Relu", "Relu6", "Elu", "LeakyRelu")
            allowed += 2.0**-20 * loses * np.maximum(size, 1)
            assert np.all(error <= allowed), (shape, np.max(error / allowed))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("activation", SLOPES)
def test_value(activation, dtype):
    check(activation, dtype, SHAPES)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "GeluExact"])
def test_channels_second(activation, dtype):
    shapes = [(1, 1), (3, 5), (2, 3, 4, 32), (4, 700, 3), (1, 2, 3, 2, 5)]
    check(activation, dtype, shapes, planes=True)


@pytest.mark.parametrize("activation", ["Swish", "GeluExact", "GeluApproximate", "Mish"])
def test_far_from_zero(activation):
    """Activations there are 0, or their input."""
    x = np.array([[-1e4], [-100.0], [-30.0], [30.0], [100.0], [1e4]], np.float32)
    backprops, _ = call(np.ones_like(x), x, activation)
    np.testing.assert_allclose(backprops, x > 0, rtol=0, atol=1e-10)
    assert np.isnan(call(np.ones_like(x), x * np.nan, activation)[0]).all()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)], ids=str)
def test_empty(shape):
    x = np.zeros(shape, np.float32)
    backprops, d_bias = call(x, x, "Relu")
    assert backprops.shape == shape
    np.testing.assert_array_equal(d_bias, np.zeros(shape[-1:]))
    if len(shape) > 1:
        backprops, d_bias = call(x, x, "Relu", data_format="NCHW")
        assert backprops.shape == shape
        np.testing.assert_array_equal(d_bias, np.zeros(shape[1]))


def test_nothing_passes_where_relu_was_off():
    """Not even NaN."""
    d = np.array([[np.nan, np.inf, -np.inf, 1.0]] * 40, np.float32)
    backprops, d_bias = call(d, np.zeros_like(d), "Relu")
    np.testing.assert_array_equal(backprops, np.zeros_like(d))
    np.testing.assert_array_equal(d_bias, np.zeros(4))
    assert np.isnan(call(d, np.ones_like(d), "Relu")[1][0])


def test_shapes_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec(None)])
    def run(known, unknown):
        backprops, d_bias = raw_ops.metal_fused_bias_grad(known, known)
        assert backprops.shape.as_list() == [None, 8] and d_bias.shape == [8]
        assert raw_ops.metal_fused_bias_grad(unknown, unknown)[1].shape.rank is None
        second = raw_ops.metal_fused_bias_grad(
            known[:, :, None], known[:, :, None], data_format="NCHW"
        )
        assert second[1].shape == [8]
        return d_bias

    np.testing.assert_array_equal(run(tf.ones([3, 8]), tf.ones([2, 2])), np.full(8, 3.0))


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(features=tf.ones([2, 3])), tf.errors.InvalidArgumentError,
         r"MetalFusedBiasGrad: features must be shaped like gradients, \[2, 4\], got \[2, 3\]"),
        (dict(gradients=tf.ones([]), features=tf.ones([])), tf.errors.InvalidArgumentError,
         r"MetalFusedBiasGrad: gradients must have at least one dimension.*Reshape"),
        (dict(gradients=tf.ones([2]), features=tf.ones([2]), data_format="NCHW"),
         tf.errors.InvalidArgumentError, r"at least two dimensions in NCHW.*got \[2\]. Reshape"),
        (dict(activation="Gelu"), tf.errors.InvalidArgumentError, r"'?activation'?.*Gelu"),
        (dict(features=tf.ones([2, 4], tf.float16)), tf.errors.InvalidArgumentError, "half"),
    ],
)  # fmt: skip
def test_bad_calls(change, error, words):
    given = dict(gradients=tf.ones([2, 4]), features=tf.ones([2, 4]), activation="Relu")
    raw_ops.metal_fused_bias_grad(**given)
    with pytest.raises(error, match=words):
        raw_ops.metal_fused_bias_grad(**{**given, **change})
