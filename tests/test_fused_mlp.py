"""fused_mlp and layers.FusedMLP against the chain rule in float64, differences, and stacks of Dense layers."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.layers import FusedMLP
from tests.oracles import mlp, numeric

pytestmark = pytest.mark.ops

# Each layer rounds its values, and sums of up to 128 float32 terms.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# (batch, inputs, width, hidden layers, outputs): every width, odd sizes, one row, whole and partial chunks of 96 rows.
SIZES = [
    (1, 1, 16, 1, 1),
    (5, 3, 16, 8, 2),
    (7, 16, 32, 2, 33),
    (97, 33, 64, 3, 16),
    (1000, 32, 64, 2, 3),
    (41, 128, 128, 4, 128),
    (200, 20, 128, 1, 17),
]


def make(batch, inputs, width, hidden, outputs, dtype="float32", use_bias=True, seed=0):
    """Arrays that the dtype holds exactly, with values that neither die nor grow from layer to layer."""
    random = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    sizes = [inputs, *[width] * hidden, outputs]
    kernels = [
        (random.normal(size=shape) / np.sqrt(shape[0])).astype(kind)
        for shape in zip(sizes, sizes[1:], strict=False)
    ]
    biases = [(random.normal(size=n) / 4).astype(kind) for n in sizes[1:]] if use_bias else None
    return random.normal(size=(batch, inputs)).astype(kind), kernels, biases


SHAPES = dict(softplus_beta=mlp.BETA, negative_slope=mlp.LEAK)


def shrunk(kernels, activation):
    """Exponentials of exponentials stay small."""
    return (
        [(k * np.array(0.25, k.dtype)) for k in kernels] if activation == "exponential" else kernels
    )


def call(x, kernels, biases, incoming=None, **options):
    """The outputs, and with `incoming` the gradients with respect to x, kernels and biases."""
    x, kernels = tf.constant(x), [tf.constant(k) for k in kernels]
    biases = None if biases is None else [tf.constant(b) for b in biases]
    with tf.GradientTape() as tape:
        tape.watch([x, kernels, biases or []])
        y = metal_ops.fused_mlp(x, kernels, biases, **options)
    if incoming is None:
        return y
    return y, *tape.gradient(
        y,
        [x, kernels, biases or []],
        output_gradients=tf.constant(incoming.astype(x.dtype.as_numpy_dtype)),
    )


def assert_near(actual, expected, dtype, layers, name):
    """To a few roundings a layer of the largest value; and no sign or factor is off on the whole."""
    scale = np.max(np.abs(expected), initial=1e-30)
    error = np.max(np.abs(np.asarray(actual).astype(np.float64) - expected), initial=0)
    allowed = (8 if dtype == "float32" else 3) * (layers + 1) * ROUNDING[dtype]
    assert np.shape(actual) == np.shape(expected), name
    assert error <= allowed * scale, f"{name}: off by {error / scale:.3g}, {allowed:.3g} allowed"


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_value_and_gradients(size, use_bias, dtype):
    x, kernels, biases = make(*size, dtype, use_bias)
    # No value near 0, where one rounding decides whether a ReLU lets a gradient through: smooth activations.
    options = dict(activation="squareplus", output_activation="sigmoid")
    # Numbers of both signs, but sums over the batch do not cancel.
    incoming = np.random.default_rng(1).integers(-16, 65, (size[0], size[4])) / 64
    y, d_x, d_kernels, d_biases = call(x, kernels, biases, incoming, **options)
    assert y.dtype == dtype and d_x.dtype == dtype
    assert_near(y, mlp.forward(x, kernels, biases, **options), dtype, size[3], "y")
    wanted = mlp.gradients(incoming, x, kernels, biases, **options)
    assert_near(d_x, wanted[0], dtype, size[3], "d_x")
    for layer, (actual, expected) in enumerate(zip(d_kernels, wanted[1], strict=True)):
        assert_near(actual, expected, dtype, size[3], f"d_kernels[{layer}]")
    for layer, (actual, expected) in enumerate(zip(d_biases, wanted[2], strict=False)):
        assert_near(actual, expected, dtype, size[3], f"d_biases[{layer}]")


@pytest.mark.parametrize("output_activation", mlp.ACTIVATIONS)
@pytest.mark.parametrize("activation", mlp.ACTIVATIONS)
def test_activations_against_differences(activation, output_activation):
    x, kernels, biases = make(6, 5, 16, 2, 3, seed=3)
    kernels = shrunk(kernels, activation)
    options = dict(activation=activation, output_activation=output_activation)
    incoming = np.random.default_rng(1).integers(-64, 65, (6, 3)) / 64
    y, d_x, d_kernels, d_biases = call(x, kernels, biases, incoming, **options, **SHAPES)
    np.testing.assert_allclose(y, mlp.forward(x, kernels, biases, **options), rtol=1e-5, atol=1e-6)

    def loss(x=x, kernels=kernels, biases=biases):
        return float(np.sum(incoming * mlp.forward(x, kernels, biases, **options)))

    numeric.assert_gradient(d_x, numeric.gradient(lambda v: loss(x=v), x), 1e-5, "x")
    for layer in range(3):

        def at(values, new, layer=layer):
            return [*values[:layer], new, *values[layer + 1 :]]

        expected = numeric.gradient(lambda v: loss(kernels=at(kernels, v)), kernels[layer])  # noqa: B023
        numeric.assert_gradient(d_kernels[layer], expected, 1e-5, f"kernels[{layer}]")
        expected = numeric.gradient(lambda v: loss(biases=at(biases, v)), biases[layer])  # noqa: B023
        numeric.assert_gradient(d_biases[layer], expected, 1e-5, f"biases[{layer}]")


@pytest.mark.parametrize("dtype", ROUNDING)
def test_relu_is_that_of_layers(dtype):
    """The same sums, rounded in the same places, so that the same ReLUs let gradients through."""
    x, kernels, biases = make(300, 24, 32, 2, 5, dtype)
    # Small integers: every sum is exact.
    x, *kernels = (
        np.round(np.asarray(v).astype(np.float32) * 2).clip(-2, 2).astype(v.dtype)
        for v in (x, *kernels)
    )
    incoming = np.ones((300, 5))
    y, d_x, d_kernels, _ = call(x, kernels, None, incoming)
    expected = mlp.forward(x, kernels)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    if dtype == "float32":
        np.testing.assert_array_equal(y, expected)
        wanted = mlp.gradients(incoming, x, kernels)
        np.testing.assert_array_equal(d_x, wanted[0])
        for actual, right in zip(d_kernels, wanted[1], strict=True):
            np.testing.assert_array_equal(actual, right)
        return
    hidden = x.astype(np.float64)
    for kernel in kernels[:-1]:
        hidden = np.maximum(hidden @ kernel.astype(np.float64), 0).astype(kind).astype(np.float64)
    final = (hidden @ kernels[-1].astype(np.float64)).astype(kind)
    np.testing.assert_array_equal(np.asarray(y), final)


@pytest.mark.instrumented
@pytest.mark.parametrize("batch", [0, 1, 95, 96, 97, 191, 400])
def test_rows_do_not_depend_on_their_neighbours(batch):
    x, kernels, biases = make(400, 32, 64, 2, 3)
    whole, *_ = call(x, kernels, biases, np.ones((400, 3)))
    part, d_x, d_kernels, d_biases = call(x[:batch], kernels, biases, np.ones((batch, 3)))
    np.testing.assert_array_equal(part, whole[:batch])
    assert d_x.shape == (batch, 32)
    if batch == 0:
        for zero in (*d_kernels, *d_biases):
            np.testing.assert_array_equal(zero, np.zeros(zero.shape))


def test_nan_stays_in_its_row():
    x, kernels, biases = make(200, 16, 32, 2, 4)
    clean = metal_ops.fused_mlp(x, kernels, biases).numpy()
    x[117, 3] = np.nan
    spoilt = metal_ops.fused_mlp(x, kernels, biases).numpy()
    np.testing.assert_array_equal(np.delete(spoilt, 117, 0), np.delete(clean, 117, 0))
    assert np.isnan(spoilt[117]).all()


def test_gradients_are_the_same_from_run_to_run():
    x, kernels, biases = make(5000, 32, 64, 2, 3)
    runs = [call(x, kernels, biases, np.ones((5000, 3))) for _ in range(3)]
    first = [v.numpy().tobytes() for v in tf.nest.flatten(runs[0])]
    for run in runs[1:]:
        assert [v.numpy().tobytes() for v in tf.nest.flatten(run)] == first


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("width", [1, 15, 17, 48, 65, 127])
@pytest.mark.parametrize("use_bias", [False, True])
def test_any_width(width, use_bias, dtype):
    """Also where padded neurons have values other than 0."""
    x, kernels, biases = make(100, 5, width, 3, 4, dtype, use_bias)
    # Small numbers: every gradient is the sum of few terms of one sign or the other.
    options = dict(activation="squareplus", output_activation="sigmoid")
    incoming = np.random.default_rng(1).integers(-16, 65, (100, 4)) / 64
    y, d_x, d_kernels, d_biases = call(x, kernels, biases, incoming, **options)
    assert_near(y, mlp.forward(x, kernels, biases, **options), dtype, 3, "y")
    wanted = mlp.gradients(incoming, x, kernels, biases, **options)
    assert_near(d_x, wanted[0], dtype, 3, "d_x")
    for kind, actual, expected in (
        ("d_kernels", d_kernels, wanted[1]),
        ("d_biases", d_biases, wanted[2]),
    ):
        for layer, (one, right) in enumerate(zip(actual, expected, strict=use_bias)):
            assert_near(one, right, dtype, 3, f"{kind}[{layer}]")


@pytest.mark.parametrize("activation", ["leaky_relu", "sine", "softplus", "tanh"])
def test_activations_far_from_zero(activation):
    """Neither infinite nor NaN where an exponential would be; NaN stays NaN."""
    x = np.array(
        [[-1e30], [-300.0], [-1.0], [-1e-6], [0.0], [1e-6], [1.0], [300.0], [1e30], [np.nan]],
        np.float32,
    )
    x = x if activation != "sine" else np.clip(x, -300, 300)
    kernels = [np.eye(1, 16, dtype=np.float32), np.eye(16, 1, dtype=np.float32)]
    y, d_x, *_ = call(x, kernels, None, np.ones((10, 1)), activation=activation, **SHAPES)
    with np.errstate(over="ignore", under="ignore"):
        wide = x.astype(np.float64)
        np.testing.assert_allclose(y, mlp.activate(activation, wide), rtol=3e-6, atol=1e-37)
        right = mlp.slope(activation, wide)
        # The slope of tanh follows from a value that is 1 to float32.
        np.testing.assert_allclose(d_x[:-1], right[:-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("b", [0.04, 4.0])
def test_squareplus_far_from_zero(b):
    """Where (x + sqrt(x^2 + b)) / 2 cancels, and its slope with it."""
    x = np.array([[-3000.0], [-30.0], [-1.0], [0.0], [1.0], [1e19]], np.float32)
    kernels = [np.eye(1, 16, dtype=np.float32), np.eye(16, 1, dtype=np.float32)]
    options = dict(activation="squareplus", squareplus_b=b)
    y, d_x, *_ = call(x, kernels, None, np.ones((6, 1)), **options)
    wide = x.astype(np.longdouble)
    root = np.sqrt(wide * wide + b)
    expected = np.where(wide > 0, (root + wide) / 2, b / 2 / (root + np.abs(wide)))
    np.testing.assert_allclose(y, expected.astype(np.float64), rtol=1e-6)
    np.testing.assert_allclose(d_x, (expected / root).astype(np.float64), rtol=1e-6, atol=1e-38)


def test_second_derivatives():
    x, kernels, biases = make(5, 4, 16, 2, 2)
    x, *kernels = (tf.constant(v) for v in (x, *kernels))
    biases = [tf.constant(b) for b in biases]

    def stock(x, kernels, biases):
        for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
            x = tf.sigmoid(x @ kernel + bias)
        return tf.exp(x @ kernels[-1] + biases[-1])

    def ours(x, kernels, biases):
        return metal_ops.fused_mlp(
            x, kernels, biases, activation="sigmoid", output_activation="exponential"
        )

    results = []
    for function in (ours, stock):
        with tf.GradientTape() as outer:
            outer.watch([x, kernels, biases])
            with tf.GradientTape() as inner:
                inner.watch([x, kernels, biases])
                y = function(x, kernels, biases)
            first = tf.nest.flatten(inner.gradient(y, [x, kernels, biases]))
            size = tf.add_n([tf.reduce_sum(tf.sin(each) ** 2) for each in first])
        results.append(tf.nest.flatten(outer.gradient(size, [x, kernels, biases])))
    assert len(results[0]) == 7
    for number, (actual, expected) in enumerate(zip(*results, strict=True)):
        numeric.assert_gradient(actual, expected.numpy().astype(np.float64), 1e-5, f"{number}")


def test_second_derivative_without_that_of_x():
    """A gradient penalty on the weights alone: x is not watched."""
    x, kernels, _ = make(5, 4, 16, 1, 2)
    weights = tf.constant(np.concatenate([k.ravel() for k in kernels]))
    with tf.GradientTape() as outer:
        outer.watch(weights)
        with tf.GradientTape() as inner:
            inner.watch(weights)
            y = raw_ops.fused_mlp(
                tf.constant(x),
                weights,
                n_outputs=2,
                n_neurons=16,
                n_hidden_layers=1,
                activation="sigmoid",
            )
            loss = tf.reduce_sum(y**2)
        penalty = tf.reduce_sum(inner.gradient(loss, weights) ** 2)
    actual = outer.gradient(penalty, weights)

    def squares(v):
        ks = [v[: 4 * 16].reshape(4, 16), v[4 * 16 :].reshape(16, 2)]
        y = mlp.forward(x, ks, activation="sigmoid")
        d = mlp.gradients(2 * y, x, ks, activation="sigmoid")[1]
        return float(sum(np.sum(k**2) for k in d))

    numeric.assert_gradient(actual, numeric.gradient(squares, weights.numpy()), 1e-4, "penalty")


def test_only_wanted_gradients():
    x, kernels, biases = make(200, 8, 16, 2, 3)
    expected = call(x, kernels, biases, np.ones((200, 3)))
    variables = [tf.Variable(k) for k in kernels]
    with tf.GradientTape() as tape:
        y = metal_ops.fused_mlp(x, variables, biases)
    for actual, right in zip(tape.gradient(y, variables), expected[2], strict=True):
        np.testing.assert_array_equal(actual, right)
    x = tf.constant(x)
    graph = tf.function(lambda x: tf.gradients(metal_ops.fused_mlp(x, kernels, biases), x)[0])
    np.testing.assert_array_equal(graph(x), expected[1])


def test_unknown_batch_and_leading_dimensions():
    x, kernels, biases = make(24, 8, 16, 1, 3)
    expected = metal_ops.fused_mlp(x, kernels, biases)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8])])
    def function(x):
        y = metal_ops.fused_mlp(x, kernels, biases)
        assert y.shape.as_list() == [None, None, 3]
        return y

    for shape in ((2, 12, 8), (24, 1, 8)):
        np.testing.assert_array_equal(
            function(x.reshape(shape)), tf.reshape(expected, (*shape[:2], 3))
        )
    assert function(np.zeros((0, 4, 8), np.float32)).shape == (0, 4, 3)
    np.testing.assert_array_equal(metal_ops.fused_mlp(x[0], kernels, biases), expected[0])


def ones(*shape):
    return np.ones(shape, np.float32)


ONE = ones(16, 1)


@pytest.mark.instrumented
@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(x=ones(2, 4)), ValueError,
         r"kernels\[0\]: expected shape \[4, columns\].*got \[3, 16\]"),
        (dict(x=np.float32(1)), ValueError, r"x: expected shape \[..., inputs\].*got \[\]"),
        (dict(x=tf.ones([2, 3], tf.float64)), TypeError,
         r"x: expected dtype float32, float16 or bfloat16, got float64"),
        (dict(kernels=ones(3, 16)), TypeError, r"kernels: expected a list"),
        (dict(kernels=[ones(3, 16)]), ValueError, r"kernels: expected 2 to 9 matrices.*got 1"),
        (dict(kernels=[ones(3, 129), ONE]), ValueError,
         r"kernels\[0\]: expected a width of 1 to 128, got 129"),
        (dict(kernels=[ones(3, 16), ones(16, 32), ones(32, 1)]), ValueError,
         r"kernels\[1\]: expected shape \[16, 16\] \(\[width, width\]\), got \[16, 32\]"),
        (dict(kernels=[ones(3, 16), ones(16, 129)]), ValueError,
         r"kernels\[1\]: expected 1 to 128 outputs, got 129"),
        (dict(kernels=[ones(3, 16), tf.ones([16, 1], tf.float16)]), TypeError, r"kernels\[1\].*float16"),
        (dict(kernels=[ones(3, 16), "text"]), TypeError, r"kernels\[1\]: expected a tensor"),
        (dict(biases=[ones(16)]), ValueError, r"biases: expected 2, one a matrix, got 1"),
        (dict(biases=[ones(16), ones(2)]), ValueError,
         r"biases\[1\]: expected shape \[1\].*got \[2\]"),
        (dict(activation="gelu"), ValueError, r"activation: expected one of none, relu.*got 'gelu'"),
        (dict(softplus_beta=0.0), tf.errors.InvalidArgumentError, r"softplus_beta must be in \[0.001, 1000\], got 0"),
        (dict(negative_slope=-1.0), tf.errors.InvalidArgumentError, r"negative_slope must be in \[0, 1\], got -1"),
        (dict(negative_slope=-1.0, activation="sine"), ValueError, r"negative_slope: expected a number in \[0, 1\]"),
        (dict(output_activation=3), TypeError, r"output_activation: expected a name, got int"),
        (dict(squareplus_b="4"), TypeError, r"squareplus_b: expected a Python number"),
        (dict(squareplus_b=0.0), tf.errors.InvalidArgumentError, r"squareplus_b must be in \[1e-06, 1e\+06\], got 0"),
    ],
)  # fmt: skip
def test_bad_arguments(change, error, words):
    given = dict(x=ones(2, 3), kernels=[ones(3, 16), ONE])
    metal_ops.fused_mlp(**given)
    with pytest.raises(error, match=words):
        metal_ops.fused_mlp(**{**given, **change})


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(x=tf.ones([2])), r"FusedMlp: x must have shape \[batch, inputs\], got \[2\]"),
        (dict(x=tf.ones([2, 0])), r"FusedMlp: x must have 1 to 128 columns, got 0"),
        (dict(x=tf.ones([2, 129])), r"FusedMlp: x must have 1 to 128 columns, got 129"),
        (dict(weights=tf.ones([63])),
         r"FusedMlp: weights must have shape \[64\], got \[63\]. The layers have 3 x 16 \+ 16 x 1 numbers"),
        (dict(use_bias=True),
         r"weights must have shape \[81\], got \[64\]. The layers have 3 x 16 \+ 16 \+ 16 x 1 \+ 1 numbers"),
        (dict(n_neurons=48), r"FusedMlp: n_neurons must be 16, 32, 64 or 128, got 48"),
        (dict(n_hidden_layers=9), r"FusedMlp: n_hidden_layers must be between 1 and 8, got 9"),
        (dict(n_hidden_layers=0), r"FusedMlp: n_hidden_layers must be between 1 and 8, got 0"),
        (dict(n_outputs=0), r"FusedMlp: n_outputs must be between 1 and 128, got 0"),
        (dict(n_outputs=129), r"FusedMlp: n_outputs must be between 1 and 128, got 129"),
    ],
)  # fmt: skip
def test_bad_calls(change, words):
    given = dict(
        x=tf.ones([2, 3]), weights=tf.ones([64]), n_outputs=1, n_neurons=16, n_hidden_layers=1
    )
    raw_ops.fused_mlp(**given)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=words):
        raw_ops.fused_mlp(**{**given, **change})
    graph = tf.function(lambda: raw_ops.fused_mlp(**{**given, **change}))
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=words):
        graph()


@pytest.mark.instrumented
def test_bad_gradients():
    sizes = dict(n_outputs=1, n_neurons=16, n_hidden_layers=1)
    for shape in ([2], [3, 1], [2, 2]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="FusedMlpGrad: .* must have shape"
        ):
            raw_ops.fused_mlp_grad(tf.ones(shape), tf.ones([2, 3]), tf.ones([64]), **sizes)


# ---- the layer ------------------------------------------------------------------------------------------------------


def stack(width, hidden, units, use_bias=True, output_activation=None):
    dense = [keras.layers.Dense(width, "relu", use_bias) for _ in range(hidden)]
    return [*dense, keras.layers.Dense(units, output_activation, use_bias)]


@pytest.mark.parametrize("use_bias", [False, True])
def test_layer_takes_the_weights_of_dense_layers(use_bias):
    x = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32)
    model = keras.Sequential([keras.Input([12]), *stack(32, 3, 5, use_bias, "sigmoid")])
    layer = FusedMLP(5, 32, 3, output_activation="sigmoid", use_bias=use_bias)
    layer.build((None, 12))
    layer.set_weights(model.get_weights())
    np.testing.assert_allclose(layer(x), model(x), rtol=1e-5, atol=1e-6)
    model.set_weights(layer.get_weights())


@pytest.mark.parametrize(
    "policy, variable, compute",
    [
        ("float32", "float32", "float32"),
        ("mixed_float16", "float32", "float16"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_layer_dtype_policies(policy, variable, compute):
    layer = FusedMLP(3, 16, dtype=policy, seed=1)
    x = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    with tf.GradientTape() as tape:
        y = layer(x)
    assert y.dtype == compute and y.shape == (4, 5, 3)
    assert [v.dtype for v in layer.weights] == [variable] * 6
    expected = mlp.forward(x.reshape(-1, 6), layer.get_weights()[::2], layer.get_weights()[1::2])
    assert_near(tf.reshape(y, [-1, 3]), expected, compute, 3, policy)
    for gradient, of in zip(
        tape.gradient(y, [v.value for v in layer.weights]), layer.weights, strict=True
    ):
        assert gradient.dtype == variable and gradient.shape == of.shape


@pytest.mark.parametrize("activation", mlp.ACTIVATIONS)
@pytest.mark.parametrize("width", [24, 32])
def test_layer_of_a_tcnn_network(activation, width):
    """As tiny-cuda-nn's common_device.h has the functions: squareplus and softplus of 10 x."""
    name = {"relu": "ReLU", "leaky_relu": "LeakyReLU"}.get(activation, activation.capitalize())
    config = {
        "encoding": {"otype": "HashGrid"},
        "network": {
            "otype": "FullyFusedMLP",
            "activation": name,
            "output_activation": name,
            "n_neurons": width,
            "n_hidden_layers": 2,
            "feedback_alignment": False,
        },
    }
    layer = FusedMLP.from_tcnn(json.dumps(config), 3, seed=1)
    again = FusedMLP.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    y = layer(x)
    assert len(layer.weights) == 3 and layer.kernels[1].shape == (width, width)
    functions = {
        "none": lambda v: v,
        "relu": lambda v: np.maximum(v, 0),
        "leaky_relu": lambda v: np.where(v > 0, v, 0.01 * v),
        "exponential": np.exp,
        "sine": np.sin,
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "squareplus": lambda v: 0.5 * (10 * v + np.sqrt((10 * v) ** 2 + 4)) / 10,
        "softplus": lambda v: np.log(np.exp(10 * v) + 1) / 10,
        "tanh": np.tanh,
    }
    expected = x.astype(np.float64)
    for kernel in layer.get_weights():
        expected = functions[activation](expected @ kernel.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "change, words",
    [
        (
            dict(otype="CutlassResNet"),
            r"otype: expected one of FullyFusedMLP, CutlassMLP, got 'CutlassResNet'. It has",
        ),
        (dict(activation="GELU"), r"activation: expected one of None, ReLU, LeakyReLU.*got 'GELU'"),
        (dict(feedback_alignment=True), r"feedback_alignment: expected false, got true"),
        (dict(n_neuron=64), r"unknown field n_neuron: expected some of activation"),
        (dict(n_neurons=256), r"\[FusedMLP\] n_neurons: expected 1 to 128, got 256"),
    ],
)
def test_tcnn_networks_that_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        FusedMLP.from_tcnn({"otype": "FullyFusedMLP", **change}, 3)


