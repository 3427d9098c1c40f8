"""Small fully connected networks in one pass over a batch, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared, _losses

__all__ = ["fused_mlp"]
__theme__ = "Fused layers"

ACTIVATIONS = (
    "none",
    "relu",
    "leaky_relu",
    "exponential",
    "sine",
    "sigmoid",
    "squareplus",
    "softplus",
    "tanh",
)
WIDTHS = (16, 32, 64, 128)  # of the kernels; others are padded
MOST_HIDDEN, MOST_COLUMNS = 8, 128


def fused_mlp(
    x: Any,
    kernels: Sequence[Any],
    biases: Sequence[Any] | None = None,
    *,
    activation: str = "relu",
    output_activation: str = "none",
    squareplus_b: float = 4.0,
    softplus_beta: float = 1.0,
    negative_slope: float = 0.01,
    name: str | None = None,
) -> tf.Tensor:
    """A small fully connected network: all its layers in one pass, a part of the batch at a time.

    The same function as `keras.layers.Dense` layers one after the other, without their intermediate results in memory:
    those of a part of the batch stay in registers and caches, and the gradient computes them again. Mueller et al.
    2021, "Real-time neural radiance caching for path tracing", section 4, has the idea. Sums are float32, and each
    layer's result is rounded to the dtype, as layers of that dtype do.

    Matrices are those of Keras, a row per input. tiny-cuda-nn has one vector of all matrices, each of them transposed.
    Twice differentiable; the second derivative is computed layer by layer with stock ops, and so are networks whose
    hidden layers have sines: the slope of a sine does not follow from its value, which is all that the op keeps. Widths
    other than 16, 32, 64 and 128 are padded with zeros to the next of these, in each call: they take its time.

    Args:
      x: [..., inputs] float32, float16 or bfloat16; 1 to 128 inputs.
      kernels: A matrix a layer: [inputs, width], 0 to 7 times [width, width], [width, outputs]. The width is 1 to 128,
        and there are 1 to 128 outputs.
      biases: A vector a layer, or None for none, as in instant-ngp.
      activation: Activation of the hidden layers, one of tiny-cuda-nn's: "none", "relu", "leaky_relu", "exponential",
        "sine", "sigmoid", "squareplus", "softplus" or "tanh".
      output_activation: Activation of the last layer, one of the same.
      squareplus_b: b of squareplus, (x + sqrt(x^2 + b)) / 2; Keras has 4, tiny-cuda-nn 0.04.
      softplus_beta: b of softplus, log(1 + exp(b x)) / b, 0.001 to 1000; Keras has 1, tiny-cuda-nn 10.
      negative_slope: The slope of leaky_relu below 0, 0 to 1; tiny-cuda-nn has 0.01.
      name: Optional name of the op.

    Returns:
      [..., outputs] of x's dtype.

    Raises:
      TypeError: A dtype does not fit, or an activation is not a string.
      ValueError: A matrix or bias has another shape, or there is no such activation.
      tf.errors.InvalidArgumentError: A shape that was not known before does not fit when the graph runs.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> kernels = [tf.ones([2, 16]), tf.ones([16, 1])]
      >>> metal_ops.fused_mlp([[1.0, 2.0], [1.0, -2.0]], kernels).numpy().tolist()
      [[48.0], [0.0]]
    """
    op = "fused_mlp"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        if x.shape.rank is None or x.shape.rank == 0 or x.shape[-1] is None:
            raise ValueError(
                f"[{op}] x: expected shape [..., inputs] with a number of inputs that is known in the graph, got "
                f"{_checks.size_of(x)}. Say it with tf.ensure_shape."
            )
        kernels = _list(op, "kernels", kernels, x)
        if not 2 <= len(kernels) <= MOST_HIDDEN + 1:
            raise ValueError(
                f"[{op}] kernels: expected 2 to {MOST_HIDDEN + 1} matrices (1 to {MOST_HIDDEN} hidden layers), got "
                f"{len(kernels)}."
            )
        sizes = [x.shape[-1]]
        for number, kernel in enumerate(kernels):
            sizes.append(_columns(op, f"kernels[{number}]", kernel, sizes[-1], len(kernels)))
            if 0 < number < len(kernels) - 1:
                _checks.check_shape(
                    op, f"kernels[{number}]", kernel, [sizes[1], sizes[1]], "[width, width]"
                )
        names = [
            activation_name(op, "activation", activation),
            activation_name(op, "output_activation", output_activation),
        ]
        if biases is not None:
            biases = _list(op, "biases", biases, x)
            if len(biases) != len(kernels):
                raise ValueError(
                    f"[{op}] biases: expected {len(kernels)}, one a matrix, got {len(biases)}."
                )
            for number, bias in enumerate(biases):
                argument = f"biases[{number}]"
                _checks.check_shape(op, argument, bias, [sizes[number + 1]], "one an output")
        flat, restore = _arguments.flatten_points(op, "x", x)
        options = dict(
            n_outputs=sizes[-1],
            n_hidden_layers=len(kernels) - 1,
            use_bias=biases is not None,
            squareplus_b=squareplus_b,
            softplus_beta=softplus_beta,
            negative_slope=negative_slope,
        )
        if names[0] == "sine":
            return restore(_unfused(flat, kernels, biases, sizes[1], names, options))
        sine = names[1] == "sine"
        width = next(width for width in WIDTHS if width >= sizes[1])
        outputs = _declared.call(
            op,
            {"x": flat, "kernels": _weights(kernels, biases, width)},
            None,
            n_neurons=width,
            activation=names[0],
            output_activation="none" if sine else names[1],
            **options,
        )
        return restore(tf.sin(outputs) if sine else outputs)


def _weights(kernels: list[tf.Tensor], biases: list[tf.Tensor] | None, width: int) -> tf.Tensor:
    """All of them, one after the other, with hidden layers of `width`.

    A padded neuron has an activation of 0, which may be 1 or 1/2, and no part in the next layer.
    """
    narrow, last = int(kernels[0].shape[1]), len(kernels) - 1
    parts = []
    for number, kernel in enumerate(kernels):
        above, below = width - narrow if number else 0, width - narrow if number < last else 0
        parts.append(tf.pad(kernel, [[0, above], [0, below]]) if width > narrow else kernel)
        if biases is not None:
            parts.append(tf.pad(biases[number], [[0, below]]) if below else biases[number])
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)


def _unfused(
    x: tf.Tensor,
    kernels: list[tf.Tensor],
    biases: list[tf.Tensor] | None,
    width: int,
    names: list[Any],
    options: dict[str, Any],
) -> tf.Tensor:
    for name, (least, most) in {
        "squareplus_b": (1e-6, 1e6),
        "softplus_beta": (1e-3, 1e3),
        "negative_slope": (0, 1),
    }.items():
        options[name] = _arguments.number("fused_mlp", name, options[name])
        if not least <= options[name] <= most:
            raise ValueError(
                f"[fused_mlp] {name}: expected a number in [{least}, {most}], got {options[name]}."
            )
    return layers(
        x,
        _weights(kernels, biases, width),
        n_neurons=width,
        activation=names[0],
        output_activation=names[1],
        **options,
    )


def activation_name(op: str, argument: str, value: Any) -> Any:
    """One of ACTIVATIONS; Keras says "linear", or None, for none."""
    name = "none" if value is None or value == "linear" else value
    if not isinstance(name, str):
        raise TypeError(f"[{op}] {argument}: expected a name, got {type(value).__name__}.")
    if name not in ACTIVATIONS:
        raise ValueError(
            f"[{op}] {argument}: expected one of {', '.join(ACTIVATIONS)}, got {name!r}."
        )
    return name


def _list(op: str, argument: str, values: Any, x: tf.Tensor) -> list[tf.Tensor]:
    if not isinstance(values, list | tuple):
        raise TypeError(
            f"[{op}] {argument}: expected a list, a tensor a layer, got {type(values).__name__}."
        )
    return [
        _arguments.as_dtype_of(op, f"{argument}[{number}]", value, x=x)
        for number, value in enumerate(values)
    ]


def _columns(op: str, argument: str, kernel: tf.Tensor, rows: int, n_layers: int) -> int:
    """A matrix's columns, if it has that many rows and they are known."""
    shape = kernel.shape
    if shape.rank != 2 or shape[0] != rows or shape[1] is None:
        raise ValueError(
            f"[{op}] {argument}: expected shape [{rows}, columns], known in the graph, got {_checks.size_of(kernel)}."
        )
    columns = int(shape[1])
    if argument == "kernels[0]" and not 1 <= columns <= WIDTHS[-1]:
        raise ValueError(
            f"[{op}] {argument}: expected a width of 1 to {WIDTHS[-1]}, got {columns} columns."
        )
    if argument == f"kernels[{n_layers - 1}]" and not 1 <= columns <= MOST_COLUMNS:
        raise ValueError(
            f"[{op}] {argument}: expected 1 to {MOST_COLUMNS} outputs, got {columns} columns."
        )
    return columns


