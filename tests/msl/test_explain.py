"""metal --explain: what it says of kernels that are known to be vectorised, or not, and why."""

from __future__ import annotations

import re

import pytest

from metal_ops.metal import Options, gpu
from metal_ops.metal.explain import explain

from .shaders import HEADER

pytestmark = pytest.mark.compiler

KERNELS = (
    HEADER
    + """#line 1
kernel void axpy(device const float4* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i].x + y[i];
}
kernel void chase(device const uint* next [[buffer(0)]], device uint* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  uint at = i;
  while (next[at] != at) {
    at = next[at];
  }
  out[i] = at;
}
kernel void count(device atomic_int* sum [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(sum, int(i), memory_order_relaxed);
}
kernel void sums(device const float2* x [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]],
                 uint t [[thread_index_in_threadgroup]]) {
  threadgroup float2 tile[64];
  tile[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[63 - t].x * tile[t ^ 1].y;
}
kernel void odd(device float* x [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  if (x[t] > 0) threadgroup_barrier(mem_flags::mem_device);
  x[t] = 1;
}
"""
)
SAYS = {
    "axpy": [r"a loop over threads, vectorised: 8 at once", r"reads .*\b(?:8|20) bytes device and constant",
             r"writes 4 bytes device and constant"],
    "chase": [r"not vectorised\n", r"test\.metal:7:3: could not determine number of loop iterations"],
    "count": [r"a loop over threads, not vectorised\n    instruction cannot be vectorized"],
    "sums": [r"loops over the lanes of a simdgroup, [1-9]", r"writes .*8 bytes threadgroup"],
    "odd": [r"a fiber a thread, not vectorised: a barrier that some threads may pass by"],
}  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    said = explain("test.metal", Options(), KERNELS)
    return {re.match(r"\w+", page)[0]: page for page in said.split("\n\n")}


@pytest.mark.parametrize("kernel", SAYS)
def test_what_it_says_of_a_kernel(pages, kernel):
    for pattern in SAYS[kernel]:
        assert re.search(pattern, pages[kernel]), f"{pattern}\n{pages[kernel]}"
    assert re.search(r"a thread: [1-9]\d* instructions", pages[kernel])
    assert re.search(r"code for x86-64-v3: [1-9]\d* instructions", pages[kernel])


def test_vectors_are_counted_where_there_are_some(pages):
    wide = {
        name: int(re.search(r"(\d+) of them on vectors", page)[1]) for name, page in pages.items()
    }
    assert wide["axpy"] > 0 and wide["chase"] == wide["count"] == wide["odd"] == 0


def test_occupancy(pages):
    try:
        gpu.ptxas()
    except Exception:
        assert (
            "NVIDIA sm_80: NVIDIA's assembler ptxas was not found; run 'pip install"
            in pages["axpy"]
        )
        return
    for kernel, page in pages.items():
        assert re.search(r"NVIDIA sm_80: \d+ registers, \d+ bytes of stack, 0 spilled", page), (
            kernel
        )
        assert "occupancy 100 % at 256 threads a threadgroup, limited by warps" in page
    assert "512 of threadgroup memory" in pages["sums"]


def test_occupancy_is_limited_by_what_there_is_little_of():
    try:
        gpu.ptxas()
    except Exception as why:
        pytest.skip(str(why))
    source = (
        HEADER
        + """kernel void large(device float* x [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float tile[8192];
  tile[t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[t] = tile[t ^ 1];
}"""
    )
    # 164 KB, 33 KB for each of four threadgroups of eight warps; 64 warps would fit.
    assert "occupancy 50 % at 256 threads a threadgroup, limited by threadgroup memory" in explain(
        "test.metal", Options(), source
    )


def test_functions_for_tables_have_code():
    source = (
        HEADER
        + """[[visible]] float twice(float x) { return 2 * x; }
[[visible]] float sum(device float* p, uint n) {
  float all = 0;
  for (uint k = 0; k < n; ++k) all += p[k];
  return all;
}
"""
    )
    said = explain("test.metal", Options(), source)
    sizes = [int(n) for n in re.findall(r"code for x86-64-v3: (\d+) instructions", said)]
    assert len(sizes) == 2 and 0 < sizes[0] < sizes[1], said
    assert said.count("no code, as GPUs do not have functions for tables here") == 2


def test_a_source_without_kernels():
    assert explain("test.metal", Options(), HEADER) == "test.metal has no kernels\n"
