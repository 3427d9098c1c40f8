"""Sorting, the largest elements, places among sorted values, counts: on the device against TensorFlow's CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests import placements
from tests.device.on_device.test_elementwise import FLOATS, INTEGERS
from tests.device.on_device.test_moves import same
from tests.device.on_device.test_ops import numpy_type, on_device, put, random

raw = tf.raw_ops
NUMBERS = [*FLOATS, *INTEGERS, "int32"]


def with_ties(shape, dtype: str) -> np.ndarray:
    """Numbers of both signs where there are, some of them several times; both zeros, infinities."""
    rng = np.random.default_rng(7)
    low = 0 if dtype[0] == "u" else -100
    x = rng.integers(low, 120, shape)
    if dtype in FLOATS:
        x = np.where(rng.random(shape) < 0.5, x, rng.normal(size=shape))
        special = np.array([np.inf, -np.inf, 0.0, -0.0])
        x = np.where(rng.random(shape) < 0.1, rng.choice(special, shape), x)
    elif x.size:
        info = np.iinfo(dtype)
        x = x.astype(dtype)
        x.ravel()[:: max(1, x.size // 5)] = rng.choice(np.array([info.min, info.max], dtype))
    return np.asarray(x).astype(numpy_type(dtype))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_top_k(dtype):
    # Merged by a thread, sorted by digits in one part and in several, looked at in one part and in several.
    for shape in [
        (1,),
        (7,),
        (3, 5),
        (4, 0),
        (0, 3),
        (3, 130),
        (2, 3, 1500),
        (2, 9001),
        (1, 30011),
    ]:
        x = with_ties(shape, dtype)
        n = shape[-1]
        for k in sorted({0, min(1, n), min(3, n), n // 5, min(100, n), n}):
            kind = "int16" if n < 3000 and k % 2 else "int32" if n < 9000 else "int64"
            same(raw.TopKV2, {"input": x}, k=k, index_type=kind)
        if dtype in FLOATS and n:
            same(raw.ApproxTopK, {"input": x}, k=max(1, n // 5))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_sort(dtype):
    x = with_ties((5, 700), dtype)
    x = np.where(x == np.iinfo(dtype).min, x.dtype.type(3), x) if dtype not in FLOATS else x
    for direction in ("ASCENDING", "DESCENDING"):
        if dtype == "int32" and direction == "ASCENDING":
            continue  # TensorFlow negates them first, and int32 on the host alone
        with tf.device("CPU:0"):
            want = tf.sort(x, direction=direction), tf.argsort(x, direction=direction, stable=True)
        tf.config.set_soft_device_placement(True)  # it slices the shape, int32
        try:
            with tf.device("GPU:0"), placements.placed() as ops:
                sort = tf.function(
                    lambda v, d=direction: (tf.sort(v, direction=d), tf.argsort(v, direction=d)),
                    jit_compile=False,
                )
                got = sort(put(x))
        finally:
            tf.config.set_soft_device_placement(False)
        assert ops["TopKV2"] == {"GPU:0"}
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(on_device(a), b.numpy())


def test_not_a_number_is_more_than_all():
    x = np.array([1, np.nan, np.inf, -np.inf, np.nan, 2], np.float32)
    for dtype in FLOATS:
        values, indices = raw.TopKV2(input=put(x.astype(numpy_type(dtype))), k=6)
        np.testing.assert_array_equal(on_device(indices), [1, 4, 2, 5, 0, 3])
        np.testing.assert_array_equal(values.numpy().astype("f"), x[[1, 4, 2, 5, 0, 3]])


def test_approximate_largest_and_smallest():
    x = random((3, 500), "float32")
    with tf.device("GPU:0"):
        values, indices = raw.ApproxTopK(input=put(x), k=4, is_max_k=False)
    np.testing.assert_array_equal(on_device(values), np.sort(x)[:, :4])
    np.testing.assert_array_equal(indices, np.argsort(x)[:, :4])
    with tf.device("GPU:0"), pytest.raises(tf.errors.UnimplementedError, match="reduction_dim"):
        raw.ApproxTopK(input=put(x), k=1, reduction_dimension=0)


def test_in_top_k():
    for kind in ("int32", "int64"):
        for shape in [(1, 1), (5, 3), (70, 33), (0, 4)]:
            x = random(shape, "float32")
            if x.size > 10:
                x[1, 2], x[2, 0], x[3, 1] = np.inf, np.nan, x[3, 0]
            targets = np.arange(shape[0]).astype(kind) % (shape[1] + 1)  # one past the end, too
            for k in (0, 1, 2, 40):
                same(raw.InTopK, {"predictions": x, "targets": targets}, k=k)
                same(
                    raw.InTopKV2,
                    {"predictions": x, "targets": targets},
                    k=tf.constant(k, kind),
                )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bounds(dtype):
    for rows, n, m in [(1, 1, 5), (3, 64, 33), (2, 65, 7), (1, 0, 4), (2, 5, 0), (1, 1000, 100)]:
        x, values = np.sort(with_ties((rows, n), dtype)), with_ties((rows, m), dtype)
        there = min(n, m) // 2  # some are among the sorted
        values[:, :there] = x[:, :there]
        for op in (raw.LowerBound, raw.UpperBound):
            for kind in (tf.int32, tf.int64):
                same(op, {"sorted_inputs": x, "values": values}, out_type=kind)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_buckets_and_histograms(dtype):
    for shape in [(), (0,), (33,), (70, 300)]:
        x = with_ties(shape, dtype)
        if dtype != "float32":
            x = np.clip(x, -(2**20), 2**20)
        for boundaries in ([], [0.0], [-3.5, 0.0, 0.0, 7.0], list(np.linspace(-100, 100, 97))):
            same(raw.Bucketize, {"input": x}, boundaries=boundaries)
        x = np.where(np.isfinite(x.astype("f")), x, x.dtype.type(1))
        for low, high, bins in [(-3, 4, 7), (0, 100, 1), (-50, 50, 333), (1, 2, 2)]:
            options = {"value_range": np.array([low, high], dtype), "nbins": bins}
            for kind in (tf.int32, tf.int64):
                same(raw.HistogramFixedWidth, {"values": x}, **options, dtype=kind)


def test_histogram_boundaries_are_those_of_doubles():
    for low, high, bins in [(-3, 3, 100), (0.1, 0.7, 7), (-1, 1, 1000), (1e6, 1e6 + 3, 5)]:
        edges = (low + (high - low) / bins * np.arange(bins + 1)).astype("float32")
        x = [edges]
        for direction in (-np.inf, np.inf):
            near = edges
            for _ in range(3):
                near = np.nextafter(near, np.float32(direction))
                x.append(near)
        limits = np.array([low, high], "float32")
        same(raw.HistogramFixedWidth, {"values": np.concatenate(x)}, value_range=limits, nbins=bins)


def test_histograms_of_many_bins():
    """For floats that lie close to each other, or far from 0, the shader's division does not give the
    bin."""
    rng = np.random.default_rng(6)
    for low, high, bins in [
        (0, 1, 10000),
        (-1, 1, 2),
        (1e6, 1e6 + 3, 5000),
        (-1e-3, 1e30, 77),
        (-(2**30), 2**30, 999),
    ]:
        x = rng.uniform(low - (high - low) / 20, high + (high - low) / 20, 20000).astype("float32")
        limits = np.array([low, high], "float32")
        same(raw.HistogramFixedWidth, {"values": x}, value_range=limits, nbins=bins)
    x = np.array([0.1, np.nan, np.inf, -np.inf, 0.7, np.nan], "float32")
    got = raw.HistogramFixedWidth(values=put(x), value_range=np.array([0, 1], "float32"), nbins=4)
    np.testing.assert_array_equal(on_device(got), [2, 0, 1, 1])
    x = rng.integers(-(2**40), 2**40, 5000)
    limits = np.array([-(2**40), 2**40])
    for bins in (2, 1000):
        same(raw.HistogramFixedWidth, {"values": x}, value_range=limits, nbins=bins)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_counts(dtype):
    rng = np.random.default_rng(8)
    shapes = [((0,), 4), ((7,), 3), ((5, 40), 9), ((3, 0), 2), ((20011,), 50), ((6,), 0), ((2, 9), 400)]  # fmt: skip
    for shape, size in shapes:
        for kind in ("int32", "int64"):
            index = rng.integers(0, max(size, 1) + 3, shape).astype(kind)
            weights = np.asarray(rng.integers(0, 3, shape)).astype(numpy_type(dtype))
            none = np.zeros((0,), numpy_type(dtype))
            for given in (weights, none):
                size_given = tf.constant(size, kind)
                if kind == "int32":
                    same(raw.Bincount, {"arr": index, "weights": given}, size=size_given)
                for binary in (False, True):
                    same(
                        raw.DenseBincount,
                        {"input": index, "weights": given},
                        size=size_given,
                        binary_output=binary,
                    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_counts_of_ragged_rows(dtype):
    rng = np.random.default_rng(5)
    for lengths, size in [
        ([3, 0, 9001, 1], 7),
        ([], 3),
        ([0, 0], 2),
        ([5, 2], 0),
        ([40] * 30, 100),
    ]:
        splits = tf.constant(np.cumsum([0, *lengths]), tf.int64)
        for kind in ("int32", "int64"):
            values = rng.integers(0, 9, sum(lengths)).astype(
                kind
            )  # some are not less than the size
            weights = rng.integers(-3, 9, sum(lengths)).astype(dtype)
            for given in (weights, np.zeros(0, dtype)):
                for binary in (False, True):
                    same(
                        raw.RaggedBincount,
                        {"values": values, "weights": given},
                        splits=splits,
                        size=tf.constant(size, kind),
                        binary_output=binary,
                    )


def ragged(splits):
    return raw.RaggedBincount(
        splits=tf.constant(splits, tf.int64), values=[1, 2], size=3, weights=tf.zeros(0)
    )


BAD = {
    "RaggedBincount: first": (lambda x: ragged([1, 2]), "Splits must start with 0, not with 1"),
    "RaggedBincount: last": (lambda x: ragged([0, 1]), "must end with the number of values, got 1"),
    "RaggedBincount: down": (lambda x: ragged([0, 2, 1, 2]), "must not go down, got 1 after 2"),
    "RaggedBincount: none": (lambda x: ragged([]), "splits must be a vector"),
    "TopKV2: k": (lambda x: raw.TopKV2(input=x, k=4), "at least k columns"),
    "TopKV2: negative": (lambda x: raw.TopKV2(input=x, k=-1), "Need k >= 0"),
    "TopKV2: scalar": (lambda x: raw.TopKV2(input=x[0, 0], k=1), "1-D"),
    "InTopK": (lambda x: raw.InTopKV2(predictions=x, targets=[0], k=1), "First dimension"),
    "LowerBound": (
        lambda x: raw.LowerBound(sorted_inputs=x, values=x[:1]),
        "as many rows|Leading dim",
    ),
    "Bucketize": (lambda x: raw.Bucketize(input=x, boundaries=[1.0, 0.0]), "sorted boundaries"),
    "HistogramFixedWidth: range": (
        lambda x: raw.HistogramFixedWidth(values=x, value_range=[1.0, 1.0], nbins=3),
        "value_range",
    ),
    "HistogramFixedWidth: bins": (
        lambda x: raw.HistogramFixedWidth(values=x, value_range=[1.0, 2.0], nbins=0),
        "nbins should be",
    ),
    "Bincount": (lambda x: raw.Bincount(arr=[1], size=-1, weights=x[0, :1]), "non-negative"),
    "DenseBincount": (
        lambda x: raw.DenseBincount(input=[1], size=3, weights=x),
        "weights",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, message = BAD[name]
    with tf.device("GPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(put(np.ones((2, 3), "f")))
