"""`metal -c --deferred`: objects that describe their kernels, and the code of one when it is asked for."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from metal_ops.metal import CompileError, cli, cpu, deferred
from metal_ops.metal.check_launch import Checks
from metal_ops.metal.launch import Library

from .shaders import HEADER, library

# Kernels that share functions, one with a barrier, and function constants.
FIRST = """
constant int shift [[function_constant(0)]];
template <typename T> T twice(T x) { return x + x; }
kernel void double_float(device float* x, uint i [[thread_position_in_grid]]) { x[i] = twice(x[i]) + shift; }
kernel void double_int(device int* x, uint i [[thread_position_in_grid]]) { x[i] = twice(x[i]); }
kernel void turned(device float* x, uint i [[thread_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  threadgroup float shared[32];
  shared[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = shared[n - 1 - i];
}
"""
SECOND = """
#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif
kernel void squared(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= x[i]; }
"""
SHIFT = {0: np.int32(3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a library of two sources."""
    folder = tmp_path_factory.mktemp("deferred")
    for name, source in (("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.metal").write_text(HEADER + source)
        assert (
            cli.main(["-c", "--deferred", f"{folder}/{name}.metal", "-o", f"{folder}/{name}.air"])
            == 0
        )
    objects = [f"{folder}/first.air", f"{folder}/second.air"]
    assert cli.main(["metallib", *objects, "-o", f"{folder}/both.metallib"]) == 0
    (folder / "index").write_text(deferred.index(objects))
    return folder


def run(folder: Path, kernel: str, data: np.ndarray, checked: bool = False, widest: bool = False):
    # A name of its own: a file that is loaded may not change.
    file = folder / f"{kernel}_{len(list(folder.iterdir()))}.metallib"
    file.write_bytes(deferred.code((folder / "index").read_text(), [kernel], checked, widest))
    found = Library(file, checked)
    assert list(found.kernels) == [kernel]
    constants = SHIFT if found[kernel].constants else {}
    found[kernel].run(len(data), len(data), {0: data}, constants=constants)
    return data


def test_library_describes_kernels_as_one_with_code(made):
    found = Library(made / "both.metallib")
    whole = {**library(FIRST).kernels, **library(SECOND).kernels}
    assert found.kernels.keys() == whole.keys()
    for name, kernel in found.kernels.items():
        assert kernel.absent and not whole[name].absent
        for what in ("arguments", "constants", "static_threadgroup_bytes"):
            assert getattr(kernel, what) == getattr(whole[name], what), name
    # The runtime reads it from the library.
    symbol = ctypes.CDLL(str(made / "both.metallib")).metallib_v1_deferred
    text = ctypes.string_at(ctypes.cast(symbol, ctypes.c_void_p).value)
    assert json.loads(text) == json.loads((made / "index").read_text())


@pytest.mark.parametrize("checked, widest", [(False, False), (True, False), (False, True)])
def test_code_of_a_kernel(made, checked, widest):
    if widest and not re.search(r"\bavx512vl\b", Path("/proc/cpuinfo").read_text()):
        widest = False  # as the runtime says it there
    x = np.arange(8, dtype=np.float32)
    for name, want in (("double_float", 2 * x + 3), ("turned", x[::-1]), ("squared", x * x)):
        np.testing.assert_array_equal(run(made, name, x.copy(), checked, widest), want, name)
    np.testing.assert_array_equal(
        run(made, "double_int", np.arange(8, dtype=np.int32), checked), np.arange(8) * 2
    )


def test_code_is_kept(made, monkeypatch):
    text = (made / "index").read_text()
    first = deferred.code(text, ["double_int"], False, False)
    monkeypatch.setattr(cpu, "compile_parts", None)  # is not called
    assert deferred.code(text, ["double_int"], False, False) == first


def test_several_kernels_at_once(made):
    data = deferred.code((made / "index").read_text(), ["squared", "turned"], False, False)
    file = made / "several.metallib"
    file.write_bytes(data)
    assert Library(file).kernels.keys() == {"squared", "turned"}


def test_checks_are_compiled_from_the_source(made, monkeypatch, tmp_path):
    """With the options of then, from another folder; a source that has changed is refused."""
    text = (made / "index").read_text()
    monkeypatch.chdir(tmp_path)
    file = made / "checks.metallib"
    file.write_bytes(deferred.code(text, ["turned", "squared"], False, False, checks=True))
    x, checks = np.arange(8, dtype=np.float32), Checks()
    found = Library(file, True)
    found["turned"].run(8, 8, {0: x}, constants=SHIFT, checks=checks)
    assert checks.reports == [] and x.tolist() == [*range(7, -1, -1)]
    source = made / "first.metal"
    before = source.read_text()
    source.write_text(before.replace("  threadgroup_barrier", "  // threadgroup_barrier"))
    try:
        with pytest.raises(CompileError, match="first.metal' anew, which is not as it was when"):
            deferred.code(text, ["turned"], False, False, checks=True)
    finally:
        source.write_text(before)


def test_kernel_that_is_not_there(made):
    with pytest.raises(CompileError, match="--kernel=none: the library has no such kernel"):
        deferred.code((made / "index").read_text(), ["none"], False, False)


def test_object_that_was_built_anew(made, tmp_path):
    for name in ("first", "second"):
        for suffix in (".metal", ".air", ".air.deferred"):
            shutil.copy(made / f"{name}{suffix}", tmp_path)
    text = deferred.index([f"{tmp_path}/first.air", f"{tmp_path}/second.air"])
    source = tmp_path / "first.metal"
    source.write_text(source.read_text().replace("x + x", "x - x"))
    assert cli.main(["-c", "--deferred", str(source), "-o", f"{tmp_path}/first.air"]) == 0
    with pytest.raises(
        CompileError, match=r"first\.air\.deferred' was built anew after .*start the program again"
    ):
        deferred.code(text, ["double_int"], False, False)
    # With its code, it has no such file any more.
    assert cli.main(["-c", str(source), "-o", f"{tmp_path}/first.air"]) == 0
    with pytest.raises(
        CompileError, match="first.air.deferred', which cannot be read: No such file.*'make metal'"
    ):
        deferred.code(text, ["double_int"], False, False)
    with pytest.raises(
        CompileError, match="second.air was compiled with --deferred and .*first.air was not"
    ):
        deferred.index([f"{tmp_path}/second.air", f"{tmp_path}/first.air"])


@pytest.mark.parametrize(
    "arguments",
    [["--deferred", "a.metal"], ["-c", "--deferred", "a.air"], ["-c", "--deferred", "-"]],
)
def test_deferred_goes_with_sources_alone(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.metal").write_text(HEADER)
    Path("a.air").write_bytes(b"")
    assert cli.main(arguments) == 1
    assert "--deferred goes with -c, and with files" in capsys.readouterr().err


def test_library_with_the_code_of_all_kernels(made):
    file = made / "ahead.metallib"
    objects = [f"{made}/first.air", f"{made}/second.air"]
    assert cli.main(["metallib", "--ahead", *objects, "-o", str(file)]) == 0
    found = Library(file)
    assert not any(kernel.absent for kernel in found.kernels.values())
    x = np.arange(8, dtype=np.float32)
    found["turned"].run(8, 8, {0: x})
    np.testing.assert_array_equal(x, np.arange(8)[::-1])
    # Checked kernels are for later.
    assert all(kernel.absent for kernel in Library(file, True).kernels.values())
