"""The device's stock ops of neural networks against TensorFlow's own on the CPU, and a whole ResNet50 on the device.

The CPU computes in float64 or float32, from the same inputs; the device in float32, and it rounds float16 and bfloat16
results once: to half a unit in the last place. Sums of `terms` products differ by their order, by about sqrt(terms)
roundings of float32.
"""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from tests.device.test_loading import CACHED

raw = tf.raw_ops
FLOATS = ["float32", "float16", "bfloat16"]
# The change by the one rounding of a result, as a part of it; and at least: float16 has fixed steps near 0.
ROUNDING = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8}
SMALLEST = {"float32": 1e-37, "float16": 2**-25, "bfloat16": 1e-37}


def random(shape, dtype="float32", seed=0):
    x = np.random.default_rng(seed).normal(size=shape)
    return tf.constant(x, tf.float32 if dtype == "float32" else dtype)


def both(op, inputs, host=(), **attrs):
    """The op's outputs on the CPU in float64, and on the device. Inputs named in `host` stay in host memory."""
    with tf.device("CPU:0"):
        wide = {
            k: tf.cast(v, tf.float64) if tf.is_tensor(v) and v.dtype.is_floating else v
            for k, v in inputs.items()
        }
        expected = op(**wide, **attrs)
    with tf.device("GPU:0"):
        placed = {k: v if k in host else tf.identity(v) for k, v in inputs.items()}
        actual = op(**placed, **attrs)
    single = tf.is_tensor(actual)
    return ([expected], [actual]) if single else (list(expected), list(actual))


def assert_rounded_once(got, want, error, dtype, context=""):
    """`error` is float32's tolerance, before the result is rounded to the dtype."""
    got, want = (tf.cast(x, tf.float64).numpy() for x in (got, want))
    assert got.shape == want.shape
    tolerance = error + ROUNDING[dtype] * (np.abs(want) + error) * 1.01 + SMALLEST[dtype]
    wrong = ~(np.abs(got - want) <= tolerance)
    assert not wrong.any(), f"{context}: {got[wrong][:5]}, expected {want[wrong][:5]}"


def check(op, inputs, dtype, terms=0, ulps=4, around=0.0, host=(), outputs=None, **attrs):
    """`ulps` of float32 in each result, or in numbers of size `around`; for sums of `terms`, their order's error."""
    expected, actual = both(op, inputs, host, **attrs)
    for want, got in list(zip(expected, actual, strict=True))[:outputs]:
        assert got.device.endswith("GPU:0"), got.device
        size = np.abs(want.numpy())
        error = ulps * 2**-23 * np.maximum(size, around) + 4 * np.sqrt(terms) * 2**-23 * size.max(
            initial=0.0
        )
        assert_rounded_once(got, want, error, dtype, f"{op.__name__} {attrs}")


# ---- products -------------------------------------------------------------------------------------------------------

PRODUCTS = [
    ((1, 1), (1, 1)),
    ((3, 5), (5, 7)),
    ((33, 70), (70, 17)),
    ((130, 64), (64, 48)),
    ((2, 3), (3, 200)),
    # Few columns, by vectors along the sums.
    ((70, 300), (300, 1)),
    ((5, 33), (33, 4)),
    ((0, 3), (3, 4)),
    ((3, 0), (0, 4)),
    ((3, 4), (4, 0)),
]


# Terms at a time are for processors; whose vectors have 512 bits, has no need of them.
WAYS = pytest.mark.parametrize("way", [None, CACHED])
# Several blocks of terms and more panels of columns than a thread takes.
MANY_TERMS = [((75, 300), (300, 280)), ((37, 129), (129, 128)), ((36, 128), (128, 17))]


