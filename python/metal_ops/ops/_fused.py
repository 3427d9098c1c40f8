"""Shared by fused_conv2d and fused_matmul: their arguments as fused_ops and args, and the gradient.

The gradient recomputes the unfused composition in float32, of stock ops, and differentiates that: a fused op keeps no
intermediate results. So derivatives of any order exist, at the price of a second product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments

# Keras' names: TensorFlow's.
ACTIVATIONS = {
    "relu": "Relu",
    "relu6": "Relu6",
    "elu": "Elu",
    "leaky_relu": "LeakyRelu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "silu": "Swish",
    "swish": "Swish",
    "gelu": "GeluExact",
    "gelu_approximate": "GeluApproximate",
    "mish": "Mish",
}


def sequence(
    op: str,
    dtype: tf.DType,
    bias: Any,
    batch_norm: Iterable[Any] | None,
    residual: Any,
    activation: str | None,
    unfused: str,
) -> tuple[list[str], list[tf.Tensor]]:
    """The attribute fused_ops and the input args.

    Args:
      op: The public function's name.
      dtype: The product's.
      bias: [channels] or None.
      batch_norm: (gamma, beta, mean, variance) or (scale, shift), each [channels], or None.
      residual: Shaped like the product, or None.
      activation: A key of ACTIVATIONS or None.
      unfused: The function to call where nothing is fused.

    Returns:
      The names and the tensors, in the op's order.

    Raises:
      TypeError: A dtype is not one of the op's.
      ValueError: Nothing is fused, bias and batch_norm are both given, or a name is unknown.
    """
    names: list[str] = []
    args: list[tf.Tensor] = []
    if bias is not None:
        if batch_norm is not None:
            raise ValueError(
                f"[{op}] bias, batch_norm: expected one of them, got both. Take the bias off the mean: "
                "mean - bias."
            )
        names.append("BiasAdd")
        args.append(_arguments.as_dtype(op, "bias", bias, dtype))
    if batch_norm is not None:
        try:
            values = list(batch_norm)
        except TypeError:
            values = [batch_norm]
        if len(values) not in (2, 4):
            raise ValueError(
                f"[{op}] batch_norm: expected (gamma, beta, mean, variance) or (scale, shift), got "
                f"{len(values)} tensors. Leave none out: ones and zeros change nothing."
            )
        names.append("BatchNorm")
        whole = len(values) == 4
        parts = ("gamma", "beta", "mean", "variance") if whole else ("scale", "shift")
        for part, value in zip(parts, values, strict=True):
            argument = f"batch_norm ({part})"
            # Statistics are float32 whatever the product is; a folded pair may be either.
            if whole or getattr(value, "dtype", None) != dtype:
                args.append(_arguments.as_dtype(op, argument, value, tf.float32))
            else:
                args.append(_arguments.as_dtype(op, argument, value, dtype))
    if residual is not None:
        names.append("Add")
        args.append(_arguments.as_dtype(op, "residual", residual, dtype))
    if activation is not None:
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise ValueError(
                f"[{op}] activation: expected one of {', '.join(ACTIVATIONS)} or None, got {activation!r}. "
                "Call others on the result."
            )
        names.append(ACTIVATIONS[activation])
    if not names:
        raise ValueError(
            f"[{op}] bias, batch_norm, residual, activation: expected at least one of them, got none. "
            f"Without them it is {unfused}."
        )
    return names, args


def text_list(op: tf.Operation, name: str) -> list[str]:
    """A list of strings, which eager and graph operations give in different types."""
    return [v.decode() if isinstance(v, bytes) else v for v in op.get_attr(name)]


def gradient(
    op: tf.Operation,
    d_output: tf.Tensor,
    product: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    to_last: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> list[tf.Tensor]:
    """The gradient of every input of a fused op.

    Args:
      op: The fused operation.
      d_output: The gradient of its output.
      product: The first two inputs' product, channels last.
      to_last: Brings residual and output into the layout with channels last.

    Returns:
      One gradient an input, of its dtype: all in float32, rounded once.
    """
    # Copies, so that they belong to the graph that is being built: gradients of loops have another one.
    inputs = [tf.identity(each) for each in op.inputs]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        first, second, *args = (tf.cast(each, tf.float32) for each in inputs)
        y = product(first, second)
        for name in text_list(op, "fused_ops"):
            if name == "BiasAdd":
                y += args.pop(0)
            elif name == "BatchNorm":
                scale, shift, *moments = args[: len(args) - ("Add" in text_list(op, "fused_ops"))]
                args = args[2 + len(moments) :]
                if moments:
                    y -= moments[0]
                    scale *= tf.math.rsqrt(moments[1] + op.get_attr("epsilon"))
                y = y * scale + shift
            elif name == "Add":
                y += to_last(args.pop(0))
            else:
                y = _activate(name, y, op.get_attr("leakyrelu_alpha"))
    return tape.gradient(
        y,
        inputs,
        output_gradients=to_last(tf.cast(d_output, tf.float32)),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def _activate(name: str, y: tf.Tensor, alpha: float) -> tf.Tensor:
    functions: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "Relu": tf.nn.relu,
        "Relu6": tf.nn.relu6,
        "Elu": tf.nn.elu,
        "LeakyRelu": lambda x: tf.nn.leaky_relu(x, alpha),
        "Sigmoid": tf.sigmoid,
        "Tanh": tf.tanh,
        "Swish": lambda x: x * tf.sigmoid(x),
        "GeluExact": tf.nn.gelu,
        "GeluApproximate": lambda x: tf.nn.gelu(x, approximate=True),
        "Mish": lambda x: x * tf.tanh(tf.math.softplus(x)),
    }
    return functions[name](y)
