"""Runs executor_test.mm: the plugin's StreamExecutor table, called as TensorFlow calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "device_so" / "executor_test"


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
    assert done.stdout.count("ok ") == 12, done.stdout
