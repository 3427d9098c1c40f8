"""Vectors, swizzles, packed types, matrices, layouts and conversions, against MSL's specification of each."""

from __future__ import annotations

import numpy as np
import pytest

from .shaders import library

# expression: the numbers that it holds. v = (1, 2, 3, 4), w = (10, 20, 30, 40) as float4; i = (1, -2, 3, -4) as int4;
# p is a packed_float3 (5, 6, 7) in device memory, m the float3x3 with columns (1, 2, 3), (4, 5, 6), (7, 8, 10).
EXPRESSIONS = {
    "v.xyz": [1, 2, 3], "v.wzyx": [4, 3, 2, 1], "v.xx": [1, 1], "v.rgb": [1, 2, 3], "v.bgra": [3, 2, 1, 4],
    "v.yyyy": [2, 2, 2, 2], "v.zw + w.xy": [13, 24], "float2(v.g, v.a)": [2, 4], "v.xyz.zy": [3, 2], "v.lo": None,
    "float4(1)": [1, 1, 1, 1], "float4(v.xy, w.zw)": [1, 2, 30, 40], "float4(v.xyz, 9)": [1, 2, 3, 9],
    "float4(9, v.yzw)": [9, 2, 3, 4], "float4(7, v.yz, 8)": [7, 2, 3, 8], "float4(5, 6, v.xy)": [5, 6, 1, 2],
    "float4(v.xy, 5, 6)": [1, 2, 5, 6], "float3(v.xy, 3)": [1, 2, 3], "float3(3, v.xy)": [3, 1, 2],
    "float3{1, 2, 3}": [1, 2, 3], "float2()": [0, 0], "vec<float, 3>(1, 2, 3)": [1, 2, 3], "v * 2": [2, 4, 6, 8],
    "2 - v": [1, 0, -1, -2], "v / w": [0.1, 0.1, 0.1, 0.1], "-v": [-1, -2, -3, -4], "v * w.wzyx": [40, 60, 60, 40],
    "float4(i)": [1, -2, 3, -4], "float4(int4(w * 0.15f))": [1, 3, 4, 6], "float4(half4(v) * 0.5h)": [0.5, 1, 1.5, 2],
    "float2(uint2(v.xy) << 2u)": [4, 8], "float4(i % 3)": [1, -2, 0, -1], "float4(i & 1)": [1, 0, 1, 0],
    "float4(~i)": [-2, 1, -4, 3], "float4(v < float4(2, 2, 4, 4))": [1, 0, 1, 0], "float4(v == 3.0f)": [0, 0, 1, 0],
    "float3(!bool3(true, false, true))": [0, 1, 0], "float2(bool2(true, false) || bool2(false, false))": [1, 0],
    "select(v, w, v > 2.0f)": [1, 2, 30, 40], "float4(bfloat4(v))": [1, 2, 3, 4], "v[2] + w[0]": [13],
    "float3(p)": [5, 6, 7], "p * 2": [10, 12, 14], "v.xyz + p": [6, 8, 10], "p.zy": [7, 6], "p.x + p[1]": [11],
    "float3(packed_half3(half3(v.xyz)))": [1, 2, 3], "float3(packed_float3(1, 2, 3))": [1, 2, 3],
    "float4(packed_float4(v))": [1, 2, 3, 4], "as_type<float3>(as_type<uint3>(v.xyz))": [1, 2, 3],
    "m * v.xyz": [30, 36, 45], "v.xyz * m": [14, 32, 53], "(m * m)[1]": [66, 81, 102], "transpose(m)[0]": [1, 4, 7],
    "determinant(m)": [-3], "m[2]": [7, 8, 10], "m[1].y": [5], "(m + m)[0]": [2, 4, 6], "(m * 2.0f)[2].z": [20],
    "(m - float3x3(1.0f))[1]": [4, 4, 6], "float2x2(1, 2, 3, 4) * float2(1, 1)": [4, 6], "(-m)[0]": [-1, -2, -3],
    "float4x4(2.0f) * v": [2, 4, 6, 8], "determinant(float4x4(v, float4(0, 2, 0, 0), float4(0, 0, 3, 0), float4(0, 0, 0, 4)))": [24],
    "float2x3(v.xyz, w.xyz) * float2(1, 0.1f)": [2, 4, 6], "transpose(float2x3(v.xyz, w.xyz))[2]": [3, 30],
    "float3(half3x3(m)[0])": [1, 2, 3], "determinant(float2x2(1, 2, 3, 4))": [-2], "m.columns[2].z": [10],
    "sizeof(float3)": [16], "sizeof(packed_float3)": [12], "sizeof(half3)": [8], "sizeof(float3x3)": [48],
    "alignof(float4)": [16], "alignof(packed_float4)": [4], "sizeof(bool3)": [4], "sizeof(char3)": [4], "sizeof(Mixed)": [48],
    "sizeof(bfloat)": [2], "alignof(half2)": [4], "sizeof(uchar4)": [4], "sizeof(long3)": [32], "sizeof(float4x3)": [64],
    "sizeof(atomic_uint)": [4], "sizeof(atomic<bool>)": [1], "float(bfloat(3.0) * bfloat(2.0))": [6],
    "float(half(1) + 2)": [3], "0.1 + 0.2": [np.float32(0.1) + np.float32(0.2)], "1 / 2": [0], "1.0 / 2": [0.5],
    "swizzle_assign(v)": [2, 1, 30, 45], "swizzle_add(v)": [11, 2, 13, 4], "rgba_assign(v)": [9, 2, 3, 8],
    "increment(v)": [2, 3, 4, 5], "index_assign(v)": [1, 2, 77, 4], "array_sum()": [10], "table[2]": [30], "nested[1][0]": [3],
    "constants::k": [0.25], "by_pointer(v)": [4, 3, 2, 1], "member(v)": [3, 7], "operators(2).value": [7], "choose(1)": [1],
    "choose(1.0h)": [2], "choose(1u)": [3], "choose(true)": [4], "choose(1.0)": [5], "fib<10>::value": [55], "loop_sum<4>()": [6],
    "metal::float2(1, 2)": [1, 2], "simd::float3(v.xyz)": [1, 2, 3], "vector_float2(3)": [3, 3], "1.5h": [1.5], "2.0bf": [2],
    "take<int>(2.9f)": [2], "array<float, 2>{3, 4}[1]": [4], "static_cast<float>(uint8_t(258))": [2], "1e3": [1000], "sum_of(1, 2, 3)": [6],
    "single(1.0f)": [np.float32(1) / np.float32(3) + np.float32(0.1)], "SUFFIX(0.5)": [0.5], "0x1p-2": [0.25],
    "float(make_uniform(3) * 2)": [6], "uniform_sum()": [3], "is_uniform_v<uniform<int>>": [1], "is_uniform_v<int>": [0], "text()": [ord("b")], "two_texts()": [ord("d")],
}  # fmt: skip
del EXPRESSIONS["v.lo"]  # OpenCL's, not MSL's: tests/msl/test_errors.py

