"""Launch: arguments by name, checked against the compiled shader; shaders by name; libraries by content."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Process

SAMPLES = Path(__file__).parent / "samples"

# The launches: the result for x = [1, 2, 3], or words of the error.
CASES: dict[str, list[float] | tuple[str, ...]] = {
    "right": [2, 4, 6],
    "another order": [2, 4, 6],
    "at run time": [15, 30, 45],
    "constants": [3, 6, 9],
    "another constant": [5, 10, 15],
    "missing": ("'params' is missing", "'params': reads elements of 8 bytes"),
    "surplus": ("has no argument 'z'",),
    "misspelt": (
        "has no argument 'parms'; near it are 'params'",
        "is given ('x': float32 [3], 'y'",
    ),
    "twice": ("'x' is given twice",),
    "size": ("'params' is of another size", "reads elements of 8 bytes", "'params': 4 bytes"),
    "bytes to write": ("'y' is written by the shader", "'y': 3 times 4 bytes"),
    "dtype": ("'x' is of another dtype", "'x': reads float", "'x': float16 [3]"),
    "elements": ("'x' is of another size", "'x': 3 times 2 bytes"),
    "shader": ("has no function 'scale_flaot'; near it are 'scale_float'",),
    "far shader": ("has no function 'something_else'. Correct the name",),
    "long name": ("has a name of more than 112 letters",),
    "too many": ("is given 40 arguments; Metal has 31",),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launches")
    build(folder / "launches.so", "--kernels", "launches.mm", "--shaders", "launches.metal")
    return folder / "launches.so"


def build(to: Path, *arguments: str, tool: str = "build") -> None:
    command = [sys.executable, "-m", "metal_ops", tool, *arguments, "-o", str(to)]
    done = subprocess.run(command, cwd=SAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run(library: Path) -> Callable[[str], str]:
    """Runs Python with `launch(what)` at hand, and returns its output."""

    def run(body: str) -> str:
        script = f"""
import ctypes, pathlib, shutil
import tensorflow as tf
import metal_ops.device
metal_ops.device.load()
launches = tf.load_op_library({str(library)!r}).launches
kernels = ctypes.CDLL({str(library)!r})
def launch(what, library="", x=(1.0, 2.0, 3.0)):
    try:
        with tf.device("GPU:0"):
            return launches(tf.constant(x), what=what, library=library).numpy().tolist()
    except tf.errors.OpError as error:
        return error.message
"""
        code, out, err = Process("-c", script + textwrap.dedent(body)).finish()
        assert code == 0, err
        return out

    return run


def test_cases(run: Callable[[str], str]) -> None:
    said = run(f"for what in {list(CASES)!r}: print(what, '->', launch(what))")
    answers = dict(line.split(" -> ", 1) for line in said.splitlines())
    for what, expected in CASES.items():
        if isinstance(expected, list):
            assert answers[what] == str([float(value) for value in expected]), what
            continue
        for words in expected:
            assert words in answers[what], f"{what}: {answers[what]}"
        if "function" not in answers[what] and "letters" not in answers[what]:
            assert re.search(r"It takes \(.+\) and is given \(.*\)", answers[what]), answers[what]


def test_a_wrong_launch_leaves_nothing_behind(run: Callable[[str], str]) -> None:
    said = run("""
        for what in ("missing", "right", "shader", "right"):
            print(launch(what))
        kernels.metal_kernels_pipelines_built.restype = ctypes.c_int64
        print(kernels.metal_kernels_pipelines_built())
    """)
    lines = said.splitlines()
    assert lines[1] == lines[3] == "[2.0, 4.0, 6.0]"
    assert lines[4] == "1"  # that of the misspelt shader was never made


def test_libraries_are_known_by_content(
    run: Callable[[str], str], library: Path, tmp_path: Path
) -> None:
    """A file that is written anew is another library, a copy of a file is the same one."""
    text = (SAMPLES / "launches.metal").read_text()
    (tmp_path / "other.metal").write_text(text.replace("params.scale * x[i]", "10 * x[i]"))
    build(tmp_path / "other.metallib", str(tmp_path / "other.metal"), tool="metal")
    said = run(f"""
        kernels.metal_kernels_pipelines_built.restype = ctypes.c_int64
        first, other = {str(library.with_suffix(".metallib"))!r}, {str(tmp_path / "other.metallib")!r}
        path = {str(tmp_path / "here.metallib")!r}
        for source in (first, first, other, first):
            shutil.copyfile(source, path)
            print(launch("library", path))
        print(launch("right"), kernels.metal_kernels_pipelines_built())
        print(launch("library", path + ".not"))
    """)
    lines = said.splitlines()
    assert lines[:4] == ["[2.0, 4.0, 6.0]"] * 2 + ["[10.0, 20.0, 30.0]", "[2.0, 4.0, 6.0]"]
    assert lines[4] == "[2.0, 4.0, 6.0] 2"
    assert "here.metallib.not cannot be read" in lines[5]
