"""sh_encode against Rodrigues' formula in float64, the sphere's orthonormality, and differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal
from tests.oracles import encodings, numeric

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# A recurrence of up to 8 steps, a few roundings each, of values up to 3.
TOLERANCE = 6e-6
ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def directions_of(n, seed=0):
    values = np.random.default_rng(seed).normal(size=(n, 3))
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    values[: min(n, 6)] = axes[: min(n, 6)]
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("degree", range(1, 9))
def test_values(degree, dtype):
    directions = directions_of(1003)
    actual = metal_ops.sh_encode(directions, degree, dtype=dtype)
    assert actual.dtype == dtype and actual.shape == (1003, degree**2)
    np.testing.assert_allclose(
        tf.cast(actual, tf.float64),
        encodings.spherical_harmonics(directions, degree),
        rtol=ROUNDING[dtype],
        atol=TOLERANCE + (2.0**-25 if dtype == "float16" else 0),
    )


def test_signs_and_order_of_the_first_bands():
    """Written out by hand: the same as in tiny-cuda-nn and torch-ngp."""
    x, y, z = 0.48, 0.6, 0.64
    expected = [0.28209479, -0.48860251 * y, 0.48860251 * z, -0.48860251 * x, 1.09254843 * x * y]
    expected += [-1.09254843 * y * z, 0.94617470 * z * z - 0.31539157, -1.09254843 * x * z]
    expected += [0.54627422 * (x * x - y * y), 0.59004359 * y * (y * y - 3 * x * x)]
    actual = metal_ops.sh_encode([[x, y, z]], 4)[0, :10]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_orthonormal_on_the_sphere():
    """Gauss-Legendre in z and equal steps around it integrate products of two bands exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    angles = np.arange(32) * 2 * np.pi / 32
    z, phi = (a.ravel() for a in np.meshgrid(nodes, angles, indexing="ij"))
    r = np.sqrt(1 - z**2)
    points = np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=1).astype(np.float32)
    values = metal_ops.sh_encode(points, 8).numpy().astype(np.float64)
    weight = np.repeat(weights, 32) * 2 * np.pi / 32
    np.testing.assert_allclose(values.T @ (values * weight[:, None]), np.eye(64), atol=5e-6)


@pytest.mark.parametrize("degree", range(1, 9))
def test_gradient(degree):
    directions = directions_of(37, seed=degree)
    mix = np.random.default_rng(1).normal(size=(37, degree**2)) + 0.3
    x = tf.constant(directions)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(metal_ops.sh_encode(x, degree) * tf.cast(mix, tf.float32))
    slope = tape.gradient(loss, x)
    if degree == 1:
        np.testing.assert_array_equal(slope, np.zeros((37, 3)))
        return
    expected = numeric.gradient(
        lambda d: np.sum(mix * encodings.spherical_harmonics(d, degree)), directions
    )
    numeric.assert_gradient(slope, expected, 5e-6, f"degree {degree}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradient_of_half_precision(dtype):
    directions = tf.constant(directions_of(20))
    slopes = []
    for kind in (dtype, "float32"):
        with tf.GradientTape() as tape:
            tape.watch(directions)
            encoded = tf.cast(metal_ops.sh_encode(directions, 5, dtype=kind), tf.float32)
            loss = tf.reduce_sum(encoded)
        slopes.append(tape.gradient(loss, directions))
    np.testing.assert_array_equal(*slopes)  # ones are exact in every dtype


@settings(max_examples=30, deadline=None)
@given(
    leading=st.lists(st.integers(0, 5), max_size=3),
    degree=st.integers(1, 8),
)
def test_any_leading_dimensions(leading, degree):
    points = directions_of(int(np.prod(leading))).reshape(*leading, 3)
    encoded = metal_ops.sh_encode(points, degree)
    assert encoded.shape == (*leading, degree**2)
    flat = encodings.spherical_harmonics(points.reshape(-1, 3), degree)
    np.testing.assert_allclose(encoded, flat.reshape(encoded.shape), atol=TOLERANCE)


def test_nan_stays_in_its_point():
    points = directions_of(40)
    clean = metal_ops.sh_encode(points, 4).numpy()
    points[17, 1] = np.nan
    spoilt = metal_ops.sh_encode(points, 4).numpy()
    np.testing.assert_array_equal(np.delete(spoilt, 17, 0), np.delete(clean, 17, 0))
    assert np.isnan(spoilt[17]).sum() >= 10


def test_shapes_in_graphs():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.float32)])
    def encode(x):
        y = metal_ops.sh_encode(x, 3)
        assert y.shape.as_list() == [None, None, 9]
        return y

    assert encode(tf.zeros([2, 4, 3])).shape == (2, 4, 9)


def test_bad_arguments():
    for degree in (0, 9):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"sh_encode: degree must be .* got {degree}"
        ):
            metal_ops.sh_encode([[0.0, 0, 1]], degree)
    with pytest.raises(ValueError, match="directions: expected last dimension 3"):
        metal_ops.sh_encode([[0.0, 1.0]])
    with pytest.raises(TypeError, match="directions: expected dtype float32, got float16"):
        metal_ops.sh_encode(tf.zeros([1, 3], tf.float16))
    x = tf.constant([[0.0, 0.0, 1.0]])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = metal_ops.sh_encode(x)
        slope = inner.gradient(y, x)
    with pytest.raises(LookupError, match="ShEncodeGrad"):
        outer.gradient(slope, x)


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


CALLS = {
    "sh_encode": Call(lambda x: metal_ops.sh_encode(x, 5), lambda: {"x": normal(4001, 3)}, ("x",)),
}
