"""Fourier transforms and complex numbers on the device, against NumPy in complex128."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_layers import check, run

raw = tf.raw_ops
# Powers of two, products of the radices that have a pass, primes, twice primes: all ways to a transform.
LENGTHS = [
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    11,
    12,
    22,
    49,
    60,
    64,
    97,
    105,
    128,
    210,
    509,
    512,
    1000,
    1021,
    4096,
]


def numbers(shape, dtype="complex64", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype == "complex64" else 0)
    return x.astype(dtype)


def near(got, want, length):
    """A pass rounds every number it adds: the errors grow with the logarithm, Bluestein's with that of his padding."""
    assert got.shape == want.shape
    size = np.sqrt(np.mean(np.abs(want) ** 2)) if want.size else 0.0
    limit = 2**-22 * (4 + np.log2(max(length, 1))) * size
    assert np.abs(got.numpy() - want).max(initial=0.0) <= limit


@pytest.mark.parametrize("length", LENGTHS)
def test_of_any_length(length):
    for batch in [(), (3,), (2, 2)]:
        x = numbers((*batch, length))
        near(run(raw.FFT, dict(input=tf.constant(x)))[0], np.fft.fft(x), length)
        near(run(raw.IFFT, dict(input=tf.constant(x)))[0], np.fft.ifft(x), length)
        x = numbers((*batch, length), "float32")
        sizes = dict(fft_length=tf.constant([length]))
        half = np.fft.rfft(x)
        near(
            run(raw.RFFT, dict(input=tf.constant(x)) | sizes, host=["fft_length"])[0], half, length
        )
        # Imaginary parts of what has no counterpart do not count.
        alone = np.arange(half.shape[-1]) % max(length / 2, 1) == 0
        half = (half + np.where(alone, 3j, 0)).astype("complex64")
        (got,) = run(raw.IRFFT, dict(input=tf.constant(half)) | sizes, host=["fft_length"])
        near(got, x.astype("float64"), length)


@pytest.mark.parametrize("dims", [2, 3])
def test_of_more_dimensions(dims):
    axes = tuple(range(-dims, 0))
    for size in [(8, 6, 16), (5, 11, 3), (1, 1, 1), (4, 7, 30)]:
        size = size[:dims]
        for batch in [(), (2,)]:
            x, points = numbers((*batch, *size)), int(np.prod(size))
            near(
                run(getattr(raw, f"FFT{dims}D"), dict(input=tf.constant(x)))[0],
                np.fft.fftn(x, axes=axes),
                points,
            )
            near(
                run(getattr(raw, f"IFFT{dims}D"), dict(input=tf.constant(x)))[0],
                np.fft.ifftn(x, axes=axes),
                points,
            )
            x = numbers((*batch, *size), "float32")
            sizes = dict(fft_length=tf.constant(size))
            half = np.fft.rfftn(x, axes=axes)
            (got,) = run(
                getattr(raw, f"RFFT{dims}D"),
                dict(input=tf.constant(x)) | sizes,
                host=["fft_length"],
            )
            near(got, half, points)
            half = dict(input=tf.constant(half.astype("complex64"))) | sizes
            near(
                run(getattr(raw, f"IRFFT{dims}D"), half, host=["fft_length"])[0],
                x.astype("float64"),
                points,
            )


def test_lengths_that_cut_off():
    x = numbers((2, 9, 12), "float32")
    sizes = dict(fft_length=tf.constant([6, 10]))
    (got,) = run(raw.RFFT2D, dict(input=tf.constant(x)) | sizes, host=["fft_length"])
    near(got, np.fft.rfft2(x, (6, 10)), 60)
    (got,) = run(
        raw.IRFFT,
        dict(input=tf.constant(numbers((2, 9))), fft_length=tf.constant([10])),
        host=["fft_length"],
    )
    near(got, np.fft.irfft(numbers((2, 9)), 10), 10)
    for op, shape in [(raw.RFFT, (2, 0)), (raw.IRFFT, (2, 0))]:
        inputs = dict(
            input=tf.constant(numbers((2, 8), "complex64" if op is raw.IRFFT else "float32"))
        )
        assert (
            run(op, inputs | dict(fft_length=tf.constant([0])), host=["fft_length"])[0].shape
            == shape
        )
    assert run(raw.FFT, dict(input=tf.zeros([0, 4], tf.complex64)))[0].shape == (0, 4)


@pytest.mark.parametrize(
    ("op", "inputs", "says"),
    [
        (raw.FFT2D, dict(input=tf.zeros([4], tf.complex64)), "rank"),
        (raw.RFFT, dict(input=tf.zeros([4]), fft_length=tf.constant([4, 4])), "shape|must be 1"),
        (
            raw.RFFT,
            dict(input=tf.zeros([4]), fft_length=tf.constant([-1])),
            ">= 0|non-negative|negative",
        ),
        (raw.RFFT, dict(input=tf.zeros([4]), fft_length=tf.constant([5])), "at least 5"),
        (
            raw.IRFFT,
            dict(input=tf.zeros([2], tf.complex64), fft_length=tf.constant([4])),
            "at least 3",
        ),
    ],
)
def test_bad(op, inputs, says):
    with pytest.raises(tf.errors.InvalidArgumentError, match=says):
        run(op, inputs, host=["fft_length"])


def test_arithmetic():
    for a, b in [((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 1), (1, 5)), ((), (3,)), ((3,), ()), ((0, 2), (2,)),
                 ((1025,), (1025,))]:  # fmt: skip
        x, y = tf.constant(numbers(a)), tf.constant(numbers(b, seed=1))
        for op in (raw.Add, raw.AddV2, raw.Sub, raw.Mul):
            check(op, dict(x=x, y=y))
        check(raw.Complex, dict(real=tf.math.real(x), imag=tf.math.imag(y)), error=0)
    for name in ("Real", "Imag", "Conj", "Angle"):
        check(getattr(raw, name), dict(input=x))
    check(raw.Neg, dict(x=x))
    special = [
        3 + 4j,
        3e38 + 1j,
        1e-30 + 1e-30j,
        0,
        -0.0,
        complex(np.inf, np.nan),
        complex(np.nan, 1),
        1e25 - 2e25j,
    ]
    with np.errstate(invalid="ignore"):
        (got,) = run(raw.ComplexAbs, dict(x=tf.constant(special, tf.complex64)))
    np.testing.assert_allclose(got, np.abs(np.complex64(special).astype("complex128")), rtol=1e-6)


def test_short_time_transforms_and_back():
    """As `tf.signal` builds them: every op that has complex numbers or a transform is the device's."""
    x = numbers((2, 1000), "float32")

    def there_and_back(x):
        series = tf.signal.stft(x, 128, 32, window_fn=tf.signal.hann_window)
        window = tf.signal.inverse_stft_window_fn(32, forward_window_fn=tf.signal.hann_window)
        return series, tf.abs(series), tf.signal.inverse_stft(series, 128, 32, window_fn=window)

    with tf.device("CPU:0"):
        want = there_and_back(tf.constant(x))
    with tf.device("GPU:0"):
        got = tf.function(there_and_back)(tf.identity(tf.constant(x)))
    for a, b in zip(got, want, strict=True):
        assert a.device.endswith("GPU:0"), a.device
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_allclose(got[2][:, 128:-128], x[:, 128 : got[2].shape[1] - 128], atol=1e-5)
