"""Encodings and networks: composite against fused, harmonics against quadrature, activations, precision."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.nerf.config import ModelConfig
from metal_ops.nerf.encodings import composite_hash_encode, frequency_encode, spherical_harmonics
from metal_ops.nerf.model import RadianceField, truncated_exp

GRIDS = {
    "dense and hashed": {"n_levels": 8, "log2_hashmap_size": 12, "finest_resolution": 256},
    "two dimensions": {
        "n_dims": 2,
        "n_levels": 6,
        "log2_hashmap_size": 8,
        "finest_resolution": 128,
    },
    "four dimensions": {
        "n_dims": 4,
        "n_levels": 4,
        "log2_hashmap_size": 12,
        "base_resolution": 4,
        "finest_resolution": 32,
    },
    "four features": {
        "n_features_per_level": 4,
        "n_levels": 4,
        "log2_hashmap_size": 10,
        "finest_resolution": 64,
    },
    "smoothstep": {
        "n_levels": 4,
        "log2_hashmap_size": 10,
        "finest_resolution": 64,
        "interpolation": "smoothstep",
    },
    "all dense": {"n_levels": 3, "base_resolution": 4, "finest_resolution": 10, "kind": "dense"},
}


@pytest.mark.parametrize("case", GRIDS)
def test_composite_hash_encode_equals_fused(case):
    """Values and table gradient: both are float32 sums of 2^D products in another order."""
    grid = metal_ops.HashGrid(**GRIDS[case])
    generator = np.random.default_rng(1)
    corners = np.array([[0.0] * grid.n_dims, [1.0] * grid.n_dims, [0.5] * grid.n_dims])
    points = tf.constant(np.vstack([generator.random((500, grid.n_dims)), corners]), tf.float32)
    table = tf.constant(generator.normal(size=grid.table_shape), tf.float32)
    upstream = tf.constant(generator.normal(size=(503, grid.output_dim)), tf.float32)
    results = []
    for encode in (metal_ops.hash_encode, composite_hash_encode):
        with tf.GradientTape() as tape:
            tape.watch(table)
            value = encode(points, table, grid)
        gradient = tf.convert_to_tensor(tape.gradient(value, table, upstream))
        results.append((value.numpy(), gradient.numpy()))
    # The cell's fraction is a difference of numbers up to the resolution: 256 * 2^-24.
    np.testing.assert_allclose(results[1][0], results[0][0], atol=2e-4)
    np.testing.assert_allclose(results[1][1], results[0][1], atol=1e-3)
    assert np.abs(results[0][1]).max() > 1


def test_spherical_harmonics_are_orthonormal():
    """Gauss-Legendre in z times evenly spaced angles integrates products of degree 6 exactly."""
    z, weights = np.polynomial.legendre.leggauss(8)
    angles = np.arange(16) / 16 * 2 * np.pi
    flat = np.sqrt(1 - z**2)
    points = np.stack(
        [np.outer(flat, np.cos(angles)), np.outer(flat, np.sin(angles)), np.tile(z[:, None], 16)],
        axis=-1,
    )
    values = spherical_harmonics(tf.constant(points.reshape(-1, 3), tf.float32)).numpy()
    measure = np.repeat(weights * 2 * np.pi / 16, 16)
    gram = (values * measure[:, None]).T.astype(np.float64) @ values
    np.testing.assert_allclose(gram, np.eye(16), atol=1e-5)


def test_frequency_encode_against_numpy():
    points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    got = frequency_encode(tf.constant(points, tf.float32), 4).numpy()
    scaled = [points * math.pi * 2.0**k for k in range(4)]
    expected = np.concatenate([points, *map(np.sin, scaled), *map(np.cos, scaled)], axis=1)
    assert got.shape == (20, 3 * (1 + 2 * 4))
    np.testing.assert_allclose(got, expected, atol=1e-5)  # float32 phase of up to 8 pi


def test_truncated_exp():
    x = tf.constant([-100.0, -3.0, 0.0, 5.0, 100.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = truncated_exp(x)
    clamped = np.clip([-100.0, -3.0, 0.0, 5.0, 100.0], -15, 11)
    np.testing.assert_allclose(y, np.exp(clamped), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(y, x), np.exp(clamped), rtol=1e-5)  # not zero


SMALL = ModelConfig(n_levels=6, log2_hashmap_size=10, finest_resolution=64)
CONFIGS = {
    "fused": SMALL,
    "composite": dataclasses.replace(SMALL, backend="composite"),
    "mixed precision": dataclasses.replace(SMALL, mixed_precision=True),
    "frequency": ModelConfig(encoding="frequency", frequency_width=32, frequency_depth=4),
    "frequency, mixed": ModelConfig(
        encoding="frequency", frequency_width=32, frequency_depth=4, mixed_precision=True
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.parametrize("count", [0, 1, 33])
def test_field_shapes_ranges_and_gradients(case, count):
    field = RadianceField(CONFIGS[case], seed=3)
    generator = np.random.default_rng(0)
    points = tf.constant(generator.random((count, 3)), tf.float32)
    directions = tf.math.l2_normalize(
        tf.constant(generator.normal(size=(count, 3)), tf.float32), axis=1
    )
    with tf.GradientTape() as tape:
        density, features = field.geometry(points)
        colour = field.colour(features, field.encode_directions(directions))
        value = tf.reduce_sum(density) + tf.reduce_sum(colour[:, 0])
    assert density.dtype == colour.dtype == tf.float32
    assert density.shape == (count,) and colour.shape == (count, 3)
    assert (density.numpy() > 0).all() and ((colour.numpy() > 0) & (colour.numpy() < 1)).all()
    np.testing.assert_array_equal(field.density(points), density)
    gradients = tape.gradient(value, field.trainable_variables)
    for variable, gradient in zip(field.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        gradient = tf.convert_to_tensor(gradient)
        assert np.isfinite(gradient.numpy()).all()
        assert count < 33 or np.abs(gradient.numpy()).max() > 0, variable.name


def test_backends_share_variables_and_results():
    field = RadianceField(dataclasses.replace(SMALL, backend="composite"), seed=1)
    fused = field.with_backend("fused")
    assert fused.table is field.table and fused.config.backend == "fused"
    points = tf.random.stateless_uniform([200, 3], [1, 2])
    np.testing.assert_allclose(fused.density(points), field.density(points), rtol=1e-5)


def test_mixed_precision_is_close():
    """bfloat16 has 8 bits: relative errors of some 2^-8 after two layers."""
    exact, rough = (
        RadianceField(dataclasses.replace(SMALL, mixed_precision=m), seed=1) for m in (False, True)
    )
    table = exact.table * 1e4  # else all densities are 1
    for field in (exact, rough):
        field.table.assign(table)
    points = tf.random.stateless_uniform([500, 3], [1, 2])
    a, b = exact.density(points).numpy(), rough.density(points).numpy()
    assert 0 < np.abs(np.log(a) - np.log(b)).max() < 0.05 and np.std(np.log(a)) > 0.05


def test_seed_makes_the_field():
    first, second, other = (RadianceField(SMALL, seed) for seed in (1, 1, 2))
    for a, b, c in zip(first.variables, second.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
