"""MetalFusedConv2D and metal_ops.fused_conv2d against float64: values, gradients, bad arguments, threads."""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.cases import all_pairs
from tests.fused_cases import ACTIVATIONS, CHAINS, DTYPES, SOME, Chain, assert_close, rounded
from tests.oracles import fused, numeric

# Every pair of these, with whatever the other axes are. Odd and even sizes, more channels than a tile is deep or wide.
AXES: dict[str, tuple[Any, ...]] = {
    "image": ((2, 17, 14), (1, 14, 19), (3, 15, 15)),
    "channels": (1, 3, 16, 35),
    "filters": (1, 4, 17, 64),
    "window": ((1, 1), (3, 3), (2, 5), (4, 1)),
    "strides": ((1, 1), (2, 1), (3, 2)),
    "dilations": ((1, 1), (2, 3)),
    "padding": ("SAME", "VALID", (2, 1, 0, 3)),
    "nchw": (False, True),
    "dtype": DTYPES,
    "chain": SOME,
}
# What needs shapes of its own.
EDGES: list[dict[str, Any]] = [
    dict(image=(1, 1, 1), window=(1, 1)),
    dict(image=(1, 1, 1), window=(3, 3), padding="SAME"),
    dict(image=(1, 3, 3), window=(3, 3)),  # one point comes out
    dict(image=(2, 1, 40), window=(1, 9), strides=(1, 2)),
    dict(image=(1, 2, 2), window=(3, 3), padding=(5, 6, 7, 8)),  # rows that see nothing but padding
    dict(image=(1, 9, 9), window=(2, 2), dilations=(8, 8)),
    dict(image=(1, 40, 40), channels=2, filters=2, strides=(7, 9), padding="SAME"),  # strides beyond the window
    dict(image=(1, 4, 4), channels=300, filters=3),  # long sums
    dict(image=(1, 7, 7), channels=3, filters=130, window=(3, 3), padding="SAME"),
    dict(image=(0, 6, 6), padding="SAME"),
    dict(image=(0, 6, 6)),
    dict(image=(2, 6, 6), filters=0),
    dict(image=(2, 6, 6), channels=0),  # sums without terms
    dict(image=(2, 6, 6), channels=0, filters=40, window=(1, 1)),
    dict(image=(2, 0, 6), padding="SAME"),
    dict(image=(2, 1, 6), window=(2, 2), padding="VALID", empty=True),
]
EDGE = dict(channels=5, filters=6, window=(2, 2), strides=(1, 1), dilations=(1, 1), padding="VALID")


def normal(shape, dtype, seed):
    return rounded(np.random.default_rng(seed).normal(size=shape), dtype)


def spread(values, nchw):
    return [1, 1, *values] if nchw else [1, *values, 1]


def attributes(strides, padding, dilations, nchw):
    given = dict(strides=spread(strides, nchw), dilations=spread(dilations, nchw))
    if isinstance(padding, str):
        return given | dict(padding=padding, data_format="NCHW" if nchw else "NHWC")
    explicit = [0] * 4 + list(padding) if nchw else [0, 0, *padding, 0, 0]
    return given | dict(
        padding="EXPLICIT", explicit_paddings=explicit, data_format="NCHW" if nchw else "NHWC"
    )


def check(image, channels, filters, window, strides, dilations, padding, nchw, dtype, chain):
    context = f"{(image, channels, filters, window, strides, dilations, padding, nchw, dtype)} {chain}"
    n, h, w = image
    x = normal((n, channels, h, w) if nchw else (n, h, w, channels), dtype, 1)
    weights = normal((*window, channels, filters), dtype, 2)
    product = fused.conv2d(x, weights, strides, padding, dilations, nchw)
    args = chain.args(filters, product[0].shape, dtype, 3)
    got = raw_ops.metal_fused_conv2d(
        x, weights, args, **attributes(strides, padding, dilations, nchw), **chain.attributes()
    )
    expected = chain.expected(product, args, 1 if nchw else -1)
    assert_close(got, expected, window[0] * window[1] * channels, dtype, context)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_every_sequence(nchw, dtype):
    for chain in CHAINS:
        check((2, 4, 5), 3, 18, (2, 3), (1, 1), (1, 1), "SAME", nchw, dtype, chain)


def pairs() -> list[dict[str, Any]]:
    small = {name: tuple(range(len(values))) for name, values in AXES.items() if name != "chain"}
    rows = [{name: AXES[name][i] for name, i in row.items()} for row in small_pairs(small)]
    # The chains take turns: they meet everything else in the products' tests.
    return [row | dict(chain=chain) for row, chain in zip(rows, itertools.cycle(SOME), strict=False)]


@functools.cache
def small_pairs_of(names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    axes = {name: tuple(range(size)) for name, size in zip(names, sizes, strict=True)}
    return tuple(all_pairs(axes, impossible=()))


def small_pairs(axes: dict[str, tuple[int, ...]]) -> tuple[dict[str, int], ...]:
    return small_pairs_of(tuple(axes), tuple(len(values) for values in axes.values()))


def test_every_pair():
    rows = pairs()
    assert len(rows) >= 16  # as many as the two longest axes have pairs
    for row in rows:
        check(**row)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_edges(nchw, dtype):
    for edge, chain in zip(EDGES, itertools.cycle(SOME), strict=False):
        row = EDGE | edge | dict(nchw=nchw, dtype=dtype, chain=chain)
        if row.pop("empty", False):  # the filter is one line higher than the image: nothing comes out
            with pytest.raises(tf.errors.InvalidArgumentError, match="filter must fit into input"):
                check(**row, **{}) if False else raw_call(row)
            continue
        check(**row)