PRELUDE = """
template <typename T> float single(T x) { return min(9.0, x / 3 + 0.1); }
#define SUFFIX(x) x##f
float uniform_sum() { uniform<int> n = make_uniform(3); int s = 0; for (uniform<int> i = 0; i < n; ++i) s += i; return s; }
constant char* const constant words[] = {"abc", "d" "ef"};
static float letter(constant char* of, int at) { return of[at]; }
float text() { os_log_default.log("%f", 1.0); return letter("abc", 1); }
float two_texts() { return words[1][0]; }
struct Mixed { float a; float3 b; packed_half3 c; char d; };
constant float table[] = {10, 20, 30};
constant constexpr int nested[2][2] = {{1, 2}, {3, 4}};
namespace constants { constant float k = 0.25; }
static float4 swizzle_assign(float4 v) { v.xy = v.yx; v.zw = float2(30, 40) + v.x + 3 * float2(-0.6667f, 1); v.z = 30; return v; }
float4 swizzle_add(float4 v) { v.xz += 10; return v; }
float4 rgba_assign(float4 v) { v.ra = float2(9, 8); return v; }
float4 increment(float4 v) { ++v; v++; v -= 1; return v; }
float4 index_assign(thread const float4& u) { float4 v = u; v[2] = 77; return v; }
float array_sum() { float a[4] = {1, 2, 3, 4}, s = 0; for (float x : a) s += x; return s; }
#define MINE thread
static void reverse(MINE float4* v) { *v = v->wzyx; }
float4 by_pointer(float4 v) { thread float4* p = &v; reverse(p); return v; }
struct Pair { float2 a, b; float2 sums() const { return float2(a.x + a.y, b.x + b.y); } };
float2 member(float4 v) { Pair p = {v.xy, v.zw}; return p.sums(); }
struct Op { float value; Op operator+(Op o) const { return {value + o.value}; } thread Op& operator+=(float x) { value += x; return *this; } };
Op operators(float x) { Op a = {x}, b{x}; a += 3; return a + b; }
float choose(int) { return 1; } float choose(half) { return 2; } float choose(uint) { return 3; }
float choose(bool) { return 4; } float choose(float) { return 5; }
template <int N> struct fib { static constant constexpr int value = fib<N - 1>::value + fib<N - 2>::value; };
template <> struct fib<1> { static constant constexpr int value = 1; };
template <> struct fib<0> { static constant constexpr int value = 0; };
template <int N> int loop_sum() { int s = 0; _Pragma("clang loop unroll(full)") for (int i = 0; i < N; ++i) s += i; return s; }
template <typename T, typename U> T take(U x) { return T(x); }
template <typename... A> float sum_of(A... a) { return (a + ... + 0); }
void put(device float* out, float x) { out[0] = x; }
template <typename T> void put(device float* out, vec<T, 2> x) { out[0] = x.x; out[1] = x.y; }
template <typename T> void put(device float* out, vec<T, 3> x) { out[0] = x.x; out[1] = x.y; out[2] = x.z; }
template <typename T> void put(device float* out, vec<T, 4> x) { out[0] = x.x; out[1] = x.y; out[2] = x.z; out[3] = x.w; }
"""


