"""The product that threads sum alone, in buffers that end where its matrices do: its reads, and its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .shaders import library

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include "kernels/gemm/gemm_cached.metal.h"
template [[host_name("threads")]] [[kernel]] decltype(gemm_threads<float, 4, 16>) gemm_threads<float, 4, 16>;
template [[host_name("middle")]] [[kernel]] decltype(gemm_threads<float, 12, 32>) gemm_threads<float, 12, 32>;
template [[host_name("wide")]] [[kernel]] decltype(gemm_threads<float, 6, 64>) gemm_threads<float, 6, 64>;
template [[host_name("cached")]] [[kernel]] decltype(gemm_cached<float>) gemm_cached<float>;
"""
# A tile's rows and columns, and how many tiles of columns a thread takes.
TILES = {"threads": (4, 16, 1), "middle": (12, 32, 1), "wide": (6, 64, 1), "cached": (36, 16, 16)}
DIMS = 6
PARAMS = np.dtype(
    [
        ("rows", "i8"),
        *(
            (name, "i8")
            for name in ("a_image", "a_y", "a_x", "a_c", "b_row", "b_column", "b_panel")
        ),
        *((name, "i8") for name in ("out_image", "out_point", "out_column")),
        *((name, "i8", DIMS) for name in ("a_batch", "b_batch")),
        ("out_batch", "i8"),
        ("batch", "u4", DIMS),
        *((name, "u4") for name in ("columns", "depth", "out_h", "out_w", "in_h", "in_w")),
        *((name, "u4") for name in ("filter_h", "filter_w", "stride_h", "stride_w")),
        *((name, "u4") for name in ("dilation_h", "dilation_w")),
        *((name, "i4") for name in ("pad_top", "pad_left")),
        *((name, "u4") for name in ("split_terms", "unused")),
    ]
)
# images, height, width, depth, columns beyond those of a tile, filter, padding
CASES = [
    (1, 1, 1, 5, 0, 1, 0),
    (1, 1, 3, 4, 1, 1, 0),
    (1, 1, 4, 4, 16, 1, 0),
    (1, 1, 6, 3, 24, 1, 0),
    (1, 1, 7, 300, 0, 1, 0),
    (2, 3, 3, 2, 0, 3, 1),
    (3, 5, 3, 3, 4, 3, 0),
    (1, 2, 5, 4, 0, 2, 1),
    (2, 4, 9, 3, 70, 3, 1),
    (1, 2, 2, 3, 0, 5, 2),
    (2, 6, 7, 130, 250, 3, 1),
]


@pytest.mark.parametrize("kernel", TILES)
@pytest.mark.parametrize("case", CASES)
def test_a_product_reads_its_matrices_alone(case: tuple[int, ...], kernel: str) -> None:
    """Rows and columns are taken several at a time, whatever their number."""
    images, height, width, depth, more_columns, filter_size, padding = case
    tile_rows, tile_columns, panels = TILES[kernel]
    columns = tile_columns + more_columns
    out_h, out_w = (size + 2 * padding - filter_size + 1 for size in (height, width))
    rng = np.random.default_rng(sum(case))
    image = rng.normal(size=(images, height, width, depth)).astype(np.float32)
    weights = rng.normal(size=(filter_size, filter_size, depth, columns)).astype(np.float32)
    out = np.full((images, out_h, out_w, columns), np.nan, np.float32)
    params = np.zeros((), PARAMS)
    fields = {
        "rows": images * out_h * out_w, "a_image": height * width * depth, "a_y": width * depth, "a_x": depth,
        "a_c": 1, "b_row": columns, "b_column": 1, "out_image": out_h * out_w * columns, "out_point": columns,
        "out_column": 1, "batch": 1, "columns": columns, "depth": depth, "out_h": out_h, "out_w": out_w,
        "in_h": height, "in_w": width, "filter_h": filter_size, "filter_w": filter_size, "stride_h": 1,
        "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_top": padding, "pad_left": padding,
    }  # fmt: skip
    for name, value in fields.items():
        params[name] = value
    assert PARAMS.itemsize == 280
    shader = library(SOURCE, checked=True, include=(str(ROOT),))
    terms, b = filter_size**2 * depth, weights
    if panels > 1:  # which has b in panels, with zeros behind its columns
        b = np.pad(weights.reshape(terms, columns), ((0, 0), (0, -columns % tile_columns)))
        b = np.ascontiguousarray(b.reshape(terms, -1, tile_columns).swapaxes(0, 1))
        params["b_panel"] = terms * tile_columns
    grid = (-(-fields["rows"] // tile_rows), -(-columns // (panels * tile_columns)), 1)
    shader[kernel].run(grid, (1, 1, 1), {0: image, 1: b, 2: out, 3: params})
    padded = np.pad(image.astype(np.float64), ((0, 0), *((padding, padding),) * 2, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (filter_size,) * 2, axis=(1, 2))
    np.testing.assert_allclose(
        out,
        np.einsum("nyxcij,ijck->nyxk", windows, weights),
        rtol=1e-5,
        atol=1e-5 * max(1, terms / 100),
    )
