"""A training loop of your own: a signed distance function on a hash grid, with a gradient of a gradient.

    .venv/bin/python examples/custom_training_loop.py

The network learns the distance to a torus from points on its surface and the normals there. Three terms say what a
distance is: on the surface it is 0 and its gradient is the normal, and everywhere its gradient has length 1 (the
eikonal equation; Gropp et al. 2020, "Implicit Geometric Regularization", section 4). Two of them contain a gradient,
and training differentiates it once more: hash_encode has second derivatives for that.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import metal_ops

tf.keras.utils.set_random_seed(0)

# ---- what is learnt -------------------------------------------------------------------------------------------------
# "smoothstep" makes the encoding's gradient continuous, which a distance's gradient should be.
grid = metal_ops.HashGrid(
    n_levels=6,
    base_resolution=4,
    finest_resolution=32,
    log2_hashmap_size=15,
    interpolation="smoothstep",
)
print(grid)
table = tf.Variable(grid.init_table(seed=1))
network = tf.keras.Sequential(
    [
        tf.keras.Input([3 + grid.output_dim]),
        tf.keras.layers.Dense(64, activation="silu"),
        tf.keras.layers.Dense(1, kernel_initializer="zeros"),  # at first the sphere
    ]
)


def distance(points: tf.Tensor) -> tf.Tensor:
    """Distances [N] of points [N, 3] in [0, 1]^3: of a sphere, and a correction that is learnt."""
    sphere = tf.norm(points - 0.5, axis=-1) - 0.3
    features = metal_ops.hash_encode(points, table, grid)  # [N, 12]
    return sphere + network(tf.concat([points, features], axis=-1))[:, 0]


# ---- data -----------------------------------------------------------------------------------------------------------
MAJOR, MINOR = 0.28, 0.12  # radii of the torus around (0.5, 0.5, 0.5)
random = np.random.default_rng(0)


def on_torus(n: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points [n, 3] of the surface and their outward normals [n, 3]."""
    u, v = random.uniform(0, 2 * np.pi, (2, n))
    normals = np.stack([np.cos(u) * np.cos(v), np.sin(u) * np.cos(v), np.sin(v)], axis=-1)
    circle = np.stack([np.cos(u), np.sin(u), 0 * u], axis=-1)
    points = 0.5 + MAJOR * circle + MINOR * normals
    return tf.constant(points, tf.float32), tf.constant(normals, tf.float32)


def true_distance(x: np.ndarray) -> np.ndarray:
    x = x - 0.5
    return np.hypot(np.hypot(x[:, 0], x[:, 1]) - MAJOR, x[:, 2]) - MINOR


# ---- one step -------------------------------------------------------------------------------------------------------
optimizer = metal_ops.optimizers.Adam(2e-3, epsilon=1e-15)
variables = [table, *(variable.value for variable in network.trainable_variables)]


def with_slope(points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Distances [N] and their gradients [N, 3] with respect to the points."""
    with tf.GradientTape() as tape:
        tape.watch(points)
        values = distance(points)
    return values, tape.gradient(values, points)


@tf.function
def step(surface: tf.Tensor, normals: tf.Tensor, space: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        values, slopes = with_slope(surface)
        zero = tf.reduce_mean(tf.abs(values))
        normal = tf.reduce_mean(tf.reduce_sum((slopes - normals) ** 2, axis=-1))
        _, slopes = with_slope(space)
        eikonal = tf.reduce_mean((tf.norm(slopes, axis=-1) - 1) ** 2)
        loss = 3 * zero + 0.1 * normal + 0.1 * eikonal
    gradients = tape.gradient(loss, variables)
    optimizer.apply(gradients, variables)
    return [zero, normal, eikonal]


test = random.uniform(0.15, 0.85, (4096, 3)).astype(np.float32)


def error() -> float:
    return float(np.mean(np.abs(distance(tf.constant(test)) - true_distance(test))))


before = error()
for i in range(1, 401):
    losses = step(*on_torus(2048), tf.random.uniform([2048, 3]))
    if i % 100 == 0:
        names = ("|f| on the surface", "normals", "(|grad f| - 1)^2")
        print(
            f"step {i}:", *(f" {name} {loss:.4f}" for name, loss in zip(names, losses, strict=True))
        )

after = error()
print(f"\nMean error of the distance, off the surface too: {before:.4f} before, {after:.4f} after")
assert after < before / 3, "it should have found the torus"