@WAYS
@pytest.mark.parametrize("dtype", FLOATS)
def test_matmul(monkeypatch, dtype, way):
    if way:
        monkeypatch.setenv("METAL_OPS_GEMM", way)
    for (a, b), ta, tb in itertools.product(PRODUCTS + MANY_TERMS, [False, True], [False, True]):
        inputs = dict(
            a=random(a[::-1] if ta else a, dtype), b=random(b[::-1] if tb else b, dtype, 1)
        )
        check(raw.MatMul, inputs, dtype, terms=a[1], transpose_a=ta, transpose_b=tb)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "a, b",
    [
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((4, 5), (3, 5, 6)),
        ((3, 1, 4, 5), (1, 2, 5, 6)),
        ((3, 7, 5), (5, 33)),
        ((2, 1, 3, 1, 4, 5), (1, 2, 1, 3, 5, 6)),
        ((0, 4, 5), (0, 5, 6)),
        ((2, 3, 5, 40), (1, 3, 40, 2)),
    ],
)
def test_batch_matmul(a, b, dtype):
    for adj_x, adj_y in itertools.product([False, True], [False, True]):
        x = (*a[:-2], a[-1], a[-2]) if adj_x else a
        y = (*b[:-2], b[-1], b[-2]) if adj_y else b
        inputs = dict(x=random(x, dtype), y=random(y, dtype, 1))
        check(raw.BatchMatMulV2, inputs, dtype, terms=a[-1], adj_x=adj_x, adj_y=adj_y)


EINSUMS = [
    ("ij,jk->ik", (3, 5), (5, 7)),
    ("ij,kj->ki", (33, 70), (17, 70)),
    ("bij,bjk->bik", (4, 3, 5), (4, 5, 6)),
    ("aecd,abcd->acbe", (2, 5, 3, 8), (2, 4, 3, 8)),  # attention's scores
    ("acbe,aecd->abcd", (2, 3, 4, 5), (2, 5, 3, 8)),  # and values
    ("abc,cde->abde", (2, 3, 8), (8, 2, 4)),
    ("abde,cde->abc", (2, 3, 2, 4), (8, 2, 4)),  # a gradient of it
    ("ikl,jlk->ij", (3, 4, 5), (6, 5, 4)),
    ("...ij,...jk->...ik", (2, 1, 3, 5), (4, 5, 6)),
    ("i...,...j->...ij", (3, 1, 4), (2, 4, 5)),
    ("...i,...i->...", (2, 3, 5), (2, 3, 5)),
    ("i,j->ji", (4,), (5,)),
    (",ij->ji", (), (4, 5)),
    ("ijk,kl->i", (3, 4, 5), (5, 6)),  # labels of one tensor alone are summed
    ("iij,jk->ik", (4, 4, 5), (5, 3)),  # diagonals
    ("i,i->ii", (5,), (5,)),
    ("ij,jk->ik", (3, 0), (0, 4)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("abcdef->fbdaec", (2, 3, 2, 2, 3, 4), None),
    ("ij->j", (130, 7), None),
    ("i...->...", (6, 3, 5), None),
    ("ijk->", (3, 4, 5), None),
    ("iji->ij", (4, 3, 4), None),
    ("ii->", (6, 6), None),
    ("i->ii", (5,), None),
    ("ij->j", (0, 4), None),
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_einsum(dtype):
    for equation, *shapes in EINSUMS:
        given = [random(s, dtype, i) for i, s in enumerate(shapes) if s is not None]
        sizes = [1, *(n for x in given for n in x.shape)]
        inputs = {f"x{i}": x for i, x in enumerate(given)}

        def einsum(equation=equation, **inputs):
            return raw.Einsum(inputs=list(inputs.values()), equation=equation)

        check(einsum, inputs, dtype, terms=np.prod(sizes, dtype=float), around=4.0)


def test_einsum_gradients():
    for equation, *shapes in EINSUMS:
        given = [random(s, seed=i) for i, s in enumerate(shapes) if s is not None]
        found = []
        for device in ("CPU:0", "GPU:0"):
            with tf.device(device), tf.GradientTape() as tape:
                inputs = [tf.identity(x) for x in given]
                tape.watch(inputs)
                loss = tf.reduce_sum(tf.sin(raw.Einsum(inputs=inputs, equation=equation)))
            found.append(tape.gradient(loss, inputs))
        for want, got in zip(*found, strict=True):
            assert got.device.endswith("GPU:0"), got.device
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=equation)


# ---- windows --------------------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    # input NHWC, filter, strides, dilations, padding
    ((2, 9, 7, 3), (3, 3, 3, 5), (1, 1), (1, 1), "SAME"),
    ((1, 14, 13, 20), (1, 1, 20, 40), (1, 1), (1, 1), "VALID"),
    ((1, 14, 13, 20), (1, 1, 20, 40), (2, 3), (1, 1), "SAME"),
    ((3, 8, 8, 16), (3, 2, 16, 33), (2, 1), (1, 1), "VALID"),
    ((2, 11, 12, 4), (3, 3, 4, 6), (1, 1), (2, 3), "SAME"),
    ((1, 6, 6, 2), (3, 3, 2, 17), (1, 1), (1, 1), (2, 1, 0, 3)),
    ((1, 3, 3, 2), (3, 3, 2, 1), (1, 1), (1, 1), "VALID"),
    ((0, 6, 6, 2), (3, 3, 2, 4), (1, 1), (1, 1), "SAME"),
]


