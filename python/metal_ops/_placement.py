"""The devices on which TensorFlow runs the ops of a function, and its copies on the way: `metal_ops.device.report`."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Ops that TensorFlow puts around those of a graph, and ops that do nothing when they run.
_NO_WORK = {"Const", "NoOp", "Identity", "IdentityN", "Placeholder"}


@dataclass(frozen=True)
class Copy:
    """A tensor that a function copies from one device's memory to another's.

    Attributes:
      tensor: The op that makes it, as the graph names it.
      source: The device that has it: "CPU:0".
      destination: The device that gets it: "GPU:0".
      dtype: Its dtype's name.
      shape: Its sizes, where they are known before the function runs.
      bytes: Its size in memory, None where the shape is not known.

    Example:
      >>> print(metal_ops.device.Copy("add", "GPU:0", "CPU:0", "float32", (2, 3), 24))
      GPU:0 -> CPU:0  add, float32 [2, 3], 24 bytes
    """

    tensor: str
    source: str
    destination: str
    dtype: str
    shape: tuple[int, ...] | None
    bytes: int | None

    def __str__(self) -> str:
        size = f"[{', '.join(map(str, self.shape))}]" if self.shape is not None else "of any shape"
        much = f"{self.bytes} bytes" if self.bytes is not None else "as many bytes as it then has"
        return f"{self.source} -> {self.destination}  {self.tensor}, {self.dtype} {size}, {much}"


@dataclass(frozen=True)
class Report:
    """Where the ops of a function ran. Printing it shows a table.

    Attributes:
      ops: For each device ("GPU:0"), how many ops of each kind ran there. Constants and ops that only pass a tensor on
        are left out.
      copies: The copies between devices within a call, in no order.
      result: The function's result.

    Example:
      >>> report = metal_ops.device.report(lambda x: tf.nn.relu(x) + 1.0, tf.ones([3]))
      >>> sum(report.ops["GPU:0"].values()), report.copies
      (2, ())
    """

    ops: dict[str, dict[str, int]]
    copies: tuple[Copy, ...]
    result: Any

    @property
    def copied_bytes(self) -> int:
        """The bytes of all copies whose size is known."""
        return sum(copy.bytes or 0 for copy in self.copies)

    def __str__(self) -> str:
        lines = []
        for device, kinds in sorted(self.ops.items(), reverse=True):
            each = ", ".join(f"{kind} {n}" if n > 1 else kind for kind, n in sorted(kinds.items()))
            lines.append(f"{device}  {sum(kinds.values())} ops: {each}")
        if not self.copies:
            return "\n".join([*lines, "nothing is copied between devices"])
        unknown = sum(copy.bytes is None for copy in self.copies)
        more = f" and {unknown} of a size that is known when it runs" if unknown else ""
        lines.append(f"{len(self.copies)} copies between devices, {self.copied_bytes} bytes{more}:")
        return "\n".join([*lines, *(f"  {copy}" for copy in self.copies)])


def report(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Calls a function once, as a graph, and reports the device of each of its ops and the copies between devices.

    With soft placement, TensorFlow's default, an op that has no kernel for the METAL device runs on the CPU and its
    tensors are copied there and back; nothing else says so. `tf.config.set_soft_device_placement(False)` makes an
    error of it. Ops of functions that are called and not inlined, as those of `tf.data`, are not looked into.

    Args:
      function: Any function of tensors, a `tf.function` or a Keras model. It is traced anew; a model should have been
        called before, or the ops that make its variables are in the report.
      *args: Its arguments.
      **kwargs: The same by name.

    Returns:
      A `Report`: print it, or look into `ops` and `copies`.

    Raises:
      TypeError: `function` cannot be called.
      RuntimeError: Functions run eagerly (`tf.config.run_functions_eagerly`), so there is no graph to look at.

    Example:
      >>> def solve(x):
      ...     return tf.linalg.inv(x @ x) + 1.0
      >>> print(metal_ops.device.report(solve, tf.eye(4)))
      GPU:0  2 ops: AddV2, MatMul
      CPU:0  1 ops: MatrixInverse
      2 copies between devices, 128 bytes:
        GPU:0 -> CPU:0  matmul, float32 [4, 4], 64 bytes
        CPU:0 -> GPU:0  MatrixInverse, float32 [4, 4], 64 bytes
    """
    import tensorflow as tf

    if not callable(function):
        raise TypeError(
            f"[device.report] function: expected something to call, got {type(function).__name__}."
        )
    if tf.config.functions_run_eagerly():
        raise RuntimeError(
            "[device.report] functions run eagerly here, so there is no graph to look at; call "
            "tf.config.run_functions_eagerly(False) before."
        )
    # As it is: a function within a function would have other names in the graph.
    traced = tf.function(getattr(function, "python_function", function))
    with functions() as ran:
        result = traced(*args, **kwargs)
    shapes: dict[str, Any] = {}
    for op in traced.get_concrete_function(*args, **kwargs).graph.get_operations():
        shapes |= {output.name: output.shape for output in op.outputs}

    ops: dict[str, Counter[str]] = {}
    copies = []
    for node in (node for nodes in ran for node in nodes):
        if node.op == "_Send":
            copies.append(_copy(tf, node, shapes))
        elif is_work(node):
            ops.setdefault(short(node.device), Counter())[node.op] += 1
    return Report({device: dict(kinds) for device, kinds in ops.items()}, tuple(copies), result)


@contextlib.contextmanager
def functions() -> Iterator[list[list[Any]]]:
    """Functions that are first called inside: the nodes of each as they run, of all devices. Filled in at the end."""
    # tf.summary.trace_on has the same under a public name, but goes on collecting after trace_off.
    from tensorflow.python.eager import context

    found: list[list[Any]] = []
    context.enable_graph_collection()
    try:
        context.export_run_metadata()  # left by others
        yield found
        for function in context.export_run_metadata().function_graphs:
            found.append([node for graph in function.partition_graphs for node in graph.node])
    finally:
        context.disable_graph_collection()


def is_work(node: Any) -> bool:
    """Whether a graph's node computes something."""
    return node.op not in _NO_WORK and not node.op.startswith("_")


def short(device: str) -> str:
    """The end of a device's name: "GPU:0"."""
    return device.rpartition("device:")[2]


def _copy(tf: Any, send: Any, shapes: dict[str, Any]) -> Copy:
    maker, _, output = send.input[0].partition(":")
    shape = shapes.get(f"{maker}:{output or 0}")
    dtype = tf.as_dtype(send.attr["T"].type)
    known = tuple(shape.as_list()) if shape is not None and shape.is_fully_defined() else None
    return Copy(
        tensor=maker,
        source=short(send.attr["send_device"].s.decode()),
        destination=short(send.attr["recv_device"].s.decode()),
        dtype=dtype.name,
        shape=known,
        bytes=math.prod(known) * dtype.size if known is not None else None,
    )
