"""The radiance field: encoding, density network, colour network."""

from __future__ import annotations

import copy
import dataclasses
import math
from types import ModuleType

import tensorflow as tf

import metal_ops
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.reading import check_memory

from . import composite, fused
from .config import ModelConfig

# exp(11) is opaque within any sample; beyond it float32 gradients overflow.
_MAX_LOG_DENSITY = 11.0


@tf.custom_gradient
def truncated_exp(x: tf.Tensor) -> tuple[tf.Tensor, object]:
    """exp(x) that neither overflows nor loses its gradient: x is clamped to [-15, 11].

    The gradient is exp of the clamped x even where the clamp is active, so that a density that ran
    away can come back (as instant-ngp does).
    """
    value = tf.exp(tf.clip_by_value(x, -15.0, _MAX_LOG_DENSITY))
    return value, lambda upstream: upstream * value


def density_of(kind: str, x: tf.Tensor) -> tf.Tensor:
    """Density from the density network's first output, by `ModelConfig.density`."""
    if kind == "exp":
        return truncated_exp(x)
    return {"softplus": tf.nn.softplus, "relu": tf.nn.relu}[kind](x)


def backend(name: str) -> ModuleType:
    """The module with a backend's operations: "fused" or "composite"."""
    return {"fused": fused, "composite": composite}[name]


def _grid(config: ModelConfig) -> metal_ops.HashGrid:
    try:
        grid = metal_ops.HashGrid(
            n_dims=3,
            n_levels=config.n_levels,
            n_features_per_level=config.n_features_per_level,
            log2_hashmap_size=config.log2_hashmap_size,
            base_resolution=config.base_resolution,
            finest_resolution=config.finest_resolution,
        )
    except ValueError as error:
        raise ProgramError(f"the configuration of the hash grid makes no sense: {error}") from None
    # Values, gradient and Adam's two moments.
    check_memory(
        16 * math.prod(grid.table_shape),
        f"a hash table of {grid.table_shape[0]} rows",
        "use a smaller --log2-hashmap-size, or fewer --levels",
        ProgramError,
    )
    return grid


