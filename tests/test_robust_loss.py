"""robust_loss against the paper's formula in extended precision, its limits, and differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal
from tests.oracles import losses as oracle
from tests.oracles import numeric

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

INF = float("inf")
ALPHAS = [2.0, 0.0, -INF, INF, 1.0, -2.0, 1.5, 0.5, -0.5, -4.0, -20.0, 3.0, 2.5, 6.0]
# Around the removable singularities: the next float32, and so far that both formulas are at their limits.
ALPHAS += [1e-30, 1e-6, -1e-6, 1e-3, -1e-3, 0.999, 1.001]
ALPHAS += [float(np.nextafter(np.float32(2), np.float32(x))) for x in (0, 9)]
ALPHAS += [2 - 1e-4, 2 + 1e-4, 1.99, 2.01]
# log, exp and a product of up to 20 digits' worth of exponent: rounding of L by 2^-24 counts |alpha| L times.
TOLERANCE = 4e-6
ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def residuals(alpha=1.0):
    x = np.concatenate([[0], np.geomspace(1e-4, 8, 60)])
    if alpha > 2:
        x = x[x < 3]
    return np.concatenate([x, -x]).astype(np.float32)


def differences(function, x, step):
    """Central differences of a function in extended precision: errors of step^2."""
    x = np.asarray(x, np.longdouble)
    step = np.longdouble(step)
    return ((function(x + step) - function(x - step)) / (2 * step)).astype(np.float64)


def slopes(x, alpha, scale):
    """loss, d loss / d x, d loss / d alpha, d loss / d scale of each element."""
    return metal_ops.raw_ops.robust_loss(
        x, np.zeros(0, np.float32), alpha, scale, parameter_gradients=True
    )


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_value_and_slopes(alpha, scale):
    x = residuals(alpha)
    loss, slope, _, slope_scale = slopes(x, alpha, scale)
    alpha, scale = np.float32(alpha), np.float32(scale)
    # exp(z / 2) makes of each rounding of z one z / 2 times as large.
    tolerance = TOLERANCE * (5 if alpha == INF else 1)
    expected = oracle.robust(x, alpha, scale).astype(np.float64)
    np.testing.assert_allclose(loss, expected, rtol=tolerance, atol=1e-30)
    expected = differences(lambda v: oracle.robust(v, alpha, scale), x, 1e-6)
    np.testing.assert_allclose(slope, expected, rtol=2 * tolerance, atol=1e-9)
    expected = differences(lambda v: oracle.robust(x, alpha, v), np.full_like(x, scale), 1e-7)
    np.testing.assert_allclose(slope_scale, expected, rtol=3 * tolerance, atol=1e-9)


@pytest.mark.parametrize("alpha", [a for a in ALPHAS if a not in (2.0, INF, -INF)])
def test_slope_of_alpha(alpha):
    """Element by element, from the smallest residuals, where all but the series loses its digits."""
    x = np.unique(np.abs(residuals(alpha)))
    alpha = np.float32(alpha)
    actual = slopes(x, alpha, 1.0)[2].numpy()
    # The step stays on one side of 2, and well above the roundings of extended precision.
    step = min(1e-5, abs(float(alpha) - 2) / 1000)
    exact = differences(lambda v: oracle.robust(x, v, 1.0), np.full_like(x, alpha), step)
    noise = 2.0**-63 * oracle.robust(x, alpha, 1.0).astype(np.float64) / step
    bound = 1e-4 * np.abs(exact) + 10 * noise + 2e-7 * np.minimum(x**2, 1)
    wrong = ~(np.abs(actual - exact) <= bound)
    assert not np.any(wrong), np.stack([x, actual, exact, bound])[:, wrong].T


def test_limits_of_alpha_have_no_slope():
    for alpha in (2.0, INF, -INF):
        shape = tf.constant(alpha)
        with tf.GradientTape() as tape:
            tape.watch(shape)
            loss = metal_ops.robust_loss(residuals(3.0), shape, 1.0)
        assert tape.gradient(loss, shape) == 0


def test_named_special_cases():
    x = np.linspace(-3, 3, 41).astype(np.float32)
    z = (x / 0.7) ** 2
    cases = {
        2.0: z / 2,
        1.0: np.sqrt(z + 1) - 1,
        0.0: np.log(z / 2 + 1),
        -2.0: 2 * z / (z + 4),
        -INF: 1 - np.exp(-z / 2),
        INF: np.exp(z / 2) - 1,
    }
    for alpha, expected in cases.items():
        np.testing.assert_allclose(
            metal_ops.robust_loss(x, alpha, 0.7), expected, rtol=3e-6, atol=2e-7
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    x = tf.cast(residuals(), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = metal_ops.robust_loss(x, 0.5, 0.8)
    assert loss.dtype == dtype
    wide = np.asarray(tf.cast(x, tf.float32))
    expected = oracle.robust(wide, 0.5, np.float32(0.8)).astype(np.float64)
    rounding = ROUNDING[dtype] * 1.01
    np.testing.assert_allclose(tf.cast(loss, tf.float64), expected, rtol=rounding, atol=2.0**-25)
    slope = differences(lambda v: oracle.robust(v, 0.5, np.float32(0.8)), wide, 1e-6)
    np.testing.assert_allclose(
        tf.cast(tape.gradient(loss, x), tf.float64), slope, rtol=rounding, atol=2.0**-25
    )


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("reduce_last", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_gradients_of_all_arguments(per_channel, reduce_last, graph):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 40, 3)).astype(np.float32)
    alpha = np.float32([-1.5, 0.0, 1.2]) if per_channel else np.float32(0.7)
    scale = np.float32([0.5, 1.0, 2.0]) if per_channel else np.float32(0.8)
    mix = random.normal(size=40 if reduce_last else (40, 3)) + 0.5

    def loss_of(x, y, alpha, scale):
        loss = oracle.robust(x - np.asarray(y, np.float64), alpha, scale)
        return float(np.sum((loss.mean(axis=-1) if reduce_last else loss) * mix))

    def gradients(x, y, alpha, scale):
        with tf.GradientTape() as tape:
            tape.watch([x, y, alpha, scale])
            loss = metal_ops.robust_loss(x, alpha, scale, targets=y, reduce_last=reduce_last)
            total = tf.reduce_sum(loss * tf.cast(mix, tf.float32))
        return tape.gradient(total, [x, y, alpha, scale])

    values = [x, y, alpha, scale]
    actual = (tf.function(gradients) if graph else gradients)(*map(tf.constant, values))
    for i, name in enumerate(("x", "targets", "alpha", "scale")):
        expected = numeric.gradient(
            lambda v, i=i: loss_of(*values[:i], v, *values[i + 1 :]), values[i]
        )
        numeric.assert_gradient(actual[i], expected, 2e-5, name)


def test_no_derivative_of_numbers():
    x = tf.constant([1.0, 2.0])
    graph = tf.function(lambda x: metal_ops.robust_loss(x, 0.5)).get_concrete_function(x).graph
    (op,) = (op for op in graph.get_operations() if op.type == "RobustLoss")
    assert not op.get_attr("parameter_gradients")


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
    | st.sampled_from([(), (255,), (257, 2), (3, 513)]),
    reduce_last=st.booleans(),
    alpha=st.sampled_from(ALPHAS),
)
def test_any_shape(shape, reduce_last, alpha):
    if alpha > 2:
        alpha = -alpha
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if reduce_last and not shape:
        with pytest.raises(tf.errors.InvalidArgumentError, match="a last dimension to reduce"):
            metal_ops.robust_loss(x, alpha, reduce_last=True)
        return
    actual = metal_ops.robust_loss(x, alpha, reduce_last=reduce_last)
    expected = oracle.robust(x, np.float32(alpha), 1.0).astype(np.float64)
    if reduce_last:
        assert actual.shape == shape[:-1]
        if shape[-1] == 0:
            assert np.all(np.isnan(actual))
            return
        expected = expected.mean(axis=-1)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-12)


def test_nan_and_infinity_stay_where_they_are():
    for alpha in (2.0, 0.0, 1.0, -2.0, -INF, INF):
        x = np.linspace(-2, 2, 40).astype(np.float32)
        clean = metal_ops.robust_loss(x, alpha).numpy()
        x[11], x[23] = np.nan, np.inf
        spoilt = metal_ops.robust_loss(x, alpha).numpy()
        np.testing.assert_array_equal(np.delete(spoilt, [11, 23]), np.delete(clean, [11, 23]))
        assert np.isnan(spoilt[11])
        bounded = {-2.0: 2.0, -INF: 1.0}
        assert spoilt[23] == bounded.get(alpha, np.inf)


@pytest.mark.parametrize("alpha", [3.4e38, -3.4e38, 1e25])
def test_alpha_beyond_all_digits_is_infinite(alpha):
    """z / |alpha - 2| was below the smallest number, and the loss 0."""
    x = residuals()
    for actual, limit in zip(
        slopes(x, alpha, 0.5), slopes(x, np.copysign(INF, alpha), 0.5), strict=True
    ):
        np.testing.assert_array_equal(actual, limit)
        assert np.all(np.isfinite(limit) | (alpha > 0))


def test_bad_arguments():
    Invalid = tf.errors.InvalidArgumentError
    for scale in (0.0, -1.0):
        with pytest.raises(Invalid, match="robust_loss: scale must be above 0, got"):
            metal_ops.robust_loss([1.0], scale=scale)
    with pytest.raises(Invalid, match=r"alpha must be a scalar or a vector .* 2, got shape \[3\]"):
        metal_ops.robust_loss([[1.0, 2.0]], alpha=[1.0, 2.0, 3.0])
    for targets in ([1.0, 2.0], np.zeros([0, 2])):
        with pytest.raises(Invalid, match="targets must be shaped like x"):
            metal_ops.robust_loss([[1.0, 2.0]], targets=targets)
    with pytest.raises(TypeError, match="targets: expected dtype float32 as of x, got float16"):
        metal_ops.robust_loss([1.0], targets=tf.zeros([1], tf.float16))
    x = tf.constant([1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = metal_ops.robust_loss(x)
        slope = inner.gradient(loss, x)
    with pytest.raises(LookupError, match="ScaleSlope.* second derivatives"):
        outer.gradient(slope, x)


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def in_rows() -> dict[str, np.ndarray]:
    return {
        "residuals": normal(5000, 7),
        "targets": normal(5000, 7, seed=1),
        "alpha": np.linspace(-3, 3, 7).astype(np.float32),
        "scale": np.linspace(0.1, 2, 7).astype(np.float32),
    }


CALLS = {
    "robust_loss": Call(
        lambda residuals, **a: metal_ops.robust_loss(residuals, **a, reduce_last=True),
        in_rows,
        ("residuals", "targets", "alpha", "scale"),
    ),
}
