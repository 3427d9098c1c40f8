"""Volume rendering of packed samples: samples of all rays in one list, ray after ray.

Source: Max 1995, "Optical models for direct volume rendering"; Mildenhall et al. 2020, "NeRF",
equation 3. The names are nerfacc's.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class PackedSamples(NamedTuple):
    """Samples that are worth looking at, of R rays.

    Attributes:
        points: float32 [M, 3], in the unit cube.
        ray_indices: int32 [M], ascending.
        t: float32 [M], distance from the ray's origin, world units; ascending within a ray.
        delta: float32 [M], length of ray that the sample stands for.
        counts: int32 [R], samples of each ray.
    """

    points: tf.Tensor
    ray_indices: tf.Tensor
    t: tf.Tensor
    delta: tf.Tensor
    counts: tf.Tensor


def _ray_prefix(values: tf.Tensor, samples: PackedSamples) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums along each ray.

    One running sum over all rays less its value at the ray's start, in float64: the sums of thousands
    of rays would eat float32's digits.

    Returns:
        The sum before each sample float64 [M], and each ray's total float64 [R].
    """
    running = tf.concat([[0.0], tf.cumsum(tf.cast(values, tf.float64))], axis=0)  # [M + 1]
    ends = tf.cumsum(samples.counts)
    at_start = tf.gather(running, ends - samples.counts)
    total = tf.gather(running, ends) - at_start
    return running[:-1] - tf.gather(at_start, samples.ray_indices), total


def transmittance(density: tf.Tensor, samples: PackedSamples) -> tf.Tensor:
    """The part of the light that reaches each sample: T_i = exp(-sum_{j<i} sigma_j delta_j), [M]."""
    before, _ = _ray_prefix(density * samples.delta, samples)
    return tf.cast(tf.exp(-before), tf.float32)


def select_samples(samples: PackedSamples, index: tf.Tensor) -> PackedSamples:
    """The samples at ascending positions `index` (int [K]); rays may be left without any."""
    ray_indices = tf.gather(samples.ray_indices, index)
    return PackedSamples(
        points=tf.gather(samples.points, index),
        ray_indices=ray_indices,
        t=tf.gather(samples.t, index),
        delta=tf.gather(samples.delta, index),
        counts=tf.math.bincount(
            ray_indices, minlength=tf.size(samples.counts), maxlength=tf.size(samples.counts)
        ),
    )


def composite(
    density: tf.Tensor, colour: tf.Tensor, samples: PackedSamples
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Colour, opacity and depth of every ray, differentiable in density and colour.

    w_i = T_i (1 - exp(-sigma_i delta_i)); the results are sum_i w_i c_i, sum_i w_i and sum_i w_i t_i
    (equation 3). The gradient is written out, as autodiff would keep a dozen arrays of size M:
    with g_i = dL/dw_i, dL/d(sigma_i delta_i) = T_{i+1} g_i - sum_{j>i} w_j g_j.

    Args:
        density: float32 [M].
        colour: float32 [M, 3].
        samples: Where they lie.

    Returns:
        colour float32 [R, 3] (on black), opacity float32 [R], depth float32 [R] (on zero: divide by the
        opacity for the mean distance).
    """
    n_rays = tf.size(samples.counts)

    @tf.custom_gradient
    def run(density: tf.Tensor, colour: tf.Tensor):
        thickness = density * samples.delta
        before, _ = _ray_prefix(thickness, samples)
        reaching = tf.cast(tf.exp(-before), tf.float32)  # T_i
        weights = -reaching * tf.math.expm1(-thickness)
        parts = tf.concat(
            [weights[:, None] * colour, weights[:, None], (weights * samples.t)[:, None]], axis=1
        )
        sums = tf.math.unsorted_segment_sum(parts, samples.ray_indices, n_rays)  # [R, 5]

        def gradient(colour_up: tf.Tensor, opacity_up: tf.Tensor, depth_up: tf.Tensor):
            per_ray = tf.concat([colour_up, opacity_up[:, None], depth_up[:, None]], axis=1)
            upstream = tf.gather(per_ray, samples.ray_indices)  # [M, 5]
            weight_up = (
                tf.reduce_sum(upstream[:, :3] * colour, axis=1)
                + upstream[:, 3]
                + upstream[:, 4] * samples.t
            )
            contribution = weights * weight_up
            prefix, total = _ray_prefix(contribution, samples)
            behind = tf.cast(tf.gather(total, samples.ray_indices) - prefix, tf.float32)
            # `behind` still holds the sample's own share: w_i g_i = (T_i - T_{i+1}) g_i.
            thickness_up = reaching * weight_up - behind
            return thickness_up * samples.delta, weights[:, None] * upstream[:, :3]

        return (sums[:, :3], sums[:, 3], sums[:, 4]), gradient

    return run(density, colour)
