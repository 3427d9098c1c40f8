"""HashGrid: its numbers, bad arguments, and how it behaves as a value."""

from __future__ import annotations

import copy
import ctypes
import math
import pickle
import re

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import HashGrid
from metal_ops.grid import level_scale

pytestmark = pytest.mark.ops

# libm's, which the C++ side calls
libm = ctypes.CDLL(None)
libm.exp2.restype, libm.exp2.argtypes = ctypes.c_double, [ctypes.c_double]


@pytest.mark.parametrize("base", [1, 2, 15, 16, 17, 128])
def test_scales_bit_for_bit(base):
    """p = f32(l) * f32(growth); e = f32(exp2(double(p))); scale = f32(f32(e * f32(base)) - 1), with libm's exp2."""
    for growth in np.random.default_rng(0).uniform(0, 1.5, 50).astype(np.float32):
        for level in range(16):
            p = ctypes.c_float(ctypes.c_float(level).value * ctypes.c_float(growth).value).value
            e = ctypes.c_float(libm.exp2(p)).value
            expected = ctypes.c_float(ctypes.c_float(e * base).value - 1).value
            actual = level_scale(level, growth, base)
            assert actual.dtype == np.float32 and float(actual) == expected


@pytest.mark.parametrize(
    "arguments, resolutions, sizes",
    [
        (dict(), {0: 16, 1: 32, 15: 524288}, {0: 4096, 1: 32768, 2: 262144, 3: 524288, 15: 524288}),
        (dict(finest_resolution=512), {0: 16, 3: 32, 12: 256, 15: 512}, {0: 4096, 6: 262144, 7: 524288}),
        (dict(per_level_scale=1.0), {0: 16, 15: 16}, {0: 4096, 15: 4096}),
        (dict(n_dims=2, n_levels=2, base_resolution=3, per_level_scale=1.5), {0: 3, 1: 5}, {0: 16, 1: 32}),
        (dict(n_dims=4, n_levels=1, log2_hashmap_size=2), {0: 16}, {0: 4}),
        (dict(n_dims=2, n_levels=5, kind="dense", log2_hashmap_size=3), {4: 256}, {4: 65536}),
        (dict(n_levels=1, base_resolution=1), {0: 1}, {0: 8}),
        (dict(n_levels=1, finest_resolution=16), {0: 16}, {0: 4096}),
    ],
)  # fmt: skip
def test_numbers(arguments, resolutions, sizes):
    grid = HashGrid(**arguments)
    assert {level: int(grid.resolutions[level]) for level in resolutions} == resolutions
    assert {level: int(grid.level_sizes[level]) for level in sizes} == sizes
    assert grid.offsets.dtype == np.int32 and grid.offsets[0] == 0
    np.testing.assert_array_equal(np.diff(grid.offsets), grid.level_sizes)
    assert grid.table_shape == (grid.offsets[-1], grid.n_features_per_level)
    assert grid.output_dim == grid.n_levels * grid.n_features_per_level
    np.testing.assert_array_equal(grid.resolutions, np.ceil(grid.scales) + 1)
    assert grid.per_level_scale == pytest.approx(2.0 ** float(grid.log2_per_level_scale), rel=1e-6)


@pytest.mark.parametrize("finest", [17, 64, 100, 512, 1024, 2048, 4096, 100000])
@pytest.mark.parametrize("n_levels", [2, 7, 16, 32])
def test_finest_resolution_is_reached(finest, n_levels):
    """Rounding in float32 may add one, and a unit of float32's 24 bits on large ones, but never falls short."""
    finest_level = int(HashGrid(n_levels=n_levels, finest_resolution=finest).resolutions[-1])
    assert finest - 1 <= finest_level <= finest + 1 + finest * 2.0**-20


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(n_dims=1), ValueError, "n_dims: expected one of 2, 3, 4, got 1"),
        (dict(n_dims=3.0), TypeError, "n_dims: expected one of 2, 3, 4, got 3.0"),
        (dict(n_dims=True), TypeError, "n_dims"),
        (dict(n_levels=0), ValueError, "n_levels: expected an integer from 1 to 32, got 0"),
        (dict(n_levels=33), ValueError, "n_levels: expected an integer from 1 to 32, got 33"),
        (dict(n_features_per_level=3), ValueError, "n_features_per_level: expected one of 1, 2, 4, 8, got 3"),
        (dict(log2_hashmap_size=31), ValueError, "log2_hashmap_size: expected an integer from 1 to 30, got 31"),
        (dict(log2_hashmap_size=None), TypeError, "log2_hashmap_size"),
        (dict(base_resolution=0), ValueError, "base_resolution: expected an integer from 1"),
        (dict(finest_resolution=15), ValueError, "finest_resolution: expected at least base_resolution (16), got 15"),
        (dict(finest_resolution="x"), TypeError, "finest_resolution: expected an integer"),
        (dict(n_levels=1, finest_resolution=32), ValueError, "with one level, expected base_resolution (16), got 32"),
        (dict(finest_resolution=512, per_level_scale=2.0), ValueError, "expected one of them, got both"),
        (dict(per_level_scale=0.9), ValueError, "per_level_scale: expected a finite number of at least 1, got 0.9"),
        (dict(per_level_scale=math.nan), ValueError, "per_level_scale"),
        (dict(per_level_scale=math.inf), ValueError, "per_level_scale"),
        (dict(per_level_scale="2"), TypeError, "per_level_scale: expected a number, got str"),
        (dict(interpolation="cubic"), ValueError, "interpolation: expected 'linear' or 'smoothstep', got 'cubic'"),
        (dict(kind="tiled"), ValueError, "kind: expected 'hash' or 'dense', got 'tiled'"),
        (dict(kind="dense"), ValueError, "more than the 2147483647 that int32 offsets can count"),
        (dict(log2_hashmap_size=30, n_levels=16), ValueError, "Lower log2_hashmap_size"),
        (dict(n_levels=32, per_level_scale=2.5), ValueError, "Lower per_level_scale (2.5)"),
    ],
)  # fmt: skip
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=re.escape(words)) as raised:
        HashGrid(**arguments)
    assert str(raised.value).startswith("[HashGrid] ")


