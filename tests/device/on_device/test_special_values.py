"""Zeros, subnormals, extremes, infinities and NaN of every op of the device that computes floats, in pairs; and special
functions of large, tiny and nearly equal numbers.

The oracle is TensorFlow's CPU kernel in float64, whose special values are the mathematical ones or a convention; a row
says where results differ, and why. For complex numbers it is C99's Annex G, which NumPy's complex128 follows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from tests.oracles import special_values

# Below this a device may have 0, and a processor too.
TINY = 2.0**-126
LARGEST = float(np.finfo("float32").max)
SIZES = [0.0, 2.0**-149, TINY, 1e-30, 6e-8, 0.3, 0.5, 1, 1.5, 2, 2.5, 3, 100, 1e10, LARGEST, np.inf]  # fmt: skip
NUMBERS = np.array([sign * x for x in SIZES for sign in (1, -1)] + [np.nan], "float32")
FIRST, SECOND = np.repeat(NUMBERS, len(NUMBERS)), np.tile(NUMBERS, len(NUMBERS))

Where = Callable[..., np.ndarray]


@dataclasses.dataclass(frozen=True)
class Row:
    """The error of an op, in units in the last place, and where it differs from the CPU in float64."""

    ulps: float = 8
    # The same beside them, of terms of about 1 that cancel.
    beside: float = 0
    # Operands after the first two.
    more: tuple[float, ...] = ()
    # (arguments) -> the compared results; and why the others are not.
    only: tuple[Where, str] | None = None
    # In place of the CPU, which is wrong.
    oracle: Where | None = None
    # (arguments) -> which of them have other results, those results, and why.
    unlike: tuple[tuple[Where, Any, str], ...] = ()
    # Whether a zero's sign is the CPU's.
    signs: bool = True


def named(ops: str, row: Row) -> dict[str, Row]:
    return dict.fromkeys(ops.split(), row)


PLAIN = Row()
CHOICE = Row(signs=False)  # signs of equal zeros, and of masked values
HIDDEN = (
    lambda g, x: ~np.isfinite(g) & ~(x > 0),
    0.0,
    "what the activation hides is left out, where the CPU multiplies by 0",
)
IN_RANGE = "the other numbers are no results of the function"
ONE = {
    **named("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Expm1 Floor Inv Log Log1p Neg Reciprocal Rint "
            "Round Rsqrt Sigmoid Sin Sinh Softplus Softsign Sqrt Square Tan LeakyRelu IsFinite IsInf IsNan", PLAIN),
    **named("Relu Relu6 Sign Tanh", CHOICE),
    "Erfc": Row(16),
    # Both have e^x - 1 of tiny numbers in full, which the CPU rounds to 0 as it goes by exp(x).
    "Elu": Row(unlike=((lambda x: (x < 0) & (x > -1e-20), lambda x: x, "the CPU has 0"),)),
    "Selu": Row(unlike=((lambda x: (x < 0) & (x > -1e-20), lambda x: 1.7580993408473766 * x, "the CPU has 0"),)),
    "Lgamma": Row(beside=4),
    "Digamma": PLAIN,
    "Erfinv": Row(unlike=((lambda x: np.abs(x) < 1e-6, lambda x: 0.886226925452758 * x, "the CPU rounds x + 1"),)),
    "Ndtri": PLAIN,
}  # fmt: skip
NOT_BOTH = (
    lambda a, x: np.isinf(a) & np.isinf(x),
    np.nan,
    "no limit; the CPU has 0 of both functions",
)
OF_NAN = (lambda a, x: np.isnan(a) & (x == 0), np.nan, "the CPU has 0 without a look at a")
EQUAL = lambda a, x: (a == x) & (a >= 1e10) & (a < np.inf)  # noqa: E731
TWO = {
    **named("Add AddV2 Atan2 Div DivNoNan Mul MulNoNan Pow RealDiv SquaredDifference Sub Xlog1py Mod TruncateMod "
            "FloorMod Equal NotEqual Greater GreaterEqual Less LessEqual", PLAIN),
    **named("Maximum Minimum Xdivy Xlogy", CHOICE),
    "FloorDiv": Row(signs=False, only=(
        lambda a, b: ~np.isfinite(a) | ~np.isfinite(b) | (b == 0) | (np.abs(np.round(a / b) * b - a) > 1e-6 * np.abs(a))
        & (np.abs(a) > TINY * np.abs(b)),
        "the floor of the float32 quotient, as the CPU's float32 kernel has it")),
    "Igamma": Row(unlike=(NOT_BOTH, OF_NAN, (EQUAL, lambda a, x: 0.5 + 1 / np.sqrt(18 * np.pi * a),
                                             "Temme's expansion; the CPU stops after 2000 terms"))),
    "Igammac": Row(unlike=(NOT_BOTH, (EQUAL, lambda a, x: 0.5 - 1 / np.sqrt(18 * np.pi * a), "the same")),
                   only=(lambda a, x: ~((a > 0) & (a < 1e-20)), "the CPU has negative numbers: in the sweep")),
    "Zeta": Row(unlike=((lambda x, q: np.isnan(q), np.nan, "the CPU has the pole of x = 1 without a look at q"),)),
    "Polygamma": Row(16, only=(lambda n, x: ~((n > 99) & (x < 1e10)) & ~(np.isinf(n) & ~(x < 1)) & (n < 1e9),
                               "n! is no float64, and the CPU has NaN")),
    "IgammaGradA": Row(40, unlike=(NOT_BOTH, OF_NAN), signs=False,
                       only=(lambda a, x: ~EQUAL(a, x), "the CPU stops after 2000 terms: in the sweep")),
    "RandomGammaGrad": Row(40, signs=False, only=(
        lambda a, x: (a > 1e-5) & (a < 1e9) & (x < 1e9) & (x > 1e-4 * (a > 3)), "the CPU has 0 of tiny densities")),
}  # fmt: skip
NO_GRADIENT = Row(signs=False)
GRADIENTS = {  # of the output or input and the gradient, in the op's order
    "EluGrad": PLAIN,
    "SeluGrad": PLAIN,
    "LeakyReluGrad": PLAIN,
    "ReluGrad": Row(signs=False, unlike=(HIDDEN,)),
    "Relu6Grad": Row(
        signs=False, unlike=((lambda g, x: ~np.isfinite(g) & ~((x > 0) & (x < 6)), *HIDDEN[1:]),)
    ),
    "SigmoidGrad": Row(only=(lambda y, g: ~(np.isfinite(y) & (np.abs(y - 0.5) > 0.5)), IN_RANGE)),
    "TanhGrad": Row(only=(lambda y, g: ~(np.isfinite(y) & (np.abs(y) > 1)), IN_RANGE)),
    "SqrtGrad": Row(
        signs=False, only=(lambda y, g: ~(np.isfinite(y) & (np.abs(y) > 2e19)), IN_RANGE)
    ),
    "RsqrtGrad": NO_GRADIENT,
    "ReciprocalGrad": NO_GRADIENT,
    "InvGrad": NO_GRADIENT,
    "SoftplusGrad": Row(only=(lambda g, x: x != -100, "the sigmoid is less than 2^-126")),
    "SoftsignGrad": PLAIN,
    "ClipByValue": Row(signs=False, more=(2.5,)),
}


def square_is_a_float(x: np.ndarray) -> np.ndarray:
    return (x == 0) | ~np.isfinite(x) | ((np.abs(x) > 1e-18) & (np.abs(x) < 1e18))


ROWS = {  # of rows of two
    **named("Sum Prod Max Min Cumsum Cumprod Softmax ArgMax ArgMin", CHOICE),
    "Mean": Row(
        signs=False,
        only=(
            lambda a, b: ~(np.abs(a + b) > LARGEST) | np.isinf(a + b),
            "the sum is no float, on the CPU neither",
        ),
    ),
    "EuclideanNorm": Row(
        signs=False,
        only=(
            lambda a, b: square_is_a_float(a) & square_is_a_float(b),
            "squares are no floats, on the CPU neither",
        ),
    ),
    "LogSoftmax": Row(beside=2, signs=False),
    # The CPU passes over NaN.
    "CumulativeLogsumexp": Row(
        signs=False, oracle=lambda x, axis: np.logaddexp.accumulate(x, axis)
    ),
}
TABLE = ONE | TWO | GRADIENTS | ROWS


def inputs_of(op: str) -> list[str]:
    names = [argument.name for argument in op_def_registry.get(op).input_arg]
    return ["axis" if name == "reduction_indices" else name for name in names]


def call(op: str, device: str, *tensors: Any) -> np.ndarray:
    with tf.device(device):
        given = dict(zip(inputs_of(op), (tf.constant(x) for x in tensors), strict=True))
        result = getattr(tf.raw_ops, op)(**given)
        assert result.device.endswith(device), result.device
        return result.numpy()


def off(got: np.ndarray, want: np.ndarray, row: Row) -> np.ndarray:
    """Differences that are no roundings of float64 numbers, infinities and NaN."""
    if got.dtype.kind in "bi":
        return got != want
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = want.astype("float32")
        near = (
            np.abs(got.astype("float64") - want)
            <= 2.0**-23 * (row.ulps * np.abs(want) + row.beside) + TINY
        )
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded)) | (near & np.isfinite(rounded))
    return ~same | (row.signs & (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want)))


@np.errstate(all="ignore")
def compare(
    op: str, row: Row, arguments: list[np.ndarray], got: np.ndarray, want: np.ndarray
) -> None:
    exact = [x.astype("float64") for x in arguments]
    seen = np.ones(want.shape, bool) if row.only is None else row.only[0](*exact)
    for where, value, _ in row.unlike:
        at = where(*exact)
        # Else the row is out of date.
        assert off(got[at], want[at], row).any(), f"{op}: the CPU has it, too"
        want = np.where(at, value(*exact) if callable(value) else value, want)
    bad = np.nonzero(off(got, want, row) & seen)[0]
    shown = [(*(float(x[i]) for x in arguments), got[i], want[i]) for i in bad[:8]]
    assert not len(bad), f"{op}: {len(bad)} of {len(got)}, as (arguments, device, right): {shown}"


@pytest.mark.parametrize("op", [*ONE, *TWO, *GRADIENTS])
def test_elementwise(op):
    row = TABLE[op]
    arguments = [NUMBERS] if op in ONE else [FIRST, SECOND]
    got = call(op, "GPU:0", *arguments, *(np.float32(x) for x in row.more))
    wide = [x.astype("float64") for x in arguments]
    compare(op, row, arguments, got, call(op, "CPU:0", *wide, *(np.float64(x) for x in row.more)))


@pytest.mark.parametrize("op", ROWS)
def test_rows(op):
    pairs = np.stack([FIRST, SECOND], 1)
    axis = [np.int32(1)] if len(inputs_of(op)) == 2 else []
    got = call(op, "GPU:0", pairs, *axis)
    wide = pairs.astype("float64")
    want = ROWS[op].oracle(wide, 1) if ROWS[op].oracle else call(op, "CPU:0", wide, *axis)
    whole = np.repeat(pairs, 1 if got.ndim == 1 else 2, 0)
    compare(op, ROWS[op], [whole[:, 0], whole[:, 1]], got.ravel(), want.ravel())


# ---- special functions, by numbers that mpmath has found ------------------------------------------------------------

SWEEP = special_values.read()
# Units in the last place: tails are exponential functions of up to 90, whose argument is rounded.
SWEEP_ULPS = {
    "Igamma": 160,
    "Igammac": 160,
    "IgammaGradA": 160,
    "Betainc": 2000,
    "Erfc": 16,
    "Polygamma": 16,
}
NEAR_ROOTS = {"Lgamma": 4e-7, "Digamma": 4e-7, "Zeta": 1e-6, "Polygamma": 1e-6}


@pytest.mark.parametrize("op", SWEEP)
def test_sweep(op):
    *arguments, want = SWEEP[op]
    got = call(op, "GPU:0", *(x.astype("float32") for x in arguments))
    rtol = SWEEP_ULPS.get(op, 16) * 2.0**-23
    np.testing.assert_allclose(got, want, rtol=rtol, atol=NEAR_ROOTS.get(op, 0) or TINY)


def test_sweep_has_what_was_wrong():
    """The incomplete functions at a = x = 1e6, erfinv under 6e-8 and next to 1, ndtri next to 0."""
    for op, first in [
        ("Igamma", 1e6),
        ("Erfinv", 1e-30),
        ("Erfinv", 1 - 2.0**-24),
        ("Betainc", 1e6),
    ]:
        assert np.any(np.isclose(SWEEP[op][0], first, rtol=1e-9)), op
    assert SWEEP["Ndtri"][0].min() < 1e-37


# ---- complex numbers ------------------------------------------------------------------------------------------------

PARTS = [0.0, -0.0, 1e-30, 0.5, -0.5, 1, -1, 2, -2, 3e38, -3e38, np.inf, -np.inf, np.nan]
COMPLEX = np.array([complex(a, b) for a in PARTS for b in PARTS], "complex64")
FEW = [0.0, -0.0, 1, -2, 3e38, np.inf, -np.inf, np.nan]
FEW_COMPLEX = np.array([complex(a, b) for a in FEW for b in FEW], "complex64")
A, B = np.repeat(FEW_COMPLEX, len(FEW_COMPLEX)), np.tile(FEW_COMPLEX, len(FEW_COMPLEX))


def joined(real: Any, imaginary: Any) -> np.ndarray:
    """`real + 1j * imaginary` makes NaN of infinities."""
    found = np.empty(np.broadcast(real, imaginary).shape, "complex128")
    found.real, found.imag = real, imaginary
    return found


def directions(x: np.ndarray) -> np.ndarray:
    ends = [np.copysign(np.where(np.isinf(part), 1.0, 0.0), part) for part in (x.real, x.imag)]
    return joined(*ends)


def quotient(a: Any, b: np.ndarray) -> np.ndarray:
    """C99, G.5.1."""
    a = np.broadcast_to(np.asarray(a, "complex128"), b.shape)
    p, q = a.real, a.imag
    scale = np.maximum(np.abs(b.real), np.abs(b.imag))
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1)
    c, d = b.real / scale, b.imag / scale
    size = c * c + d * d
    found = joined((p * c + q * d) / size / scale, (q * c - p * d) / size / scale)
    lost = np.isnan(found.real) & np.isnan(found.imag)
    finite_a, finite_b = np.isfinite(p) & np.isfinite(q), np.isfinite(b.real) & np.isfinite(b.imag)
    infinite_a, infinite_b = np.isinf(p) | np.isinf(q), np.isinf(b.real) | np.isinf(b.imag)
    u = directions(a)
    grown = np.inf * joined(u.real * c + u.imag * d, u.imag * c - u.real * d).view("float64")
    found = np.where(lost & infinite_a & finite_b, grown.view("complex128"), found)
    found = np.where(lost & finite_a & infinite_b, 0, found)
    end = np.copysign(np.inf, b.real)
    return np.where((b.real == 0) & (b.imag == 0), joined(end * p, end * q), found)


def sign(z: np.ndarray) -> np.ndarray:
    both = np.isinf(z.real) & np.isinf(z.imag)
    axis = directions(z)
    found = joined(z.real / np.abs(z), z.imag / np.abs(z))
    found = np.where(
        np.isinf(z.real) | np.isinf(z.imag), np.where(both, np.nan * (1 + 1j), axis), found
    )
    return np.where(z == 0, 0, found)


def log1p(z: np.ndarray) -> np.ndarray:
    near = np.abs(z) < 0.75
    real = np.log1p(z.real * (2 + z.real) + z.imag**2) / 2
    far = np.log(joined(1 + z.real, z.imag))
    return joined(np.where(near, real, far.real), far.imag)


def expm1(z: np.ndarray) -> np.ndarray:
    """Not in the standard: NumPy's, except for an infinite number on the axis."""
    on_axis = (z.imag == 0) & ~np.isnan(z.real)
    return np.where(on_axis, joined(np.expm1(z.real), z.imag), np.expm1(z))


