"""Every floating-point builtin against NumPy in float64, in float, half, bfloat and as a vector."""

from __future__ import annotations

import numpy as np
import pytest

from tests.processes import ROOT

from .shaders import from_bfloat, library, to_bfloat

N = 257
RNG = np.random.default_rng(0)
# Arguments by name: a, b, c any; p, q positive; u, v in [-1, 1]; g at least 1; k small integers.
INPUTS = {
    "a": RNG.uniform(-9, 9, N), "b": RNG.uniform(-9, 9, N), "c": RNG.uniform(-9, 9, N),
    "p": RNG.uniform(0.05, 9, N), "q": RNG.uniform(0.05, 9, N), "u": RNG.uniform(-0.99, 0.99, N),
    "v": RNG.uniform(-0.99, 0.99, N), "g": RNG.uniform(1, 20, N), "k": RNG.integers(-6, 7, N).astype(float),
}  # fmt: skip


def _round_half_away(x):
    return np.trunc(x + np.copysign(0.5, x))


def _median(a, b, c):
    return np.median(np.stack([a, b, c]), axis=0)


# expression: oracle. The tolerance is 4 units in the last place of the type (MSL promises that or less for most of
# these; libm's errors are below 1, and differences such as fma's are not), absolute near zero for the periodic ones.
CASES = {
    "acos(u)": np.arccos, "acosh(g)": np.arccosh, "asin(u)": np.arcsin, "asinh(a)": np.arcsinh,
    "atan(a)": np.arctan, "atan2(a, b)": np.arctan2, "atanh(u)": np.arctanh, "ceil(a)": np.ceil,
    "copysign(a, b)": np.copysign, "cos(a)": np.cos, "cosh(u)": np.cosh, "cospi(a)": lambda a: np.cos(np.pi * a),
    "divide(a, p)": lambda a, p: a / p, "exp(u)": np.exp, "exp2(a)": np.exp2, "exp10(u)": lambda u: 10.0**u,
    "fabs(a)": np.abs, "abs(a)": np.abs, "fdim(a, b)": lambda a, b: np.maximum(a - b, 0), "floor(a)": np.floor,
    "fma(a, b, c)": lambda a, b, c: a * b + c, "fmax(a, b)": np.maximum, "fmin(a, b)": np.minimum,
    "max(a, b)": np.maximum, "min(a, b)": np.minimum, "fmod(a, p)": np.fmod, "fract(a)": lambda a: a - np.floor(a),
    "fmax3(a, b, c)": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "fmin3(a, b, c)": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "max3(a, b, c)": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "min3(a, b, c)": lambda a, b, c: np.minimum(np.minimum(a, b), c),
    "fmedian3(a, b, c)": _median, "median3(a, b, c)": _median, "log(p)": np.log, "log2(p)": np.log2,
    "log10(p)": np.log10, "pow(p, u)": lambda p, u: p**u, "powr(p, v)": lambda p, v: p**v, "rint(a)": np.rint,
    "round(a)": _round_half_away, "rsqrt(p)": lambda p: 1 / np.sqrt(p), "sin(a)": np.sin, "sinh(u)": np.sinh,
    "sinpi(a)": lambda a: np.sin(np.pi * a), "sqrt(p)": np.sqrt, "tan(u)": np.tan, "tanh(a)": np.tanh,
    "tanpi(u)": lambda u: np.tan(np.pi * u), "trunc(a)": np.trunc,
    "saturate(a)": lambda a: np.clip(a, 0, 1), "sign(k)": np.sign, "clamp(a, u, g)": lambda a, u, g: np.clip(a, u, g),
    "mix(a, b, u)": lambda a, b, u: a + (b - a) * u, "step(a, b)": lambda a, b: (b >= a) * 1.0,
    "smoothstep(u, g, a)": lambda u, g, a: (lambda t: t * t * (3 - 2 * t))(np.clip((a - u) / (g - u), 0, 1)),
}  # fmt: skip
NAMES = list(INPUTS)
TYPES = {
    "float": 2.0**-23,
    "half": 2.0**-10,
    "bfloat": 2.0**-7,
}  # bfloat: the float function of its value, rounded