def window_attrs(strides, padding, nchw, dilations=None):
    def spread(h, w):
        return [1, 1, h, w] if nchw else [1, h, w, 1]

    attrs = dict(strides=spread(*strides), data_format="NCHW" if nchw else "NHWC")
    attrs["padding"] = padding if isinstance(padding, str) else "EXPLICIT"
    if dilations:
        attrs["dilations"] = spread(*dilations)
    if not isinstance(padding, str):
        sides = list(padding)
        attrs["explicit_paddings"] = [0] * 4 + sides if nchw else [0, 0, *sides, 0, 0]
    return attrs


def check_window(op, inputs, dtype, shape, terms, nchw, **attrs):
    """NCHW is compared with the CPU's NHWC, the only layout that all of its kernels have."""
    name = "input" if "input" in inputs else "value"
    expected, _ = both_layouts(op, inputs, name, shape, dtype, nchw, **attrs)
    want, got = expected
    error = 4 * np.sqrt(terms) * 2**-23 * np.abs(want).max(initial=0.0)
    assert_rounded_once(got, want, error, dtype, str(attrs))


def both_layouts(op, inputs, name, shape, dtype, nchw, strides, padding, dilations=None, **attrs):
    x = random(shape, dtype)
    ksize = attrs.pop("ksize", None)

    def window(layout):
        more = window_attrs(strides, padding, layout, dilations)
        if ksize:
            more["ksize"] = [1, 1, *ksize] if layout else [1, *ksize, 1]
        return more | attrs

    with tf.device("CPU:0"):
        wide = {k: tf.cast(v, tf.float32) for k, v in inputs.items() if k != name}
        # For an empty batch oneDNN returns a tensor of the input's shape, so one image stands in for it
        # there.
        images = x if shape[0] else tf.zeros((1, *shape[1:]), dtype)
        want = op(**{name: tf.cast(images, tf.float32)}, **wide, **window(False)).numpy()
        want = want[: shape[0]]
    with tf.device("GPU:0"):
        placed = {k: tf.identity(v) for k, v in inputs.items() if k != name}
        y = tf.identity(tf.transpose(x, (0, 3, 1, 2)) if nchw else x)
        got = op(**{name: y}, **placed, **window(nchw))
        assert got.device.endswith("GPU:0"), got.device
    got = tf.cast(got, tf.float32).numpy()
    if nchw:
        got = got.transpose(0, 2, 3, 1)
    assert got.shape == want.shape
    return (want.astype("f8"), got.astype("f8")), None


@WAYS
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_conv(monkeypatch, dtype, nchw, way):
    if way:
        monkeypatch.setenv("METAL_OPS_GEMM", way)
    large = ((2, 9, 13, 40), (3, 3, 40, 300), (1, 1), (1, 1), "SAME")
    for shape, kernel, strides, dilations, padding in [*CONVOLUTIONS, large]:
        terms = int(np.prod(kernel[:3]))
        inputs = dict(input=None, filter=random(kernel, dtype, 1))
        common = dict(strides=strides, padding=padding, dilations=dilations)
        check_window(raw.Conv2D, inputs, dtype, shape, terms, nchw, **common)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("groups", [2, 3, 6])
