"""Weights of 2 to 8 bits: made of floats, multiplied as they are, and turned back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared
from metal_ops.ops._formats import Format
from metal_ops.ops.lookup_weights import LookupWeights, looked_up_rows, with_tables

__all__ = ["QuantizedWeights", "dequantize", "quantize", "quantized_matmul"]
__theme__ = "Quantization"


class QuantizedWeights(tf.experimental.ExtensionType):
    """A matrix of weights as codes: [inputs, outputs], as a Dense layer's kernel.

    Code c of a block stands for scale c + minimum, or scale (c - 2^(bits - 1)) without minima. It may be an argument or
    a result of a `tf.function`, and lie in a `tf.Module`.

    Attributes:
      codes: [outputs, ceil(inputs bits / 8)] uint8: a row of codes an output, the first of a byte in its low bits.
      scales: [outputs, blocks] float16 or float32, or [1, blocks] where all outputs have the same.
      minima: The values of code 0, shaped like scales; [0] for none.
      inputs: Codes of a row.
      bits: Bits of a code: 4 or 8.
      block: Neighbouring codes of a row that share a scale; 0: all of them.

    Example:
      >>> weights = metal_ops.quantize(tf.eye(64), bits=8, block=32)
      >>> weights.codes.shape, weights.scales.shape, weights.n_bytes
      (TensorShape([64, 64]), TensorShape([64, 2]), 5120)
    """

    codes: tf.Tensor
    scales: tf.Tensor
    minima: tf.Tensor
    inputs: int
    bits: int
    block: int

    def __validate__(self) -> None:
        self.codes.shape.assert_has_rank(2)
        self.scales.shape.assert_has_rank(2)

    @property
    def shape(self) -> tf.TensorShape:
        """[inputs, outputs]."""
        return tf.TensorShape([self.inputs, self.codes.shape[0]])

    @property
    def n_bytes(self) -> int:
        """Bytes of codes, scales and minima."""
        tensors = (self.codes, self.scales, self.minima)
        return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


def quantize(
    weights: Any,
    bits: int = 4,
    block: int | None = 32,
    symmetric: bool = False,
    per_tensor: bool = False,
    scales: Any = None,
    lookup: int | None = None,
) -> QuantizedWeights | LookupWeights:
    """Weights rounded to 2^bits steps a block, or to the values of lookup tables.

    The steps of a block go from its least to its greatest weight or, if symmetric, from -max |w| to max |w| around a
    code for zero. Steps are rounded to the dtype of the scales before codes are chosen, which then fit them. That is
    the round-to-nearest of Jacob et al. 2018, "Quantization and training of neural networks for efficient
    integer-arithmetic-only inference", [arXiv:1712.05877](https://arxiv.org/abs/1712.05877), section 2.

    With `lookup` weights are the nearest of 2^bits values, whatever these are: k-means of the weights of as many
    outputs as share a table, by Lloyd's iterations on the host. With lookup=1 that is the table an output of Kim et
    al. 2023, "SqueezeLLM: Dense-and-sparse quantization", [arXiv:2306.07629](https://arxiv.org/abs/2306.07629)
    (`quantize_model` weighs errors by its data), and with more the palettization of Core ML's tools a group of
    channels.

    Args:
      weights: [inputs, outputs] float32, float16 or bfloat16, finite; with lookup, not a tensor of a graph.
      bits: Bits of a code: 4 or 8; with lookup 2, 3, 4, 6 or 8.
      block: Neighbouring inputs of an output that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all outputs share scales: with block=None there is one for the tensor.
      scales: Their dtype, and that of the minima, or of tables: float16 or float32. None: float16 for 4 bits and for
        tables, float32 for 8 bits.
      lookup: Neighbouring outputs that share a lookup table, 0 for all of them; None: there are scales. Tables know no
        block, symmetric or per_tensor.

    Returns:
      QuantizedWeights, or LookupWeights with lookup.

    Raises:
      TypeError: A dtype does not fit, or bits, block or lookup is no integer.
      ValueError: The shape is not known in the graph or not that of a matrix, bits, block or lookup is none that there
        is, or tables are to be made of a tensor of a graph.
      tf.errors.InvalidArgumentError: A weight is not finite, or a scale or a table's value too large for float16.

    Example:
      >>> kernel = tf.constant([[0.0, 1.0], [0.5, -1.0]])
      >>> few = metal_ops.quantize(kernel, bits=8, block=None, symmetric=True)
      >>> few.shape, few.n_bytes
      (TensorShape([2, 2]), 12)
      >>> np.round(metal_ops.dequantize(few).numpy(), 2).tolist()
      [[0.0, 1.0], [0.5, -1.0]]
      >>> metal_ops.quantize(kernel, bits=2, lookup=0).tables.numpy().tolist()
      [[-1.0, 0.0, 0.5, 1.0]]
    """
    op = "quantize"
    weights = _arguments.as_floats(op, "weights", weights)
    form = Format.checked(op, bits, block, symmetric, per_tensor, scales, lookup)
    if weights.shape.rank != 2 or not weights.shape.is_fully_defined():
        raise ValueError(
            f"[{op}] weights: expected shape [inputs, outputs], known in the graph, got {weights.shape}."
        )
    if form.lookup is not None:
        return with_tables(op, weights, form)
    blocks = Blocks(weights, form)
    return blocks.packed(*blocks.extent)


class Blocks:
    """Weights on their way to codes: a row of blocks an output.

    Attributes:
      rows: [outputs, blocks, weights of one], float32. The last block is filled with its last weight, which changes
        neither its least nor its greatest.
      extent: The least and the greatest of the weights that share a scale, [outputs or 1, blocks]; symmetric, only the
        latter counts and is that of |w|.
    """

    def __init__(self, weights: tf.Tensor, form: Format) -> None:
        self._form, self._kind = form, tf.as_dtype(form.scales)
        self._n_inputs, n_outputs = weights.shape
        rows = tf.transpose(tf.cast(weights, tf.float32))
        finite = tf.debugging.assert_all_finite(rows, "[quantize] weights: expected finite numbers")
        with tf.control_dependencies([finite] if finite is not None else []):
            rows = tf.identity(rows)
        size = form.block or max(self._n_inputs, 1)
        n_blocks = -(-self._n_inputs // size)
        last = tf.tile(rows[:, -1:], [1, n_blocks * size - self._n_inputs])
        self.rows = tf.reshape(tf.concat([rows, last], 1), [n_outputs, n_blocks, size])
        over = [0, 2] if form.per_tensor else [2]
        least, greatest = tf.reduce_min(self.rows, over), tf.reduce_max(self.rows, over)
        if form.symmetric:
            greatest = tf.maximum(-least, greatest)
        if form.per_tensor:
            least, greatest = least[tf.newaxis], greatest[tf.newaxis]
        self.extent = least, greatest

    def rounded(
        self, least: tf.Tensor, greatest: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Codes, scales and minima for steps from `least` to `greatest`, all float32; values outside are clipped."""
        steps = 2.0**self._form.bits - 1
        if self._form.symmetric:
            # From -2^(bits - 1) + 1 on, so that both signs have as many.
            zero = 2.0 ** (self._form.bits - 1)
            scale, minimum = self._stored(greatest / (zero - 1)), tf.zeros([0])
            from_zero = self.rows
        else:
            zero, minimum = 0.0, self._stored(least)
            scale = self._stored((greatest - minimum) / steps)
            from_zero = self.rows - minimum[..., tf.newaxis]
        codes = tf.round(tf.math.divide_no_nan(from_zero, scale[..., tf.newaxis])) + zero
        return tf.clip_by_value(codes, 0.0, steps), scale, minimum

    def meant(self, codes: tf.Tensor, scale: tf.Tensor, minimum: tf.Tensor) -> tf.Tensor:
        """The values of those, [outputs, blocks, weights of one]."""
        if self._form.symmetric:
            return (codes - 2.0 ** (self._form.bits - 1)) * scale[..., tf.newaxis]
        return codes * scale[..., tf.newaxis] + minimum[..., tf.newaxis]

    def packed(self, least: tf.Tensor, greatest: tf.Tensor) -> QuantizedWeights:
        codes, scale, minimum = self.rounded(least, greatest)
        fits = tf.debugging.assert_all_finite(
            scale,
            f"[quantize] scales: too large for {self._kind.name}; scales=tf.float32 has room",
        )
        with tf.control_dependencies([fits] if fits is not None else []):
            codes = tf.reshape(codes, [codes.shape[0], -1])[:, : self._n_inputs]
        codes = tf.cast(codes, tf.uint8)
        if self._form.bits == 4:
            codes = tf.pad(codes, [[0, 0], [0, self._n_inputs % 2]])
            codes = codes[:, 0::2] + 16 * codes[:, 1::2]
        return QuantizedWeights(
            codes,
            tf.cast(scale, self._kind),
            tf.cast(minimum, self._kind),
            inputs=self._n_inputs,
            bits=self._form.bits,
            block=self._form.block or 0,
        )

    def _stored(self, values: tf.Tensor) -> tf.Tensor:
        """Rounded to the dtype of scales."""
        return tf.cast(tf.cast(values, self._kind), tf.float32)


def dequantize(
    weights: QuantizedWeights | LookupWeights, dtype: Any = tf.float32, name: str | None = None
) -> tf.Tensor:
    """The values of quantized weights: scale code + minimum or a table's value, rounded once.

    Args:
      weights: QuantizedWeights or LookupWeights.
      dtype: float32, float16 or bfloat16.
      name: Optional name of the op.

    Returns:
      [inputs, outputs] of that dtype.

    Raises:
      TypeError: Those are no quantized weights, or the dtype is another one.
      tf.errors.InvalidArgumentError: A shape does not fit (ValueError in a graph).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.dequantize(metal_ops.quantize(tf.eye(3))).numpy().tolist()
      [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    with tf.name_scope(name or "dequantize"):
        dtype = _arguments.float_dtype("dequantize", dtype)
        weights = _weights("dequantize", weights)
        return tf.transpose(unpacked_rows(weights, dtype))


def quantized_matmul(
    x: Any,
    weights: QuantizedWeights | LookupWeights,
    name: str | None = None,
    dynamic: bool = False,
) -> tf.Tensor:
    """The product x w with quantized weights, which are unpacked as they are multiplied.

    Weights and sums are in float32 whatever x's dtype, and results are rounded once; a GPU that multiplies matrices of
    more than 16 rows of x (8 with lookup tables) takes weights rounded to x's dtype. Memory that is read is that of the
    codes: of 4 bits with float16 scales and minima of 32 it is 5 bits per weight. Differentiable with respect to x, for
    which the weights are unpacked into memory; they themselves have no gradient.

    With `dynamic` each row of x is rounded to integers from -127 to 127 of a step of its own, max |x| / 127, as
    Dettmers et al. 2022, "LLM.int8()", [arXiv:2208.07339](https://arxiv.org/abs/2208.07339), have it, and products of
    integers are summed as such up to a block's end. Each number of x is off by up to half a step, from which a row with
    one number far beyond the others suffers. Rows that are not finite give NaN; the gradient is that without rounding.

    Args:
      x: [..., inputs] float32, float16 or bfloat16.
      weights: QuantizedWeights or LookupWeights of [inputs, outputs].
      name: Optional name of the op.
      dynamic: Whether rows of x are rounded to 8 bits; not with LookupWeights.

    Returns:
      [..., outputs] of x's dtype.

    Raises:
      TypeError: A dtype does not fit, or those are no quantized weights.
      ValueError: The last dimension of x is not known in the graph, or not the weights' inputs, or tables are to be
        multiplied with integers.
      tf.errors.InvalidArgumentError: A shape does not fit (ValueError in a graph).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> weights = metal_ops.quantize(tf.eye(3))
      >>> metal_ops.quantized_matmul([[1.0, 2.0, 3.0]], weights).numpy().tolist()
      [[1.0, 2.0, 3.0]]
    """
    op = "quantized_matmul"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        weights = _weights(op, weights)
        check_dynamic(op, dynamic, isinstance(weights, LookupWeights))
        flat, restore = _arguments.flatten_points(op, "x", x)
        if x.shape[-1] != weights.inputs:
            raise ValueError(
                f"[{op}] x: expected shape [..., {weights.inputs}] for weights of as many inputs, got {x.shape}."
            )
        inputs = {"x": flat, "codes": weights.codes}
        if isinstance(weights, LookupWeights):
            inputs["tables"] = weights.tables
            attributes = {"bits": weights.bits, "group": weights.group}
            y = _declared.call("metal_lookup_mat_mul", inputs, None, label=op, **attributes)
        else:
            inputs |= {"scales": weights.scales, "minima": weights.minima}
            attributes = {"bits": weights.bits, "block": weights.block}
            raw = "metal_dynamic_mat_mul" if dynamic else "metal_quantized_mat_mul"
            y = _declared.call(raw, inputs, None, label=op, **attributes)
        return restore(y)


def check_dynamic(op: str, dynamic: Any, tables: bool) -> None:
    if _arguments.flag(op, "dynamic", dynamic) and tables:
        raise ValueError(
            f"[{op}] dynamic: expected False with lookup tables, whose values are no integers; weights with scales "
            "(lookup=None) can be multiplied with x of 8 bits."
        )


def _weights(op: str, weights: Any) -> QuantizedWeights | LookupWeights:
    if not isinstance(weights, QuantizedWeights | LookupWeights):
        raise TypeError(
            f"[{op}] weights: expected metal_ops.QuantizedWeights or LookupWeights, got {type(weights).__name__}. "
            "metal_ops.quantize(kernel) makes them."
        )
    return weights


def unpacked_rows(weights: QuantizedWeights | LookupWeights, dtype: tf.DType) -> tf.Tensor:
    """[outputs, inputs]."""
    if isinstance(weights, LookupWeights):
        return looked_up_rows(weights, dtype)
    _checks.refuse_xla("dequantize")
    return _declared.raw(
        "dequantize",
        "metal_dequantize",
        [weights.codes, weights.scales, weights.minima],
        ["codes", "scales", "minima"],
        inputs=weights.inputs,
        T=dtype,
        bits=weights.bits,
        block=weights.block,
    )


@tf.RegisterGradient("MetalDynamicMatMul")
@tf.RegisterGradient("MetalQuantizedMatMul")
def _quantized_matmul_gradient(op: tf.Operation, d_y: tf.Tensor) -> list[tf.Tensor | None]:
    x, codes, scales, minima = op.inputs
    attributes = _declared.attributes(op)
    rows = raw_ops.metal_dequantize(
        codes, scales, minima, inputs=x.shape[-1], T=x.dtype, **attributes
    )
    return [tf.matmul(d_y, rows), None, None, None]
