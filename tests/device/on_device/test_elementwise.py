"""Elementwise stock ops on the device: every op and dtype over shapes and broadcasts, twice, and gradients.

Oracles are float64 NumPy, and TensorFlow's CPU kernels for integers. Soft placement is off (test_ops.py has the
control), so an op that has no kernel here fails.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_ops import (
    BROADCASTS,
    FLOATS,
    MOVABLE,
    SHAPES,
    check,
    numpy_type,
    on_device,
    put,
    random,
)

INTEGERS = ["int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = [*FLOATS, *INTEGERS]
SIGNED = [*FLOATS, "int8", "int16", "int64"]
# Shapes that take each variant of a shader: flat, a value for all, rows, any strides.
SOME = [((), ()), ((7,), (7,)), ((0,), (1,)), ((1025,), ()), ((), (33,)), ((5, 3), (3,)), ((5, 1), (1, 7)),
        ((4, 1, 6), (5, 1))]  # fmt: skip


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("float64") if x.dtype.kind not in "iub" else x


def on_cpu(op, **arguments):
    with tf.device("CPU:0"):
        return op(**{k: tf.constant(v) for k, v in arguments.items()}).numpy()


def twice(op, **arguments) -> tf.Tensor:
    """The second of two results, which are the same to the bit."""
    inputs = {name: put(x) for name, x in arguments.items()}
    first, second = op(**inputs), op(**inputs)
    np.testing.assert_array_equal(on_device(first), on_device(second))
    return second


# ---- functions ------------------------------------------------------------------------------------------------------

erfc = np.vectorize(math.erfc, otypes=["float64"])

# Oracle, the map of random numbers of [-4, 4], units in the last place of float32.
UNARY = {
    "Abs": (np.abs, None, 0),
    "Acos": (np.arccos, lambda x: x / 4, 4),
    "Acosh": (np.arccosh, lambda x: np.abs(x) + 1, 4),
    "Asin": (np.arcsin, lambda x: x / 4, 4),
    "Asinh": (np.arcsinh, None, 4),
    "Atan": (np.arctan, None, 4),
    "Atanh": (np.arctanh, lambda x: x / 4.5, 4),
    "Ceil": (np.ceil, None, 0),
    "Cos": (np.cos, None, 4),
    "Cosh": (np.cosh, None, 4),
    "Erfc": (erfc, lambda x: 2 * x, 16),
    "Expm1": (np.expm1, None, 4),
    "Floor": (np.floor, None, 0),
    "Inv": (np.reciprocal, lambda x: np.where(np.abs(x) < 0.1, 1, x), 1),
    "Log1p": (np.log1p, lambda x: x / 4.5, 4),
    "Neg": (np.negative, None, 0),
    "Round": (np.rint, None, 0),
    "Sign": (np.sign, None, 0),
    "Sin": (np.sin, None, 4),
    "Sinh": (np.sinh, None, 4),
    "Softsign": (lambda x: x / (1 + np.abs(x)), None, 2),
    "Square": (np.square, None, 1),
    "Tan": (np.tan, lambda x: x / 4, 4),
}


def unary(name: str):
    op = getattr(tf.raw_ops, name)
    return lambda x: op(features=x) if name == "Softsign" else op(x=x)


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    oracle, prepare, ulps = UNARY[name]
    for dtype in FLOATS:
        for shape in SHAPES:
            x = random(shape, dtype)
            if prepare is not None:
                x = np.asarray(prepare(wide(x))).astype(x.dtype)
            check(twice(unary(name), x=x), oracle(wide(x)), dtype, max(1, ulps))


@pytest.mark.parametrize(
    "name", [name for name in UNARY if name not in ("Ceil", "Floor", "Round", "Sign")]
)
def test_gradients_of_functions(name):
    _, prepare, _ = UNARY[name]
    x = np.linspace(-3.3, 3.7, 15)
    x = np.asarray(x if prepare is None else prepare(x), "float32")
    theory, numeric = tf.test.compute_gradient(lambda v: unary(name)(v), [put(x)], delta=2**-9)
    # Differences of float32 numbers: their errors are those of the values divided by the step.
    np.testing.assert_allclose(theory[0], numeric[0], rtol=2e-2, atol=2e-2)
    assert np.abs(theory[0]).max() > 0.1 or name == "Erfc"


def test_functions_of_special_values():
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e30, -1e30, 0.5, 1.5, 2.5, -1.0],
        "float32",
    )
    with np.errstate(all="ignore"):
        for name, (oracle, _, ulps) in UNARY.items():
            if name in ("Sin", "Cos", "Tan"):
                continue  # 1e30 leaves no digits
            expected = oracle(x.astype("float64")).astype("float32")
            got = on_device(unary(name)(put(x)))
            np.testing.assert_allclose(got, expected, rtol=(ulps + 1) * 2**-23, err_msg=name)
    # Every pair of these: quadrants, axes and signs of nothing.
    y, x = (a.ravel() for a in np.meshgrid(np.append(x, [1.0, 3e38, -3e38]), np.append(x, 3e38)))
    with np.errstate(all="ignore"):
        expected = np.arctan2(y.astype("float64"), x.astype("float64")).astype("float32")
    got = on_device(tf.raw_ops.Atan2(y=put(y.astype("f")), x=put(x.astype("f"))))
    np.testing.assert_allclose(got, expected, rtol=5 * 2**-23)
    np.testing.assert_array_equal(
        np.signbit(got[expected == 0]), np.signbit(expected[expected == 0])
    )
    for name, oracle in [("IsFinite", np.isfinite), ("IsInf", np.isinf), ("IsNan", np.isnan)]:
        for dtype in FLOATS:
            special = np.resize(x.astype(numpy_type(dtype)), 1025)
            got = on_device(twice(getattr(tf.raw_ops, name), x=special))
            np.testing.assert_array_equal(got, oracle(special.astype("float32")))
            assert got.dtype == bool


def test_erfc_keeps_its_digits_where_it_is_small():
    x = np.linspace(-10, 9, 4001).astype("float32")
    got = on_device(tf.raw_ops.Erfc(x=put(x)))
    np.testing.assert_allclose(got, erfc(x.astype("float64")), rtol=16 * 2**-23, atol=1e-38)


@pytest.mark.parametrize(("name", "dtypes"), [
    ("Abs", ["int8", "int16", "int64"]), ("Neg", ["int8", "int16", "int64"]), ("Sign", ["int8", "int16", "int64"]),
    ("Square", INTEGERS), ("Invert", [*INTEGERS, "int32"]), ("PopulationCount", [*INTEGERS, "int32"]),
    ("Round", ["int32", "int64"]),
])  # fmt: skip
def test_functions_of_integers(name, dtypes):
    op = getattr(tf.raw_ops, name)
    for dtype in dtypes:
        limits = np.iinfo(dtype)
        for shape in [*SHAPES, None]:
            x = (
                random(shape, dtype)
                if shape is not None
                else np.array([limits.min, limits.max, 0, 1], dtype)
            )
            # TensorFlow's CPU rounds every whole number to 0; tf.round never asks it to.
            expected = x if name == "Round" else on_cpu(op, x=x)
            got = on_device(twice(op, x=x))
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == expected.dtype


def test_logical():
    for a_shape, b_shape in BROADCASTS:
        a, b = random(a_shape, "bool"), random(b_shape, "bool", 1)
        np.testing.assert_array_equal(on_device(twice(tf.raw_ops.LogicalAnd, x=a, y=b)), a & b)
        np.testing.assert_array_equal(on_device(twice(tf.raw_ops.LogicalOr, x=a, y=b)), a | b)
        np.testing.assert_array_equal(on_device(twice(tf.raw_ops.LogicalNot, x=a)), ~a)


# ---- two operands ---------------------------------------------------------------------------------------------------


def away(x):
    """Not near 0."""
    return np.where(np.abs(x) < 0.1, x.dtype.type(1), x)


BINARY = {
    "Add": (np.add, None, 1),
    "AddV2": (np.add, None, 1),
    "Atan2": (lambda x, y: np.arctan2(y, x), None, 4),
    "Div": (np.divide, away, 1),
    "DivNoNan": (np.divide, away, 1),
    "FloorDiv": (None, away, 0),
    "FloorMod": (None, away, 0),
    "Maximum": (np.maximum, None, 0),
    "Minimum": (np.minimum, None, 0),
    "Mul": (np.multiply, None, 1),
    "MulNoNan": (np.multiply, None, 1),
    "SquaredDifference": (lambda a, b: (a - b) ** 2, None, 4),
    "Sub": (np.subtract, None, 1),
    "TruncateDiv": (None, away, 0),
    "Xdivy": (np.divide, away, 1),
    "Xlogy": (lambda a, b: a * np.log(b), lambda b: np.abs(away(b)), 4),
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name):
    oracle, prepare, ulps = BINARY[name]
    op = getattr(tf.raw_ops, name)
    for dtype in FLOATS:
        for a_shape, b_shape in SOME:
            a, b = random(a_shape, dtype), random(b_shape, dtype, 1)
            b = b if prepare is None else np.asarray(prepare(b))
            got = twice(op, x=a, y=b)
            if oracle is not None:
                check(got, oracle(wide(a), wide(b)), dtype, max(1, ulps))
                continue
            # The float32 quotient is cut off, on the CPU too, which for half rounds it first.
            with tf.device("CPU:0"):
                expected = op(x=a.astype("float32"), y=b.astype("float32")).numpy()
            check(got, expected, dtype)


@pytest.mark.parametrize(
    "name", [name for name in BINARY if name not in ("FloorDiv", "FloorMod", "TruncateDiv")]
)
def test_gradients_of_functions_of_two(name):
    op = getattr(tf.raw_ops, name)
    a, b = (
        np.linspace(-3, 3.3, 12, dtype="float32").reshape(4, 3),
        np.array([0.7, 1.9, 2.6], "float32"),
    )
    theory, numeric = tf.test.compute_gradient(
        lambda x, y: op(x=x, y=y), [put(a), put(b)], delta=2**-9
    )
    for one, other in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-2)


def test_products_with_nothing():
    nothing, odd = np.zeros(4, "float32"), np.array([np.inf, np.nan, -1.0, 0.0], "float32")
    np.testing.assert_array_equal(
        on_device(tf.raw_ops.MulNoNan(x=put(odd), y=put(nothing))), nothing
    )
    for name in ("Xdivy", "Xlogy"):
        got = on_device(getattr(tf.raw_ops, name)(x=put(nothing), y=put(odd)))
        np.testing.assert_array_equal(got, nothing)


INTEGER_BINARY = {
    **dict.fromkeys(
        ["AddV2", "Sub", "Mul", "Maximum", "Minimum", "FloorDiv", "FloorMod"], INTEGERS
    ),
    **dict.fromkeys(
        ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"], [*INTEGERS, "int32"]
    ),
    "Add": ["int8", "int16", "int64", "uint8"],
    "Div": INTEGERS,
    "TruncateDiv": [*INTEGERS, "int32"],
    "TruncateMod": ["int64"],
    "Mod": ["int64"],
    "SquaredDifference": ["int64"],
    "Pow": ["int8", "int16", "int32", "int64"],
    **dict.fromkeys(
        ["Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"], INTEGERS
    ),
}
DIVISIONS = ("FloorDiv", "FloorMod", "Div", "TruncateDiv", "TruncateMod", "Mod")


@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integers(name):
    op = getattr(tf.raw_ops, name)
    for dtype in INTEGER_BINARY[name]:
        for a_shape, b_shape in SOME:
            a, b = random(a_shape, dtype), random(b_shape, dtype, 1)
            if name in DIVISIONS:
                b = np.where(b == 0, b.dtype.type(7), b)
            elif name == "Pow":
                b = (np.abs(b.astype("int64")) % 11).astype(dtype)
            elif "Shift" in name:
                b = (np.abs(b.astype("int64")) % (8 * b.dtype.itemsize)).astype(dtype)
            elif "qual" in name:
                a, b = a % 3, b % 3
            b = np.asarray(b, dtype)
            np.testing.assert_array_equal(
                on_device(twice(op, x=a, y=b)), on_cpu(op, x=a, y=b), f"{name} {dtype}"
            )


@pytest.mark.parametrize("name", ["LeftShift", "RightShift"])
def test_shifts_by_bits_that_a_type_does_not_have(name):
    op = getattr(tf.raw_ops, name)
    for dtype in INTEGER_BINARY[name]:
        bits, least = np.iinfo(dtype).bits, np.iinfo(dtype).min
        by = np.array(
            [0, 1, bits - 1, bits, bits + 1, 127] + [-1, -bits, least] * (least < 0), dtype
        )
        for value in (1, 5, np.iinfo(dtype).max, least):
            x = np.full(by.shape, value, dtype)
            np.testing.assert_array_equal(
                on_device(twice(op, x=x, y=by)), on_cpu(op, x=x, y=by), f"{name} {dtype} {value}"
            )


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_that_have_no_result_stop_nothing(name):
    for dtype in INTEGER_BINARY[name]:
        least = np.array([np.iinfo(dtype).min, 5], dtype)
        divisor = np.array([-1 if np.iinfo(dtype).min else 1, 0]).astype(dtype)
        assert on_device(getattr(tf.raw_ops, name)(x=put(least), y=put(divisor))).shape == (2,)


def test_equality_of_bools_and_of_shapes_that_do_not_fit():
    a, b = random((33,), "bool"), random((33,), "bool", 1)
    np.testing.assert_array_equal(on_device(tf.raw_ops.Equal(x=put(a), y=put(b))), a == b)
    np.testing.assert_array_equal(on_device(tf.raw_ops.NotEqual(x=put(a), y=put(b))), a != b)
    x, y = put(np.ones(3, "f")), put(np.ones(4, "f"))
    assert not on_device(tf.raw_ops.Equal(x=x, y=y, incompatible_shape_error=False))
    assert on_device(tf.raw_ops.NotEqual(x=x, y=y, incompatible_shape_error=False))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Equal.*\[3\] vs. \[4\]"):
        tf.raw_ops.Equal(x=x, y=y)


def test_comparisons_of_floats():
    for dtype in FLOATS:
        for a_shape, b_shape in SOME:
            a, b = np.round(random(a_shape, dtype)), np.round(random(b_shape, dtype, 1))
            for name, oracle in [("Equal", np.equal), ("NotEqual", np.not_equal)]:
                got = on_device(getattr(tf.raw_ops, name)(x=put(a), y=put(b)))
                np.testing.assert_array_equal(got, oracle(a, b))
    x = np.array([1, 1, 1, np.nan, np.inf], "float32")
    y = np.array([1 + 2**-10, 1.25, 0.5, np.nan, np.inf], "float32")
    got = on_device(tf.raw_ops.ApproximateEqual(x=put(x), y=put(y), tolerance=0.25))
    np.testing.assert_array_equal(
        got, on_cpu(lambda x, y: tf.raw_ops.ApproximateEqual(x=x, y=y, tolerance=0.25), x=x, y=y)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        tf.raw_ops.ApproximateEqual(x=put(x), y=put(x[:2]))


# ---- gradients that are ops -----------------------------------------------------------------------------------------

# Slopes by (gradient, other operand) in float64; the operand's name; the map of random numbers.
SLOPES = {
    "SqrtGrad": (lambda g, y: g / (2 * y), "y", lambda y: np.abs(y) + 0.5),
    "ReciprocalGrad": (lambda g, y: -g * y * y, "y", None),
    "InvGrad": (lambda g, y: -g * y * y, "y", None),
    "SeluGrad": (
        lambda g, y: g * np.where(y < 0, y + 1.7580993408473766, 1.0507009873554805),
        "outputs",
        lambda y: np.maximum(y, -1.5),  # its outputs are more than -1.76, near which this cancels
    ),
    "SoftplusGrad": (lambda g, x: g / (1 + np.exp(-x)), "features", None),
    "SoftsignGrad": (lambda g, x: g / (1 + np.abs(x)) ** 2, "features", None),
    "LeakyReluGrad": (
        lambda g, x: g * np.where(x > 0, 1, np.float64(np.float32(0.3))),
        "features",
        None,
    ),
}


@pytest.mark.parametrize("name", SLOPES)
def test_gradient_ops(name):
    oracle, operand, prepare = SLOPES[name]
    op = getattr(tf.raw_ops, name)
    attributes = {"alpha": 0.3} if name == "LeakyReluGrad" else {}
    gradient = "dy" if operand == "y" else "gradients"
    for dtype in FLOATS:
        for shape in SHAPES:
            g, x = random(shape, dtype), random(shape, dtype, 1)
            x = x if prepare is None else np.asarray(prepare(wide(x))).astype(x.dtype)
            got = twice(lambda **tensors: op(**tensors, **attributes), **{gradient: g, operand: x})
            check(got, oracle(wide(g), wide(x)), dtype, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the same shape"):
        op(**{gradient: put(np.ones(2, "f")), operand: put(np.ones(3, "f"))}, **attributes)


# ---- three operands -------------------------------------------------------------------------------------------------

SELECTS = [((), (), ()), ((7,), (7,), (7,)), ((1025,), (1025,), ()), ((1025,), (), (1025,)), ((33,), (), ()),
           ((), (5, 3), (5, 3)), ((5, 1), (5, 3), (3,)), ((4, 1, 6), (5, 1), (4, 5, 6)), ((0,), (1,), ()),
           ((2, 1, 2, 1), (1, 2, 1, 2), (2, 2, 2, 2))]  # fmt: skip


@pytest.mark.parametrize("dtype", [*MOVABLE, "int32"])
def test_select(dtype):
    for shapes in SELECTS:
        c, a, b = (
            random(shapes[0], "bool"),
            random(shapes[1], dtype, 1),
            random(shapes[2], dtype, 2),
        )
        got = twice(lambda c, a, b: tf.raw_ops.SelectV2(condition=c, t=a, e=b), c=c, a=a, b=b)
        np.testing.assert_array_equal(on_device(got), np.where(c, a, b))
    for condition, shape in [
        ((), (3, 5)),
        ((3,), (3, 5)),
        ((3, 5), (3, 5)),
        ((0,), (0, 2)),
        ((), ()),
    ]:
        c, a, b = random(condition, "bool"), random(shape, dtype, 1), random(shape, dtype, 2)
        rows = c.reshape(c.shape + (1,) * (len(shape) - c.ndim)) if c.ndim else c
        got = twice(lambda c, a, b: tf.raw_ops.Select(condition=c, x=a, y=b), c=c, a=a, b=b)
        np.testing.assert_array_equal(on_device(got), np.where(rows, a, b))


def test_select_bad():
    true, x = put(np.ones(2, bool)), put(np.ones((3, 5), "f"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="SelectV2.*Incompatible shapes"):
        tf.raw_ops.SelectV2(condition=true, t=x, e=x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'cond'"):
        tf.raw_ops.Select(condition=true, x=x, y=x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="same size"):
        tf.raw_ops.Select(condition=true, x=x, y=put(np.ones(3, "f")))


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16"])
def test_clip(dtype):
    for shape in SHAPES:
        for low_shape in {(), shape}:
            for high_shape in {(), shape}:
                x = random(shape, dtype)
                low = (np.abs(random(low_shape, dtype, 1)) / 4).astype(x.dtype)
                high = (low.max(initial=0) + np.abs(random(high_shape, dtype, 2)) / 4).astype(
                    x.dtype
                )
                got = twice(lambda x, a, b: tf.raw_ops.ClipByValue(t=x, clip_value_min=a, clip_value_max=b),
                            x=x, a=low, b=high)  # fmt: skip
                np.testing.assert_array_equal(on_device(got), np.maximum(np.minimum(x, high), low))
    with pytest.raises(tf.errors.InvalidArgumentError, match="clip_value_min"):
        x, two = put(random((3,), dtype)), put(random((2,), dtype))
        tf.raw_ops.ClipByValue(t=x, clip_value_min=two, clip_value_max=two)