@pytest.fixture(scope="module")
def values():
    rows = "".join(f"put(out + {4 * i}, {e});\n" for i, e in enumerate(EXPRESSIONS))
    shader = library(
        PRELUDE
        + f"""
        #include <simd/simd.h>
        kernel void rows(device float* out, constant float4& v, constant float4& w, constant int4& i,
                         device const packed_float3& p, constant float3x3& m) {{
          {rows} }}"""
    )
    out = np.full((len(EXPRESSIONS), 4), -99, np.float32)
    matrix = np.zeros((3, 4), np.float32)
    matrix[:, :3] = [[1, 2, 3], [4, 5, 6], [7, 8, 10]]
    shader["rows"].run(1, 1, {
        0: out, 1: np.float32([1, 2, 3, 4]), 2: np.float32([10, 20, 30, 40]), 3: np.int32([1, -2, 3, -4]),
        4: np.float32([5, 6, 7]), 5: matrix,
    })  # fmt: skip
    return out


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(expression, values):
    made, expected = values[list(EXPRESSIONS).index(expression)], EXPRESSIONS[expression]
    np.testing.assert_array_equal(made[len(expected) :], -99)  # as many components as expected
    np.testing.assert_allclose(made[: len(expected)], expected, rtol=2e-7)


def test_layout_matches_the_host():
    """A struct that the host fills: offsets are those of C with MSL's alignments."""
    dtype = np.dtype({"names": ["a", "b", "c", "d", "e", "f"], "formats": ["u1", "3f4", "3f2", "2u2", "f4", "u8"],
                      "offsets": [0, 16, 32, 40, 44, 48], "itemsize": 64})  # fmt: skip
    shader = library("""
        struct Params { bool a; float3 b; half3 c; ushort2 d; float e; ulong f; };
        kernel void read(constant Params& p, device float* out, device Params* copy) {
          out[0] = p.a; out[1] = p.b.z; out[2] = p.c.y; out[3] = p.d.y; out[4] = p.e; out[5] = p.f; copy[1] = p; copy[0] = copy[1];
        }""")
    given = np.zeros(1, dtype)
    given[0] = (1, [1, 2, 3], [4, 5, 6], [7, 8], 9.5, 1 << 33)
    out, copy = np.zeros(6, np.float32), np.zeros(2, dtype)
    shader["read"].run(1, 1, {0: given, 1: out, 2: copy})
    np.testing.assert_array_equal(out, [1, 3, 5, 8, 9.5, 2.0**33])
    assert copy[0]["f"] == 1 << 33 and (copy[0]["b"] == [1, 2, 3]).all()


