"""Whole and complex numbers in ops that are of floats first, on the device against TensorFlow's CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

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
    # Few columns, by vectors along the sums; turned, by many columns.
    (70, 300, 1),
    (65, 33, 8),
    (1, 64, 3),
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
        attributes = {"strides": [1, strides, strides, 1], "padding": padding}
        same(raw.Conv2D, arguments, **attributes)
        if filter_shape[2] != shape[3]:  # groups, which the CPU has in Conv2D alone
            continue
        same(raw.Conv, arguments, **attributes)
        with tf.device("CPU:0"):
            points = raw.Conv2D(**{k: tf.constant(x) for k, x in arguments.items()}, **attributes)
        gradients = {"filter": arguments["filter"], "out_backprop": whole(points.shape, "int32", 2)}
        same(raw.Conv2DBackpropInput, gradients, input_sizes=tf.constant(shape), **attributes)
    volumes = {
        "input": whole((2, 3, 6, 7, 4), "int32"),
        "filter": whole((2, 3, 2, 4, 5), "int32", 1),
    }
    same(raw.Conv, volumes, strides=[1, 1, 2, 1, 1], padding="SAME")


# ---- complex numbers ------------------------------------------------------------------------------------------------

# Units in the last place of results far from the functions' poles; a power's grow with its logarithm.
COMPLEX_FUNCTIONS = {
    **dict.fromkeys(["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Expm1", "Log1p"], 8),
    **dict.fromkeys(["Sigmoid", "Sin", "Sinh", "Tan", "Tanh", "SigmoidGrad", "TanhGrad", "RsqrtGrad"], 8),
    **{"MulNoNan": 4, "Xdivy": 4, "Xlogy": 8, "Pow": 100},
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_functions_of_complex_numbers(name):
    op = getattr(raw, name)
    of_two = name in ("MulNoNan", "Xdivy", "Xlogy", "Pow")
    names = ["y", "dy"] if name.endswith("Grad") else ["x", "y"] if of_two else ["x"]
    shapes = [(x, x) for x in SHAPES] + (
        [((), (33,)), ((5, 3), (3,)), ((5, 1), (1, 7))] if of_two else []
    )
    for pair in shapes:
        inputs = {
            key: random(shape, "complex64", i)
            for i, (key, shape) in enumerate(zip(names, pair, strict=False))
        }
        if of_two and name != "Pow" and inputs[names[0]].size > 20:
            inputs[names[1 if name == "MulNoNan" else 0]].flat[3] = 0
        got = on_device(op(**{key: put(x) for key, x in inputs.items()}))
        with tf.device("CPU:0"):
            expected = op(
                **{key: tf.constant(x.astype("complex128")) for key, x in inputs.items()}
            ).numpy()
        assert got.dtype == np.complex64 and got.shape == expected.shape
        off = np.abs(got - expected) / (2**-23 * np.maximum(np.abs(expected), 2**-20))
        assert off.max(initial=0) <= COMPLEX_FUNCTIONS[name], (name, pair, off.max())


def test_powers_of_nothing():
    same(
        raw.Pow,
        {
            "x": np.zeros(7, "complex64"),
            "y": np.array([0, 1, 2 + 1j, -1, -1 + 1j, 1j, 0.5], "complex64"),
        },
    )


def test_functions_of_small_and_large_complex_numbers():
    parts = np.array([0.0, 1e-6, -1e-6, 1e-3, 0.9999, 1.5, -20.0, 20.0], "float32")
    x = (parts[:, None] + 1j * parts).ravel().astype("complex64")
    for name in [
        "Asinh",
        "Atan",
        "Atanh",
        "Cosh",
        "Expm1",
        "Sigmoid",
        "Sin",
        "Sinh",
        "Tan",
        "Tanh",
    ]:
        got = on_device(getattr(raw, name)(x=put(x)))
        with tf.device("CPU:0"):
            expected = getattr(raw, name)(x=tf.constant(x.astype("complex128"))).numpy()
        # The parts apart from each other, where neither is the other's rounding error after cancellation.
        off = np.abs(got - expected) / (2**-23 * np.maximum(np.abs(expected), 1e-30))
        assert np.nanmax(off) <= 16, (name, x[np.nanargmax(off)], got[np.nanargmax(off)])


COMPLEX_SCANS = {"Cumsum": np.cumsum, "Cumprod": np.cumprod}


@pytest.mark.parametrize("name", COMPLEX_SCANS)
def test_complex_sums_and_products_so_far(name):
    for shape, axis in [((7,), 0), ((3, 5), 1), ((0, 3), 1), ((2, 9, 4), 1)]:
        x = random(shape, "complex64")
        for exclusive in (False, True):
            for reverse in (False, True):
                same_but_rounding(
                    getattr(raw, name), {"x": x}, axis=axis, exclusive=exclusive, reverse=reverse
                )


def same_but_rounding(op, tensors: dict, **others) -> None:
    """Complex results by the largest of them; on the device twice the same."""
    with tf.device("CPU:0"):
        expected = op(**{k: tf.constant(v) for k, v in tensors.items()}, **others).numpy()
    first, second = (
        on_device(op(**{k: put(v) for k, v in tensors.items()}, **others)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert first.dtype == expected.dtype
    np.testing.assert_allclose(
        first, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(initial=1)
    )


def test_complex_numbers_joined():
    for shape, axes in REDUCED:
        if np.prod(shape) < 20000:
            x = random(shape, "complex64")
            x /= np.maximum(np.abs(x), 1e-3)  # whose products stay of one size
            same_but_rounding(raw.Prod, {"input": x}, axis=tf.constant(axes, tf.int32))
    for shape, paddings in [
        ((7,), [[3, 2]]),
        ((3, 5), [[1, 1], [2, 0]]),
        ((2, 9, 4), [[0, 0], [3, 3], [1, 1]]),
    ]:
        padded = [n + before + after for n, (before, after) in zip(shape, paddings, strict=True)]
        for mode in ("REFLECT", "SYMMETRIC"):
            same_but_rounding(raw.MirrorPadGrad, {"input": random(padded, "complex64")},
                              paddings=tf.constant(paddings), mode=mode)  # fmt: skip
    for shape, permuted in [((3, 5), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((), []), ((0, 2), [1, 0])]:
        same(
            raw.ConjugateTranspose,
            {"x": random(shape, "complex64")},
            perm=tf.constant(permuted, tf.int32),
        )


# ---- by indices -----------------------------------------------------------------------------------------------------

CHANGED = [*INTEGERS, "complex64", "bool"]


@pytest.mark.parametrize("dtype", CHANGED)
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_changes_by_indices(dtype, kind):
    of = whole if dtype in INTEGERS else random
    compare = same_but_rounding if dtype == "complex64" else same
    indices = np.array([[3], [0], [3], [5], [0]], kind)
    for inner in [(), (3,), (40,)]:
        tensor, updates = of((7, *inner), dtype), of((5, *inner), dtype, 1)
        shape = tf.constant(tensor.shape, kind)
        compare(raw.ScatterNd, {"indices": indices, "updates": updates}, shape=shape)
        given = {"indices": indices, "updates": updates}
        compare(raw.ScatterNdNonAliasingAdd, {"input": tensor, **given})
        if dtype == "bool":  # of which NumPy takes 2 for another 1
            both = np.ones((5, *inner), bool)
            got = on_device(raw.ScatterNd(indices=indices, updates=put(both), shape=shape))
            assert got.view("uint8").max() == 1
        else:
            compare(raw.TensorScatterAdd, {"tensor": tensor, **given})
            compare(raw.TensorScatterSub, {"tensor": tensor, **given})
            ids = {"data": updates, "segment_ids": indices[:, 0]}
            compare(raw.UnsortedSegmentSum, ids, num_segments=6)
            compare(raw.UnsortedSegmentProd, ids, num_segments=6)


# Variables of int32 TensorFlow keeps on the CPU.
@pytest.mark.parametrize("dtype", [x for x in CHANGED if x != "int32"])
def test_variables_changed_by_indices(dtype):
    of = whole if dtype in INTEGERS else random
    before, updates = of((7, 33), dtype), of((4, 33), dtype, 1)
    # Integers divided by 0 are an error on the CPU alone; the least by -1 is undefined.
    updates = np.where(np.isin(updates, np.array([0, -1]).astype(updates.dtype)), updates.dtype.type(3), updates) \
        if dtype != "bool" else updates  # fmt: skip
    rows = np.array([3, 0, 3, 5], "int32")
    names = ["ResourceScatterNdAdd", "ResourceScatterNdSub"]
    if dtype != "bool":
        names += [f"ResourceScatter{change}" for change in ("Add", "Sub", "Mul", "Div")]
    for name in names:
        results = []
        for device in ("CPU:0", "GPU:0"):
            with tf.device(device):
                variable = tf.Variable(before)
                assert variable.device.endswith(device)
                if "Nd" in name:
                    getattr(raw, name)(
                        ref=variable.handle, indices=rows[:, None], updates=tf.constant(updates)
                    )
                else:
                    getattr(raw, name)(
                        resource=variable.handle, indices=rows, updates=tf.constant(updates)
                    )
                results.append(variable.numpy())
        if dtype == "complex64":
            np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
        else:
            np.testing.assert_array_equal(results[1], results[0], name)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_of_sparse_segments(dtype):
    for inner in [(), (3,), (40,)]:
        data = whole((9, *inner), dtype)
        for kind in ("int32", "int64"):
            given = {"data": data, "indices": np.array([8, 0, 3, 3, 1], kind),
                     "segment_ids": np.array([0, 0, 2, 2, 3], "int32")}  # fmt: skip
            same(raw.SparseSegmentSum, given)
            same(raw.SparseSegmentSumWithNumSegments, given, num_segments=6)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", *(x for x in INTEGERS if x != "int32"), "complex64"]
)
def test_where_numbers_are_not_0(dtype):
    for shape in [(7,), (0,), (3, 5), (2, 3, 700)]:
        x = np.where(random(shape, "bool"), random(shape, dtype), np.zeros((), numpy_type(dtype)))
        places = raw.Where(condition=put(x))  # of which the CPU has none for float16
        np.testing.assert_array_equal(on_device(places), np.argwhere(x))
    if dtype == "complex64":
        same(raw.Where, {"condition": np.array([0, 1j, 1, 0, np.nan], dtype)})
    elif dtype not in INTEGERS:
        x = np.array([0, -0.0, np.nan, 1]).astype(numpy_type(dtype))
        np.testing.assert_array_equal(on_device(raw.Where(condition=put(x))), [[2], [3]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64"])
def test_sparse_products(dtype):
    indices = np.array([[0, 1], [2, 0], [2, 4], [0, 4], [0, 1]])
    values = whole((5,), dtype) if dtype == "int32" else random((5,), dtype)
    for adjoint_a in (False, True):
        for adjoint_b in (False, True):
            n, k = (19, 3 if adjoint_a else 5)
            b = whole((k, n), dtype, 1) if dtype == "int32" else random((k, n), dtype, 1)
            given = {"a_values": values, "b": b.T.copy() if adjoint_b else b}
            others = {
                "a_indices": indices,
                "a_shape": np.array([3, 5]),
                "adjoint_a": adjoint_a,
                "adjoint_b": adjoint_b,
            }
            results = []
            for device in ("CPU:0", "GPU:0"):
                with tf.device(device):
                    placed = {key: tf.identity(tf.constant(x)) for key, x in given.items()}
                    results.append(raw.SparseTensorDenseMatMul(**placed, **others))
            got = on_device(results[1])
            assert got.dtype == numpy_type(dtype)
            if dtype == "int32":
                np.testing.assert_array_equal(got, results[0].numpy())
            else:
                rtol = {"float16": 2**-9, "bfloat16": 2**-6}.get(dtype, 1e-5)
                wide = "complex64" if dtype == "complex64" else "float32"
                np.testing.assert_allclose(
                    got.astype(wide), results[0].numpy().astype(wide), rtol=rtol, atol=rtol
                )


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32", "complex64"])
def test_indices_of_int16(dtype):
    x = random((7, 5, 3), dtype)
    rows = np.array([[6, 0], [3, 3]], "int16")
    same(raw.GatherV2, {"params": x, "indices": rows}, axis=0)
    same(raw.GatherV2, {"params": x, "indices": rows[:, 1]}, axis=1)
    same(raw.GatherNd, {"params": x, "indices": rows})
    same_but_rounding(
        raw.UnsortedSegmentSum,
        {"data": x, "segment_ids": np.array([2, 0, 2, -1, 1, 0, 2], "int16")},
        num_segments=4,
    )


def test_places_of_16_bits():
    x = whole((3, 700, 2), "int32")
    for kind in (tf.int16, tf.uint16):
        same(raw.ArgMax, {"input": x}, dimension=1, output_type=kind)


def test_complex_rows_changed_in_place():
    x, v = random((5, 3), "complex64"), random((2, 3), "complex64", 1)
    for op, change in [(raw.InplaceAdd, np.add), (raw.InplaceSub, np.subtract)]:
        expected = x.copy()
        change.at(expected, [1, 4], v)
        got = on_device(op(x=put(x), i=tf.constant([1, 4]), v=put(v)))
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_linear_steps_of_complex_weights(nesterov):
    weights, slot, gradient = (random((70, 3), "complex64", i) for i in range(3))
    rate, momentum = np.complex64(0.3 - 0.2j), np.complex64(0.5 + 0.1j)
    rows = np.array([4, 69, 4, 0])
    for name in ("GradientDescent", "Momentum", "KerasMomentum"):
        for sparse in (False, True) if name != "GradientDescent" else (False,):
            ends = []
            for device in ("CPU:0", "GPU:0"):
                with tf.device(device):
                    var, accum = tf.Variable(weights), tf.Variable(slot)
                    step = getattr(raw, f"Resource{'Sparse' if sparse else ''}Apply{name}")
                    given = {"var": var.handle}
                    if name == "GradientDescent":
                        given |= {"alpha": rate, "delta": gradient}
                    else:
                        given |= {
                            "accum": accum.handle,
                            "lr": rate,
                            "momentum": momentum,
                            "use_nesterov": nesterov,
                        }
                        given |= {"grad": gradient[:4] if sparse else gradient}
                    if sparse:
                        given["indices"] = rows
                    for _ in range(3):
                        step(**given)
                    ends.append((var.numpy(), accum.numpy()))
            for got, want in zip(ends[1], ends[0], strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- what is missing ------------------------------------------------------------------------------------------------

NUMBERS = {"float32", "float16", "bfloat16", "complex64", "bool", *INTEGERS}
SMALL = "int8 int16 int32 uint8 uint16 uint64"
# Dtypes and ops, or attributes other than T, by why the CPU has kernels for them and the device does not. For a pair
# of dtypes the device has either with others.
MISSING = {
    "counts and variables of int32 TensorFlow keeps on the CPU, and gradients that are none": ("int32", """
        CountUpTo DebugGradientIdentity PreventGradient ResourceCountUpTo ResourceStridedSliceAssign
        StridedSliceAssign"""),
    "TensorFlow's own kernel of int32 for any GPU has int32 dims alone": ("int32/int64", "Fill"),
    "of an op with several results TensorFlow takes int32 for host memory": ("int32", """
        FractionalMaxPool FractionalMaxPoolGrad"""),
    "variables of these TensorFlow keeps on the CPU": (SMALL, "Assign AssignAdd AssignSub"),
    "these square a complex gradient, where its size is meant: they train nothing on the CPU, either": ("complex64", """
        ApplyAdadelta ApplyAdagrad ApplyAdagradV2 ApplyAdam ApplyCenteredRMSProp ApplyRMSProp ResourceApplyAdadelta
        ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyCenteredRMSProp ResourceApplyRMSProp
        ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2
        ResourceSparseApplyCenteredRMSProp ResourceSparseApplyRMSProp SparseApplyAdadelta SparseApplyAdagrad
        SparseApplyAdagradV2 SparseApplyCenteredRMSProp SparseApplyRMSProp"""),
    "complex numbers have no order": ("complex64", "ClipByValue"),
    "refused by the CPU when it runs": ("bool", "InplaceAdd InplaceSub"),
}  # fmt: skip


def missing() -> dict[str, set[str]]:
    """For ops with a kernel for the device: the dtypes that Metal has, and only the CPU's kernels
    do.

    Where one attribute does not tell them from those that the device has, the dtypes of all: "int32/int64".
    """
    found: dict[str, dict[str, set[tuple[str, ...]]]] = {}
    registered = kernels.get_all_registered_kernels().kernel
    # Others are TensorFlow's own on any device.
    ops = {
        kernel.op for kernel in registered if kernel.device_type == "GPU" and kernel.op[0] != "_"
    }
    for kernel in registered:
        device = {"CPU": "CPU", "GPU": "GPU", "DEFAULT": "GPU"}.get(kernel.device_type)
        if device is None or op_def_registry.get(kernel.op) is None or kernel.op not in ops:
            continue
        given = {
            c.name: {tf.as_dtype(t).name for t in c.allowed_values.list.type}
            for c in kernel.constraint
        }
        choices = []
        for attr in typed(kernel.op):
            allowed = {tf.as_dtype(t).name for t in attr.allowed_values.list.type} or NUMBERS
            choices.append(given.get(attr.name, NUMBERS) & allowed & NUMBERS)
        of_op = found.setdefault(kernel.op, {"CPU": set(), "GPU": set()})
        of_op[device].update(itertools.product(*choices))
    return dict(
        told(op, of_op["CPU"], of_op["CPU"] - of_op["GPU"])
        for op, of_op in found.items()
        if of_op["CPU"] - of_op["GPU"]
    )


def typed(op: str) -> list:
    return [attr for attr in op_def_registry.get(op).attr if attr.type == "type"]


def told(op: str, every: set[tuple[str, ...]], some: set[tuple[str, ...]]) -> tuple[str, set[str]]:
    for i, attr in enumerate(typed(op)):
        dtypes = {each[i] for each in some}
        if some == {each for each in every if each[i] in dtypes}:
            return (op if attr.name == "T" else f"{op}.{attr.name}"), dtypes
    return op, {"/".join(each) for each in some}


def test_control_told():
    every = {("int32", "int32"), ("int32", "int64"), ("int8", "int32"), ("int8", "int64")}
    assert told("Fill", every, {("int8", "int32"), ("int8", "int64")}) == ("Fill", {"int8"})
    of_dims = {("int32", "int64"), ("int8", "int64")}
    assert told("Fill", every, of_dims) == ("Fill.index_type", {"int64"})
    assert told("Fill", every, {("int8", "int64")}) == ("Fill", {"int8/int64"})


@pytest.mark.skipif(
    not tf.__version__.startswith("2.18."), reason="each release has other kernels on the CPU"
)
def test_what_is_missing():
    """Whatever gets a kernel leaves the table; an op or a dtype that is new has one, or stands there."""
    expected: dict[str, set[str]] = {}
    for dtypes, names in MISSING.values():
        for name in names.split():
            expected.setdefault(name, set()).update(dtypes.split())
    assert missing() == expected


@pytest.mark.parametrize("dtype", ["int32", "complex64"])
def test_nothing_is_fused_to_products_of_them(dtype):
    """The fused ops have kernels of floats alone."""

    def chain(a, b, bias):
        x = tf.nn.bias_add(tf.matmul(a, b), bias)
        return tf.nn.relu(x) if dtype == "int32" else tf.tanh(x)

    a, b, bias = (random(shape, dtype, i) for i, shape in enumerate([(5, 7), (7, 33), (33,)]))
    with tf.device("GPU:0"):
        got = on_device(tf.function(chain)(put(a), put(b), put(bias)))
    with tf.device("CPU:0"):
        expected = chain(tf.constant(a), tf.constant(b), tf.constant(bias)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    if dtype == "int32":
        image, kernel = random((2, 5, 6, 3), dtype), random((3, 3, 3, 8), dtype)
        with tf.device("GPU:0"):
            convolve = tf.function(
                lambda x, w: tf.nn.relu(
                    raw.Conv2D(input=x, filter=w, strides=[1] * 4, padding="SAME")
                )
            )
            got = on_device(convolve(put(image), put(kernel)))
        with tf.device("CPU:0"):
            expected = convolve.python_function(tf.constant(image), tf.constant(kernel)).numpy()
        np.testing.assert_array_equal(got, expected)
