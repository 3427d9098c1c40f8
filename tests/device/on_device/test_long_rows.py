"""Reductions of rows: elements that shaders read by 32, by eight and one by one, all of them and NaN, wherever it
is."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_ops import on_device, put, random

LENGTHS = [*range(30, 35), *range(62, 74), 95, 97, 1023, 1024, 1025, 1100]
WHOLE = ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64")


def reduced(op: str, x: np.ndarray) -> np.ndarray:
    return on_device(getattr(tf.raw_ops, op)(input=put(x), axis=tf.constant([1])))


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers(dtype):
    for n in LENGTHS:
        x = random((3, n), dtype, n)
        np.testing.assert_array_equal(reduced("Sum", x), np.sum(x, 1, dtype=dtype))
        np.testing.assert_array_equal(reduced("Prod", x | 1), np.prod(x | 1, 1, dtype=dtype))
        np.testing.assert_array_equal(reduced("Max", x), x.max(1))
        np.testing.assert_array_equal(reduced("Min", x), x.min(1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats(dtype):
    for n in LENGTHS:
        x = random((3, n), dtype, n)
        wide = x.astype("float32")
        np.testing.assert_array_equal(reduced("Max", x).astype("float32"), wide.max(1))
        np.testing.assert_array_equal(reduced("Min", x).astype("float32"), wide.min(1))
        size = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
        norm = np.sqrt(np.sum(wide.astype("float64") ** 2, 1))
        np.testing.assert_allclose(reduced("EuclideanNorm", x).astype("float64"), norm, rtol=size)
        near = (1 + x / 512).astype(x.dtype)
        product = np.prod(near.astype("float64"), 1)
        np.testing.assert_allclose(reduced("Prod", near).astype("float64"), product, rtol=size * 8)


@pytest.mark.parametrize("op", ["Sum", "Prod", "Max", "Min", "Mean", "EuclideanNorm"])
def test_nan_stays(op):
    n = 105  # three times 32, eight, and one
    x = np.ones((n + 1, n), np.float32)
    x[np.arange(n), np.arange(n)] = np.nan
    np.testing.assert_array_equal(np.isnan(reduced(op, x)), np.arange(n + 1) < n)


@pytest.mark.parametrize(("op", "usual"), [("All", True), ("Any", False)])
def test_one_of_a_row_decides(op, usual):
    n = 105
    x = np.full((n + 1, n), usual)
    x[np.arange(n), np.arange(n)] = not usual
    np.testing.assert_array_equal(reduced(op, x) == usual, np.arange(n + 1) == n)
