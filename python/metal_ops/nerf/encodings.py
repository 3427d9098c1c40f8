"""Inputs of the networks: hash encoding out of stock TensorFlow ops, frequencies, spherical harmonics."""

from __future__ import annotations

import math

import tensorflow as tf

from metal_ops import HashGrid

# Multipliers of the spatial hash (Teschner et al. 2003; tiny-cuda-nn), one a dimension.
_PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)


def composite_hash_encode(points: tf.Tensor, table: tf.Tensor, grid: HashGrid) -> tf.Tensor:
    """Multiresolution hash encoding from stock TensorFlow ops, one gather a level and corner set.

    The baseline and oracle of `metal_ops.hash_encode`: same numbers, same layout. The table is split
    into levels so that its gradient is one concatenation of dense sums, the fastest of the stock
    formulations that were tried.

    Args:
        points: float32 [N, D] in [0, 1].
        table: float32 [rows, F].
        grid: What the table means.

    Returns:
        float32 [N, L * F], level-major.

    Source: Mueller et al. 2022, "Instant Neural Graphics Primitives", section 3.
    """
    dims = grid.n_dims
    sizes = [int(size) for size in grid.level_sizes]
    corners = [[(corner >> d) & 1 for d in range(dims)] for corner in range(1 << dims)]
    corner_bits = tf.constant(corners, tf.int32)  # [2^D, D]
    outputs = []
    for level, (level_table, size) in enumerate(zip(tf.split(table, sizes), sizes, strict=True)):
        position = points * float(grid.scales[level]) + 0.5
        cell = tf.floor(position)
        fraction = position - cell
        if grid.interpolation == "smoothstep":
            fraction = fraction * fraction * (3.0 - 2.0 * fraction)
        corner = tf.cast(cell, tf.int32)[:, None, :] + corner_bits  # [N, 2^D, D]
        index = _corner_index(corner, int(grid.resolutions[level]), size, grid.kind)
        weight = tf.reduce_prod(
            tf.where(corner_bits > 0, fraction[:, None, :], 1.0 - fraction[:, None, :]), axis=2
        )
        features = tf.gather(level_table, index)  # [N, 2^D, F]
        outputs.append(tf.reduce_sum(features * weight[:, :, None], axis=1))
    return tf.concat(outputs, axis=1)


def _corner_index(corner: tf.Tensor, resolution: int, size: int, kind: str) -> tf.Tensor:
    """Row of a level's table for integer corners [..., D]: dense where the level fits, else hashed."""
    dims = int(corner.shape[-1])
    index = tf.zeros_like(corner[..., 0])
    stride = 1
    for d in range(dims):
        if stride > size:
            break
        index += corner[..., d] * stride
        stride *= resolution
    if stride > size and kind == "hash":
        index = corner[..., 0]
        for d in range(1, dims):
            signed = _PRIMES[d] - (1 << 32) if _PRIMES[d] >= 1 << 31 else _PRIMES[d]
            index = tf.bitwise.bitwise_xor(index, corner[..., d] * signed)
    # int32 arithmetic wraps like uint32, and a hashed level has a power of two of rows.
    if size & (size - 1) == 0:
        return tf.bitwise.bitwise_and(index, size - 1)
    return tf.math.floormod(index, size)


def frequency_encode(points: tf.Tensor, octaves: int) -> tf.Tensor:
    """Sines and cosines of octaves of the coordinates, with the coordinates themselves.

    Args:
        points: float32 [N, D] in [-1, 1].
        octaves: Number of octaves L.

    Returns:
        float32 [N, D * (1 + 2 * L)].

    Source: Mildenhall et al. 2020, "NeRF", equation 4.
    """
    scaled = tf.concat([points * (math.pi * 2.0**k) for k in range(octaves)], axis=1)
    return tf.concat([points, tf.sin(scaled), tf.cos(scaled)], axis=1)


def spherical_harmonics(directions: tf.Tensor) -> tf.Tensor:
    """The 16 real spherical harmonics of degrees 0 to 3 ("degree 4" in tiny-cuda-nn's counting).

    Args:
        directions: float32 [R, 3], unit length.

    Returns:
        float32 [R, 16], orthonormal on the sphere.

    Example:
        >>> import tensorflow as tf
        >>> spherical_harmonics(tf.constant([[0.0, 0.0, 1.0]])).shape
        TensorShape([1, 16])
    """
    x, y, z = tf.unstack(directions, axis=1)
    xx, yy, zz = x * x, y * y, z * z
    # Normalisation factors of the textbook form, e.g. sqrt(1 / (4 pi)) for degree 0.
    pi = math.pi
    c1, c2, c3 = math.sqrt(3 / (4 * pi)), math.sqrt(15 / (4 * pi)), math.sqrt(5 / (16 * pi))
    c4, c5 = math.sqrt(35 / (32 * pi)), math.sqrt(105 / (4 * pi))
    c6, c7 = math.sqrt(21 / (32 * pi)), math.sqrt(7 / (16 * pi))
    return tf.stack(
        [
            tf.fill(tf.shape(x), math.sqrt(1 / (4 * pi))),
            -c1 * y,
            c1 * z,
            -c1 * x,
            c2 * x * y,
            -c2 * y * z,
            c3 * (3 * zz - 1),
            -c2 * x * z,
            0.5 * c2 * (xx - yy),
            c4 * y * (yy - 3 * xx),
            c5 * x * y * z,
            c6 * y * (1 - 5 * zz),
            c7 * z * (5 * zz - 3),
            c6 * x * (1 - 5 * zz),
            0.5 * c5 * z * (xx - yy),
            c4 * x * (3 * yy - xx),
        ],
        axis=1,
    )
