"""Whole and complex numbers in ops that are of floats first, on the device against TensorFlow's CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_moves import same
from tests.device.on_device.test_ops import SHAPES, numpy_type, on_device, put, random

raw = tf.raw_ops
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def whole(shape, dtype: str, seed: int = 0) -> np.ndarray:
    """Small and large numbers, and the limits: sums of them overflow."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    any_size = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    small = random(shape, dtype, seed)
    some = np.array([limits.min, limits.max, 0, 1, 5, 6, 7], dtype)
    kind = rng.integers(0, 3, shape)
    return np.asarray(np.choose(kind, [any_size, small, rng.choice(some, shape)]), dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_rectified(dtype):
    for shape in SHAPES:
        x, gradients = whole(shape, dtype), whole(shape, dtype, 1)
        for op in (raw.Relu, raw.Relu6):
            same(op, {"features": x})
        for op in (raw.ReluGrad, raw.Relu6Grad):
            same(op, {"gradients": gradients, "features": x})


BIASED = [
    ((2, 3), 3),
    ((6, 1), 1),
    ((1, 1), 1),
    ((4, 5, 7), 7),
    ((0, 4), 4),
    ((2, 3, 4, 33), 33),
    ((65, 130), 130),
]


@pytest.mark.parametrize("dtype", [*INTEGERS, "complex64"])
def test_bias(dtype):
    of = random if dtype == "complex64" else whole
    for shape, channels in BIASED:
        x, bias = of(shape, dtype), of((channels,), dtype, 1)
        same(raw.BiasAdd, {"value": x, "bias": bias})
        same(raw.BiasAddV1, {"value": x, "bias": bias})
        if dtype != "complex64":
            same(raw.BiasAddGrad, {"out_backprop": x})
    x = of((2, 5, 3, 4), dtype)
    same(raw.BiasAdd, {"value": x, "bias": of((5,), dtype)}, data_format="NCHW")
    got = on_device(raw.BiasAddGrad(out_backprop=put(x), data_format="NCHW"))
    np.testing.assert_allclose(got, x.sum((0, 2, 3), dtype=x.dtype), rtol=1e-5)


REDUCED = [((7,), [0]), ((), []), ((1025,), [0]), ((3, 5), [1]), ((4, 0, 2), [1]), ((0, 3), [1]), ((300, 33), [0]),
           ((2, 3, 4, 5), [0, 2]), ((5000, 3), [0, 1]), ((2, 70000), [1])]  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS)
def test_means(dtype):
    for shape, axes in REDUCED:
        same(raw.Mean, {"input": whole(shape, dtype)}, axis=tf.constant(axes, tf.int32))
    same(raw.Mean, {"input": whole((3, 5), dtype)}, axis=[-1], keep_dims=True)


@pytest.mark.parametrize("dtype", [*INTEGERS, "complex64"])
def test_norms(dtype):
    for shape, axes in REDUCED:
        axis = tf.constant(axes, tf.int32)
        if dtype == "complex64":
            x = random(shape, dtype)
            got = on_device(raw.EuclideanNorm(input=put(x), axis=axis))
            expected = np.sqrt(np.sum(np.abs(x.astype("complex128")) ** 2, tuple(axes)))
            np.testing.assert_allclose(got, expected, rtol=1e-5)
            assert got.dtype == numpy_type(dtype)
            continue
        same(raw.EuclideanNorm, {"input": random(shape, dtype)}, axis=axis)
        if dtype not in ("int64", "uint64"):  # whose large squares the CPU rounds to float64
            same(raw.EuclideanNorm, {"input": whole(shape, dtype)}, axis=axis)
    for x in ([3037000499], [94906265, 94906265, 5], [2**31 - 1], [3, 2**26]):
        if dtype in ("int64", "uint64"):
            same(raw.EuclideanNorm, {"input": np.array(x, dtype)}, axis=[0])


# ---- products -------------------------------------------------------------------------------------------------------

PRODUCTS = [
    (1, 1, 1),
    (2, 3, 4),
    (5, 0, 3),
    (0, 2, 3),
    (7, 33, 17),
    (64, 40, 16),
    (3, 300, 65),
    (130, 5, 129),
]


