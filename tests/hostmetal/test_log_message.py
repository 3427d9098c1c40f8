"""Text of os_log's records that no shader writes here: those of GPUs, and of formats that are no literals."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not shutil.which("clang++-19"), reason="hostmetal is built on Linux only"
)
PROGRAM = r"""
#include <stdio.h>
#include <string.h>

#include "hostmetal/src/log_message.h"

struct Record {
  metallib_log_record head = {};
  struct {
    metallib_log_argument head;
    uint64_t bits;
  } arguments[2] = {{{METALLIB_LOG_SIGNED, 4, 1, {}}, 7}, {{METALLIB_LOG_FLOAT, 2, 3, {}}, 0}};
  char texts[64] = {};
};

void Say(Record& record, const char* format) {
  record.head.format = format;
  printf("%s\n", hostmetal::ReadLog(record.head).Line().c_str());
}

int main() {
  Record record;
  const uint16_t halves[] = {0x3c00, 0xfc00, 0x0001};  // 1, -inf, the least number
  memcpy(&record.arguments[1].bits, halves, sizeof halves);
  record.head.level = 4;
  record.head.n_arguments = 2;
  record.head.kernel = "k";
  record.head.thread[1] = 5;
  Say(record, "%d %v3hf");
  Say(record, "%d %v3hg %d %q %");
  Say(record, "%*v3hf|%-100000d");
  // On a GPU: the texts behind the arguments, of those that there are.
  record.head.flags = METALLIB_LOG_INLINE;
  record.head.subsystem = record.head.category = record.head.kernel = (const char*)1;
  memcpy(record.texts, "sub\0category\0<%d>\0other", 23);
  Say(record, (const char*)1);
  record.head.subsystem = record.head.category = nullptr;
  memcpy(record.texts, "<%d>\0other", 11);
  Say(record, (const char*)1);
}
"""


def test_records_become_text(tmp_path):
    (tmp_path / "main.cc").write_text(PROGRAM)
    command = ["clang++-19", "-std=c++17", "-I.", "-fsanitize=undefined", "-fno-sanitize-recover"]
    sources = ["hostmetal/src/log_message.cc", str(tmp_path / "main.cc")]
    subprocess.run([*command, *sources, "-o", str(tmp_path / "main")], cwd=ROOT, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    where = "[k] thread (0, 5, 0), error: "
    assert done.stdout.splitlines() == [
        where + "7 1.000000,-inf,0.000000",
        where + "7 1,-inf,5.96046e-08 <no argument> %q %",
        # A star takes the first argument; fields have at most 1000 characters.
        where + "1.000000,   -inf,0.000000|<no argument>",
        "[other] thread (0, 5, 0), error, sub:category: <7>",
        "[other] thread (0, 5, 0), error: <7>",
    ]