def test_layer_seeds():
    layers = [FusedMLP(2, 16, 3, seed=seed) for seed in (1, 1, 2, None)]
    for layer in layers:
        layer.build((None, 16))
    a, b, c, d = ([k.numpy() for k in layer.kernels] for layer in layers)
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(a[0], c[0]) and not np.array_equal(a[0], d[0])
    assert not np.array_equal(a[0], a[1]) and not np.array_equal(a[1], a[2])


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(units=0), ValueError, r"\[FusedMLP\] units: expected 1 to 128, got 0"),
        (dict(units=2.5), TypeError, r"\[FusedMLP\] units: expected an integer"),
        (dict(units=1, n_neurons=129), ValueError, r"n_neurons: expected 1 to 128, got 129"),
        (dict(units=1, n_hidden_layers=9), ValueError, r"n_hidden_layers: expected 1 to 8, got 9"),
        (dict(units=1, activation="gelu"), ValueError, r"activation: expected one of none.*got 'gelu'"),
        (dict(units=1, use_bias=1), TypeError, r"use_bias: expected True or False"),
        (dict(units=1, dtype="float64"), TypeError, r"\[FusedMLP\] dtype: .* got float64"),
    ],
)  # fmt: skip
def test_layer_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        FusedMLP(**arguments)


