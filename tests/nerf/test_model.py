"""The radiance field: shapes, gradients, activations, precision, seeds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.nerf.config import DENSITIES, ModelConfig
from metal_ops.nerf.model import RadianceField, density_of, truncated_exp


def test_truncated_exp():
    x = tf.constant([-100.0, -3.0, 0.0, 5.0, 100.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = truncated_exp(x)
    clamped = np.clip([-100.0, -3.0, 0.0, 5.0, 100.0], -15, 11)
    np.testing.assert_allclose(y, np.exp(clamped), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(y, x), np.exp(clamped), rtol=1e-5)  # not zero


def test_densities():
    """The density from the first output of the density network, and its slope."""
    x = np.array([-3.0, 0.5, 4.0], np.float32)
    expected = {
        "exp": (np.exp(x), np.exp(x)),
        "softplus": (np.log1p(np.exp(x)), 1 / (1 + np.exp(-x))),
        "relu": (np.maximum(x, 0), x > 0),
    }
    assert set(expected) == set(DENSITIES)
    for kind, (values, slopes) in expected.items():
        point = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(point)
            y = density_of(kind, point)
        np.testing.assert_allclose(y, values, rtol=1e-5)
        np.testing.assert_allclose(tape.gradient(y, point), slopes, rtol=1e-5)
    points = tf.random.stateless_uniform([20, 3], [1, 2])
    fields = [RadianceField(dataclasses.replace(SMALL, density=kind), 1) for kind in DENSITIES]
    assert len({float(field.density(points)[0]) for field in fields}) == len(DENSITIES)


SMALL = ModelConfig(n_levels=6, log2_hashmap_size=10, finest_resolution=64)
CONFIGS = {
    "fused": SMALL,
    "composite": dataclasses.replace(SMALL, backend="composite"),
    "mixed precision": dataclasses.replace(SMALL, mixed_precision=True),
    "frequency": ModelConfig(encoding="frequency", frequency_width=32, frequency_depth=4),
    "frequency, composite": ModelConfig(
        encoding="frequency", backend="composite", frequency_width=32, frequency_depth=4
    ),
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
