"""--coverage: what a run of several processes leaves, and what llvm-cov makes of it where it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metal_ops.metal
from metal_ops.metal import CompileError, toolchain

pytestmark = pytest.mark.compiler

PROGRAM = [sys.executable, str(Path(metal_ops.metal.__file__).parent)]
HEADER = """inline float at_least_zero(float x) {
  if (x < 0) return 0;
  return x;
}
"""
KERNEL = """#include <metal_stdlib>
#include "header.h"
using namespace metal;

#define TWICE(x) ((x) > 100 ? 200 : 2 * (x))

kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]],
              uint t [[thread_index_in_threadgroup]]) {
  threadgroup float s[4];
  s[t] = at_least_zero(x[i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint j = 0; j < 4; ++j) sum += s[j];
  if (i > 5) {
    sum = -1;
  } else if (i > 50) {
    sum = -2;
  }
  x[i] = TWICE(sum);
}

kernel void never(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
"""
TEXT = "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {{\n  if (i == {n}) return;\n  x[i] = 1;\n}}\n"
# By lines of the sources: how often a run of 8 threads, 4 a threadgroup, executes them.
LINES = {
    "header.h": {1: 8, 2: 8, 3: 5, 4: 8},
    "k.metal": {8: 8, 10: 8, 13: 40, 14: 8, 15: 2, 16: 6, 17: 0, 19: 8, 22: 0},
}
BRANCHES = {"header.h": {(2, 0): 3, (2, 1): 5}, "k.metal": {(14, 0): 2, (16, 0): 0, (16, 1): 6}}
RUN = f"""
import sys, types
package = types.ModuleType("metal_ops")
package.__path__ = [{str(Path(metal_ops.metal.__file__).parents[1])!r}]
sys.modules["metal_ops"] = package  # without TensorFlow
import numpy as np
from metal_ops.metal.launch import Library
x = np.arange(8, dtype=np.float32) - 3
for path in sys.argv[1:]:
    Library(path)["k"].run(8, 4, {{0: x}}, workers=2)
"""


def _metal(folder: Path, *arguments: str, stdin: str | None = None, **environment: str) -> str:
    done = subprocess.run([*PROGRAM, *arguments], cwd=folder, input=stdin, capture_output=True, text=True,
                          env={**os.environ, **environment})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(folder: Path, *libraries: str) -> None:
    environment = {**os.environ, "HOSTMETAL_COVERAGE": "counts"}
    subprocess.run([sys.executable, "-c", RUN, *libraries], cwd=folder, env=environment, check=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """A folder after a run of three processes: two of a file with a header, one of two texts with kernels of one name."""
    folder = tmp_path_factory.mktemp("coverage")
    (folder / "header.h").write_text(HEADER)
    (folder / "k.metal").write_text(KERNEL)
    only = "-fno-shader-validation"
    _metal(folder, "--coverage", only, "k.metal", "-o", "k.metallib")
    for n in (3, 100):
        text = TEXT.format(n=n)
        _metal(folder, only, "-", "-o", f"{n}.metallib", stdin=text, HOSTMETAL_COVERAGE="counts")
    _run(folder, "./k.metallib")
    _run(folder, "./k.metallib")
    _run(folder, "./3.metallib", "./100.metallib")
    return folder


def test_a_run_leaves_libraries_and_counts(ran):
    found = sorted(path.suffix for path in (ran / "counts").iterdir() if path.is_file())
    assert found[:3] == [".metallib"] * 3 and found.count(".profraw") == 4, found


def test_kernels_without_coverage_count_nothing(ran, tmp_path):
    (tmp_path / "k.metal").write_text(TEXT.format(n=3))
    _metal(tmp_path, "k.metal", "-o", "k.metallib", HOSTMETAL_COVERAGE="")
    _run(tmp_path, "./k.metallib")
    assert not (tmp_path / "counts").exists()


def test_what_is_missing_is_a_sentence(ran, tmp_path):
    def says(folder: Path, **environment: str) -> str:
        done = subprocess.run([*PROGRAM, f"--coverage-report={folder}"], capture_output=True, text=True,
                              env={**os.environ, **environment})  # fmt: skip
        assert done.returncode == 1
        return done.stderr

    missing = says(ran / "counts", METAL_OPS_LLVM_PROFDATA="/nowhere/llvm-profdata")
    assert "'/nowhere/llvm-profdata' was not found; run 'sudo apt-get install llvm-19'" in missing
    if _installed():
        assert "set HOSTMETAL_COVERAGE to that folder for the run" in says(tmp_path)


def _installed() -> bool:
    try:
        toolchain.program("llvm-profdata-19", "METAL_OPS_LLVM_PROFDATA", "llvm-19")
        toolchain.program("llvm-cov-19", "METAL_OPS_LLVM_COV", "llvm-19")
    except CompileError:
        return False
    return True


def test_the_report_counts_lines_and_branches_of_the_users_files(ran):
    if not _installed():
        pytest.skip("no llvm-cov-19: run 'sudo apt-get install llvm-19'")
    summary = _metal(ran, "--coverage-report=counts")
    assert re.search(r"k\.metal\s+15\s+3\s+80\.00%", summary), summary
    lines: dict[str, dict[int, int]] = {}
    branches: dict[str, dict[tuple[int, int], int]] = {}
    for part in (ran / "counts/lcov.info").read_text().split("end_of_record\n")[:-1]:
        name = Path(re.search(r"SF:(.*)", part)[1]).name
        lines[name] = {int(n): int(c) for n, c in re.findall(r"^DA:(\d+),(\d+)", part, re.M)}
        found = re.findall(r"^BRDA:(\d+),\d+,(\d+),(\d+)", part, re.M)
        branches[name] = {(int(n), int(b)): int(c) for n, b, c in found}
    texts = {name: counts for name, counts in lines.items() if name.startswith("source-")}
    assert lines.keys() - texts.keys() == LINES.keys()
    for name, expected in LINES.items():  # two processes ran it
        assert {n: lines[name][n] for n in expected} == {n: 2 * c for n, c in expected.items()}
        assert {b: branches[name][b] for b in BRANCHES[name]} == {b: 2 * c for b, c in BRANCHES[name].items()}  # fmt: skip
    assert sorted(counts[3] for counts in texts.values()) == [7, 8]
    pages = list((ran / "counts/html").rglob("*.html"))
    assert any("k.metal" in page.name for page in pages)
