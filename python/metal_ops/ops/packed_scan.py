"""Running sums and products along packed rays, as nerfacc offers them, and `pack_ray_indices`."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["exclusive_prod", "exclusive_sum", "inclusive_prod", "inclusive_sum", "pack_ray_indices"]
__theme__ = "Rays"


def inclusive_sum(
    inputs: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    reverse: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Running sum along each ray: `y_i = x_0 + ... + x_i`.

    Args:
      inputs: [samples], packed ray after ray, or dense [rays, samples]; float32, float16 or bfloat16. Sums are made in
        higher precision.
      packed_info: For packed samples: first sample and number of samples of each ray, [rays, 2] int32 or int64,
        in order and without overlap.
      ray_indices: In its place: the ray of each sample, [samples], ascending.
      n_rays: Number of rays, with ray_indices.
      reverse: Run from each ray's end.
      name: Optional name of the op.

    Returns:
      Shaped like inputs, of their dtype. 0 for samples of no ray.

    Raises:
      TypeError: A dtype is none of those above.
      ValueError: Neither or both of packed_info and ray_indices are given with packed samples.
      tf.errors.InvalidArgumentError: packed_info reaches beyond the samples or overlaps, or ray_indices do not ascend.

    Example:
      >>> metal_ops.inclusive_sum([1.0, 2.0, 3.0, 4.0], packed_info=[[0, 3], [3, 1]]).numpy().tolist()
      [1.0, 3.0, 6.0, 4.0]
    """
    return _scan(
        "inclusive_sum", "sum", False, inputs, packed_info, ray_indices, n_rays, reverse, name
    )


def exclusive_sum(
    inputs: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    reverse: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Running sum along each ray without the sample itself: `y_i = x_0 + ... + x_{i-1}`, `y_0 = 0`.

    Args:
      inputs: As in `inclusive_sum`, like all other arguments.
      packed_info: [rays, 2] (start, count), for packed samples.
      ray_indices: In its place: the ray of each sample, ascending.
      n_rays: Number of rays, with ray_indices.
      reverse: Run from each ray's end.
      name: Optional name of the op.

    Returns:
      Shaped like inputs, of their dtype.

    Raises:
      TypeError, ValueError, tf.errors.InvalidArgumentError: As in `inclusive_sum`.

    Example:
      >>> metal_ops.exclusive_sum([[1.0, 2.0, 3.0]]).numpy().tolist()
      [[0.0, 1.0, 3.0]]
    """
    return _scan(
        "exclusive_sum", "sum", True, inputs, packed_info, ray_indices, n_rays, reverse, name
    )


def inclusive_prod(
    inputs: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    reverse: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Running product along each ray: `y_i = x_0 ... x_i`. The gradient is exact where inputs are zero.

    Args:
      inputs: As in `inclusive_sum`, like all other arguments.
      packed_info: [rays, 2] (start, count), for packed samples.
      ray_indices: In its place: the ray of each sample, ascending.
      n_rays: Number of rays, with ray_indices.
      reverse: Run from each ray's end.
      name: Optional name of the op.

    Returns:
      Shaped like inputs, of their dtype.

    Raises:
      TypeError, ValueError, tf.errors.InvalidArgumentError: As in `inclusive_sum`.

    Example:
      >>> metal_ops.inclusive_prod([2.0, 3.0, 5.0], ray_indices=[0, 0, 1], n_rays=2).numpy().tolist()
      [2.0, 6.0, 5.0]
    """
    return _scan(
        "inclusive_prod", "prod", False, inputs, packed_info, ray_indices, n_rays, reverse, name
    )


def exclusive_prod(
    inputs: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    reverse: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Running product along each ray without the sample itself: `y_i = x_0 ... x_{i-1}`, `y_0 = 1`.

    For `1 - alpha` it is the transmittance.

    Args:
      inputs: As in `inclusive_sum`, like all other arguments.
      packed_info: [rays, 2] (start, count), for packed samples.
      ray_indices: In its place: the ray of each sample, ascending.
      n_rays: Number of rays, with ray_indices.
      reverse: Run from each ray's end.
      name: Optional name of the op.

    Returns:
      Shaped like inputs, of their dtype.

    Raises:
      TypeError, ValueError, tf.errors.InvalidArgumentError: As in `inclusive_sum`.

    Example:
      >>> metal_ops.exclusive_prod([[0.5, 0.0, 0.5]]).numpy().tolist()
      [[1.0, 0.5, 0.0]]
    """
    return _scan(
        "exclusive_prod", "prod", True, inputs, packed_info, ray_indices, n_rays, reverse, name
    )


def pack_ray_indices(ray_indices: Any, n_rays: Any, name: str | None = None) -> tf.Tensor:
    """First sample and number of samples of each ray, from the ray of each sample.

    Args:
      ray_indices: The ray that each sample belongs to, [samples] int32 or int64, ascending, in [0, n_rays).
      n_rays: Number of rays.
      name: Optional name of the op.

    Returns:
      packed_info [n_rays, 2] of ray_indices' dtype. A ray without samples starts where the next one does.

    Raises:
      TypeError: ray_indices are of another dtype.
      tf.errors.InvalidArgumentError: ray_indices do not ascend or lie outside of [0, n_rays).

    Example:
      >>> metal_ops.pack_ray_indices([0, 0, 2], n_rays=3).numpy().tolist()
      [[0, 2], [2, 0], [2, 1]]
    """
    op = "pack_ray_indices"
    _checks.refuse_xla(op)
    ray_indices = _arguments.as_indices(op, "ray_indices", ray_indices)
    inputs = {
        "ray_indices": ray_indices,
        "n_rays": _arguments.ray_count(op, n_rays, ray_indices.dtype),
    }
    return _declared.raw(op, op, list(inputs.values()), inputs, name=name)


def _scan(
    op: str,
    reduction: Literal["sum", "prod"],
    exclusive: bool,
    inputs: Any,
    packed_info: Any,
    ray_indices: Any,
    n_rays: Any,
    reverse: bool,
    name: str | None,
) -> tf.Tensor:
    rays = _declared.Rays(packed_info, ray_indices, n_rays)
    with tf.name_scope(name or op):
        return _declared.call(
            "packed_scan",
            {"inputs": inputs, "packed_info": rays},
            None,
            label=op,
            reduction=reduction,
            exclusive=exclusive,
            reverse=reverse,
        )


@tf.RegisterGradient("PackedScan")
def _packed_scan_gradient(op: tf.Operation, d_outputs: tf.Tensor) -> list[tf.Tensor | None]:
    inputs, packed_info = op.inputs
    exclusive, reverse = op.get_attr("exclusive"), op.get_attr("reverse")
    if _arguments.text_attr(op, "reduction") == "sum":
        # The transpose of a running sum runs the other way.
        d_inputs = raw_ops.packed_scan(
            d_outputs, packed_info, exclusive=exclusive, reverse=not reverse
        )
    else:
        d_inputs = raw_ops.packed_prod_grad(
            d_outputs, inputs, packed_info, exclusive=exclusive, reverse=reverse
        )
    return [d_inputs, None]


tf.no_gradient("PackRayIndices")
