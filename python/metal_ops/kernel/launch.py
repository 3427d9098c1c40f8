"""The op's first input: grid, threadgroup, lengths and shapes, as numbers or as tensors of a graph."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.kernel import compiler
from metal_ops.kernel.functions import Argument
from metal_ops.ops import _arguments

# Sizes are small and in host memory: their computation must not go to the device and back.
HOST = "/device:CPU:0"
# By handle: a kernel's name, and its gradient. A tape asks for the registered gradient, at a tenth of the cost of
# tf.custom_gradient. In a graph it is tf.custom_gradient, which a SavedModel keeps.
_GRADIENTS: dict[int, tuple[str, Callable[..., list[Any]] | None]] = {}
_NUMBERS = itertools.count()


@dataclass
class Launches:
    """A compiled kernel, and how it is called.

    Attributes:
      label: The kernel's name.
      attributes: Attributes of the op, its types left out.
      gradient: Takes inputs, outputs and their gradients, and gives those of the inputs.
    """

    label: str
    attributes: dict[str, Any]
    gradient: Callable[..., list[Any]] | None = None
    _handle: int | None = None

    def run(
        self,
        launch: tf.Tensor,
        inputs: Sequence[tf.Tensor],
        params: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType],
        name: str | None,
    ) -> list[tf.Tensor]:
        """Calls the op: in a graph with all that the kernel is, which a saved one keeps; else with a handle."""
        if tf.executing_eagerly():
            return self.run_now(launch, inputs, params, dtypes, name)
        return raw_ops.metal_kernel(
            launch, inputs, params, dtypes, **self.attributes, name=name or self.label
        )

    def run_now(
        self,
        launch: tf.Tensor,
        inputs: Sequence[tf.Tensor],
        params: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType | int],
        name: str | None,
    ) -> list[tf.Tensor]:
        """The same outside of graphs."""
        if self._handle is None:
            # Two kernels may be the same except for their gradients.
            number = next(_NUMBERS) if self.gradient is not None else -1
            handle = compiler.keep(self.label, **self.attributes, gradient=number)
            _GRADIENTS[handle] = self.label, self.gradient
            self._handle = handle  # last: other threads look at it
        return raw_ops.metal_kernel_by_handle(
            launch, inputs, params, dtypes, self._handle, name or self.label
        )


@tf.RegisterGradient("MetalKernel")
@tf.RegisterGradient("MetalKernelByHandle")
def _registered_gradient(op: tf.Operation, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
    if op.type == "MetalKernelByHandle":
        name, gradient = _GRADIENTS.get(op.get_attr("handle"), ("MetalKernelByHandle", None))
        if gradient is not None:
            return [None, *gradient(op.inputs[1:], op.outputs, upstream)]
    else:
        name = _arguments.text_attr(op, "function")
    raise LookupError(
        f"[{name}] has no gradient. Give one, metal_kernel(..., vjp=...) or tf.custom_gradient around the call, or "
        "stop it with tf.stop_gradient."
    )


def view(tensor: tf.Tensor) -> Argument:
    """The view of a tensor for functions."""
    shape = tensor.shape
    if shape.is_fully_defined():
        return Argument(tuple(shape), tensor.dtype)
    # Where the tensor is, and not on the host: the tensor itself would be copied.
    sizes = tf.shape(tensor, out_type=tf.int64)
    if shape.rank is None:
        return Argument(sizes, tensor.dtype)
    with tf.device(HOST):
        dims = tuple(sizes[i] if size is None else size for i, size in enumerate(shape))
    return Argument(dims, tensor.dtype)


def number(label: str, argument: str, value: Any, least: int) -> Any:
    """A size: an int, or a scalar tensor of a graph."""
    if tf.is_tensor(value):
        if not value.dtype.is_integer or value.shape.rank not in (0, None):
            raise TypeError(
                f"[{label}] {argument}: expected whole numbers, got a tensor {value.dtype.name} {value.shape}."
            )
        if not hasattr(value, "numpy"):
            return value
        value = value.numpy()
    try:
        size = operator.index(value)
    except TypeError:
        size = None
    if size is None or isinstance(value, bool):
        remedy = " Take unknown sizes of the arguments' .shape." if value is None else ""
        raise TypeError(f"[{label}] {argument}: expected whole numbers, got {value!r}.{remedy}")
    if size >= 2**62:
        raise ValueError(f"[{label}] {argument}: {size} is too large.")
    if size < least:
        raise ValueError(f"[{label}] {argument}: expected {least} or more, got {size}.")
    return size


def sizes(label: str, argument: str, value: Any) -> Any:
    """A shape: a list of ints and scalar tensors, or a vector of a graph."""
    if tf.is_tensor(value) and value.shape.rank != 0:
        if not value.dtype.is_integer or value.shape.rank not in (1, None):
            raise TypeError(
                f"[{label}] {argument}: expected a shape, got a tensor {value.dtype.name} {value.shape}."
            )
        if hasattr(value, "numpy"):
            value = value.numpy().tolist()
        else:
            return value
    if isinstance(value, tf.TensorShape) and value.rank is None:
        raise TypeError(
            f"[{label}] {argument}: a shape of unknown rank. Take it of the arguments' .shape."
        )
    if isinstance(value, str | bytes | Mapping):
        raise TypeError(f"[{label}] {argument}: expected a shape, got {value!r}.")
    try:
        dims = list(value)
    except TypeError:
        dims = [value]
    return [number(label, argument, size, 0) for size in dims]


def three(label: str, argument: str, value: Any, least: int) -> list[Any]:
    """A grid or threadgroup: up to three sides."""
    sides = (
        list(value) if isinstance(value, list | tuple | tf.TensorShape | np.ndarray) else [value]
    )
    if not 1 <= len(sides) <= 3:
        raise ValueError(f"[{label}] {argument}: expected 1 to 3 numbers, got {len(sides)}.")
    return [number(label, argument, side, least) for side in sides] + [1] * (3 - len(sides))


def static_shape(dims: Any) -> tf.TensorShape:
    """The known part of a shape in a graph."""
    if tf.is_tensor(dims):
        return tf.TensorShape([None] * dims.shape[0] if dims.shape[0] is not None else None)
    return tf.TensorShape([None if tf.is_tensor(size) else size for size in dims])


def pack(head: Sequence[Any], shapes: Sequence[Any]) -> tf.Tensor:
    """The op's input, in host memory.

    Args:
      head: Grid, threadgroup, bytes of threadgroup memory.
      shapes: One for each output.
    """
    numbers = list(head)
    vectors = []
    for dims in shapes:
        if tf.is_tensor(dims):
            vectors += [numbers, dims]
            numbers = []
            continue
        numbers += [len(dims), *dims]
    with tf.device(HOST):
        if not vectors and not any(tf.is_tensor(value) for value in numbers):
            return tf.constant(np.asarray(numbers, np.int64))
        parts = []
        for part in [*vectors, numbers]:
            if tf.is_tensor(part):
                parts += [tf.shape(part, out_type=tf.int64), tf.cast(part, tf.int64)]
            elif part:
                parts.append(tf.stack([tf.cast(value, tf.int64) for value in part]))
        return tf.concat(parts, 0)
