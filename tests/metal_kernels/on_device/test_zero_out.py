"""ZeroOut on the Metal device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops

pytestmark = pytest.mark.instrumented

DTYPES = (
    *("float32", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ((), (0,), (0, 3), (1,), (7,), (4, 5, 6), (65537,)), ids=str)
def test_keeps_the_first_element(shape: tuple[int, ...], dtype: str) -> None:
    x = (np.arange(np.prod(shape, dtype=int)) % 100 + 3).reshape(shape)
    x = x.astype(tf.as_dtype(dtype).as_numpy_dtype)
    expected = np.zeros_like(x)
    expected.flat[:1] = x.flat[:1]
    with tf.device("GPU:0"):
        y = metal_ops.zero_out(tf.constant(x))
    assert y.device.endswith("GPU:0")
    np.testing.assert_array_equal(y.numpy(), expected)


def test_bits_are_kept() -> None:
    for bits in (0x7FC00001, 0x80000000, 0x00000001):  # a NaN's payload, -0, the smallest subnormal
        x = np.array([bits, 1], np.uint32).view(np.float32)
        with tf.device("GPU:0"):
            y = metal_ops.zero_out(tf.constant(x))
        assert y.numpy().view(np.uint32).tolist() == [bits, 0]


def test_gradient() -> None:
    with tf.device("GPU:0"):
        x = tf.constant([5.0, 4.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = metal_ops.zero_out(x)
        gradient = tape.gradient(y, x, output_gradients=tf.constant([7.0, 8.0, 9.0]))
    assert gradient.device.endswith("GPU:0")
    np.testing.assert_array_equal(gradient, [7, 0, 0])
