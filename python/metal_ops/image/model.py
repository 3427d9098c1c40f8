"""Colour as a function of the place in a picture."""

from __future__ import annotations

import tensorflow as tf

from metal_ops.programs.hash_network import HashNetwork

from .config import ModelConfig


class ImageField(HashNetwork):
    """Colours float32 [N, 3] at points float32 [N, 2] of the unit square (Mueller et al. 2022, section 5.1).

    Args:
      config: Its sizes.
      seed: Seed of the initial values.

    Example:
      >>> from metal_ops.image.config import ModelConfig
      >>> field = ImageField(ModelConfig(n_levels=4, finest_resolution=64))
      >>> field(tf.zeros([5, 2])).shape
      TensorShape([5, 3])
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__(config, n_dims=2, outputs=3, seed=seed)

    def __call__(self, points: tf.Tensor) -> tf.Tensor:
        return self.values(points)