@tf.RegisterGradient("FusedMlp")
def _fused_mlp_gradient(op: tf.Operation, d_outputs: tf.Tensor) -> list[tf.Tensor | None]:
    d_x, d_weights = raw_ops.fused_mlp_grad(
        d_outputs,
        op.inputs[0],
        op.inputs[1],
        x_gradient=_losses.is_wanted(op, 0),
        **_declared.attributes(op),
    )
    return [d_x if _losses.is_wanted(op, 0) else None, d_weights]


@tf.RegisterGradient("FusedMlpGrad")
def _fused_mlp_second_gradient(
    op: tf.Operation, d_d_x: tf.Tensor, d_d_weights: tf.Tensor
) -> list[tf.Tensor | None]:
    """By stock ops in float32: the gradient of the gradient of the layers, one by one."""
    attributes = _declared.attributes(op)
    del attributes["x_gradient"]
    inputs = [tf.cast(value, tf.float32) for value in op.inputs]
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        gradients, x, weights = inputs
        with tf.GradientTape() as inner:
            inner.watch([x, weights])
            y = layers(x, weights, **attributes)
        wanted = [weights] if not op.get_attr("x_gradient") else [x, weights]
        first = inner.gradient(y, wanted, output_gradients=gradients)
    into = [d_d_x, d_d_weights][-len(wanted) :]
    second = outer.gradient(
        first, inputs, output_gradients=[tf.cast(value, tf.float32) for value in into]
    )
    return [
        None if value is None else tf.cast(value, given.dtype)
        for value, given in zip(second, op.inputs, strict=True)
    ]


