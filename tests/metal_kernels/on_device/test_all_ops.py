"""Every op of this library that has a CPU kernel has a Metal kernel too, for all the same types but those named here.

Asks TensorFlow's own list of kernels, so that a forgotten kernel fails on the day its op is added.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, op_def_pb2

from metal_ops import raw_ops

pytestmark = pytest.mark.release

# Types that no shader has.
NOT_IN_METAL = {tf.float64: "Metal has no double", tf.complex128: "Metal has no double"}
# (op, attribute, type): why not.
EXCEPTIONS: dict[tuple[str, str, tf.DType], str] = {}

Combination = tuple[tuple[str, int], ...]


class _Buffer(ctypes.Structure):
    """TF_Buffer of tensorflow/c/tf_buffer.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    ]


def _ask(function: str, message: Any, *arguments: Any) -> Any:
    """Calls a function of TensorFlow's C API that returns a serialised message."""
    suffix = "dylib" if sys.platform == "darwin" else "so.2"
    name = "libtensorflow_cc.2.dylib" if suffix == "dylib" else f"libtensorflow_cc.{suffix}"
    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / name))
    call = getattr(library, function)
    call.restype = ctypes.POINTER(_Buffer)
    buffer = call(*arguments)
    message.ParseFromString(ctypes.string_at(buffer.contents.data, buffer.contents.length))
    library.TF_DeleteBuffer.argtypes = [ctypes.POINTER(_Buffer)]
    library.TF_DeleteBuffer(buffer)
    return message


def ops_of_this_library() -> dict[str, op_def_pb2.OpDef]:
    wrappers = {name.replace("_", "") for name in dir(raw_ops)}
    every = _ask("TF_GetAllOpList", op_def_pb2.OpList()).op
    return {op.name: op for op in every if op.name.lower() in wrappers}


def kernels_of(op: str) -> list[kernel_def_pb2.KernelDef]:
    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
    library.TF_NewStatus.restype = ctypes.c_void_p
    status = ctypes.c_void_p(library.TF_NewStatus())
    found = _ask(
        "TF_GetRegisteredKernelsForOp", kernel_def_pb2.KernelList(), op.encode(), status
    ).kernel
    library.TF_DeleteStatus(status)
    return list(found)


def combinations(op: op_def_pb2.OpDef, device: str) -> set[Combination]:
    """All choices of the op's type attributes for which there is a kernel."""
    types = {
        attr.name: list(attr.allowed_values.list.type) for attr in op.attr if attr.type == "type"
    }
    found = set()
    for kernel in kernels_of(op.name):
        if kernel.device_type != device:
            continue
        given = {c.name: set(c.allowed_values.list.type) for c in kernel.constraint}
        choices = [
            [(name, t) for t in allowed if t in given.get(name, {t})]
            for name, allowed in types.items()
        ]
        found |= set(itertools.product(*choices))
    return found


def missing(op: op_def_pb2.OpDef) -> list[str]:
    """Dtypes that the CPU has and the device does not, without a reason."""

    def is_excused(combination: Combination) -> bool:
        return any(
            tf.as_dtype(t) in NOT_IN_METAL or (op.name, attr, tf.as_dtype(t)) in EXCEPTIONS
            for attr, t in combination
        )

    return [
        ", ".join(f"{attr}={tf.as_dtype(t).name}" for attr, t in combination) or "any type"
        for combination in sorted(combinations(op, "CPU") - combinations(op, "GPU"))
        if not is_excused(combination)
    ]


OPS = ops_of_this_library()


@pytest.mark.parametrize("name", OPS)
def test_has_a_metal_kernel(name: str) -> None:
    assert combinations(OPS[name], "CPU"), f"{name} has no CPU kernel"
    assert missing(OPS[name]) == [], f"{name}: no Metal kernel"


def test_all_ops_are_looked_at() -> None:
    assert len(OPS) == len(dir(raw_ops)) > 30
    assert {"HashEncode", "Softshrink", "ZeroOut"} <= set(OPS)


def not_needed(exceptions: dict[tuple[str, str, tf.DType], str]) -> list[str]:
    """Those without a reason, or with kernels on both."""
    found = []
    for (op, attr, dtype), reason in exceptions.items():
        kernels = combinations(OPS[op], "CPU") - combinations(OPS[op], "GPU")
        if not reason or not any((attr, dtype.as_datatype_enum) in k for k in kernels):
            found.append(f"{op}, {attr}={dtype.name}")
    return found


def test_exceptions_are_needed() -> None:
    assert not_needed(EXCEPTIONS) == []
    # There are none today: these two are made up.
    made_up = {("ZeroOut", "T", tf.float64): "doubles", ("ZeroOut", "T", tf.float32): "is there"}
    assert not_needed(made_up) == ["ZeroOut, T=float32"]


def test_a_missing_kernel_is_seen() -> None:
    """MatrixInverse has no kernel on this device; float64 is on the CPU alone."""
    every = {op.name: op for op in _ask("TF_GetAllOpList", op_def_pb2.OpList()).op}
    assert "T=float32" in missing(every["MatrixInverse"])
    doubles = (("T", tf.float64.as_datatype_enum),)
    assert doubles in combinations(OPS["ZeroOut"], "CPU") - combinations(OPS["ZeroOut"], "GPU")