def _shader() -> str:
    out = []
    for type_ in TYPES:
        loads = "".join(f"{type_} {n} = in[{j} * {N} + i];" for j, n in enumerate(NAMES))
        rows = "".join(f"out[{r} * {N} + i] = {type_}({e});\n" for r, e in enumerate(CASES))
        out.append(f"kernel void scalar_{type_}(device const {type_}* in, device {type_}* out, "
                   f"uint i [[thread_position_in_grid]]) {{\n{loads}\n{rows}}}\n")  # fmt: skip
    # Each component of the vector overload is the scalar function of that component. The others hold other values.
    loads = "".join(
        f"float4 {n}(in[{j} * {N} + i], in[{j} * {N} + (i + 1) % {N}], in[{j} * {N} + (i + 2) % {N}], "
        f"in[{j} * {N} + (i + 3) % {N}]);"
        for j, n in enumerate(NAMES)
    )
    for width, letters in ((2, "xy"), (3, "xyz"), (4, "xyzw")):
        rows = "".join(
            f"{{ float{width} r = {_swizzled(e, letters)}; "
            + "".join(f"out[({r} * 4 + {k}) * {N} + i] = r[{k}];" for k in range(width))
            + "}\n"
            for r, e in enumerate(CASES)
        )
        out.append(f"kernel void vector_{width}(device const float* in, device float* out, "
                   f"uint i [[thread_position_in_grid]]) {{\n{loads}\n{rows}}}\n")  # fmt: skip
    return "".join(out)


def _swizzled(expression: str, letters: str) -> str:
    name, arguments = expression.rstrip(")").split("(")
    swizzle = "." + letters if len(letters) < 4 else ""
    return f"{name}({', '.join(a.strip() + swizzle for a in arguments.split(','))})"


@pytest.fixture(scope="module")
def results():
    shader = library(_shader())
    out = {}
    inputs = np.stack([INPUTS[n] for n in NAMES])
    for type_ in TYPES:
        dtype = np.uint16 if type_ == "bfloat" else {"float": np.float32, "half": np.float16}[type_]
        given = to_bfloat(inputs) if type_ == "bfloat" else inputs.astype(dtype)
        made = np.zeros((len(CASES), N), dtype)
        shader[f"scalar_{type_}"].run(N, 64, {0: given, 1: made})
        read = from_bfloat if type_ == "bfloat" else (lambda x: x)
        out[type_] = (read(given).astype(np.float64), read(made).astype(np.float64))
    given = inputs.astype(np.float32)
    for width in (2, 3, 4):
        made = np.zeros((len(CASES), 4, N), np.float32)
        shader[f"vector_{width}"].run(N, 64, {0: given, 1: made})
        out[width] = made[:, :width]
    return out


def _arguments(expression: str) -> list[str]:
    return [a.strip() for a in expression.split("(")[1].rstrip(")").split(",")]


@pytest.mark.parametrize("expression", CASES)
def test_builtin(expression, results):
    row = list(CASES).index(expression)
    for type_, unit in TYPES.items():
        given, made = results[type_]
        oracle = CASES[expression](*(given[NAMES.index(n)] for n in _arguments(expression)))
        # Cancelling ones have absolute errors of their arguments' size: in float, which half and bfloat are rounded from.
        size = 20 if expression.startswith(("fma", "mix", "fract", "fdim")) else 0
        limit = 4 * unit * np.maximum(np.abs(oracle), 1e-2) + 4 * TYPES["float"] * size
        np.testing.assert_array_less(
            np.abs(made[row] - oracle), limit, err_msg=f"{type_} {expression}"
        )
        assert np.ptp(made[row]) > 0, "all results are equal"
    # Exact: the same function of the same numbers.
    scalar = results["float"][1][row].astype(np.float32)
    for width in (2, 3, 4):
        for k in range(width):
            np.testing.assert_array_equal(
                results[width][row, k], np.roll(scalar, -k), err_msg=f"float{width} {expression}"
            )


