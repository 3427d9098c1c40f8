"""Layers of recurrent cells, whole sequences in one op, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared
from metal_ops.ops._packed import Packed
from metal_ops.ops.fused_matmul import fused_matmul
from metal_ops.ops.row_norm import layer_norm

__all__ = ["forget_gate_unit", "gru", "lstm", "minimal_gated_unit"]
__theme__ = "Fused layers"

GATES = {"lstm": 4, "gru": 3, "gru_reset_before": 3, "minimal_gated": 2, "forget_gate": 2}
# Where the gate lies through which a candidate sees the state before its product.
RESET = {"gru_reset_before": 1, "minimal_gated": 0}


def lstm(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    initial_state: Sequence[Any] | None = None,
    *,
    mask: Any = None,
    lengths: Any = None,
    projection: Any = None,
    kernel_gamma: Any = None,
    recurrent_gamma: Any = None,
    cell_gamma: Any = None,
    cell_beta: Any = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """A layer of LSTM cells over whole sequences.

    Hochreiter and Schmidhuber 1997, "Long short-term memory", with the forget gate of Gers et al. 2000: with the gates
    i, f, g, o of x W + h R + b, c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'). Weights are those
    of `keras.layers.LSTM`. With a projection (Sak, Senior and Beaufays 2014,
    [arXiv:1402.1128](https://arxiv.org/abs/1402.1128)) h' = (sigmoid(o) tanh(c')) P, and the state has fewer elements.

    Layer norm is that of Ba, Kiros and Hinton 2016, [arXiv:1607.06450](https://arxiv.org/abs/1607.06450), equations
    20 to 22: gates are norm(x W) kernel_gamma + norm(h R) recurrent_gamma + b, each norm over all of them, and
    h' = sigmoid(o) tanh(norm(c') cell_gamma + cell_beta).

    The product with x is one for all steps, of float16 rounded once, with the bias. A thread of the CPU takes its
    sequences through all steps. States and sums are float32 whatever the dtype. Where a step is masked, or behind a
    sequence's length, the state stays the same, and is the output. Deterministic.

    Args:
      x: [batch, time, features] float32, float16 or bfloat16; or a RaggedTensor [batch, (time), features].
      kernel: W, [features, 4 units] of that dtype: the gates one after the other.
      recurrent_kernel: R, [units, 4 units]; with a projection [projected, 4 units].
      bias: b, [4 units], or None.
      initial_state: h and c, [batch, units] each (h [batch, projected]). None for zeros.
      mask: bool [batch, time], the steps that there are. None for all, or those of a RaggedTensor.
      lengths: Integers [batch], the steps of each sequence, in place of a mask.
      projection: P, [units, projected], or None.
      kernel_gamma: [4 units]: the product with x is normed and multiplied with it, before the bias. None for none.
      recurrent_gamma: [4 units]: the same of the product with the state. None for none.
      cell_gamma: [units]: the same of c' where it goes to the output; the state stays as it was. None for none.
      cell_beta: [units], which is added there; only with cell_gamma. None for zeros.
      epsilon: Added to variances, at least 0.
      name: Optional name of the op.

    Returns:
      The states after all steps, [batch, time, units], ragged if x is, and h and c after the last one, [batch, units];
      of x's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: mask and lengths are both given, or one of them beside a RaggedTensor, x is not of three dimensions,
        or a cell_beta is given without cell_gamma.
      tf.errors.InvalidArgumentError: A shape does not fit. (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> y, h, c = metal_ops.lstm(tf.ones([1, 2, 1]), tf.ones([1, 4]), tf.zeros([1, 4]))
      >>> y.numpy().round(4).tolist(), c.numpy().round(4).tolist()
      ([[[0.3696], [0.5453]]], [[0.9638]])
    """
    h, c = (None, None) if initial_state is None else initial_state
    if cell_beta is not None and cell_gamma is None:
        raise ValueError(
            "[lstm] cell_beta: expected None without cell_gamma, got one. Give ones as cell_gamma."
        )
    return _run(
        *("lstm", "lstm", x, kernel, recurrent_kernel, bias, h, c, mask, lengths, name),
        norms={
            "kernel_gamma": kernel_gamma,
            "recurrent_gamma": recurrent_gamma,
            "cell_gamma": cell_gamma,
            "cell_beta": cell_beta,
        },
        epsilon=epsilon,
        projection=projection,
    )


def gru(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    initial_state: Any = None,
    *,
    recurrent_bias: Any = None,
    reset_after: bool = True,
    mask: Any = None,
    lengths: Any = None,
    kernel_gamma: Any = None,
    recurrent_gamma: Any = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor]:
    """A layer of gated recurrent units over whole sequences.

    Cho et al. 2014, [arXiv:1406.1078](https://arxiv.org/abs/1406.1078): with z = sigmoid(x W_z + h R_z + b_z) and
    r likewise, n = tanh(x W_n + b_n + r (h R_n + b'_n)) and h' = z h + (1 - z) n. That is Keras' `reset_after`, and
    cuDNN's; without it n = tanh(x W_n + b_n + (r h) R_n), as in the paper. Weights are those of `keras.layers.GRU`.
    Steps, masks and sums are as in `metal_ops.lstm`.

    Args:
      x: [batch, time, features] float32, float16 or bfloat16; or a RaggedTensor [batch, (time), features].
      kernel: W, [features, 3 units] of that dtype: z, r, n one after the other.
      recurrent_kernel: R, [units, 3 units].
      bias: b, [3 units], or None.
      initial_state: h, [batch, units]. None for zeros.
      recurrent_bias: b', [3 units], or None; only with reset_after.
      reset_after: Whether r is multiplied with the product, and not with the state before it.
      mask: bool [batch, time], the steps that there are. None for all, or those of a RaggedTensor.
      lengths: Integers [batch], the steps of each sequence, in place of a mask.
      kernel_gamma: [3 units]: the product with x is normed and multiplied with it, before the bias. None for none.
      recurrent_gamma: [3 units]: the same of the product with the state. None for none.
      epsilon: Added to variances, at least 0.
      name: Optional name of the op.

    Returns:
      The states after all steps, [batch, time, units], ragged if x is, and the last one, [batch, units]; of x's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: mask and lengths are both given, or one of them beside a RaggedTensor, x is not of three dimensions,
        or a recurrent_bias is given without reset_after.
      tf.errors.InvalidArgumentError: A shape does not fit. (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> y, h = metal_ops.gru(tf.ones([1, 2, 1]), tf.ones([1, 3]), tf.zeros([1, 3]))
      >>> y.numpy().round(4).tolist()
      [[[0.2048], [0.3546]]]
    """
    reset_after = _arguments.flag("gru", "reset_after", reset_after)
    if recurrent_bias is not None and not reset_after:
        raise ValueError(
            "[gru] recurrent_bias: expected None, as there is no product to add it to without reset_after, got one. "
            "Add it to bias."
        )
    cell = "gru" if reset_after else "gru_reset_before"
    y, h, _ = _run(
        *("gru", cell, x, kernel, recurrent_kernel, bias, initial_state, None, mask, lengths, name),
        norms={"kernel_gamma": kernel_gamma, "recurrent_gamma": recurrent_gamma},
        epsilon=epsilon,
        recurrent_bias=recurrent_bias,
    )
    return y, h


def minimal_gated_unit(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    initial_state: Any = None,
    *,
    mask: Any = None,
    lengths: Any = None,
    kernel_gamma: Any = None,
    recurrent_gamma: Any = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor]:
    """A layer of minimal gated units over whole sequences: one gate that forgets, resets and lets in.

    Zhou et al. 2016, "Minimal gated unit for recurrent neural networks",
    [arXiv:1603.09420](https://arxiv.org/abs/1603.09420): f = sigmoid(x W_f + h R_f + b_f), n = tanh(x W_n + (f h) R_n +
    b_n) and h' = (1 - f) h + f n. Steps, masks and sums are as in `metal_ops.lstm`.

    Args:
      x: [batch, time, features] float32, float16 or bfloat16; or a RaggedTensor [batch, (time), features].
      kernel: W, [features, 2 units] of that dtype: f, then n.
      recurrent_kernel: R, [units, 2 units].
      bias: b, [2 units], or None.
      initial_state: h, [batch, units]. None for zeros.
      mask: bool [batch, time], the steps that there are. None for all, or those of a RaggedTensor.
      lengths: Integers [batch], the steps of each sequence, in place of a mask.
      kernel_gamma: [2 units]: the product with x is normed and multiplied with it, before the bias. None for none.
      recurrent_gamma: [2 units]: the same of either product with the state. None for none.
      epsilon: Added to variances, at least 0.
      name: Optional name of the op.

    Returns:
      The states after all steps, [batch, time, units], ragged if x is, and the last one, [batch, units]; of x's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: mask and lengths are both given, or one of them beside a RaggedTensor, or x is not of three
        dimensions.
      tf.errors.InvalidArgumentError: A shape does not fit. (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> y, h = metal_ops.minimal_gated_unit(tf.ones([1, 2, 1]), tf.ones([1, 2]), tf.zeros([1, 2]))
      >>> y.numpy().round(4).tolist()
      [[[0.5568], [0.7065]]]
    """
    op = "minimal_gated_unit"
    y, h, _ = _run(
        *(op, "minimal_gated", x, kernel, recurrent_kernel, bias),
        *(initial_state, None, mask, lengths, name),
        norms={"kernel_gamma": kernel_gamma, "recurrent_gamma": recurrent_gamma},
        epsilon=epsilon,
    )
    return y, h


def forget_gate_unit(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    initial_state: Any = None,
    *,
    beta: float = 1.0,
    mask: Any = None,
    lengths: Any = None,
    kernel_gamma: Any = None,
    recurrent_gamma: Any = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor]:
    """A layer of cells with a forget gate alone ("JANET") over whole sequences.

    Van der Westhuizen and Lasenby 2018, "The unreasonable effectiveness of the forget gate",
    [arXiv:1804.04849](https://arxiv.org/abs/1804.04849), equations 6 to 9: s = x W_f + h R_f + b_f, n = tanh(x W_n + h
    R_n + b_n) and h' = sigmoid(s) h + (1 - sigmoid(s - beta)) n. Steps, masks and sums are as in `metal_ops.lstm`.

    Args:
      x: [batch, time, features] float32, float16 or bfloat16; or a RaggedTensor [batch, (time), features].
      kernel: W, [features, 2 units] of that dtype: f, then n.
      recurrent_kernel: R, [units, 2 units].
      bias: b, [2 units], or None.
      initial_state: h, [batch, units]. None for zeros.
      beta: How much more is let in than is forgotten; the paper has 1.
      mask: bool [batch, time], the steps that there are. None for all, or those of a RaggedTensor.
      lengths: Integers [batch], the steps of each sequence, in place of a mask.
      kernel_gamma: [2 units]: the product with x is normed and multiplied with it, before the bias. None for none.
      recurrent_gamma: [2 units]: the same of the product with the state. None for none.
      epsilon: Added to variances, at least 0.
      name: Optional name of the op.

    Returns:
      The states after all steps, [batch, time, units], ragged if x is, and the last one, [batch, units]; of x's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: mask and lengths are both given, or one of them beside a RaggedTensor, or x is not of three
        dimensions.
      tf.errors.InvalidArgumentError: A shape does not fit. (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> y, h = metal_ops.forget_gate_unit(tf.ones([1, 2, 1]), tf.ones([1, 2]), tf.zeros([1, 2]))
      >>> y.numpy().round(4).tolist()
      [[[0.3808], [0.6592]]]
    """
    op = "forget_gate_unit"
    y, h, _ = _run(
        *(op, "forget_gate", x, kernel, recurrent_kernel, bias),
        *(initial_state, None, mask, lengths, name),
        norms={"kernel_gamma": kernel_gamma, "recurrent_gamma": recurrent_gamma},
        epsilon=epsilon,
        beta=beta,
    )
    return y, h


def _run(
    op: str,
    cell: str,
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any,
    h: Any,
    c: Any,
    mask: Any,
    lengths: Any,
    name: str | None,
    norms: dict[str, Any],
    epsilon: float,
    projection: Any = None,
    recurrent_bias: Any = None,
    beta: float = 1.0,
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    with tf.name_scope(name or op):
        packed = Packed(op, x, mask, lengths) if isinstance(x, tf.RaggedTensor) else None
        x = _arguments.as_floats(op, "x", x if packed is None else x.flat_values)
        _checks.refuse_xla(op)
        if packed is None and x.shape.rank != 3:
            raise ValueError(
                f"[{op}] x: expected [batch, time, features], got {_checks.size_of(x)}."
            )
        kernel = _arguments.as_dtype_of(op, "kernel", kernel, x=x)
        recurrent_kernel = _arguments.as_dtype_of(op, "recurrent_kernel", recurrent_kernel, x=x)
        _check(op, "kernel", kernel, (x.shape[-1], None), "[features, gates of all units]")
        width = kernel.shape[1]
        if packed is None:
            batch, steps, features = _sizes(x)
            flat = tf.reshape(x, [batch * steps, features])
        else:
            batch, flat = packed.batch, x
        if bias is not None:
            bias = _arguments.as_dtype_of(op, "bias", bias, x=x)
            _check(op, "bias", bias, (width,), "the columns of kernel")
        norms = {
            argument: None if norm is None else _arguments.as_dtype_of(op, argument, norm, x=x)
            for argument, norm in norms.items()
        }
        epsilon = _arguments.number(op, "epsilon", epsilon)
        if epsilon < 0:  # else layer_norm would say it of itself
            sentence = f"{op}: epsilon must be 0 or more, got {epsilon:g}."
            raise tf.errors.InvalidArgumentError(None, None, sentence)
        gamma = norms.pop("kernel_gamma")
        gates = _gates(flat, kernel, bias if gamma is None else None)
        if gamma is not None:
            _check(op, "kernel_gamma", gamma, (width,), "the columns of kernel")
            gates = layer_norm(gates, gamma, bias, epsilon)
        if packed is None:
            gates = tf.reshape(gates, [batch, steps, _sizes(kernel)[1]])
            gates = tf.ensure_shape(gates, [x.shape[0], x.shape[1], width])
            mask = _mask(op, mask, lengths, steps)
        else:
            gates, mask = packed.padded(gates), packed.mask
        none = tf.zeros([0], x.dtype)

        def state(argument: str, given: Any, size: Any) -> tf.Tensor:
            if given is None:
                return tf.zeros([batch, size], x.dtype)
            return _arguments.as_dtype_of(op, argument, given, x=x)

        inputs = {
            "gates": gates,
            "recurrent_kernel": recurrent_kernel,
            "initial_h": state("initial_state", h, _sizes(recurrent_kernel)[0]),
            "initial_c": none,
            "mask": mask,
            "projection": none if projection is None else projection,
            "recurrent_gamma": none,
            "cell_gamma": none,
            "cell_beta": none,
            "recurrent_bias": none if recurrent_bias is None else recurrent_bias,
        }
        if cell == "lstm":
            inputs["initial_c"] = state("initial_state", c, _sizes(kernel)[1] // 4)
        inputs |= {argument: norm for argument, norm in norms.items() if norm is not None}
        if inputs["cell_gamma"] is not none and inputs["cell_beta"] is none:
            inputs["cell_beta"] = tf.zeros_like(inputs["cell_gamma"])
        _, y, _, h, c, _ = _declared.call(
            "recurrent_sequence", inputs, None, label=op, cell=cell, beta=beta, epsilon=epsilon
        )
        return y if packed is None else packed.packed(y), h, c


def _gates(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """x kernel + bias. For halves by an op of ours: in a graph TensorFlow makes both one op, which on the CPU takes
    some hundred times as long."""
    if x.dtype == tf.float16:
        none = tf.zeros([_sizes(kernel)[1]], x.dtype) if bias is None else bias
        return fused_matmul(x, kernel, bias=none)
    gates = tf.matmul(x, kernel)
    return gates if bias is None else tf.nn.bias_add(gates, bias)


def _check(
    op: str, argument: str, tensor: tf.Tensor, shape: tuple[int | None, ...], meaning: str
) -> None:
    """Sizes that are not known in a graph are checked by the product, or the sum."""
    if not tensor.shape.is_compatible_with(shape):
        raise ValueError(
            f"[{op}] {argument}: expected shape {list(shape)} ({meaning}), got {_checks.size_of(tensor)}."
        )


def _mask(op: str, mask: Any, lengths: Any, steps: Any) -> tf.Tensor:
    """[batch, time], or [0] for none."""
    if mask is not None and lengths is not None:
        raise ValueError(f"[{op}] mask, lengths: expected one of them, got both.")
    if lengths is not None:
        return tf.sequence_mask(_arguments.as_indices(op, "lengths", lengths), steps)
    if mask is None:
        return tf.zeros([0], tf.bool)
    # Without a dtype, in which objects would be true.
    mask = _arguments.convert(op, "mask", mask)
    _checks.check_dtype(op, "mask", mask, (tf.bool,))
    return mask


@tf.RegisterGradient("RecurrentSequence")
def _recurrent_sequence_gradient(
    op: tf.Operation, _: Any, d_y: tf.Tensor, __: Any, d_h: tf.Tensor, d_c: tf.Tensor, *___: Any
) -> list[tf.Tensor | None]:
    *states, recurrent_bias = op.inputs[1:]
    kernel, h, _, _, projection, *norms = states
    activated, y, cells, *_, products = op.outputs
    attributes = _declared.attributes(op)
    d_gates, d_products, d_states, d_h, d_c, *d_norms = raw_ops.recurrent_sequence_grad(
        d_y, d_h, d_c, activated, y, cells, products, *states, **attributes
    )
    cell = attributes["cell"]
    # The sums that the gates are of; a norm lies before them.
    d_sums = d_gates
    if norms[0].shape != [0]:
        if cell == "gru":
            z, r, n = tf.split(d_gates, 3, -1)
            d_sums = tf.concat([z, r, n * tf.split(activated, 3, -1)[1]], -1)
    elif cell == "gru":
        d_sums = d_products
    else:
        d_products = d_gates
    # The states that the steps began with.
    before = tf.concat([h[:, tf.newaxis], y], 1)[:, :-1]
    if cell in RESET:
        width = _sizes(kernel)[1]
        units = width // GATES[cell]
        first = width - units
        gate = activated[..., RESET[cell] * units : (RESET[cell] + 1) * units]
        d_kernel = tf.concat(
            [
                _product(before, d_products[..., :first]),
                _product(gate * before, d_products[..., first:]),
            ],
            1,
        )
    else:
        d_kernel = _product(before, d_products)
    d_projection = d_bias = None
    if projection.shape.rank == 2:
        units = _sizes(projection)[0]
        if norms[1].shape != [0]:
            gamma, beta = (tf.cast(norm, tf.float32) for norm in norms[1:])
            cells = layer_norm(cells, gamma, beta, attributes["epsilon"])
        shown = activated[..., 3 * units :] * tf.cast(tf.tanh(cells), y.dtype)
        d_projection = _product(shown, d_states)
    if recurrent_bias.shape != [0]:
        d_bias = tf.reduce_sum(d_sums, [0, 1])
    # An empty one is none; its gradient is never used.
    d_norms = [
        None if norm.shape == [0] else tf.cast(tf.reduce_sum(d_norm, 0), y.dtype)
        for norm, d_norm in zip(norms, d_norms, strict=True)
    ]
    d_c = d_c if cell == "lstm" else None
    return [d_gates, d_kernel, d_h, d_c, None, d_projection, *d_norms, d_bias]


def _product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum over batch and time of a^T b."""
    flat = []
    for v in (a, b):
        batch, steps, size = _sizes(v)
        flat.append(tf.reshape(v, [batch * steps, size]))
    return tf.matmul(*flat, transpose_a=True)


def _sizes(tensor: tf.Tensor) -> list[Any]:
    """The shape, in numbers where they are known: those need no op."""
    known = tensor.shape.as_list()
    if None not in known:
        return known
    found = tf.unstack(tf.shape(tensor))
    return [size if one is None else one for one, size in zip(known, found, strict=True)]