def near(op, arguments: dict, dtype: str, **attributes) -> None:
    """Whole numbers to the bit, complex ones by their sums' size."""
    if not dtype.startswith("complex"):
        return same(op, arguments, **attributes)
    got = on_device(op(**{name: put(x) for name, x in arguments.items()}, **attributes))
    with tf.device("CPU:0"):
        wide = {name: tf.constant(x.astype("complex128")) for name, x in arguments.items()}
        expected = op(
            **wide,
            **{name: "complex128" if name == "Tout" else x for name, x in attributes.items()},
        ).numpy()
    assert got.dtype == numpy_type(dtype)
    np.testing.assert_allclose(
        got, expected, rtol=1e-5, atol=1e-5 * (1 + np.abs(expected).max(initial=0))
    )


def factor(shape, dtype: str, seed: int) -> np.ndarray:
    return random(shape, dtype, seed) if dtype == "complex64" else whole(shape, dtype, seed)


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "complex64"])
def test_products(dtype):
    for m, k, n in PRODUCTS:
        for turned_a in (False, True):
            for turned_b in (False, True):
                a = factor((k, m) if turned_a else (m, k), dtype, 1)
                b = factor((n, k) if turned_b else (k, n), dtype, 2)
                turned = {"adj_x": turned_a, "adj_y": turned_b}
                arguments = {"x": np.stack([a, a + a]), "y": np.stack([b, b + b])}
                if dtype != "int16":
                    near(
                        raw.MatMul,
                        {"a": a, "b": b},
                        dtype,
                        transpose_a=turned_a,
                        transpose_b=turned_b,
                    )
                    near(raw.BatchMatMul, arguments, dtype, **turned)
                arguments["y"] = b
                near(raw.BatchMatMulV2, arguments, dtype, **turned)
                near(raw.BatchMatMulV3, arguments, dtype, **turned, Tout=dtype)


def test_products_of_bytes():
    for a_type in ("int8", "uint8"):
        for b_type in ("int8", "uint8"):
            arguments = {"x": whole((2, 5, 70), a_type), "y": whole((70, 19), b_type, 1)}
            same(raw.BatchMatMulV3, arguments, Tout="int32")
    for a_type, b_type in [
        ("int8", "bfloat16"),
        ("uint8", "bfloat16"),
        ("bfloat16", "int8"),
        ("bfloat16", "uint8"),
    ]:
        # Sums of so few of them that bfloat16 has all of their digits.
        arguments = {name: np.round(random(shape, kind) % 5).astype(numpy_type(kind))
                     for name, shape, kind in [("x", (2, 3, 4), a_type), ("y", (4, 5), b_type)]}  # fmt: skip
        same(raw.BatchMatMulV3, arguments, Tout="bfloat16")


@pytest.mark.parametrize("dtype", ["int32", "int64", "complex64"])
def test_einsum(dtype):
    for equation, *shapes in [
        ("ij,jk->ik", (5, 7), (7, 20)), ("bij,bkj->bki", (2, 3, 4), (2, 5, 4)), ("ij->ji", (3, 4)), ("ij->i", (3, 40)),
        ("i,j->ij", (3,), (4,)), ("...ij,jk->...ik", (2, 3, 4, 5), (5, 6)), ("ii->", (5, 5)),
    ]:  # fmt: skip
        inputs = [factor(shape, dtype, i) for i, shape in enumerate(shapes)]
        got = on_device(raw.Einsum(inputs=[put(x) for x in inputs], equation=equation))
        with tf.device("CPU:0"):
            expected = raw.Einsum(
                inputs=[tf.constant(x) for x in inputs], equation=equation
            ).numpy()
        if dtype == "complex64":
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


def test_convolutions_of_whole_numbers():
    for shape, filter_shape, strides, padding in [
        ((2, 9, 8, 3), (3, 3, 3, 5), 1, "SAME"), ((1, 12, 7, 4), (2, 3, 4, 20), 2, "VALID"),
        ((3, 5, 5, 6), (1, 1, 6, 17), 1, "SAME"), ((1, 7, 7, 4), (3, 2, 2, 6), 1, "SAME"),
    ]:  # fmt: skip
        arguments = {"input": whole(shape, "int32"), "filter": whole(filter_shape, "int32", 1)}
        same(raw.Conv2D, arguments, strides=[1, strides, strides, 1], padding=padding)
