"""A convolution and the ops after it in one op: the public face of MetalFusedConv2D, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from metal_ops.ops import _arguments, _declared, _fused

__all__ = ["fused_conv2d"]
__theme__ = "Fused layers"


def fused_conv2d(
    input: Any,  # noqa: A002 - tf.nn.conv2d's name
    filters: Any,
    strides: int | Sequence[int] = 1,
    padding: str | Sequence[Sequence[int]] = "SAME",
    *,
    bias: Any = None,
    batch_norm: Iterable[Any] | None = None,
    residual: Any = None,
    activation: str | None = None,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    dilations: int | Sequence[int] = 1,
    epsilon: float = 1e-4,
    alpha: float = 0.2,
    name: str | None = None,
) -> tf.Tensor:
    """`activation(norm(conv2d(input, filters)) + residual)` in one pass over memory, rounded once.

    The op that `metal_ops.fusion` makes of stock ops in a graph, to be called directly. Sums and everything after them
    are float32. Differentiable any number of times: the gradient computes the convolution once more, from stock ops.

    Args:
      input: [batch, height, width, channels], or [batch, channels, height, width] with "NCHW"; float32, float16 or
        bfloat16.
      filters: [filter_height, filter_width, channels, output_channels], of input's dtype. Grouped convolutions (fewer
        channels than input has) are refused.
      strides: One number, (height, width), or one for each dimension of input.
      padding: "SAME", "VALID", or four pairs (before, after), one for each dimension of input.
      bias: [output_channels] of input's dtype, added to the convolution. Not with batch_norm.
      batch_norm: (gamma, beta, mean, variance), float32, or (scale, shift), float32 or input's dtype, each
        [output_channels]. Inference: (y - mean) / sqrt(variance + epsilon) gamma + beta, or y scale + shift.
      residual: Has the result's shape and input's dtype, added next.
      activation: Applied last: "relu", "relu6", "elu", "leaky_relu", "sigmoid", "tanh", "silu" (or "swish"), "gelu",
        "gelu_approximate", "mish".
      data_format: "NHWC" or "NCHW", of input, residual and result.
      dilations: As strides: steps between the points of the filter.
      epsilon: Added to the variance.
      alpha: Slope of "leaky_relu" below zero.
      name: Optional name of the op.

    Returns:
      [batch, out_height, out_width, output_channels], or with "NCHW" the channels second, of input's dtype.

    Raises:
      TypeError: A dtype is not one of these.
      ValueError: Nothing is fused (use tf.nn.conv2d), or an argument is none of its choices.
      tf.errors.InvalidArgumentError: Shapes do not fit. (ValueError in a graph.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> x, w = tf.ones([1, 4, 4, 2]), tf.ones([3, 3, 2, 1])
      >>> y = metal_ops.fused_conv2d(x, w, padding="VALID", bias=[-20.0], activation="leaky_relu", alpha=0.5)
      >>> y.numpy()[0, :, :, 0].tolist()
      [[-1.0, -1.0], [-1.0, -1.0]]
    """
    op = "fused_conv2d"
    if not isinstance(data_format, str) or data_format not in ("NHWC", "NCHW"):
        raise ValueError(
            f"[{op}] data_format: expected 'NHWC' or 'NCHW', got {data_format!r}. Transpose the input."
        )
    x = _arguments.as_floats(op, "input", input)
    names, args = _fused.sequence(
        op, x.dtype, bias, batch_norm, residual, activation, "tf.nn.conv2d"
    )
    kind, explicit = _padding(op, padding)
    return _declared.call(
        "metal_fused_conv2d",
        {"input": x, "filters": filters, "args": args},
        name,
        label=op,
        strides=_per_dimension(op, "strides", strides, data_format),
        padding=kind,
        explicit_paddings=explicit,
        data_format=data_format,
        dilations=_per_dimension(op, "dilations", dilations, data_format),
        fused_ops=names,
        epsilon=epsilon,
        leakyrelu_alpha=_arguments.number(op, "alpha", alpha),
    )


def _per_dimension(
    op: str, argument: str, value: int | Sequence[int], data_format: str
) -> list[int]:
    several: Any = value if isinstance(value, tuple | list | np.ndarray) else [value]
    values = [_arguments.integer(op, argument, each) for each in several]
    if len(values) == 1:
        values *= 2
    if len(values) == 2:
        return [1, 1, *values] if data_format == "NCHW" else [1, *values, 1]
    if len(values) != 4:
        raise ValueError(
            f"[{op}] {argument}: expected a number, (height, width) or one number for each dimension of input, "
            f"got {value!r}."
        )
    return values


def _padding(
    op: str, padding: str | Sequence[Sequence[int]]
) -> tuple[Literal["SAME", "VALID", "EXPLICIT"], list[int]]:
    if isinstance(padding, str):
        if padding == "SAME":
            return "SAME", []
        if padding == "VALID":
            return "VALID", []
        raise ValueError(
            f"[{op}] padding: expected 'SAME', 'VALID' or four pairs (before, after), got {padding!r}."
        )
    pairs = np.asarray(padding, dtype=object)
    if pairs.shape != (4, 2):
        raise ValueError(
            f"[{op}] padding: expected four pairs (before, after), one for each dimension of input, or 'SAME' or "
            f"'VALID', got {padding!r}."
        )
    return "EXPLICIT", [_arguments.integer(op, "padding", side) for side in pairs.flatten()]


@tf.RegisterGradient("MetalFusedConv2D")
def _fused_conv2d_gradient(op: tf.Operation, d_output: tf.Tensor) -> list[tf.Tensor]:
    # Channels last, for which TensorFlow has gradients on every device.
    def to_last(x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(x, (0, 2, 3, 1)) if nchw else x

    def spread(values: list[Any]) -> list[Any]:
        return [values[0], values[2], values[3], values[1]] if nchw else values

    nchw = _arguments.text_attr(op, "data_format") == "NCHW"
    padding: Any = _arguments.text_attr(op, "padding")
    if padding == "EXPLICIT":
        flat = list(op.get_attr("explicit_paddings"))
        padding = spread([flat[i : i + 2] for i in range(0, 8, 2)])

    def product(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        strides, dilations = (spread(list(op.get_attr(n))) for n in ("strides", "dilations"))
        x = to_last(x)
        # A step over the whole image is as good as any longer one, with which Conv2DBackpropInput ends the process.
        for d, size in enumerate(x.shape.as_list() if x.shape.rank else ()):
            if size is not None:
                padded = size if isinstance(padding, str) else size + sum(padding[d])
                strides[d] = max(1, min(strides[d], padded))
        return tf.nn.conv2d(x, _dilate(w, *dilations[1:3]), strides, padding)

    return _fused.gradient(op, d_output, product, to_last)


def _dilate(filters: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The filter with zeros between its points: stock gradients of dilated convolutions exist on few CPUs."""
    if height == width == 1:
        return filters
    h, w, c, k = (tf.shape(filters)[i] for i in range(4))
    padded = tf.pad(
        tf.reshape(filters, [h, 1, w, 1, c, k]),
        [[0, 0], [0, height - 1], [0, 0], [0, width - 1], [0, 0], [0, 0]],
    )
    spread = tf.reshape(padded, [h * height, w * width, c, k])
    return spread[: (h - 1) * height + 1, : (w - 1) * width + 1]
