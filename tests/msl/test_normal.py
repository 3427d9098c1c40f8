"""The functions of normal random numbers (device/kernels/normal.metal.h), for every possible argument: the bits of
the C library's functions, which TensorFlow's CPU kernels call."""

from __future__ import annotations

import platform
import sys

import numpy as np
import pytest

from tests.processes import ROOT, Process

from .shaders import library

ARGUMENTS = 1 << 23  # as many as there are mantissas
SOURCE = """
#include "device/kernels/normal.metal.h"
kernel void every(device uchar* differ [[buffer(0)]], device float* angles [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  const float u = max(unit_float(i), 1.0e-7f), angle = full_angle(unit_float(i));
  float sine, cosine;
  library_sincos(angle, sine, cosine);
  differ[i] = uchar(as_type<uint>(library_log(u)) != as_type<uint>(precise::log(u))) |
              uchar(as_type<uint>(sine) != as_type<uint>(precise::sin(angle))) << 1 |
              uchar(as_type<uint>(cosine) != as_type<uint>(precise::cos(angle))) << 2;
  angles[i] = angle;
}
"""


def every() -> tuple[np.ndarray, np.ndarray]:
    """By argument: which of logarithm (1), sine (2) and cosine (4) differ from the C library's; the angle."""
    differ, angles = np.full(ARGUMENTS, 255, np.uint8), np.zeros(ARGUMENTS, np.float32)
    every = library(SOURCE, include=(str(ROOT),))["every"]
    every.run(ARGUMENTS, 1024, {0: differ, 1: angles}, workers=2)
    return differ, angles


def test_every_argument():
    differ, angles = every()
    found = np.flatnonzero(differ)
    assert found.size == 0, [(int(i), int(differ[i])) for i in found[:9]]
    turns = np.arange(ARGUMENTS, dtype=np.float64) / ARGUMENTS
    np.testing.assert_array_equal(angles, (2 * np.pi * turns).astype(np.float32))


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="where glibc has a second form of these functions",
)
def test_processors_without_fma():
    """glibc's functions of such processors round their products, and still come to the same floats."""
    code = "from tests.msl.test_normal import test_every_argument as test; print(test())"
    process = Process("-c", code, GLIBC_TUNABLES="glibc.cpu.hwcaps=-FMA,-AVX2")
    status, out, err = process.finish()
    assert status == 0 and out == "None\n", err