# ---- special values, exactly. inf and nan in C notation.
SPECIAL = [
    ("floor(-0.5f)", -1.0), ("ceil(-0.5f)", -0.0), ("trunc(-1.5f)", -1.0), ("round(2.5f)", 3.0), ("round(-2.5f)", -3.0),
    ("rint(2.5f)", 2.0), ("rint(3.5f)", 4.0), ("fract(-1e-10f)", 1 - 2.0**-24), ("fract(INFINITY)", 0.0),
    ("sign(NAN)", 0.0), ("sign(-0.0f)", -0.0), ("max(NAN, 1.0f)", 1.0), ("min(2.0f, NAN)", 2.0),
    ("fmax(NAN, NAN)", np.nan), ("saturate(NAN)", 0.0), ("saturate(-INFINITY)", 0.0), ("clamp(NAN, 1.0f, 2.0f)", 1.0),
    ("step(1.0f, 1.0f)", 1.0), ("smoothstep(0.0f, 1.0f, 2.0f)", 1.0), ("sqrt(-1.0f)", np.nan), ("rsqrt(0.0f)", np.inf),
    ("log(0.0f)", -np.inf), ("exp(-INFINITY)", 0.0), ("pow(0.0f, 0.0f)", 1.0), ("powr(-1.0f, 2.0f)", np.nan),
    ("atan2(0.0f, -1.0f)", np.pi), ("sinpi(1.0f)", 0.0), ("cospi(0.5f)", 0.0), ("copysign(1.0f, -0.0f)", -1.0),
    ("fmod(-5.5f, 2.0f)", -1.5), ("nextafter(1.0f, 2.0f)", 1 + 2.0**-23), ("float(nextafter(1.0h, 0.0h))", 1 - 2.0**-11),
    ("float(nextafter(0.0h, -1.0h))", -(2.0**-24)), ("ldexp(1.5f, 4)", 24.0), ("float(ldexp(1.5h, -3))", 0.1875),
    ("float(ilogb(10.0f))", 3.0), ("INFINITY - INFINITY", np.nan), ("M_PI_F", np.pi), ("float(M_PI_H)", np.float16(np.pi)),
    ("float(HALF_MAX)", 65504.0), ("FLT_EPSILON", 2.0**-23), ("numeric_limits<float>::max()", 3.4028234663852886e38),
    ("float(numeric_limits<half>::lowest())", -65504.0), ("float(numeric_limits<bfloat>::epsilon())", 2.0**-7),
    ("float(half(65520.0f))", np.inf), ("float(half(2049.0f))", 2048.0), ("float(bfloat(257.0f))", 256.0),
    ("float(bfloat(259.0f))", 260.0), ("1.0 / 3.0", np.float32(1) / np.float32(3)), ("float(1.0h / 3.0h)", np.float16(1 / 3)),
    ("float(half(1024.0h + 0.5h))", 1024.0), ("2.5h + 1.0f", 3.5), ("0x1.8p3f", 12.0), ("float(uint(-1.0f))", 0.0),
    ("float(uint(5e9f))", 4294967296.0), ("float(int(-5e9f))", -2147483648.0), ("float(int(NAN))", 0.0),
    ("float(int(3e9f))", 2147483648.0), ("float(uchar(300.7f))", 255.0), ("float(char(-1e6f))", -128.0),
    ("precise::exp(1.0f)", np.exp(1)), ("fast::rsqrt(4.0f)", 0.5), ("metal::precise::divide(1.0f, 4.0f)", 0.25),
    ("pow(2, 3.0f)", 8.0), ("max(0.5, 0.25f)", 0.5), ("float(isnan(NAN))", 1.0),
    ("float(isinf(-INFINITY))", 1.0), ("float(isfinite(1.0f)) + float(isfinite(NAN))", 1.0),
    ("float(isnormal(1e-40f))", 0.0), ("float(signbit(-0.0f))", 1.0), ("float(isordered(1.0f, NAN))", 0.0),
    ("float(isunordered(1.0f, NAN))", 1.0), ("float(all(isnan(float3(NAN))))", 1.0), ("float(any(isinf(half2(1))))", 0.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def special():
    rows = "".join(f"out[{i}] = {expression};\n" for i, (expression, _) in enumerate(SPECIAL))
    out = np.full(len(SPECIAL), 77, np.float32)
    library(f"kernel void special(device float* out) {{\n{rows}}}\n")["special"].run(1, 1, {0: out})
    return out


@pytest.mark.parametrize("row", range(len(SPECIAL)), ids=[e for e, _ in SPECIAL])
def test_special_value(row, special):
    expected = np.float32(SPECIAL[row][1])
    np.testing.assert_array_max_ulp(special[row], expected, maxulp=1)
    if expected == 0:
        assert np.signbit(special[row]) == np.signbit(expected)


# ---- what shaders share
@pytest.mark.parametrize(
    "name, oracle, low, high",
    [("precise_expm1", np.expm1, -20, 89), ("precise_log1p", np.log1p, -1, 1000)],
)
def test_without_cancelling(name, oracle, low, high):
    rng = np.random.default_rng(5)
    special = [0, -0.0, np.inf, -np.inf, np.nan, -1, -1.5, 1e-40, -1e-40, 3e38, 88.7, 88.8, 6e-8]
    usual = [rng.uniform(low, high, 50_000), rng.uniform(-1, 1, 50_000)]
    every = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([np.float32(part) for part in (special, *usual)] + [every])
    got = np.zeros_like(x)
    source = f"""#include "kernels/msl/exp_log.h"
kernel void k(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {{
  y[i] = {name}(x[i]);
}}
"""
    library(source, include=(str(ROOT),))["k"].run(x.size, 64, {0: x, 1: got})
    with np.errstate(all="ignore"):
        want = oracle(x.astype(np.float64))
        rounded = want.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(2**-126))).astype(np.float64)
        near = np.abs(got - want) <= 1.7 * unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert (same | near).all(), x[~(same | near)][:5]
    zeros = x == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(x[zeros]))


