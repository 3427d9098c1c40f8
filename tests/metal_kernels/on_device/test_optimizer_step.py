"""Adam's, RMSprop's and Adagrad's steps on the Metal device, as tests/test_optimizer_step.py has them for the CPU."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tests.test_optimizer_step as steps


@pytest.mark.parametrize("dtype", steps.DTYPES)
@pytest.mark.parametrize("shape", steps.SHAPES, ids=str)
@pytest.mark.parametrize("rule", steps.RULES)
def test_step(rule: str, shape: tuple[int, ...], dtype: str):
    steps.check_step(rule, shape, dtype, "GPU:0")


def test_nan():
    steps.check_nan("GPU:0")


@pytest.mark.parametrize("case", steps.INVALID)
def test_invalid_arguments(case: str):
    steps.check_refuses(case, "GPU:0")


def test_one_variable_twice():
    steps.check_one_variable_twice("GPU:0")


def test_float64_has_no_kernel_there():
    with pytest.raises(tf.errors.InvalidArgumentError, match="ResourceAdagradStep"):
        steps.check_step("adagrad", (3,), "float64", "GPU:0")
