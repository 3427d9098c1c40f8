"""Runs executor_test.mm: the plugin's StreamExecutor table, called as TensorFlow calls it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.device.test_loading import NO_STAND_IN, ROOT

PROGRAM = ROOT / "build" / "device_so" / "executor_test"


@pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's")
@pytest.mark.parametrize("validation", ["0", "1"])
def test_executor(validation):
    environment = {**os.environ, "METAL_OPS_DEVICE_MEMORY_MB": "64"}
    if validation == "1":
        # Only the device's own part of validation, scribbling over freed memory: with Apple's switch the stream waits
        # for every commit, and the program looks at commits that do not wait.
        environment["METAL_OPS_DEVICE_SCRIBBLE"] = "1"
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 14, done.stdout


@NO_STAND_IN
@pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's")
def test_executor_with_memory_of_its_own():
    """The same calls where the host cannot reach tensors: on the stand-in for a GPU."""
    library = "build/tests/hostmetal/cuda/libcuda.so"
    subprocess.run(["make", "-s", library], cwd=ROOT, check=True)
    environment = {
        **os.environ,
        "METAL_OPS_DEVICE_MEMORY_MB": "64",
        "HOSTMETAL_DEVICE": "cuda:0",
        "HOSTMETAL_LIBCUDA": str(ROOT / library),
        "FAKE_CUDA_MEGABYTES": "512",
    }
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 14, done.stdout