# 2 / pi times these is within 3e-6 of a whole number: all of the reduction's digits are needed.
NEAR_ZEROS = (-11094068297728.0, -46178255241216.0, 1.6367e38)


def test_circular_functions_of_large_numbers():
    x = np.float32(np.concatenate([NEAR_ZEROS, np.geomspace(1, 3e38, 61)]))
    got = np.zeros((2, x.size), np.float32)
    library(f"""
kernel void k(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {{
  y[i] = sin(x[i]);
  y[i + {x.size}] = cos(x[i]);
}}
""")["k"].run(x.size, 64, {0: x, 1: got})
    for found, oracle in zip(got, (np.sin, np.cos), strict=True):
        want = oracle(x.astype(np.float64))
        unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        assert (np.abs(found - want) <= 1.7 * unit).all()


# ---- functions with a second result, and geometry
def test_second_results():
    shader = library("""
        kernel void split(device const float* x, device float* out, device int* whole, uint i [[thread_position_in_grid]]) {
          float m; out[4 * i] = modf(x[i], m); out[4 * i + 1] = m;
          int e; float f = frexp(x[i], e); out[4 * i + 2] = f; whole[i] = e;
          float c; float s = sincos(x[i], c); out[4 * i + 3] = s * s + c * c;
        }""")
    x = np.array([1.75, -2.5, 0.0, 1e-3, 1000.25, -7], np.float32)
    out, whole = np.zeros((6, 4), np.float32), np.zeros(6, np.int32)
    shader["split"].run(6, 6, {0: x, 1: out, 2: whole})
    fraction, integer = np.modf(x)
    mantissa, exponent = np.frexp(x)
    np.testing.assert_array_equal(out[:, :3], np.stack([fraction, integer, mantissa], 1))
    np.testing.assert_array_equal(whole, exponent)
    np.testing.assert_allclose(out[:, 3], 1, rtol=3e-7)  # two roundings


