"""The stock ops that the device brings, against NumPy: dtypes, odd and empty shapes, broadcasting, bad arguments.

float16 and bfloat16 results are compared with float64 NumPy rounded to the dtype: the shaders calculate in float32 and
round once, so they may differ by one unit in the last place where float32 rounds first (`ULP`).
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = [pytest.mark.instrumented, pytest.mark.release]

FLOATS = ["float32", "float16", "bfloat16"]
NUMBERS = [*FLOATS, "int64"]
MOVABLE = [*NUMBERS, "float64", "bool", "int8", "uint8", "int16", "uint16", "uint32", "uint64", "complex64",
           "complex128"]  # fmt: skip
SHAPES = [(), (1,), (0,), (7,), (1025,), (3, 5), (4, 0, 2), (2, 3, 4, 5), (33, 65)]
# One unit in the last place, relative.
ULP = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7, "int64": 0}


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(tf.as_dtype(dtype).as_numpy_dtype)


def random(shape, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + 1)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return rng.integers(0 if dtype[0] == "u" else -100, 100, shape).astype(dtype)
    x = rng.uniform(-4, 4, shape) + (1j * rng.uniform(-4, 4, shape) if "complex" in dtype else 0)
    return np.asarray(x).astype(numpy_type(dtype))


def on_device(result: tf.Tensor) -> np.ndarray:
    """The result, after a look at where it was made."""
    assert result.device.endswith("GPU:0"), result.device
    return result.numpy()


def put(x: np.ndarray) -> tf.Tensor:
    with tf.device("GPU:0"):
        return tf.identity(tf.constant(x))


def check(result: tf.Tensor, expected: np.ndarray, dtype: str, ulps: float = 1) -> None:
    got = on_device(result)
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    assert got.dtype == numpy_type(dtype)
    if dtype in ULP and ULP[dtype]:
        rounded = expected.astype(numpy_type(dtype)).astype("float64")
        np.testing.assert_allclose(
            got.astype("float64"), rounded, rtol=ulps * ULP[dtype], atol=ulps * ULP[dtype] * 1e-3
        )
    else:
        np.testing.assert_array_equal(got, expected.astype(numpy_type(dtype)))


# ---- placement ------------------------------------------------------------------------------------------------------


def test_control_soft_placement_is_off():
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError), match="GPU"):
        with tf.device("GPU:0"):
            tf.raw_ops.MatrixDeterminant(input=[[1.0]])


def test_control_soft_placement_would_hide_it():
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device("GPU:0"):
            assert tf.raw_ops.MatrixDeterminant(input=[[1.0]]).device.endswith("CPU:0")
    finally:
        tf.config.set_soft_device_placement(False)


# ---- binary ---------------------------------------------------------------------------------------------------------

BINARY = {
    "AddV2": (tf.raw_ops.AddV2, np.add, NUMBERS),
    "Sub": (tf.raw_ops.Sub, np.subtract, NUMBERS),
    "Mul": (tf.raw_ops.Mul, np.multiply, NUMBERS),
    "RealDiv": (tf.raw_ops.RealDiv, np.divide, FLOATS),
}
BROADCASTS = [
    *[(shape, shape) for shape in SHAPES],
    *[((), shape) for shape in SHAPES],
    *[(shape, ()) for shape in SHAPES],
    *[((5, 3), (3,)), ((3,), (5, 3)), ((5, 1), (1, 7)), ((4, 1, 6), (5, 1)), ((1,), (2, 3))],
    *[((0, 3), (1, 3)), ((2, 0), (1,)), ((1, 1, 1), (1,)), ((300, 2), (2,)), ((2, 300), (2, 1))],
    *[((2, 3, 4, 9), (2, 1, 1, 9)), ((2, 3, 4, 5), (3, 1, 5)), ((3, 1, 4, 1, 9), (2, 1, 5, 9))],
    *[((2, 1, 3, 1, 2, 1, 3), (1, 2, 1, 3, 1, 2, 1)), ((1, 2) * 4, (2, 1) * 4)],
]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    op, oracle, dtypes = BINARY[name]
    for dtype in dtypes:
        for a_shape, b_shape in BROADCASTS:
            a, b = random(a_shape, dtype), random(b_shape, dtype, 1)
            if name == "RealDiv":
                b = np.where(np.abs(b) < 0.1, b.dtype.type(1), b)
            wide = "float64" if dtype in FLOATS else dtype
            check(op(x=put(a), y=put(b)), oracle(a.astype(wide), b.astype(wide)), dtype)


def test_special_values():
    a = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 1e38, 1e-45], np.float32)
    b = np.array([1.0, np.inf, 1.0, 0.0, 1.0, 0.0, 1e38, 0.5], np.float32)
    with np.errstate(all="ignore"):
        for op, oracle in [(tf.add, np.add), (tf.multiply, np.multiply), (tf.divide, np.divide)]:
            np.testing.assert_array_equal(on_device(op(put(a), put(b))), oracle(a, b))


def test_binary_bad_shapes():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"AddV2.*\[3\] vs. \[4\]"):
        tf.raw_ops.AddV2(x=put(np.ones(3, "f")), y=put(np.ones(4, "f")))
    # Nine dimensions that alternate cannot be merged into the device's eight.
    a, b = np.ones((2, 1) * 4 + (2,), "f"), np.ones((1, 2) * 4 + (1,), "f")
    with pytest.raises(tf.errors.UnimplementedError, match="AddV2.*9 dimensions.*CPU"):
        tf.raw_ops.AddV2(x=put(a), y=put(b))


def test_output_takes_the_place_of_an_input_that_nobody_needs():
    with tf.device("GPU:0"):

        @tf.function
        def chain(x):
            for _ in range(20):
                x = x + x
                x = x * 0.5
            return x

        np.testing.assert_array_equal(chain(put(np.arange(9, dtype="f"))), np.arange(9))


# ---- unary, AddN, casts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_unary(dtype):
    for shape in SHAPES:
        x = random(shape, dtype)
        wide = x.astype("float64") if dtype in FLOATS else x
        check(tf.raw_ops.Neg(x=put(x)), -wide, dtype)
        check(tf.raw_ops.Square(x=put(x)), wide * wide, dtype)
        if dtype in FLOATS:
            check(tf.raw_ops.Sqrt(x=put(np.abs(x))), np.sqrt(np.abs(wide)), dtype)
            away = np.where(np.abs(x) < 0.1, x.dtype.type(1), x)  # from 0
            wide = away.astype("float64")
            check(tf.raw_ops.Reciprocal(x=put(away)), 1 / wide, dtype)
            check(tf.raw_ops.Rsqrt(x=put(np.abs(away))), np.abs(wide) ** -0.5, dtype, ulps=2)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_add_n(dtype):
    for shape in SHAPES:
        for n in (1, 2, 3, 7, 8, 9, 17):
            xs = [random(shape, dtype, i) for i in range(n)]
            wide = [x.astype("float64" if dtype in FLOATS else dtype) for x in xs]
            # Every eighth input the sum is rounded to the dtype; it may be up to 4 n, the result near 0.
            got = on_device(tf.raw_ops.AddN(inputs=[put(x) for x in xs]))
            rounding = ULP[dtype] * 4 * n * max(1, n // 4)
            np.testing.assert_allclose(
                got.astype("float64"), np.sum(wide, axis=0), rtol=0, atol=rounding
            )


def test_add_n_bad_shapes():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)shape"):
        tf.raw_ops.AddN(inputs=[put(np.ones(3, "f")), put(np.ones(4, "f"))])


CASTS = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("source", CASTS)
def test_cast(source):
    for target in CASTS:
        for shape in SHAPES:
            x = np.abs(random(shape, source)) if source != "bool" else random(shape, source)
            got = on_device(tf.raw_ops.Cast(x=put(x), DstT=target))
            expected = x.astype("float32" if source in FLOATS else source).astype(
                numpy_type(target)
            )
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == numpy_type(target)


# ---- moving elements ------------------------------------------------------------------------------------------------

SLICES = [
    ((7,), (2,), (3,)),
    ((7,), (7,), (0,)),
    ((7,), (0,), (-1,)),
    ((3, 5), (1, 2), (2, 2)),
    ((3, 5), (0, 0), (3, 5)),
    ((3, 5), (0, 4), (-1, 1)),
    ((2, 3, 4, 5), (1, 0, 2, 1), (1, 3, 1, 4)),
    ((4, 0, 2), (1, 0, 0), (2, 0, 2)),
    ((), (), ()),
    ((2,) * 8, (1, 0) * 4, (1, 2) * 4),
]


@pytest.mark.parametrize("dtype", MOVABLE)
def test_slice(dtype):
    for shape, begin, size in SLICES:
        x = random(shape, dtype)
        where = tuple(
            slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True)
        )
        for index_type in (tf.int32, tf.int64):
            got = tf.raw_ops.Slice(
                input=put(x),
                begin=tf.constant(begin, index_type),
                size=tf.constant(size, index_type),
            )
            np.testing.assert_array_equal(on_device(got), x[where])


@pytest.mark.parametrize(
    ("begin", "size", "message"),
    [((5, 0), (1, 1), r"begin\[0\]"), ((0, 0), (1, 9), r"begin\[1\]"), ((0,), (1,), "rank"),
     ((-1, 0), (1, 1), r"begin\[0\]")],
)  # fmt: skip
def test_slice_bad(begin, size, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.raw_ops.Slice(input=put(np.ones((3, 5), "f")), begin=begin, size=size)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_concat(dtype):
    for shapes, axis in [
        ([(3,), (4,)], 0),
        ([(2, 3), (2, 1), (2, 0)], 1),
        ([(2, 3), (5, 3)], -2),
        ([(2, 3, 4)] * 11, 2),
        ([(1, 2, 0), (1, 5, 0)], 1),
    ]:
        xs = [random(shape, dtype, i) for i, shape in enumerate(shapes)]
        got = tf.raw_ops.ConcatV2(values=[put(x) for x in xs], axis=axis)
        np.testing.assert_array_equal(on_device(got), np.concatenate(xs, axis))


def test_concat_bad():
    a, b = put(np.ones((2, 3), "f")), put(np.ones((3, 3), "f"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)dimension"):
        tf.raw_ops.ConcatV2(values=[a, b], axis=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="axis"):
        tf.raw_ops.ConcatV2(values=[a, a], axis=2)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_fill_and_likes(dtype):
    for shape in SHAPES:
        x, value = random(shape, dtype), random((), dtype, 5)
        np.testing.assert_array_equal(
            on_device(tf.raw_ops.Fill(dims=tf.constant(shape, tf.int32), value=put(value))),
            np.full(shape, value),
        )
        np.testing.assert_array_equal(on_device(tf.raw_ops.ZerosLike(x=put(x))), np.zeros_like(x))
        np.testing.assert_array_equal(on_device(tf.raw_ops.OnesLike(x=put(x))), np.ones_like(x))


def test_fill_bad():
    with pytest.raises(tf.errors.InvalidArgumentError, match="dims|Fill"):
        tf.raw_ops.Fill(dims=[-1, 2], value=put(np.float32(1)))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_broadcast_to(dtype):
    for shape, target in [
        ((), (3, 2)),
        ((3, 1), (2, 3, 4)),
        ((1,), (0,)),
        ((2, 3), (2, 3)),
        ((1, 4), (5, 4)),
    ]:
        x = random(shape, dtype)
        got = tf.raw_ops.BroadcastTo(input=put(x), shape=tf.constant(target, tf.int32))
        np.testing.assert_array_equal(on_device(got), np.broadcast_to(x, target))
    with pytest.raises(tf.errors.InvalidArgumentError, match="BroadcastTo|ncompatible"):
        tf.raw_ops.BroadcastTo(input=put(np.ones(3, "f")), shape=[4])


STRIDED = [
    ((7,), np.s_[2:5]), ((7,), np.s_[::-1]), ((7,), np.s_[5:1:-2]), ((7,), np.s_[-3:]), ((7,), np.s_[3]),
    ((7,), np.s_[4:2]), ((7,), np.s_[-100:100]), ((7,), np.s_[-1]), ((3, 5), np.s_[..., :2]),
    ((3, 5), np.s_[1]), ((3, 5), np.s_[:, 1]), ((3, 5), np.s_[:, None, ::2]), ((3, 5), np.s_[None, ..., None]),
    ((2, 3, 4, 5), np.s_[1, ..., 2:4]), ((2, 3, 4, 5), np.s_[:, ::-1, 1:3]), ((2, 3, 4, 5), np.s_[..., 0, :]),
    ((4, 0, 2), np.s_[1:3]), ((4, 0, 2), np.s_[:, :, 1]), ((0,), np.s_[::-1]), ((33, 65), np.s_[::3, 60:2:-7]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", MOVABLE)
def test_strided_slice_and_its_gradient(dtype):
    for shape, where in STRIDED:
        x = random(shape, dtype)
        got = on_device(put(x)[where])
        assert got.shape == x[where].shape
        np.testing.assert_array_equal(got, x[where])
        if dtype != "float32":
            continue
        weight = random(x[where].shape, dtype, 1)
        with tf.GradientTape() as tape:
            source = put(x)
            tape.watch(source)
            y = source[where] * put(weight)
        expected = np.zeros_like(x)
        expected[where] = weight
        np.testing.assert_array_equal(on_device(tape.gradient(y, source)), expected)


@pytest.mark.parametrize(
    ("where", "message"),
    [(np.s_[3], "out of bounds"), (np.s_[-4], "out of bounds"), (np.s_[::0], "non-zero"),
     (np.s_[0, 0, 0], "(?i)index")],
)  # fmt: skip
def test_strided_slice_bad(where, message):
    with pytest.raises((tf.errors.InvalidArgumentError, IndexError), match=message):
        put(np.ones((3, 2), "f"))[where]


@pytest.mark.parametrize("dtype", MOVABLE)
def test_transpose_tile_pack(dtype):
    for shape, perm in [((), ()), ((3, 5), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((4, 0, 2), (2, 1, 0)),
                        ((2, 1, 3, 4, 5), (4, 2, 3, 1, 0)), ((33, 65), (1, 0)), ((9, 20, 11), (2, 0, 1)),
                        ((2, 9, 3, 17), (0, 3, 1, 2)), ((2, 2, 9, 2, 8), (0, 4, 1, 3, 2))]:  # fmt: skip
        x = random(shape, dtype)
        got = tf.raw_ops.Transpose(x=put(x), perm=tf.constant(perm, tf.int32))
        np.testing.assert_array_equal(on_device(got), np.transpose(x, perm))
    for shape, multiples in [((), ()), ((3,), (2,)), ((3,), (0,)), ((2, 3), (3, 2)), ((1, 4, 1), (3, 1, 2)),
                             ((2, 0), (2, 2))]:  # fmt: skip
        x = random(shape, dtype)
        got = tf.raw_ops.Tile(input=put(x), multiples=tf.constant(multiples, tf.int64))
        np.testing.assert_array_equal(on_device(got), np.tile(x, multiples))
    for shape, n, axis in [
        ((), 3, 0),
        ((4,), 1, 0),
        ((4,), 3, 1),
        ((2, 3), 5, -1),
        ((2, 3), 2, -3),
        ((0,), 2, 1),
    ]:
        xs = [random(shape, dtype, i) for i in range(n)]
        got = tf.raw_ops.Pack(values=[put(x) for x in xs], axis=axis)
        np.testing.assert_array_equal(on_device(got), np.stack(xs, axis))


def test_transpose_tile_pack_bad():
    x = put(np.ones((2, 3), "f"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="perm"):
        tf.raw_ops.Transpose(x=x, perm=[0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="multiples"):
        tf.raw_ops.Tile(input=x, multiples=[2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)shape"):
        tf.raw_ops.Pack(values=[x, put(np.ones((3, 2), "f"))])


# ---- reductions -----------------------------------------------------------------------------------------------------

REDUCTIONS = [
    *[(shape, tuple(range(len(shape)))) for shape in SHAPES],
    *[((3, 5), (0,)), ((3, 5), (1,)), ((3, 5), (-1,)), ((3, 5), ()), ((2, 3, 4, 5), (1, 3))],
    *[
        ((2, 3, 4, 5), (0, 2)),
        ((4, 0, 2), (1,)),
        ((4, 0, 2), (0,)),
        ((3000, 2), (0,)),
        ((2, 3000), (1,)),
    ],
    *[((1500, 19), (0,)), ((3, 1200, 21), (1,)), ((2, 3, 4, 17), (0,))],
    *[((1500, 3, 700), (0, 2)), ((2100000,), (0,)), ((1024,), (0,)), ((1025, 1), (0,))],
]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_sum_and_mean(dtype):
    for shape, axes in REDUCTIONS:
        x = random(shape, dtype)
        wide = x.astype("float64" if dtype in FLOATS else dtype)
        magnitude = np.max(np.sum(np.abs(wide), axis=axes), initial=0)
        for keep in (False, True):
            expected = np.sum(wide, axis=axes, keepdims=keep)
            got = on_device(
                tf.raw_ops.Sum(input=put(x), axis=tf.constant(axes, tf.int32), keep_dims=keep)
            )
            assert got.shape == expected.shape and got.dtype == numpy_type(dtype)
            # One rounding to the dtype; in float32 up to 1024 additions a pass, whose errors mostly cancel.
            np.testing.assert_allclose(
                got.astype("float64"),
                expected,
                rtol=ULP[dtype],
                atol=magnitude * 64 * 2**-23 * (dtype != "int64"),
            )
            if dtype == "int64":
                continue
            with np.errstate(all="ignore"):
                count = (
                    np.float64(np.size(wide)) / max(np.size(expected), 1) if np.size(wide) else 0.0
                )
                mean = expected / count if count else np.full_like(expected, np.nan)
            got = on_device(
                tf.raw_ops.Mean(input=put(x), axis=tf.constant(axes, tf.int64), keep_dims=keep)
            )
            np.testing.assert_allclose(
                got.astype("float64"),
                mean,
                rtol=ULP[dtype],
                atol=magnitude * 64 * 2**-23 / max(count, 1),
            )


def test_reduce_bad_axis():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)reduction dimension"):
        tf.raw_ops.Sum(input=put(np.ones((2, 3), "f")), axis=[2])


def test_int32_stays_where_tensorflow_keeps_it():
    # Shapes and indices: host memory, TensorFlow's own kernels. A kernel of ours would read host memory as a buffer.
    with tf.device("GPU:0"):
        n = tf.shape(put(np.ones((2, 3), "f")))
        assert (n + n * 2 - 1).numpy().tolist() == [5, 8]
        assert tf.concat([n, tf.slice(n, [0], [1])], 0).numpy().tolist() == [2, 3, 2]
        np.testing.assert_array_equal(tf.fill(n, put(np.float32(2))), np.full((2, 3), 2))


# ---- comparisons, whole divisions -----------------------------------------------------------------------------------

COMPARISONS = {
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name):
    for dtype in NUMBERS:
        for a_shape, b_shape in BROADCASTS:
            # Whole numbers, so that some are equal.
            a, b = (np.round(random(s, dtype, i)) for i, s in enumerate((a_shape, b_shape)))
            got = on_device(getattr(tf.raw_ops, name)(x=put(a), y=put(b)))
            np.testing.assert_array_equal(got, COMPARISONS[name](a, b))
    nan = np.array([np.nan, 1.0], np.float32)
    got = on_device(getattr(tf.raw_ops, name)(x=put(nan), y=put(nan)))
    np.testing.assert_array_equal(got, COMPARISONS[name](nan, nan))


@pytest.mark.parametrize(("name", "oracle"), [("FloorDiv", np.floor_divide), ("FloorMod", np.mod)])
def test_whole_divisions(name, oracle):
    for a_shape, b_shape in BROADCASTS:
        a, b = random(a_shape, "int64"), random(b_shape, "int64", 1)
        b = np.where(b == 0, 7, b)
        got = on_device(getattr(tf.raw_ops, name)(x=put(a), y=put(b)))
        np.testing.assert_array_equal(got, oracle(a, b))
    with_zero = getattr(tf.raw_ops, name)(x=put(np.arange(3)), y=put(np.zeros(3, np.int64)))
    assert on_device(with_zero).shape == (3,)  # whatever it is: nothing stops


# ---- gather, where, unpack, random numbers --------------------------------------------------------------------------

# params, indices, axis, batch_dims
GATHERS = [
    *[((7,), (3,), 0, 0), ((5, 3), (2, 4), 0, 0), ((5, 3), (4,), 1, 0), ((5, 3), (4,), -1, 0)],
    *[((2, 5, 3), (2, 4), 1, 1), ((2, 3, 4, 5), (2, 3, 2), 2, 2), ((2, 5, 3), (2, 4), 2, 1)],
    *[((4, 0), (3,), 0, 0), ((4, 3), (0,), 0, 0), ((6, 2), (), 0, 0), ((1025, 16), (333,), 0, 0)],
    *[((2, 5, 3, 11), (2, 4), 1, 1), ((3, 5, 17), (4,), 1, 0), ((5, 19), (2, 3), 0, 0)],
    ((2, 5, 331), (3,), 1, 0),
]


def taken(x: np.ndarray, index: np.ndarray, axis: int, batch_dims: int) -> np.ndarray:
    if batch_dims == 0:
        return np.take(x, index, axis=axis)
    return np.stack([taken(a, b, axis - 1, batch_dims - 1) for a, b in zip(x, index, strict=True)])


@pytest.mark.parametrize("dtype", [*MOVABLE, "int32"])
def test_gather(dtype):
    rng = np.random.default_rng(3)
    for shape, index_shape, axis, batch_dims in GATHERS:
        for index_type in ("int32", "int64"):
            x = random(shape, dtype)
            index = rng.integers(0, shape[axis], index_shape).astype(index_type)
            got = tf.raw_ops.GatherV2(
                params=put(x), indices=put(index), axis=axis, batch_dims=batch_dims
            )
            np.testing.assert_array_equal(on_device(got), taken(x, index, axis, batch_dims))


def test_gather_out_of_range_is_zero():
    got = tf.gather(put(np.arange(1.0, 7.0, dtype="f").reshape(3, 2)), put(np.array([2, 3, -1, 0])))
    np.testing.assert_array_equal(on_device(got), [[5, 6], [0, 0], [0, 0], [1, 2]])
    for width in (19, 331):
        rows = np.arange(1.0, 3 * width + 1, dtype="f").reshape(3, width)
        want = np.stack([rows[2], 0 * rows[0], 0 * rows[0], rows[0]])
        for index in ([2, 3, -1, 0], [[2], [3], [-1], [0]]):
            gather = tf.gather if np.ndim(index) == 1 else tf.gather_nd
            np.testing.assert_array_equal(on_device(gather(put(rows), put(np.array(index)))), want)


@pytest.mark.parametrize(
    ("axis", "batch_dims", "says"),
    [
        (2, 0, r"axis = 2 is not in \[-2, 2\)"),
        (0, 1, "batch_dims = 1 must be at most the axis, 0"),
        (1, 1, r"params \[3,2\] and indices \[2\] must agree"),
    ],
)
def test_gather_bad_arguments(axis, batch_dims, says):
    x, index = put(np.ones((3, 2), "f")), put(np.array([0, 1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=says.replace(",", ", ?")):
        tf.raw_ops.GatherV2(params=x, indices=index, axis=axis, batch_dims=batch_dims)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_where(share):
    rng = np.random.default_rng(4)
    for shape in [s for s in SHAPES if s] + [(64,), (65,), (4096,), (2, 1, 3, 2, 1, 2, 2, 2)]:
        x = rng.random(shape) < share
        got = on_device(tf.raw_ops.Where(condition=put(x)))
        np.testing.assert_array_equal(got, np.argwhere(x))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_unpack(dtype):
    for shape, axis in [((3,), 0), ((2, 5), 0), ((2, 5), 1), ((2, 3, 4), -2), ((0, 2), 1)]:
        x = random(shape, dtype)
        parts = tf.raw_ops.Unpack(value=put(x), num=shape[axis], axis=axis)
        assert len(parts) == shape[axis]
        for i, part in enumerate(parts):
            np.testing.assert_array_equal(on_device(part), np.take(x, i, axis=axis))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (3, 7), (100003,)])
@pytest.mark.parametrize("seed", [(0, 0), (1, -2), (2**31 - 1, 12345), (-(2**40), 2**50)])
def test_random_numbers_are_those_of_the_cpu(shape, seed):
    def numbers():
        yield tf.random.stateless_uniform(shape, seed)
        yield tf.random.stateless_uniform(shape, seed, -3.0, 5.0)
        for low, high, dtype in [(0, 10, tf.int32), (-5, 2**31 - 1, tf.int32), (3, 4, tf.int64),
                                 (-(2**62), 2**62, tf.int64)]:  # fmt: skip
            yield tf.random.stateless_uniform(shape, seed, low, high, dtype=dtype)

    with tf.device("GPU:0"):
        got = [on_device(x) for x in numbers()]
    with tf.device("CPU:0"):
        expected = [x.numpy() for x in numbers()]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", [[0, 0], [7, -1], [2**40, -(2**50)]])
def test_keys_of_random_numbers_are_those_of_the_cpu(seed):
    results = []
    for device in ("GPU:0", "CPU:0"):
        with tf.device(device):
            found = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
            results.append([(part.shape.as_list(), part.numpy().tolist()) for part in found])
    assert results[0] == results[1]


def test_random_numbers_of_another_algorithm():
    key, counter = tf.constant([1], tf.uint64), tf.constant([1, 2], tf.uint64)
    with tf.device("GPU:0"), pytest.raises(tf.errors.UnimplementedError, match="algorithm 2"):
        tf.raw_ops.StatelessRandomUniformV2(shape=[3], key=key, counter=counter, alg=2)


# ---- products of long sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tiles", "groups"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(64, 5000, 3), (3, 4097, 5), (130, 1025, 70), (1, 512, 1)]
)
def test_long_sums_are_split(monkeypatch, way, dtype, rows, terms, columns):
    """As a GPU takes them: parts side by side, then their sum, which is the same from run to run."""
    monkeypatch.setenv("METAL_OPS_GEMM", way)
    for transposed in (False, True):
        a, b = random((rows, terms), dtype) / 64, random((terms, columns), dtype, 1) / 64
        first = put(a.T.copy() if transposed else a)
        results = [tf.raw_ops.MatMul(a=first, b=put(b), transpose_a=transposed) for _ in range(2)]
        got, again = (on_device(result) for result in results)
        np.testing.assert_array_equal(got, again)
        expected = a.astype("float64") @ b.astype("float64")
        # Sums of terms up to 4e-3 in float32, whose size is up to terms**0.5 of them; then one rounding.
        error = terms**0.5 * 4e-3 * 2**-20 + ULP[dtype] * np.abs(expected)
        assert (np.abs(got.astype("float64") - expected) <= error).all()
