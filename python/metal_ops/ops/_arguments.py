"""Arguments of the public ops, converted in one way: numbers take the op's dtype, tensors keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from metal_ops.ops import _checks

FLOATS = (tf.float32, tf.float16, tf.bfloat16)
INDICES = (tf.int32, tf.int64)


def as_floats(
    op: str, argument: str, value: Any, allowed: Iterable[tf.DType] = FLOATS, why: str = ""
) -> tf.Tensor:
    """The value as a tensor of an allowed dtype; what is no tensor yet becomes float32."""
    return _convert(op, argument, value, tuple(allowed), tf.float32, why)


def as_dtype(op: str, argument: str, value: Any, dtype: tf.DType) -> tf.Tensor:
    """The value as a tensor of the dtype that another argument has; what is no tensor yet becomes that."""
    return _convert(op, argument, value, (dtype,), dtype, "")


def as_indices(op: str, argument: str, value: Any) -> tf.Tensor:
    """The value as an int32 or int64 tensor; what is neither a tensor nor a NumPy array becomes int32."""
    default = None if hasattr(value, "dtype") else tf.int32
    return _convert(op, argument, value, INDICES, default, "")


def _convert(
    op: str,
    argument: str,
    value: Any,
    allowed: tuple[tf.DType, ...],
    default: tf.DType | None,
    why: str,
) -> tf.Tensor:
    # A tensor's dtype was chosen, and so was a NumPy array's unless it is NumPy's habitual float64.
    chosen = tf.is_tensor(value) or hasattr(value, "assign")
    if not chosen and hasattr(value, "dtype") and str(value.dtype) in [d.name for d in allowed]:
        chosen = True
    value = tf.convert_to_tensor(value, dtype=None if chosen else default, name=argument)
    _checks.check_dtype(op, argument, value, allowed, why)
    return value


def check_same_dtype(op: str, **tensors: tf.Tensor) -> None:
    """Raises TypeError unless all tensors have one dtype."""
    (first, reference), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != reference.dtype:
            raise TypeError(
                f"[{op}] {name}: expected dtype {reference.dtype.name} as of {first}, got {tensor.dtype.name}. "
                f"Cast one of them: tf.cast({name}, {first}.dtype)."
            )


def packed_info_of(
    op: str, samples: tf.Tensor, packed_info: Any, ray_indices: Any, n_rays: Any
) -> tf.Tensor:
    """packed_info as the ops want it, from whichever way the caller says which ray a sample belongs to.

    Args:
      op: The public function's name.
      samples: [samples], packed ray after ray, or [rays, samples].
      packed_info: [rays, 2] (start, count) or None.
      ray_indices: [samples], ascending, or None.
      n_rays: Number of rays, needed with ray_indices.

    Returns:
      [rays, 2], or [0, 2] for dense samples.

    Raises:
      ValueError: None or several of the ways are given.
    """
    from metal_ops import raw_ops

    if samples.shape.rank is None:
        raise ValueError(
            f"[{op}] samples of unknown rank: expected [samples] or [rays, samples]. "
            "Say which with tf.ensure_shape."
        )
    if samples.shape.rank == 2:
        if packed_info is not None or ray_indices is not None:
            raise ValueError(
                f"[{op}] packed_info and ray_indices: expected neither with dense samples [rays, samples]; "
                "flatten the samples or leave them out."
            )
        return tf.zeros([0, 2], tf.int32)
    if (packed_info is None) == (ray_indices is None):
        got = "neither" if packed_info is None else "both"
        raise ValueError(
            f"[{op}] packed_info, ray_indices: expected one of them with packed samples [samples], got {got}."
        )
    if packed_info is not None:
        return as_indices(op, "packed_info", packed_info)
    if n_rays is None:
        raise ValueError(
            f"[{op}] n_rays: expected the number of rays with ray_indices, got None "
            "(the last rays may have no samples)."
        )
    ray_indices = as_indices(op, "ray_indices", ray_indices)
    return raw_ops.pack_ray_indices(ray_indices, tf.cast(n_rays, ray_indices.dtype))


def zeros_as_empty(gradient: tf.Tensor | None, rank: int = 1) -> tf.Tensor:
    """The gradient, or the empty tensor by which a kernel knows that there is none and reads nothing."""
    # While a function is traced TensorFlow marks the zeros that stand for an output nobody used.
    if gradient is None or getattr(gradient, "_is_zeros_tensor", False):
        return tf.zeros([0] * rank, tf.float32)
    return gradient


def text_attr(op: tf.Operation, name: str) -> str:
    """A string attribute, which eager and graph operations give in different types."""
    value = op.get_attr(name)
    return value.decode() if isinstance(value, bytes) else value


def no_second_derivative(*ops: str) -> None:
    """Registers gradients that say that there are none."""
    for op in ops:

        @tf.RegisterGradient(op)
        def _refuse(_: tf.Operation, *__: tf.Tensor, op: str = op) -> None:
            raise LookupError(
                f"[{op}] second derivatives are not provided. Stop the gradient of the first one with "
                "tf.stop_gradient, or take it outside of the outer tape."
            )


def flatten_points(
    op: str, argument: str, points: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """[..., D] as [N, D], and what gives a result [N, W] the leading dimensions back."""
    if points.shape.rank == 2:
        return points, lambda result: result
    if points.shape.rank == 0:
        raise ValueError(f"[{op}] {argument}: expected shape [..., dims], got a scalar.")
    dims = points.shape[-1] if points.shape.rank is not None else None
    if dims is None:
        raise ValueError(
            f"[{op}] {argument}: expected a last dimension known in the graph, got {points.shape}. "
            "Say it with tf.ensure_shape."
        )
    # Not -1, which cannot be told where dims or the number of points is 0.
    flat = tf.reshape(points, [tf.reduce_prod(tf.shape(points)[:-1]), dims])

    def restore(result: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(result, tf.concat([tf.shape(points)[:-1], [result.shape[-1]]], axis=0))
        shaped.set_shape([*points.shape[:-1], result.shape[-1]])
        return shaped

    return flat, restore
