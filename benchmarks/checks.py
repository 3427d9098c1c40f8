"""The cost of HOSTMETAL_CHECK: `python -m benchmarks.checks` prints the table of docs/find-the-race.md.

Each figure is the CPU time of a launch, as a multiple of the same kernel's by fibers and without checks: the best of
three.
"""

from __future__ import annotations

import os
import tempfile
import time

import numpy as np

from metal_ops.metal import Options, compile_object, link
from metal_ops.metal.check_launch import CHECKS, Checks
from metal_ops.metal.launch import Library

SOURCE = """#include <metal_stdlib>
using namespace metal;
#define THREAD uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]], \\
               uint g [[threadgroup_position_in_grid]]
kernel void product(device const float* a, device float* c, uint2 at [[thread_position_in_grid]],
                    uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float left[16][16], right[16][16];
  float sum = 0;
  for (uint k = 0; k < 256; k += 16) {
    left[t.y][t.x] = a[at.y * 256 + k + t.x];
    right[t.y][t.x] = a[(k + t.y) * 256 + at.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < 16; ++i) sum += left[t.y][i] * right[i][t.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  c[at.y * 256 + at.x] = sum;
}
kernel void tree(device const float* a, device float* c, THREAD) {
  threadgroup float s[256];
  s[t] = a[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint w = 128; w; w /= 2) {
    if (t < w) s[t] += s[t + w];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) c[g] = s[0];
}
kernel void mean(device const float* a, device float* c, THREAD) {
  threadgroup float parts[4];
  float sum = 0;
  for (uint k = t; k < 1024; k += 128) sum += a[g * 1024 + k];
  sum = simd_sum(sum);
  if (t % 32 == 0) parts[t / 32] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float whole = parts[0] + parts[1] + parts[2] + parts[3];
  for (uint k = t; k < 1024; k += 128) c[g * 1024 + k] = a[g * 1024 + k] / whole;
}
kernel void apart(device const float* a, device float* c, THREAD) {
  float x = a[i];
  for (int k = 0; k < 8; ++k) x = tanh(x) + 0.1f * exp(-x * x);
  c[i] = x;
}
"""
# Grid and threadgroup.
KERNELS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "product": ((256, 256), (16, 16)),
    "tree": ((65536, 1), (256, 1)),
    "mean": ((64 * 128, 1), (128, 1)),
    "apart": ((65536, 1), (256, 1)),
}
A, C = np.linspace(-1, 1, 65536, dtype=np.float32), np.zeros(65536, np.float32)


def _library(checked: bool, **options: bool) -> Library:
    data, _ = compile_object("cost.metal", Options(**options), SOURCE)
    with tempfile.NamedTemporaryFile(suffix=".metallib") as file:
        file.write(link([data]))
        file.flush()
        return Library(file.name, checked)


def _time(library: Library, kernel: str, checks: Checks | None = None, times: int = 3) -> int:
    grid, group = KERNELS[kernel]
    found = []
    for _ in range(times):
        begin = time.process_time_ns()
        library[kernel].run(grid, group, {0: A, 1: C}, checks=checks)
        found.append(time.process_time_ns() - begin)
        assert not checks or not checks.reports, checks.reports
    return min(found)


def main() -> None:
    """Prints the table."""
    os.environ["METAL_OPS_FIBERS"] = "1"
    plain, bounded = _library(False, validation=False), _library(True, plain=False)
    libraries = {}
    for words in ("init", "race"):  # kernels that init looks at have a shadow for it
        os.environ["HOSTMETAL_CHECK"] = words
        libraries[words] = _library(True, checks=True)
    base = {kernel: _time(plain, kernel) for kernel in KERNELS}
    print("| |", " | ".join(KERNELS), "|")
    rows = {"METAL_DEVICE_WRAPPER_TYPE=1": {k: _time(bounded, k) for k in KERNELS}}
    for words in [("barrier",), ("bounds",), ("alias",), ("init",), ("race",), CHECKS]:
        checked = libraries["init" if "init" in words else "race"]
        made = {k: _time(checked, k, Checks(words)) for k in KERNELS}
        rows["all five" if words is CHECKS else words[0]] = made
    rows["random:1"] = {k: _time(libraries["race"], k, Checks((), "random", 1)) for k in KERNELS}
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(f"{row[k] / base[k]:.1f}" for k in KERNELS), "|")


if __name__ == "__main__":
    main()
