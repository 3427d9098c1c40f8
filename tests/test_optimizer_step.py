"""The ops that the fusion pass makes of Adam, RMSprop and Adagrad, against float64; the device runs this, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops
from tests.oracles import optimizer_steps as oracle

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Half a unit in the last place of the stored value; the float32 roundings on the way.
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
WAY = {"float64": 2e-15}
DTYPES = ("float32", "float16", "bfloat16")
# Odd and empty; with more than a piece of the CPU kernel's, and than a threadgroup's.
SHAPES = ((), (0,), (1,), (7,), (0, 3), (37, 2), (1031, 3))

ADAM = dict(alpha=0.05, one_minus_beta1=0.1, one_minus_beta2=0.2, epsilon=1e-3)
RMSPROP = dict(lr=0.05, rho=0.9, one_minus_rho=0.1, epsilon=0.5)
Rule = tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...], dict[str, float]]
RULES: dict[str, Rule] = {
    "adam": (raw_ops.resource_adam_step, oracle.adam, ("m", "v"), ADAM),
    "amsgrad": (raw_ops.resource_adam_step, oracle.adam, ("m", "v", "hats"), ADAM),
    "rmsprop": (raw_ops.resource_rmsprop_step, oracle.rmsprop, ("velocity",), RMSPROP),
    "centred": (raw_ops.resource_rmsprop_step, oracle.rmsprop, ("velocity", "averages"), RMSPROP),
    "rmsprop with momentum": (
        raw_ops.resource_rmsprop_step,
        oracle.rmsprop,
        ("velocity", "momenta"),
        RMSPROP | dict(momentum=0.8),
    ),
    "centred with momentum": (
        raw_ops.resource_rmsprop_step,
        oracle.rmsprop,
        ("velocity", "averages", "momenta"),
        RMSPROP | dict(momentum=0.8),
    ),
    "adagrad": (
        raw_ops.resource_adagrad_step,
        oracle.adagrad,
        ("accumulator",),
        dict(lr=0.05, epsilon=1e-3),
    ),
}
LISTS = {
    raw_ops.resource_adam_step: ("hats",),
    raw_ops.resource_rmsprop_step: ("averages", "momenta", "momentum"),
}


def given(rule: str, shape: tuple[int, ...], dtype: str) -> dict[str, np.ndarray]:
    """The state and the weights themselves, the gradient and the numbers, of that dtype."""
    random = np.random.default_rng(len(shape) + sum(shape))
    _, _, kept, numbers = RULES[rule]
    kind = tf.as_dtype(dtype).as_numpy_dtype
    arrays = {name: random.uniform(0.5, 2, shape) for name in (*kept, "var")}
    if "averages" in arrays:
        arrays["averages"] *= 0.3  # its square is less than the mean of squares
    arrays["gradient"] = random.uniform(0.1, 1, shape) * random.choice([-1, 1], shape)
    return {name: np.asarray(value).astype(kind) for name, value in {**arrays, **numbers}.items()}


def call(rule: str, where: str, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    """The variables after one step."""
    op, _, kept, _ = RULES[rule]
    with tf.device(where):
        variables = {name: tf.Variable(arrays[name]) for name in (*kept, "var")}
        inputs = {
            name: tf.constant(value) for name, value in arrays.items() if name not in variables
        }
        inputs |= {name: variable.handle for name, variable in variables.items()}
        for name in LISTS.get(op, ()):
            inputs[name] = [inputs[name]] if name in inputs else []
        op(**inputs)
        return {name: variable.numpy() for name, variable in variables.items()}


def check_step(rule: str, shape: tuple[int, ...], dtype: str, where: str) -> None:
    arrays = given(rule, shape, dtype)
    wide = {name: value.astype(np.float64) for name, value in arrays.items()}
    _, formula, kept, numbers = RULES[rule]
    states = {name: wide[name] for name in (*kept, "var")}
    expected = formula(states, wide["gradient"], {name: wide[name] for name in numbers})
    got = call(rule, where, arrays)
    assert set(got) == set(expected)
    for name, value in got.items():
        assert value.dtype == arrays[name].dtype and value.shape == shape
        tolerance = 1.01 * UNIT[dtype] + WAY.get(dtype, 1e-6)
        np.testing.assert_allclose(
            value.astype(np.float64), expected[name], rtol=tolerance, atol=tolerance
        )
        if value.size and name != "hats":
            assert np.any(value != arrays[name])


@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_step(rule: str, shape: tuple[int, ...], dtype: str):
    check_step(rule, shape, dtype, "CPU:0")


def check_nan(where: str) -> None:
    """A NaN stays with its element; AMSGrad's maximum does not drop it."""
    for rule in RULES:
        arrays = given(rule, (9,), "float32")
        arrays["gradient"][4] = np.nan
        for value in call(rule, where, arrays).values():
            np.testing.assert_array_equal(np.isnan(value), np.arange(9) == 4)


def test_nan():
    check_nan("CPU:0")


INVALID: dict[str, tuple[str, dict[str, Any], str]] = {
    "variable": ("adam", dict(m=np.zeros((3, 2), np.float32)), r"m must be shaped like gradient"),
    "maximum": ("amsgrad", dict(hats=np.zeros(2, np.float32)), r"hats\[0\] must be shaped like"),
    "rate": ("adagrad", dict(lr=np.ones(2, np.float32)), r"lr must have shape \[\].*got \[2\]"),
    "momentum": (
        "centred with momentum",
        dict(momentum=np.ones((1, 1), np.float32)),
        r"momentum\[0\] must have shape \[\].*got \[1, 1\]",
    ),
    "dtype": ("rmsprop", dict(velocity=np.zeros((2, 3))), r"velocity must be .*float32"),
}


def check_refuses(case: str, where: str) -> None:
    rule, changed, words = INVALID[case]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=words):
        call(rule, where, given(rule, (2, 3), "float32") | changed)


@pytest.mark.parametrize("case", INVALID)
def test_invalid_arguments(case: str):
    check_refuses(case, "CPU:0")


def check_one_variable_twice(where: str) -> None:
    with tf.device(where):
        x, numbers = tf.Variable([1.0]), [tf.constant(0.5)] * 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="accumulator"):
            raw_ops.resource_adagrad_step(x.handle, x.handle, tf.constant([1.0]), *numbers)


def test_one_variable_twice():
    check_one_variable_twice("CPU:0")
