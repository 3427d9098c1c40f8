"""The checked kernels: an access out of range is a fault that names kernel, binding, place and thread, and does no harm."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.metal.launch import Fault

from .shaders import library

pytestmark = pytest.mark.compiler

SOURCE = """
struct P { float a; float b[7]; };
kernel void read(device const float* x, device float* out, uint i [[thread_position_in_grid]]) { out[i] = x[i + 1]; }
kernel void write(device float* out, uint i [[thread_position_in_grid]]) { out[i * 2] = 1; }
kernel void vector(device const float4* x, device float4* out, uint i [[thread_position_in_grid]]) { out[i] = x[i].wzyx + x[i]; }
kernel void constants(constant P& p, constant float* t, device float* out, uint i [[thread_position_in_grid]]) { out[i] = p.b[6] + t[i]; }
kernel void structs(device P* p, uint i [[thread_position_in_grid]]) { P q = p[i]; q.b[6] += 1; p[i] = q; }
kernel void atomics(device atomic_uint* a, device atomic<float>* f, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&a[i], 1, memory_order_relaxed); atomic_fetch_add_explicit(&f[i / 2], 1.0f, memory_order_relaxed); }
kernel void shared(device float* out, device const uint* at, threadgroup float* s, uint i [[thread_position_in_grid]]) {
  threadgroup float fixed[8];
  s[i] = i; threadgroup_barrier(mem_flags::mem_threadgroup);
  fixed[at[0]] = 2; threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[at[1]] + fixed[at[2]]; }
kernel void negative(device const int* offset, device float* out, uint i [[thread_position_in_grid]]) { out[offset[0]] = 1; }
kernel void pointers(device float* x, device float* y, uint i [[thread_position_in_grid]]) {
  device float* p = i % 2 ? x : y; device float* end = x + 4; float sum = 0;
  for (device float* q = x; q != end; ++q) sum += *q;
  thread float local[4] = {sum, 1, 2, 3}; thread float* l = local + (i & 3); *p = *l; }
