"""Checks shared by the public ops. Every message names the op, the argument, the expected value and the actual one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf


def refuse_xla(op: str) -> None:
    """Raises UnimplementedError while an XLA-compiled function is being traced: no op here has an XLA kernel."""
    if tf.executing_eagerly():
        return
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        # TensorFlow marks XLA tracing on the graph, and offers no public question for it. Without the mark
        # XLA's own error comes later, at compile time.
        scope = getattr(graph, "_get_control_flow_context", lambda: None)()
        while scope is not None:
            if getattr(scope, "IsXLAContext", lambda: False)():
                raise tf.errors.UnimplementedError(
                    None,
                    None,
                    f"[{op}] cannot be compiled by XLA. Use tf.function without jit_compile=True for the part that "
                    "calls it; in Keras, model.compile(..., jit_compile=False).",
                )
            scope = getattr(scope, "outer_context", None)
        graph = getattr(graph, "outer_graph", None)


def check_dtype(
    op: str, argument: str, tensor: tf.Tensor, allowed: Iterable[tf.DType], why: str = ""
) -> None:
    """Raises TypeError unless the tensor's dtype is one of `allowed`."""
    names = [dtype.name for dtype in allowed]
    if tensor.dtype.name not in names:
        expected = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        raise TypeError(
            f"[{op}] {argument}: expected dtype {expected}, got {tensor.dtype.name}. "
            f"{why}Cast it first: tf.cast({argument}, tf.{names[0]})."
        )


def check_last_dim(op: str, argument: str, tensor: tf.Tensor, size: int, meaning: str) -> tf.Tensor:
    """Returns the tensor if its last dimension is `size`, now or (where not known yet) when the graph runs."""
    expected = f"[{op}] {argument}: expected last dimension {size} ({meaning})"
    rank = tensor.shape.rank
    if rank == 0:
        raise ValueError(f"{expected}, got a scalar.")
    if rank is not None and tensor.shape[-1] is not None:
        if tensor.shape[-1] != size:
            raise ValueError(f"{expected}, got {size_of(tensor)}.")
        return tensor
    # Reshaping [N, 6] to [-1, 3] would succeed and mix up the points, so the check cannot be left to the op.
    asserts = [
        tf.debugging.assert_equal(tf.shape(tensor)[-1], size, f"{expected}, got another one.")
    ]
    with tf.control_dependencies(asserts):
        return tf.identity(tensor)


def check_shape(
    op: str, argument: str, tensor: tf.Tensor, shape: Sequence[int], meaning: str
) -> tf.Tensor:
    """Returns the tensor if its shape is `shape`, now or (where not known yet) when the graph runs."""
    expected = f"[{op}] {argument}: expected shape {list(shape)} ({meaning})"
    if not tensor.shape.is_compatible_with(shape):
        raise ValueError(f"{expected}, got {size_of(tensor)}.")
    if tensor.shape.is_fully_defined():
        return tensor
    asserts = [
        tf.debugging.assert_equal(tf.shape(tensor), list(shape), f"{expected}, got another one.")
    ]
    with tf.control_dependencies(asserts):
        checked = tf.identity(tensor)
    checked.set_shape(shape)
    return checked


def size_of(tensor: tf.Tensor) -> Any:
    """The static shape as a user writes it: [4, None, 3]."""
    return "unknown rank" if tensor.shape.rank is None else tensor.shape.as_list()
