"""The distortion loss of mip-NeRF 360 (Barron et al. 2022), packed or dense, and its gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _declared, _losses

__all__ = ["distortion_loss"]
__theme__ = "Losses and activations"


def distortion_loss(
    weights: Any,
    t_starts: Any,
    t_ends: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    t_gradients: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """How far each ray's weights are spread out: small where they sit in one short stretch.

    Barron et al. 2022, "Mip-NeRF 360", equation 15, with the middles m_i of the samples:

        sum_ij w_i w_j |m_i - m_j| + 1/3 sum_i w_i^2 (t_end_i - t_start_i)

    By running sums, in time linear in the samples; loss and derivative are made in one pass over memory. Differentiable
    once. The paper takes t in normalised ray distance.

    Args:
      weights: As `volume_render` gives them: [samples], packed ray after ray, or dense [rays, samples]; float32.
      t_starts: Where each sample begins along its ray, ascending, shaped like weights, float32.
      t_ends: Where it ends.
      packed_info: For packed samples: first sample and number of samples of each ray, [rays, 2] int32 or int64.
      ray_indices: In its place: the ray of each sample, [samples], ascending.
      n_rays: Number of rays, with ray_indices.
      t_gradients: Whether t_starts and t_ends get gradients too; otherwise theirs is None.
      name: Optional name of the op.

    Returns:
      [rays] float32.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: Neither or both of packed_info and ray_indices are given with packed samples.
      tf.errors.InvalidArgumentError: A shape or packed_info does not fit, or the samples of a ray are not in order. (On
        the Metal device such a ray gives NaN in place of the error, which every call would have to wait for.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.distortion_loss([[0.5, 0.5]], [[0.0, 1.0]], [[1.0, 2.0]]).numpy().round(4).tolist()
      [0.6667]
    """
    op = "distortion_loss"
    tensors = {
        "weights": weights,
        "t_starts": t_starts,
        "t_ends": t_ends,
        "packed_info": _declared.Rays(packed_info, ray_indices, n_rays),
    }
    with tf.name_scope(name or op):
        return _declared.call(op, tensors, None, t_gradients=t_gradients)[0]


@tf.RegisterGradient("DistortionLoss")
def _distortion_loss_gradient(
    op: tf.Operation, d_loss: tf.Tensor, *_: tf.Tensor
) -> list[tf.Tensor | None]:
    packed_info = op.inputs[3]
    result: list[tf.Tensor | None] = [None] * 4
    for index in range(3 if op.get_attr("t_gradients") else 1):
        if _losses.is_wanted(op, index):
            result[index] = raw_ops.scale_rays(d_loss, op.outputs[index + 1], packed_info)
    return result
