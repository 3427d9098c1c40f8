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
    for batch in [(), (3,), (2, 2), (19,)]:  # of the last, processors take 16 at a time
        x = numbers((*batch, length))
        near(run(raw.FFT, dict(input=tf.constant(x)))[0], np.fft.fft(x), length)
        near(run(raw.IFFT, dict(input=tf.constant(x)))[0], np.fft.ifft(x), length)
        x = numbers((*batch, length), "float32")
        sizes = dict(fft_length=tf.constant([length]))
        half = np.fft.rfft(x)
        near(
            run(raw.RFFT, dict(input=tf.constant(x)) | sizes, host=["fft_length"])[0], half, length
        )
        # Imaginary parts of elements without a counterpart do not count.
        alone = np.arange(half.shape[-1]) % max(length / 2, 1) == 0
        half = (half + np.where(alone, 3j, 0)).astype("complex64")
        (got,) = run(raw.IRFFT, dict(input=tf.constant(half)) | sizes, host=["fft_length"])
        near(got, x.astype("float64"), length)


@pytest.mark.parametrize("dims", [2, 3])
def test_of_more_dimensions(dims):
    axes = tuple(range(-dims, 0))
    for size in [(8, 6, 16), (5, 11, 3), (1, 1, 1), (4, 7, 30), (3, 4, 36)]:
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
        for op in (
            raw.Add,
            raw.AddV2,
            raw.Sub,
            raw.Mul,
            raw.RealDiv,
            raw.Div,
            raw.DivNoNan,
            raw.SquaredDifference,
        ):
            check(op, dict(x=x, y=y))
        for op in (raw.Equal, raw.NotEqual):
            check(op, dict(x=x, y=y), error=0)
            check(op, dict(x=x, y=tf.identity(x)), error=0)
        check(raw.Complex, dict(real=tf.math.real(x), imag=tf.math.imag(y)), error=0)
    check(raw.DivNoNan, dict(x=x, y=tf.zeros_like(x)), error=0)
    for name in ("Real", "Imag", "Conj", "Angle"):
        check(getattr(raw, name), dict(input=x))
    for name in ("Neg", "Sign", "Square", "Reciprocal", "Inv", "Exp", "Log", "Sqrt", "Rsqrt"):
        check(getattr(raw, name), dict(x=x))
    for name in ("SqrtGrad", "ReciprocalGrad", "InvGrad"):
        check(getattr(raw, name), dict(y=x, dy=tf.constant(numbers(x.shape, seed=3))))
    check(raw.Sign, dict(x=tf.zeros([3], tf.complex64)), error=0)
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


def test_functions_near_their_cuts():
    unit = np.exp(1j * np.linspace(-3.1, 3.1, 50)) * (1 + 1e-5 * np.linspace(-1, 1, 50))
    with np.errstate(all="ignore"):
        for name, values in {
            "Log": [*unit, 1e-30, -1e-30j, 3e38 + 3e38j, -2.0, -2 - 1e-30j],
            "Sqrt": [0, 4, -4, -4 - 1e-30j, 4j, 1e-38, 3e38 + 3e38j, -1e30 + 1j],
            "Exp": [0, 1j * np.pi, 80 - 2j, -200 + 1j, 88.0],
        }.items():
            z = np.array(values, "complex64")
            (got,) = run(getattr(raw, name), dict(x=tf.constant(z)))
            want = getattr(np, name.lower())(z.astype("complex128"))
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
        big = np.array([1e30 + 1e30j, 1e-30j, 5, 2j], "complex64")
        (got,) = run(raw.RealDiv, dict(x=tf.constant(big), y=tf.constant(big[[0, 1, 3, 2]])))
        np.testing.assert_allclose(got, [1, 1, -2.5j, 0.4j], rtol=1e-6)


def test_sums_and_conversions():
    for shape in [(), (1,), (7,), (33, 65), (2, 3, 4, 5), (0, 3), (5000,)]:
        x = tf.constant(numbers(shape))
        for axes in [list(range(len(shape))), [0], [-1]] if shape else [[]]:
            for op in (raw.Sum, raw.Mean):
                if 0 in shape and op is raw.Mean:
                    continue
                check(
                    op,
                    dict(input=x, axis=tf.constant(axes, tf.int32)),
                    host=["axis"],
                    keep_dims=True,
                )
        with tf.device("GPU:0"):
            total = raw.AddN(inputs=[tf.identity(x)] * 9)
        assert total.device.endswith("GPU:0")
        np.testing.assert_allclose(total, 9 * x.numpy(), rtol=1e-6)
    for name in (
        "float32",
        "float16",
        "bfloat16",
        "int8",
        "int32",
        "int64",
        "uint8",
        "uint64",
        "bool",
    ):
        real = tf.cast(tf.constant([0.0, 1.0, 3.0, 100.0]), name)
        check(raw.Cast, dict(x=real), error=0, widen=False, DstT=tf.complex64)
        whole = tf.constant(np.array([0, 1 + 2j, 3 - 1j, 100 + 7j], "c8"))
        check(raw.Cast, dict(x=whole), error=0, DstT=tf.as_dtype(name))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.abs(tf.signal.rfft(x)),
        lambda x: tf.abs(tf.signal.stft(x, 16, 8, pad_end=True)),
        lambda x: tf.math.real(tf.signal.ifft(tf.signal.fft(tf.cast(x, tf.complex64)))),
        lambda x: tf.signal.irfft(tf.signal.rfft(x) * tf.complex(0.5, 2.0)),
        lambda x: tf.math.angle(tf.signal.rfft(x)),
        lambda x: tf.abs(tf.signal.rfft2d(x)) ** 2,
        lambda x: tf.math.real(tf.math.log(tf.complex(x, x + 3.0)) / tf.complex(x, 2.0)),
        lambda x: tf.math.imag(tf.sqrt(tf.exp(tf.complex(x, 0.5 * x)))),
    ],
)
def test_gradients_stay_on_the_device(function):
    """With soft placement off every op of the gradient must have a kernel."""
    x = numbers((4, 32), "float32", seed=5)
    found = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device):

            @tf.function
            def gradient(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = function(x)
                    weight = tf.reshape(tf.cos(tf.range(tf.size(y), dtype=tf.float32)), tf.shape(y))
                    loss = tf.reduce_sum(y * weight)
                return tape.gradient(loss, x)

            found.append(gradient(tf.identity(tf.constant(x))))
    assert found[1].device.endswith("GPU:0")
    np.testing.assert_allclose(found[1], found[0], rtol=2e-4, atol=2e-4)


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
