"""tiny-cuda-nn's JSON configurations: their results here, and the refused ones with their
remedies."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import HashGrid
from metal_ops.layers import HashEncoding

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

# The encoding of instant-ngp's configs/nerf/base.json, and of tiny-cuda-nn's data/config_hash.json.
NERF = {
    "otype": "HashGrid",
    "n_levels": 16,
    "n_features_per_level": 2,
    "log2_hashmap_size": 19,
    "base_resolution": 16,
}
IMAGE = {"otype": "HashGrid", "n_levels": 16, "n_features_per_level": 2, "log2_hashmap_size": 15}
IMAGE |= {"base_resolution": 16, "per_level_scale": 1.5}  # fmt: skip
AS_IMAGE = dict(n_dims=2, log2_hashmap_size=15, per_level_scale=1.5)


@pytest.mark.parametrize(
    "config, n_dims, expected",
    [
        ({}, None, dict()),
        ({"otype": "Grid"}, 2, dict(n_dims=2)),
        (NERF, 3, dict()),
        (IMAGE, 2, AS_IMAGE),
        ({"encoding": IMAGE, "network": {"otype": "FullyFusedMLP"}}, 2, AS_IMAGE),
        (json.dumps(IMAGE), 2, AS_IMAGE),
        ({"otype": "hashgrid", "interpolation": "SMOOTHSTEP"}, 3, dict(interpolation="smoothstep")),
        ({"otype": "Grid", "type": "Dense", "n_levels": 5}, 3, dict(kind="dense", n_levels=5, finest_resolution=256)),
        ({"otype": "DenseGrid", "n_levels": 3, "base_resolution": 64}, 3,
         dict(kind="dense", n_levels=3, base_resolution=64, finest_resolution=256)),
        ({"otype": "DenseGrid", "n_levels": 1}, 3, dict(kind="dense", n_levels=1)),
        ({"otype": "DenseGrid", "type": "Hash", "n_levels": 4}, 3, dict(n_levels=4)),
        ({"n_features": 32, "n_features_per_level": 4}, 3, dict(n_levels=8, n_features_per_level=4)),
        ({"n_dims_to_encode": 4}, None, dict(n_dims=4)),
        ({"hash": "CoherentPrime", "stochastic_interpolation": False}, 3, dict()),
    ],
    ids=str,
)  # fmt: skip
def test_grids(config, n_dims, expected):
    grid, same = HashGrid.from_tcnn(config, n_dims), HashGrid(**expected)
    for name in ("n_dims", "n_levels", "n_features_per_level", "interpolation", "kind"):
        assert getattr(grid, name) == getattr(same, name)
    np.testing.assert_array_equal(grid.offsets, same.offsets)
    np.testing.assert_allclose(grid.scales, same.scales, rtol=1e-6)


@pytest.mark.parametrize(
    "config, n_dims, error, words",
    [
        ({"otype": "TiledGrid"}, 3, ValueError, "expected one of Hash, Dense, got 'tiled'. Use 'Hash' with"),
        ({"type": "Tiled"}, 3, ValueError, "got 'Tiled'. Use 'Hash' with"),
        ({"interpolation": "Nearest"}, 3, ValueError,
         "expected one of Linear, Smoothstep, got 'Nearest'. It has no gradient"),
        ({"interpolation": "Cubic"}, 3, ValueError, "got 'Cubic'. Choose one of them"),
        ({"otype": "Frequency"}, 3, ValueError,
         "otype: expected one of Grid, HashGrid, DenseGrid, got 'Frequency'. Use metal_ops.frequency_encode."),
        ({"otype": "SphericalHarmonics"}, 3, ValueError, "Use metal_ops.sh_encode."),
        ({"otype": "Composite", "nested": []}, 3, ValueError, "Make one encoding for each of its parts"),
        ({"hash": "Rng"}, 3, ValueError, "hash: expected one of CoherentPrime, got 'Rng'"),
        ({"stochastic_interpolation": True}, 3, ValueError,
         "stochastic_interpolation: expected false, got true. Leave it out."),
        ({"fixed_point_pos": True}, 3, ValueError, "fixed_point_pos: expected false"),
        ({"n_level": 8}, 3, ValueError, "unknown field n_level: expected some of base_resolution"),
        ({"n_features": 32, "n_levels": 16}, 3, ValueError, "n_features and n_levels: expected one of them, got both"),
        ({"n_features": 5}, 3, ValueError, "expected a multiple of n_features_per_level (2), got 5"),
        ({"n_dims_to_encode": 3}, 2, ValueError, "expected n_dims_to_encode of the configuration (3), got 2"),
        ({"n_features_per_level": 3}, 3, ValueError,
         "[HashGrid] n_features_per_level: expected one of 1, 2, 4, 8, got 3"),
        ({}, 1, ValueError, "[HashGrid] n_dims: expected one of 2, 3, 4, got 1"),
        ([], 3, TypeError, "config: expected a dict or its JSON text, got list"),
        ("config.json", 3, ValueError, "Read a file with json.load"),
    ],
    ids=str,
)  # fmt: skip
def test_refused(config, n_dims, error, words):
    with pytest.raises(error, match=re.escape(words)):
        HashGrid.from_tcnn(config, n_dims)


def test_layer():
    layer = HashEncoding.from_tcnn(IMAGE, n_dims=2, seed=3, dtype="mixed_float16", name="encoding")
    assert layer.grid == HashGrid.from_tcnn(IMAGE, n_dims=2)
    assert (layer.seed, layer.name, layer.compute_dtype) == (3, "encoding", "float16")
    assert layer(tf.zeros([4, 2])).shape == (4, 32)
    again = HashEncoding.from_config(layer.get_config())
    assert again.grid == layer.grid
