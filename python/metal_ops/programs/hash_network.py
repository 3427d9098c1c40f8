"""The variables of a hash field, and their function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops

from .errors import ProgramError
from .hash_field import FieldConfig
from .reading import check_memory


class HashNetwork(tf.Module):
    """float32 [N, outputs] at points float32 [N, n_dims] of the unit cube.

    Args:
      config: Its sizes.
      n_dims: Coordinates of a point.
      outputs: Values at a point.
      seed: Seed of the initial values.
      extra: Further inputs of the network.
      interpolation: Interpolation of the grid.
      **activation: Activations of the network, as `fused_mlp` takes them.

    Raises:
      ProgramError: The grid's sizes make no sense together, or take more memory than there is.
    """

    def __init__(
        self,
        config: FieldConfig,
        n_dims: int,
        outputs: int,
        seed: int,
        extra: int = 0,
        interpolation: str = "linear",
        **activation: Any,
    ) -> None:
        super().__init__(name="field")
        one_level = config.n_levels == 1
        try:
            self.grid = metal_ops.HashGrid(
                n_dims=n_dims,
                n_levels=config.n_levels,
                n_features_per_level=config.n_features_per_level,
                log2_hashmap_size=config.log2_hashmap_size,
                base_resolution=config.base_resolution,
                finest_resolution=config.base_resolution if one_level else config.finest_resolution,
                interpolation=interpolation,
            )
        except ValueError as error:
            raise ProgramError(f"the hash grid makes no sense: {error}") from None
        # Values, gradient and Adam's two moments.
        check_memory(
            16 * math.prod(self.grid.table_shape),
            f"a hash table of {self.grid.table_shape[0]} rows",
            "use a smaller --log2-hashmap-size, or fewer --levels",
            ProgramError,
        )
        self._activation = activation
        self.table = tf.Variable(self.grid.init_table(seed=seed), name="table")
        widths = [config.n_neurons] * config.n_hidden_layers
        sizes = [self.grid.output_dim + extra, *widths, outputs]
        random = np.random.default_rng(seed)
        self.kernels = []
        for i, (rows, columns) in enumerate(zip(sizes, sizes[1:], strict=False)):
            limit = math.sqrt(6 / (rows + columns))
            values = random.uniform(-limit, limit, (rows, columns)).astype(np.float32)
            self.kernels.append(tf.Variable(values, name=f"kernel_{i}"))
        self.biases = [
            tf.Variable(tf.zeros([n]), name=f"bias_{i}") for i, n in enumerate(sizes[1:])
        ]

    def state(self) -> dict[str, tf.Variable]:
        """All variables, by the names that checkpoints have."""
        return {f"model/{v.name.split(':')[0]}": v for v in self.trainable_variables}

    def values(self, points: tf.Tensor, *extra: tf.Tensor) -> tf.Tensor:
        inputs = metal_ops.hash_encode(points, self.table, self.grid)
        if extra:
            inputs = tf.concat([inputs, *extra], 1)
        return metal_ops.fused_mlp(
            inputs, list(self.kernels), list(self.biases), **self._activation
        )