def layers(
    x: tf.Tensor,
    weights: tf.Tensor,
    *,
    n_outputs: int,
    n_neurons: int,
    n_hidden_layers: int,
    activation: str,
    output_activation: str,
    use_bias: bool,
    squareplus_b: float,
    softplus_beta: float,
    negative_slope: float,
) -> tf.Tensor:
    """The function of FusedMlp, from stock ops that have derivatives of any order."""
    activate = {
        "none": tf.identity,
        "relu": tf.nn.relu,
        "leaky_relu": lambda v: tf.nn.leaky_relu(v, negative_slope),
        "exponential": tf.exp,
        "sine": tf.sin,
        "sigmoid": tf.sigmoid,
        "squareplus": lambda v: 0.5 * (v + tf.sqrt(v * v + squareplus_b)),
        "softplus": lambda v: tf.nn.softplus(softplus_beta * v) / softplus_beta,
        "tanh": tf.tanh,
    }
    at, rows = 0, x.shape[-1] if x.shape[-1] is not None else tf.shape(x)[-1]
    for layer in range(n_hidden_layers + 1):
        columns = n_neurons if layer < n_hidden_layers else n_outputs
        x = tf.matmul(x, tf.reshape(weights[at : at + rows * columns], [rows, columns]))
        at += rows * columns
        if use_bias:
            x += weights[at : at + columns]
            at += columns
        x = activate[activation if layer < n_hidden_layers else output_activation](x)
        rows = columns
    return x
