"""The hash encoding and its derivatives in NumPy float64, straight from the formulas.

Only values that the numerics define in float32 are float32 here: a level's scale, and the position whose integer part
chooses the cell. Every function also returns a bound: the same sum with each weight replaced by the largest it can be
and each term by its absolute value. Rounding errors are proportional to that, not to the (cancelling) result; over the
many points that share a row they walk like the square root of their number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

PRIMES = (1, 2654435761, 805459861, 3674653429)


@dataclass(frozen=True)
class Grid:
    """The op's arguments: offsets [L + 1] and attributes."""

    offsets: np.ndarray
    log2_per_level_scale: float
    base_resolution: int
    interpolation: str = "linear"
    kind: str = "hash"

    def scale(self, level: int) -> np.float32:
        exponent = np.float32(level) * np.float32(self.log2_per_level_scale)
        return np.float32(
            np.float32(2.0 ** float(exponent)) * np.float32(self.base_resolution)
        ) - np.float32(1)


@dataclass(frozen=True)
class Corner:
    """One corner of each point's cell on one level: row [N], weight [N], its first and second derivatives in x."""

    level: int
    row: np.ndarray
    weight: np.ndarray
    first: np.ndarray | None  # [N, D]
    second: np.ndarray | None  # [N, D, D]
    scale: float
    steepest: float  # largest |derivative| of an axis' weight, a unit of `scale`


def rows_of(cells: np.ndarray, resolution: int, size: int, kind: str) -> np.ndarray:
    """Rows in a level of `size` rows of cells [N, D] uint32."""
    n_dims = cells.shape[1]
    stride, index = 1, np.zeros(len(cells), np.uint32)
    for dim in range(n_dims):
        if stride > size:
            break
        index += cells[:, dim] * np.uint32(stride)
        stride *= resolution
    if kind == "hash" and stride > size:
        index = np.zeros(len(cells), np.uint32)
        for dim in range(n_dims):
            index ^= cells[:, dim] * np.uint32(PRIMES[dim])
    return (index % np.uint32(size)).astype(np.int64)


def corners(
    points: np.ndarray, grid: Grid, order: int, continuous: bool = False
) -> Iterator[Corner]:
    """All corners of all levels. `continuous` keeps positions in float64, for differences of nearby points."""
    points = np.asarray(points, np.float64)
    n, n_dims = points.shape
    for level in range(len(grid.offsets) - 1):
        begin, end = int(grid.offsets[level]), int(grid.offsets[level + 1])
        scale = float(grid.scale(level))
        resolution = math.ceil(scale) + 1
        with np.errstate(invalid="ignore", over="ignore"):
            position = points * scale + 0.5
            if not continuous:
                position = position.astype(np.float32).astype(np.float64)
            floor = np.floor(position)
            t = position - floor
            cell = np.nan_to_num(np.clip(floor, -(2.0**31), 2.0**31 - 1), nan=0.0)
        cell = cell.astype(np.int64).astype(np.uint32)
        if grid.interpolation == "linear":
            s, s1, s2, steepest = t, np.ones_like(t), np.zeros_like(t), 1.0
            s1 = s1 + 0 * t  # NaN stays NaN
        else:
            s, s1, s2, steepest = t * t * (3 - 2 * t), 6 * t * (1 - t), 6 - 12 * t, 6.0
        upper, lower = (s, s1 * scale, s2 * scale**2), (1 - s, -s1 * scale, -s2 * scale**2)
        for bits in itertools.product((0, 1), repeat=n_dims):
            # factor[order][:, dim]: that axis' factor of the weight, differentiated `order` times
            factor = [
                np.stack([(upper if bit else lower)[k][:, d] for d, bit in enumerate(bits)], 1)
                for k in range(3)
            ]
            first = second = None
            if order >= 1:
                first = np.empty((n, n_dims))
                for d in range(n_dims):
                    first[:, d] = _product(factor, {d: 1})
            if order >= 2:
                second = np.empty((n, n_dims, n_dims))
                for d, e in itertools.product(range(n_dims), repeat=2):
                    second[:, d, e] = _product(factor, {d: 2} if d == e else {d: 1, e: 1})
            corner_cell = cell + np.asarray(bits, np.uint32)
            row = begin + rows_of(corner_cell, resolution, end - begin, grid.kind)
            yield Corner(level, row, _product(factor, {}), first, second, scale, steepest)


