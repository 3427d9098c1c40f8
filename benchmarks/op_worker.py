"""One raw op on the CPU and on the Metal device, run by benchmarks/peers.py in a process where the device is
loaded. settings: op, the name of a raw op, or "" while there is none to measure yet.

Its version are the bytes that the call reads and writes, in floats, and a line with the name of the call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import op_calls  # noqa: E402
from benchmarks.metal_kernel_worker import Variant, start  # noqa: E402
from benchmarks.peer_worker import serve  # noqa: E402
from tests.fuzz.values import Special  # noqa: E402

PROBE = 1 << 10
DEVICES = {"cpu": "CPU:0", "metal": "GPU:0"}


class Call:
    """A raw op with its arguments on a device."""

    def __init__(self, name: str, arguments: op_calls.Arguments, where: str) -> None:
        from metal_ops import raw_ops
        from metal_ops.ops import _declared

        self._function, self._where = getattr(raw_ops, name), where
        self.tensors: list[Any] = []  # variables among them
        declared = _declared.declarations()[name.replace("_", "")].inputs
        given_as = dict(zip(op_calls.inputs(name), declared, strict=True))
        self._arguments = {
            key: self._put(value, given_as[key]) if key in given_as else value
            for key, value in arguments.items()
        }

    def _put(self, value: Any, given_as: Any) -> Any:
        import tensorflow as tf

        if isinstance(value, list):
            return [self._put(item, given_as) for item in value]
        if isinstance(value, Special):
            with tf.device(self._where):
                self.tensors.append(tf.Variable(value.value))
            return self.tensors[-1].handle
        tensor = tf.constant(value)
        # An input that may be on the host is there if it is of integers.
        on_host = given_as.on_host and (tensor.dtype.is_integer or given_as.type in FIXED)
        with tf.device("CPU:0" if on_host else self._where):
            self.tensors.append(tf.identity(tensor))
        return self.tensors[-1]

    def __call__(self) -> Any:
        import tensorflow as tf

        with tf.device(self._where):
            return self._function(**self._arguments)

    def traffic(self) -> tuple[int, int]:
        """Bytes that are read and written."""
        import tensorflow as tf

        variables = [x for x in self.tensors if isinstance(x, tf.Variable)]
        written = [*_tensors(self()), *variables]
        return sum(map(_bytes, self.tensors)), sum(map(_bytes, written))

    def said(self) -> str:
        import tensorflow as tf

        parts = [f"{x.dtype.name} {x.shape.as_list()}" for x in self.tensors if x.shape.rank] or [
            "numbers"
        ]
        outputs = [f"{x.dtype.name} {x.shape.as_list()}" for x in _tensors(self())]
        if any(isinstance(x, tf.Variable) for x in self.tensors):
            outputs.append("variables in place")
        return f"{', '.join(parts)} to {', '.join(outputs)}"


# Types of numbers that an op asks of the host whatever they are.
FIXED = ("float", "double", "int32", "int64")


def _tensors(found: Any) -> Iterator[Any]:
    import tensorflow as tf

    return (x for x in tf.nest.flatten(found) if tf.is_tensor(x))


def _bytes(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.size


def op_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[Any, dict]:
    del inputs
    tf = start()
    if not (name := settings["op"]):
        return "", {}
    # Inputs that keep their size, such as weights, do not count.
    small, more = (
        sum(Call(name, op_calls.make(name, n), DEVICES["cpu"]).traffic())
        for n in (PROBE, 2 * PROBE)
    )
    n = PROBE << max(0, (op_calls.BYTES // (more - small)).bit_length() - 1)
    arguments = op_calls.make(name, n)
    made = {key: Call(name, arguments, where) for key, where in DEVICES.items()}
    read, written = made["cpu"].traffic()
    has_variables = any(isinstance(x, tf.Variable) for x in made["cpu"].tensors)
    said = {
        "read": read // 4,
        "written": written // 4,
        "call": made["cpu"].said(),
        "comparable": not has_variables,
    }
    return said, {key: Variant(call, 1) for key, call in made.items()}


if __name__ == "__main__":
    serve({"ops": op_variants}, tuple(f"output{i}" for i in range(32)))
