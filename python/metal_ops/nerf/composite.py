"""The NeRF program's operations from stock TensorFlow ops alone; `fused.py` has the same functions from the library's.

This is `--backend composite`: the baseline that the library's ops are timed against, and an oracle for them. It is
written the way a user without custom ops would write it for speed; where several formulations were tried, the fastest.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from metal_ops import HashGrid, OccupancyGrid
from metal_ops.ops.ray_march import RaySamples

from .fused import Rendering

# Multipliers of the spatial hash (Teschner et al. 2003; tiny-cuda-nn), one per dimension.
_PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)

Adam = keras.optimizers.Adam


# ---- hash encoding --------------------------------------------------------------------------------------------------


def hash_encode(points: tf.Tensor, table: tf.Tensor, grid: HashGrid) -> tf.Tensor:
    """`metal_ops.hash_encode`, one gather a level and corner set.

    The table is split into levels so that its gradient is one concatenation of dense sums.

    Args:
      points: float32 [N, D] in [0, 1].
      table: float32 [rows, F].
      grid: The grid of the table.

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


# ---- other encodings ------------------------------------------------------------------------------------------------


def frequency_encode(x: tf.Tensor, n_frequencies: int) -> tf.Tensor:
    """`metal_ops.frequency_encode`: x, then sines and cosines of its octaves.

    Args:
      x: float32 [N, D].
      n_frequencies: Number of octaves L.

    Returns:
      float32 [N, D * (1 + 2 * L)].

    Source: Mildenhall et al. 2020, "NeRF", equation 4.
    """
    parts = [x]
    for k in range(n_frequencies):
        scaled = x * (math.pi * 2.0**k)
        parts += [tf.sin(scaled), tf.cos(scaled)]
    return tf.concat(parts, axis=1)


def sh_encode(directions: tf.Tensor, degree: int = 4) -> tf.Tensor:
    """`metal_ops.sh_encode` of degree 4: the 16 real spherical harmonics of the first four bands.

    Args:
      directions: float32 [R, 3], unit length.
      degree: 4; there is no other.

    Returns:
      float32 [R, 16], orthonormal on the sphere.

    Example:
      >>> import tensorflow as tf
      >>> sh_encode(tf.constant([[0.0, 0.0, 1.0]])).shape
      TensorShape([1, 16])
    """
    if degree != 4:
        raise ValueError(f"[composite.sh_encode] degree: expected 4, got {degree}.")
    x, y, z = tf.unstack(directions, axis=1)
    xx, yy, zz = x * x, y * y, z * z
    # Normalisation factors of the textbook form, e.g. sqrt(1 / (4 pi)) for band 0.
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


# ---- samples along rays ---------------------------------------------------------------------------------------------