def test_layer_bad_inputs():
    with pytest.raises(
        ValueError, match=r"\[FusedMLP\] inputs: expected a last dimension of 1 to 128.*got 200"
    ):
        FusedMLP(1)(tf.zeros([2, 200]))
    layer = FusedMLP(1, 16)
    layer(tf.zeros([2, 5]))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 5"):
        layer(tf.zeros([2, 6]))


def test_layer_fit_save_and_load(tmp_path):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (512, 3)).astype(np.float32)
    y = np.sin(3 * x[:, :1]) * np.cos(2 * x[:, 1:2])
    model = keras.Sequential([keras.Input([3]), FusedMLP(1, 64, 2, seed=1)])
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    assert model.jit_compile is False
    history = model.fit(x, y, batch_size=32, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.1 * history[0], history
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # without custom_objects
    np.testing.assert_array_equal(loaded(x), model(x))
    assert loaded.layers[0].get_config() == model.layers[0].get_config()
    for one in (model, loaded):  # training goes on in the same way
        one.fit(x, y, shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded(x), model(x))
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    for n in (1, 7, 99):
        np.testing.assert_allclose(served.serve(x[:n]), model(x[:n]), rtol=1e-5, atol=1e-6)


def test_xla_is_refused_with_a_sentence():
    x, kernels, _ = make(4, 3, 16, 1, 1)
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"\[fused_mlp\] cannot be compiled by XLA"
    ):
        tf.function(lambda: metal_ops.fused_mlp(x, kernels), jit_compile=True)()