def test_grouped_conv(dtype, nchw, groups):
    """With both gradients: those of the groups' own convolutions, on the CPU in float32."""
    shape, kernel = (2, 7, 6, 6), (3, 2, 6 // groups, 12)
    x, w = random(shape, dtype), random(kernel, dtype, 1)
    wide, filters = tf.cast(x, tf.float32), tf.cast(w, tf.float32)
    options = dict(strides=[1, 2, 1, 1], padding="SAME")
    with tf.device("CPU:0"), tf.GradientTape() as tape:
        tape.watch([wide, filters])
        parts = zip(tf.split(wide, groups, 3), tf.split(filters, groups, 3), strict=True)
        want = tf.concat([tf.nn.conv2d(a, b, **options) for a, b in parts], 3)
    d = tf.cast(random(want.shape, dtype, 2), tf.float32)
    d_want = tape.gradient(want, [wide, filters], d)
    order = (0, 3, 1, 2) if nchw else (0, 1, 2, 3)
    if nchw:
        options = dict(strides=[1, 1, 2, 1], padding="SAME", data_format="NCHW")
    with tf.device("GPU:0"), tf.GradientTape() as tape:
        x, w = tf.transpose(x, order), tf.identity(w)
        tape.watch([x, w])
        got = tf.nn.conv2d(x, w, **options)
    d_got = tape.gradient(got, [x, w], tf.transpose(tf.cast(d, dtype), order))
    back = (0, 2, 3, 1) if nchw else (0, 1, 2, 3)
    got = [tf.transpose(got, back), tf.transpose(d_got[0], back), d_got[1]]
    for a, b, terms in zip(got, [want, *d_want], [36 // groups, 72, 56], strict=True):
        assert a.device.endswith("GPU:0")
        assert_rounded_once(a, b, terms * 2**-22, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
def test_depthwise_conv(dtype, nchw):
    for shape, kernel, strides, padding in [
        ((2, 9, 7, 3), (3, 3, 3, 1), (1, 1), "SAME"),
        ((1, 8, 8, 5), (3, 3, 5, 2), (2, 2), "VALID"),
        ((1, 8, 8, 17), (5, 5, 17, 1), (2, 2), "SAME"),
        ((2, 5, 7, 16), (3, 3, 16, 1), (1, 1), "SAME"),
        ((2, 5, 7, 96), (3, 3, 96, 1), (2, 2), "SAME"),
        ((2, 5, 7, 8), (3, 3, 8, 2), (1, 1), "SAME"),
    ]:
        inputs = dict(input=None, filter=random(kernel, dtype, 1))
        common = dict(strides=strides, padding=padding, dilations=(1, 1))
        check_window(raw.DepthwiseConv2dNative, inputs, dtype, shape, 9, nchw, **common)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("op, name", [(raw.MaxPool, "input"), (raw.AvgPool, "value")])
def test_pool(op, name, dtype, nchw):
    for shape, ksize, strides, padding in [
        ((2, 9, 7, 3), (3, 3), (2, 2), "SAME"),
        ((1, 8, 8, 5), (2, 3), (2, 1), "VALID"),
        ((1, 4, 4, 33), (4, 4), (1, 1), "SAME"),
        ((2, 9, 7, 16), (3, 3), (2, 2), "SAME"),
        ((2, 9, 7, 64), (3, 3), (2, 2), "SAME"),
        ((0, 4, 4, 3), (2, 2), (2, 2), "VALID"),
    ]:
        common = dict(ksize=ksize, strides=strides, padding=padding)
        check_window(op, {name: None}, dtype, shape, 9, nchw, **common)


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool_over_channels(dtype):
    for shape, depth in [
        ((2, 3, 5, 8), 2),
        ((1, 1, 1, 7), 7),
        ((3, 70, 2, 12), 4),
        ((0, 2, 2, 4), 2),
    ]:
        window = dict(ksize=[1, 1, 1, depth], strides=[1, 1, 1, depth], padding="SAME")
        x = random(shape, dtype)
        want = np.reshape(x, (*shape[:3], shape[3] // depth, depth)).max(4)
        with tf.device("GPU:0"):
            got = raw.MaxPool(input=tf.identity(x), **window)
        assert got.device.endswith("GPU:0")
        np.testing.assert_array_equal(got, want)


def test_max_pool_keeps_nan_and_infinity():
    x = np.full((1, 4, 4, 1), -np.inf, np.float32)
    x[0, 0, 0, 0], x[0, 3, 3, 0] = np.nan, np.inf
    with tf.device("GPU:0"):
        y = tf.nn.max_pool2d(tf.identity(tf.constant(x)), 2, 2, "VALID").numpy()[0, :, :, 0]
    np.testing.assert_array_equal(y, [[np.nan, -np.inf], [-np.inf, np.inf]])


# ---- elementwise ----------------------------------------------------------------------------------------------------

UNARY = ["Relu", "Relu6", "Elu", "Selu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Softplus"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    op = getattr(raw, name)
    for shape in [(), (0,), (7, 5), (1025,)]:
        x = random(shape, dtype) * tf.constant(3, dtype)
        x = tf.abs(x) + tf.constant(0.01, dtype) if name == "Log" else x
        key = "features" if name in ("Relu", "Relu6", "Elu", "Selu", "Softplus") else "x"
        check(op, {key: x}, dtype, ulps=8)


@pytest.mark.parametrize("name", UNARY)
def test_unary_over_its_range(name):
    x = np.concatenate(
        [np.linspace(-100, 100, 4001), np.logspace(-10, 1, 300), [np.inf, -np.inf, np.nan]]
    )
    x = np.abs(x) if name == "Log" else x
    key = "features" if name in ("Relu", "Relu6", "Elu", "Selu", "Softplus") else "x"
    # float64 on the CPU; the device's exp of a large argument carries the argument's rounding.
    with tf.device("CPU:0"):
        want = getattr(raw, name)(**{key: tf.constant(np.float64(np.float32(x)))}).numpy()
    if name == "Erf":  # TensorFlow 2.21's is NaN at infinity
        want = np.vectorize(math.erf)(np.float64(np.float32(x)))
    with tf.device("GPU:0"):
        got = getattr(raw, name)(**{key: tf.identity(tf.constant(np.float32(x)))}).numpy()
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-37)


def test_erf_to_three_units():
    """Also where one way of calculating it ends, at 1, and where it becomes 1."""
    x = np.concatenate([np.linspace(-4.5, 4.5, 200001), np.logspace(-30, 0, 3001)]).astype("f")
    with tf.device("GPU:0"):
        got = raw.Erf(x=tf.identity(tf.constant(x))).numpy()
    want = np.vectorize(math.erf)(np.float64(x))
    np.testing.assert_allclose(got, want, rtol=1.8e-7, atol=0)
    assert np.abs(got).max() == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_leaky_relu(dtype):
    check(raw.LeakyRelu, dict(features=random((50, 3), dtype)), dtype, alpha=0.3)


SPECIAL = [-np.inf, -2.5, -1e-30, -0.0, 0.0, 1e-30, 3.0, 3e38, np.inf, np.nan]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["Maximum", "Minimum", "SquaredDifference", "DivNoNan"])
def test_binary(name, dtype):
    for a, b in [((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 1), (1, 5)), ((), (3,)), ((0, 2), (2,))]:
        check(getattr(raw, name), dict(x=random(a, dtype), y=random(b, dtype, 1)), dtype)


def test_div_no_nan():
    """0 wherever the divisor is 0, of either sign; all else as in a division."""
    x, y = np.float32(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    with tf.device("GPU:0"):
        got = raw.DivNoNan(x=tf.identity(tf.constant(x)), y=tf.identity(tf.constant(y))).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.where(y == 0, 0, x / y)
    np.testing.assert_array_equal(got, want)


def test_pow():
    """Also of negative numbers, to whole powers: GELU's cube."""
    x = np.float32([-2.5, -1.0, -0.0, 0.0, 0.3, 4.0, np.inf, np.nan])
    for y in (np.float32(3), np.float32(2), np.float32(-1), np.float32([0.5] * 8), np.float32(0)):
        with tf.device("GPU:0"):
            got = raw.Pow(x=tf.identity(tf.constant(x)), y=tf.identity(tf.constant(y))).numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            want = np.power(x.astype(np.float64), y).astype(np.float32)
        np.testing.assert_allclose(got, want, rtol=2e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name, first, second",
    [
        ("ReluGrad", "gradients", "features"),
        ("Relu6Grad", "gradients", "features"),
        ("EluGrad", "gradients", "outputs"),
        ("SigmoidGrad", "y", "dy"),
        ("TanhGrad", "y", "dy"),
        ("RsqrtGrad", "y", "dy"),
    ],
)
def test_gradients(name, first, second, dtype):
    inputs = {first: random((33, 5), dtype), second: random((33, 5), dtype, 1)}
    # 1 - y^2 is a difference of numbers around 1.
    check(getattr(raw, name), inputs, dtype, ulps=8, around=1.0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bias_add(dtype):
    for shape in [(3, 4), (2, 3, 4), (2, 3, 5, 4), (0, 4)]:
        check(
            raw.BiasAdd, dict(value=random(shape, dtype), bias=random(shape[-1:], dtype, 1)), dtype
        )
    inputs = dict(value=random((2, 3, 5, 4), dtype), bias=random((3,), dtype, 1))
    check(raw.BiasAdd, inputs, dtype, data_format="NCHW")


# ---- the rest -------------------------------------------------------------------------------------------------------


def turned(x: tf.Tensor, nchw: bool) -> tf.Tensor:
    """Images and volumes with channels first."""
    rank = x.shape.rank
    return tf.transpose(x, [0, rank - 1, *range(1, rank - 1)]) if nchw and rank > 3 else x


def back(x: tf.Tensor, nchw: bool) -> tf.Tensor:
    rank = x.shape.rank
    return tf.transpose(x, [0, *range(2, rank), 1]) if nchw and rank > 3 else x


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nchw", [False, True], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("training, momentum", [(False, 1.0), (True, 1.0), (True, 0.3)])
def test_batch_norm(training, momentum, nchw, dtype):
    for shape in [(2, 3, 4, 5), (3, 20, 30, 7), (1, 1, 1, 3), (2, 3, 4, 2, 5)]:
        x = random(shape, dtype) * tf.constant(2, dtype) + tf.constant(3, dtype)
        c, rank = shape[-1], len(shape)
        channels = [random((c,), seed=i) for i in range(1, 5)]
        channels[3] = tf.abs(channels[3]) + 0.1
        names = ["scale", "offset", "mean", "variance"]
        attrs = dict(epsilon=1e-3, is_training=training, exponential_avg_factor=momentum)
        if training and momentum == 1.0:
            channels[2:] = [tf.zeros([0]), tf.zeros([0])]
        rest = dict(zip(names, channels, strict=True))
        with tf.device("CPU:0"):
            layout = "NHWC" if rank == 4 else "NDHWC"
            want = raw.FusedBatchNormV3(
                x=tf.cast(x, tf.float32), **rest, **attrs, data_format=layout
            )
        with tf.device("GPU:0"):
            placed = {k: tf.identity(v) for k, v in rest.items()}
            y = tf.identity(turned(x, nchw))
            if nchw:
                layout = "NCHW" if rank == 4 else "NCDHW"
            got = raw.FusedBatchNormV3(x=y, **placed, **attrs, data_format=layout)
        assert got.y.device.endswith("GPU:0")
        y = back(got.y, nchw)
        # A difference of two numbers of x's size, and a product.
        scale = rest["scale"] / tf.sqrt(
            (want.batch_variance if training else rest["variance"]) + 1e-3
        )
        error = 8 * 2**-23 * (np.abs(x).astype("f4").max() * np.abs(scale) + np.abs(want.y))
        assert_rounded_once(y, want.y, error, dtype)
        # In inference the reserve spaces hold whatever was in memory on the CPU.
        for i in range(1, 5 if training else 3):
            np.testing.assert_allclose(got[i], want[i], rtol=1e-5, atol=1e-5, err_msg=str(i))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax(name, dtype):
    for shape in [(5, 7), (1, 1000), (2, 3, 4), (4,), (0, 3)]:
        # exp(-t) carries the rounding of t, which is 100 at most: t half units of the result.
        x = random(shape, dtype) * tf.constant(20, dtype)
        # The logarithm is one of a sum of at least 1, to which the others are added.
        log = dict(ulps=4 + np.sqrt(max(shape)), around=1.0)
        kind = log if name == "LogSoftmax" else dict(ulps=64)
        check(getattr(raw, name), dict(logits=x), dtype, **kind)
        # All alike: n-ths, to the last digits.
        check(getattr(raw, name), dict(logits=x * 0), dtype, ulps=2)


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "bool"])
def test_pad(dtype):
    for shape, paddings in [
        ((3,), [[1, 2]]),
        ((2, 3, 4, 5), [[0, 0], [3, 3], [1, 0], [0, 0]]),
        ((2, 0), [[1, 1], [0, 2]]),
        ((2, 3), [[0, 0], [0, 0]]),
        ((), np.zeros((0, 2), np.int32)),
    ]:
        x = tf.cast(random(shape), dtype)
        for index in (tf.int32, tf.int64):
            sides = tf.constant(paddings, index)
            value = tf.cast(1, dtype)
            with tf.device("CPU:0"):
                want = (
                    raw.Pad(input=x, paddings=sides),
                    raw.PadV2(input=x, paddings=sides, constant_values=value),
                )
            with tf.device("GPU:0"):
                y = tf.identity(x)
                got = (
                    raw.Pad(input=y, paddings=sides),
                    raw.PadV2(input=y, paddings=sides, constant_values=value),
                )
            for a, b in zip(got, want, strict=True):
                assert a.device.endswith("GPU:0")
                assert a.shape == b.shape
                np.testing.assert_array_equal(a.numpy().astype("f8"), b.numpy().astype("f8"))


def test_bad_arguments():
    Invalid = tf.errors.InvalidArgumentError
    with tf.device("GPU:0"):
        x = tf.ones((1, 4, 4, 4))
        with pytest.raises(Invalid, match="2 groups of 2 input channels, got 3|divisible"):
            raw.Conv2D(input=x, filter=tf.ones((1, 1, 2, 3)), strides=[1, 1, 1, 1], padding="SAME")
        with pytest.raises(Invalid, match="as input, 4, got 3|divisible|multiple"):
            raw.Conv2D(input=x, filter=tf.ones((1, 1, 3, 4)), strides=[1, 1, 1, 1], padding="SAME")
        assert raw.Conv2D(
            input=x[..., :0], filter=tf.ones((1, 1, 0, 4)), strides=[1, 1, 1, 1], padding="SAME"
        ).shape == (1, 4, 4, 4)
        # For the input's gradient, height and width are enough.
        d_x = raw.Conv2DBackpropInput(
            input_sizes=[4, 4],
            filter=tf.ones((1, 1, 4, 3)),
            out_backprop=tf.ones((1, 4, 4, 3)),
            strides=[1, 1, 1, 1],
            padding="SAME",
        )
        np.testing.assert_array_equal(d_x, np.full((1, 4, 4, 4), 3))
        with pytest.raises(Invalid, match=r"bias.*\[3\]"):
            raw.BiasAdd(value=x, bias=tf.ones(3))
        with pytest.raises(Invalid, match="non-negative"):
            raw.Pad(input=x, paddings=tf.constant([[0, 0], [-1, 0], [0, 0], [0, 0]]))
        with pytest.raises(Invalid):
            raw.MatMul(a=tf.ones((2, 3)), b=tf.ones((2, 3)))
        for equation, message in {
            "ij,jk->ik": "input 1 must be 3",
            "ijk,jk->ik": r"input 0 must have 3 dimensions for 'ijk', got shape \[2, 3\]",
            "ij,ik->il": "label 'l' must be one of an input",
            "ij,ik": "must have '->'",
            "i1,ik->k": "must have letters",
            "ij->i": "must be of the 2 inputs",
            "ijk...,ik->k": "must have 3 or more dimensions",
            "i...,ik->k": "must have '...' in the output",
        }.items():
            with pytest.raises(Invalid, match=message):
                raw.Einsum(inputs=[tf.ones((2, 3)), tf.ones((2, 3))], equation=equation)


def test_bad_windows():
    Invalid, Unimplemented = tf.errors.InvalidArgumentError, tf.errors.UnimplementedError
    x = tf.ones((1, 4, 4, 4))
    square = dict(strides=[1, 1, 1, 1], padding="VALID")
    for op, inputs, attrs, error, sentence in [
        (raw.MaxPool, dict(input=x), dict(ksize=[1, 5, 2, 1]), Invalid, "must fit into input along height, got 5"),
        (raw.MaxPool, dict(input=x[0]), dict(ksize=[1, 2, 2, 1]), Invalid, "input must have 4 dimensions"),
        (raw.MaxPool, dict(input=x), dict(ksize=[1, 1, 1, 2]), Unimplemented, "depth window to equal the depth stride"),
        (raw.MaxPool, dict(input=x), dict(ksize=[1, 2, 1, 2], strides=[1, 2, 1, 2]), Unimplemented, "exactly one of"),
        (raw.MaxPool, dict(input=x), dict(ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3]), Unimplemented, "evenly divide"),
        (raw.AvgPool, dict(value=x), dict(ksize=[1, 1, 1, 2]), Unimplemented, "ksize .*got .1, 1, 1, 2"),
        (raw.MaxPool, dict(input=x), dict(ksize=[1, 2, 3, 1], padding="EXPLICIT",
                                          explicit_paddings=[0, 0, 1, 1, 0, 3, 0, 0]), Invalid,
         "Right padding 3 needs to be smaller than the window size 3"),
        (raw.MaxPool, dict(input=tf.ones((1, 4, 4, 1), tf.int64)), dict(ksize=[1, 2, 2, 1], padding="EXPLICIT",
                                                                      explicit_paddings=[0, 0, 2, 0, 0, 0, 0, 0]),
         Invalid, "Top padding 2 needs to be smaller than the window size 2"),
        (raw.AvgPool, dict(value=x), dict(ksize=[2, 2, 2, 1]), Unimplemented, "ksize .* on the METAL device"),
        (raw.AvgPool, dict(value=x), dict(ksize=[1, 2, 2, 1], strides=[2, 1, 1, 1]), Invalid, "strides must be 1"),
        (raw.Conv2D, dict(input=x, filter=tf.ones((5, 1, 4, 2))), {}, Invalid, "filter must fit into input"),
        (raw.Conv2D, dict(input=x, filter=tf.ones((1, 1, 3, 2))), {}, Invalid, "channels as input, 4, got 3"),
        (raw.DepthwiseConv2dNative, dict(input=x, filter=tf.ones((1, 1, 3, 2))), {}, Invalid, "4, got 3"),
        (raw.MatMul, dict(a=x[0, 0], b=x[0, 0, :3]), None, Invalid, "agree in the dimension|Matrix size-incompatible"),
        (raw.BatchMatMulV2, dict(x=x, y=tf.ones((3, 4, 4, 4))), None, None, ""),
        (raw.BatchMatMulV2, dict(x=x[0], y=tf.ones((3, 4, 4))), None, Invalid, "batch dimensions of a and b"),
    ]:  # fmt: skip
        with tf.device("GPU:0"):
            if error is None:  # one matrix for all is fine
                op(**inputs)
                continue
            with pytest.raises(error, match=sentence):
                op(**inputs, **({} if attrs is None else square | attrs))
    with (
        tf.device("GPU:0"),
        pytest.raises(
            Invalid, match=r"scale must have the same number of elements .* 4, got shape \[3\]"
        ),
    ):
        four, three = tf.ones(4), tf.ones(3)
        raw.FusedBatchNormV3(
            x=x, scale=three, offset=four, mean=four, variance=four, is_training=False
        )


def test_same_bits_and_many_threads():
    """The same bits again and again, also where calls of several threads are encoded among each other."""
    with tf.device("GPU:0"):
        inputs = [
            (tf.identity(random((2, 9, 9, 4 + i))), tf.identity(random((3, 3, 4 + i, 20))))
            for i in range(6)
        ]

    def run(pair):
        with tf.device("GPU:0"):
            y = tf.nn.max_pool2d(tf.nn.conv2d(*pair, 1, "SAME"), 2, 2, "SAME")
            c = tf.zeros([20])
            y, *moments = raw.FusedBatchNormV3(x=y, scale=c + 1, offset=c, mean=c, variance=c)[:3]
            return [x.numpy().tobytes() for x in (tf.nn.softmax(y), *moments)]

    alone = [run(pair) for pair in inputs]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            assert list(pool.map(run, inputs)) == alone


def test_training_step():
    """Losses and gradients of convolutions, pools and batch norm without soft placement."""
    w, v = random((3, 3, 2, 4)), random((36, 3), seed=1)
    x, labels = random((5, 6, 6, 2), seed=2), tf.constant([0, 1, 2, 1, 0])

    def step(device):
        # Inside: a function does not take over the device of its caller.
        with tf.device(device), tf.GradientTape() as tape:
            inputs = [tf.identity(w), tf.identity(v)]
            tape.watch(inputs)
            c = tf.ones([4])
            y = tf.nn.bias_add(tf.nn.conv2d(x, inputs[0], 1, "SAME"), c)
            y, *_ = raw.FusedBatchNormV3(x=y, scale=c, offset=c, mean=c[:0], variance=c[:0])
            y = tf.nn.avg_pool2d(tf.nn.max_pool2d(tf.nn.elu(y), 2, 1, "SAME"), 2, 2, "SAME")
            logits = tf.matmul(tf.reshape(y, [5, 36]), inputs[1])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            return loss, *tape.gradient(loss, inputs)

    want, got = step("CPU:0"), tf.function(step)("GPU:0")
    for a, b in zip(got, want, strict=True):
        assert np.abs(b).max() > 0.01
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
