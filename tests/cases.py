"""The hash-encode cases that tests sweep: every value and every pair of values of the axes below but IMPOSSIBLE."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.grid import HashGrid
from tests.oracles import hash_encode as oracle

AXES: dict[str, tuple[Any, ...]] = {
    "n_points": (0, 1, 7, 16, 1000, 65537),
    "n_levels": (1, 2, 5, 32),
    "n_features": (1, 2, 4, 8),
    "n_dims": (2, 3, 4),
    "dtype": ("float32", "float16", "bfloat16"),
    "interpolation": ("linear", "smoothstep"),
    "kind": ("hash", "dense"),
}
# Left out: cases that would keep the float64 oracle busy for many seconds.
IMPOSSIBLE = (("n_points", 65537, "n_levels", 32),)

# The tolerance of a result, as a multiple of the oracle's bound. Each term goes through a handful of float32
# roundings (2^-24 each) and the sum's partial sums stay below the bound: 8 of them cover that.
SUM_TOLERANCE = 8 * 2.0**-24
# Half precision results are rounded once more at the end: half a unit in the last place.
ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float32": 0.0, "float16": 2.0**-24 / 2, "bfloat16": 0.0}  # float16 underflows early


@dataclass(frozen=True)
class Case:
    """One shape of the hash encoding."""

    n_points: int
    n_levels: int
    n_features: int
    n_dims: int
    dtype: str
    interpolation: str
    kind: str
    log2_hashmap_size: int = 9
    base_resolution: int = 4
    log2_per_level_scale: float = (
        0.3  # resolutions 4, 5, 7, 8, 10 ... : dense at first, hashed later
    )

    def __str__(self) -> str:
        return (
            f"N{self.n_points}-L{self.n_levels}-F{self.n_features}-D{self.n_dims}-"
            f"{self.dtype}-{self.interpolation}-{self.kind}"
        )

    @functools.cached_property
    def grid(self) -> HashGrid:
        growth = self.log2_per_level_scale
        if self.kind == "dense" and self.n_levels > 5:
            growth = 0.05  # 32 levels of 4..12 points an axis
        return HashGrid(
            n_dims=self.n_dims,
            n_levels=self.n_levels,
            n_features_per_level=self.n_features,
            log2_hashmap_size=self.log2_hashmap_size,
            base_resolution=self.base_resolution,
            per_level_scale=2.0**growth,
            interpolation=self.interpolation,
            kind=self.kind,
        )

    @functools.cached_property
    def oracle_grid(self) -> oracle.Grid:
        grid = self.grid
        return oracle.Grid(
            grid.offsets,
            float(grid.log2_per_level_scale),
            grid.base_resolution,
            grid.interpolation,
            grid.kind,
        )

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """points [N, D], table [rows, F], g [N, L * F], v [N, D]; table and g rounded to the dtype."""
        random = np.random.default_rng(_seed(str(self)))
        n, d, width = self.n_points, self.n_dims, self.n_levels * self.n_features
        points = random.uniform(size=(n, d)).astype(np.float32)
        points[: n // 8] = np.round(points[: n // 8] * 4) / 4  # corners and cell borders
        dtype = tf.as_dtype(self.dtype).as_numpy_dtype
        return {
            "points": points,
            "table": random.uniform(-1, 1, self.grid.table_shape).astype(dtype),
            # Not centred on zero, so that sums have a sign and a missing term shows.
            "g": (random.normal(size=(n, width)) + 0.5).astype(dtype),
            "v": random.normal(size=(n, d)).astype(np.float32),
        }


def _seed(text: str) -> int:
    return int.from_bytes(text.encode(), "little") % 2**32


def all_pairs(axes: dict[str, tuple[Any, ...]], impossible=IMPOSSIBLE) -> list[dict[str, Any]]:
    """A small selection of the full product that has every pair of values: greedily, always the same."""
    names = list(axes)

    def pairs(row: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}

    product = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    candidates = [(row, pairs(row)) for row in product]
    candidates = [(row, found) for row, found in candidates if not found & set(impossible)]
    np.random.default_rng(0).shuffle(candidates)  # ties would all go to the first values
    missing = set().union(*(found for _, found in candidates))
    chosen = []
    while missing:
        row, found = max(candidates, key=lambda candidate: len(candidate[1] & missing))
        chosen.append(row)
        missing -= found
    return chosen


# The shape that people train with: 16..512, most levels hashed.
NERF = dict(n_points=1000, n_levels=16, n_features=2, n_dims=3, kind="hash")
NERF |= dict(log2_hashmap_size=14, base_resolution=16, log2_per_level_scale=1 / 3)

HASH_ENCODE_CASES = [Case(**row) for row in all_pairs(AXES)] + [
    Case(**NERF, dtype=dtype, interpolation=interpolation)
    for dtype, interpolation in itertools.product(AXES["dtype"], AXES["interpolation"])
]


def assert_close(
    actual: Any, expected: np.ndarray, bound: np.ndarray, dtype: str, context: str = ""
) -> None:
    """Fails unless |actual - expected| <= SUM_TOLERANCE * bound + one final rounding to `dtype`."""
    actual = np.asarray(actual).astype(np.float64)
    assert actual.shape == expected.shape, (
        f"{context}: shape {actual.shape}, expected {expected.shape}"
    )
    allowed = (
        SUM_TOLERANCE * bound + ROUNDING[dtype] * np.abs(expected) * (1 + 2.0**-8) + SMALLEST[dtype]
    )
    error = np.abs(actual - expected)
    wrong = ~(error <= allowed)
    if np.any(wrong):
        worst = np.unravel_index(np.argmax(np.where(wrong, error - allowed, -np.inf)), error.shape)
        raise AssertionError(
            f"{context}: {np.count_nonzero(wrong)} of {wrong.size} values off; worst at {tuple(map(int, worst))}: "
            f"got {actual[worst]!r}, expected {expected[worst]!r} +- {allowed[worst]:.3g}"
        )
