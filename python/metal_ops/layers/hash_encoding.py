"""HashEncoding: the hash grid as a Keras layer that owns its table."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.grid import INITIAL_RANGE, HashGrid
from metal_ops.ops.hash_encode import hash_encode

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class HashEncoding(keras.layers.Layer):
    """Encodes points with a trainable multiresolution hash grid: see `metal_ops.hash_encode`.

    Points keep their float32 under every dtype policy. Under a mixed policy the table stays float32 and is cast to the
    compute dtype at every call, so that gradients reach it through the half-precision features; sums are
    made in float32. XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      grid: A `metal_ops.HashGrid`; or leave it out and give HashGrid's arguments by name.
      seed: An integer for a reproducible table; None to follow `keras.utils.set_random_seed`.
      **kwargs: HashGrid's arguments (n_dims, n_levels, n_features_per_level, log2_hashmap_size, base_resolution,
        finest_resolution, per_level_scale, interpolation, kind) and Keras' (name, dtype, trainable).

    Input: [..., n_dims] float32 (float64 is rounded to it) in [0, 1]; any number of leading dimensions.
    Output: [..., n_levels * n_features_per_level] of the layer's compute dtype.

    Attributes:
      grid: The HashGrid.
      table: The variable, [rows, n_features_per_level], uniform in +-1e-4 at first.

    Raises:
      TypeError: `grid` is not a HashGrid; points are half precision, or the dtype policy computes in float64.
      ValueError: Both `grid` and some of its arguments are given, or the points' last dimension is not n_dims.

    Example:
      >>> layer = metal_ops.layers.HashEncoding(n_levels=8, finest_resolution=256, seed=1)
      >>> layer(tf.random.uniform([2, 5, 3])).shape
      TensorShape([2, 5, 16])
    """

    GRID_ARGUMENTS = tuple(HashGrid().get_config())

    def __init__(
        self, grid: HashGrid | None = None, seed: int | None = None, **kwargs: Any
    ) -> None:
        given = {name: kwargs.pop(name) for name in self.GRID_ARGUMENTS if name in kwargs}
        # autocast=False: Keras would turn the points into float16, which cannot tell fine cells apart.
        super().__init__(autocast=False, **kwargs)
        if grid is None:
            grid = HashGrid(**given)
        elif given:
            raise ValueError(
                f"[HashEncoding] grid and {', '.join(given)}: expected a grid or the arguments of one, got both."
            )
        if not isinstance(grid, HashGrid):
            raise TypeError(
                f"[HashEncoding] grid: expected a metal_ops.HashGrid, got {type(grid).__name__}."
            )
        _keras.require_float_policy("HashEncoding", self)
        self.grid = grid
        self.seed = seed
        self.supports_jit = False
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: grid.n_dims})

    @classmethod
    def from_tcnn(
        cls, config: dict[str, Any] | str, n_dims: int | None = None, **kwargs: Any
    ) -> HashEncoding:
        """The layer that a JSON configuration of tiny-cuda-nn describes: see `HashGrid.from_tcnn`.

        Args:
          config: The configuration of a grid encoding, or a whole one that has it under "encoding".
          n_dims: Coordinates a point has, tiny-cuda-nn's `n_input_dims`.
          **kwargs: `seed`, and Keras' arguments (name, dtype, trainable). tiny-cuda-nn computes in float16; so does
            this with dtype="mixed_float16".

        Raises:
          TypeError, ValueError: As `HashGrid.from_tcnn`.

        Example:
          >>> layer = metal_ops.layers.HashEncoding.from_tcnn({"otype": "HashGrid", "n_levels": 8}, n_dims=2)
          >>> layer(tf.zeros([5, 2])).shape
          TensorShape([5, 16])
        """
        return cls(grid=HashGrid.from_tcnn(config, n_dims), **kwargs)

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(
            name="table",
            shape=self.grid.table_shape,
            initializer=keras.initializers.RandomUniform(
                -INITIAL_RANGE, INITIAL_RANGE, seed=self.seed
            ),
        )
        self.built = True

    def call(self, points: tf.Tensor) -> tf.Tensor:
        if points.dtype in (tf.float16, tf.bfloat16):
            raise TypeError(
                f"[HashEncoding] points: expected float32, got {points.dtype.name}, which cannot tell cells of fine "
                "levels apart. Keep them float32; a keras.Model subclass under a mixed policy does so if its "
                "constructor calls super().__init__(autocast=False)."
            )
        return hash_encode(
            tf.cast(points, tf.float32), tf.cast(self.table.value, self.compute_dtype), self.grid
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.grid.output_dim)

    def compute_output_spec(self, points: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(points.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {**config, **self.grid.get_config(), "seed": self.seed}
