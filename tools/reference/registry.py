"""This library's ops in TensorFlow's registry, and the source file that registers each."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from metal_ops import raw_ops

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def sources() -> dict[str, Path]:
    """The file that declares a family's ops, by family: its stem."""
    paths = [*(ROOT / "ops").glob("*_op.cc"), *(ROOT / "kernels").glob("*/*_op.cc")]
    found = {path.stem.removesuffix("_op"): path for path in paths if _names(path)}
    return dict(sorted(found.items()))


def _names(path: Path) -> list[str]:
    return re.findall(r"^(?:REGISTER|DECLARE)_OP\(\"(\w+)\"\)", path.read_text(), re.M)


def families() -> dict[str, list[str]]:
    """Op names by family, in the order in which its file declares them."""
    return {family: _names(path) for family, path in sources().items()}


@functools.cache
def functions() -> dict[str, Any]:
    """The generated function of each op, by op name."""
    by_letters = {name.replace("_", ""): name for name in dir(raw_ops)}
    return {
        op: getattr(raw_ops, by_letters[op.lower()]) for ops in families().values() for op in ops
    }


def definition(op: str) -> Any:
    """The op's OpDef."""
    return op_def_registry.get(op)


def dtypes(op: str, device: str) -> dict[str, set[str]]:
    """For each type attribute of an op, the dtypes that a device has kernels for; {} if it has no kernel."""
    attributes = {
        attr.name: [tf.as_dtype(t).name for t in attr.allowed_values.list.type]
        for attr in definition(op).attr
        if attr.type == "type"
    }
    found: dict[str, set[str]] = {}
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type != device:
            continue
        given = {
            c.name: {tf.as_dtype(t).name for t in c.allowed_values.list.type}
            for c in kernel.constraint
        }
        found.setdefault("", set())  # there is a kernel, whatever the attributes are
        for name, allowed in attributes.items():
            found.setdefault(name, set()).update(given.get(name, allowed))
    return found


def stock_dtypes(device: str) -> dict[str, list[str]]:
    """Ops of TensorFlow itself that have kernels registered for exactly this device, with the dtypes of T."""
    ours = set(functions())
    found: dict[str, set[str]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type != device or kernel.op in ours or kernel.op.startswith("_"):
            continue
        types = found.setdefault(kernel.op, set())
        for constraint in kernel.constraint:
            if constraint.name in ("T", "dtype", "SrcT", "Dst", "DstT"):
                types.update(tf.as_dtype(t).name for t in constraint.allowed_values.list.type)
    return {op: sorted(types) for op, types in sorted(found.items())}
