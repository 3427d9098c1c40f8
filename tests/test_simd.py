"""METAL_OPS_SIMD: every instruction set that this processor has can be asked for, and computes the same.

All that is rounded the same way everywhere (half precision, cells of a hash grid) is compared exactly.
"""

from __future__ import annotations

import pytest

import metal_ops
from metal_ops import _library
from tests.processes import Process

TARGETS = _library.simd_targets()


@pytest.fixture(params=TARGETS)
def target(request):
    """Runs the test with one instruction set."""
    before = _library.simd_target()
    _library.set_simd_target(request.param)
    try:
        yield request.param
    finally:
        _library.set_simd_target(before)


# ---- the choice -----------------------------------------------------------------------------------------------------

CHOSEN = """
from metal_ops import _library
_library.load()
print(_library.simd_target())
"""

# The library by itself, then the package, twice: what was loaded by an attempt that failed must not be taken for good.
REFUSED = """
import json, sys, tensorflow as tf
said = []
try:
    tf.load_op_library(sys.argv[1])
except tf.errors.InvalidArgumentError as error:
    said.append(error.message)
for attempt in range(2):
    try:
        import metal_ops
    except ImportError as error:
        said.append(str(error))
print(json.dumps(said))
"""

UNKNOWN = {"avx9", "AVX2", "sse4,avx2"}
ELSEWHERE = {"avx3", "avx2", "sse4", "neon"} - set(TARGETS)  # another processor's


@pytest.fixture(scope="module")
def processes():
    """All of this file's processes, started before the first test waits for one."""
    path = str(_library.PATH)
    running = {name: Process("-c", CHOSEN, METAL_OPS_SIMD=name) for name in ["", *TARGETS]}
    refused = UNKNOWN | ELSEWHERE
    running |= {name: Process("-c", REFUSED, path, METAL_OPS_SIMD=name) for name in refused}
    for name in ("emu128", "avx9"):
        running[f"doctor {name}"] = Process("-m", "metal_ops", "doctor", METAL_OPS_SIMD=name)
    yield running
    for process in running.values():
        process.stop()


def test_targets():
    assert TARGETS[-1] == "emu128" and len(TARGETS) == len(set(TARGETS)) >= 2


@pytest.mark.parametrize("name", ["", *TARGETS])
def test_named_target_is_used(name, processes):
    code, out, err = processes[name].finish()
    assert code == 0, err
    assert out.strip() == (name or TARGETS[0])


@pytest.mark.parametrize("name", sorted(UNKNOWN | ELSEWHERE))
def test_other_names_are_refused(name, processes):
    said = processes[name].result()
    assert len(said) == 3
    for sentence in said:
        assert f"METAL_OPS_SIMD is '{name}'" in sentence
        assert f"expected one of {', '.join(TARGETS)}, or nothing" in sentence


def test_doctor_shows_the_target(processes):
    code, out, err = processes["doctor emu128"].finish()
    assert code == 0, out + err
    assert ", ".join(TARGETS) in out and "emu128 (METAL_OPS_SIMD=emu128)" in out
    code, out, err = processes["doctor avx9"].finish()
    assert code == 1 and not err, err
    assert "problem: metal_ops: METAL_OPS_SIMD is 'avx9', of which this library has no code" in out


def test_target_changes_while_the_process_runs(target):
    assert _library.simd_target() == target
    assert metal_ops.zero_out([5, 4]).numpy().tolist() == [5, 0]
    with pytest.raises(ValueError, match="METAL_OPS_SIMD is 'avx9'.*expected one of"):
        _library.set_simd_target("avx9")
    assert _library.simd_target() == target