def test_pointers_keep_their_space():
    """Overloads on the address space, arrays as parameters, pointers into structs, reinterpret_cast."""
    shader = library("""
        int space(device const float*) { return 1; }
        int space(threadgroup const float*) { return 2; }
        int space(thread const float*) { return 3; }
        int space(constant float*) { return 4; }
        constant float fixed[2] = {5, 6};
        template <typename P> float first(P p) { return p[0]; }
        uint index(const uint grid[2], const uint scale) { return grid[0] + grid[1] * scale; }
        struct S { float x; float y[3]; };
        kernel void spaces(device S* s, device int* out, constant float* c, const device uint& bits) {
          threadgroup float shared[4];
          float local[2] = {7, 8};
          shared[0] = 9;
          out[0] = space(&s->y[1]); out[1] = space(shared); out[2] = space(local); out[3] = space(c); out[4] = space(fixed + 1);
          out[5] = first(s[1].y) + first(local) + first(fixed) + first(shared);
          const uint grid[2] = {3, 4};
          out[6] = index(grid, 10);
          out[7] = *reinterpret_cast<const device int*>(&bits);
          device float* q = &s[0].y[2];
          *q += 1; q[-1] = 42;
          auto r = (device uint*)out; r[8] = 11;
        }""")
    s = np.arange(8, dtype=np.float32)
    out = np.zeros(9, np.int32)
    shader["spaces"].run(1, 1, {0: s, 1: out, 2: np.float32(1), 3: np.uint32(123)})
    np.testing.assert_array_equal(out, [1, 2, 3, 4, 4, 5 + 7 + 5 + 9, 43, 123, 11])
    np.testing.assert_array_equal(s[:4], [0, 1, 42, 4])


def test_member_functions_qualified_with_a_space():
    """One definition a space, as in libraries that run on every object: `this` accepts all of them here."""
    shader = library("""
        struct Complex {
          float re, im;
          Complex() = default;
          constexpr Complex(float r, float i) thread : re(r), im(i) {}
          constexpr Complex(float r, float i) threadgroup : re(r), im(i) {}
          template <typename T, typename = enable_if_t<is_convertible_v<T, float>>>
          constexpr Complex(T x) thread : re(x), im(0) {}
          template <typename T, typename = enable_if_t<is_convertible_v<T, float>>>
          constexpr Complex(T x) device : re(x), im(0) {}
          constexpr operator float() const thread { return re; }
          constexpr operator float() const device { return re; }
          constexpr operator float() const constant { return re; }
          float norm() const threadgroup;
        };
        kernel void norms(device Complex* x, constant Complex& c, device float* out) {
          threadgroup Complex shared[1];
          shared[0] = Complex(3, 4);
          Complex t(2.0f);
          out[0] = float(x[0]); out[1] = float(c); out[2] = t; x[1] = shared[0];
        }""")
    x, out = np.float32([1, 2, 0, 0]), np.zeros(3, np.float32)
    shader["norms"].run(1, 1, {0: x, 1: np.float32([8, 9]), 2: out})
    np.testing.assert_array_equal(out, [1, 8, 2])
    np.testing.assert_array_equal(x, [1, 2, 3, 4])


