"""Intervals for Instruments, against a stand-in for macOS' header that prints its arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS has the header itself")

# The functions that <os/signpost.h> documents; there they are macros that want literals, too.
HEADER = r"""
#include <cstdarg>
#include <cstdio>
#include <string>
typedef const char* os_log_t;
typedef unsigned long os_signpost_id_t;
#define OS_SIGNPOST_ID_NULL ((os_signpost_id_t)0)
static bool recording = true;
static os_signpost_id_t last = 0;
inline os_log_t os_log_create(const char* subsystem, const char* category) { return subsystem; }
inline bool os_signpost_enabled(os_log_t log) { return recording; }
inline os_signpost_id_t os_signpost_id_generate(os_log_t log) { return ++last; }
inline void say(const char* format, ...) {
  std::string plain = format;  // "%{public}s" is no format of printf's
  for (size_t at; (at = plain.find("{public}")) != std::string::npos;) plain.erase(at, 8);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(plain.c_str(), arguments);
  va_end(arguments);
}
#define os_signpost_interval_begin(log, id, name, format, ...) \
  say("%s begin %lu " name " " format "\n", log, id, __VA_ARGS__)
#define os_signpost_interval_end(log, id, name) say("%s end %lu " name "\n", log, id)
"""

PROGRAM = r"""
#include <initializer_list>
#include "kernels/runtime/signpost.h"
#if !__has_include(<os/signpost.h>)
static bool recording;
#endif
int main() {
  metal_ops::RunningOp op = {"Conv2D", nullptr, [](void*, size_t* length) {
    *length = 10;
    return "model/conv, and what does not belong to it";
  }};
  for (const bool on : {true, false, true}) {
    recording = on;
    metal_ops::BeginSignpost(op);
    metal_ops::EndSignpost();
    metal_ops::EndSignpost();
  }
}
"""


def run(tmp_path: Path, *options: str) -> str:
    (tmp_path / "main.cc").write_text(PROGRAM)
    program = tmp_path / "main"
    command = ["g++", "-std=c++17", f"-I{ROOT}", *options, tmp_path / "main.cc", "-o", program]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def test_calls_of_kernels_are_intervals(tmp_path: Path):
    (tmp_path / "os").mkdir()
    (tmp_path / "os" / "signpost.h").write_text(HEADER)
    (tmp_path / "os" / "log.h").touch()
    assert run(tmp_path, "-isystem", str(tmp_path)).splitlines() == [
        "metal_ops begin 1 op Conv2D model/conv",
        "metal_ops end 1 op",
        "metal_ops begin 2 op Conv2D model/conv",
        "metal_ops end 2 op",
    ]


def test_nothing_where_there_are_none(tmp_path: Path):
    assert run(tmp_path) == ""
