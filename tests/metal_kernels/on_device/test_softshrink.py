"""softshrink on the Metal device: the CPU's tests again, and the same bits as the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_softshrink as on_cpu
from tests.metal_kernels.on_device import again

SHAPES = ((), (0,), (1,), (7,), (3, 5, 2), (0, 4), (1031,), (70001,))


guard = again.guarding(["softshrink", "softshrink_grad"], ["test_bad_arguments"])


@pytest.mark.usefixtures("guard")
class TestOnDevice(again.tests_of(on_cpu)):
    pass


@pytest.mark.instrumented
@pytest.mark.parametrize("dtype", again.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("lambd", [0.0, 0.5])
def test_equals_the_cpu(lambd, shape, dtype):
    random = np.random.default_rng(0)
    x, g = (np.asarray(random.normal(size=shape)).astype(dtype_of(dtype)) for _ in range(2))
    if x.size > 6:
        x.flat[:6] = [np.nan, np.inf, -np.inf, lambd, -lambd, 0]
    cpu, device = again.on_both(
        lambda x, g: (
            raw_ops.softshrink(x, lambd=lambd),
            raw_ops.softshrink_grad(g, x, lambd=lambd),
        ),
        x,
        g,
    )
    # One subtraction and one rounding: no tolerance.
    for expected, actual in zip(cpu, device, strict=True):
        np.testing.assert_array_equal(actual, expected)


def dtype_of(name):
    return tf.as_dtype(name).as_numpy_dtype


def test_in_a_graph_on_the_device():
    @tf.function
    def slope(x):
        with tf.device("GPU:0"), tf.GradientTape() as tape:
            tape.watch(x)
            y = metal_ops.softshrink(x, 1.0)
        return tape.gradient(y, x)

    np.testing.assert_array_equal(slope(tf.constant([-2.0, 0.5, 3.0])), [1, 0, 1])


def test_bad_arguments_in_one_voice():
    for call in (
        lambda: raw_ops.softshrink([1.0], lambd=-1.0),
        lambda: raw_ops.softshrink([1.0], lambd=float("nan")),
        lambda: raw_ops.softshrink_grad([1.0], [1.0], lambd=-0.5),
        lambda: raw_ops.softshrink_grad([1.0], [1.0, 2.0]),
        lambda: raw_ops.softshrink_grad([[1.0]], [1.0]),
    ):
        assert "Softshrink" in again.assert_same_sentence(call)
