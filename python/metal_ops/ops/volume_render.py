"""Volume rendering along rays (Max 1995; Mildenhall et al. 2020, equation 3), packed or dense, and its gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _declared

__all__ = ["Rendering", "SampleWeights", "render_weights", "volume_render"]
__theme__ = "Rays"


class Rendering(NamedTuple):
    """The result of `volume_render`, float32.

    Attributes:
      rgb: Colours, [rays, channels].
      opacity: How much of the light each ray stops, [rays], in [0, 1] for densities that are not negative.
      depth: Mean distance along each ray, in units of t, [rays]; see normalize_depth.
      depth_median: Middle of the sample at which half of the light has been stopped, [rays].
      weights: Part of each sample in its ray's colour, shaped like the samples.
    """

    rgb: tf.Tensor
    opacity: tf.Tensor
    depth: tf.Tensor
    depth_median: tf.Tensor
    weights: tf.Tensor


class SampleWeights(NamedTuple):
    """The result of `render_weights`, float32, shaped like the samples.

    Attributes:
      weights: Part of each sample in its ray's colour.
      transmittance: Light that reaches each sample.
    """

    weights: tf.Tensor
    transmittance: tf.Tensor


def volume_render(
    sigmas: Any,
    rgbs: Any,
    t_starts: Any,
    t_ends: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    background: Any = None,
    early_stop_eps: float = 0.0,
    normalize_depth: bool = True,
    t_gradients: bool = False,
    name: str | None = None,
) -> Rendering:
    """Composites the samples of every ray, front to back, in log space.

    With `x_i = sigma_i (t_end_i - t_start_i)`, sample i weighs `w_i = exp(-sum_{j<i} x_j) (1 - exp(-x_i))`, and
    `rgb = sum w_i rgb_i + (1 - sum w_i) background`: Max 1995; Mildenhall et al. 2020, equation 3.

    One pass forwards, one backwards; the gradients of sigmas, rgbs and background are exact (those of samples
    behind an early stop are zero). Deterministic. NaN and infinity stay within their ray.

    Args:
      sigmas: Densities per unit of t: [samples], packed ray after ray, or dense [rays, samples]. float32, float16 or
        bfloat16; computed in float32 in any case.
      rgbs: Colours, [samples, channels] or [rays, samples, channels], of the same dtype. Any number of channels.
      t_starts: Where each sample begins along its ray, shaped like sigmas, float32.
      t_ends: Where it ends.
      packed_info: For packed samples: first sample and number of samples of each ray, [rays, 2] int32 or int64,
        in order and without overlap, as `ray_march` and nerfacc give it.
      ray_indices: In its place: the ray of each sample, [samples] int32 or int64, ascending.
      n_rays: Number of rays, with ray_indices.
      background: The colour behind the samples: [channels] or [rays, channels], float32; None for black.
      early_stop_eps: Samples with less transmittance before them than this weigh nothing. 0 stops nowhere; 1e-4 is
        instant-ngp's choice.
      normalize_depth: Whether `depth` is divided by the opacity (the expected depth, as in nerfacc; 0 for an empty
        ray) or is the plain sum of w_i times the sample's middle.
      t_gradients: Whether t_starts and t_ends get gradients too; otherwise theirs is None.
      name: Optional name of the op.

    Returns:
      Rendering(rgb [rays, channels], opacity [rays], depth [rays], depth_median [rays], weights), float32.
      depth_median is the middle of the first sample at whose end the opacity reaches 1/2 (the last sample's if it never
      does; 0 for a ray without samples).

    Raises:
      TypeError: A dtype is none of those above, or sigmas and rgbs differ.
      ValueError: Neither or both of packed_info and ray_indices are given with packed samples, or one of them
        with dense samples.
      tf.errors.InvalidArgumentError: A shape does not fit, packed_info reaches beyond the samples or overlaps, or
        ray_indices do not ascend (ValueError where that is known when a graph is built).

    Example:
      >>> rendering = metal_ops.volume_render(
      ...     sigmas=[1.0, 50.0, 3.0],
      ...     rgbs=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
      ...     t_starts=[0.0, 1.0, 0.5],
      ...     t_ends=[1.0, 2.0, 1.0],
      ...     packed_info=[[0, 2], [2, 1], [3, 0]],
      ...     background=[1.0, 1.0, 1.0],
      ... )
      >>> print(rendering.opacity.numpy().round(3))
      [1.    0.777 0.   ]
      >>> rendering.rgb[2].numpy().tolist()
      [1.0, 1.0, 1.0]
    """
    op = "volume_render"
    normalize_depth = _arguments.flag(op, "normalize_depth", normalize_depth)
    with tf.name_scope(name or op):
        rgbs = _arguments.as_floats(op, "rgbs", rgbs)
        if background is None:
            background = tf.zeros([0], tf.float32)
        else:
            background = _arguments.as_floats(op, "background", background, [tf.float32])
            # To the op it would mean that there is none.
            if background.shape == [0] and rgbs.shape.rank and rgbs.shape[-1] != 0:
                raise ValueError(
                    f"[{op}] background: expected shape [channels] or [rays, channels], got [0]. Leave it "
                    "out for black."
                )
        tensors = {
            "sigmas": sigmas,
            "rgbs": rgbs,
            "t_starts": t_starts,
            "t_ends": t_ends,
            "packed_info": _declared.Rays(packed_info, ray_indices, n_rays),
            "background": background,
        }
        rgb, opacity, depth, depth_median, weights = _declared.call(
            op, tensors, None, early_stop_eps=early_stop_eps, t_gradients=t_gradients
        )
        if normalize_depth:
            depth = tf.math.divide_no_nan(depth, opacity)
        return Rendering(rgb, opacity, depth, depth_median, weights)


def render_weights(
    sigmas: Any,
    t_starts: Any,
    t_ends: Any,
    packed_info: Any = None,
    *,
    ray_indices: Any = None,
    n_rays: Any = None,
    early_stop_eps: float = 0.0,
    t_gradients: bool = False,
    name: str | None = None,
) -> SampleWeights:
    """The weights of `volume_render` alone, and the transmittance up to each sample.

    For proposal networks, for visibility, and for compositing values other than colours.

    Args:
      sigmas: As in `volume_render`, like all other arguments.
      t_starts: Where each sample begins along its ray, float32.
      t_ends: Where it ends.
      packed_info: [rays, 2] (start, count), for packed samples.
      ray_indices: In its place: the ray of each sample, ascending.
      n_rays: Number of rays, with ray_indices.
      early_stop_eps: Samples with less transmittance before them than this weigh nothing.
      t_gradients: Whether t_starts and t_ends get gradients too.
      name: Optional name of the op.

    Returns:
      SampleWeights(weights, transmittance), both float32 and shaped like sigmas. The transmittance goes on behind an
      early stop.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: As in `volume_render`.
      tf.errors.InvalidArgumentError: As in `volume_render`.

    Example:
      >>> weights, transmittance = metal_ops.render_weights([[1.0, 2.0]], [[0.0, 1.0]], [[1.0, 2.0]])
      >>> print(transmittance.numpy().round(3))
      [[1.    0.368]]
    """
    op = "render_weights"
    tensors = {
        "sigmas": sigmas,
        "t_starts": t_starts,
        "t_ends": t_ends,
        "packed_info": _declared.Rays(packed_info, ray_indices, n_rays),
    }
    with tf.name_scope(name or op):
        return SampleWeights(
            *_declared.call(
                op, tensors, None, early_stop_eps=early_stop_eps, t_gradients=t_gradients
            )
        )


@tf.RegisterGradient("VolumeRender")
def _volume_render_gradient(
    op: tf.Operation, d_rgb: tf.Tensor, *d_others: tf.Tensor
) -> list[tf.Tensor | None]:
    d_sigmas, d_rgbs, d_background, d_starts, d_ends = raw_ops.volume_render_grad(
        _arguments.zeros_as_empty(d_rgb, rank=2),
        *map(_arguments.zeros_as_empty, d_others),
        *op.inputs,
        **_declared.attributes(op),
    )
    if not op.get_attr("t_gradients"):
        d_starts = d_ends = None
    return [d_sigmas, d_rgbs, d_starts, d_ends, None, d_background]


@tf.RegisterGradient("RenderWeights")
def _render_weights_gradient(op: tf.Operation, *d_outputs: tf.Tensor) -> list[tf.Tensor | None]:
    d_sigmas, d_starts, d_ends = raw_ops.render_weights_grad(
        *map(_arguments.zeros_as_empty, d_outputs),
        *op.inputs,
        **_declared.attributes(op),
    )
    if not op.get_attr("t_gradients"):
        d_starts = d_ends = None
    return [d_sigmas, d_starts, d_ends, None]
