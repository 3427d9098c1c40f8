"""Hash encoding out of stock TensorFlow ops, the ways people write it, which `metal_ops.hash_encode` replaces."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from metal_ops import HashGrid

PRIMES = (1, 2654435761, 805459861, 3674653429)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _factors(grid: HashGrid, level: int) -> tuple[list[int], bool]:
    """The factors of corners, and whether the level is hashed. For levels of the kind "hash"."""
    size, resolution = int(grid.level_sizes[level]), int(grid.resolutions[level])
    if resolution**grid.n_dims <= size:
        return [resolution**d for d in range(grid.n_dims)], False
    return [_signed(prime) for prime in PRIMES[: grid.n_dims]], True


def _corner(grid: HashGrid, level: int, cell: list, weight: list, corner: int) -> tuple:
    """Row within the level and weight of one corner, [N]. int32 arithmetic wraps as uint32 does."""
    factors, hashed = _factors(grid, level)
    row, total = None, None
    for d in range(grid.n_dims):
        upper = (corner >> d) & 1
        term = (cell[d] + upper) * factors[d]
        part = weight[d] if upper else 1.0 - weight[d]
        total = part if total is None else total * part
        if row is None:
            row = term
        else:
            row = tf.bitwise.bitwise_xor(row, term) if hashed else row + term
    size = int(grid.level_sizes[level])
    if hashed:
        return tf.bitwise.bitwise_and(row, size - 1), total
    return tf.math.floormod(row, size), total


def _cells(points: tf.Tensor, grid: HashGrid, level: int) -> tuple[list, list]:
    position = points * float(grid.scales[level]) + 0.5
    floor = tf.floor(position)
    return tf.unstack(tf.cast(floor, tf.int32), axis=1), tf.unstack(position - floor, axis=1)


def gather_per_level(points: tf.Tensor, table: tf.Tensor, grid: HashGrid) -> tf.Tensor:
    """One gather a level, from the level's part of the table, so that its gradient is summed level by level."""
    outputs = []
    for level, part in enumerate(tf.split(table, grid.level_sizes.tolist())):
        cell, weight = _cells(points, grid, level)
        corners = [_corner(grid, level, cell, weight, c) for c in range(1 << grid.n_dims)]
        features = tf.gather(part, tf.stack([row for row, _ in corners]))  # [2^D, N, F]
        weights = tf.stack([total for _, total in corners])[..., None]
        outputs.append(tf.reduce_sum(features * weights, axis=0))
    return tf.concat(outputs, axis=1)


def gather_per_corner(points: tf.Tensor, table: tf.Tensor, grid: HashGrid) -> tf.Tensor:
    """One gather a level and corner: no intermediate holds more than one corner."""
    outputs = []
    for level, part in enumerate(tf.split(table, grid.level_sizes.tolist())):
        cell, weight = _cells(points, grid, level)
        terms = []
        for c in range(1 << grid.n_dims):
            row, total = _corner(grid, level, cell, weight, c)
            terms.append(tf.gather(part, row) * total[:, None])
        outputs.append(tf.add_n(terms))
    return tf.concat(outputs, axis=1)


def gather_at_once(points: tf.Tensor, table: tf.Tensor, grid: HashGrid) -> tf.Tensor:
    """All levels and corners in one gather, the shortest to write."""
    factors = [_factors(grid, level) for level in range(grid.n_levels)]
    hashed = tf.constant([h for _, h in factors])[:, None, None]
    multiplier = tf.constant(np.array([f for f, _ in factors], np.int32))  # [L, D]
    bits = tf.constant(
        [[(c >> d) & 1 for d in range(grid.n_dims)] for c in range(1 << grid.n_dims)], tf.int32
    )
    position = points * tf.constant(grid.scales)[:, None, None] + 0.5  # [L, N, D]
    floor = tf.floor(position)
    weight = (position - floor)[:, None]  # [L, 1, N, D]
    corner = tf.cast(floor, tf.int32)[:, None] + bits[:, None]  # [L, 2^D, N, D]
    terms = tf.unstack(corner * multiplier[:, None, None], axis=-1)
    added, mixed = terms[0], terms[0]
    for term in terms[1:]:
        added, mixed = added + term, tf.bitwise.bitwise_xor(mixed, term)
    size = tf.constant(grid.level_sizes)[:, None, None]
    row = tf.where(hashed, tf.bitwise.bitwise_and(mixed, size - 1), tf.math.floormod(added, size))
    row += tf.constant(grid.offsets[:-1])[:, None, None]
    weights = tf.reduce_prod(tf.where(bits[:, None] > 0, weight, 1.0 - weight), axis=-1)
    features = tf.reduce_sum(tf.gather(table, row) * weights[..., None], axis=1)  # [L, N, F]
    return tf.reshape(tf.transpose(features, [1, 0, 2]), [-1, grid.output_dim])
