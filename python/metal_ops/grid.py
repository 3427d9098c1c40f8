"""HashGrid: the shape of a multiresolution hash grid, computed once and the same way as in the kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from metal_ops import _tcnn

if TYPE_CHECKING:
    import tensorflow as tf

__theme__ = "Encodings"
N_DIMS = (2, 3, 4)
N_FEATURES = (1, 2, 4, 8)
MAX_LEVELS = 32
MAX_ROWS = 2**31 - 1
INTERPOLATIONS = ("linear", "smoothstep")
KINDS = ("hash", "dense")
INITIAL_RANGE = 1e-4


def level_scale(level: int, log2_per_level_scale: np.float32, base_resolution: int) -> np.float32:
    """`2^(level * log2_per_level_scale) * base_resolution - 1`, each step rounded to float32 as the kernels do."""
    exponent = np.float32(level) * np.float32(log2_per_level_scale)
    growth = np.float32(math.exp2(float(exponent)))
    return np.float32(growth * np.float32(base_resolution)) - np.float32(1)


class HashGrid:
    """The shape of a multiresolution hash grid: immutable, hashable, equal where the encoding is equal.

    Level l samples a grid of `resolutions[l]` points along each axis. A level whose points fit into
    2^log2_hashmap_size rows stores each of them; a finer one shares rows through a spatial hash (Mueller et al. 2022,
    "Instant Neural Graphics Primitives", section 3). All defaults are tiny-cuda-nn's.

    Args:
      n_dims: Coordinates a point has: 2, 3 or 4.
      n_levels: Number of resolutions, 1 to 32.
      n_features_per_level: Features stored in a row: 1, 2, 4 or 8.
      log2_hashmap_size: Base-2 logarithm of the most rows a level may have, 1 to 30. Not used by kind="dense".
      base_resolution: Resolution of the coarsest level, at least 1.
      finest_resolution: Resolution of the finest level; sets the growth to (finest / base)^(1 / (n_levels - 1)), as
        instant-ngp does. Float32 rounding can make the finest level one larger: see `resolutions`.
      per_level_scale: Growth of the resolution from level to level, at least 1. Give this or `finest_resolution`, not
        both; 2.0 if neither is given.
      interpolation: "linear" (D-linear), or "smoothstep" (whose derivative is continuous).
      kind: "hash", or "dense" (every level stores all of its points, whatever that takes).

    Attributes:
      per_level_scale: The growth in effect, a float.
      log2_per_level_scale: Its base-2 logarithm as the kernels get it, np.float32.
      scales: np.float32 [n_levels], the factor from [0, 1] to grid units.
      resolutions: np.int64 [n_levels], points along an axis.
      level_sizes: np.int32 [n_levels], rows of each level: resolution^n_dims rounded up to a multiple of 8, at most
        2^log2_hashmap_size for kind="hash".
      offsets: np.int32 [n_levels + 1], the first row of each level, and the number of rows.
      table_shape: (rows, n_features_per_level).
      output_dim: n_levels * n_features_per_level.

    Raises:
      TypeError: An argument is of the wrong type.
      ValueError: An argument is out of range, or the table would have 2^31 rows or more.

    Example:
      >>> grid = metal_ops.HashGrid(n_dims=2, n_levels=4, base_resolution=16, finest_resolution=128)
      >>> grid.resolutions.tolist()
      [16, 32, 64, 128]
      >>> grid.table_shape
      (21760, 2)
      >>> grid == metal_ops.HashGrid.from_config(grid.get_config())
      True
    """

    n_dims: int
    n_levels: int
    n_features_per_level: int
    log2_hashmap_size: int
    base_resolution: int
    interpolation: str
    kind: str
    per_level_scale: float
    log2_per_level_scale: np.float32
    scales: np.ndarray
    resolutions: np.ndarray
    level_sizes: np.ndarray
    offsets: np.ndarray

    def __init__(
        self,
        n_dims: int = 3,
        n_levels: int = 16,
        n_features_per_level: int = 2,
        log2_hashmap_size: int = 19,
        base_resolution: int = 16,
        finest_resolution: int | None = None,
        per_level_scale: float | None = None,
        interpolation: str = "linear",
        kind: str = "hash",
    ) -> None:
        self._set(
            n_dims=_integer("n_dims", n_dims, among=N_DIMS),
            n_levels=_integer("n_levels", n_levels, 1, MAX_LEVELS),
            n_features_per_level=_integer(
                "n_features_per_level", n_features_per_level, among=N_FEATURES
            ),
            log2_hashmap_size=_integer("log2_hashmap_size", log2_hashmap_size, 1, 30),
            base_resolution=_integer("base_resolution", base_resolution, 1, 2**24),
            interpolation=_choice("interpolation", interpolation, INTERPOLATIONS),
            kind=_choice("kind", kind, KINDS),
        )
        log2_growth = self._log2_growth(finest_resolution, per_level_scale)
        self._set(
            log2_per_level_scale=np.float32(log2_growth),
            per_level_scale=2.0**log2_growth if per_level_scale is None else float(per_level_scale),
            # The given arguments, so that a config repeats them.
            _growth={
                "finest_resolution": None if finest_resolution is None else int(finest_resolution),
                "per_level_scale": None if per_level_scale is None else float(per_level_scale),
            },
        )
        self._lay_out()

    def _log2_growth(self, finest_resolution: int | None, per_level_scale: float | None) -> float:
        if finest_resolution is not None and per_level_scale is not None:
            raise ValueError(
                "[HashGrid] finest_resolution and per_level_scale: expected one of them, got both "
                f"({finest_resolution} and {per_level_scale}). Each sets the growth from level to level; leave one out."
            )
        if finest_resolution is not None:
            finest = _integer("finest_resolution", finest_resolution, 1, 2**30)
            if finest < self.base_resolution:
                raise ValueError(
                    f"[HashGrid] finest_resolution: expected at least base_resolution ({self.base_resolution}), "
                    f"got {finest}."
                )
            if self.n_levels > 1:
                return math.log2(finest / self.base_resolution) / (self.n_levels - 1)
            if finest != self.base_resolution:
                raise ValueError(
                    "[HashGrid] finest_resolution: with one level, expected base_resolution "
                    f"({self.base_resolution}), got {finest}."
                )
            return 0.0
        if per_level_scale is None:
            return 1.0
        if isinstance(per_level_scale, bool) or not isinstance(
            per_level_scale, (int, float, np.number)
        ):
            raise TypeError(
                f"[HashGrid] per_level_scale: expected a number, got {type(per_level_scale).__name__}."
            )
        if not 1 <= per_level_scale < math.inf:
            raise ValueError(
                f"[HashGrid] per_level_scale: expected a finite number of at least 1, got {per_level_scale}."
            )
        return math.log2(np.float32(per_level_scale))  # tiny-cuda-nn holds it as a float32

    def _lay_out(self) -> None:
        scales, resolutions, sizes = [], [], []
        for level in range(self.n_levels):
            scale = level_scale(level, self.log2_per_level_scale, self.base_resolution)
            if not scale < 2**31:
                raise ValueError(
                    f"[HashGrid] level {level} of {self.n_levels} would have a resolution of {scale:.3g}, more than "
                    f"the 2^31 that cells can have. Lower per_level_scale ({self.per_level_scale:g}), n_levels or "
                    "base_resolution."
                )
            resolution = math.ceil(scale) + 1
            size = -(-(resolution**self.n_dims) // 8) * 8
            if self.kind == "hash":
                size = min(size, 2**self.log2_hashmap_size)
            scales.append(scale)
            resolutions.append(resolution)
            sizes.append(size)
        if sum(sizes) > MAX_ROWS:
            remedy = (
                "Lower log2_hashmap_size or n_levels."
                if self.kind == "hash"
                else "Lower the finest resolution, or use kind='hash'."
            )
            raise ValueError(
                f"[HashGrid] the table would have {sum(sizes)} rows, more than the {MAX_ROWS} that int32 "
                f"offsets can count. {remedy}"
            )
        self._set(
            scales=_frozen(scales, np.float32),
            resolutions=_frozen(resolutions, np.int64),
            level_sizes=_frozen(sizes, np.int32),
            offsets=_frozen(np.cumsum([0, *sizes]), np.int32),
        )

    @property
    def table_shape(self) -> tuple[int, int]:
        """Shape of the table of features: (rows of all levels, n_features_per_level)."""
        return int(self.offsets[-1]), self.n_features_per_level

    @property
    def output_dim(self) -> int:
        """Features of an encoded point: n_levels * n_features_per_level."""
        return self.n_levels * self.n_features_per_level

    @property
    def op_attributes(self) -> dict[str, Any]:
        """The attributes that the raw ops take, e.g. `metal_ops.raw_ops.hash_encode(x, table, offsets, **these)`."""
        return {
            "log2_per_level_scale": float(self.log2_per_level_scale),
            "resolution_coarsest": self.base_resolution,
            "interpolation": self.interpolation,
            "grid_kind": self.kind,
        }

    def memory_bytes(self, dtype: Any = "float32") -> int:
        """Bytes of one table of that dtype. Its gradient and Adam's two moments take as much each.

        Example:
          >>> metal_ops.HashGrid(n_levels=1, base_resolution=16).memory_bytes("float16")
          16384
        """
        import tensorflow as tf

        return math.prod(self.table_shape) * tf.as_dtype(dtype).size

    def init_table(self, seed: int | None = None, dtype: Any = "float32") -> tf.Tensor:
        """A new table: uniform in +-1e-4 (Mueller et al. 2022, section 4).

        Args:
          seed: An integer for a reproducible table; None to follow `tf.random.set_seed`.
          dtype: float32, float16 or bfloat16.

        Returns:
          [rows, n_features_per_level] of that dtype.

        Raises:
          TypeError: The dtype is none of those.

        Example:
          >>> grid = metal_ops.HashGrid(n_levels=4)
          >>> bool(tf.reduce_all(grid.init_table(seed=7) == grid.init_table(seed=7)))
          True
        """
        import tensorflow as tf

        dtype = tf.as_dtype(dtype)
        if dtype not in (tf.float32, tf.float16, tf.bfloat16):
            raise TypeError(
                f"[HashGrid.init_table] dtype: expected float32, float16 or bfloat16, got {dtype.name}."
            )
        if seed is None:
            table = tf.random.uniform(self.table_shape, -INITIAL_RANGE, INITIAL_RANGE)
        else:
            table = tf.random.stateless_uniform(
                self.table_shape, seed=[seed, 0], minval=-INITIAL_RANGE, maxval=INITIAL_RANGE
            )
        return tf.cast(table, dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal grid, as plain Python values."""
        return {
            "n_dims": self.n_dims,
            "n_levels": self.n_levels,
            "n_features_per_level": self.n_features_per_level,
            "log2_hashmap_size": self.log2_hashmap_size,
            "base_resolution": self.base_resolution,
            **self.__dict__["_growth"],
            "interpolation": self.interpolation,
            "kind": self.kind,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> HashGrid:
        """The reverse of `get_config`."""
        return cls(**config)

    @classmethod
    def from_tcnn(cls, config: dict[str, Any] | str, n_dims: int | None = None) -> HashGrid:
        """The grid that a JSON configuration of tiny-cuda-nn describes.

        Args:
          config: The configuration of a grid encoding (otype Grid, HashGrid or DenseGrid), or a whole one that has it
            under "encoding"; a dict or its JSON text. A missing field has tiny-cuda-nn's default.
          n_dims: Coordinates a point has, which tiny-cuda-nn is told apart from it (`n_input_dims`); 3 if neither
            this nor "n_dims_to_encode" is given.

        Returns:
          A grid whose features, for the same table, are tiny-cuda-nn's.

        Raises:
          TypeError: The configuration is not a dict.
          ValueError: It asks for a feature that this library does not have (TiledGrid, Nearest, other hashes), or a
            field is unknown or out of range.

        Example:
          >>> config = {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 14, "per_level_scale": 1.5}
          >>> metal_ops.HashGrid.from_tcnn(config, n_dims=2).resolutions.tolist()
          [16, 24, 36, 54]
        """
        return cls(**_tcnn.grid_arguments(config, n_dims))

    def _key(self) -> tuple[Any, ...]:
        return (
            self.n_dims,
            self.n_levels,
            self.n_features_per_level,
            self.log2_hashmap_size,
            self.base_resolution,
            float(self.log2_per_level_scale),
            self.interpolation,
            self.kind,
        )

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, HashGrid) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew, as a copy of an array can be written to.
        return type(self).from_config, (self.get_config(),)

    def _set(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"[HashGrid] a grid cannot be changed; make a new one to set {name!r}."
        )

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_config().items() if value is not None}
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        hashed = int(
            np.count_nonzero(self.level_sizes < self.resolutions.astype(float) ** self.n_dims)
        )
        table = self.memory_bytes()
        return (
            f"HashGrid({arguments})\n"
            f"  resolutions {', '.join(map(str, self.resolutions))} "
            f"({self.n_levels - hashed} dense, {hashed} hashed)\n"
            f"  table {list(self.table_shape)}: {_size(table)} in float32, "
            f"{_size(4 * table)} with its gradient and Adam's two moments"
        )


def _integer(
    name: str, value: Any, low: int = 0, high: int = 0, among: tuple[int, ...] | None = None
) -> int:
    expected = (
        f"one of {', '.join(map(str, among))}" if among else f"an integer from {low} to {high}"
    )
    message = f"[HashGrid] {name}: expected {expected}, got {value!r}."
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(message)
    if value not in among if among else not low <= value <= high:
        raise ValueError(message)
    return int(value)


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"[HashGrid] {name}: expected {expected}, got {value!r}.")
    return value


def _frozen(values: Any, dtype: Any) -> np.ndarray:
    array = np.asarray(values, dtype)
    array.flags.writeable = False
    return array


def _size(n_bytes: int) -> str:
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
