"""Weights that are codes into lookup tables, and the search for the tables: k-means of numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _checks, _declared
from metal_ops.ops._formats import Format

__all__ = ["LookupWeights"]
__theme__ = "Quantization"

_AT_ONCE = 1 << 19  # weights whose tables are searched for together
_MOST_STEPS = 100


class LookupWeights(tf.experimental.ExtensionType):
    """A matrix of weights as codes into tables: [inputs, outputs], as a Dense layer's kernel.

    Code c of an output stands for value c of its table, which some neighbouring outputs share. It may be an argument or
    a result of a `tf.function`, and lie in a `tf.Module`.

    Attributes:
      codes: [outputs, ceil(inputs bits / 8)] uint8: a row of codes an output, one behind the other from a byte's low
        bits on.
      tables: [ceil(outputs / group), 2^bits] float16 or float32; `quantize` makes rising ones.
      inputs: Codes of a row.
      bits: Bits of a code: 2, 3, 4, 6 or 8.
      group: Neighbouring outputs that share a table; 0: all of them.

    Example:
      >>> weights = metal_ops.quantize(tf.eye(64), bits=3, lookup=16)
      >>> weights.codes.shape, weights.tables.shape, weights.n_bytes
      (TensorShape([64, 24]), TensorShape([4, 8]), 1600)
    """

    codes: tf.Tensor
    tables: tf.Tensor
    inputs: int
    bits: int
    group: int

    def __validate__(self) -> None:
        self.codes.shape.assert_has_rank(2)
        self.tables.shape.assert_has_rank(2)

    @property
    def shape(self) -> tf.TensorShape:
        """[inputs, outputs]."""
        return tf.TensorShape([self.inputs, self.codes.shape[0]])

    @property
    def n_bytes(self) -> int:
        """Bytes of codes and tables."""
        tensors = (self.codes, self.tables)
        return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


def looked_up_rows(weights: LookupWeights, dtype: tf.DType) -> tf.Tensor:
    """[outputs, inputs]."""
    _checks.refuse_xla("dequantize")
    return _declared.raw(
        "dequantize",
        "metal_lookup_weights",
        [weights.codes, weights.tables],
        ["codes", "tables"],
        inputs=weights.inputs,
        T=dtype,
        bits=weights.bits,
        group=weights.group,
    )


@tf.RegisterGradient("MetalLookupMatMul")
def _lookup_matmul_gradient(op: tf.Operation, d_y: tf.Tensor) -> list[tf.Tensor | None]:
    x, codes, tables = op.inputs
    attributes = _declared.attributes(op)
    rows = raw_ops.metal_lookup_weights(codes, tables, inputs=x.shape[-1], T=x.dtype, **attributes)
    return [tf.matmul(d_y, rows), None, None]


# ---- the search -----------------------------------------------------------------------------------------------------


def with_tables(
    op: str, weights: tf.Tensor, form: Format, importance: np.ndarray | None = None
) -> LookupWeights:
    """Weights [inputs, outputs] as codes into tables that are good for them, on the host.

    importance: The weight of the square of a weight's error, [outputs, inputs], 0 or more; None: all the same.
    """
    known = tf.get_static_value(weights)
    if known is None:
        raise ValueError(
            f"[{op}] weights: expected numbers that are known, as lookup tables are searched for on the host, got a "
            "tensor of a graph. Quantize outside of the tf.function."
        )
    # TensorFlow's bfloat16 is not NumPy's.
    rows = np.ascontiguousarray(np.asarray(known).astype(np.float32).T)
    if not np.isfinite(rows).all():
        raise tf.errors.InvalidArgumentError(
            None, None, f"[{op}] weights: expected finite numbers, got inf or NaN."
        )
    n_outputs, n_inputs = rows.shape
    assert form.lookup is not None
    group, n_values = form.lookup or max(n_outputs, 1), 2**form.bits
    kind = np.dtype(form.scales)
    codes, tables = np.zeros(rows.shape, np.uint8), [np.zeros((0, n_values), kind)]
    # Groups of one size, as many together as there is room for; the last one may be smaller.
    whole = n_outputs // group * group
    step = max(1, _AT_ONCE // max(1, group * n_inputs)) * group
    pieces = [slice(i, min(i + step, whole)) for i in range(0, whole, step)]
    if whole < n_outputs:
        pieces.append(slice(whole, n_outputs))
    for piece in pieces:
        size = min(group, piece.stop - piece.start)
        these = rows[piece].reshape((piece.stop - piece.start) // size, size * n_inputs)
        counts = None if importance is None else importance[piece].reshape(these.shape)
        with np.errstate(over="ignore"):
            found = _nearest_values(these, counts, n_values).astype(kind)
        if not np.isfinite(found).all():
            raise tf.errors.InvalidArgumentError(
                None, None, f"[{op}] scales: too large for {kind.name}; scales=tf.float32 has room"
            )
        tables.append(found)
        # Codes fit the values as they are stored.
        between = _midpoints(found.astype(np.float64))
        for to, one, borders in zip(codes[piece].reshape(these.shape), these, between, strict=True):
            to[:] = np.searchsorted(borders, one)
    return LookupWeights(
        tf.constant(_packed(codes, form.bits)),
        tf.constant(np.concatenate(tables)),
        inputs=n_inputs,
        bits=form.bits,
        group=form.lookup,
    )


def _midpoints(values: np.ndarray) -> np.ndarray:
    return 0.5 * (values[:, 1:] + values[:, :-1])


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """[outputs, ceil(inputs bits / 8)]: see `LookupWeights.codes`."""
    if bits == 8:
        return codes
    each = codes[..., np.newaxis] >> np.arange(bits, dtype=np.uint8) & 1
    return np.packbits(each.reshape(len(codes), codes.shape[1] * bits), axis=1, bitorder="little")


def _nearest_values(rows: np.ndarray, counts: np.ndarray | None, n_values: int) -> np.ndarray:
    """Rising values [rows, n_values] float64 near the numbers of each of rows [rows, n]: Lloyd's iterations.

    As numbers on a line are neighbours once sorted, a step looks at the borders between values and not at each number.
    It begins with values as dense as the cube root of the numbers' density, which is best for many values (Panter and
    Dite 1951, "Quantization distortion in pulse-count modulation with nonuniform spacing of levels").
    """
    n_rows, n = rows.shape
    if n == 0:
        return np.zeros((n_rows, n_values))
    if counts is None:
        sorted_, weight = np.sort(rows).astype(np.float64), np.ones((n_rows, n))
    else:
        order = np.argsort(rows)
        sorted_ = np.take_along_axis(rows, order, 1).astype(np.float64)
        weight = np.take_along_axis(counts, order, 1).astype(np.float64)
        # Numbers without weight get a little, so that no table is empty.
        weight += 1e-6 * weight.mean(1, keepdims=True) + np.finfo(np.float32).tiny

    def summed(values: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros((n_rows, 1)), np.cumsum(values, 1)], 1)

    weights, moments = summed(weight), summed(weight * sorted_)
    row = np.arange(n_rows)[:, np.newaxis]

    def places_among(levels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """How many of a row's rising levels lie below each of some borders; all rows in one search."""
        least, extent = levels[:, :1], np.maximum(levels[:, -1:] - levels[:, :1], 1e-300)
        line = ((levels - least) / extent + 2.0 * row).ravel()

        def places(borders: np.ndarray) -> np.ndarray:
            there = np.clip((borders - least) / extent, -0.5, 1.5) + 2.0 * row
            return np.searchsorted(line, there) - n * row

        return places

    gaps = np.diff(sorted_, axis=1, prepend=sorted_[:, :1])
    density = np.cumsum(np.cbrt(weight * gaps * gaps), 1)
    parts = np.arange(1, n_values) / n_values
    inner = places_among(density)(density[:, :1] + parts * (density[:, -1:] - density[:, :1]))
    places = places_among(sorted_)
    # Numbers that are as few as the values stay as they are, which steps from elsewhere may miss.
    which = np.cumsum(gaps > 0, 1)
    for few in np.flatnonzero(which[:, -1] < n_values):
        inner[few] = np.searchsorted(which[few], np.arange(1, n_values))
    values = sorted_[:, np.zeros(n_values, int)]
    for _ in range(_MOST_STEPS):
        ends = np.concatenate([np.zeros((n_rows, 1), int), inner, np.full((n_rows, 1), n)], 1)
        of_each = np.diff(np.take_along_axis(weights, ends, 1))
        sums = np.diff(np.take_along_axis(moments, ends, 1))
        # A value that nothing belongs to goes to where it would lie, for the next step.
        empty = ends[:, 1:] == ends[:, :-1]
        there = np.take_along_axis(sorted_, np.minimum(ends[:, :-1], n - 1), 1)
        values = np.where(empty, there, sums / np.where(empty, 1.0, of_each))
        # Sums by differences are a little off, and values are to rise.
        values = np.maximum.accumulate(values, 1)
        before, inner = inner, places(_midpoints(values))
        if np.array_equal(before, inner):
            break
    return values