class RadianceField(tf.Module):
    """Density and colour at points of the unit cube.

    With `encoding="hash"`: hash grid (L * F values) -> 64 -> 16 values, the first of them the log
    density; these 16 and the 16 spherical harmonics of the view direction -> 64 -> 64 -> RGB. Layers
    have no bias, as in Mueller et al. 2022. With `encoding="frequency"`: the network of Mildenhall et
    al. 2020, figure 7, its view direction in spherical harmonics too.

    Args:
      config: Sizes and choices.
      seed: Seed of the initial values.

    Attributes:
      grid: The hash grid, or None.
      ops: The backend's operations.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__(name="radiance_field")
        self.config = config
        self.ops = backend(config.backend)
        self.grid: metal_ops.HashGrid | None = None
        self._dtype = tf.bfloat16 if config.mixed_precision else tf.float32
        self._n_weights = 0
        self._seed = seed
        if config.encoding == "hash":
            self.grid = _grid(config)
            self.table = tf.Variable(self.grid.init_table(seed=seed), name="table")
            self._density = [
                self._matrix("density_0", self.grid.output_dim, config.density_width),
                self._matrix("density_1", config.density_width, config.geometry_features),
            ]
            width = config.colour_width
            self._colour = [
                self._matrix("colour_0", config.geometry_features + 16, width),
                self._matrix("colour_1", width, width),
                self._matrix("colour_2", width, 3),
            ]
        else:
            width, inputs = config.frequency_width, 3 * (1 + 2 * config.octaves)
            self._skip_at = config.frequency_depth // 2 + 1
            self._trunk = []
            for layer in range(config.frequency_depth):
                rows = inputs if layer == 0 else width
                rows += inputs if layer == self._skip_at else 0
                self._trunk.append(self._layer(f"trunk_{layer}", rows, width))
            self._head = self._layer("density", width, 1)
            self._bottleneck = self._layer("bottleneck", width, width)
            self._branch = self._layer("branch", width + 16, width // 2)
            self._rgb = self._layer("rgb", width // 2, 3)

    @property
    def density_matrices(self) -> list[tf.Variable]:
        """The density network of a hash-encoded field."""
        return list(self._density)

    @property
    def colour_matrices(self) -> list[tf.Variable]:
        """The colour network of a hash-encoded field."""
        return list(self._colour)

    def with_backend(self, name: str) -> RadianceField:
        """A field with the same variables that is computed by another backend."""
        other = copy.copy(self)
        other.ops = backend(name)
        other.config = dataclasses.replace(self.config, backend=name)
        return other

    def _matrix(self, name: str, rows: int, columns: int) -> tf.Variable:
        """Glorot-uniform weights, reproducible whatever the order of TensorFlow's other draws."""
        limit = math.sqrt(6.0 / (rows + columns))
        self._n_weights += 1
        return tf.Variable(
            tf.random.stateless_uniform(
                [rows, columns], [self._seed, self._n_weights], -limit, limit
            ),
            name=name,
        )

    def _layer(self, name: str, rows: int, columns: int) -> tuple[tf.Variable, tf.Variable]:
        return self._matrix(name, rows, columns), tf.Variable(
            tf.zeros([columns]), name=f"{name}_bias"
        )

    def _times(self, x: tf.Tensor, matrix: tf.Variable) -> tf.Tensor:
        return tf.matmul(x, tf.cast(matrix, self._dtype))

    def _affine(self, x: tf.Tensor, layer: tuple[tf.Variable, tf.Variable]) -> tf.Tensor:
        return self._times(x, layer[0]) + tf.cast(layer[1], self._dtype)

    def encode_directions(self, directions: tf.Tensor) -> tf.Tensor:
        """Spherical harmonics of unit view directions [R, 3], in the networks' dtype: [R, 16]."""
        return tf.cast(self.ops.sh_encode(directions, 4), self._dtype)

    def geometry(self, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The part that does not depend on the direction of view.

        Args:
          points: float32 [M, 3] in [0, 1].

        Returns:
          density float32 [M], per unit of world length, and the features [M, G] for `colour`.
        """
        if self.grid is not None:
            encoded = self.ops.hash_encode(points, self.table, self.grid)
            hidden = tf.nn.relu(self._times(tf.cast(encoded, self._dtype), self._density[0]))
            features = self._times(hidden, self._density[1])
            return self._density_of(features[:, 0]), features
        inputs = self.ops.frequency_encode(points * 2.0 - 1.0, self.config.octaves)
        inputs = tf.cast(inputs, self._dtype)
        hidden = inputs
        for number, layer in enumerate(self._trunk):
            if number == self._skip_at:
                hidden = tf.concat([hidden, inputs], axis=1)
            hidden = tf.nn.relu(self._affine(hidden, layer))
        raw = self._affine(hidden, self._head)[:, 0]
        return self._density_of(raw), self._affine(hidden, self._bottleneck)

    def _density_of(self, raw: tf.Tensor) -> tf.Tensor:
        return density_of(self.config.density, tf.cast(raw, tf.float32))

    def colour(self, features: tf.Tensor, encoded_directions: tf.Tensor) -> tf.Tensor:
        """Colour of samples.

        Args:
          features: [M, G] from `geometry`.
          encoded_directions: [M, 16] from `encode_directions`, a row for each sample.

        Returns:
          float32 [M, 3] in (0, 1), sRGB.
        """
        hidden = tf.concat([features, encoded_directions], axis=1)
        if self.grid is not None:
            for matrix in self._colour[:-1]:
                hidden = tf.nn.relu(self._times(hidden, matrix))
            raw = self._times(hidden, self._colour[-1])
        else:
            raw = self._affine(tf.nn.relu(self._affine(hidden, self._branch)), self._rgb)
        return tf.sigmoid(tf.cast(raw, tf.float32))

    def density(self, points: tf.Tensor) -> tf.Tensor:
        """Density float32 [M] at points float32 [M, 3] of the unit cube."""
        return self.geometry(points)[0]
