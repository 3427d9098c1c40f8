"""The CUDA backend without a GPU: its logic against a library that stands for NVIDIA's, cuda/fake_libcuda.cc."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops.metal import Options, compile_object, link

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent / "cuda"
BUILT = ROOT / "build/tests/hostmetal/cuda"
CASES = re.findall(r'^    \{"(\w+)"', (HERE / "driver_test.mm").read_text(), re.M)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hostmetal is built on Linux only")


@pytest.fixture(scope="session")
def fixtures(tmp_path_factory) -> dict[tuple[str, ...], Path]:
    """The driver's shaders by the GPUs that there is code for. make builds the programs."""
    programs = [str((BUILT / name).relative_to(ROOT)) for name in ("driver_test", "libcuda.so")]
    made = subprocess.run(["make", *programs], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    out = {}
    for gpu in ((), ("sm_80",), ("sm_80", "sm_90")):
        options = Options(validation=False, gpu=gpu, logging=True)
        out[gpu] = tmp_path_factory.mktemp("cuda") / "fixture.metallib"
        out[gpu].write_bytes(link([compile_object(str(HERE / "fixture.metal"), options)[0]]))
    return out


def run(
    fixture: Path, case: str, device: str = "cuda:0", **environment: str
) -> subprocess.CompletedProcess:
    """One case in its own process."""
    return subprocess.run(
        [BUILT / "driver_test", fixture, BUILT / "libcuda.so", case],
        env={
            **os.environ,
            "HOSTMETAL_LIBCUDA": str(BUILT / "libcuda.so"),
            "HOSTMETAL_DEVICE": device,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


OTHERS = ("no_device", "own_instructions", "library_without_gpu_code")


@pytest.mark.parametrize("case", [case for case in CASES if case not in OTHERS])
def test_case(fixtures, case: str) -> None:
    done = run(fixtures[("sm_80",)], case)
    assert done.returncode == 0, done.stdout + done.stderr


def test_library_without_gpu_code(fixtures) -> None:
    done = run(fixtures[()], "library_without_gpu_code")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("later", [{}, {"FAKE_CUDA_CAPABILITY": "10"}], ids=["Hopper", "later"])
def test_instructions_that_only_hopper_has(fixtures, later) -> None:
    """The target says so for such a kernel alone; a later GPU runs the code for an older one."""
    done = run(fixtures[("sm_80", "sm_90")], "own_instructions", **later)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("wanted", "environment", "said"),
    [
        ("cuda:0", {"FAKE_CUDA_NONE": "1"}, "'cuda:0', but cuInit: CUDA_ERROR_NO_DEVICE"),
        ("cuda:0", {"HOSTMETAL_LIBCUDA": "/nowhere/libcuda.so"}, "cannot be loaded: /nowhere"),
        ("cuda:0", {"HOSTMETAL_LIBCUDA": "libm.so.6"}, "libm.so.6 has no cuInit"),
        ("cuda:2", {}, "'cuda:2', but 2 NVIDIA GPUs are usable"),
        ("cuda", {"HOSTMETAL_DEVICES": "3"}, "DEVICES '3', but 2 NVIDIA GPUs are usable"),
        ("cuda:x", {}, "HOSTMETAL_DEVICE is 'cuda:x'; expected cpu or cuda:0"),
        ("gpu", {}, "HOSTMETAL_DEVICE is 'gpu'; expected cpu or cuda:0"),
    ],
)
def test_device_that_is_not_there(fixtures, wanted, environment, said) -> None:
    done = run(fixtures[("sm_80",)], "no_device", wanted, **environment)
    assert done.returncode == 0, done.stdout
    assert said in done.stderr
