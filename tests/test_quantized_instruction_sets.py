"""Products with quantized weights by each instruction set of the CPU, whose ways differ: AVX-512 with products of
bytes takes x as integers of 24 bits in steps of its block, and others as floats."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import _library
from tests.test_quantized_matmul import ROUNDING, make, meant

pytestmark = pytest.mark.ops

# "": the best, which has products of bytes where the processor has them and no name of its own.
TARGETS = ["", *_library.simd_targets()]


@pytest.fixture(params=TARGETS, ids=lambda name: name or "best")
def target(request):
    _library.set_simd_target(request.param)
    try:
        with tf.device("CPU"):
            yield request.param
    finally:
        _library.set_simd_target(os.environ.get("METAL_OPS_SIMD", ""))


def check(x, weights, dtype="float32"):
    """As exact as sums of float32 in blocks, whose error counts from the greatest number of each."""
    y = metal_ops.quantized_matmul(tf.constant(x), weights)
    assert y.dtype == dtype
    x, w = x.astype(np.float64), meant(weights)
    right = x @ w
    most = np.zeros_like(x)
    width = min(weights.block or 128, 64 if weights.bits == 8 else 128)
    for at in range(0, x.shape[1], width):
        most[:, at : at + width] = np.abs(x[:, at : at + width]).max(1, keepdims=True)
    # Codes count from the least weight or the middle, and either is larger than the weights.
    step = np.repeat(weights.scales.numpy().astype(np.float64), weights.block or x.shape[1], -1)
    span = 2.0**weights.bits * np.abs(step)[:, : x.shape[1]].T
    allowed = 2.0**-24 * (2 * most @ np.abs(w) + 2 * np.abs(x) @ span)
    allowed += ROUNDING[dtype] * np.abs(right) * 1.01
    error = np.abs(y.numpy().astype(np.float64) - right)
    assert (error <= allowed).all(), np.max(error / np.maximum(allowed, 1e-300))


# Whole vectors of codes, whole windows of sixteen blocks, and remainders of either; four outputs side by side, twice,
# and three more.
@pytest.mark.parametrize("inputs", [33, 96, 128, 500, 512, 1000, 2048, 2100])
@pytest.mark.parametrize(
    "bits, block",
    [(4, 32), (4, 64), (4, 128), (4, 384), (4, None), (8, 32), (8, 64), (8, None)],
)
@pytest.mark.parametrize("symmetric", [False, True])
def test_values(target, symmetric, bits, block, inputs):
    for rows in (1, 2, 3, 4):
        x, kernel = make(rows, inputs, 11)
        for scales in ("float16", "float32"):
            check(x, metal_ops.quantize(kernel, bits, block, symmetric, scales=scales))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("bits", [4, 8])
def test_dtypes(target, bits, dtype):
    x, kernel = make(3, 700, 9, dtype)
    check(x, metal_ops.quantize(kernel, bits), dtype)


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e-17, 1e-6, 2.0**22, 5e6, 1e15, 1e29])
@pytest.mark.parametrize("bits, block", [(4, 32), (4, 128), (8, 32), (8, None)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_sizes_of_x(target, symmetric, bits, block, size):
    """Beyond the range of steps of integers, too."""
    x, kernel = make(2, 300, 6)
    x[0] *= np.float32(size)
    check(x, metal_ops.quantize(kernel, bits, block, symmetric, scales="float32"))


@pytest.mark.parametrize("bits, block", [(4, 32), (4, 64), (4, None), (8, 32)])
def test_blocks_of_different_sizes(target, bits, block):
    """Each has its own step."""
    x, kernel = make(2, 640, 6)
    x *= np.repeat(10.0 ** np.arange(-14, 6), 32).astype(np.float32)
    check(x, metal_ops.quantize(kernel, bits, block))
    # A control: a step for all of a row would lose the part where other weights are 0.
    kernel[320:] = 0
    weights = metal_ops.quantize(kernel, bits, block, symmetric=True)
    check(x, weights)


@pytest.mark.parametrize("bits, block", [(4, 32), (4, 128), (8, 32), (8, None)])
def test_weights_of_zero_add_nothing(target, bits, block):
    x, kernel = make(2, 256, 8)
    x[:] = 0
    x[:, 7], kernel[7] = [4e6, 3e37], 0
    weights = metal_ops.quantize(kernel, bits, block, symmetric=True)
    np.testing.assert_array_equal(metal_ops.quantized_matmul(x, weights), np.zeros((2, 8)))


@pytest.mark.parametrize("bits", [4, 8])
def test_extremes(target, bits):
    """The greatest sums of integers that there are: all codes and all x at an end, of either sign."""
    for code in (0, 255):
        for sign in (-1, 1):
            for greatest in (
                1.0,
                1.999,
                127 / 64 + 127 / 16384 + 127 / 2**22,
                np.nextafter(np.float32(2), 0),
            ):
                x = np.full((2, 256), sign * greatest, np.float32)
                for minima in (
                    tf.zeros([0], tf.float16),
                    tf.fill([3, 8], tf.constant(0.5, tf.float16)),
                ):
                    weights = metal_ops.QuantizedWeights(
                        tf.fill([3, 256 * bits // 8], tf.constant(code, tf.uint8)),
                        tf.ones([3, 8], tf.float16), minima, inputs=256, bits=bits, block=32,
                    )  # fmt: skip
                    check(x, weights)


def test_not_finite(target):
    for bits in (4, 8):
        x, kernel = make(3, 256, 5)
        x[0, 3], x[1, 69] = np.inf, np.nan
        weights = metal_ops.quantize(np.abs(kernel) + 0.1, bits)
        found = metal_ops.quantized_matmul(x, weights).numpy()
        assert (found[0] == np.inf).all() and np.isnan(found[1]).all()
        check(x[2:], weights)
