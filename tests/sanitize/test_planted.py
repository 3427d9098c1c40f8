"""The sanitizers see the mistakes they are there for: planted in an op library built like ours, and a race."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import metal_ops

PACKAGE = Path(metal_ops.__file__).parent
BUILD = PACKAGE.parents[1]  # build/sanitize
ASAN, UBSAN = "ERROR: AddressSanitizer: ", "runtime error: "
MISTAKES = {
    "read_beyond": ASAN + "heap-buffer-overflow",
    "write_beyond": ASAN + "heap-buffer-overflow",
    "use_after_free": ASAN + "heap-use-after-free",
    "overflow": UBSAN + "signed integer overflow",
    "shift": UBSAN + "shift exponent 32 is too large",
    "null": UBSAN + "load of null pointer",
}
CALL = """
import sys, tensorflow as tf
ops = tf.load_op_library(sys.argv[1])
print("answer", ops.planted_mistake(tf.constant([1, 2, 3]), kind=sys.argv[2]).numpy())
"""


def planted(kind: str) -> subprocess.CompletedProcess[str]:
    """The planted op in a process of its own, as it ends the process."""
    library = BUILD / "python" / "planted_ops.so"
    return subprocess.run(
        [sys.executable, "-c", CALL, library, kind], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "name", ["_metal_ops", "_metal_kernels", "libmetal_device", "libhostmetal"]
)
def test_library_is_instrumented(name: str) -> None:
    library = (PACKAGE / f"{name}.so").read_bytes()
    assert b"__asan_report_load" in library
    assert b"__ubsan_handle_" in library


@pytest.mark.parametrize("kind", MISTAKES)
def test_planted_mistake_is_seen(kind: str) -> None:
    done = planted(kind)
    assert done.returncode != 0 and "answer" not in done.stdout
    assert MISTAKES[kind] in done.stderr, done.stderr[-3000:]


def test_the_same_op_without_a_mistake() -> None:
    done = planted("none")
    assert (done.returncode, done.stdout) == (0, "answer [1 2 3]\n"), done.stderr[-3000:]


@pytest.mark.parametrize(("arguments", "status"), [((), 66), (("locked",), 0)])
def test_planted_race_is_seen(arguments: tuple[str, ...], status: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [BUILD / "thread" / "planted_race", *arguments],
        env={**environment, "HOSTMETAL_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    assert ("ThreadSanitizer: data race" in done.stderr) == (status == 66)
