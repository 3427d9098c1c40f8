"""Integer and relational builtins, for every width and signedness, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from .shaders import library

TYPES = {"char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32,
         "long": np.int64, "ulong": np.uint64}  # fmt: skip
N = 64


class Width:
    """Arithmetic of one type on Python integers."""

    def __init__(self, dtype):
        info = np.iinfo(dtype)
        self.bits, self.lo, self.hi = info.bits, int(info.min), int(info.max)

    def wrap(self, x):
        x &= (1 << self.bits) - 1
        return x - (1 << self.bits) if x > self.hi else x

    def unsigned(self, x):
        return x & ((1 << self.bits) - 1)

    def saturate(self, x):
        return min(max(x, self.lo), self.hi)

    def text(self, x):
        return format(self.unsigned(x), f"0{self.bits}b")


def _rotate(w, a, b):
    n = w.unsigned(b) % w.bits
    u = w.unsigned(a)
    return w.wrap(u << n | u >> (w.bits - n))


CASES = {
    "abs(a)": lambda w, a, b, c: w.wrap(abs(a)),
    "max(a, b)": lambda w, a, b, c: max(a, b),
    "min(a, b)": lambda w, a, b, c: min(a, b),
    "clamp(a, T(3), T(90))": lambda w, a, b, c: min(max(a, 3), 90),
    "max3(a, b, c)": lambda w, a, b, c: max(a, b, c),
    "min3(a, b, c)": lambda w, a, b, c: min(a, b, c),
    "median3(a, b, c)": lambda w, a, b, c: sorted((a, b, c))[1],
    "T(absdiff(a, b))": lambda w, a, b, c: w.wrap(abs(a - b)),
    "addsat(a, b)": lambda w, a, b, c: w.saturate(a + b),
    "subsat(a, b)": lambda w, a, b, c: w.saturate(a - b),
    "hadd(a, b)": lambda w, a, b, c: (a + b) >> 1,
    "rhadd(a, b)": lambda w, a, b, c: (a + b + 1) >> 1,
    "mulhi(a, b)": lambda w, a, b, c: w.wrap((a * b) >> w.bits),
    "madhi(a, b, c)": lambda w, a, b, c: w.wrap(((a * b) >> w.bits) + c),
    "popcount(a)": lambda w, a, b, c: w.text(a).count("1"),
    "clz(a)": lambda w, a, b, c: w.bits - len(w.text(a).lstrip("0")),
    "ctz(a)": lambda w, a, b, c: w.bits - len(w.text(a).rstrip("0")) if a else w.bits,
    "reverse_bits(a)": lambda w, a, b, c: w.wrap(int(w.text(a)[::-1], 2)),
    "rotate(a, b)": lambda w, a, b, c: _rotate(w, a, b),
    "extract_bits(a, 2, 5)": lambda w, a, b, c: _extract(w, a, 2, 5),
    "insert_bits(a, b, 3, 4)": lambda w, a, b, c: w.wrap((w.unsigned(a) & ~(15 << 3)) | ((b & 15) << 3)),
    "select(a, b, a < b)": lambda w, a, b, c: max(a, b),
    "T(a + b)": lambda w, a, b, c: w.wrap(a + b),
    "T(a * b)": lambda w, a, b, c: w.wrap(a * b),
    "T(a / (b == T(0) ? T(1) : b))": lambda w, a, b, c: w.wrap(int(abs(a) // abs(b or 1)) * (1 if (a < 0) == ((b or 1) < 0) else -1)),
    "T(a << 3)": lambda w, a, b, c: w.wrap(a << 3),
    "T(a >> 2)": lambda w, a, b, c: a >> 2,
}  # fmt: skip
# madsat needs more than 64 bits for long: its own row of types.
NARROW = {"madsat(a, b, c)": lambda w, a, b, c: w.saturate(a * b + c)}


def _extract(w, a, offset, bits):
    field = w.unsigned(a) >> offset & ((1 << bits) - 1)
    return field - (1 << bits) if w.lo < 0 and field >> (bits - 1) else field


ALL = {**CASES, **NARROW}


def _shader() -> str:
    out = []
    for name in TYPES:
        rows = "".join(f"out[{r} * {N} + i] = {e};\n" for r, e in enumerate(ALL))
        vector = "".join(
            f"{{ T3 r = {e.replace('T(3)', 'T3(3)').replace('T(90)', 'T3(90)')}; out[{r} * {N} + i] = r.y; }}\n"
            for r, e in enumerate(ALL)
            if not e.startswith("T(")
        )
        arguments = "device const T* x, device T* out, uint i [[thread_position_in_grid]]"
        out.append(f"namespace n_{name} {{ typedef {name} T; typedef vec<T, 3> T3;\n"
                   f"kernel void scalar_{name}({arguments}) {{ T a = x[i], b = x[{N} + i], c = x[2 * {N} + i];\n{rows}}}\n"
                   f"kernel void vector_{name}({arguments}) {{ T3 a(1, x[i], 2), b(3, x[{N} + i], 4), c(5, x[2 * {N} + i], 6);\n"
                   f"{vector}}} }}\n")  # fmt: skip
    return "".join(out)


@pytest.fixture(scope="module")
def results():
    shader = library(_shader())
    rng = np.random.default_rng(1)
    out = {}
    for name, dtype in TYPES.items():
        info = np.iinfo(dtype)
        given = rng.integers(info.min, info.max, (3, N), dtype, endpoint=True)
        edges = np.array([info.min, info.max, 0, 1, info.max, info.min, 5, 7], dtype)
        given[0, :8], given[1, :8], given[2, :8] = edges, edges[::-1], np.roll(edges, 3)
        made = [np.zeros((len(ALL), N), dtype) for _ in range(2)]
        shader[f"scalar_{name}"].run(N, 16, {0: given, 1: made[0]})
        shader[f"vector_{name}"].run(N, 16, {0: given, 1: made[1]})
        out[name] = given, *made
    return out


@pytest.mark.parametrize("expression", ALL)
def test_builtin(expression, results):
    row = list(ALL).index(expression)
    for name, dtype in TYPES.items():
        given, scalar, vector = results[name]
        width = Width(dtype)
        expected = [ALL[expression](width, *(int(x) for x in column)) for column in given.T]
        np.testing.assert_array_equal(
            scalar[row], np.array(expected, dtype), err_msg=f"{name}: {expression}"
        )
        if not expression.startswith("T("):
            np.testing.assert_array_equal(
                vector[row], scalar[row], err_msg=f"{name}3: {expression}"
            )


SINGLE = {
    "mul24(-3, 5)": -15, "int(mul24(0x1000003u, 2u))": 6, "mad24(100, 200, 7)": 20007, "int(mad24(3u, 4u, 5u))": 17,
    "7 / zero": 7, "7 % zero": 0, "int(7u / uint(zero))": 7, "INT_MIN / minus": -(2**31), "INT_MIN % minus": 0,
    "as_type<int>(1.0f)": 0x3F800000, "int(as_type<uint>(short2(1, 2)))": 0x20001, "as_type<int>(half2(1, 2))": 0x40003C00,
    "int(as_type<ushort>(bfloat(1.5f)))": 0x3FC0, "int(pack_float_to_unorm4x8(float4(0, 1, 0.5, 2)))": 0xFF80FF00 - 2**32,
    "int(pack_float_to_snorm2x16(float2(-1, 1)))": 0x7FFF8001, "int(255.0f * unpack_unorm4x8_to_float(0x80u).x + 0.5f)": 128,
    "int(unpack_snorm4x8_to_float(0x81u).x)": -1, "all(bool3(true, true, false))": 0, "any(bool3(false, true, false))": 1,
    "all(int3(1, 2, 3) < int3(2, 3, 4))": 1, "any(uint2(1, 2) == uint2(3, 4))": 0, "int((!bool2(true, false)).y)": 1,
    "int(float3(float2(float2(1, 2) > 1.5f), true).y)": 1, "int(int2(bool2(true, false)).x)": 1, "sizeof(long)": 8, "sizeof(size_t)": 8,
    "int(uint(0) - 1u == UINT_MAX)": 1, "INT_MAX + int(one)": -(2**31), "CHAR_BIT": 8, "numeric_limits<short>::min()": -32768,
    "int(numeric_limits<ulong>::max() >> 60)": 15, "is_same_v<decltype(1.0), float>": 1, "is_same_v<metal::uint, uint>": 1,
    "is_integral<uchar>::value": 1, "is_floating_point_v<half>": 1, "is_signed_v<uint>": 0, "sizeof(make_unsigned_t<short>)": 2,
    "sizeof(conditional_t<false, char, int>)": 4, "(is_convertible_v<float, half>)": 1, "int('a')": 97, "0b101": 5,
    "int(0xFFFFFFFFu)": -1, "int(1ul << 40 >> 38)": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def single():
    rows = "".join(f"out[{i}] = {e};\n" for i, e in enumerate(SINGLE))
    out = np.full(len(SINGLE), 77, np.int32)
    shader = library(
        f"kernel void single(device int* out, constant int& zero, constant int& minus, constant int& one) {{\n{rows}}}\n"
    )
    shader["single"].run(1, 1, {0: out, 1: np.int32(0), 2: np.int32(-1), 3: np.int32(1)})
    return out


@pytest.mark.parametrize("expression", SINGLE)
def test_expression(expression, single):
    assert single[list(SINGLE).index(expression)] == SINGLE[expression]
