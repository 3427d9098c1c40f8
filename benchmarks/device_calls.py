"""Calls of the device's ops in every dtype combination that they have kernels for, with small arguments, and of the
CPU's kernels with the same numbers in wider floats. tests/device/on_device/test_every_kernel.py compares the results.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from benchmarks.device_arguments import Arguments, argument_name, arguments, as_dtype, placed

SIDE = 16
WIDER = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float64",
    "complex64": "complex128",
}
SAME_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
Types = dict[str, str]


def combinations(op: str, kernel_list: list[Any]) -> Iterator[tuple[Types, set[str]]]:
    """The op's type attributes, and the inputs that are read in host memory then, for all that kernels are registered
    for.

    Attributes that no kernel asks about, mostly those of shapes, take turns.
    """
    definition = op_def_registry.get(op)
    allowed: dict[str, list[str]] = {}
    turns: dict[str, list[str]] = {}
    for attr in definition.attr:
        if attr.type == "type":
            allowed[attr.name] = names(attr.allowed_values)
            turns[attr.name] = allowed[attr.name] or [
                tf.as_dtype(attr.default_value.type or tf.float32).name
            ]
    seen = set()
    for kernel in kernel_list:
        asked = {
            c.name: names(c.allowed_values) for c in kernel.constraint if names(c.allowed_values)
        }
        host = {argument_name(op, name) for name in kernel.host_memory_arg}
        for dtypes in itertools.product(*asked.values()):
            types = dict(zip(asked, dtypes, strict=True))
            key = tuple(sorted(types.items()))
            if key in seen or any(allowed[name] and t not in allowed[name] for name, t in key):
                continue
            types |= {
                name: of[len(seen) % len(of)] for name, of in turns.items() if name not in types
            }
            if op == "Bitcast":  # shapes stay as they are
                types["type"] = SAME_SIZE[tf.as_dtype(types["T"]).size]
            seen.add(key)
            yield types, host


def names(values: Any) -> list[str]:
    return [tf.as_dtype(t).name for t in values.list.type]


def in_two_parts(value: Any, dtype: str) -> np.ndarray:
    """Numbers of a rule in a dtype; complex ones are made of two."""
    x = as_dtype(value, dtype)
    if "complex" not in dtype or x.ndim == 0 or x.imag.any():
        return x
    return (x + 0.5j * x[..., ::-1]).astype(x.dtype)


class Start:
    """The initial value of a variable."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __call__(self) -> tf.Variable:
        return tf.Variable(self.value)


def inputs(op: str) -> Iterator[tuple[str, Any]]:
    for argument in op_def_registry.get(op).input_arg:
        yield argument_name(op, argument.name), argument


def typed_arguments(op: str, types: Types, side: int = SIDE) -> Arguments:
    """The arguments of the op: each input is an array, or a list of some, of just its dtype."""
    given = arguments(op, types, side)
    inferred = set()
    for name, argument in inputs(op):
        dtype = types.get(argument.type_attr) or tf.as_dtype(argument.type).name
        value = given[name]
        inferred.add(argument.type_attr)
        if dtype == "resource":
            # Generators' are of int64, whatever is drawn.
            of_variable = (
                "" if op.startswith(("Stateful", "Rng")) else types.get("dtype") or types.get("T")
            )
            start = value.args[0]
            given[name] = Start(in_two_parts(start, of_variable) if of_variable else start)
        elif argument.number_attr:
            given[name] = [in_two_parts(x, dtype) for x in value]
        else:
            given[name] = in_two_parts(value, dtype)
    for name in types.keys() - inferred:
        given[name] = tf.as_dtype(types[name])
    return given


def widened(op: str, given: Arguments, types: Types, wider: dict[str, str]) -> Arguments:
    """The same numbers, those of the dtypes that attributes name in wider ones."""

    def wide(value: Any) -> Any:
        if isinstance(value, Start):
            return Start(wide(value.value))
        if isinstance(value, list):
            return [wide(x) for x in value]
        name = value.dtype.name
        return value.astype(tf.as_dtype(wider[name]).as_numpy_dtype) if name in wider else value

    found = dict(given)
    for name, argument in inputs(op):
        if argument.type_attr or isinstance(given[name], Start):
            found[name] = wide(given[name])
    for name, dtype in types.items():
        if isinstance(found.get(name), tf.DType):
            found[name] = tf.as_dtype(wider.get(dtype, dtype))
    return found


def call(op: str, given: Arguments, device: str, host: Collection[str] = ()) -> list[tf.Tensor]:
    """Results, and the variables' values afterwards."""
    keep: list[Any] = []
    ready = placed(given, device, set(host), keep)
    with tf.device(device):
        results = getattr(tf.raw_ops, op)(**ready)
        flat = [x for x in tf.nest.flatten(results) if tf.is_tensor(x)]
        return flat + [variable.read_value() for variable in keep]


def on_cpu(op: str, given: Arguments, types: Types, same: bool = False) -> list[np.ndarray]:
    """The CPU's results in the widest floats that it has kernels for."""
    halves = {name: wide for name, wide in WIDER.items() if wide == "float32"}
    for wider in () if same else (WIDER, halves):
        with contextlib.suppress(
            tf.errors.NotFoundError, tf.errors.InvalidArgumentError, TypeError, ValueError
        ):
            return [x.numpy() for x in call(op, widened(op, given, types, wider), "CPU:0")]
    return [x.numpy() for x in call(op, given, "CPU:0")]
