"""metallib_abi.h, of which Python has no copy: its contents are read, and changes there are noticed."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops.metal import CompileError, seal
from metal_ops.metal.abi import Abi, abi, number
from metal_ops.metal.toolchain import library_root

pytestmark = pytest.mark.compiler

HEADER = library_root() / "metallib_abi.h"
# A kernel that takes, writes and reads the fields of an argument's record.
PROGRAM = """
import sys, numpy as np
from metal_ops.metal import CompileError, Options, compile_object, link
from metal_ops.metal.launch import Library
source = '''#include <metal_stdlib>
kernel void work(device float* x [[buffer(2)]], constant float& a [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  x[i] *= a;
}'''
try:
    data, _ = compile_object("work.metal", Options(validation=False), source)
except CompileError as error:
    sys.exit(str(error))
open(sys.argv[1], "wb").write(link([data]))
kernel = Library(sys.argv[1])["work"]
x = np.arange(5, dtype=np.float32)
kernel.run(5, buffers={2: x, 5: np.float32(3)})
print(x.tolist(), [(a["name"], a["index"], a["size"], a["written"]) for a in kernel.arguments])
"""


def changed(folder: Path, old: str, new: str) -> Path:
    """The shader library with another metallib_abi.h."""
    copy = shutil.copytree(library_root(), folder / "msl")
    text = HEADER.read_text()
    assert text.count(old) == 1
    (copy / HEADER.name).write_text(text.replace(old, new))
    return copy


def compiled_with(msl: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "METAL_OPS_MSL": str(msl), "METAL_OPS_CACHE": str(folder / "kept")}
    (folder / "kept").mkdir(mode=0o700)
    command = [sys.executable, "-c", PROGRAM, str(folder / "work.metallib")]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_numbers():
    assert number("SIMD_WIDTH") == 32 and number("FIRST_SAMPLER") == 31 + 128
    assert abi().numbers["METALLIB_SYMBOL"] == "metallib_v1"
    assert abi().words("metallib_fault_kind", "METALLIB_FAULT_")[:3] == ("none", "read", "write")


def test_layouts():
    argument, texture = abi().struct("metallib_argument"), abi().struct("metallib_texture")
    assert ctypes.sizeof(argument) == 40 and argument.enabled_by.offset == 36
    level = dict(texture._fields_)["level"]
    assert level._length_ == number("MAX_LEVELS") and ctypes.sizeof(level._type_) == 24


@pytest.mark.parametrize(
    ("old", "new", "offset"),
    [
        # One more field, another type, another order.
        ("  uint32_t index; /* index among", "  uint64_t more;\n  uint32_t index; /* index among", 32),
        ("  uint32_t kind;         /*", "  uint64_t kind;         /*", 24),
        ("  const char* name;      /* parameter name", "  uint8_t index0[8];\n  const char* name; /* parameter name", 28),
    ],
)  # fmt: skip
def test_layouts_follow_the_header(old, new, offset, tmp_path):
    argument = Abi(changed(tmp_path, old, new) / HEADER.name).struct("metallib_argument")
    assert argument.index.offset == offset != abi().struct("metallib_argument").index.offset


def test_a_field_that_moves_is_followed(tmp_path):
    """The tables of a shader are written by the fields' names, and read by them."""
    moved = changed(
        tmp_path,
        "typedef struct metallib_argument {\n",
        "typedef struct metallib_argument {\n  uint32_t more[3];\n",
    )
    done = compiled_with(moved, tmp_path)
    assert done.stdout == "[0.0, 3.0, 6.0, 9.0, 12.0] [('x', 2, 4, True), ('a', 5, 4, False)]\n", (
        done.stderr
    )


def test_a_field_of_another_name_is_refused(tmp_path):
    done = compiled_with(
        changed(tmp_path, "uint32_t pointee_size; ", "uint32_t bytes_of_it; "), tmp_path
    )
    assert done.returncode == 1 and "pointee_size" in done.stderr, done.stderr


def test_a_header_that_cannot_be_read(tmp_path):
    (tmp_path / "metallib_abi.h").write_text("struct metallib_buffer { nothing address; };\n")
    with pytest.raises(CompileError, match="metallib_abi.h cannot be read: .*nothing"):
        Abi(tmp_path / "metallib_abi.h")


def test_the_trailer():
    """seal.py writes it without a compiler being there."""
    trailer = abi().struct("metallib_trailer")
    data = seal.sealed(b"\x7fELF")
    assert len(data) == 4 + ctypes.sizeof(trailer)
    written = trailer.from_buffer_copy(data[4:])
    assert written.magic.decode() == abi().numbers["METALLIB_TRAILER_MAGIC"]
    assert (written.crc32,) == struct.unpack("<I", data[12:16]) and written.reserved == 0
