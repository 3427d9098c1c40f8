"""fused_adam and fused_sgd against the papers' formulas in float64."""

from __future__ import annotations

import concurrent.futures

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.oracles import optimizers as oracle

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

STEPS = 20
# A handful of roundings a step, which the next steps carry on: errors add up to a few units in the last place.
TOLERANCE = {"float32": 2e-6, "float64": 1e-14}
HALF_STEP = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def state(value, dtype="float32"):
    return tf.Variable(np.zeros_like(value, dtype=dtype))


def make(shape, steps=STEPS, seed=0, zero_rows=0.0, dtype="float32"):
    random = np.random.default_rng(seed)
    cast = tf.as_dtype(dtype).as_numpy_dtype
    x = random.normal(size=shape).astype(cast)
    gradients = (random.normal(size=(steps, *shape)) + 0.3).astype(cast)
    if zero_rows:
        gradients[random.uniform(size=gradients.shape[:2]) < zero_rows] = 0
        # Part of a row being zero is no reason to skip it.
        gradients.reshape(steps, shape[0], int(np.prod(shape[1:])))[:, ::3, :1] = 0
    return x, gradients


ADAM = {
    "plain": {},
    "betas": dict(beta_1=0.5, beta_2=0.9),
    "no first moment": dict(beta_1=0.0),
    "epsilon": dict(epsilon=0.3),
    "weight decay": dict(weight_decay=0.4),
    "amsgrad": dict(amsgrad=True, beta_2=0.5),
    "all": dict(amsgrad=True, beta_2=0.5, weight_decay=0.1, epsilon=1e-3),
}


def run_adam(x, gradients, lr, amsgrad=False, steps_in_graph=False, **options):
    moments = "float64" if x.dtype == np.float64 else "float32"
    variable, m, v, hat = tf.Variable(x), *(state(x, moments) for _ in range(3))

    def step(number, gradient):
        metal_ops.fused_adam(
            variable,
            m,
            v,
            gradient,
            step=number,
            learning_rate=lr,
            v_hat=hat if amsgrad else None,
            **options,
        )

    call = tf.function(step) if steps_in_graph else step
    for number, gradient in enumerate(gradients, start=1):
        call(tf.constant(number), tf.constant(gradient))
    return [value.numpy() for value in (variable, m, v, hat)]


@pytest.mark.parametrize("skip_zero_rows", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", ADAM.values(), ids=ADAM)
def test_adam_is_the_papers(options, dtype, skip_zero_rows):
    x, gradients = make((37, 3), zero_rows=0.4 if skip_zero_rows else 0, dtype=dtype)
    options = {**options, "skip_zero_rows": skip_zero_rows}
    actual = run_adam(x, gradients, 0.05, **options)
    expected = oracle.adam(x, gradients, 0.05, **options)
    for a, b, name in zip(actual, expected, ("x", "m", "v", "hat"), strict=True):
        if name == "hat" and not options.get("amsgrad"):
            continue
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=name)


SGD = {
    "plain": {},
    "momentum": dict(momentum=0.9),
    "nesterov": dict(momentum=0.9, nesterov=True),
    "weight decay": dict(momentum=0.5, weight_decay=0.3),
    "plain with weight decay": dict(weight_decay=0.3),
}


