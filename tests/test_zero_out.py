"""ZeroOut: every real number type, odd shapes, and its gradient."""

import numpy as np
import pytest
import tensorflow as tf

import metal_ops

pytestmark = [pytest.mark.ops, pytest.mark.any_simd, pytest.mark.instrumented]

DTYPES = (
    "float64 float32 bfloat16 float16 int32 int8 uint8 int16 uint16 uint32 int64 uint64".split()
)
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (1, 65537)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_numpy(device, dtype, shape):
    if "GPU" in device and dtype == "float64":
        pytest.skip("Metal has no doubles")
    x = (
        (np.arange(np.prod(shape)) % 100 + 3)
        .reshape(shape)
        .astype(tf.as_dtype(dtype).as_numpy_dtype)
    )
    expected = np.zeros_like(x)
    expected.flat[:1] = x.flat[:1]
    result = metal_ops.zero_out(x)
    assert result.dtype == dtype and result.shape == shape
    np.testing.assert_array_equal(result.numpy(), expected)


def test_keeps_nan_and_infinity_apart(device):
    result = metal_ops.zero_out(tf.constant([np.inf, np.nan, -np.inf], tf.float32))
    np.testing.assert_array_equal(result.numpy(), [np.inf, 0, 0])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_gradient_keeps_the_first_element(device, compiled):
    def gradients(x, upstream):
        with tf.GradientTape() as outer:
            outer.watch(upstream)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = metal_ops.zero_out(x)
            first = tape.gradient(y, x, upstream)
        return first, outer.gradient(first, upstream, x)

    x, upstream = tf.constant([[3.0, 4.0], [5.0, 6.0]]), tf.constant([[7.0, 8.0], [9.0, 1.0]])
    first, second = (tf.function(gradients) if compiled else gradients)(x, upstream)
    np.testing.assert_array_equal(first, [[7, 0], [0, 0]])
    np.testing.assert_array_equal(second, [[3, 0], [0, 0]])


@pytest.mark.parametrize("x", [["a"], [1j], [True]], ids=["string", "complex", "bool"])
def test_refuses_other_types(x):
    with pytest.raises(TypeError, match=r"\[zero_out\] x: expected a real number type, got "):
        metal_ops.zero_out(x)


def test_unknown_shape_in_a_graph():
    function = tf.function(metal_ops.zero_out, input_signature=[tf.TensorSpec(None, tf.int32)])
    np.testing.assert_array_equal(function(tf.constant([[4], [5]])), [[4], [0]])
