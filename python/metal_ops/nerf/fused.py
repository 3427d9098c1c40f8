"""The NeRF program's operations from the library's ops: `--backend fused`. `composite.py` has the same functions.

Only functions that differ from the public ones have a wrapper here; the rest is re-exported.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

import metal_ops
from metal_ops import (
    frequency_encode,
    hash_encode,
    pack_ray_indices,
    ray_march,
    robust_loss,
    sh_encode,
)
from metal_ops.ops.ray_march import RaySamples
from metal_ops.optimizers import Adam

__all__ = [
    "Adam",
    "Rendering",
    "distortion_loss",
    "frequency_encode",
    "hash_encode",
    "pack_ray_indices",
    "ray_march",
    "render_weights",
    "robust_loss",
    "sh_encode",
    "volume_render",
]


class Rendering(NamedTuple):
    """The result of `volume_render`, float32."""

    rgb: tf.Tensor  # [rays, 3]
    opacity: tf.Tensor  # [rays]
    depth: tf.Tensor  # [rays]
    weights: tf.Tensor  # [samples]


def render_weights(sigmas: tf.Tensor, samples: RaySamples) -> tuple[tf.Tensor, tf.Tensor]:
    """Weight of each sample and the transmittance before it, float32 [M] each."""
    return metal_ops.render_weights(sigmas, samples.t_starts, samples.t_ends, samples.packed_info)


def volume_render(
    sigmas: tf.Tensor, rgbs: tf.Tensor, samples: RaySamples, background: tf.Tensor | None = None
) -> Rendering:
    """Colour, opacity and mean distance of each ray, over a background (None: black)."""
    rendering = metal_ops.volume_render(
        sigmas,
        rgbs,
        samples.t_starts,
        samples.t_ends,
        samples.packed_info,
        background=background,
    )
    return Rendering(rendering.rgb, rendering.opacity, rendering.depth, rendering.weights)


def distortion_loss(weights: tf.Tensor, samples: RaySamples) -> tf.Tensor:
    """Equation 15 of Mip-NeRF 360 for each ray, float32 [R]."""
    return metal_ops.distortion_loss(weights, samples.t_starts, samples.t_ends, samples.packed_info)