def _normalize(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _refract(i, n, eta):
    d = (n * i).sum(-1, keepdims=True)
    k = 1 - eta**2 * (1 - d * d)
    return np.where(k < 0, 0, eta * i - (eta * d + np.sqrt(np.maximum(k, 0))) * n)


GEOMETRY = {
    "float3(dot(x, y))": lambda x, y, z: (x * y).sum(-1, keepdims=True) + 0 * x,
    "cross(x, y)": lambda x, y, z: np.cross(x, y),
    "float3(length(x))": lambda x, y, z: np.linalg.norm(x, axis=-1, keepdims=True) + 0 * x,
    "float3(length_squared(x))": lambda x, y, z: (x * x).sum(-1, keepdims=True) + 0 * x,
    "float3(distance(x, y))": lambda x, y, z: np.linalg.norm(x - y, axis=-1, keepdims=True) + 0 * x,
    "float3(distance_squared(x, y))": lambda x, y, z: ((x - y) ** 2).sum(-1, keepdims=True) + 0 * x,
    "normalize(x)": lambda x, y, z: _normalize(x),
    "reflect(x, normalize(y))": lambda x, y, z: x - 2 * _normalize(y) * (x * _normalize(y)).sum(-1, keepdims=True),
    "refract(normalize(x), normalize(y), 0.7f)": lambda x, y, z: _refract(_normalize(x), _normalize(y), 0.7),
    "faceforward(x, y, z)": lambda x, y, z: np.where((z * y).sum(-1, keepdims=True) < 0, x, -x),
    "float3(dot(x.xy, y.yz), dot(float4(x, 1), float4(y, 2)), length(z.zx))": lambda x, y, z: np.stack(
        [x[:, 0] * y[:, 1] + x[:, 1] * y[:, 2], (x * y).sum(-1) + 2, np.hypot(z[:, 2], z[:, 0])], -1),
}  # fmt: skip


@pytest.fixture(scope="module")
def geometry():
    rows = "".join(f"out[{r} * n + i] = {e};\n" for r, e in enumerate(GEOMETRY))
    shader = library(f"""
        kernel void geometry(device const packed_float3* in, device packed_float3* out, constant uint& n,
                             uint i [[thread_position_in_grid]]) {{
          float3 x = in[i], y = in[n + i], z = in[2 * n + i];
          {rows}
        }}""")
    given = RNG.uniform(-2, 2, (3, N, 3)).astype(np.float32)
    out = np.zeros((len(GEOMETRY), N, 3), np.float32)
    shader["geometry"].run(N, 32, {0: given, 1: out, 2: np.uint32(N)})
    return given.astype(np.float64), out


@pytest.mark.parametrize("expression", GEOMETRY)
def test_geometry(expression, geometry):
    given, out = geometry
    # A few roundings of numbers up to 12; refract divides by small roots.
    np.testing.assert_allclose(
        out[list(GEOMETRY).index(expression)], GEOMETRY[expression](*given), rtol=2e-5, atol=1e-5
    )


def test_powr_of_fast_math_squares():
    """With fast math, Apple's compiler makes x * x of powr(x, 2), also where x is negative; without, it is not defined."""
    source = """
        kernel void squares(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
          out[4 * i] = powr(x[i], 2); out[4 * i + 1] = powr(float2(x[i]), 2.0f).y; out[4 * i + 2] = powr(half(x[i]), 2.0h);
          out[4 * i + 3] = fast::powr(x[i], 2.0f);
        }"""
    x = np.float32([-3, -0.5, 0, 1.5, 100])
    for fast in (False, True):
        out = np.zeros((len(x), 4), np.float32)
        library(source, fast_math=fast)["squares"].run(len(x), 1, {0: x, 1: out})
        expected = x * x if fast else np.where(x < 0, np.nan, x * x)
        np.testing.assert_array_equal(out, expected[:, None].repeat(4, 1))


def test_frexp_of_vectors():
    shader = library("""
        kernel void parts(device const float4* x, device float4* mantissa, device int4* exponent,
                          uint i [[thread_position_in_grid]]) {
          int4 e;
          mantissa[i] = frexp(x[i], e);
          exponent[i] = e;
        }""")
    x = np.float32([[1.5, -8, 0, 1e-30], [3e38, 0.1, -7, 2**-20]])
    mantissa, exponent = np.zeros_like(x), np.zeros(x.shape, np.int32)
    shader["parts"].run(2, 2, {0: x, 1: mantissa, 2: exponent})
    expected = np.frexp(x)
    np.testing.assert_array_equal(mantissa, expected[0])
    np.testing.assert_array_equal(exponent, expected[1])