@pytest.mark.parametrize(
    "other",
    [
        dict(n_dims=2),
        dict(n_levels=4),
        dict(n_features_per_level=4),
        dict(log2_hashmap_size=18),
        dict(base_resolution=8),
        dict(per_level_scale=1.5),
        dict(interpolation="smoothstep"),
        dict(kind="dense"),
    ],
    ids=str,
)
def test_grids_that_encode_differently_are_not_equal(other):
    shape = dict(n_levels=3)
    assert HashGrid(**shape) != HashGrid(**shape | other)
    assert HashGrid(**shape, per_level_scale=2.0) == HashGrid(**shape)
    assert HashGrid(**shape, finest_resolution=64) == HashGrid(
        **shape
    )  # the same growth, said differently


def test_is_a_value():
    grid, same, other = (HashGrid(finest_resolution=f) for f in (512, 512, 513))
    assert grid == same and hash(grid) == hash(same) and grid != other and grid != "grid"
    assert {grid: 1}[same] == 1
    for copied in (copy.copy(grid), copy.deepcopy(grid), pickle.loads(pickle.dumps(grid))):
        assert copied == grid and copied.get_config() == grid.get_config()
    with pytest.raises(AttributeError, match="cannot be changed"):
        grid.n_levels = 3
    with pytest.raises(AttributeError):
        del grid.n_levels
    with pytest.raises(ValueError, match="read-only"):
        grid.offsets[0] = 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda grid: pickle.loads(pickle.dumps(grid))])
def test_copies_cannot_be_changed_either(copied):
    grid = HashGrid(n_levels=3, finest_resolution=40)
    other = copied(grid)
    assert other == grid and other.get_config() == grid.get_config()
    with pytest.raises(ValueError, match="read-only"):
        other.offsets[0] = 1


@pytest.mark.parametrize(
    "growth", [dict(), dict(finest_resolution=777), dict(per_level_scale=1.37)], ids=str
)
def test_config_round_trip(growth):
    import json

    grid = HashGrid(
        n_dims=2, n_levels=5, n_features_per_level=4, interpolation="smoothstep", **growth
    )
    assert HashGrid.from_config(json.loads(json.dumps(grid.get_config()))) == grid


def test_repr_says_what_it_takes():
    text = repr(HashGrid(n_dims=3, n_levels=16, finest_resolution=512))
    first, *rest = text.splitlines()
    assert eval(first) == HashGrid(finest_resolution=512)
    assert "16, 21, 26, 32" in text and "512 (7 dense, 9 hashed)" in text
    assert "[5246024, 2]: 40.02 MiB in float32, 160.1 MiB with its gradient and Adam" in text


def test_traced_once_for_equal_grids():
    traces = []

    @tf.function
    def encode(points, grid):
        traces.append(grid)
        return metal_ops.hash_encode(points, tf.zeros(grid.table_shape), grid)

    for finest in (32, 32, 64):
        encode(tf.zeros([2, 3]), HashGrid(n_levels=2, finest_resolution=finest))
    assert len(traces) == 2


@pytest.mark.parametrize("dtype", ["float32", tf.float16, "bfloat16"])
def test_initial_table(dtype):
    grid = HashGrid(n_levels=4)
    table = grid.init_table(seed=3, dtype=dtype)
    assert table.shape == grid.table_shape and table.dtype == dtype
    assert grid.memory_bytes(dtype) == table.numpy().nbytes
    values = tf.cast(table, tf.float32).numpy()
    assert np.abs(values).max() <= 1e-4 * 1.01 and np.abs(values).max() > 0.99e-4
    assert abs(values.mean()) < 1e-6 and abs(values.std() - 1e-4 / math.sqrt(3)) < 1e-6
    np.testing.assert_array_equal(table, grid.init_table(seed=3, dtype=dtype))
    assert np.any(grid.init_table(seed=4, dtype=dtype) != table)


def test_initial_table_follows_the_global_seed():
    grid = HashGrid(n_levels=1)
    tables = []
    for seed in (1, 1, 2):
        tf.random.set_seed(seed)
        tables.append(grid.init_table().numpy())
    assert np.array_equal(tables[0], tables[1]) and not np.array_equal(tables[0], tables[2])


def test_initial_table_refuses_other_dtypes():
    with pytest.raises(
        TypeError, match=r"\[HashGrid.init_table\] dtype: expected float32, .* got float64"
    ):
        HashGrid(n_levels=1).init_table(dtype=tf.float64)
