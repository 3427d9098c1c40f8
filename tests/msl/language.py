"""The Metal Shading Language, feature by feature, in the order of its specification's table of contents (4.0, compute).

tests/msl/test_language.py compiles and runs every row; docs/metal-language.md is generated from this table.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """One feature.

    Attributes:
      name: Its name on the page.
      code: statements of a kernel that writes floats to `out`; `i` is the thread.
      gives: The first numbers of `out` afterwards, if it is there.
      says: Words of the compiler's sentence, if it is refused.
      before: The text before the kernel.
      args: more kernel arguments, e.g. textures (the test binds one of each kind) and positions.
      threads: size of the grid, one threadgroup.
      plan: refused and not planned: for rendering or ray tracing.
      since: the version of the language that has it, if that is above 3.2; it is compiled for that then.
    """

    name: str
    code: str = ""
    gives: list[float] = []
    says: str = ""
    before: str = ""
    args: str = ""
    threads: int = 1
    plan: bool = True
    since: tuple[int, int] = (3, 2)


def _never(name: str, before: str, says: str, code: str = "", args: str = "") -> Feature:
    """A feature that compute has no use for."""
    return Feature(name, code, says=says, before=before, args=args, plan=False)


F = Feature
SECTIONS: dict[str, list[Feature]] = {
    "1.5 Restrictions of C++17": [
        F("lambda expressions (3.2)", "int n = 3; auto f = [&](int x) { return x * n; }; auto g = [=](auto x) { return x + n; }; out[0] = f(2); out[1] = g(1.5f);", [6, 4.5]),
        F("`constexpr` member functions that assign the object", "U u(3), v[2]; u.add(U(4)); v[1] = u; (v[0] = v[1]).add(u); out[0] = u.low; out[1] = v[0].low;", [7, 14], before="struct U { U() = default; constexpr U(uint l) : low(l) {} constexpr U add(const U r) { *this = U(low + r.low); return *this; } uint low; };"),
        F("recursion", "out[0] = f(3);", before="int f(int n) { return n ? f(n - 1) : 0; }", says="recursive call of 'f'"),
        F("a call of itself behind which a function has nothing to do", "L l{0}; l.next(4); out[0] = l.n; out[1] = down(4, 0);", [10, 10], before="struct L { int n; void next(int k) thread { if (k == 0) return; n += k; if (k > 1) { next(k - 1); } } }; int down(int n, int sum) { if (n == 0) return sum; return down(n - 1, sum + n); }"),
        F("`dynamic_cast`, type identification", "out[0] = dynamic_cast<thread B*>((thread A*)nullptr) == nullptr;", before="struct A {}; struct B : A {};", says="dynamic_cast"),
        F("`new`, `delete`", "auto p = new float; out[0] = *p;", says="'new' and 'delete' are not supported in Metal"),
        F("`__asm__(\"\")`, which generators put into loops", "while (true) { __asm__(\"\"); if (++out[0] > 3) break; }", [4]),
        F("other inline assembly", "asm(\"nop\");", says="inline assembly is not supported in Metal"),
        F("`goto`", "a: if (out[0] < 1) { out[0] += 1; goto a; }", says="'goto' is not supported in Metal"),
        F("`thread_local`", "static thread_local int x; out[0] = x;", says="'thread_local' is not supported in Metal"),
        F("virtual functions", before="struct S { virtual float f() { return 1; } };", says="virtual functions are not supported in Metal"),
        F("exceptions", "throw 1;", says="exceptions ('throw', 'try') are not supported in Metal"),
        F("pointers to functions", "float (*p)(float) = f; out[0] = p(1);", before="float f(float x) { return x; }", says="pointers to functions are not supported in Metal"),
        F("a function by another name: `auto g = f<3>;` in a function", "auto g = f<3>; out[0] = g(2);", [6], before="template <int n> float f(float x) { return n * x; }"),
        F("C and C++ standard headers", before="#include <vector>", says="Metal has no C or C++ standard library; use <metal_stdlib>"),
        F("templates, overloads, `constexpr`, `if constexpr`, fold expressions, structured bindings", "auto [a, b] = P{1, 2}; out[0] = sum(a, b, 3); out[1] = C<4>::value;", [6, 24], before="struct P { int a, b; }; template <class... A> int sum(A... x) { return (x + ...); } template <int n> struct C { static constexpr constant int value = n * C<n - 1>::value; }; template <> struct C<0> { static constexpr constant int value = 1; };"),
    ],
    "1.6 Compiler and preprocessor": [
        F("`__METAL_VERSION__`, `__METAL_MACOS__`, `__HAVE_BFLOAT__`", "out[0] = __METAL_VERSION__ >= 300; out[1] = __METAL_MACOS__; out[2] = __HAVE_BFLOAT__;", [1, 1, 1]),
        F("every public header", "out[0] = 1;", [1], before="".join(f"#include <{h}>\n" for h in "metal_array metal_atomic metal_common metal_compute metal_config metal_geometric metal_integer metal_limits metal_logging metal_math metal_matrix metal_pack metal_quadgroup metal_relational metal_simdgroup metal_simdgroup_matrix metal_stdlib metal_texture metal_type_traits metal_types metal_uniform metal_utility metal_visible_function_table simd/simd.h".split())),
        F("`assert` without that header", "assert(i < 1); out[0] = 1;", [1]),
        F("`assert` (of `<metal_assert>`; an error where shaders are validated)", "assert(i < 1); out[0] = 1;", [1], before="#include <metal_assert>\n"),
        F("`static_assert`, `#pragma unroll`", "static_assert(sizeof(int) == 4, \"int\"); float s = 0;\n#pragma unroll\nfor (int k = 0; k < 4; ++k) s += k;\nout[0] = s;", [6]),
    ],
    "2.1 Scalar types": [
        F("`bool`, `char`, `uchar`, `short`, `ushort`, `int`, `uint`, `long`, `ulong`", "out[0] = sizeof(bool) + sizeof(char) + sizeof(uchar); out[1] = sizeof(short) + sizeof(ushort); out[2] = sizeof(int) + sizeof(uint); out[3] = sizeof(long) + sizeof(ulong); out[4] = char(-1) < char(0);", [3, 4, 8, 16, 1]),
        F("`int8_t` to `uint64_t`, `size_t`, `ptrdiff_t`", "out[0] = sizeof(int8_t) + sizeof(uint16_t) + sizeof(int32_t) + sizeof(uint64_t); out[1] = sizeof(size_t); out[2] = sizeof(ptrdiff_t);", [15, 8, 8]),
        F("`half`, `float`, suffixes `h`, `H`, `f`; `1.0` is a float", "half a = 1.5h + 0.5H; float b = 2.5f; out[0] = a * b; out[1] = sizeof(half); out[2] = sizeof(1.0);", [5, 2, 4]),
        F("`bfloat`, suffix `bf`", "bfloat a = 1.5bf; out[0] = a + 1.0f; out[1] = sizeof(bfloat); out[2] = float(bfloat(1.00390625f));", [2.5, 2, 1]),
        F("suffixes `ll`, `ull`: `long` and `ulong`", "ulong x = ulong(i) + 7; out[0] = clamp(x * 10ULL, 11ull, 23llu) + (0x100000000LL >> 32); out[1] = is_same_v<decltype(1ull), ulong>;", [24, 1]),
        F("`signed char`, `unsigned int`, ... ", "unsigned char a = 200; signed b = -1; unsigned long c = 5; out[0] = a; out[1] = b; out[2] = c;", [200, -1, 5]),
        F("`double`", "double x = 1; out[0] = x;", says="'double' is not supported in Metal; use float"),
        F("`long double`", "long double x = 1; out[0] = x;", says="'double' is not supported in Metal; use float"),
        F("`long long`", "long long x = 1; out[0] = x;", says="'long long' is not supported in Metal; use long"),
        F("`void`, `nullptr`, `nullptr_t`", "device float* p = nullptr; out[0] = p == nullptr; nullptr_t n = nullptr; p = n; out[1] = !p;", [1, 1]),
    ],
    "2.2 Vector types": [
        F("vectors of 2 to 4 of `bool`, `char`, `uchar`, `short`, `ushort`", "bool2 a(true, false); char3 b(-1, 2, 3); uchar4 c(250, 251, 252, 253); short2 d(-300); ushort3 e(60000); out[0] = a.x; out[1] = b.x; out[2] = c.w; out[3] = d.y; out[4] = e.z;", [1, -1, 253, -300, 60000]),
        F("vectors of `int`, `uint`, `long`, `ulong`, `half`, `bfloat`, `float`", "int2 a(-1); uint3 b(7u); long4 c(-5); ulong2 d(6); half3 e(0.5h); bfloat4 f(2.0bf); float4 g(0.25f); out[0] = a.x; out[1] = b.y; out[2] = c.w; out[3] = d.x; out[4] = e.z; out[5] = float(f.w); out[6] = g.x;", [-1, 7, -5, 6, 0.5, 2, 0.25]),
        F("`vec<T, n>`, `vec_element`", "vec<half, 3> a(1, 2, 3); out[0] = a.z; out[1] = sizeof(vec<int, 3>);", [3, 16]),
        F("`n` of a `vec<T, n>` found by a call, of any integer type", "out[0] = size(half3(1)); out[1] = sum(float2(1, 2)); out[2] = wide(int4(1));", [3, 3, 4], before="template <class T, uint n> uint size(vec<T, n> v) { return n; } template <typename T, unsigned int n, bool all = true> T sum(const thread vec<T, n>& v) { T s = 0; for (uint k = 0; k < n; ++k) s += v[k]; return s; } template <size_t n> size_t wide(vec<int, n>) { return n; }"),
        F("swizzles `xyzw`, `rgba`, as values and as targets", "float4 v(1, 2, 3, 4); v.xy = v.yx; v.ba = v.rg; v.zw += 1; out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v.w;", [2, 1, 3, 2]),
        F("a swizzle that repeats a component as a target", "float4 v(1); v.xx = float2(1, 2); out[0] = v.x;", says="swizzle 'xx' repeats a component and cannot be assigned"),
        F("a swizzle that mixes `xyzw` and `rgba`", "float4 v(1); out[0] = v.xg.x;", says="no member named 'xg' in 'float4'"),
        F("a component that is not there", "float2 v(1); out[0] = v.z;", says="no member named 'z' in 'float2'"),
        F("subscripts, constant and variable", "int4 v(1, 2, 3, 4); out[0] = v[2]; out[1] = v[int(i) + 1]; v[3] = 9; out[2] = v.w;", [3, 2, 9]),
        F("constructors from scalars, vectors and mixtures", "float4 a(1), b(1, float2(2, 3), 4), c(float3(1, 2, 3), 4), d = float4(uchar4(9)), e(float2(1, 2), float2(3, 4)), f(float2(1, 2), 3, 4), g(1, 2, float2(3, 4)), h(1, float3(2, 3, 4)); float3 k(float2(1, 2), 3), l(1, float2(2, 3)); out[0] = a.w; out[1] = b.z; out[2] = c.w; out[3] = d.y; out[4] = e.w; out[5] = f.z; out[6] = g.w; out[7] = h.y; out[8] = k.z; out[9] = l.y;", [1, 3, 4, 9, 4, 3, 4, 2, 3, 2]),
        F("constructors that convert a wider vector's component type", "int3 a(float3(1.9f, -2.9f, 3)); half2 b(int2(3, 4)); bool3 c(float3(0, 2, -1)); bfloat3 d(float3(1, 2, 3)); ulong2 e(uchar2(250)); out[0] = a.y; out[1] = b.y; out[2] = c.x + c.y + c.z; out[3] = float(d.z); out[4] = e.x;", [-2, 4, 2, 3, 250]),
        F("`bfloat4 v; v = 0;`, a scalar of any type assigned to a vector of any", "bfloat4 a; a = 0; half3 b; b = 2; float2 c; c = 3u; int4 d; d = 2.9f; uchar2 e; e = 7; bool2 f; f = 1; bfloat2 g; g = bfloat(1.5f); half4 h; h = true; out[0] = float(a.w); out[1] = b.y; out[2] = c.y; out[3] = d.w; out[4] = e.x; out[5] = f.y; out[6] = float(g.x); out[7] = h.z;", [0, 2, 3, 2, 7, 1, 1.5, 1]),
        F("brace initialisation", "float3 a = {1, 2, 3}; half2 b{1, 2}; int4 c = {int2(1, 2), 3, 4}; float4 d[2] = {{1, 2, 3, 4}, {5}}; out[0] = a.z; out[1] = b.y; out[2] = c.z; out[3] = d[1].w;", [3, 2, 3, 5]),
        F("initial values fewer than components, or of several types", "uint x = 3 + i; int k = -1; uint4 a = {x, x + 1, x ^ 1}; half4 b{x, k, 1.5h}; int3 c = {k, x}; float4 d = {float2(1, 2), k}; short4 e = made<short4>(x, k); out[0] = a.z; out[1] = a.w; out[2] = b.y; out[3] = b.z; out[4] = b.w; out[5] = c.x; out[6] = d.y; out[7] = d.z; out[8] = e.y; out[9] = e.z;", [2, 0, -1, 1.5, 0, -1, 2, -1, -1, 0], before="template <class T> T made(uint a, int b) { T v = {a, b}; return v; }"),
        F("`initializer_list<T>`", "S s{1, 2, 3}; out[0] = s.sum; out[1] = s.n;", [6, 3], before="struct S { int sum, n; S(initializer_list<int> l) : sum(0), n(l.size()) { for (int x : l) sum += x; } };"),
        F("implicit conversion between vector types", "int3 a(1); float3 b = a; out[0] = b.x;", says="no viable conversion from 'int3'"),
        F("too few components", "out[0] = float4(1, 2, 3).x;", says="float4"),
    ],
    "2.2.3 Packed vector types": [
        F("packed types of every width", "packed_float3 a(1, 2, 3); packed_half4 b(half4(1)); packed_short2 c(short2(3)); packed_uchar3 d(uchar3(1, 2, 3)); packed_int3 e(1, 2, 3); packed_uint4 f(1); packed_char4 g(char4(1)); packed_ushort3 h(ushort3(5)); packed_float2 k(1, 2); packed_float4 l(1); out[0] = sizeof(a); out[1] = sizeof(b); out[2] = sizeof(c); out[3] = sizeof(d); out[4] = e.z; out[5] = f.x; out[6] = g.y; out[7] = h[2]; out[8] = k.y; out[9] = l.w;", [12, 8, 4, 3, 3, 1, 1, 5, 2, 1]),
        F("packed types of `long`, `ulong`, `bool`, `bfloat`", "packed_long2 a(long2(1)); packed_ulong3 b(ulong3(2)); packed_bool2 c(bool2(true)); packed_bfloat3 d(bfloat3(1.0bf)); out[0] = sizeof(a); out[1] = sizeof(b); out[2] = sizeof(c); out[3] = sizeof(d); out[4] = float(d.y);", [16, 24, 2, 6, 1]),
        F("packed and aligned vectors converted, assigned, added", "packed_float3 a(1, 2, 3); float3 b = a; a = b * 2; a += 1; packed_float3 c = a + b; c.x = 5; c[1] = 6; float3 d = c * 2.0f; c = 4; out[0] = b.z; out[1] = a.y; out[2] = d.z; out[3] = d.x; out[4] = c.z;", [3, 5, 20, 10, 4]),
        F("library functions of packed vectors", "packed_float3 a(3, 0, 4); out[0] = length(a); out[1] = dot(a, float3(1)); out[2] = max(a, 2.0f).y; out[3] = normalize(float3(a)).x;", [5, 7, 2, 0.6]),
        F("arrays and buffers of packed vectors", "device packed_float3* p = (device packed_float3*)(out + 1); p[0] = float3(1, 2, 3); p[1] = p[0] * 2; out[0] = p[1].z;", [6, 1, 2, 3, 2, 4, 6]),
        F("`packed_vec<T, n>`", "packed_vec<half, 3> a(half3(1, 2, 3)); out[0] = sizeof(a); out[1] = a.z;", [6, 3]),
    ],
    "2.3 Matrices": [
        F("`float2x2` to `float4x4`, `half2x2` to `half4x4`", "float2x3 a(1.0f); half4x2 b(2.0h); float4x4 c(3.0f); out[0] = a[1][1]; out[1] = b[0][0]; out[2] = c[3].w; out[3] = sizeof(float3x3); out[4] = sizeof(half4x3); out[5] = sizeof(float2x4);", [1, 2, 3, 48, 32, 32]),
        F("`matrix<T, c, r>`", "matrix<float, 3, 2> a(1.0f); out[0] = a[1].y;", [1]),
        F("columns and elements by subscript", "float3x3 m(1.0f); m[0] = float3(1, 2, 3); m[1][2] = 9; out[0] = m[0].z; out[1] = m[1].z; out[2] = m[2][2];", [3, 9, 1]),
        F("constructors from columns, scalars, another precision", "float2x2 a(float2(1, 2), float2(3, 4)), b(1, 2, 3, 4); half2x2 c(a); float2x2 d(c); float2x2 e = {float2(1, 2), float2(5, 6)}; out[0] = a[1].x; out[1] = b[1].y; out[2] = c[0].y; out[3] = d[1].x; out[4] = e[1].y;", [3, 4, 2, 3, 6]),
        F("`bfloat2x2` to `bfloat4x4` (not in MSL)", "bfloat2x2 a(1.0bf); out[0] = float(a[0].x);", says="bfloat2x2"),
    ],
    "2.4 SIMD-group matrices": [
        F("`simdgroup_float8x8`, `simdgroup_half8x8`, `simdgroup_bfloat8x8`", "simdgroup_float8x8 a(1.0f); simdgroup_half8x8 b(2.0h); simdgroup_bfloat8x8 c(3.0bf); simdgroup_matrix<float, 8, 8> d = make_filled_simdgroup_matrix<float, 8, 8>(4.0f); if (i == 0) { out[0] = a.thread_elements()[0]; out[1] = b.thread_elements()[0]; out[2] = float(c.thread_elements()[0]); out[3] = d.thread_elements()[1]; }", [1, 2, 3, 4], threads=32),
        F("other sizes", "simdgroup_matrix<float, 4, 4> a(1.0f); out[0] = 1;", says="simdgroup_matrix is 8x8"),
    ],
    "2.5 Alignment": [
        F("`sizeof`, `alignof` of vectors", "out[0] = sizeof(float3); out[1] = alignof(half4); out[2] = sizeof(char3); out[3] = alignof(long3); out[4] = alignof(packed_float4); out[5] = alignof(bool2);", [16, 8, 4, 32, 4, 2]),
        F("`alignas`", "out[0] = alignof(S); out[1] = sizeof(S); alignas(16) threadgroup float t[4]; t[0] = 1; out[2] = t[0]; threadgroup __attribute__((aligned(16))) float u[4]; u[3] = 2; out[3] = u[3];", [32, 32, 1, 2], before="struct alignas(32) S { float a; };"),
        F("a pointer cast to vectors of less alignment", "device float4* p = (device float4*)(out + 1); *p = float4(1, 2, 3, 4); out[0] = p->w;", [4, 1, 2, 3, 4]),
    ],
    "2.6 Atomic types": [
        F("`atomic_int`, `atomic_uint`, `atomic_bool`, `atomic<T>`", "out[0] = sizeof(atomic_int) + sizeof(atomic_uint) + sizeof(atomic<float>); out[1] = sizeof(atomic_bool);", [12, 1]),
        F("`atomic_float`", "device atomic_float* p = (device atomic_float*)out; atomic_store_explicit(p, 2.0f, memory_order_relaxed); atomic_fetch_add_explicit(p, 0.5f, memory_order_relaxed);", [2.5]),
        F("`atomic_ulong` (min and max)", "device atomic_ulong* p = (device atomic_ulong*)(out + 2); atomic_max_explicit(p, 5ul, memory_order_relaxed); out[0] = *(device ulong*)(out + 2) == 5; atomic_min_explicit(p, 0ul, memory_order_relaxed);", [1, 0, 0]),
        F("`atomic<T>` of another type", "out[0] = sizeof(atomic<short>);", says="atomic<T> needs T to be int, uint, bool, float or ulong"),
    ],
    "2.7 Pixel data types": [
        F("`r8unorm<T>` to `rg11b10f<T>` in a buffer (tile memory's formats)", "device rgba8unorm<half>* p = (device rgba8unorm<half>*)out; *p = half4(1);", says="pixel data types (rgba8unorm) are those of image blocks, which this compute compiler does not have", plan=False),
    ],
    "2.8 Buffers": [
        F("pointers and references to scalars, vectors, structs, in `device` and `constant`", "out[0] = c.a + c.b.y; s->b.z = 3; out[1] = s->b.z;", [0, 3], before="struct S { float a; float3 b; };", args=", constant S& c [[buffer(1)]], device S* s [[buffer(2)]]"),
        F("bit-fields and unions in a struct", "U u; u.f = 1; B b = {5, 9}; out[0] = u.i == 0x3f800000; out[1] = b.x + b.y;", [1, 14], before="union U { float f; uint i; }; struct B { uint x : 4; uint y : 28; };"),
    ],
    "2.9 Textures": [
        F("`texture1d`, `texture1d_array`", "out[0] = a.read(2u).x; out[1] = b.read(1u, 1u).y; out[2] = a.get_width(); out[3] = b.get_array_size();", [2, 11, 4, 2], args=", texture1d<float> a [[texture(0)]], texture1d_array<float> b [[texture(1)]]"),
        F("`texture2d`, `texture2d_array`", "out[0] = a.read(uint2(3, 1)).x; out[1] = b.read(uint2(1, 1), 1u).y; out[2] = a.get_height(); out[3] = b.get_array_size();", [13, 111, 2, 2], args=", texture2d<float> a [[texture(2)]], texture2d_array<float> b [[texture(3)]]"),
        F("`texture3d`", "out[0] = a.read(uint3(1, 1, 1)).x; out[1] = a.get_depth();", [111, 2], args=", texture3d<float> a [[texture(4)]]"),
        F("`texturecube`, `texturecube_array`", "out[0] = a.read(uint2(1, 1), 2u).x; out[1] = a.get_width(); out[2] = b.read(uint2(1, 0), 3u, 1u).x; out[3] = b.get_array_size();", [211, 4, 901, 2], args=", texturecube<float, access::read> a [[texture(5)]], texturecube_array<float, access::read> b [[texture(6)]]"),
        F("`depth2d`, `depth2d_array`, `depthcube`, `depthcube_array`", "float x = a.read(uint2(3, 1)); out[0] = x; out[1] = b.read(uint2(1, 1), 1u); out[2] = c.read(uint2(1, 1), 2u); out[3] = d.get_array_size();", [13, 111, 211, 2], args=", depth2d<float> a [[texture(2)]], depth2d_array<float> b [[texture(3)]], depthcube<float> c [[texture(5)]], depthcube_array<float> d [[texture(6)]]"),
        F("`texture_buffer`", "out[0] = a.read(3u).x; out[1] = a.get_width();", [3, 4], args=", texture_buffer<float> a [[texture(0)]]"),
        F("component types `half`, `short`, `ushort`, `int`, `uint`", "half4 x = a.read(uint2(3, 1)); out[0] = x.y; short4 s = b.read(uint2(1, 1)); uint4 u = c.read(uint2(2, 0)); out[1] = s.x; out[2] = u.x;", [13, 11, 2], args=", texture2d<half> a [[texture(2)]], texture2d<short> b [[texture(7)]], texture2d<uint> c [[texture(8)]]"),
        F("`access::sample`, `read`, `write`, `read_write`", "a.write(float4(5), uint2(0, 0)); b.write(b.read(uint2(1, 0)) + 1, uint2(1, 0)); b.fence(); out[0] = b.read(uint2(1, 0)).x; out[1] = c.read(uint2(1, 0)).x;", [1, 1], args=", texture2d<float, access::write> a [[texture(9)]], texture2d<float, access::read_write> b [[texture(10)]], texture2d<float, access::read> c [[texture(2)]]"),
        _never("`texture2d_ms`, `texture2d_ms_array`, `depth2d_ms`", "", "'texture2d_ms': devices here make no multisample textures, which a kernel could read; pass a texture2d_array with a slice for each sample", args=", texture2d_ms<float> t [[texture(0)]]"),
    ],
    "2.10 Samplers": [
        F("`sampler` as an argument", "out[0] = t.sample(s, float2(0.375f, 0.25f)).x; out[1] = t.sample(s, float2(2, 2)).x;", [1, 13], args=", texture2d<float> t [[texture(2)]], sampler s [[sampler(0)]]"),
        F("`constexpr sampler` with coordinates, filters, addresses, border", "constexpr sampler s(coord::pixel, filter::linear, address::clamp_to_border, border_color::opaque_white); constexpr sampler r(coord::normalized, address::repeat, mag_filter::nearest, min_filter::nearest, mip_filter::none); out[0] = t.sample(s, float2(1, 0.5f)).x; out[1] = t.sample(s, float2(-9, 0)).x; out[2] = t.sample(r, float2(1.125f, 0)).x;", [0.5, 1, 0], args=", texture2d<float> t [[texture(2)]]"),
        F("`s_address`, `t_address`, `r_address`, `max_anisotropy`, `lod_clamp`, `bias`", "constexpr sampler s(s_address::repeat, t_address::clamp_to_edge, r_address::mirrored_repeat, max_anisotropy(4), lod_clamp(0, 2)); out[0] = t.sample(s, float2(1.375f, 0)).x;", [1], args=", texture2d<float> t [[texture(2)]]"),
        F("`compare_func`", "constexpr sampler s(coord::pixel, compare_func::less); out[0] = t.sample_compare(s, float2(3.5f, 1.5f), 5.0f); out[1] = t.sample_compare(s, float2(3.5f, 1.5f), 20.0f);", [1, 0], args=", depth2d<float> t [[texture(2)]]"),
    ],
    "2.11 Imageblocks": [
        _never("`imageblock<T>`", "struct P { half4 c; };", "'imageblock': image blocks belong to tile shading, which this compute compiler does not have", args=", imageblock<P> b"),
    ],
    "2.12 Aggregate types": [
        F("arrays, structs, classes, unions, enums", "int a[2][2] = {{1, 2}, {3, 4}}; S s{1, {2, 3}}; out[0] = a[1][0]; out[1] = s.b[1]; out[2] = int(E::two);", [3, 3, 2], before="struct S { int a; int b[2]; }; enum class E : uchar { one = 1, two };"),
        F("`array<T, n>`", "array<float, 3> a = {1, 2, 3}; const array<int, 2> b{4, 5}; a[1] = 7; float s = 0; for (auto x : a) s += x; out[0] = a.size(); out[1] = s; out[2] = b[1]; out[3] = a.data()[2]; out[4] = a.front() + a.back(); out[5] = a.empty();", [3, 11, 5, 3, 4, 0]),
        F("`array_ref<T>`", "float a[3] = {1, 2, 3}; array_ref<float> r = make_array_ref(a); out[0] = r.size(); out[1] = r[2];", [3, 3]),
        F("`array<texture2d<T>, n>` as an argument", "out[0] = t[1].read(uint2(1, 0)).x; out[1] = t.size();", [1, 2], args=", array<texture2d<float>, 2> t [[texture(11)]]"),
    ],
    "2.13 Argument buffers": [
        F("a struct with pointers into device and constant memory", "out[0] = a.p == nullptr; out[1] = sizeof(A);", [1, 24], before="struct A { device float* p [[id(0)]]; constant int* q [[id(1)]]; float x [[id(2)]]; };", args=", constant A& a [[buffer(1)]]"),
        F("a struct with references", "out[0] = sizeof(A); out[1] = a.x > 9 ? a.f : 1;", [16, 1], before="struct A { constant float& f [[id(0)]]; float x [[id(1)]]; };", args=", constant A& a [[buffer(1)]]"),
        F("a struct with textures and samplers", "out[0] = sizeof(A) > 0; out[1] = is_null_texture(a.t);", [1, 1], before="struct A { texture2d<float> t [[id(0)]]; float x [[id(2)]]; };", args=", constant A& a [[buffer(1)]]"),
        F("an array behind its attribute, `x [[id(0)]][2]`", "out[0] = sizeof(A); out[1] = a.p[1] == nullptr;", [24, 1], before="struct A { device float* p [[id(0)]][2]; float x [[id(2)]]; };", args=", constant A& a [[buffer(1)]]"),
        F("`command_buffer`, `compute_pipeline_state` in an argument buffer", before="struct A { command_buffer c; };", says="'command_buffer': indirect command buffers that a shader encodes are not supported by this compute compiler"),
    ],
    "2.14 Uniform type": [
        F("`uniform<T>`, `make_uniform`", "uniform<int> n = make_uniform(3); int s = 0; for (uniform<int> k = 0; k < n; ++k) s += k; out[0] = s; out[1] = is_uniform_v<uniform<float>>;", [3, 1]),
    ],
    "2.15 to 2.19 Function tables, ray tracing, mesh": [
        F("`visible_function_table<F>`: calls, `size`, `empty`, `is_null_visible_function_table`", "out[0] = !is_null_visible_function_table(t) && !t.empty(); out[1] = t[t.size()] == nullptr; if (i > 9) out[2] = t[0](1);", [1, 1], args=", visible_function_table<float(float)> t [[buffer(1)]]"),
        F("a table of functions in an argument buffer", before="struct A { visible_function_table<float(float)> t; };", says="'t': a table of functions cannot be in a struct"),
        _never("`intersection_function_table`, `[[intersection]]`", "using namespace raytracing;", "'raytracing': ray tracing is not supported by this compute compiler"),
        _never("`raytracing::ray`, `intersector`, `acceleration_structure`", "raytracing::ray r;", "'raytracing': ray tracing is not supported by this compute compiler"),
        _never("`<metal_raytracing>`", "#include <metal_raytracing>\n", "'metal_raytracing': ray tracing is not supported by this compute compiler"),
        _never("`mesh<V, P, nv, np, t>`, `mesh_grid_properties`", "struct V { float4 p [[position]]; }; using M = mesh<V, void, 3, 1, topology::triangle>;", "'mesh': mesh shaders belong to rendering, which this compute compiler does not have"),
    ],
    "2.20 Conversions": [
        F("`as_type` between scalars and vectors of one size", "out[0] = as_type<uint>(1.0f) == 0x3f800000u; out[1] = as_type<half2>(0x3c004000u).x; out[2] = as_type<float2>(as_type<ulong>(float2(3, 4))).y; out[3] = as_type<uchar4>(0x01020304).x; out[4] = float(as_type<bfloat>(ushort(0x3f80))); out[5] = as_type<float>(as_type<int>(-2.5f)); out[6] = as_type<ushort>(1.0h) == 0x3c00;", [1, 2, 4, 4, 1, -2.5, 1]),
        F("`as_type` between sizes", "out[0] = as_type<float>(ushort(1));", says="as_type"),
        F("`static_cast`, C casts, functional casts", "out[0] = static_cast<int>(2.9f); out[1] = (half)1.5f; out[2] = int(-2.9f); out[3] = (float4(int4(3))).x; out[4] = ((float3)2).y;", [2, 1.5, -2, 3, 2]),
        F("`reinterpret_cast` of pointers in one address space", "device uint* p = reinterpret_cast<device uint*>(out); p[0] = 0x40000000u;", [2]),
        F("float to integer: out of range saturates, NaN is 0", "out[0] = uint(-1.0f); out[1] = uchar(300.0f); out[2] = char(-1e6f); out[3] = int(NAN);", [0, 255, -128, 0]),
        F("rounding to nearest even in conversions", "out[0] = half(2049.0f); out[1] = half(2051.0f); out[2] = float(bfloat(257.0f)); out[3] = float(16777217);", [2048, 2052, 256, 16777216]),
    ],
    "2.21 Implicit conversions": [
        F("scalar to vector everywhere: operators, calls, returns", "out[0] = (float3(1) + 2).y; out[1] = f(2).x; out[2] = g().y; out[3] = max(float2(1, 5), 3.0f).x; half2 h = 1.5f; out[4] = h.y; out[5] = (1 - float2(3)).x;", [3, 2, 7, 3, 1.5, -2], before="float2 f(float2 x) { return x; } half3 g() { return 7; }"),
        F("scalars by C++'s rules", "half h = 1; float f = h; int k = 2.7f; uint u = -1; out[0] = f + k; out[1] = u == 4294967295u; bfloat b = 3; out[2] = b;", [3, 1, 3]),
        F("an object that becomes a `bool`, as a `bfloat`", "S s{3}; bfloat a = s; bfloat b; b = S{0}; bfloat c = bfloat(s); out[0] = a; out[1] = b; out[2] = c; out[3] = bfloat(C{2.5f});", [1, 0, 1, 2.5], before="struct S { int x; operator bool() const thread { return x; } }; struct C { float x; template <class T> operator T() const thread { return T(x); } };"),
        F("a `bfloat` that becomes an integer, a `bool` or an operand of float vectors", "bfloat x = 2.75bf, zero = 0; int a = x; uint b; b = x; bool c = x; a += whole(x); float4 v = x * float4(1, 2, 3, 4) + x; v *= x; out[0] = a; out[1] = b; out[2] = c + bool(zero); out[3] = v.y; out[4] = all(bool2(x, 1)); out[5] = x + 1.5h;", [4, 2, 1, 22.6875, 1, 4.25], before="int whole(int x) { return x; }"),
        F("`?:` with a `bfloat` and an integer, or with `bfloat`s of different address spaces", "bfloat x = 2.75bf; bfloat a = i < 1 ? x : 0, b = i > 0 ? x : 3; b += i ? x : Limits<bfloat>::top; out[0] = a; out[1] = b; out[2] = sizeof(i ? x : 1);", [2.75, 4, 2], before="template <class T> struct Limits { static constexpr constant T top = T(1); };"),
        F("`float` or `half` to `bfloat` without a cast", "bfloat b = out[1]; out[0] = b;", says="no viable conversion from 'device float' to 'bfloat'"),
    ],
    "3 Operators": [
        F("arithmetic of scalars and vectors, element by element", "float4 a(7, -7, 2, 1), b(2); int3 c(7, -7, 9); out[0] = (a + b).x; out[1] = (a - b).y; out[2] = (a * b).z; out[3] = (a / b).w; out[4] = (c % 4).y; out[5] = (c / 2).y; out[6] = (-c).z; out[7] = (+a).x; c++; --a; out[8] = c.x; out[9] = a.x;", [9, -9, 4, 0.5, -3, -3, -9, 7, 8, 6]),
        F("compound assignment", "int2 v(6, 7); v += 2; v -= int2(1); v *= 2; v /= 3; v %= 4; v <<= 2; v >>= 1; v |= 8; v &= 14; v ^= 1; out[0] = v.x; out[1] = v.y; half3 h(1); h *= 2.0h; h += h; out[2] = h.y;", [9, 11, 4]),
        F("bitwise and shift", "uint3 a(12u), b(10u); out[0] = (a & b).x; out[1] = (a | b).y; out[2] = (a ^ b).z; out[3] = (~uchar2(1)).x; out[4] = (a << 2u).x; out[5] = (int2(-8) >> 1).x;", [8, 14, 6, 254, 48, -4]),
        F("relational, equality and logical operators give bool vectors", "float3 a(1, 2, 3), b(2); bool3 l = a < b; out[0] = l.x + l.y + l.z; out[1] = all(a == a); out[2] = any(a >= 3.0f); out[3] = (bool2(true, false) && bool2(true)).y; out[4] = (!l).z; out[5] = (a != b).y; out[6] = (int2(0, 3) || int2(0)).y;", [1, 1, 1, 0, 1, 0, 1]),
        F("`?:` with a scalar condition, of vectors too", "float3 a(1), b(2); out[0] = (i == 0 ? a : b).x; device float3* p = (device float3*)(out + 4); *p = 5; float3 c = i ? a : *p; out[1] = c.y;", [1, 5]),
        F("pointers: arithmetic, comparison, `&`, `*`, `->`", "device float* p = out + 3; *p = 2; p[-1] = 1; out[0] = p - out; out[1] = p > out; thread float x = 4; thread float* q = &x; *q += 1; out[4] = x;", [3, 1, 1, 2, 5]),
        F("division and remainder by zero: a value, no trap", "int z = int(out[9]); int x = 5 / z, y = 5 % z; uint2 v = uint2(7) / uint(z); out[0] = x == x && y == y && v.x == v.x;", [1]),
        F("shift by more than the width: modulo the width", "uint n = 33 + uint(out[9]); out[0] = 1u << n; out[1] = ushort(1) << (n - 32);", [2, 2]),
        F("shift by a vector of another integer type", "int2 s = int2(-3, 64) << uint2(2, 1); s >>= ushort2(1, 3); out[0] = s.x; out[1] = s.y; out[2] = (ulong4(1) << char4(0, 1, 2, 40)).w == 1ul << 40; out[3] = (5u << uint3(1)).y;", [-6, 16, 1, 10]),
        F("matrix `+`, `-`, by a scalar, `*` with vectors and matrices, `==`", "float2x3 a(float3(1, 2, 3), float3(4, 5, 6)); float3x2 b = transpose(a); float2x2 c = b * a; float3 d = a * float2(1, 1); float2 e = float3(1, 1, 1) * a; out[0] = c[0].x; out[1] = c[1].y; out[2] = d.z; out[3] = e.y; out[4] = (a + a)[1].x; out[5] = (2.0f * a - a)[0].y; out[6] = a == a; out[7] = (-a)[0].x; a *= 3.0f; out[8] = a[0].x; out[9] = (a / 3.0f)[1].z;", [14, 77, 9, 15, 8, 2, 1, -1, 3, 6]),
        F("matrices of `half`", "half2x2 a(1, 2, 3, 4); half2 v = a * half2(1, 1); out[0] = v.x; out[1] = (a * a)[1].y; out[2] = (a * 2.0h)[0].y;", [4, 22, 4]),
    ],
    "4 Address spaces": [
        F("`device`, `constant`, `thread`, `threadgroup`", "thread float x = 3; threadgroup float t[4]; t[i] = x; constant float& k = table[1]; out[0] = t[0] + k;", [23], before="constant float table[] = {10, 20};"),
        F("a pointer without address space", "thread float x = 1; float* p = &x; out[0] = *p;", says="pointer type must have explicit address space qualifier"),
        F("conversions between address spaces", "threadgroup float* p = out; *p = 1;", says="cannot initialize a variable of type 'threadgroup float *'"),
        F("overloads by address space", "threadgroup float t[1]; float x; out[0] = f(out); out[1] = f(t); out[2] = f(&x); out[3] = f(&k);", [1, 2, 3, 4], before="constant float k = 1; int f(device float*) { return 1; } int f(threadgroup float*) { return 2; } int f(thread float*) { return 3; } int f(constant float*) { return 4; }"),
        F("address-space qualified member functions", "S s{1}; threadgroup S t; t = s; out[0] = s.get() + t.get(); device S* d = (device S*)(out + 1); d->set(5);", [2, 5], before="struct S { float a; float get() const thread { return a; } float get() const threadgroup { return a; } void set(float x) device { a = x; } };"),
        F("`f() device const` beside `f() const`", "device S& d = *(device S*)out; d = S{3}; S s{4}; out[1] = d.get() + s.get() + (d == s);", [3, 7], before="struct S { float a; constexpr float get() const { return a; } constexpr float get() device const { return a; } bool operator==(S o) const { return a == o.a; } bool operator==(S o) device const { return a == o.a; } };"),
        F("member functions that return references, one for each address space", "Row<float> l; l.at(1) = 1; threadgroup Row<float> t; t.at(1) = 2; device Row<float>* d = (device Row<float>*)(out + 4); d->at(1) = 4; const thread Row<float>& n = l; out[0] = n.at(1) + t.at(1) + d->at(1); out[1] = c.at(2);", [7, 30, 0, 0, 0, 4], before="template <class T> struct Row { T a[3]; thread T& at(int i) thread { return a[i]; } const thread T& at(int i) const thread { return a[i]; } device T& at(int i) device { return a[i]; } const device T& at(int i) const device { return a[i]; } const constant T& at(int i) const constant { return a[i]; } threadgroup T& at(int i) threadgroup { return a[i]; } }; constant Row<float> c = {{10, 20, 30}};"),
        F("addresses of what these return", "Row<float> l; *&l[1] = 1; threadgroup Row<float> t; threadgroup float* p = &t[1]; *p = 2; device Two* d = (device Two*)(out + 6); device float* q = &d->rows[1][2]; *q = 3; constant float* r = &c[2]; out[0] = l[1]; out[1] = p[0] + (int(t[1]) & int(t[1])); out[2] = *r; device Row<float>* e = (device Row<float>*)out; device float* s = &e->at(3); *s = 8; out[4] = *next(t, true); threadgroup uchar* b = reinterpret_cast<threadgroup uchar*>(&t.at(0)); out[5] = b[4] == ((threadgroup uchar*)&t[1])[0];", [1, 4, 30, 8, 2, 1, 0, 0, 0, 0, 0, 0, 3], before="template <class T> struct Row { T a[4]; thread T& operator[](size_t i) thread { return a[i]; } const thread T& operator[](size_t i) const thread { return a[i]; } device T& operator[](size_t i) device { return a[i]; } const device T& operator[](size_t i) const device { return a[i]; } const constant T& operator[](size_t i) const constant { return a[i]; } threadgroup T& operator[](size_t i) threadgroup { return a[i]; } thread T& at(int i) thread { return a[i]; } device T& at(int i) device { return a[i]; } threadgroup T& at(int i) threadgroup { return a[i]; } }; struct Two { Row<float> rows[2]; }; constant Row<float> c = {{10, 20, 30, 40}}; threadgroup float* next(threadgroup Row<float>& t, bool is) { return is ? &t[1u] : nullptr; }"),
        F("addresses of what lies in these, behind pointers and in parentheses", "threadgroup Table t; Args a{&t, (device Table*)out, &held}; threadgroup float* p = &(*a.t).rows[1][2]; *p = 1; device float* q = (&(*a.d).rows[1][i]); *q = 2; const constant Row<float>* r = &a.c->rows[1]; constant float* s = &((*r)[3]); out[1] = *p + *s; out[2] = at(&a.t->rows.row(1)[2]);", [0, 41, 1, 0, 2], before="template <class T> struct Row { T a[4]; thread T& operator[](size_t i) thread { return a[i]; } const thread T& operator[](size_t i) const thread { return a[i]; } device T& operator[](size_t i) device { return a[i]; } const device T& operator[](size_t i) const device { return a[i]; } const constant T& operator[](size_t i) const constant { return a[i]; } threadgroup T& operator[](size_t i) threadgroup { return a[i]; } thread T& row(int i) thread { return a[i]; } device T& row(int i) device { return a[i]; } threadgroup T& row(int i) threadgroup { return a[i]; } }; struct Table { Row<Row<float>> rows; }; constant Table held = {{{{{0, 0, 0, 0}}, {{10, 20, 30, 40}}}}}; struct Args { threadgroup Table* t; device Table* d; const constant Table* c; }; float at(threadgroup float* p) { return *p; }"),
        F("addresses of a matrix's columns and of an `array`'s elements", "device float2x2& m = *(device float2x2*)out; device float2* p = &m[1]; *p = float2(1, 2); threadgroup array<float, 4> t; threadgroup float* q = &t[3]; *q = 3; out[0] = t[3] + get(&held[1]);", [8, 0, 1, 2], before="constant array<float, 2> held = {4, 5}; float get(constant float* p) { return *p; }"),
        F("references to these", "device Row& d = *(device Row*)(out + 4); device float& r = d[1]; r = 1; put(d[2], 2); device float2& v = (*(device float2x2*)out)[1]; v = 3; constant float& s = held[1]; out[1] = s + first(held);", [0, 9, 3, 3, 0, 1, 2], before="struct Row { float a[4]; device float& operator[](size_t i) device { return a[i]; } threadgroup float& operator[](size_t i) threadgroup { return a[i]; } }; void put(device float& x, float y) { x = y; } constant array<float, 2> held = {4, 5}; constant float& first(constant array<float, 2>& x) { return x[0]; }"),
        F("a member function that returns a reference or a pointer into one address space", "device Row* d = (device Row*)(out + 2); device float& r = d->at(1); r = 4; put(d->at(2)); *d->end() = 6; out[0] = *d->begin() + d->get(1);", [4, 0, 0, 4, 5, 6], before="struct Row { float a[3]; device float& at(int i) device { return a[i]; } const device float& get(int i) const device { if (i < 0) return a[0]; return a[i]; } device float* begin() device { return a; } device float* end() device { return &a[3]; } }; void put(device float& x) { x = 5; }"),
        F("constants at program scope, arrays and structs of them", "out[0] = s.b[1] + m[1].y + e;", [11.5], before="struct S { int a; int b[2]; }; constant S s = {1, {2, 3}}; constant float2 m[2] = {float2(1, 2), float2(3, 4)}; static constant constexpr float e = 4.5f;"),
        F("a variable at program scope outside `constant`", before="float x = 1;", says="must reside in the constant address space"),
        F("`threadgroup` variables that begin as zero", "threadgroup float t[40] = {0}; threadgroup int n = 0; threadgroup half4 v[2] = {(T)0.h}; threadgroup float2 z[2] = {float2(0), (float2)(0.0f)}; if (i == 3) { t[i] += 2; n = 5; } threadgroup_barrier(mem_flags::mem_threadgroup); if (i == 0) { out[0] = t[3]; out[1] = t[39]; out[2] = n + v[1].y + z[1].x; }", [2, 0, 5], threads=40, before="using T = half4;"),
        F("`threadgroup` variables with another initial value", "threadgroup float t = 1; out[0] = t;", says="a variable in the threadgroup address space cannot be initialized"),
        F("`threadgroup` variables in a function", "out[0] = f();", before="float f() { threadgroup float s[4]; s[0] = 1; return s[0]; }", says="must be declared in a kernel function"),
        F("`threadgroup` arguments", "t[i] = 2; threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = t[3 - i];", [2, 2, 2, 2], args=", threadgroup float* t [[threadgroup(0)]]", threads=4),
        F("`coherent`, `coherent(device)`, `coherent(system)` buffers (3.2)", "p[0] = 1; q[0] = 2; r[0] = 3; B b{s}; b.p[0] = 4; int coherent = 5; out[0] = p[0]; out[1] = q[0]; out[2] = r[0]; out[3] = s[0]; out[4] = coherent;", [1, 2, 3, 4, 5], before="struct B { coherent device float* p; };", args=", coherent(device) device float* p [[buffer(1)]], coherent device float* q [[buffer(2)]], device coherent(system) float* r [[buffer(3)]], volatile coherent device float* u [[buffer(4)]], device float* s [[buffer(5)]]"),
        F("`memory_coherence_device` of a texture (3.2)", "t.write(float4(2), uint2(0)); out[0] = t.read(uint2(0)).x;", [2], args=", texture2d<float, access::read_write, memory_coherence_device> t [[texture(10)]]"),
        F("vectors in `volatile` memory", "volatile device float4& v = *(volatile device float4*)out; v = float4(1, 2, 3, 4); float4 w = v; v = v + w; v.x = 7;", [7, 4, 6, 8]),
        F("`volatile` in every address space", "volatile device float* p = out; volatile float x = 2; *p = x; threadgroup volatile float t[1]; t[0] = 3; out[1] = t[0];", [2, 3]),
        _never("`threadgroup_imageblock`", "struct P { half4 c; }; void f(threadgroup_imageblock P* p) {}", "'threadgroup_imageblock': image blocks belong to tile shading, which this compute compiler does not have"),
        _never("`ray_data`", "void f(ray_data float& x) {}", "'ray_data': ray tracing is not supported by this compute compiler"),
        _never("`object_data`", "void f(object_data float& x) {}", "'object_data': mesh shaders belong to rendering, which this compute compiler does not have"),
    ],
    "5.1 Functions": [
        F("`kernel`, `[[kernel]]`", "out[0] = 1;", [1], before="[[kernel]] void other1(device float* out) { out[0] = 2; }"),
        _never("`vertex`, `[[vertex]]`", "vertex float4 v(uint i [[vertex_id]]) { return i; }", "'vertex': vertex functions belong to rendering, which this compute compiler does not have"),
        _never("`fragment`, `[[fragment]]`", "fragment float4 f() { return 1; }", "'fragment': fragment functions belong to rendering, which this compute compiler does not have"),
        _never("`[[patch]]` (tessellation)", "[[patch(triangle, 3)]] float4 v() { return 1; }", "'[[patch]]': tessellation belongs to rendering, which this compute compiler does not have"),
        _never("`[[object]]`", "[[object]] void o() {}", "'[[object]]': mesh shaders belong to rendering, which this compute compiler does not have"),
        _never("`[[mesh]]`", "[[mesh]] void m() {}", "'[[mesh]]': mesh shaders belong to rendering, which this compute compiler does not have"),
        _never("`[[intersection(...)]]`", "[[intersection(triangle)]] bool b() { return true; }", "'[[intersection]]': ray tracing is not supported by this compute compiler"),
        F("`[[visible]]`, `[[stitchable]]` functions, called by name", "out[0] = f(3) + g(4);", [7], before="[[visible]] float f(float x) { return x; } [[stitchable]] float g(float x) { return x; }"),
        F("`[[host_name]]` and kernel templates", "out[0] = 1;", [1], before='template <typename T, int n> kernel void scale(device T* x, uint i [[thread_position_in_grid]]) { x[i] *= n; } template [[host_name("scale2")]] [[kernel]] void scale<half, 2>(device half*, uint); template [[host_name("scale3")]] kernel void scale<float, 3>(device float*, uint);'),
        F("functions that kernels call, `inline`, `static`, `METAL_FUNC`, default arguments", "out[0] = f(1) + g() + h(2);", [8], before="static inline int f(int x, int y = 2) { return x + y; } METAL_FUNC int g() { return 3; } namespace { int h(int x) { return x; } }"),
        F("`[[max_total_threads_per_threadgroup(n)]]`", "out[0] = 1;", [1], before="[[max_total_threads_per_threadgroup(64)]] kernel void other2(device float* out) { out[0] = 2; }"),
        F("`[[required_threads_per_threadgroup]]`", "out[0] = 1;", [1], before="[[required_threads_per_threadgroup(8, 1, 1)]] kernel void other3(device float* out) { out[0] = 2; }"),
        F("a kernel that returns a value", before="kernel int k2(device int* x) { return 1; }", says="must have void return type"),
    ],
    "5.2 Arguments": [
        F("`[[buffer(n)]]`, `[[texture(n)]]`, `[[sampler(n)]]`, `[[threadgroup(n)]]`, and the next index without one", "out[0] = 1; q[0] = 2;", [1], args=", device float* q, constant float* r [[buffer(4)]], texture2d<float> t [[texture(2)]], sampler s [[sampler(0)]]"),
        F("one index twice", says="buffer index 0 is used by 'out' and 'q'", args=", device float* q [[buffer(0)]]"),
        F("an argument by value", says="invalid type 'float' for input 'q' of a kernel function", args=", float q"),
        F("`thread_position_in_grid`, `..._in_threadgroup`, `threadgroup_position_in_grid`, `threads_per_grid`, `threads_per_threadgroup`, `threadgroups_per_grid`, `grid_size`, `grid_origin`", "if (a.x == 3) { out[0] = a.x; out[1] = b.x; out[2] = c.x; out[3] = d.x; out[4] = e.x; out[5] = f.x; }", [3, 3, 0, 4, 4, 1], args=", uint3 a [[thread_position_in_grid]], ushort3 b [[thread_position_in_threadgroup]], uint3 c [[threadgroup_position_in_grid]], uint3 d [[threads_per_grid]], uint3 e [[threads_per_threadgroup]], uint3 f [[threadgroups_per_grid]], uint3 g [[grid_size]], uint3 h [[grid_origin]]", threads=4),
        F("`thread_index_in_threadgroup`, `..._in_simdgroup`, `..._in_quadgroup`, `simdgroup_index_in_threadgroup`, `quadgroup_index_in_threadgroup`", "if (i == 37) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; }", [37, 5, 1, 1, 9], args=", uint a [[thread_index_in_threadgroup]], ushort b [[thread_index_in_simdgroup]], uint c [[thread_index_in_quadgroup]], uint d [[simdgroup_index_in_threadgroup]], uint e [[quadgroup_index_in_threadgroup]]", threads=64),
        F("`threads_per_simdgroup`, `thread_execution_width`, `simdgroups_per_threadgroup`, `dispatch_threads_per_threadgroup`, `dispatch_simdgroups_per_threadgroup`, `quadgroups_per_threadgroup`", "out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f;", [32, 32, 2, 64, 2, 16], args=", uint a [[threads_per_simdgroup]], uint b [[thread_execution_width]], uint c [[simdgroups_per_threadgroup]], uint d [[dispatch_threads_per_threadgroup]], uint e [[dispatch_simdgroups_per_threadgroup]], uint f [[quadgroups_per_threadgroup]]", threads=64),
        F("a position of another type", says="attribute 'thread_position_in_grid' needs ushort or uint", args=", float p [[thread_position_in_grid]]"),
        F("`[[stage_in]]` of a kernel", says="'[[stage_in]]': vertex and stage-in descriptors are not supported by this compute compiler", before="struct S { float a [[attribute(0)]]; };", args=", S s [[stage_in]]"),
        F("structs of positions, by value", says="invalid type 'S'", before="struct S { uint a; };", args=", S s"),
    ],
    "5.8 Function constants": [
        F("`constant T c [[function_constant(n)]]` of every scalar and vector type of up to 16 bytes", "out[0] = is_function_constant_defined(a) ? a : 7; out[1] = is_function_constant_defined(v) ? v.x : 8; out[2] = is_function_constant_defined(h) ? h : 9;", [7, 8, 9], before="constant int a [[function_constant(0)]]; constant float4 v [[function_constant(1)]]; constant half h [[function_constant(2)]]; constant bool b [[function_constant(3)]]; constant ushort3 u [[function_constant(4)]];"),
        F("constants derived from function constants, `is_function_constant_defined`", "out[0] = n * 2;", [10], before="constant int a [[function_constant(0)]]; constant int n = is_function_constant_defined(a) ? a : 5;"),
        F("a derived constant with attributes", "out[0] = size.x; out[1] = size.y; out[2] = size.z;", [7, 20, 8], before="constant uint a_tmp [[function_constant(0)]]; constant uint a [[maybe_unused]] = is_function_constant_defined(a_tmp) ? a_tmp : 7u; constant uint3 size [[maybe_unused]] = uint3(a, 20u, a + 1);"),
        F("an argument that a function constant enables", "out[0] = 1; if (on) q[0] = 1;", [1], before="constant bool o [[function_constant(3)]]; constant bool on = is_function_constant_defined(o) ? o : false;", args=", device float* q [[buffer(5), function_constant(on)]], texture2d<float> t [[texture(20), function_constant(on)]]"),
        F("a function constant that is no scalar or vector", before="struct S { int a; }; constant S s [[function_constant(0)]];", says="cannot have type 'S'"),
        F("a function constant of 32 bytes: `long3`, `ulong4`", before="constant long3 c [[function_constant(0)]];", code="out[0] = c.x;", says="function constant 'c' has 32 bytes ('long3')"),
        F("an index twice", before="constant int a [[function_constant(1)]]; constant int b [[function_constant(1)]];", code="out[0] = a + b;", says="function constant index 1 is used by 'a' and 'b'"),
    ],
    "5.9 Program scope built-ins and bindings": [
        F("positions as variables at program scope", "out[0] = 1;", before="uint3 p [[thread_position_in_grid]];", says="'p': built-ins and bindings at program scope are not supported by this compute compiler"),
    ],
    "6.2 Common functions": [
        F("`clamp`, `mix`, `saturate`, `sign`, `smoothstep`, `step`, of `half` and `float`", "out[0] = clamp(5.0f, 0.0f, 2.0f); out[1] = mix(1.0h, 3.0h, 0.5h); out[2] = saturate(float3(-1, 0.5f, 2)).z; out[3] = sign(-3.0h); out[4] = smoothstep(0.0f, 2.0f, 1.0f); out[5] = step(float2(1), float2(0, 2)).y;", [2, 2, 1, -1, 0.5, 1]),
        F("mixtures of scalars and vectors in the calls", "out[0] = clamp(float3(5), 0, 2).y; out[1] = mix(float2(0), float2(4), 0.25f).x; out[2] = smoothstep(0.0f, 1.0f, float2(0.5f)).y; out[3] = step(0.5f, float3(1)).x; out[4] = max(half2(1), 2.0h).x;", [2, 1, 0.5, 1, 2]),
    ],
    "6.3 Integer functions": [
        F("`abs`, `absdiff`, `addsat`, `subsat`, `hadd`, `rhadd`", "out[0] = abs(-3); out[1] = absdiff(-5, 7); out[2] = addsat(uchar(250), uchar(9)); out[3] = subsat(char(-120), char(100)); out[4] = hadd(3, 4); out[5] = rhadd(uint2(3), uint2(4)).x; out[6] = absdiff(long(1), long(9));", [3, 12, 255, -128, 3, 4, 8]),
        F("`clamp`, `max`, `min`, `max3`, `min3`, `median3`", "out[0] = clamp(5, 0, 3); out[1] = max(short(2), short(3)); out[2] = min(ulong2(4, 5), ulong2(5, 4)).y; out[3] = max3(1, 5, 3); out[4] = min3(1u, 5u, 3u); out[5] = median3(int2(9), int2(2), int2(4)).x;", [3, 3, 4, 5, 1, 4]),
        F("`clz`, `ctz`, `popcount`, `reverse_bits`, `rotate`", "out[0] = clz(1u); out[1] = ctz(uchar(0)); out[2] = popcount(ushort(0xff)); out[3] = reverse_bits(1u) == 0x80000000u; out[4] = rotate(uchar(0x81), uchar(1)); out[5] = clz(short2(1)).y; out[6] = popcount(ulong(-1));", [31, 8, 8, 1, 3, 15, 64]),
        F("`extract_bits`, `insert_bits`", "out[0] = extract_bits(0xf0u, 4u, 4u); out[1] = extract_bits(int(0xf0), 4u, 4u); out[2] = insert_bits(0u, 0xfu, 4u, 2u); out[3] = extract_bits(uint3(0x30), 4u, 2u).z; out[4] = extract_bits(1u, 0u, 0u);", [15, -1, 48, 3, 0]),
        F("`mulhi`, `madhi`, `madsat`, `mul24`, `mad24`", "out[0] = mulhi(1 << 30, 8); out[1] = madhi(1u << 31, 4u, 1u); out[2] = madsat(uchar(20), uchar(20), uchar(1)); out[3] = mul24(3, -4); out[4] = mad24(3u, 4u, 5u); out[5] = mulhi(1l << 62, 8l);", [2, 3, 255, -12, 17, 2]),
    ],
    "6.4 Relational functions": [
        F("`all`, `any`, `select`", "out[0] = all(bool3(true)); out[1] = any(bool4(false, true, false, false)); out[2] = select(1.0f, 2.0f, true); out[3] = select(int3(1), int3(2), bool3(false, true, false)).y; out[4] = float(select(bfloat(1), bfloat(2), true)); out[5] = select(float2(1), float2(2), bool2(true)).x; out[6] = select(half4(1), half4(2), false).x;", [1, 1, 2, 2, 2, 2, 1]),
        F("`isfinite`, `isinf`, `isnan`, `isnormal`, `isordered`, `isunordered`, `signbit`", "float z = out[9]; out[0] = isfinite(1.0f) + isinf(1 / z); out[1] = isnan(z / z); out[2] = isnormal(1e-40f); out[3] = isordered(z, z / z); out[4] = isunordered(half2(1), half2(NAN)).x; out[5] = signbit(-z); out[6] = signbit(float3(-1)).z;", [2, 1, 0, 0, 1, 1, 1]),
        F("the same of `bfloat`", "bfloat b = bfloat(NAN); out[0] = isnan(b); out[1] = isinf(bfloat(1)); out[2] = isfinite(bfloat2(1, 2)).y; out[3] = signbit(bfloat(-1));", [1, 0, 1, 1]),
    ],
    "6.5 Math functions": [
        F("`acos` to `trunc`, of `float` and `half`, scalars and vectors", "out[0] = acos(1.0f) + asin(0.0h) + atan(0.0f) + acosh(1.0f) + asinh(0.0f) + atanh(0.0f); out[1] = cos(0.0f) + sin(0.0h) + tan(0.0f) + cosh(0.0f) + sinh(0.0f) + tanh(0.0h); out[2] = exp(0.0f) + exp2(1.0h) + exp10(0.0f); out[3] = log(1.0f) + log2(8.0h) + log10(10.0f); out[4] = sqrt(4.0f) + rsqrt(4.0h); out[5] = ceil(1.5f) + floor(1.5h) + trunc(-1.5f) + round(2.5f) + rint(2.5h); out[6] = sinpi(0.5f) + cospi(1.0f) + tanpi(0.25f); out[7] = fract(1.25f) + fabs(-1.0h) + abs(-2.0f); out[8] = atan2(0.0f, 1.0f) + fmod(5.0f, 3.0f) + pow(2.0f, 3.0f) + powr(2.0f, 2.0f); out[9] = sqrt(float3(9)).z + floor(half4(1.5h)).w;", [0, 2, 4, 4, 2.5, 7, 1, 3.25, 14, 4]),
        F("`copysign`, `divide`, `fdim`, `fma`, `fmax`, `fmin`, `fmax3`, `fmin3`, `fmedian3`, `max3`, `min3`, `median3`", "out[0] = copysign(1.0f, -2.0f); out[1] = divide(1.0f, 4.0f); out[2] = fdim(3.0h, 1.0h); out[3] = fma(2.0f, 3.0f, 1.0f); out[4] = fmax(1.0f, 2.0f) + fmin(half2(1), half2(2)).x; out[5] = fmax3(1.0f, 5.0f, 3.0f) + fmin3(1.0f, 5.0f, 3.0f) + fmedian3(1.0f, 5.0f, 3.0f); out[6] = max3(1.0h, 5.0h, 3.0h) + min3(1.0f, 5.0f, 3.0f) + median3(1.0f, 5.0f, 3.0f);", [-1, 0.25, 2, 7, 3, 9, 9]),
        F("`frexp`, `modf`, `sincos` into any address space; `ilogb`, `ldexp`, `nextafter`", "int e; float w, c; threadgroup float t[1]; out[0] = frexp(8.0f, e) + e; out[1] = modf(2.5f, w) + w; out[2] = sincos(0.0f, c) + c; out[3] = modf(2.5f, out[8]) + modf(3.5f, t[0]) + t[0]; out[4] = ilogb(8.0h) + ldexp(1.0f, 3); out[5] = nextafter(1.0h, 2.0h) > 1.0h; int2 e2; out[6] = frexp(half2(4), e2).x + e2.y;", [4.5, 2.5, 1, 4, 11, 1, 3.5]),
        F("a `bfloat` argument becomes a `float`", "out[0] = sqrt(4.0bf) + max(1.0bf, 2.0bf) + exp(bfloat(0));", [5]),
        F("`precise::` and `fast::`", "out[0] = precise::exp(0.0f) + fast::exp(0.0f); out[1] = precise::sqrt(float2(4)).y + fast::rsqrt(4.0f); out[2] = metal::fast::pow(2.0f, 3.0f) + metal::precise::divide(1.0f, 2.0f);", [2, 2.5, 8.5]),
        F("constants `M_PI_F`, `M_E_H`, `INFINITY`, `NAN`, `MAXFLOAT`, `HUGE_VALF`, ...", "out[0] = M_PI_F > 3.14f && M_PI_F < 3.15f; out[1] = M_E_H > 2.7h; out[2] = isinf(INFINITY) && isnan(NAN) && isinf(HUGE_VALF); out[3] = MAXFLOAT > 1e38f && FLT_EPSILON < 1e-6f; out[4] = M_PI_BF > 3; out[5] = INT_MAX; out[6] = HALF_MAX; out[7] = BFLT_MAX > 1e38f;", [1, 1, 1, 1, 1, 2147483648.0, 65504, 1]),
        F("`numeric_limits<T>`", "out[0] = numeric_limits<int>::max() == INT_MAX; out[1] = numeric_limits<half>::max(); out[2] = numeric_limits<uchar>::lowest(); out[3] = numeric_limits<float>::epsilon() == FLT_EPSILON; out[4] = float(numeric_limits<bfloat>::min()) > 0; out[5] = isinf(numeric_limits<float>::infinity()); out[6] = numeric_limits<short>::digits; out[7] = numeric_limits<bool>::max(); out[8] = isnan(numeric_limits<half>::quiet_NaN()); out[9] = metal::numeric_limits<ulong>::is_signed;", [1, 65504, 0, 1, 1, 1, 15, 1, 1, 0]),
        F("`numeric_limits` of a vector and of a program's own type", "out[0] = numeric_limits<half4>::max(); out[1] = numeric_limits<S>::max().x;", [65504, 3], before="#include <metal_limits>\nstruct S { int x; }; namespace metal { template <> struct _numeric_limits_impl<S> { static S max() { return {3}; } }; }"),
    ],
    "6.6 Matrix functions": [
        F("`determinant`, `transpose`", "out[0] = determinant(float2x2(1, 2, 3, 4)); out[1] = determinant(half3x3(2.0h)); out[2] = transpose(float2x3(float3(1, 2, 3), float3(4, 5, 6)))[2].y; out[3] = determinant(float4x4(2.0f));", [-2, 8, 6, 16]),
    ],
    "6.7 SIMD-group matrix functions": [
        F("`simdgroup_load`, `simdgroup_store`, device and threadgroup, origin, transposed", "threadgroup float t[64]; for (uint k = i; k < 64; k += 32) t[k] = k; simdgroup_barrier(mem_flags::mem_threadgroup); simdgroup_float8x8 a; simdgroup_load(a, t, 8, ulong2(0, 0), true); simdgroup_barrier(mem_flags::mem_threadgroup); simdgroup_store(a, t); simdgroup_barrier(mem_flags::mem_threadgroup); out[i % 16] = t[i % 16];", [0, 8, 16, 24, 32, 40, 48, 56, 1], threads=32),
        F("`simdgroup_multiply`, `simdgroup_multiply_accumulate`, operator `*`", "simdgroup_float8x8 a(2.0f), b(3.0f), c(1.0f), d, e; simdgroup_multiply(d, a, b); simdgroup_multiply_accumulate(e, a, b, c); simdgroup_float8x8 f = a * b; if (i == 0) { out[0] = d.thread_elements()[0]; out[1] = e.thread_elements()[0]; out[2] = f.thread_elements()[0]; out[3] = f.thread_elements()[1]; }", [6, 7, 6, 0], threads=32),
        F("products of `half`, `bfloat`, and mixed ones into `float`", "simdgroup_half8x8 a(2.0h), g; simdgroup_bfloat8x8 b(3.0bf), h; simdgroup_float8x8 c(1.0f), d, e; simdgroup_multiply_accumulate(d, a, b, c); simdgroup_multiply_accumulate(e, a, c, d); simdgroup_multiply(g, a, a); simdgroup_multiply(h, b, b); if (i == 0) { out[0] = d.thread_elements()[0]; out[1] = e.thread_elements()[0]; out[2] = g.thread_elements()[0]; out[3] = float(h.thread_elements()[0]); }", [7, 9, 4, 9], threads=32),
    ],
    "6.8 Geometric functions": [
        F("`cross`, `distance`, `distance_squared`, `dot`, `faceforward`, `length`, `length_squared`, `normalize`, `reflect`, `refract`", "float3 a(3, 0, 4), b(0, 1, 0); out[0] = cross(float3(1, 0, 0), b).z; out[1] = distance(a, float3(0)) + distance_squared(a, float3(0)); out[2] = dot(a, b); out[3] = length(a) + length_squared(half2(1, 2)); out[4] = normalize(a).x; out[5] = reflect(float2(1, -1), float2(0, 1)).y; out[6] = faceforward(b, float3(0, -1, 0), b).y; out[7] = refract(float3(0, -1, 0), b, 1.0f).y;", [1, 30, 0, 10, 0.6, 1, 1, -1]),
    ],
    "6.9 Synchronization and SIMD-group functions": [
        F("`threadgroup_barrier`, `simdgroup_barrier`, `mem_flags`", "threadgroup float t[64]; t[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); out[i % 8] = t[63 - i % 8]; simdgroup_barrier(mem_flags::mem_none); threadgroup_barrier(mem_flags::mem_texture);", [63, 62, 61], threads=64),
        F("`simd_sum`, `simd_product`, `simd_min`, `simd_max`, `simd_and`, `simd_or`, `simd_xor` of every type", "float a = simd_sum(float(i)); int b = simd_max(int(i)); half c = simd_min(half(i) + 1); uint d = simd_or(1u << i), e = simd_and(i | 64u), f = simd_xor(i); short g = simd_sum(short(1)); uchar h = simd_max(uchar(i)); float2 k = simd_sum(float2(i, 1)); float l = simd_product(i == 3 ? 2.0f : 1.0f); if (i == 0) { out[0] = a; out[1] = b; out[2] = c; out[3] = d == 0xffffffff; out[4] = e; out[5] = f; out[6] = g; out[7] = h; out[8] = k.x + k.y; out[9] = l; }", [496, 31, 1, 1, 64, 0, 32, 31, 528, 2], threads=32),
        F("the same of `bfloat`, `long`, `ulong`, `bool` vectors where MSL has them", "bfloat a = simd_sum(bfloat(1)); long b = simd_sum(long(i)); ulong c = simd_max(ulong(i) << 33); half4 d = simd_sum(half4(1)); bfloat e = simd_max(bfloat(int(i))); ushort3 f = simd_min(ushort3(i + 3)); if (i == 0) { out[0] = a; out[1] = b; out[2] = c == 31ul << 33; out[3] = d.w; out[4] = e; out[5] = f.y; }", [32, 496, 1, 32, 31, 3], threads=32),
        F("`simd_prefix_inclusive_sum`, `..._exclusive_sum`, `..._product`", "float a = simd_prefix_inclusive_sum(1.0f); int b = simd_prefix_exclusive_sum(int(i)); uint c = simd_prefix_inclusive_product(i < 4 ? 2u : 1u); half d = simd_prefix_exclusive_product(i < 2 ? half(3) : half(1)); if (i == 5) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; }", [6, 10, 16, 9], threads=32),
        F("`simd_shuffle`, `_xor`, `_up`, `_down`, `_rotate_up`, `_rotate_down`, `_and_fill_up`, `_and_fill_down`", "float x = i; float a = simd_shuffle(x, 7), b = simd_shuffle_xor(x, 1), c = simd_shuffle_up(x, 2), d = simd_shuffle_down(x, 3), e = simd_shuffle_rotate_up(x, 6), f = simd_shuffle_rotate_down(x, 30), g = simd_shuffle_and_fill_up(x, x + 100, 6), h = simd_shuffle_and_fill_down(x, x + 100, 30); if (i == 4) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = h; }", [7, 5, 2, 7, 30, 2, 130, 102], threads=32),
        F("shuffles of `long4`, `ulong3` and other types of more than 16 bytes", "long4 x(i, -1, 2, long(i) << 33); long4 a = simd_shuffle(x, 3), b = quad_broadcast(x, 1); ulong3 c = simd_shuffle_and_fill_up(ulong3(i), ulong3(1ul << 40), 1); if (i == 0) { out[0] = a.x; out[1] = a.y; out[2] = a.w >> 33; out[3] = b.w >> 33; out[4] = c.z >> 40; } else if (i == 1) out[5] = c.z + 7;", [3, -1, 3, 1, 1, 7], threads=32),
        F("`simd_broadcast`, `simd_broadcast_first`, `simd_is_first`", "half a = simd_broadcast(half(i), 9); int b = simd_broadcast_first(int(i) + 3); bool c = simd_is_first(); char4 d = simd_broadcast(char4(i), 3); if (i == 0) { out[0] = a; out[1] = b; out[2] = c; out[3] = d.z; }", [9, 3, 1, 3], threads=32),
        F("`simd_ballot`, `simd_all`, `simd_any`, `simd_active_threads_mask`, `simd_vote`", "simd_vote v = simd_ballot(i < 3); bool a = simd_all(i < 99), b = simd_any(i == 99); ulong m = (ulong)v; simd_vote n = simd_active_threads_mask(); if (i == 0) { out[0] = m; out[1] = a; out[2] = b; out[3] = n.all(); out[4] = (v & n).any(); }", [7, 1, 0, 1, 1], threads=32),
        F("`quad_*`: sums, shuffles, broadcast, ballot, prefix", "float x = i; float a = quad_sum(x), b = quad_shuffle(x, 2), c = quad_broadcast(x, 3), d = quad_shuffle_xor(x, 1), e = quad_prefix_inclusive_sum(x); half f = quad_max(half(x)); int g = quad_min(int(i)); quad_vote v = quad_ballot(i % 2); bool h = quad_all(true), k = quad_any(i == 4); bfloat l = quad_sum(bfloat(1)); float m = quad_shuffle_rotate_down(x, 1); if (i == 4) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = (quad_vote::vote_t)v; out[8] = h + k; out[9] = l; out[10] = m; }", [22, 6, 7, 5, 4, 7, 4, 10, 2, 4, 5], threads=32),
        F("in divergent branches, over the active threads", "if (i % 2) { float s = simd_sum(1.0f); out[i % 8] = s; }", [0, 16, 0, 16], threads=32),
        F("`atomic_thread_fence`", "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); out[0] = 1;", [1]),
        F("`thread_scope_system`", "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_system); out[0] = 1;", [1]),
    ],
    "6.10, 6.11 Graphics functions": [
        _never("`dfdx`, `dfdy`, `fwidth`", "float f(float x) { return dfdx(x); }", "'dfdx': derivatives and other fragment functions belong to rendering, which this compute compiler does not have"),
        _never("`discard_fragment`", "void f() { discard_fragment(); }", "'discard_fragment': derivatives and other fragment functions belong to rendering, which this compute compiler does not have"),
        _never("`interpolant<T, P>`", "struct V { interpolant<float, interpolation::perspective> x; };", "'interpolant': derivatives and other fragment functions belong to rendering, which this compute compiler does not have"),
    ],
    "6.12 Texture functions": [
        F("`sample` with `level`, `bias`, `gradient2d`, `min_lod_clamp`, offsets", "constexpr sampler s(coord::pixel); out[0] = t.sample(s, float2(1.5f, 0.5f), level(0)).x; out[1] = t.sample(s, float2(1.5f, 0.5f), int2(1, 1)).x; out[2] = t.sample(s, float2(1.5f, 0.5f), bias(0.0f)).x; out[3] = t.sample(s, float2(1.5f, 0.5f), gradient2d(float2(0), float2(0))).x; out[4] = t.sample(s, float2(1.5f, 0.5f), level(0), int2(1, 0)).x; out[5] = t.sample(s, float2(0.5f), min_lod_clamp(0)).x;", [1, 12, 1, 1, 2, 0], args=", texture2d<float> t [[texture(2)]]"),
        F("`sample` of 1D, 3D and array textures", "constexpr sampler s(coord::pixel), n; out[0] = a.sample(s, 2.5f).x; out[1] = b.sample(s, float3(1.5f)).x; out[2] = c.sample(s, float2(1.5f, 1.5f), 1).x; out[3] = d.sample(n, 0.4f, 1).x;", [2, 111, 111, 11], args=", texture1d<float> a [[texture(0)]], texture3d<float> b [[texture(4)]], texture2d_array<float> c [[texture(3)]], texture1d_array<float> d [[texture(1)]]"),
        F("`sample` of cubes, seamless at their edges", "constexpr sampler s; constexpr sampler l(filter::linear); out[0] = t.sample(s, float3(1, 0.1f, 0.1f)).x; out[1] = t.sample(s, float3(-1, 0.1f, 0.1f)).x; out[2] = t.sample(s, float3(0.1f, 1, 0.1f)).x; out[3] = t.sample(s, float3(0.1f, -1, 0.1f)).x; out[4] = t.sample(s, float3(0.1f, 0.1f, 1)).x; out[5] = t.sample(s, float3(0.1f, 0.1f, -1)).x; out[6] = a.sample(s, float3(1, 0.1f, 0.1f), 1).x; out[7] = t.sample(l, float3(1, 0, 1), level(0)).x;", [11, 112, 222, 312, 412, 511, 611, 216.5], args=", texturecube<float> t [[texture(5)]], texturecube_array<float> a [[texture(6)]]"),
        F("`gather`", "constexpr sampler s(coord::pixel); float4 g = t.gather(s, float2(1, 1)); out[0] = g.x; out[1] = g.y; out[2] = g.z; out[3] = g.w; out[4] = t.gather(s, float2(1, 1), int2(1, 0), component::y).x;", [10, 11, 1, 0, 11], args=", texture2d<float> t [[texture(2)]]"),
        F("`gather` of integers", "constexpr sampler s(coord::pixel); uint4 g = t.gather(s, float2(1, 1)); out[0] = g.x; out[1] = g.z;", [10, 1], args=", texture2d<uint> t [[texture(8)]]"),
        F("`sample`, `sample_compare`, `gather`, `gather_compare` of depth textures", "constexpr sampler s(coord::pixel, compare_func::greater_equal); out[0] = t.sample(s, float2(3.5f, 1.5f)); out[1] = t.sample_compare(s, float2(3.5f, 1.5f), 13.0f); out[2] = t.gather(s, float2(1, 1)).y; out[3] = t.gather_compare(s, float2(1, 1), 5.0f).w;", [13, 1, 11, 1], args=", depth2d<float> t [[texture(2)]]"),
        F("`read`, `write` with a mipmap level, `ushort` coordinates", "out[0] = t.read(ushort2(3, 1)).x; out[1] = t.read(uint2(3, 1), 0u).x; out[2] = t.get_num_mip_levels(); out[3] = t.read(uint2(99, 99)).x;", [13, 13, 1, 0], args=", texture2d<float> t [[texture(2)]]"),
        F("`get_width`, `get_height`, `get_depth`, `get_num_mip_levels`, `get_array_size`", "out[0] = a.get_width(0u); out[1] = a.get_height(0u); out[2] = b.get_depth(0u); out[3] = c.get_array_size(); out[4] = a.get_num_mip_levels();", [4, 2, 2, 2, 1], args=", texture2d<float> a [[texture(2)]], texture3d<float> b [[texture(4)]], texture2d_array<float> c [[texture(3)]]"),
        F("`is_null_texture`", "out[0] = is_null_texture(t); out[1] = is_null_texture(u);", [0, 1], args=", texture2d<float> t [[texture(2)]], texture2d<float> u [[texture(30)]]"),
        F("`atomic_load`, `store`, `exchange`, `compare_exchange_weak`, `fetch_add` and its kind on textures (3.1)", "out[0] = t.atomic_fetch_add(uint2(3, 1), 5u).x; out[1] = t.atomic_load(uint2(3, 1)).x; t.atomic_store(7, uint2(0, 1)); uint4 e = 6, f = 7; out[2] = t.atomic_compare_exchange_weak(uint2(0, 1), &e, 8u); out[3] = e.x; out[4] = t.atomic_compare_exchange_weak(uint2(0, 1), &f, 8u); out[5] = t.read(uint2(0, 1)).x; out[6] = b.atomic_fetch_min(1, -4).x; out[7] = b.atomic_exchange(1, 5).x; out[8] = a.atomic_fetch_max(uint2(1, 0), 1, 999u).x; out[9] = a.read(uint2(1, 0), 1).x; out[10] = t.atomic_fetch_add(uint2(100, 0), 1).x;", [13, 18, 0, 7, 1, 8, 1, -4, 101, 999, 0], args=", texture2d<uint, access::read_write> t [[texture(13)]], texture_buffer<int, access::read_write> b [[texture(14)]], texture2d_array<uint, access::read_write> a [[texture(15)]]"),
        F("`atomic_min`, `atomic_max` of 64 bits on textures", "t.atomic_max(uint2(0, 0), ulong4(1));", says="'atomic_max': 64-bit atomics on textures are not supported by this compute compiler", args=", texture2d<uint, access::read_write> t [[texture(8)]]"),
    ],
    "6.13 Imageblock functions": [
        _never("image block slices and coverage", "struct P { half4 c; }; void f(imageblock<P, imageblock_layout_implicit> b) {}", "'imageblock': image blocks belong to tile shading, which this compute compiler does not have"),
    ],
    "6.14 Pack and unpack": [
        F("`pack_float_to_unorm4x8`, `snorm4x8`, `unorm2x16`, `snorm2x16` and back, of `half` too", "out[0] = pack_float_to_unorm4x8(float4(1, 0, 0, 0)); out[1] = unpack_unorm4x8_to_float(0xff00u).y; out[2] = pack_float_to_snorm2x16(float2(1, 0)); out[3] = unpack_snorm4x8_to_half(0x7fu).x; out[4] = unpack_unorm2x16_to_float(0xffffu).x; out[5] = pack_half_to_unorm4x8(half4(0, 1, 0, 0));", [255, 1, 32767, 1, 1, 65280]),
        F("`unorm10a2`, `unorm565`, `srgb` packing", "out[0] = pack_float_to_unorm10a2(float4(1, 0, 0, 0)); out[1] = unpack_unorm565_to_float(0xf800).x; out[2] = pack_float_to_srgb_unorm4x8(float4(1, 0, 0, 0)); out[3] = unpack_unorm4x8_srgb_to_float(0xffu).x; out[4] = unpack_unorm10a2_to_float(0x3ffu).x; out[5] = pack_half_to_unorm565(half3(0, 0, 1)) > 0; out[6] = unpack_unorm4x8_srgb_to_half(0xffu).x;", [1023, 1, 255, 1, 1, 1, 1]),
    ],
    "6.15 Atomic functions": [
        F("`store`, `load`, `exchange`, `compare_exchange_weak` of `int`, `uint`, `bool`, `float`", "device atomic_int* a = (device atomic_int*)(out + 12); atomic_store_explicit(a, 3, memory_order_relaxed); out[0] = atomic_load_explicit(a, memory_order_relaxed); out[1] = atomic_exchange_explicit(a, 4, memory_order_relaxed); int e = 4; out[2] = atomic_compare_exchange_weak_explicit(a, &e, 9, memory_order_relaxed, memory_order_relaxed); out[3] = atomic_load_explicit(a, memory_order_relaxed); threadgroup atomic_bool b; atomic_store_explicit(&b, true, memory_order_relaxed); out[4] = atomic_load_explicit(&b, memory_order_relaxed); device atomic_float* f = (device atomic_float*)(out + 13); atomic_store_explicit(f, 1.5f, memory_order_relaxed); out[5] = atomic_exchange_explicit(f, 2.5f, memory_order_relaxed);", [3, 3, 1, 9, 1, 1.5]),
        F("`fetch_add`, `sub`, `min`, `max`, `and`, `or`, `xor`, device and threadgroup", "threadgroup atomic_uint t; atomic_store_explicit(&t, 12, memory_order_relaxed); out[0] = atomic_fetch_add_explicit(&t, 3, memory_order_relaxed); out[1] = atomic_fetch_sub_explicit(&t, 1, memory_order_relaxed); out[2] = atomic_fetch_and_explicit(&t, 6, memory_order_relaxed); out[3] = atomic_fetch_or_explicit(&t, 1, memory_order_relaxed); out[4] = atomic_fetch_xor_explicit(&t, 2, memory_order_relaxed); out[5] = atomic_fetch_max_explicit(&t, 20, memory_order_relaxed); out[6] = atomic_fetch_min_explicit(&t, 4, memory_order_relaxed); out[7] = atomic_load_explicit(&t, memory_order_relaxed); device atomic_int* d = (device atomic_int*)(out + 12); atomic_store_explicit(d, -5, memory_order_relaxed); atomic_fetch_max_explicit(d, -7, memory_order_relaxed); out[8] = atomic_fetch_min_explicit(d, -9, memory_order_relaxed); out[9] = atomic_load_explicit(d, memory_order_relaxed);", [12, 15, 14, 6, 7, 5, 20, 4, -5, -9]),
        F("`fetch_add` and `fetch_sub` of `atomic<float>`", "device atomic<float>* f = (device atomic<float>*)out; atomic_store_explicit(f, 0, memory_order_relaxed); atomic_fetch_add_explicit(f, 1.5f, memory_order_relaxed); atomic_fetch_sub_explicit(f, 0.5f, memory_order_relaxed);", [1]),
        F("`memory_order_acquire`, `release`, `acq_rel`, `seq_cst` (fences, 3.2)", "atomic_thread_fence(mem_flags::mem_device, memory_order_acquire); atomic_thread_fence(mem_flags::mem_threadgroup, memory_order_release, thread_scope_threadgroup); atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel); out[0] = 1;", [1]),
        F("`fetch_max` of `float`", "device atomic<float>* f = (device atomic<float>*)out; atomic_fetch_max_explicit(f, 1.0f, memory_order_relaxed);", says="no matching function for call to 'atomic_fetch_max_explicit'"),
        F("reading an atomic like a variable", "device atomic_uint* a = (device atomic_uint*)out; uint x = a[0]; out[1] = x;", says="no viable conversion from 'device atomic_uint'"),
    ],
    "6.16 to 6.18 Indirect command buffers, rasterization rate, ray tracing": [
        F("`compute_command`, `render_command`", before="void f(compute_command c) {}", says="'compute_command': indirect command buffers that a shader encodes are not supported by this compute compiler"),
        _never("`rasterization_rate_map_decoder`", "void f(constant rasterization_rate_map_data* d) {}", "'rasterization_rate_map_data': rasterization rates belong to rendering, which this compute compiler does not have"),
    ],
    "6.19 Logging": [
        F("`os_log`, `os_log_default`, `log_type` (written with `-fmetal-enable-logging`; [where the messages go](hosts.md#messages-of-shaders))", 'os_log_default.log("%d", 3); log.log_error("x %f", 1.0f); log.log_with_type(log_type_info, "%v2hlf", float2(1)); out[0] = 1;', [1], before='constant os_log log("sub", "system");'),
        F("`%s`, `%n`, `%@` in a format", 'os_log_default.log("%s", 3);', says="os_log: Metal has no %s; write the text into the format, or log a number"),
    ],
    "Metal 4": [
        F("tensors in a source of Metal 3.2", "void f(tensor<device half, dextents<int, 2>> t) {}", says="'tensor': tensors need Metal 4.0 (-std=metal4.0)"),
        F("`tensor_inline` over a pointer, with `dextents` or `extents`, with strides; `[]`, `get_extent`, `get_stride`", "auto x = tensor(out, dextents<int, 2>(3, 2)); x[1, 1] = 5; auto y = tensor(out + 1, extents<int, 2, dynamic_extent>(2), array<int, 2>{1, 4}); y[0, 1] = 7; out[0] = x[array<int, 2>{1, 1}] + x.get_extent(1) + x.get_stride(1); out[1] = y.get_extent(0) * 10 + y.get_stride(1);", [10, 24, 0, 0, 5, 7], since=(4, 0)),
        F("slices, with and without extents, and tensors in `threadgroup` memory", "threadgroup float t[12]; auto x = tensor(t, dextents<int, 2>(4, 3)); auto s = x.slice(1, 1); auto f = x.slice<2, 2>(1, 0); s[2, 1] = 3; out[0] = t[11]; out[1] = s.get_extent(0) * 10 + s.get_extent(1); out[2] = f.get_static_extent(0); out[3] = is_tensor_inline_v<decltype(f)>;", [3, 32, 2, 1], since=(4, 0)),
        F("`tensor_handle` as an argument of the kernel and in a struct in a buffer; slices of it have the tag `tensor_offset`", "typedef decltype(x) T; out[0] = sizeof(T); out[1] = T::get_rank(); out[2] = has_tensor_offset_v<decltype(x.slice(0, 0))>; out[3] = sizeof(H);", [8, 2, 1, 16], since=(4, 0), before="struct H { tensor<device half, dextents<int, 2>> t; float f; };", args=", tensor<device float, dextents<int, 2>> x [[buffer(6)]]"),
        F("`matmul2d` in one thread, a simdgroup or several; tiles, a `k` that is dynamic, transposes, both modes", "auto a = tensor(out, dextents<int, 2>(4, 4)), c = tensor(out + 16, dextents<int, 2>(4, 4)); for (int k = i; k < 16; k += 32) a[k % 4, k / 4] = k % 5; simdgroup_barrier(mem_flags::mem_device); mpp::tensor_ops::matmul2d<mpp::tensor_ops::matmul2d_descriptor(4, 4, mpp::tensor_ops::dynamic_length_v<int>, false, true), execution_simdgroup> op; op.run(a, a, c); simdgroup_barrier(mem_flags::mem_device); if (i == 0) out[0] = c[0, 0] * 10 + c[1, 0];", [148], threads=32, since=(4, 0)),
        F("`cooperative_tensor` as destination and operand: `get_capacity`, `is_valid_element`, `get_multidimensional_index`, iterators, `load`, `store`", "using namespace mpp::tensor_ops; auto a = tensor(out, dextents<int, 2>(4, 4)); matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroup> op; auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(a), float>(); for (auto it = c.begin(); it != c.end(); ++it) { auto at = it.get_multidimensional_index(); *it = at[0] + 10 * at[1]; } c.store(a);", [0, 1, 2, 3, 10, 11], threads=32, since=(4, 0)),
        F("`reduce_rows`, `reduce_columns`, `map_iterator`, `is_iterator_compatible`, in the scope of one simdgroup", "using namespace mpp::tensor_ops; auto a = tensor(out, dextents<int, 2>(4, 4)); matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroup> op; auto c = op.get_destination_cooperative_tensor<decltype(a), decltype(a), float>(); auto r = op.get_row_reduction_destination_cooperative_tensor<decltype(a), decltype(a), float>(); for (auto it = c.begin(); it != c.end(); ++it) *it = it.is_valid_element() ? it.get_multidimensional_index()[1] : 0; reduce_rows(c, r); for (auto it = c.begin(); it != c.end(); ++it) *it = *r.map_iterator(it); c.store(a);", [0, 0, 0, 0, 4, 4], threads=32, since=(4, 0)),
        F("reductions over several simdgroups", "mpp::tensor_ops::matmul2d<mpp::tensor_ops::matmul2d_descriptor(4, 4, 4), execution_simdgroups<2>> op; typedef tensor<device float, dextents<int, 2>> T; auto r = op.get_row_reduction_destination_cooperative_tensor<T, T, float>(); out[0] = r.get_capacity();", says="reductions of a matrix over several simdgroups are not there: use execution_simdgroup", since=(4, 0)),
        F("scopes of a size that is known at run time", "execution_dsimdgroups s; out[0] = sizeof(s);", says="'execution_dsimdgroups': scopes of a size that is known at run time are not supported by this compute compiler", since=(4, 0)),
        F("`int4b_format`, `uint4b_format` as the right operand of a product", "using namespace mpp::tensor_ops; device uchar* b = (device uchar*)(out + 16); if (i == 0) { b[0] = 0x21; b[1] = 0xf3; out[8] = 1; out[9] = 2; } simdgroup_barrier(mem_flags::mem_device); threadgroup half h[4]; h[0] = 1; h[1] = 2; h[2] = 0; h[3] = 1; auto a = tensor(h, dextents<int, 2>(2, 2)); tensor<device int4b_format, dextents<int, 2>, tensor_inline> w(b, dextents<int, 2>(2, 2)); auto c = tensor(out, dextents<int, 2>(2, 2)); matmul2d<matmul2d_descriptor(2, 2, 2), execution_simdgroup> op; op.run(a, w, c);", [7, 0, 3, -1], threads=32, since=(4, 0)),
        F("formats of 2 bits, fp4 and fp8", "tensor<device metal_fp8_e4m3_format, dextents<int, 2>, tensor_inline> t; out[0] = sizeof(t);", says="tensor: packed formats of numbers are not supported by this compute compiler", since=(4, 0)),
        F("`convolution2d`", "typedef mpp::tensor_ops::convolution2d<1> T; out[0] = sizeof(T);", says="'convolution2d': convolutions of tensors are not supported by this compute compiler", since=(4, 0)),
        F("`vec<T, n>` of 5 to 32 components", "vec<float, 8> v(2.0f), w = v * 3.0f + v; w[7] = 1; out[0] = w[6]; out[1] = w[7]; out[2] = sizeof(w);", [8, 1, 32], since=(4, 0)),
        F("sampler `reduction`", "constexpr sampler s(reduction::maximum); out[0] = 1;", says="'reduction': samplers of Metal 4 are not supported by this compute compiler"),
    ],
}  # fmt: skip
