"""Sources that Apple's compiler refuses are refused: at the right line and column, in MSL's words. And sources that
it takes are taken."""

from __future__ import annotations

import re

import pytest

from .shaders import messages

pytestmark = pytest.mark.compiler

K = "kernel void k(device float* x [[buffer(0)]], constant float& c [[buffer(1)]], uint i [[thread_position_in_grid]])"
# name: (source, line:column of the first error, words that it says). `^` is no part of the source: it marks the place.
REFUSED = {
    # address spaces
    "pointer without a space": ("float f(float* ^p) { return *p; }", "pointer type must have explicit address space qualifier"),
    "reference without a space": ("float f(const float& ^p) { return p; }", "reference type must have explicit address space qualifier"),
    "template pointer without a space": ("template <typename T> T f(const T* ^p) { return *p; }", "pointer type must have explicit address space"),
    "local pointer without a space": (f"{K} {{ float y; float* ^p = &y; x[i] = *p; }}", "pointer type must have explicit address space"),
    "returned pointer without a space": ("struct S { float v; float* ^get() { return &v; } };", "pointer type must have explicit address space"),
    "field without a space": ("struct S { float* ^v; };", "pointer type must have explicit address space"),
    "cast without a space": (f"{K} {{ x[i] = *^(float*)(&x[1]); }}", "pointer type must have explicit address space"),
    "device to threadgroup": (f"{K} {{ threadgroup float* ^p = x; }}", "cannot initialize a variable of type 'threadgroup float *' with an lvalue of type 'device float *'"),
    "constant to device": (f"{K} {{ device const float* ^p = &c; }}", "'constant float *'"),
    "device to thread": (f"{K} {{ thread float* p = ^x; *p = 1; }}", "cannot convert 'device float *' to 'thread float *': the address spaces differ"),
    "device argument to thread parameter": (f"void f(thread float* p) {{ *p = 1; }} {K} {{ f(^x); }}", "cannot convert 'device float *' to 'thread float *'"),
    "device argument in a template": (f"template <typename T> void f(thread T* p) {{ *p = 1; }} template <typename T> void g(device T* p) {{ f<T>(^p + 1); }} {K} {{ g(x); }}", "cannot convert"),
    "threadgroup argument to device parameter": (f"void f(device float* p) {{ *p = 1; }} {K} {{ threadgroup float s[4]; ^f(s); }}", "no matching function for call to 'f'"),
    "reference to another space": (f"void f(thread float& p) {{ p = 1; }} {K} {{ f(^x[i]); }}", "cannot bind 'thread float &' to an object of type 'device float'"),
    "local reference to another space": (f"{K} {{ thread float& ^r = x[i]; r = 1; }}", "cannot bind 'thread float &'"),
    "reinterpret_cast changes the space": (f"{K} {{ auto p = ^reinterpret_cast<threadgroup float*>(x); }}", "reinterpret_cast"),
    "write to constant": (f"{K} {{ c ^= 1; }}", "cannot assign to variable 'c' with const-qualified type 'constant float &'"),
    "write to a constant array": (f"constant float t[2] = {{1, 2}}; {K} {{ t[0] ^= 1; }}", "cannot assign to variable 't'"),
    "write through const device": ("kernel void k(const device float* x) { x[0] ^= 1; }", "read-only variable is not assignable"),
    "device local variable": (f"{K} {{ device float ^y; }}", "a local variable cannot be declared in the device or constant address space"),
    "program scope variable": ("float ^counter; kernel void k(device float* x) { x[0] = counter; }", "must reside in the constant address space"),
    # threadgroup memory
    "threadgroup variable at program scope": ("^threadgroup float s[4];", "must be declared in a kernel function"),
    "threadgroup variable in a function": ("float f() { threadgroup float ^s[4]; s[0] = 1; return s[0]; } kernel void k(device float* x) { x[0] = f(); }", "must be declared in a kernel function"),
    "initialized threadgroup variable": (f"{K} {{ threadgroup float s ^= 1; }}", "cannot be initialized"),
    # kernels
    "kernel that returns": ("kernel int ^k(device int* x) { return 1; }", "must have void return type"),
    "value argument": ("kernel void k(device float* x, float ^y) {}", "invalid type 'float' for input 'y' of a kernel function"),
    "struct argument by value": ("struct S { int a; }; kernel void k(S ^s) {}", "invalid type 'S' for input 's'"),
    "thread pointer argument": ("kernel void k(thread float* ^x) {}", "must point into the device, constant or threadgroup address space"),
    "pointer to pointer argument": ("kernel void k(device float* device* ^x) {}", "is a pointer to a pointer"),
    "empty struct by reference": ("struct E {}; kernel void k(device float* x, constant E& ^e) {}", "points to 'E', a struct without members"),
    "empty struct by pointer": ("struct E { float f() const { return 1; } }; kernel void k(device E* ^e) {}", "points to 'E', a struct without members"),
    "empty struct of a template": ('struct E {}; template <typename F> kernel void f(constant F& ^e) {} template [[host_name("n")]] kernel void f<E>(constant E&);', "a struct without members"),
    "empty struct and its base": ("struct E {}; struct D : E {}; kernel void k(constant D* ^e) {}", "points to 'D', a struct without members"),
    "struct that is only declared": ("struct S; kernel void k(device S* ^p, device float* x) { x[0] = 1; }", "points to 'S', which is only declared; define it"),
    "reference to one": ("struct S; kernel void k(device float* x, constant S& ^p) {}", "points to 'S', which is only declared"),
    "threadgroup memory of one": ("class S; kernel void k(threadgroup S* ^p) {}", "points to 'S', which is only declared"),
    "template that is only declared": ("template <typename T> struct S; kernel void k(device S<float>* ^p) {}", "points to 'S<float>', which is only declared"),
    "instantiated for one": ('struct S; template <typename T> kernel void f(device T* ^p) {} template [[host_name("n")]] kernel void f<S>(device S*);', "which is only declared"),
    "duplicate buffer index": ("kernel void k(device float* a [[buffer(1)]], device float* ^b [[buffer(1)]]) {}", "buffer index 1 is used by 'a' and 'b'"),
    "buffer index too large": ("kernel void ^k(device float* a [[buffer(31)]]) {}", "index 31 of 'a' is above 30"),
    "buffer index not constant": ("kernel void k(device float* ^a [[buffer(n)]]) {}", "is not an integer constant"),
    "buffer index a fraction": ("kernel void k(device float* ^a [[buffer(1.5)]]) {}", "'1.5', is not an integer constant"),
    "buffer index by zero": ("kernel void k(device float* ^a [[buffer(1 / 0)]]) {}", "'1 / 0', is not an integer constant"),
    "buffer index beyond all": ("kernel void k(device float* ^a [[buffer(1 << 99)]]) {}", "is not an integer constant"),
    "buffer index two things": ("kernel void k(device float* ^a [[buffer(1; 2)]]) {}", "is not an integer constant"),
    "threadgroup index on device": ("kernel void k(device float* ^a [[threadgroup(0)]]) {}", "attribute 'threadgroup' cannot be applied to 'a' in the device address space"),
    "float position": ("kernel void k(device float* a, float ^i [[thread_position_in_grid]]) {}", "attribute 'thread_position_in_grid' needs ushort or uint"),
    "vector index": ("kernel void k(device float* a, uint2 ^i [[thread_index_in_threadgroup]]) {}", "needs ushort or uint"),
    "duplicate kernel": ('template <typename T> kernel void f(device T*) {} template [[host_name("n")]] kernel void f<int>(device int*); kernel void ^n(device int* x) {}', "duplicate kernel name 'n'"),
    "duplicate function constant": ("constant int a [[function_constant(1)]]; constant int b [[function_constant(1)]]; kernel void k(device int* x) { x[0] = a + b; }", "function constant index 1 is used by 'a' and 'b'"),
    "function constant of a struct": ("struct S { int a; }; constant S ^s [[function_constant(0)]];", "cannot have type 'S'"),
    "multisample texture": ("kernel void k(^texture2d_ms<float> t) {}", "'texture2d_ms': devices here make no multisample textures"),
    "texture component": ("kernel void k(texture2d<char> t, device float* x) { x[0] = t.read(uint2(0)).x; }", "a texture's component type is float, half, int, uint, short or ushort"),
    "write to a texture for reading": ("kernel void k(texture2d<float, access::read> t) { t.write(float4(0), uint2(0)); }", "a texture needs access::write or access::read_write to be written"),
    "read of a texture for writing": ("kernel void k(texture2d<float, access::write> t, device float* x) { x[0] = t.read(uint2(0)).x; }", "a texture with access::write cannot be read"),
    "sample of a texture for reading": ("kernel void k(texture2d<float, access::read> t, sampler s, device float* x) { x[0] = t.sample(s, float2(0)).x; }", "sample() needs access::sample"),
    "duplicate texture index": ("kernel void k(texture2d<float> a [[texture(1)]], texture2d<float> ^b [[texture(1)]]) {}", "texture index 1 is used by 'a' and 'b'"),
    "texture index too large": ("kernel void ^k(texture2d<float> a [[texture(128)]]) {}", "index 128 of 'a' is above 127"),
    "buffer index on a texture": ("kernel void k(texture2d<float> ^a [[buffer(0)]]) {}", "attribute 'buffer' cannot be applied to 'a', a texture"),
    # C++ that MSL leaves out
    "double": (f"{K} {{ double ^y = x[i]; x[i] = y; }}", "'double' is not supported in Metal"),
    "double parameter": ("float f(double ^y) { return y; }", "'double' is not supported in Metal"),
    "double cast": (f"{K} {{ x[i] = float(^(double)x[i]); }}", "'double' is not supported in Metal"),
    "recursion": ("int ^fact(int n) { return n < 2 ? 1 : n * fact(n - 1); } kernel void k(device int* x) { x[0] = fact(x[1]); }", "recursive call of 'fact'"),
    "mutual recursion": ("int g(int n); int ^f(int n) { return n ? g(n - 1) : 0; } int g(int n) { return f(n); } kernel void k(device int* x) { x[0] = f(3); }", "recursive call of 'f'"),
    "throw": (f"{K} {{ ^throw 1; }}", "exceptions ('throw', 'try') are not supported in Metal"),
    "try": (f"{K} {{ ^try {{ x[0] = 1; }} catch (...) {{}} }}", "exceptions ('throw', 'try') are not supported in Metal"),
    "virtual": ("struct S { virtual float ^f() { return 1; } };", "virtual functions are not supported in Metal"),
    "goto": (f"{K} {{ again: x[i] += 1; if (x[i] < 3) ^goto again; }}", "'goto' is not supported in Metal"),
    "new": (f"{K} {{ auto p = ^new float; x[i] = *p; }}", "'new' and 'delete' are not supported in Metal"),
    "thread_local": (f"{K} {{ static thread_local int ^y; y = 1; }}", "'thread_local' is not supported in Metal"),
    "dynamic_cast": ("struct A {}; struct B : A {}; thread B* f(thread A* a) { return ^dynamic_cast<thread B*>(a); }", "dynamic_cast"),
    "function pointer": (f"float f(float y) {{ return y; }} {K} {{ float (*^p)(float) = f; x[i] = p(1); }}", "pointers to functions are not supported in Metal"),
    "lambda before 3.2": (f"{K} {{ auto f = ^[](float y) {{ return y; }}; x[i] = f(1); }}", "lambda expressions need Metal 3.2"),
    "inline assembly": (f'{K} {{ ^asm("nop"); }}', "inline assembly is not supported in Metal"),
    # types and overloads
    "implicit vector conversion": (f"{K} {{ int3 a(1); float3 ^b = a; x[i] = b.x; }}", "no viable conversion from 'int3'"),
    "mixed vectors": (f"{K} {{ x[i] = (float3(1) ^* half3(1)).x; }}", "invalid operands to binary expression ('float3' and 'half3')"),
    "too few components": (f"{K} {{ x[i] = ^float4(1, 2, 3).x; }}", "float4"),
    "swizzle past the end": (f"{K} {{ x[i] = float2(1).^z; }}", "no member named 'z'"),
    "OpenCL's swizzles": (f"{K} {{ x[i] = float4(1).^lo.x; }}", "no member named 'lo'"),
    "assignment to a repeated component": (f"{K} {{ float4 v(1); v.^xx = float2(1); x[i] = v.x; }}", "swizzle 'xx' repeats a component"),
    "ambiguous max": (f"{K} {{ x[i] = ^max(1, 2.0f); }}", "call to 'max' is ambiguous"),
    "atomic of char": ("kernel void k(device atomic<char>* x) { atomic_store_explicit(x, 1, memory_order_relaxed); }", None),
    "float atomic max": ("kernel void k(device atomic<float>* x) { ^atomic_fetch_max_explicit(x, 1.0f, memory_order_relaxed); }", "no matching function"),
    "plain read of an atomic": ("kernel void k(device atomic_uint* x, device uint* y) { y[0] = ^x[0]; }", "assigning to"),
    "unknown function": (f"{K} {{ x[i] = ^sine(1); }}", "use of undeclared identifier 'sine'"),
    "std": (f"{K} {{ x[i] = std::^sin(1.0f); }}", "no member named 'sin' in namespace 'std'"),
    "float to bfloat": (f"{K} {{ bfloat ^b = x[i]; x[i] = b; }}", "no viable conversion from 'device float' to 'bfloat'"),
    "half to bfloat": (f"{K} {{ bfloat ^b = 1.0h; x[i] = b; }}", "no viable conversion from 'half' to 'bfloat'"),
    "missing semicolon": (f"{K} {{ x[i] = 1^ }}", "expected ';'"),
}  # fmt: skip
REFUSED["atomic of char"] = (
    REFUSED["atomic of char"][0],
    "atomic<T> needs T to be int, uint, bool, float or ulong",
)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    source, words = REFUSED[name]
    # The mark: not an operator ^, none of the cases has one.
    before, marked, after = source.partition("^")
    source = "\n" + before + after  # the source is line 2
    said = messages(source)
    first = re.search(r"^(\S+?):(\d+):(\d+): error: (.*)$", said, re.M)
    assert first, f"accepted, or without a place:\n{said}"
    assert words in said, said
    if marked:
        matching = [
            m
            for m in re.finditer(r"^(\S+?):(\d+):(\d+): error: (.*)$", said, re.M)
            if words in m.group(4)
        ]
        assert ("2", str(len(before) + 1)) in [(m.group(2), m.group(3)) for m in matching], said
    assert not re.search(
        r"__global|__local\b|_Float16|opencl|sycl|_msl_|_MSL_|unsigned int", said
    ), said


