"""`metal -g`: the session of docs/debug-a-shader.md, in gdb, and a short one in lldb, where they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has Xcode's debugger")

PAGE = (ROOT / "docs/debug-a-shader.md").read_text()
LLDB = r"""
breakpoint set -f sums.metal -l 14 -c "i == 6"
run
expression metal_thread()
frame variable v i
breakpoint set -o true -f sums.metal -l 17
continue
frame variable tile
"""


def _debugger(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.skip(f"no {names[0]}: run 'sudo apt-get install {names[-1]}'")
    return found


def _run(command: str, folder: Path, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The page's kernel and host, compiled as it says."""
    if not re.search("libhostmetal", " ".join(os.listdir(ROOT / "python/metal_ops"))):
        pytest.skip("hostmetal is not built")
    folder = tmp_path_factory.mktemp("debug")
    block = re.search(r"```bash\n(.*?)```", PAGE, re.S)[1]
    block = block.replace("mkdir -p build/debug && cd build/debug\n", "")
    lines = block.rstrip().split("\n")
    assert lines[-1].startswith("HOSTMETAL_NUM_THREADS=1 gdb ")
    _run("\n".join(lines[:-1]).replace("python -m", f"{sys.executable} -m"), folder)
    return folder


def _in_order(said: str, expected: list[str]) -> None:
    at = 0
    for line in expected:
        assert line in said[at:], f"{line!r} is not in\n{said[at:]}"
        at += said[at:].index(line) + len(line)


def test_the_page_s_session_in_gdb(built):
    gdb = _debugger("gdb")
    said = _run(f"{gdb} -nx -q -batch -x session.gdb ./sums", built, HOSTMETAL_NUM_THREADS="1")
    _in_order(said, re.search(r"```text\n(.*?)```", PAGE, re.S)[1].rstrip().split("\n"))


def test_a_session_in_lldb(built):
    lldb = _debugger("lldb", "lldb-19")
    (built / "session.lldb").write_text(LLDB)
    said = _run(f"{lldb} -b -s session.lldb ./sums", built, HOSTMETAL_NUM_THREADS="1")
    _in_order(
        said,
        [
            "sums: thread (6, 0, 0) of the grid",
            "(float4) v = (x = 24, y = 25, z = 26, w = 27)",
            "(float[4]) tile = (578, 882, 1250, 1682)",
        ],
    )


def test_kernels_in_strings(built):
    """HOSTMETAL_DEBUG: the debugger finds the text, and results are the same."""
    gdb = _debugger("gdb")
    host = (built / "sums.m").read_text()
    source = '[NSString stringWithContentsOfFile:@"sums.metal" encoding:NSUTF8StringEncoding error:&error]'
    made = f"[device newLibraryWithSource:{source} options:nil error:&error]"
    (built / "text.m").write_text(host.replace("[device newDefaultLibrary]", made))
    _run(f"{sys.executable} -m metal_ops objc text.m -o text", built)
    (built / "text.gdb").write_text(
        "set breakpoint pending on\nbreak sums if i == 5\nrun\nnext\nprint v\nlist 16,16\ndelete\ncontinue\n"
    )
    command = f"{gdb} -nx -q -batch -x text.gdb ./text"
    said = _run(command, built, HOSTMETAL_DEBUG="1", HOSTMETAL_NUM_THREADS="1")
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    _in_order(said, ["{x = 20, y = 21, z = 22, w = 23}", barrier, "552 4392"])
    # The control: without, gdb stops nowhere.
    assert barrier not in _run(command, built, code=1, HOSTMETAL_DEBUG="0")