def ray_march(
    origins: tf.Tensor,
    directions: tf.Tensor,
    occupancy: OccupancyGrid,
    *,
    step: float,
    cone_angle: float = 0.0,
    near: float = 0.0,
    seed: Any = None,
) -> RaySamples:
    """`metal_ops.ray_march`: every step of every ray is looked up, then those in empty cells are dropped.

    Args:
      origins: float32 [R, 3].
      directions: float32 [R, 3], none of them zero.
      occupancy: The grid of empty cells.
      step: Shortest step, in units of the directions.
      cone_angle: Growth of the steps with the distance.
      near: Where rays begin.
      seed: Two integers: rays are shifted by a random part of a step. None for no shift.
    """
    lower, upper = occupancy.aabb[:3], occupancy.aabb[3:]
    reach = 2.0 ** (occupancy.n_levels - 1)
    centre, half = (lower + upper) / 2, (upper - lower) / 2 * reach
    start, end = intersect_box(origins, directions, tf.stack([centre - half, centre + half]))
    start = tf.maximum(start, near)
    hit = start < end
    if seed is not None:
        shift = pcg3d_uniform(seed, tf.size(start))
        start += shift * tf.maximum(step, cone_angle * start)
    length = tf.reduce_max(tf.where(hit, end - start, 0.0))
    if cone_angle > 0:
        # Linear steps up to the knee where the cone is as wide as they are, geometric ones behind it.
        knee = step / cone_angle
        n_linear = tf.maximum(tf.math.ceil((knee - start) / step), 0.0)
        turn = start + n_linear * step
        far = tf.where(hit, end, 1.0)
        n_cone = tf.math.log(tf.maximum(far / tf.maximum(turn, 1e-9), 1.0)) / math.log1p(cone_angle)
        n_steps = tf.where(hit, tf.minimum(n_linear, length / step) + n_cone, 0.0)
        n_steps = tf.cast(tf.math.ceil(tf.reduce_max(n_steps)), tf.int32) + 1
    else:
        n_steps = tf.cast(tf.math.ceil(length / step), tf.int32)
    number = tf.range(tf.cast(n_steps + 1, tf.float32))  # [S + 1], bounds of the steps
    if cone_angle > 0:
        growth = tf.pow(1.0 + cone_angle, tf.maximum(number - n_linear[:, None], 0.0))
        bounds = tf.where(
            number <= n_linear[:, None],
            start[:, None] + number * step,
            turn[:, None] * growth,
        )
    else:
        bounds = start[:, None] + number * step  # [R, S + 1]
    middle = 0.5 * (bounds[:, :-1] + bounds[:, 1:])
    keep = hit[:, None] & (middle < end[:, None])
    keep = keep & _lookup(origins, directions, middle, occupancy)
    flat = tf.cast(tf.where(tf.reshape(keep, [-1]))[:, 0], tf.int32)
    counts = tf.reduce_sum(tf.cast(keep, tf.int32), axis=1)
    return RaySamples(
        tf.gather(tf.reshape(bounds[:, :-1], [-1]), flat),
        tf.gather(tf.reshape(bounds[:, 1:], [-1]), flat),
        flat // tf.maximum(n_steps, 1),
        tf.stack([tf.cumsum(counts, exclusive=True), counts], axis=1),
    )