def _product(factor: list[np.ndarray], orders: dict[int, int]) -> np.ndarray:
    result = np.ones(factor[0].shape[0])
    for d in range(factor[0].shape[1]):
        result = result * factor[orders.get(d, 0)][:, d]
    return result


def _level(values: np.ndarray, corner: Corner, n_features: int) -> np.ndarray:
    return values[:, corner.level * n_features : (corner.level + 1) * n_features]


def encode(points, table, grid, continuous=False):
    """y [N, L * F] = sum over corners of weight * row."""
    table = np.asarray(table, np.float64)
    n_features = table.shape[1]
    y = np.zeros((len(points), (len(grid.offsets) - 1) * n_features))
    bound = np.zeros_like(y)
    for c in corners(points, grid, 0, continuous):
        _level(y, c, n_features)[:] += c.weight[:, None] * table[c.row]
        _level(bound, c, n_features)[:] += np.abs(table[c.row])
    return y, bound


def grad(g, points, table, grid):
    """dE [rows, F] of g.y."""
    g, result = np.asarray(g, np.float64), np.zeros(np.shape(table))
    bound = np.zeros_like(result)
    hits = np.zeros((len(result), 1))
    for c in corners(points, grid, 0):
        part = _level(g, c, result.shape[1])
        np.add.at(result, c.row, c.weight[:, None] * part)
        np.add.at(bound, c.row, np.abs(part))
        np.add.at(hits, c.row, 1)
    return result, bound * _walk(hits)


def point_grad(g, points, table, grid):
    """dx [N, D] of g.y: J^T g."""
    g, table = np.asarray(g, np.float64), np.asarray(table, np.float64)
    result = np.zeros(np.shape(points))
    bound = np.zeros_like(result)
    for c in corners(points, grid, 1):
        part = _level(g, c, table.shape[1])
        result += c.first * np.sum(part * table[c.row], 1, keepdims=True)
        bound += c.steepest * c.scale * np.sum(np.abs(part * table[c.row]), 1, keepdims=True)
    return result, bound


def jvp(v, points, table, grid):
    """J v [N, L * F]."""
    v, table = np.asarray(v, np.float64), np.asarray(table, np.float64)
    n_features = table.shape[1]
    y = np.zeros((len(points), (len(grid.offsets) - 1) * n_features))
    bound = np.zeros_like(y)
    for c in corners(points, grid, 1):
        _level(y, c, n_features)[:] += np.sum(c.first * v, 1, keepdims=True) * table[c.row]
        slope = c.steepest * c.scale * np.sum(np.abs(v), 1, keepdims=True)
        _level(bound, c, n_features)[:] += slope * np.abs(table[c.row])
    return y, bound


def jvp_grad(v, g, points, table, grid):
    """dE [rows, F] of g.(J v)."""
    v, g = np.asarray(v, np.float64), np.asarray(g, np.float64)
    result = np.zeros(np.shape(table))
    bound = np.zeros_like(result)
    hits = np.zeros((len(result), 1))
    for c in corners(points, grid, 1):
        part = _level(g, c, result.shape[1])
        np.add.at(hits, c.row, 1)
        np.add.at(result, c.row, np.sum(c.first * v, 1, keepdims=True) * part)
        slope = c.steepest * c.scale * np.sum(np.abs(v), 1, keepdims=True)
        np.add.at(bound, c.row, slope * np.abs(part))
    return result, bound * _walk(hits)


def _walk(hits: np.ndarray) -> np.ndarray:
    return np.maximum(1.0, np.sqrt(hits) / 8)


def jvp_point_grad(v, g, points, table, grid):
    """dx [N, D] of g.(J v)."""
    v, g, table = (
        np.asarray(v, np.float64),
        np.asarray(g, np.float64),
        np.asarray(table, np.float64),
    )
    result = np.zeros(np.shape(points))
    bound = np.zeros_like(result)
    for c in corners(points, grid, 2):
        part = np.sum(_level(g, c, table.shape[1]) * table[c.row], 1)
        result += np.einsum("nde,nd->ne", c.second, v) * part[:, None]
        size = np.sum(np.abs(_level(g, c, table.shape[1]) * table[c.row]), 1, keepdims=True)
        bound += (c.steepest * c.scale) ** 2 * np.sum(np.abs(v), 1, keepdims=True) * size
    return result, bound
