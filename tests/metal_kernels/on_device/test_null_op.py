"""NullOp: the template op. The `device` fixture runs a test on the CPU, then on the Metal device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops

# y is computed in float32 and rounded once: half a unit in the last place of the dtype.
TOLERANCE = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SHAPES = ((), (0,), (1,), (7,), (3, 5, 2), (1031,))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_value_and_gradient(shape: tuple[int, ...], dtype: str, device: str) -> None:
    random = np.random.default_rng(0)
    x = np.asarray(random.normal(size=shape)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    upstream = np.asarray(random.normal(size=shape)).astype(x.dtype)
    x_tensor = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x_tensor)
        y = metal_ops.null_op(x_tensor, scale=0.75)
    gradient = tape.gradient(y, x_tensor, output_gradients=tf.constant(upstream))
    for actual, source in ((y, x), (gradient, upstream)):
        assert actual.device.endswith(device.strip("/"))
        expected = 0.75 * source.astype(np.float64)
        np.testing.assert_allclose(
            actual.numpy().astype(np.float64), expected, rtol=TOLERANCE[dtype], atol=1e-7
        )


def test_in_a_function(device: str) -> None:
    @tf.function
    def twice_and_half(x: tf.Tensor) -> tf.Tensor:
        return metal_ops.null_op(metal_ops.null_op(x, scale=2.0), scale=0.5)

    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(twice_and_half(tf.constant(x)), x)


def test_wrong_dtype() -> None:
    with pytest.raises(TypeError, match="null_op.*float32.*int32"):
        metal_ops.null_op(tf.constant([1, 2]))