def _lookup(
    origins: tf.Tensor, directions: tf.Tensor, t: tf.Tensor, grid: OccupancyGrid
) -> tf.Tensor:
    """Whether points at t float32 [R, S] along rays are in occupied cells: bool [R, S]."""
    size = grid.aabb[3:] - grid.aabb[:3]
    start, slope = (origins - grid.aabb[:3]) / size - 0.5, directions / size
    # A coordinate at a time: a third of the memory traffic of [R, S, 3].
    place = [start[:, axis, None] + t * slope[:, axis, None] for axis in range(3)]
    level = 0
    if grid.n_levels > 1:
        farthest = tf.reduce_max(tf.abs(tf.stack(place)), axis=0)
        # The smallest level that holds the point.
        level = sum(
            tf.cast(farthest > 2.0 ** (inner - 1), tf.int32) for inner in range(grid.n_levels - 1)
        )
        shrink = tf.pow(0.5, tf.cast(level, tf.float32))
        place = [coordinate * shrink for coordinate in place]
    index = tf.zeros_like(t, tf.int32)
    for coordinate in place:
        cell = tf.cast((coordinate + 0.5) * grid.resolution, tf.int32)
        index = index * grid.resolution + tf.clip_by_value(cell, 0, grid.resolution - 1)
    bytes_per_level = int(grid.bits.shape[1])
    byte = tf.gather(tf.reshape(grid.bits, [-1]), level * bytes_per_level + index // 8)
    mask = tf.bitwise.left_shift(tf.constant(1, tf.uint8), tf.cast(index % 8, tf.uint8))
    return tf.bitwise.bitwise_and(byte, mask) > 0


def pcg3d_uniform(seed: Any, count: tf.Tensor) -> tf.Tensor:
    """The numbers in [0, 1) by which `metal_ops.ray_march` shifts its rays: float32 [count].

    Jarzynski and Olano 2020, "Hash functions for GPU rendering", in int32 arithmetic, which wraps the same way.
    """
    seed = tf.cast(seed, tf.int32)
    first, second = (seed[i] * 1664525 + 1013904223 for i in range(2))
    z = tf.range(count) * 1664525 + 1013904223
    x, y = tf.fill([count], first), tf.fill([count], second)

    def mix(x: tf.Tensor, y: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x = x + y * z
        y = y + z * x
        return x, y, z + x * y

    def fold(v: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(v, _shift_right(v, 16))

    _, _, z = mix(*(fold(v) for v in mix(x, y, z)))
    return tf.cast(_shift_right(z, 8), tf.float32) * 2.0**-24


def _shift_right(value: tf.Tensor, by: int) -> tf.Tensor:
    """Logical shift of int32, whose own is arithmetic."""
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(value, by), (1 << (32 - by)) - 1)


def intersect_box(
    origins: tf.Tensor, directions: tf.Tensor, box: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Where rays enter and leave a box (the slab method of Kay and Kajiya 1986).

    Args:
      origins: float32 [R, 3].
      directions: float32 [R, 3].
      box: float32 [2, 3].

    Returns:
      near and far float32 [R], near at least 0; far <= near where the ray misses.
    """
    # A direction of exactly zero would make 0 * inf = NaN on a face: nudge it.
    safe = tf.where(tf.abs(directions) < 1e-9, 1e-9, directions)
    first = (box[0] - origins) / safe
    second = (box[1] - origins) / safe
    near = tf.reduce_max(tf.minimum(first, second), axis=1)
    far = tf.reduce_min(tf.maximum(first, second), axis=1)
    return tf.maximum(near, 0.0), far


def pack_ray_indices(ray_indices: tf.Tensor, n_rays: tf.Tensor) -> tf.Tensor:
    """`metal_ops.pack_ray_indices`: (first sample, number of samples) of each ray, int32 [R, 2]."""
    counts = tf.math.bincount(ray_indices, minlength=n_rays, maxlength=n_rays)
    return tf.stack([tf.cumsum(counts, exclusive=True), counts], axis=1)


# ---- volume rendering -----------------------------------------------------------------------------------------------


def _ray_prefix(
    values: tf.Tensor, packed_info: tf.Tensor, ray_indices: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums along each ray: before each sample float64 [M], and each ray's total float64 [R].

    One running sum over all rays less its value at the ray's start, in float64: the sums of thousands of rays would eat
    float32's digits.
    """
    running = tf.concat([[0.0], tf.cumsum(tf.cast(values, tf.float64))], axis=0)  # [M + 1]
    at_start = tf.gather(running, packed_info[:, 0])
    total = tf.gather(running, packed_info[:, 0] + packed_info[:, 1]) - at_start
    return running[:-1] - tf.gather(at_start, ray_indices), total


def render_weights(sigmas: tf.Tensor, samples: RaySamples) -> tuple[tf.Tensor, tf.Tensor]:
    """`metal_ops.render_weights`: w_i and the transmittance T_i = exp(-sum_{j<i} sigma_j delta_j), [M] each."""
    thickness = sigmas * (samples.t_ends - samples.t_starts)
    before, _ = _ray_prefix(thickness, samples.packed_info, samples.ray_indices)
    reaching = tf.cast(tf.exp(-before), tf.float32)
    return -reaching * tf.math.expm1(-thickness), reaching


def volume_render(
    sigmas: tf.Tensor, rgbs: tf.Tensor, samples: RaySamples, background: tf.Tensor | None = None
) -> Rendering:
    """`metal_ops.volume_render`, differentiable in densities and colours.

    w_i = T_i (1 - exp(-sigma_i delta_i)); the results are sums of w_i c_i, w_i and w_i t_i (Mildenhall et al. 2020,
    equation 3). The gradient is written out, as autodiff would keep a dozen arrays of size M: with g_i = dL/dw_i,
    dL/d(sigma_i delta_i) = T_{i+1} g_i - sum_{j>i} w_j g_j.

    Args:
      sigmas: float32 [M].
      rgbs: float32 [M, 3].
      samples: Where they lie.
      background: float32 [3] or [R, 3] behind them; None for black.

    Returns:
      Rendering; depth is the mean distance (0 for an empty ray).
    """
    n_rays = tf.shape(samples.packed_info)[0]
    delta, middle = samples.t_ends - samples.t_starts, 0.5 * (samples.t_ends + samples.t_starts)

    @tf.custom_gradient
    def run(sigmas: tf.Tensor, rgbs: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Any]:
        thickness = sigmas * delta
        before, _ = _ray_prefix(thickness, samples.packed_info, samples.ray_indices)
        reaching = tf.cast(tf.exp(-before), tf.float32)  # T_i
        weights = -reaching * tf.math.expm1(-thickness)
        parts = tf.concat(
            [weights[:, None] * rgbs, weights[:, None], (weights * middle)[:, None]], axis=1
        )
        sums = tf.math.unsorted_segment_sum(parts, samples.ray_indices, n_rays)  # [R, 5]

        def gradient(
            rgb_up: tf.Tensor, opacity_up: tf.Tensor, depth_up: tf.Tensor, weights_up: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            per_ray = tf.concat([rgb_up, opacity_up[:, None], depth_up[:, None]], axis=1)
            upstream = tf.gather(per_ray, samples.ray_indices)  # [M, 5]
            weight_up = (
                tf.reduce_sum(upstream[:, :3] * rgbs, axis=1)
                + upstream[:, 3]
                + upstream[:, 4] * middle
                + weights_up
            )
            contribution = weights * weight_up
            prefix, total = _ray_prefix(contribution, samples.packed_info, samples.ray_indices)
            behind = tf.cast(tf.gather(total, samples.ray_indices) - prefix, tf.float32)
            # `behind` still holds the sample's own share: w_i g_i = (T_i - T_{i+1}) g_i.
            thickness_up = reaching * weight_up - behind
            return thickness_up * delta, weights[:, None] * upstream[:, :3]

        return (sums[:, :3], sums[:, 3], sums[:, 4], weights), gradient

    rgb, opacity, depth, weights = run(sigmas, rgbs)
    if background is not None:
        rgb += (1.0 - opacity[:, None]) * background
    return Rendering(rgb, opacity, tf.math.divide_no_nan(depth, opacity), weights)


# ---- losses ---------------------------------------------------------------------------------------------------------


def robust_loss(x: tf.Tensor, alpha: float, scale: float) -> tf.Tensor:
    """`metal_ops.robust_loss` (Barron 2019, equation 8) for an alpha that is none of the special cases 0 and 2."""
    if alpha in (0.0, 2.0) or not math.isfinite(alpha):
        raise ValueError(
            f"[composite.robust_loss] alpha: expected neither 0, 2 nor inf, got {alpha}."
        )
    b = abs(alpha - 2.0)
    return b / alpha * (tf.pow(tf.square(x / scale) / b + 1.0, alpha / 2.0) - 1.0)


def distortion_loss(weights: tf.Tensor, samples: RaySamples) -> tf.Tensor:
    """`metal_ops.distortion_loss` (Barron et al. 2022, equation 15), by running sums: float32 [R]."""
    middle = 0.5 * (samples.t_starts + samples.t_ends)
    # sum_ij w_i w_j |m_i - m_j| = 2 sum_i w_i (m_i sum_{j<i} w_j - sum_{j<i} w_j m_j), as the m_i ascend.
    before, _ = _ray_prefix(weights, samples.packed_info, samples.ray_indices)
    before_m, _ = _ray_prefix(weights * middle, samples.packed_info, samples.ray_indices)
    apart = 2.0 * weights * tf.cast(tf.cast(middle, tf.float64) * before - before_m, tf.float32)
    within = tf.square(weights) * (samples.t_ends - samples.t_starts) / 3.0
    n_rays = tf.shape(samples.packed_info)[0]
    return tf.math.unsorted_segment_sum(apart + within, samples.ray_indices, n_rays)
