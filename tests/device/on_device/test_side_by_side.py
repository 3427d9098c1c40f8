"""Kernels that take several elements at a time, at sizes around that number: vectors, and the remainder."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import check, random, run
from tests.device.on_device.test_signals import near, numbers

raw = tf.raw_ops
LANES = 32  # of ArgMax; FFTs have 16


@pytest.mark.parametrize("op", [raw.ArgMax, raw.ArgMin], ids=["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int64"])
def test_place_of_the_largest(op, dtype):
    rng = np.random.default_rng(1)
    for count, inner in itertools.product(
        (1, LANES - 1, LANES, LANES + 1, 4 * LANES + 3), (1, 2, LANES - 1, LANES, 2 * LANES + 5)
    ):
        # Few values, of which many are the same: the first place counts.
        values = rng.integers(0, 5, (3, count, inner)).astype("float32")
        x = tf.cast(values, dtype)
        want = (np.argmax if op is raw.ArgMax else np.argmin)(values, 1)
        for places in (tf.int64, tf.int32):
            inputs = dict(input=x, dimension=tf.constant(1))
            (got,) = run(op, inputs, host=["dimension"], output_type=places)
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} {count} {inner}")


@pytest.mark.parametrize("op", [raw.ArgMax, raw.ArgMin], ids=["max", "min"])
def test_place_among_numbers_that_are_none(op):
    for inner in (1, LANES + 1):
        x = np.full((6, 2 * LANES + 3, inner), 1.0, "float32")
        x[0, :] = np.nan
        x[1, 0] = np.nan  # passed over, as on the CPU
        x[2, 5] = np.nan
        x[2, 40] = 2.0 if op is raw.ArgMax else 0.0
        x[3, :] = np.inf
        x[4, :] = -np.inf
        x[5, 1::2] = -0.0
        x[5, ::2] = 0.0
        inputs = dict(input=tf.constant(x), dimension=tf.constant(1))
        (got,) = run(op, inputs, host=["dimension"], output_type=tf.int64)
        with tf.device("CPU:0"):
            np.testing.assert_array_equal(got, op(**inputs, output_type=tf.int64))
        np.testing.assert_array_equal(
            got, np.repeat([[0], [1], [40], [0], [0], [0]], inner, 1)[:, : got.shape[-1]]
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32"])
def test_gradient_of_nearest_neighbours(dtype):
    sizes = [(3, 4), (1, 1), (7, 5), (6, 9)]
    results = [(6, 8), (1, 1), (5, 11), (4, 30), (6, 9), (13, 2)]
    for (before, after), channels in itertools.product(
        itertools.product(sizes, results), (1, 31, 65)
    ):
        back = dict(grads=random((2, *after, channels), dtype), size=tf.constant(before))
        for corners, centers in ((False, False), (True, False), (False, True)):
            check(
                raw.ResizeNearestNeighborGrad,
                back,
                dtype,
                host=["size"],
                align_corners=corners,
                half_pixel_centers=centers,
            )


@pytest.mark.parametrize("length", [4, 7, 8, 15, 16, 24, 30, 64])
def test_transforms_of_as_many_series(length):
    for series in (8, 15, 16, 17, 32, 37):
        x = numbers((2, length, series))
        near(
            run(raw.FFT2D, dict(input=tf.constant(x)))[0],
            np.fft.fft2(x.astype("complex128")),
            length * series,
        )
        x = numbers((series, length))
        near(run(raw.FFT, dict(input=tf.constant(x)))[0], np.fft.fft(x), length)


@pytest.mark.parametrize("length", [4, 6, 126, 128, 130, 256, 258, 1000])
def test_real_transforms_in_runs(length):
    x = numbers((3, length), "float32")
    sizes = dict(fft_length=tf.constant([length]))
    half = np.fft.rfft(x)
    near(run(raw.RFFT, dict(input=tf.constant(x)) | sizes, host=["fft_length"])[0], half, length)
    given = dict(input=tf.constant(half.astype("complex64"))) | sizes
    near(run(raw.IRFFT, given, host=["fft_length"])[0], x.astype("float64"), length)