def test_conditional_operands_in_different_spaces():
    """c ? value : object, where the object is a vector or struct in another space; nested, and inside macros."""
    shader = library("""
        struct S { float a, b; };
        #define PICK(c, p) ((c) ? p : float4(7))
        template <typename T> T load(const device T* p, bool c) { return c ? p[1] : T(0); }
        kernel void pick(const device float4* x, constant float4& k, device float4* out, const device S* s, device bfloat* b) {
          bool yes = x[0].x == 0, no = !yes;
          out[0] = yes ? x[1] : float4(9);
          out[1] = no ? float4(1) : k;
          out[2] = PICK(yes, x[2]) + PICK(no, k);
          out[3] = no ? x[0] : yes ? k : float4(2);
          S t = yes ? s[1] : S{5, 6};
          out[4] = float4(t.a, t.b, (no ? S{1, 2} : s[0]).b, load(x, yes).y);
          float4 local(3);
          out[5] = yes ? local : out[0];
          b[0] = no ? b[1] : bfloat(2.5f);
          b[1] = yes ? b[0] : bfloat(1);
        }""")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out, s, b = np.zeros((6, 4), np.float32), np.float32([1, 2, 3, 4]), np.zeros(2, np.uint16)
    shader["pick"].run(1, 1, {0: x, 1: np.float32([10, 20, 30, 40]), 2: out, 3: s, 4: b})
    np.testing.assert_array_equal(
        out, [x[1], [10, 20, 30, 40], x[2] + 7, [10, 20, 30, 40], [3, 4, 2, 5], [3] * 4]
    )
    assert (b == 0x4020).all()


def test_bfloat_converts_as_msl_says():
    """It becomes a float by itself; integers become bfloats; other conversions are spelled out."""
    shader = library("""
        kernel void convert(device float* out, device bfloat* b) {
          bfloat x = bfloat(1.5f), y(3), z = 2;
          out[0] = x; out[1] = x * y; out[2] = x * 2.0f; out[3] = half(x); out[4] = bfloat(half(0.5h)); out[5] = int(y);
          out[6] = metal::exp2(y); out[7] = x < y; out[8] = -x + 1; out[9] = sizeof(x * y) + 10 * sizeof(x * 1.0f) + 100 * sizeof(x + 1);
          z += 1.25f; z *= x; out[10] = z; b[0] = x / y; out[11] = true ? x : 0; out[12] = as_type<ushort>(y); out[13] = x ? 1 : 2;
        }""")
    out, b = np.zeros(14, np.float32), np.zeros(1, np.uint16)
    shader["convert"].run(1, 1, {0: out, 1: b})
    np.testing.assert_array_equal(
        out, [1.5, 4.5, 3, 1.5, 0.5, 3, 8, 1, -0.5, 2 + 40 + 200, 4.875, 1.5, 0x4040, 1]
    )
    assert b[0] == 0x3F00


SCALARS = [
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "float",
    "bfloat",
]