kernel void wild(device ulong* x) { device float* p = (device float*)x[0]; *p = 1; }
kernel void after(device float* out, uint g [[threadgroup_position_in_grid]]) { if (g == 0) out[1000] = 1; out[0] += 1; }
"""
F = np.float32


@pytest.fixture(scope="module")
def shader():
    return library(SOURCE, checked=True)


# kernel: (threads, buffers, threadgroup memory, words of the fault or None)
def _cases():
    x = lambda n, t=F: np.zeros(n, t)  # noqa: E731
    u = lambda *v: np.array(v, np.uint32)  # noqa: E731
    return {
        "read in range": ("read", 9, {0: x(10), 1: x(9)}, None),
        "read one past": ("read", 10, {0: x(10), 1: x(10)}, ("read", "device", 0, 40, 4, 40, 9)),
        "write past": ("write", 6, {0: x(10)}, ("write", "device", 0, 40, 4, 40, 5)),
        "vector partly outside": ("vector", 3, {0: x(11), 1: x(12)}, ("read", "device", 0, 44, 4, 44, 2)),
        "constant reference": ("constants", 1, {0: x(7), 1: x(1), 2: x(1)}, ("read", "constant", 0, 28, 4, 28, None)),
        "constant array": ("constants", 3, {0: x(8), 1: x(2), 2: x(3)}, ("read", "constant", 1, 8, 4, 8, 2)),
        "struct copy": ("structs", 2, {0: x(15)}, ("read", "device", 0, 60, 4, 60, 1)),
        "atomic": ("atomics", 4, {0: x(3, np.uint32), 1: x(2)}, ("write", "device", 0, 12, 4, 12, 3)),
        "float atomic": ("atomics", 4, {0: x(4, np.uint32), 1: x(1)}, ("read", "device", 1, 4, 4, 4, 2)),
        "unbound": ("read", 3, {0: None, 1: x(3)}, ("unbound", "device", 0, 4, 4, 0, 0)),
        "before the start": ("negative", 1, {0: np.int32([-3]), 1: x(8)}, ("write", "device", 1, -12, 4, 32, 0)),
        "far away": ("negative", 1, {0: np.int32([2**31 - 1]), 1: x(8)}, ("write", "device", 1, 4 * (2**31 - 1), 4, 32, 0)),
        "threadgroup in range": ("shared", 32, {0: x(32), 1: u(7, 31, 0)}, None),
        "static threadgroup": ("shared", 32, {0: x(32), 1: u(8, 0, 0)}, ("write", "threadgroup", 0xFFFF, 32, 4, 32, 0)),
        "passed threadgroup": ("shared", 32, {0: x(32), 1: u(0, 32, 0)}, ("read", "threadgroup", 0, 128, 4, 128, 0)),
        "pointer arithmetic": ("pointers", 2, {0: x(4), 1: x(1)}, None),
        "pointer past": ("pointers", 2, {0: x(3), 1: x(1)}, ("read", "device", 0, 12, 4, 12, 0)),
        "neighbouring buffer": ("read", 4, {0: (b := x(20))[:4], 1: b[4:8]}, ("read", "device", 0, 16, 4, 16, 3)),
    }  # fmt: skip


@pytest.mark.parametrize("name", _cases())
def test_access(name, shader):
    kernel, threads, buffers, expected = _cases()[name]
    run = lambda: shader[kernel].run(
        threads, 32, buffers, threadgroup_memory={0: 128} if kernel == "shared" else None
    )  # noqa: E731
    if expected is None:
        run()
        return
    with pytest.raises(Fault) as caught:
        run()
    fault = caught.value.details
    kind, space, index, offset, length, bound, thread = expected
    assert fault["kernel"] == kernel
    assert (fault["kind"], fault["argument_kind"], fault["index"]) == (kind, space, index)
    assert (fault["offset"], fault["length"], fault["binding_length"]) == (offset, length, bound)
    if thread is not None:
        assert fault["thread"] == (thread, 0, 0)


def test_no_address(shader):
    with pytest.raises(Fault) as caught:
        shader["wild"].run(1, 1, {0: np.array([0x1234 << 48], np.uint64)})
    assert caught.value.details["kind"] == "internal"


def test_faulting_launch_stops_and_leaves_the_library_usable(shader):
    """Nothing is written out of range; other threadgroups stop; the next launch on the same threads runs."""
    out = np.zeros(4, F)
    with pytest.raises(Fault):
        shader["after"].run(3200, 32, {0: out})
    assert out[0] == 0
    x = np.arange(5, dtype=F)
    shader["read"].run(4, 4, {0: x, 1: out})
    np.testing.assert_array_equal(out, x[1:])
    with pytest.raises(Fault):
        shader["shared"].run(64, 32, {0: out, 1: np.uint32([0, 0, 0])}, threadgroup_memory={0: 128})
    big = np.zeros(32, F)
    shader["shared"].run(
        32, 32, {0: big, 1: np.uint32([0, 31, 0])}, threadgroup_memory={0: 128}, workers=1
    )
    np.testing.assert_array_equal(big, 33)


def test_checked_kernels_compute_the_same():
    """A longer program through the instrumented code: a sort and a matrix product by simdgroups."""
    source = """
        kernel void sort(device float* x, threadgroup float* s, uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
          s[t] = x[t];
          for (uint k = 2; k <= n; k *= 2) for (uint j = k / 2; j; j /= 2) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint o = t ^ j;
            if (o > t && (s[t] > s[o]) == ((t & k) == 0)) { float a = s[t]; s[t] = s[o]; s[o] = a; }
          }
          threadgroup_barrier(mem_flags::mem_threadgroup);
          x[t] = s[t];
        }
        kernel void product(device const float* a, device float* c) {
          simdgroup_float8x8 x, y = simdgroup_float8x8(0.0f);
          for (int i = 0; i < 4; ++i) { simdgroup_load(x, a + 64 * i); simdgroup_multiply_accumulate(y, x, x, y); }
          simdgroup_store(y, c);
        }"""
    rng = np.random.default_rng(5)
    for checked in (False, True):
        shader = library(source, checked=checked)
        x = rng.normal(size=256).astype(F)
        expected = np.sort(x)
        shader["sort"].run(256, 256, {0: x}, threadgroup_memory={0: 1024})
        np.testing.assert_array_equal(x, expected)
        a, c = rng.integers(-3, 4, (4, 8, 8)).astype(F), np.zeros((8, 8), F)
        shader["product"].run(32, 32, {0: a, 1: c})
        np.testing.assert_array_equal(c, (a @ a).sum(0))


def test_assertion():
    """A failed assertion is a fault of the checked kernels, and nothing in the others."""
    source = """
#include <metal_assert>
kernel void k(device float* out, uint i [[thread_position_in_grid]]) { assert(i != 3 || out[0] < 1); out[i] = 2; }
"""
    out = np.zeros(8, F)
    library(source, checked=False)["k"].run(8, 8, {0: out})
    assert out.tolist() == [2] * 8
    library(source, checked=True)["k"].run(3, 3, {0: out})
    with pytest.raises(Fault) as caught:
        library(source, checked=True)["k"].run(8, 8, {0: out})
    assert caught.value.details["message"] == b"assertion failed: i != 3 || out[0] < 1"
    assert caught.value.details["thread"] == (3, 0, 0)


def test_assertion_without_its_header():
    """It is a function there, and gives way to whatever a program calls so."""
    source = "kernel void k(device float* out) { assert(out[0] < 1); out[0] = 2; }"
    out = np.zeros(1, F)
    library(source, checked=True)["k"].run(1, 1, {0: out})
    assert out[0] == 2
    library(source, checked=False)["k"].run(1, 1, {0: out})
    with pytest.raises(Fault) as caught:
        library(source, checked=True)["k"].run(1, 1, {0: out})
    assert caught.value.details["message"] == b"assertion failed"
    library(source, checked=True, defines=("NDEBUG",))["k"].run(1, 1, {0: out})
    for own in ("#define assert(condition)\n", "void assert(bool) {}\n"):
        library(own + source, checked=True)["k"].run(1, 1, {0: out})
