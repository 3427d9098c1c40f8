"""Kernel declarations: positions, argument indices, function constants, names, includes, reflection."""

from __future__ import annotations

import re
import subprocess
import tempfile

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object
from tests.processes import ROOT
from tests.suites import at_depth

from .shaders import HEADER, VALIDATION, library, messages, path

THREAD = "uint i [[thread_position_in_grid]]"

# attribute: (extent, the value in thread (x, y, z)). n: grid, s: dispatched threadgroup, g: its position, t: in it, m:
# the group's own size (clipped at the edge).
POSITIONS = {
    "thread_position_in_grid": (3, lambda n, s, g, t, m: g * s + t),
    "thread_position_in_threadgroup": (3, lambda n, s, g, t, m: t),
    "threadgroup_position_in_grid": (3, lambda n, s, g, t, m: g),
    "threads_per_grid": (3, lambda n, s, g, t, m: n),
    "threads_per_threadgroup": (3, lambda n, s, g, t, m: m),
    "dispatch_threads_per_threadgroup": (3, lambda n, s, g, t, m: s),
    "threadgroups_per_grid": (3, lambda n, s, g, t, m: -(-n // s)),
    "thread_index_in_threadgroup": (1, lambda n, s, g, t, m: (t[2] * m[1] + t[1]) * m[0] + t[0]),
    "thread_index_in_simdgroup": (1, lambda n, s, g, t, m: ((t[2] * m[1] + t[1]) * m[0] + t[0]) % 32),
    "simdgroup_index_in_threadgroup": (1, lambda n, s, g, t, m: ((t[2] * m[1] + t[1]) * m[0] + t[0]) // 32),
    "threads_per_simdgroup": (1, lambda n, s, g, t, m: 32),
    "thread_execution_width": (1, lambda n, s, g, t, m: 32),
    "simdgroups_per_threadgroup": (1, lambda n, s, g, t, m: -(-np.prod(m) // 32)),
    "dispatch_simdgroups_per_threadgroup": (1, lambda n, s, g, t, m: -(-np.prod(s) // 32)),
    "thread_index_in_quadgroup": (1, lambda n, s, g, t, m: ((t[2] * m[1] + t[1]) * m[0] + t[0]) % 4),
    "quadgroup_index_in_threadgroup": (1, lambda n, s, g, t, m: ((t[2] * m[1] + t[1]) * m[0] + t[0]) // 4),
}  # fmt: skip
SHAPES = {
    "plain": ((13, 6, 5), (4, 3, 2)),
    "exact": ((8, 4, 2), (4, 2, 1)),
    "flat": ((100, 1, 1), (48, 1, 1)),
}


@pytest.fixture(scope="module")
def positions():
    parameters, stores = [], []
    for r, (name, (extent, _)) in enumerate(POSITIONS.items()):
        for k in range(1, extent + 1):
            for type_ in ("uint", "ushort"):
                variable = f"v{r}_{k}_{type_}"
                parameters.append(f"{type_}{k if k > 1 else ''} {variable} [[{name}]]")
                stores += [f"put({variable}{'[%d]' % j if k > 1 else ''});" for j in range(k)]
    body = f"""
        uint at = where.z * size.y * size.x + where.y * size.x + where.x, row = 0;
        device uint* to = out + at * {len(stores)};
        #define put(x) to[row++] = x
        {" ".join(stores)}"""
    signature = (
        "device uint* out, uint3 where [[thread_position_in_grid]], uint3 size [[threads_per_grid]], "
        + ", ".join(parameters)
    )
    barrier = "threadgroup_barrier(mem_flags::mem_none);"
    return library(
        f"kernel void loop({signature}) {{ {body} }}\nkernel void fibers({signature}) {{ {barrier} {body} }}"
    ), len(stores)


@pytest.mark.parametrize("kernel", ["loop", "fibers"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("workers", [1, 3])
def test_positions(kernel, shape, workers, positions):
    shader, rows = positions
    n, s = (np.array(x) for x in SHAPES[shape])
    out = np.full((n[2], n[1], n[0], rows), 0xDEAD, np.uint32)
    shader[kernel].run(
        tuple(int(x) for x in n), tuple(int(x) for x in s), {0: out}, workers=workers
    )
    expected = np.zeros_like(out)
    for z, y, x in np.ndindex(*out.shape[:3]):
        at = np.array([x, y, z])
        g, t = at // s, at % s
        m = np.minimum(s, n - g * s)
        row = []
        for extent, oracle in POSITIONS.values():
            value = np.atleast_1d(oracle(n, s, g, t, m))
            for k in range(1, extent + 1):
                row += [*value[:k]] * 2
        expected[z, y, x] = row
    np.testing.assert_array_equal(out, expected)


def test_argument_indices():
    """Explicit indices stay; the others take the free ones in order. Enumerators and macros are constants too."""
    shader = library("""
        #define SLOT(n) [[buffer(n + 1)]]
        enum Index { kFirst = 7, kSecond };
        constexpr constant int kThird = 3;
        kernel void indices(device float* a, device int* b [[buffer(2)]], constant float& c, device half4* d SLOT(4),
                            const device uchar* e [[buffer(kSecond)]], constant packed_float3* f [[buffer(kThird)]],
                            threadgroup float* g, threadgroup int4* h [[threadgroup(0)]], device atomic_uint& i,
                            uint j [[thread_position_in_grid]]) { a[j] = c; }
        kernel void nothing(uint i [[thread_position_in_grid]]) {}
        [[kernel, max_total_threads_per_threadgroup(96)]] void limited(device float* x [[buffer(30)]]) { x[0] = 1; }
        """)
    rows = [(a["name"], a["kind"], a["index"], a["type"], a["size"], a["alignment"], a["written"], a["reference"])
            for a in shader["indices"].arguments]  # fmt: skip
    assert rows == [
        ("a", "device", 0, "float", 4, 4, True, False), ("b", "device", 2, "int", 4, 4, True, False),
        ("c", "constant", 1, "float", 4, 4, False, True), ("d", "device", 5, "half4", 8, 8, True, False),
        ("e", "device", 8, "uchar", 1, 1, False, False), ("f", "constant", 3, "packed_float3", 12, 4, False, False),
        ("g", "threadgroup", 1, "float", 4, 4, True, False), ("h", "threadgroup", 0, "int4", 16, 16, True, False),
        ("i", "device", 4, "atomic<uint>", 4, 4, True, True),
    ]  # fmt: skip
    assert shader["nothing"].arguments == [] and shader["nothing"].max_total_threads == 1024
    shader["nothing"].run(10, 5)
    assert shader["limited"].max_total_threads == 96
    assert not shader["indices"].fibers


CONSTANTS = """
constant bool flag [[function_constant(0)]];
constant int number [[function_constant(5)]];
constant float3 triple [[function_constant(1 + 1)]];
constant half small [[function_constant(7)]];
namespace tuning { constant ushort width [[function_constant(9)]]; }
constant bool flag_set = is_function_constant_defined(flag);
constant int twice = is_function_constant_defined(number) ? number * 2 : -1;
constant int more = twice + 1;
template <typename T> T scaled(T x) { return flag ? x * T(number) : x; }
kernel void read(device float* out, constant float* extra [[buffer(1), function_constant(flag)]], uint i [[thread_position_in_grid]]) {
  if (i >= 8) return;
  out[0] = flag; out[1] = number; out[2] = triple.y; out[3] = small; out[4] = tuning::width;
  out[5] = flag_set; out[6] = twice; out[7] = more; out[8] = scaled(3.0f);
  if (flag) out[9] = extra[0];
  threadgroup_barrier(mem_flags::mem_none);
}
"""


def test_function_constants():
    shader = library(CONSTANTS)
    kernel = shader["read"]
    assert [(c["name"], c["index"], c["data_type"], c["size"]) for c in kernel.constants] == [
        ("flag", 0, 53, 1), ("number", 5, 29, 4), ("triple", 2, 5, 16), ("small", 7, 16, 2), ("width", 9, 41, 2),
    ]  # fmt: skip
    optional = kernel.arguments[1]
    assert optional["optional"] and kernel.constants[optional["enabled_by"]]["name"] == "flag"
    out = np.full(10, -7, np.float32)
    kernel.run(8, 8, {0: out, 1: None})
    np.testing.assert_array_equal(out, [0, 0, 0, 0, 0, 0, -1, 0, 3, -7])
    values = {
        0: np.bool_(True),
        5: np.int32(21),
        2: np.float32([1, 2, 3, 0]),
        7: np.float16(0.5),
        9: np.uint16(640),
    }
    kernel.run(8, 8, {0: out, 1: np.float32([4])}, constants=values)
    np.testing.assert_array_equal(out, [1, 21, 2, 0.5, 640, 1, 42, 43, 63, 4])


def test_function_constants_through_a_macro():
    source = """
        #define CONST static constant constexpr const
        CONST int n [[function_constant(0)]];
        CONST int twice = 2 * n;
        kernel void k(device int* x) { x[0] = n; x[1] = twice; }"""
    x = np.zeros(2, np.int32)
    library(source)["k"].run(1, 1, {0: x}, constants={0: np.int32(21)})
    np.testing.assert_array_equal(x, [21, 42])


USES = """
constant bool a [[function_constant(0)]];
constant int b [[function_constant(1)]];
constant half2 c [[function_constant(2)]];
constant int d [[function_constant(3)]];
constant int e [[function_constant(4)]];
constant int b_or_7 = is_function_constant_defined(b) ? b : 7;
constant int more = b_or_7 + d;
struct Holds { int x; int get() const { return x + e; } int other() const { return x + b; } };
inline int deep(int x) { return x + int(c.y); }
inline int called(int x) { return deep(x) + 1; }
template <typename T> T chosen(T x) { if (a) return x; return x + T(d); }
kernel void none(device int* x) { x[0] = 1; }
kernel void direct(device int* x) { x[0] = b; }
kernel void asked(device int* x) { x[0] = is_function_constant_defined(b) ? b : 0; }
kernel void only_asked(device int* x) { x[0] = is_function_constant_defined(b); }
kernel void through(device int* x) { x[0] = called(1); }
kernel void derived(device int* x) { x[0] = more; }
kernel void member(device int* x) { Holds h = {1}; x[0] = h.get(); }
kernel void with(device int* x, constant int* y [[buffer(1), function_constant(a)]]) { x[0] = 1; }
kernel void macro(device int* x) { if (a || e) x[0] = max(d, 3); }
template <typename T> kernel void made(device T* x) { x[0] = chosen(x[1]); }
template [[host_name("made_int")]] kernel void made<int>(device int* x);
"""
NEEDS = {  # needed, and optional
    "none": ("", ""), "direct": ("b", ""), "asked": ("", "b"), "only_asked": ("", "b"), "through": ("c", ""),
    "derived": ("d", "b"), "member": ("e", ""), "with": ("a", ""), "macro": ("ade", ""), "made_int": ("ad", ""),
}  # fmt: skip


@pytest.mark.parametrize("kernel", NEEDS)
def test_which_function_constants_a_kernel_has(kernel):
    """Those that it reads anywhere; needed are those that it never asks is_function_constant_defined of."""
    constants = library(USES)[kernel].constants
    needed = "".join(c["name"] for c in constants if c["required"])
    optional = "".join(c["name"] for c in constants if not (c["required"] or c["unused"]))
    assert (needed, optional) == NEEDS[kernel]
    assert [c["index"] for c in constants] == [0, 1, 2, 3, 4]  # the order of a launch's values


def test_arguments_that_a_kernel_does_not_name():
    source = """
        inline int twice(int x) { return 2 * x; }
        kernel void k(device int* a, constant int& b, device int* c, constant int& d, uint i [[thread_position_in_grid]]) {
          const auto get = [&] { return b; };
          a[i] = twice(get());
        }
        template <typename T> kernel void made(device T* a, device T* b, constant T* c) { a[0] = c[0]; }
        template [[host_name("made_int")]] kernel void made<int>(device int* a, device int* b, constant int* c);"""
    for kernel, unused in ("k", "cd"), ("made_int", "b"):
        arguments = library(source, std=(3, 2))[kernel].arguments
        assert "".join(a["name"] for a in arguments if a["unused"]) == unused


@pytest.mark.parametrize("kind, size", [("long3", 32), ("ulong4", 32)])
def test_function_constants_that_are_too_large(kind, size):
    source = f"constant {kind} c [[function_constant(0)]];\nkernel void k(device long* x) {{ x[0] = c.x; }}"
    said = messages(source)
    assert f"function constant 'c' has {size} bytes ('{kind}'); 16 are the most here" in said


@pytest.mark.parametrize("statement", [
    '__asm__("");', 'asm volatile("");', '__asm__ __volatile__("" ::: "memory");', "NOTHING;"
])  # fmt: skip
def test_assembly_that_is_nothing(statement):
    """Generators put it into loops that may not end, for the optimiser to keep them."""
    body = f"int n = 0; while (true) {{ {statement} if (++n > x[i]) break; }} x[i] = n;"
    for meets in ("", "threadgroup_barrier(mem_flags::mem_none);"):
        source = f"""#define NOTHING __asm__("")
            kernel void k(device int* x, uint i [[thread_position_in_grid]]) {{ {body} {meets} }}"""
        x = np.arange(5, dtype=np.int32)
        library(source)["k"].run(5, 5, {0: x})
        np.testing.assert_array_equal(x, np.arange(5) + 1)


@pytest.mark.parametrize(
    "statement", ['__asm__("nop");', 'asm volatile("" : "+r"(y));', 'asm("" "nop" "");']
)
def test_assembly_that_is_something(statement):
    source = f"kernel void k(device int* x) {{ int y = 1; {statement} x[0] = y; }}"
    assert "error: inline assembly is not supported in Metal" in messages(source)


def test_function_constants_of_concurrent_launches():
    """Two pipelines of one kernel, with different values, at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    shader = library("""
        constant int number [[function_constant(0)]];
        kernel void fill(device int* out, uint i [[thread_position_in_grid]]) { out[i] = number; }""")
    outs = [np.zeros(20000, np.int32) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda k: shader["fill"].run(
                    20000, 10, {0: outs[k]}, constants={0: np.int32(k)}, workers=2
                ),
                range(8),
            )
        )
    for k, out in enumerate(outs):
        assert (out == k).all()


def test_names_of_instantiations():
    """host_name in its spellings: attribute lists, macros with # and ##, decltype, typedefs, namespaces, plain kernels."""
    shader = library("""
        template <typename T, int N = 2> [[kernel]] void scale(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= T(N); }
        template [[host_name("scale_float")]] [[kernel]] void scale<float>(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]);
        template [[kernel, host_name("scale_half_3")]] void scale<half, 3>(device half*, uint);
        #define instantiate_kernel(name, func, ...) \\
          template [[host_name(name)]] [[kernel]] decltype(func<__VA_ARGS__>) func<__VA_ARGS__>;
        #define instantiate_scale(tname, type, n) instantiate_kernel("v_scale_" #tname "_" #n, scale, type, n)
        instantiate_scale(int32, int32_t, 5) // NOLINT
        typedef decltype(scale<uint, 7>) scale_t;
        template [[host_name("scale_typedef")]] kernel scale_t scale<uint, 7>;
        #define MAKE(op, type) template [[host_name(#op "_" #type)]] \\
          [[kernel]] void op##_kernel<type>( \\
              device type* x [[buffer(0)]], \\
              uint i [[thread_position_in_grid]])
        template <typename T> kernel void negate_kernel(device T* x, uint i [[thread_position_in_grid]]) { x[i] = -x[i]; }
        MAKE(negate, float);
        MAKE(negate, int);
        template <typename T> kernel void deduced(device T* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
        template [[host_name("deduced_char")]] kernel void deduced(device char* x, uint i [[thread_position_in_grid]]);
        namespace outer { namespace inner {
          template <typename T> kernel void in_namespace(device T* x) { x[0] = 9; }
          template [[host_name("nested")]] [[kernel]] void in_namespace<float>(device float*);
          kernel void plain(device float* x) { x[0] = 10; }
        } }
        template [[host_name("outside")]] [[kernel]] void outer::inner::in_namespace<int>(device int*);
        [[host_name("renamed")]] [[kernel]] void original(device float* x) { x[0] = 11; }
        struct Twice { template <typename T> static T of(T x) { return x * 2; } };
        template <typename Op, typename T, T (*f)(T)> kernel void apply(device T* x) { x[0] = f(Op::of(x[0])); }
        inline float plus_one(float x) { return x + 1; }
        template [[host_name("apply_twice")]] [[kernel]] void apply<Twice, float, plus_one>(device float*);
        """)
    assert set(shader.kernels) == {
        "scale_float", "scale_half_3", "v_scale_int32_5", "scale_typedef", "negate_float", "negate_int", "deduced_char", "nested",
        "outside", "plain", "renamed", "apply_twice",
    }  # fmt: skip
    cases = {"scale_float": (np.float32, 6), "scale_half_3": (np.float16, 9), "v_scale_int32_5": (np.int32, 15),
             "scale_typedef": (np.uint32, 21), "negate_float": (np.float32, -3), "deduced_char": (np.int8, 4),
             "nested": (np.float32, 9), "outside": (np.int32, 9), "renamed": (np.float32, 11), "apply_twice": (np.float32, 7)}  # fmt: skip
    for name, (dtype, expected) in cases.items():
        x = np.full(1, 3, dtype)
        shader[name].run(1, 1, {0: x})
        assert x[0] == expected, name


def test_includes_and_conditions():
    """Headers shared with the host, include guards, and code that only one side sees."""
    folder = path("include/sub")
    folder.mkdir(parents=True)
    (folder / "shared.h").write_text("""#ifndef SHARED_H
#define SHARED_H
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#define ADDRESS constant
#else
#include <vector>
#define ADDRESS
class Host { virtual double never() { throw 1; } };
#endif
#include <simd/simd.h>
typedef struct { vector_float3 scale; uint32_t n; simd_uint2 pair; } Shared;
#endif
""")
    (folder / "more.h").write_text(
        '#pragma once\n#include "shared.h"\ninline float twice(float x) { return x * 2; }\n'
    )
    (folder / "more.h").touch()
    shader = library("""
        #include "sub/more.h"
        #include "sub/more.h"
        #include "sub/shared.h"
        #if __METAL_VERSION__ >= 310 && defined(EXTRA) && EXTRA == 4
        kernel void run(device float* out, ADDRESS Shared& s) { out[0] = twice(s.scale.z) + s.n + s.pair.y + EXTRA; }
        #endif""", include=(str(folder.parent),), defines=("EXTRA=4",))  # fmt: skip
    given = np.zeros(
        1,
        {
            "names": ["scale", "n", "pair"],
            "formats": ["3f4", "u4", "2u4"],
            "offsets": [0, 16, 24],
            "itemsize": 32,
        },
    )
    given[0] = ([1, 2, 3], 100, [5, 6])
    out = np.zeros(1, np.float32)
    shader["run"].run(1, 1, {0: out, 1: given})
    assert out[0] == 6 + 100 + 6 + 4


def test_large_grids():
    """Positions are 32 bits; a single worker may be given any part of the threadgroups. Each thread runs once."""
    shader = library("""
        kernel void mark(device atomic_uint* seen, device uint2* out, uint2 i [[thread_position_in_grid]],
                         uint2 n [[threads_per_grid]]) {
          uint at = i.y * n.x + i.x;
          out[at] = i;
          atomic_fetch_add_explicit(&seen[at], 1, memory_order_relaxed);
        }
        kernel void last(device uint* out, uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
          if (i >= n - 5000) out[n - 1 - i] = i;
        }""")
    width, height = 70001, 41  # no multiples of a threadgroup
    for workers in (1, 7):
        seen, out = np.zeros((height, width), np.uint32), np.zeros((height, width, 2), np.uint32)
        shader["mark"].run((width, height), (16, 16), {0: seen, 1: out}, workers=workers)
        np.testing.assert_array_equal(seen, 1)
        y, x = np.mgrid[:height, :width]
        np.testing.assert_array_equal(out[..., 0], x)
        np.testing.assert_array_equal(out[..., 1], y)
    # Checked kernels write down which thread runs, which takes a minute of 2^31 of them.
    n = at_depth(2**20, 2**20 if VALIDATION else 2**31) + 4099
    out = np.zeros(5000, np.uint32)
    shader["last"].run(n, 1024, {0: out}, workers=2)
    np.testing.assert_array_equal(out, n - 1 - np.arange(5000))


# C's values: precedence, division towards zero, names of enums, constants and namespaces.
INTEGERS = {
    "0x1f - 1": 30, "010": 8, "6u": 6, "1 << K": 8, "6 & 3 < 2": 0, "-7 / 2 + 4": 1, "K == 3": 1, "K > 2 ? N : 9": 4,
    "!K": 0, "ns::M + ::N": 6, "~0 + 3": 2, "(K + 1) * 2 % 5": 3, "sizeof(int)": 4,
}  # fmt: skip


def test_integers_in_attributes():
    kernels = "".join(
        f"kernel void k{i}(device float* x [[buffer({text})]]) {{}}\n"
        for i, text in enumerate(INTEGERS)
    )
    names = "enum { K = 3 };\nconstant int N = 4;\nnamespace ns { constant int M = 2; }\n"
    found = library(names + kernels).kernels
    values = {text: found[f"k{i}"].arguments[0]["index"] for i, text in enumerate(INTEGERS)}
    assert values == INTEGERS


def packed_products(body: str) -> int:
    """How many instructions of a kernel, as machine code, multiply several floats at once."""
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        source = f"kernel void work(device const float* x, device float* y, {THREAD}) {{ {body} }}"
        file.write(compile_object("work.metal", Options(validation=False), HEADER + source)[0])
        file.flush()
        command = ["objdump", "-d", "--no-show-raw-insn", file.name]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # x86-64; arm64.
    return len(re.findall(r"\bv?(?:mul|f\w+1\w+)ps\b|\bfml?(?:a|ul)\s+v\d+\.[24]s", code))


def test_loops_vectorise_over_threads(monkeypatch):
    """A kernel's loop over threads becomes vector code (about 8x for this one), and so does that over lanes."""
    work = "float v = x[i]; for (int k = 0; k < 64; ++k) v = v * 0.999f + 0.5f; y[i] = v;"
    meets = f"{work} threadgroup_barrier(mem_flags::mem_none);"
    assert packed_products(work) > 0 and packed_products(meets) > 0
    # The controls: a fiber a thread, and a loop whose turns have to follow each other.
    with monkeypatch.context() as fibers:
        fibers.setenv("METAL_OPS_FIBERS", "1")
        assert packed_products(meets) == 0
    assert packed_products(f"for (uint j = 1; j < 64; ++j) {{ {work} y[j] = y[j - 1] * 2; }}") == 0


@pytest.mark.parametrize("function", ["exp", "exp2", "log", "sin", "cos"])
def test_functions_vectorise(function):
    assert packed_products(f"y[i] = {function}(x[i]);") > 0
    # The control: a call of the C library's.
    assert packed_products("y[i] = precise::sin(x[i]);") == 0


def test_clear_keeps_to_its_elements():
    """Grids of many elements are rows of threads, of which the last is partly used."""
    shader = library(f'#include "{ROOT}/kernels/runtime/clear.metal"\n', include=(str(ROOT),))
    values = np.full(7, 9, np.uint16)
    shader["clear_halves"].run((3, 2), (3, 1), {0: values, 1: np.uint64(5)})
    np.testing.assert_array_equal(values, [0, 0, 0, 0, 0, 9, 9])


def test_elementwise_starts_at_its_element():
    """A tensor of more elements than a grid has threads takes several launches."""
    shader = library(
        f'#include "{ROOT}/kernels/softshrink/softshrink.metal"\n', include=(str(ROOT),)
    )
    x, g = np.arange(8, dtype=np.float32), np.full(8, 2, np.float32)
    half = np.float32(3.5)
    for name, inputs, expected in (
        ("softshrink_float", [x], [0.5, 1.5, 2.5]),
        ("softshrink_grad_float", [g, x], [2, 2, 2]),
    ):
        out = np.full(8, -1, np.float32)
        shader[name].run((3, 1), (3, 1), dict(enumerate([*inputs, out, np.uint64(4), half])))
        np.testing.assert_array_equal(out, [-1] * 4 + expected + [-1])
