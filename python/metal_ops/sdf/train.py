"""Training: exact distances of drawn points, and one compiled step with the Eikonal loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import optimizers
from metal_ops.programs.errors import CheckpointError, short
from metal_ops.programs.fitting import Fit
from metal_ops.programs.reading import is_number

from . import pictures
from .config import ModelConfig, TrainConfig
from .distance import Distances
from .mesh import Mesh, Placement, on_surface
from .model import DistanceField

AT_ONCE = 1 << 16
_MEASURED = 1 << 11
_SHOWN = 160
# How far the pool's points lie from the surface, in cube lengths; a quarter lies anywhere.
_NEAR = (0.005, 0.03)


def drawn(mesh: Mesh, distances: Distances, n: int, seed: tuple[int, ...]) -> tuple[Any, Any]:
    """Points float32 [n, 3] of the cube, three quarters of them near the surface, and their distances float32 [n]."""
    random = np.random.default_rng(seed)
    near = on_surface(mesh, n - n // 4, random)
    width = np.where(random.uniform(size=(len(near), 1)) < 0.5, *_NEAR)
    near += width * random.standard_normal(near.shape)
    points = np.concatenate([np.clip(near, 0, 1), random.uniform(size=(n // 4, 3))])
    points = random.permutation(points).astype(np.float32)
    return points, distances(points).astype(np.float32)


class Sampled:
    """The interface of a field in NumPy: distances [N] and gradients [N, 3] at points [N, 3] of the cube."""

    def __init__(self, field: DistanceField) -> None:
        spec = [tf.TensorSpec([None, 3], tf.float32)]
        self._distance = tf.function(field, input_signature=spec, autograph=False)
        self._gradient = tf.function(
            lambda points: field.with_gradient(points)[1], input_signature=spec, autograph=False
        )

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self._in_parts(self._distance, points)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return self._in_parts(self._gradient, points)

    @staticmethod
    def _in_parts(function: Any, points: np.ndarray) -> np.ndarray:
        points = np.asarray(points, np.float32)
        # A part at least: an empty one has the right shape, too.
        starts = range(0, max(len(points), 1), AT_ONCE)
        return np.concatenate(
            [function(tf.constant(points[i : i + AT_ONCE])).numpy() for i in starts]
        )


class SdfFit(Fit):
    """A mesh's field and its training data.

    Args:
      mesh: In the unit cube, closed.
      distances: Exact ones, to it.
      model: The field.
      config: How it is trained.
    """

    program, measure_name = "sdf", "error"

    def __init__(
        self, mesh: Mesh, distances: Distances, model: ModelConfig, config: TrainConfig
    ) -> None:
        self.field = DistanceField(model, config.seed)
        self.mesh, self.distances = mesh, distances
        variables = list(self.field.trainable_variables)
        adam = optimizers.Adam(config.learning_rate, beta_2=0.99, epsilon=1e-15)
        adam.build(variables)
        super().__init__(model, config, self.field.state(), adam)
        self._options: TrainConfig = config
        self._pool = drawn(mesh, distances, config.samples, (config.seed, 1))
        self._measured_on = drawn(mesh, distances, _MEASURED, (config.seed, 2))
        self.sampled = Sampled(self.field)
        self._learn = tf.function(
            self.learn_from,
            input_signature=[
                tf.TensorSpec([None, 3], tf.float32),
                tf.TensorSpec([None, 3], tf.float32),
                tf.TensorSpec([None], tf.float32),
                tf.TensorSpec([None, 3], tf.float32),
            ],
            autograph=False,
        )

    def losses(
        self, surface: tf.Tensor, points: tf.Tensor, distances: tf.Tensor, free: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """How far distances are off, and (|grad f| - 1)^2.

        Args:
          surface: float32 [S, 3], where the distance is 0.
          points: float32 [P, 3].
          distances: float32 [P], exact.
          free: float32 [E, 3], for the Eikonal loss alone.
        """
        n = tf.shape(points)[0]
        found, gradients = self.field.with_gradient(tf.concat([points, free], 0))
        errors = tf.concat([self.field(surface), found[:n] - distances], 0)
        sizes = tf.abs(errors)
        if self._options.loss == "mape":
            sizes /= tf.concat([tf.zeros_like(surface[:, 0]), tf.abs(distances)], 0) + 0.01
        # Not the root of 0: it has no slope.
        lengths = tf.sqrt(tf.reduce_sum(tf.square(gradients), 1) + 1e-12)
        return tf.reduce_mean(sizes), tf.reduce_mean(tf.square(lengths - 1.0))

    def learn_from(self, *drawn: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            off, eikonal = self.losses(*drawn)
            loss = off + self._options.eikonal * eikonal
        self.optimizer.apply(tape.gradient(loss, self.variables), self.variables)
        return loss

    def learn(self) -> tf.Tensor:
        random = np.random.default_rng((self._options.seed, 0, self.step))
        quarter = self._options.batch // 4
        surface = on_surface(self.mesh, self._options.batch - 2 * quarter, random)
        chosen = random.integers(len(self._pool[0]), size=quarter)
        free = random.uniform(size=(quarter, 3))
        return self._learn(
            tf.constant(surface, tf.float32),
            tf.constant(self._pool[0][chosen]),
            tf.constant(self._pool[1][chosen]),
            tf.constant(free, tf.float32),
        )

    def measure(self) -> float:
        """Mean |f - d| at points that are not learnt from, three quarters of them near the surface, in cube lengths."""
        points, distances = self._measured_on
        return float(np.mean(np.abs(self.sampled(points) - distances)))

    def words(self, value: float) -> str:
        return f"error {value:.5f}"

    def picture(self) -> np.ndarray:
        return pictures.traced(self.sampled, self.sampled.gradient, _SHOWN)


def placement_from(header: dict[str, Any], where: str) -> Placement:
    """How the mesh of a checkpoint lay in the cube.

    Raises:
      CheckpointError: The fields are no three numbers and a positive one.
    """
    centre, scale = header.get("centre"), header.get("scale")
    fits = isinstance(centre, list) and len(centre) == 3 and all(map(is_number, centre))
    if not (fits and is_number(scale) and scale > 0):  # type: ignore[operator]
        raise CheckpointError(
            f"{where}: fields 'centre' and 'scale' must be three numbers and a positive one, got {short(centre)} and "
            f"{short(scale)}; train again."
        )
    return Placement(np.array(centre, np.float64), float(scale))  # type: ignore[arg-type]
