"""The choice when a script calls an op that the device has no kernel for: `METAL_OPS_DEVICE_FALLBACK`.

TensorFlow reports its calls through its op callbacks, in functions when they are traced: before anything is placed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

# Placeholders become arguments of functions. These are no work, or another function's.
_NO_WORK = {"Placeholder", "PlaceholderWithDefault", "NoOp", "SymbolicGradient"}
# Functions that tf.data traces run on the CPU wherever it is called.
_DATA = ("Dataset_", "Dataset.")


def install(mode: str, error: Callable[[str], Exception]) -> None:
    """Has the calling thread's ops looked at, where `mode` is "warn" or "error"."""
    if mode in ("", "silent"):
        return
    if mode not in ("warn", "error"):
        raise error(
            f"metal_ops: METAL_OPS_DEVICE_FALLBACK is {mode!r}, expected silent (TensorFlow's soft placement "
            "as it is), warn (a line for each op and dtype) or error."
        )
    # No public name exists; tf.debugging has the same beneath it.
    from tensorflow.python.eager import context
    from tensorflow.python.framework import op_callbacks

    told: set[tuple[str, str]] = set()

    def look(
        op: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        op = op.decode() if isinstance(op, bytes) else op  # of arguments that are no tensors yet
        if not outputs or op in _NO_WORK or _meant_for_cpu(outputs[0], graph, context):
            return
        types = {}
        for name, value in zip(attrs[::2], attrs[1::2], strict=True):
            value = getattr(value, "type", value)  # a graph's is a message
            if isinstance(value, int):
                types[str(name)] = int(value)
        dtypes = {t.dtype.name for t in [*inputs, *outputs]}
        # Texts and lists are the host's on every device, and so are shapes and indices. A handle is no tensor, and ops
        # that hand over the elements of a dataset do no work.
        if dtypes & {"string", "variant"} or dtypes <= {"int32"} or "Iterator" in op:
            return
        if {t.dtype.name for t in outputs} == {"resource"}:
            return
        # A table's keys lie in the host's memory, and so do its size and whole numbers that stand for them.
        if op.startswith("LookupTable") and not any(t.dtype.is_floating for t in outputs):
            return
        reason = _why_not(op, tuple(sorted(types.items())))
        if reason is None:
            return
        why, lacking = reason
        names = [t.dtype.name for t in [*outputs, *inputs]]
        dtype = next((name for name in names if name in lacking), names[0])
        line = (
            f"metal_ops: {op} of {dtype} runs on the CPU, and its tensors are copied there and back: {why}. "
            "metal_ops.device.report(function, *args) tells where each op of a function runs."
        )
        if mode == "error":
            raise error(line + " METAL_OPS_DEVICE_FALLBACK=error makes this an error.")
        if (op, dtype) not in told:
            told.add((op, dtype))
            warnings.warn(line, RuntimeWarning, stacklevel=2)

    op_callbacks.add_op_callback(look)


def _meant_for_cpu(output: Any, graph: Any, context: Any) -> bool:
    """Whether the script itself asks for the CPU."""
    asked = output.device if graph is not None else context.context().device_name
    if "CPU" in (asked or "") or "CPU" in (context.context().device_name or ""):
        return True
    while graph is not None:
        if getattr(graph, "name", "").startswith(_DATA):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


@functools.cache
def _why_not(op: str, types: tuple[tuple[str, int], ...]) -> tuple[str, set[str]] | None:
    """Why the device has no kernel for an op with these attributes, and which of their dtypes none of its kernels has.

    For a Cast of float64 to float32 that is float64. None where it has a kernel, or no device has.
    """
    from tensorflow.python.framework import dtypes, kernels, op_def_registry

    definition = op_def_registry.get(op)
    if definition is None or any("func" in attr.type for attr in definition.attr):
        return None  # a function: its ops are looked at themselves
    registered = kernels.get_registered_kernels_for_op(op).kernel
    ours = [kernel for kernel in registered if kernel.device_type in ("GPU", "DEFAULT")]
    if not any(kernel.device_type == "CPU" for kernel in registered):
        return None
    if not ours:
        return "the device has no kernel for this op", set()
    given = dict(types)
    for kernel in ours:
        if all(
            given.get(constraint.name, 0) in (0, *constraint.allowed_values.list.type)
            for constraint in kernel.constraint
        ):
            return None
    found = {
        dtypes.as_dtype(value).name
        for kernel in ours
        for constraint in kernel.constraint
        for value in constraint.allowed_values.list.type
    }
    asked = {
        dtypes.as_dtype(given[attr.name]).name
        for attr in definition.attr
        if attr.type == "type" and given.get(attr.name)
    }
    return f"the device's kernels of it are for {', '.join(sorted(found))}", asked - found