ACCEPTED = {
    "struct that is defined behind the kernel": "struct S; kernel void k(device S* p, device float* x) { x[0] = 1; } struct S { float a; };",
    "template that nobody has made anything of": "template <typename T> struct S { T a; }; kernel void k(device S<float>* p, device float* x) { x[0] = 1; }",
    "struct with a base that has a member": "struct B { int a; }; struct D : B {}; kernel void k(constant D* d, device int* x) { x[0] = d->a; }",
    "thread qualified": "float f(thread float* p, thread const float& q, const thread float& r) { return *p + q + r; }",
    "space after the type": "float f(float device* p, float const constant& q) { return *p + q; }",
    "const before constant": "kernel void k(const constant float& a, const constant float* b, device float* x) { x[0] = a + b[0]; }",
    "auto pointers": f"{K} {{ auto p = x + i; auto* q = p; auto& r = *q; r = c; }}",
    "typedef pointer": "typedef device float* DevicePointer; void f(DevicePointer p) { *p = 1; }",
    "const reference binds a copy": "float f(const thread float& v) { return v; } kernel void k(device float* x) { x[0] = f(x[1]); }",
    "struct copies between spaces": "struct S { float4 a; int b[3]; }; kernel void k(device S* x, constant S& c) { S s = c; x[0] = s; s = x[1]; x[2] = x[0]; thread S& r = s; x[3] = r; }",
    "methods on every space": "struct S { float a; float f() const { return a; } }; kernel void k(device S* x, constant S& c, device float* y) { threadgroup S s; s = c; y[0] = x->f() + c.f() + s.f(); }",
    "array parameter": "float f(float a[3]) { return a[0]; } kernel void k(device float* x) { float b[3] = {1, 2, 3}; x[0] = f(b); }",
    "function as template argument": "template <float (*F)(float)> float f(float x) { return F(x); } float g(float x) { return x; } kernel void k(device float* x) { x[0] = f<g>(1); }",
    "loops and switch": "kernel void k(device int* x) { switch (x[0]) { case 1: x[1] = 2; break; default: break; } do { x[0]--; } while (x[0] > 0); for (;;) { break; } }",
    "static constexpr member": "struct S { static constant constexpr int n = 3; enum { m = 4 }; }; kernel void k(device int* x) { x[0] = S::n + S::m; }",
    "if constexpr": "template <int N> int f() { if constexpr (N > 1) return 1; else return 0; } kernel void k(device int* x) { x[0] = f<2>(); }",
    "operator templates": "template <typename T> struct Sum { T operator()(T a, T b) { return a + b; } }; kernel void k(device float* x) { Sum<float> s; x[0] = s(1, 2); }",
    "threadgroup pointer locals": "kernel void k(device float* x, threadgroup float* s) { threadgroup float* p = s + 1; threadgroup const float4* q = (threadgroup const float4*)s; x[0] = *p + q->x; }",
    "anonymous namespace": "namespace { inline float f(float x) { return x; } } kernel void k(device float* x) { x[0] = f(1); }",
    "qualified names": "kernel void k(device metal::float3* x, metal::uint2 i [[thread_position_in_grid]]) { x[i.x] = metal::normalize(metal::float3(1, 2, metal::max(1.0f, 2.0f))); }",
    "attributes of clang": "kernel void k(device float* x) { [[maybe_unused]] float y = 1; _Pragma(\"unroll\") for (int i = 0; i < 4; ++i) x[i] = i; }",
    "comments and strings": 'kernel void k(device float* x /* [[buffer(9)]] */) { // [[kernel]] threadgroup float y[1];\n x[0] = sizeof("threadgroup float z[2];"); }',
    "inheritance": "struct A { float a; }; struct B : A { float b; }; kernel void k(device B* x) { x->a = x->b; }",
    "user names like internals": "#define l 1\n#define T 2\n#define p 3\n#define first 4\n#define count 5\n#define row 6\nkernel void k(device float* m) { m[0] = l + T; }",
    "unsigned from floor": "kernel void k(device uint* x, device float* y) { x[0] = floor(y[0]); uint3 q = uint3(floor(float3(y[1]))); x[1] = q.x; }",
    "textures in helpers": "float f(texture2d<float> t, sampler s, thread const texture2d<float>& u) { return t.sample(s, float2(0)).x + u.sample(s, float2(1), level(0)).y; } kernel void k(texture2d<float> t, sampler s, device float* x) { x[0] = f(t, s, t); }",
    "samplers at program scope": "constexpr sampler a(coord::pixel, address::repeat); constant constexpr sampler b(filter::linear, mip_filter::nearest, max_anisotropy(4), lod_clamp(0, 1), border_color::opaque_white); kernel void k(texture2d<half> t [[texture(0)]], device half4* x) { x[0] = t.sample(a, float2(1)) + t.sample(b, float2(0)); }",
    "unused arguments": "kernel void k(device float* x, constant float& c, threadgroup float* t, uint i [[thread_position_in_grid]]) {}",
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    assert messages(ACCEPTED[name]) == ""


def test_lines_that_the_source_gives_itself():
    """Behind an include, too, where the preprocessor counts the file's own."""
    source = '#line 7 "other"\n#include <metal_math>\nkernel void k() {\n  x;\n}\n#line 20\nkernel void l() { z; }\n'
    said = messages(source)
    assert "other:9:3: error: use of undeclared identifier 'x'" in said
    assert "other:20:19: error: use of undeclared identifier 'z'" in said


def test_place_in_an_included_file_and_a_macro(tmp_path):
    (tmp_path / "part.h").write_text(
        "#pragma once\n// 2\ninline float part(thread float* p) {\n  return   wrong + *p;\n}\n"
    )
    said = messages('\n#include "part.h"\n', include=(str(tmp_path),))
    assert (
        f"{tmp_path}/part.h:4:12: error: use of undeclared identifier 'wrong'\n  return   wrong + *p;\n           ^"
        in said
    )
    said = messages(
        "#define USE(x) \\\n  (x + undefined_name)\nkernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = USE(1); }"
    )
    assert "test.metal:3:91: error: use of undeclared identifier 'undefined_name'" in said


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (f"{K} {{ ^bfloat y = 1; x[i] = float(y); }}", "bfloat"),
        (f"{K} {{ x[i] = ^bfloat4(1).x; }}", "bfloat4"),
        (f"{K} {{ x[i] = metal::^packed_bfloat2(1, 2)[0]; }}", "packed_bfloat2"),
        (f"{K} {{ x[i] = float(^1.5bf); }}", "bfloat"),
        ("template <typename T> kernel void f(device T* x) { *x = T(1); } \n"
         '^template [[host_name("f_bfloat")]] kernel void f<bfloat>(device bfloat*);', "bfloat"),
    ],
)  # fmt: skip
def test_bfloat_needs_metal_3_1(source: str, name: str):
    line = source[: source.index("^")].count("\n") + 1
    column = source.index("^") - (source.rfind("\n", 0, source.index("^")) + 1) + 1
    source = source.replace("^", "")
    said = messages(source, std=(3, 0))
    assert f"test.metal:{line}:{column}: error: '{name}' needs Metal 3.1 (-std=metal3.1)" in said
    assert said.endswith("\n1 error generated.") and messages(source) == ""


def test_before_metal_3_1_the_name_is_free():
    source = f"""
        #if __METAL_VERSION__ < 310 && !defined(__HAVE_BFLOAT__)
        struct bfloat {{ float v; }};
        #define UNUSED(x) f<bfloat>(x)
        {K} {{ bfloat y = {{1}}; x[i] = y.v; }}
        #endif
    """
    assert messages(source, std=(3, 0)) == ""


def test_standard_headers():
    assert (
        "'cmath' file not found (Metal has no C or C++ standard library; use <metal_stdlib>)"
        in messages("#include <cmath>")
    )
    assert "file not found" in messages("#include <stdint.h>")


def test_several_errors_are_reported_together():
    said = messages(f"{K} {{ x[i] = one; }}\nfloat g() {{ return two; }}")
    assert "'one'" in said and "'two'" in said and said.endswith("2 errors generated.")