@pytest.mark.parametrize("skip_zero_rows", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", SGD.values(), ids=SGD)
def test_sgd_is_the_papers(options, dtype, skip_zero_rows):
    x, gradients = make((37, 3), zero_rows=0.4 if skip_zero_rows else 0, dtype=dtype)
    variable, m = tf.Variable(x), state(x, dtype)
    options = {**options, "skip_zero_rows": skip_zero_rows}
    for gradient in gradients:
        metal_ops.fused_sgd(
            variable,
            gradient,
            learning_rate=0.05,
            m=m if "momentum" in options else None,
            **options,
        )
    expected, expected_m = oracle.sgd(x, gradients, 0.05, **options)
    np.testing.assert_allclose(variable, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if "momentum" in options:
        np.testing.assert_allclose(m, expected_m, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.one_of(
        st.tuples(st.integers(0, 200)),
        st.tuples(st.integers(0, 60), st.sampled_from([1, 2, 3, 4, 8, 17])),
        st.tuples(st.integers(0, 3), st.sampled_from([511, 512, 513, 1100])),
        st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5)),
    ),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    zero_rows=st.sampled_from([0.0, 0.5, 0.95]),
    seed=st.integers(0, 100),
)
def test_any_shape_with_rows_skipped(shape, dtype, zero_rows, seed):
    x, gradients = make(shape, 1, seed, zero_rows if len(shape) > 1 else 0, dtype)
    actual = run_adam(x, gradients, 0.05, skip_zero_rows=True)
    expected = oracle.adam(x, gradients, 0.05, skip_zero_rows=True)
    for a, b in zip(actual[1:3], expected[1:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)
    rounding = HALF_STEP.get(dtype, 0) * 1.01
    got = actual[0].astype(np.float64)
    np.testing.assert_allclose(got, expected[0], rtol=rounding + 1e-6, atol=rounding * 1e-3 + 1e-7)


def test_scalars_and_empty_variables():
    for x in (np.float32(2.0), np.zeros([0, 4], np.float32)):
        for skip in (False, True):
            out = run_adam(
                np.asarray(x), np.ones((1, *np.shape(x)), np.float32), 0.5, skip_zero_rows=skip
            )
            np.testing.assert_allclose(out[0], x - 0.5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_float32_moments(dtype):
    """The same gradients in float32 give the same moments bit by bit."""
    x, gradients = make((700,), 5, dtype=dtype)
    half = run_adam(x, gradients, 1e-3)
    full = run_adam(x.astype(np.float32), gradients.astype(np.float32), 1e-3)
    np.testing.assert_array_equal(half[1], full[1])
    np.testing.assert_array_equal(half[2], full[2])


def test_graph_equals_eager():
    x, gradients = make((50, 2), 4)
    for a, b in zip(
        run_adam(x, gradients, 0.1),
        run_adam(x, gradients, 0.1, steps_in_graph=True),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_a_row_of_nan_is_not_skipped():
    """NaN is no zero, in rows that are worked on in vectors (1, 2, 4, 8) and in others."""
    for row in (1, 2, 3, 4, 8):
        gradients = np.zeros((1, 40, row), np.float32)
        gradients[0, 5] = np.nan
        x = run_adam(np.ones((40, row), np.float32), gradients, 0.1, skip_zero_rows=True)[0]
        np.testing.assert_array_equal(np.isnan(x).all(axis=1), np.arange(40) == 5, err_msg=str(row))


def test_nan_and_infinity_stay_where_they_are():
    x, gradients = make((40,), 3)
    clean = run_adam(x, gradients, 0.1, amsgrad=True)
    gradients[1, 7], gradients[1, 30] = np.nan, np.inf
    spoilt = run_adam(x, gradients, 0.1, amsgrad=True)
    for a, b in zip(spoilt, clean, strict=True):
        np.testing.assert_array_equal(np.delete(a, [7, 30]), np.delete(b, [7, 30]))
        assert np.isnan(a[7]) and not np.isfinite(a[30])


def test_what_was_read_before_does_not_change():
    """A variable's memory is shared with its readers until it is written."""
    variable, m, v = (
        tf.Variable(np.ones(1000, np.float32)),
        state(np.ones(1000)),
        state(np.ones(1000)),
    )
    before = variable.read_value()
    gathered = tf.gather(variable, [0, 1])  # switches to copying on read
    alias = tf.identity(variable)
    metal_ops.fused_adam(variable, m, v, tf.ones(1000), step=1, learning_rate=0.5)
    for seen in (before, alias, gathered):
        assert np.all(seen.numpy() == 1)
    np.testing.assert_allclose(variable, 0.5, rtol=1e-5)  # epsilon is 3e-6 of the square root


def test_updates_from_many_threads_are_all_made():
    variable = tf.Variable(np.zeros(5000, np.float32))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(lambda: metal_ops.fused_sgd(variable, tf.ones(5000), learning_rate=1.0))
            for _ in range(100)
        ]
        for job in jobs:
            job.result()
    np.testing.assert_array_equal(variable, np.full(5000, -100.0))


def test_order_in_a_function_is_the_programs():
    """Stateful ops on one variable run in the order in which they are written."""
    variable = tf.Variable([1.0])

    @tf.function
    def steps():
        metal_ops.fused_sgd(variable, [1.0], learning_rate=1.0)
        first = variable.read_value()
        variable.assign([10.0])
        metal_ops.fused_sgd(variable, [1.0], learning_rate=1.0, weight_decay=0.5)
        return first

    assert steps().numpy() == [0.0] and variable.numpy() == [4.0]


def test_bad_arguments():
    x = tf.Variable([1.0, 2.0])
    m, v = tf.Variable([0.0, 0.0]), tf.Variable([0.0, 0.0])

    def adam(variable=x, m=m, v=v, gradient=None, **change):
        gradient = tf.ones(2) if gradient is None else gradient
        metal_ops.fused_adam(
            variable, m, v, gradient, **{"step": 1, "learning_rate": 0.1, **change}
        )

    adam()
    Invalid = tf.errors.InvalidArgumentError
    with pytest.raises(Invalid, match=r"m must be shaped like gradient, \[2\], got \[3\]"):
        adam(m=tf.Variable([0.0, 0.0, 0.0]))
    with pytest.raises(Invalid, match="v must be of dtype float32, got float16"):
        adam(v=tf.Variable([0.0, 0.0], dtype=tf.float16))
    with pytest.raises(Invalid, match="v must be a variable of its own"):
        adam(v=m)
    with pytest.raises(Invalid, match=r"beta_1 and beta_2 must be in \[0, 1\), got 1.0"):
        adam(beta_1=1.0)
    with pytest.raises(Invalid, match="step must count from 1, got 0"):
        adam(step=0)
    with pytest.raises(Invalid, match="variable must be shaped like gradient"):
        adam(gradient=tf.ones(3))
    with pytest.raises(
        Invalid, match=r"learning_rate must have shape \[\] \(a scalar\), got \[2\]"
    ):
        adam(learning_rate=[0.1, 0.2])
    with pytest.raises(
        TypeError, match="gradient: expected dtype float32 as of variable, got float16"
    ):
        adam(gradient=tf.ones(2, tf.float16))
    with pytest.raises(TypeError, match="variable: expected dtype float32, float16"):
        adam(variable=tf.Variable([1, 2]))
    with pytest.raises(ValueError, match="variable must be shaped like gradient"):
        tf.function(lambda: adam(gradient=tf.ones(3)))()
    with pytest.raises(tf.errors.UnimplementedError, match="cannot be compiled by XLA"):
        tf.function(adam, jit_compile=True)()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        late = tf.Variable([1.0])
        update = metal_ops.fused_sgd(late, [1.0], learning_rate=0.1)
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="variable must be a variable with a value"
        ):
            session.run(update)


def test_variables_of_keras_are_updated_too():
    variable = keras.Variable([3.0, -2.0])
    metal_ops.fused_sgd(variable, [1.0, -1.0], learning_rate=0.5)
    np.testing.assert_array_equal(variable.numpy(), [2.5, -1.5])


@pytest.mark.parametrize("kind", [tf.constant, np.float32, list])
def test_what_cannot_be_updated_in_place_is_refused(kind):
    with pytest.raises(TypeError, match="variable: expected a tf.Variable, got .*updated in place"):
        metal_ops.fused_sgd(kind([3.0, -2.0]), [1.0, -1.0], learning_rate=0.5)
