"""The files that `make gpu-test` packs for a machine with a GPU, recorded and run again here, where the device is
the processor."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).resolve().parents[2]
# Two launches, one of a struct with a gap between its fields, and the same in a test that is left out.
RECORDED = '''
import numpy as np
import pytest
from tests.msl.shaders import library

def test_launches():
    shader = library("""
        struct S { uchar a; float b[2]; };
        kernel void doubled(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
        kernel void made(device S* s, constant float& b) { s[0].a = 3; s[0].b[1] = b; }""", checked=False)
    x = np.arange(5, dtype=np.float32)
    shader["doubled"].run(5, 2, {0: x})
    s = np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["u1", "2f4"], "offsets": [0, 4], "itemsize": 12}))
    shader["made"].run(1, 1, {0: s, 1: np.float32(7)})
    assert x[4] == 8 and s[0]["b"][1] == 7

@pytest.mark.parametrize("case", [0])
def test_vectors_need_no_more_alignment_than_their_elements(case):
    test_launches()
'''

CASES = (
    "blit_copies_and_fills",
    "library_takes_code_for_wide_vectors",
    "source_compiles_and_runs",
    "texture_cubes_and_depth",
    "there_is_no_such_case",
)


@pytest.fixture(scope="module")
def pack(tmp_path_factory) -> Path:
    tests, fixture = "build/tests/hostmetal/hostmetal_tests", "build/gpu/fixtures/fixture.metallib"
    subprocess.run(["make", "-s", "build/gpu/replay", tests, fixture], cwd=ROOT, check=True)
    out = tmp_path_factory.mktemp("pack")
    for file in (
        "tools/gpu/run.py",
        "build/gpu/replay",
        "python/metal_ops/libhostmetal.so",
        tests,
    ):
        shutil.copy(ROOT / file, out)
    (out / "fixtures").mkdir()
    shutil.copy(ROOT / fixture, out / "fixtures")
    (out / "cases").write_text("\n".join(CASES))
    (out / "commit").write_text("a commit\n")
    (out / "test_recorded.py").write_text(RECORDED)
    command = ["-m", "pytest", "-q", "-p", "tools.gpu.record", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *command, "--rootdir", out, out / "test_recorded.py"],
        cwd=ROOT,
        env={**os.environ, "GPU_RECORD": str(out / "launches"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def run(pack: Path, *arguments: str, device: str = "cpu") -> str:
    done = subprocess.run(
        [sys.executable, pack / "run.py", *arguments],
        env={**os.environ, "HOSTMETAL_DEVICE": device, "HOSTMETAL_LIBCUDA": "no_libcuda.so"},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.full("runs tests of hostmetal once more")
def test_what_was_recorded_gives_the_same_again(pack: Path) -> None:
    said = run(pack, "2")
    assert "launches of tests/msl: 2, run 2 times, always as on the CPU device: 2" in said, said
    assert "not run: test_vectors_need_no_more_alignment_than_their_elements: a vector in" in said
    assert "FAILED textures: No such file" in said  # a program that was not packed is no success
    assert "tests of hostmetal: 3, passed: 1" in said, said
    assert "not run, as no shader compiler is here: source_compiles_and_runs texture_cubes" in said
    assert "open library_takes_code_for_wide_vectors: it is the CPU's code" in said, said
    assert "FAILED there_is_no_such_case: exit status 2: no case of that name" in said


def test_what_differs_is_named_but_not_between_fields(pack: Path) -> None:
    data = np.memmap(pack / "launches/data", np.uint8, "r+")
    rows = json.loads((pack / "launches/launches.json").read_text())
    assert [row["kernel"] for row in rows] == ["doubled", "made"]
    after = 2 * 20 + 28  # of the first launch, then the input of the second
    kept = data.copy()
    data[after + 1] ^= 255  # between a and b
    assert "always as on the CPU device: 2" in run(pack)
    data[after + 11] ^= 1  # b[1]
    said = run(pack)
    data[:] = kept
    assert "always as on the CPU device: 1" in said, said
    assert "FAILED test_recorded.py::test_launches made (1), 1 of 1: buffer 0, b: 1 of 4" in said


def test_without_a_gpu_it_says_so(pack: Path) -> None:
    assert "NVIDIA's driver library cannot be loaded: no_libcuda.so" in run(pack, device="cuda:0")


def test_who_is_stopped_has_a_report_of_what_ended(pack: Path) -> None:
    report, program = pack / "report.txt", pack / "textures"
    report.unlink(missing_ok=True)
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o700)
    running = subprocess.Popen(
        [sys.executable, pack / "run.py", "3"],
        env={**os.environ, "HOSTMETAL_DEVICE": "cpu"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while "2 of 2 launches" not in (report.read_text() if report.exists() else ""):
            assert running.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait()
        program.unlink()
    said = report.read_text().splitlines()
    assert said[-1] == "NOT FINISHED: 2 of 2 launches"
    assert "launches of tests/msl: 2, run 3 times, always as on the CPU device: 2" in said


def test_suites_run_each_file_in_a_process_and_say_what_failed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tools/gpu/suites.py", tmp_path)
    tests = {
        "good": "import os\ndef test_it(): assert os.environ['HOSTMETAL_DEVICE'] == 'cpu'\n",
        "bad": "def test_it(): assert 1 == 2\n",
        "broken": "import there_is_no_such_module\n",
    }
    with tarfile.open(tmp_path / "tree.tar", "w") as tar:
        for name, code in tests.items():
            (tmp_path / name).write_text(code)
            tar.add(tmp_path / name, f"tests/device/on_device/test_{name}.py")
    command = [sys.executable, tmp_path / "suites.py"]
    environment = {**os.environ, "HOSTMETAL_DEVICE": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    report = (tmp_path / "suites.txt").read_text()
    assert done.returncode == 1 and "3 files, 2 with failures" in done.stdout, done
    assert "test_good.py: 1 passed" in report and "test_bad.py: 1 failed" in report
    assert "FAILED tests/device/on_device/test_bad.py::test_it" in report
    assert "ERROR tests/device/on_device/test_broken.py" in report
    done = subprocess.run([*command, "good"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "1 files, 0 with failures" in done.stdout, done


def test_suites_carry_what_is_needed_as_it_is_installed_here() -> None:
    sys.path.insert(0, str(ROOT / "tools/gpu"))
    try:
        import suites
    finally:
        sys.path.pop(0)
    pins = suites.requirements(["tensorflow-metal-ops", "pytest"])
    assert f"numpy=={np.__version__}" in pins and f"pytest=={pytest.__version__}" in pins
    assert any(pin.startswith("keras==") for pin in pins)
    assert not any("metal" in pin for pin in pins)
