"""A signed distance as a function of the place."""

from __future__ import annotations

import tensorflow as tf

from metal_ops.programs.hash_network import HashNetwork

from .config import ModelConfig

_RADIUS = 0.4


class DistanceField(HashNetwork):
    """Signed distances float32 [N] at points float32 [N, 3] of the unit cube (Mueller et al. 2022, section 5.2).

    Both parts are smooth, so that the gradient of the gradient is no sum of jumps: smoothstep interpolation between the
    grid's points, squareplus in the network. The network sees the point itself, too.

    Args:
      config: Its sizes.
      seed: Seed of the initial values.

    Example:
      >>> from metal_ops.sdf.config import ModelConfig
      >>> DistanceField(ModelConfig(n_levels=2))(tf.zeros([5, 3])).shape
      TensorShape([5])
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__(
            config,
            n_dims=3,
            outputs=1,
            seed=seed,
            extra=3,
            interpolation="smoothstep",
            activation="squareplus",
            squareplus_b=0.04,
        )

    def __call__(self, points: tf.Tensor) -> tf.Tensor:
        from_middle = points - 0.5
        # A ball before anything is learnt: far from the surface, where few points are drawn, outside stays outside.
        ball = tf.sqrt(tf.reduce_sum(tf.square(from_middle), 1) + 1e-4) - _RADIUS
        return ball + self.values(points, 2.0 * from_middle)[:, 0]

    def with_gradient(self, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Distances [N] and their gradients [N, 3], both differentiable."""
        with tf.GradientTape() as tape:
            tape.watch(points)
            distance = self(points)
        return distance, tape.gradient(distance, points)