@pytest.mark.parametrize("element", SCALARS)
def test_scalars_become_vectors_everywhere(element):
    """Initialised, assigned, combined, returned and passed, in vectors of all widths, packed ones too."""
    kernels = []
    packed = [f"packed_{element}{n}" for n in (2, 3, 4)] if element != "bool" else []
    kinds = [f"{element}{n}" for n in (2, 3, 4)] + packed
    for number, kind in enumerate(kinds):
        combined = (
            "v += 1; v = v + 1; v = 1 + v; v *= 2; v = v * 2; v -= 1; v = v - 1;"
            if element != "bool"
            else "v = v || 0; v = 1 && v;"
        )
        kernels.append(f"""
        inline {kind} made{number}() {{ return 0; }}
        inline {element} first{number}({kind} v) {{ return v[0]; }}
        kernel void k{number}(device {kind}* out, device float* sum) {{
          {kind} v; v = 0; out[0] = v;
          {kind} w = 1; out[1] = w;
          out[2] = 0; out[2] = 1;
          v = {element}(1); v.x = 0; v.xy = 1; v = made{number}(); {combined}
          out[3] = v;
          thread {kind}& r = v; r = 1;
          sum[0] = float(first{number}(1)) + float(r[1]);
        }}""")
    shader = library("\n".join(kernels))
    sizes = {
        "bool": 1,
        "char": 1,
        "uchar": 1,
        "short": 2,
        "ushort": 2,
        "half": 2,
        "bfloat": 2,
        "long": 8,
        "ulong": 8,
    }
    dtype = {"half": "f2", "float": "f4", "bfloat": "u2"}.get(element, f"u{sizes.get(element, 4)}")
    one = 0x3F80 if element == "bfloat" else 1
    for number, kind in enumerate(kinds):
        width = int(kind[-1])
        lanes = 4 if width == 3 and "packed" not in kind else width
        out, sums = np.zeros((4, lanes), dtype), np.zeros(1, np.float32)
        shader[f"k{number}"].run(1, 1, {0: out, 1: sums})
        # ((0 + 1 + 1 + 1) * 2 * 2) - 1 - 1, or (false || false) && true
        last = {"bool": 0, "bfloat": 0x4120}.get(element, 10)
        np.testing.assert_array_equal(
            out[:, :width], np.array([[0], [one], [one], [last]], dtype).repeat(width, 1)
        )
        assert sums[0] == 2


def test_a_text_in_an_expression_is_an_array():
    """As an argument or an initial value it is a pointer to constant memory."""
    shader = library("""
        int first(constant char* text) { return text[0]; }
        kernel void texts(device int* out) {
          constant char* pointer = "word" "s";
          out[0] = sizeof "abc";
          out[1] = "abc"[1];
          out[2] = *("abc" + 2);
          out[3] = first("xyz");
          out[4] = pointer[4];
        }""")
    out = np.zeros(5, np.int32)
    shader["texts"].run(1, 1, {0: out})
    assert out.tolist() == [4, ord("b"), ord("c"), ord("x"), ord("s")]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_matrices_against_numpy(size):
    """Determinants, and changes of a matrix in place."""
    matrix = f"float{size}x{size}"
    shader = library(f"""
        kernel void matrices(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {{
          {matrix} a, b;
          for (int c = 0; c < {size}; ++c) for (int r = 0; r < {size}; ++r) {{
            a[c][r] = x[i * {size**2} + c * {size} + r];
            b[c][r] = x[c * {size} + r];
          }}
          {matrix} results[5] = {{a, a, a, a, a}};
          results[0] += b; results[1] -= b; results[2] *= 3.0f; results[3] /= 4.0f; results[4] *= b;
          device float* to = out + i * {5 * size**2 + 1};
          for (int n = 0; n < 5; ++n) for (int c = 0; c < {size}; ++c) for (int r = 0; r < {size}; ++r) {{
            *to++ = results[n][c][r];
          }}
          *to = determinant(a);
        }}""")
    x = np.random.default_rng(size).normal(size=(6, size, size)).astype(np.float32)
    out = np.zeros((6, 5 * size**2 + 1), np.float32)
    shader["matrices"].run(6, 6, {0: x, 1: out})
    # x holds columns, which are the rows of its transpose.
    results = [x + x[0], x - x[0], 3 * x, x / 4, x[0] @ x]
    for got, expected in zip(np.split(out[:, :-1], 5, axis=1), results, strict=True):
        np.testing.assert_allclose(got.reshape(x.shape), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        out[:, -1], np.linalg.det(x.astype(np.float64)), rtol=1e-5, atol=1e-5
    )