def acosh(z: np.ndarray) -> np.ndarray:
    """The angle of an imaginary part that is none is C17's."""
    found = np.arccosh(z)
    return np.where((z.real == 0) & np.isnan(z.imag), joined(np.nan, np.pi / 2), found)


def sigmoid(z: np.ndarray) -> np.ndarray:
    small = np.exp(np.where(z.real < 0, z, -z))
    return quotient(np.where(z.real < 0, small, 1), joined(1 + small.real, small.imag))


def nothing(z: np.ndarray) -> np.ndarray:
    return (z.real == 0) & (z.imag == 0)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    of_nothing = np.where(b.real > 0, 0, joined(np.where(b.real < 0, np.inf, np.nan), np.nan))
    return np.where(nothing(a), of_nothing, np.exp(b * np.log(a)))


def cube(z: np.ndarray) -> np.ndarray:
    return z * (z * z)


def unless(without: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.where(without, 0, value)


COMPLEX_ONE: dict[str, Where] = {
    "Acos": np.arccos, "Acosh": acosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan, "Atanh": np.arctanh,
    "Cos": np.cos, "Cosh": np.cosh, "Exp": np.exp, "Expm1": expm1, "Log": np.log, "Log1p": log1p, "Neg": np.negative,
    "Reciprocal": lambda z: quotient(1, z), "Inv": lambda z: quotient(1, z), "Sigmoid": sigmoid, "Sign": sign,
    "Rsqrt": lambda z: quotient(1, np.sqrt(z)), "Sin": np.sin, "Sinh": np.sinh, "Sqrt": np.sqrt, "Tan": np.tan,
    "Tanh": np.tanh, "Square": lambda z: z * z, "Conj": np.conj, "ComplexAbs": np.abs, "Angle": np.angle,
    "Real": np.real, "Imag": np.imag,
}  # fmt: skip
COMPLEX_TWO: dict[str, Where] = {
    "Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply, "RealDiv": quotient, "Div": quotient,
    "DivNoNan": lambda a, b: unless(nothing(b), quotient(a, b)), "MulNoNan": lambda a, b: unless(nothing(b), a * b),
    "Xdivy": lambda a, b: unless(nothing(a), quotient(a, b)), "Pow": power,
    "Xlogy": lambda a, b: unless(nothing(a), a * np.log(b)), "Xlog1py": lambda a, b: unless(nothing(a), a * log1p(b)),
    "SquaredDifference": lambda a, b: (a - b) * np.conj(a - b),
    "SqrtGrad": lambda y, g: unless(nothing(g), quotient(joined(0.5 * g.real, 0.5 * g.imag), np.conj(y))),
    "ReciprocalGrad": lambda y, g: unless(nothing(g), -(np.conj(y) * g) * np.conj(y)),
    "InvGrad": lambda y, g: unless(nothing(g), -(np.conj(y) * g) * np.conj(y)),
    "RsqrtGrad": lambda y, g: unless(nothing(g), joined(-0.5 * g.real, -0.5 * g.imag) * cube(np.conj(y))),
    "SigmoidGrad": lambda y, g: g * (y * (1 - y)), "TanhGrad": lambda y, g: g * (1 - y * y),
}  # fmt: skip


def plain_products(op: str) -> bool:
    """Operators whose parts are products of floats as on the CPU: finite float64 results may be infinite."""
    return bool(re.search("Mul|Square|Grad|Xlog|Pow", op))


@np.errstate(all="ignore")
@pytest.mark.parametrize("op", [*COMPLEX_ONE, *COMPLEX_TWO])
def test_complex(op):
    """Parts that are none, infinite or near the largest float, each part alone."""
    arguments = [COMPLEX] if op in COMPLEX_ONE else [A, B]
    wide = [x.astype("complex128") for x in arguments]
    want = (COMPLEX_ONE | COMPLEX_TWO)[op](*wide)
    got = call(op, "GPU:0", *arguments)
    keep = np.ones(want.shape, bool)
    if plain_products(op):
        for x in wide:
            keep &= ~(
                (np.abs(x.real) > 1e38) & np.isfinite(x.real)
                | (np.abs(x.imag) > 1e38) & np.isfinite(x.imag)
            )
    parts = (
        [(got.real, want.real), (got.imag, want.imag)] if got.dtype.kind == "c" else [(got, want)]
    )
    size = np.abs(want)
    wrong = np.zeros(want.shape, bool)
    for (part, right), (_, other) in zip(parts, parts[::-1], strict=True):
        # The sign of infinity is not specified beside NaN, nor a small part's last digits beside a large one.
        free = np.isinf(right) & np.isinf(part) & np.isnan(other)
        near = np.abs(part - right) <= 16 * 2.0**-23 * np.where(np.isfinite(size), size, 0) + TINY
        wrong |= off(part, right, Row(16, signs=False)) & ~free & ~near
    bad = np.nonzero(wrong & keep)[0]
    shown = [(*(complex(x[i]) for x in arguments), got[i], want[i]) for i in bad[:8]]
    assert not len(bad), f"{op}: {len(bad)} of {len(got)}, as (arguments, device, right): {shown}"


CUTS = {
    "Sqrt": -4.0,
    "Log": -4.0,
    "Asin": 2.0,
    "Acos": 2.0,
    "Acosh": -2.0,
    "Atanh": 2.0,
    "Asinh": 2.0j,
    "Atan": 2.0j,
}


@pytest.mark.parametrize("op", CUTS)
def test_both_sides_of_cuts(op):
    """A zero's sign says on which side of a cut a number is."""
    at = complex(CUTS[op])
    sides = [
        (s * at.real, z) if at.imag == 0 else (z, s * at.imag) for s in (1, -1) for z in (0.0, -0.0)
    ]
    z = np.array([complex(*side) for side in sides], "complex64")
    np.testing.assert_allclose(
        call(op, "GPU:0", z), COMPLEX_ONE[op](z.astype("complex128")), rtol=1e-6, atol=1e-7
    )


LARGE = [
    complex(0.0008, 9.2e37),
    complex(-9.9e37, 0),
    complex(3e38, 1),
    complex(1e19, 1e19),
    complex(1, 1e-30),
]


@pytest.mark.parametrize(
    "op", ["Atan", "Atanh", "Asin", "Acos", "Asinh", "Acosh", "Log", "Sqrt", "Reciprocal"]
)
def test_large_complex_numbers(op):
    z = np.array(LARGE, "complex64")
    want = COMPLEX_ONE[op](z.astype("complex128"))
    np.testing.assert_allclose(call(op, "GPU:0", z), want, rtol=1e-6, atol=TINY)


# ---- which ops ------------------------------------------------------------------------------------------------------

# Ops without a row, by why.
ELSEWHERE = {
    "moves numbers, or compares them as a row's op does": "Bitcast|BroadcastTo|Concat.*|Cast|Complex|DeepCopy|Diag.*"
    "|DynamicPartition|.*DynamicStitch|Empty|Extract.*|Fill|Gather.*|InplaceUpdate|.*Matrix(Band|Diag|SetDiag).*|OneHot"
    "|OnesLike|Pack|Pad|PadV2|MirrorPad|RandomShuffle|Range|Reverse.*|Roll|Select.*|Slice|Snapshot|Split.*"
    "|StridedSlice.*|Tile|.*Transpose|Unique.*|Unpack|Where|ZerosLike|.*ToBatch.*|.*ToSpace.*|.*ToDepth.*|TopKV2"
    "|ApproxTopK|LowerBound|UpperBound|ApproximateEqual|CheckNumerics.*|All|Any|Logical.*|Bucketize|HistogramFixedWidth"
    "|.*Bincount|NonMax.*|TensorStrided.*|TensorScatterUpdate|Assign|AssignVariableOp|ScatterUpdate|ScatterNdUpdate"
    "|ResourceGather.*|ResourceScatter(Nd)?Update|ResourceStrided.*",
    "adds, or takes the larger, as a row's op does": "AddN|InplaceAdd|InplaceSub|Assign(Add|Sub).*|BiasAdd.*|L2Loss"
    "|(Resource|Tensor)?Scatter.*|.*Segment.*|MirrorPadGrad|TruncateDiv",
    "sums of products, which tests of layers have": "(Batch)?MatMul.*|Einsum|Conv.*|Depthwise.*|Sparse.*MatMul|Cross"
    "|Dilation.*|Cholesky|Lu|Qr|MatrixTriangularSolve|SelfAdjointEigV2|.*FFT.*|.*LSTM.*|GRU.*|CudnnRNN.*|.*BatchNorm.*"
    "|.*Norm.*Grad.*|LRN.*|.*Pool.*|Resize.*|CropAndResize.*|ImageProjective.*|Adjust.*|.*HSV.*|.*RGB.*|CTC.*"
    "|.*CrossEntropy.*|BatchNormWith.*",
    "rounds to steps, which test_quantize.py has": "FakeQuant.*|Quantize.*|Dequantize",
    "a step of an optimizer, which test_optimizers.py has": "(Resource)?(Sparse)?Apply.*",
    "draws numbers": "Random.*|Stateful.*|Stateless.*|.*TruncatedNormal|Multinomial|Rng.*",
    "in the sweep alone": "Betainc",
}  # fmt: skip


def floats_of_the_device() -> set[str]:
    """Stock ops with kernels of float32 that are the device's: TensorFlow's kernels for any GPU are told by their
    names."""
    found = set()
    for kernel in kernels.get_all_registered_kernels().kernel:
        types = [t for c in kernel.constraint for t in c.allowed_values.list.type]
        if kernel.device_type == "GPU" and (tf.float32.as_datatype_enum in types or not types):
            found.add(kernel.op)
    any_gpu = (
        "Xla.*|_.*|TensorArray.*|.*Iterat.*|.*Dataset.*|Optional.*|Collective.*|Ref.*|RaggedTensor.*|Enter|Exit|Merge"
        "|Switch|Identity|Reshape|Placeholder.*|PreventGradient|StopGradient|Debug.*|CheckPinned|Fact|GetOptions"
        "|BatchFunction|IsTensorFloat32Enabled"
    )
    return {op for op in found if hasattr(tf.raw_ops, op) and not re.fullmatch(any_gpu, op)}


def test_every_op_has_a_row_or_a_reason():
    rows = {*TABLE, *COMPLEX_ONE, *COMPLEX_TWO, *SWEEP}
    without = {
        op
        for op in floats_of_the_device() - rows
        if not re.fullmatch("|".join(ELSEWHERE.values()), op)
    }
    assert not without
    assert rows <= {
        kernel.op
        for kernel in kernels.get_all_registered_kernels().kernel
        if kernel.device_type == "GPU"
    }
