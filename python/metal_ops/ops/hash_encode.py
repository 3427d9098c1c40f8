"""Multiresolution hash encoding (Mueller et al. 2022, "Instant Neural Graphics Primitives") and its gradients.

With y = encode(x, E), linear in the table E, and J = dy/dx, the six ops close under differentiating twice:

  HashEncode             y                     gradients: Grad (E), PointGrad (x)
  HashEncodeGrad         dE of g.y             gradients: HashEncode (g), PointGrad (x)
  HashEncodePointGrad    J^T g                 gradients: Jvp (g), JvpGrad (E), JvpPointGrad (x)
  HashEncodeJvp          J v                   gradients: PointGrad (v), JvpGrad (E), JvpPointGrad (x)
  HashEncodeJvpGrad      dE of g.(J v)         gradients: PointGrad (v), Jvp (g), JvpPointGrad (x)
  HashEncodeJvpPointGrad dx of g.(J v)         third derivatives: not provided
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.grid import HashGrid
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["hash_encode"]
__theme__ = "Encodings"


def hash_encode(points: Any, table: Any, grid: HashGrid, name: str | None = None) -> tf.Tensor:
    """Encodes points by interpolating a table of features on every level of a hash grid.

    Mueller et al. 2022, section 3, with the numerics of instant-ngp and tiny-cuda-nn: on level l, `pos = x * scale_l
    + 0.5`, the 2^D corners of its cell are looked up in the level's part of the table (by position where the level
    fits, else by equation 4's hash) and interpolated. Sums are made in float32 whatever the table's dtype.

    Differentiable twice in points and table. Table gradients are dense, of the table's dtype.

    Args:
      points: [..., n_dims] float32, in [0, 1]; outside of it the grid repeats in no useful way, but nothing is read
        out of bounds. NaN and infinite points give NaN features.
      table: [rows, n_features_per_level] float32, float16 or bfloat16: `grid.init_table()`, or a variable of it.
      grid: The grid's shape.
      name: Optional name of the op.

    Returns:
      [..., n_levels * n_features_per_level] features of the table's dtype, the coarsest level first.

    Raises:
      TypeError: `grid` is not a HashGrid, or a dtype is none of those above.
      ValueError: A shape does not fit the grid. (tf.errors.InvalidArgumentError when the graph runs, where the shape
        was not known before.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> grid = metal_ops.HashGrid(n_dims=3, n_levels=4, base_resolution=16, finest_resolution=128)
      >>> table = tf.Variable(grid.init_table(seed=1))
      >>> points = tf.random.uniform([5, 7, 3])
      >>> with tf.GradientTape() as tape:
      ...     features = metal_ops.hash_encode(points, table, grid)
      ...     loss = tf.reduce_sum(features**2)
      >>> features.shape
      TensorShape([5, 7, 8])
      >>> tape.gradient(loss, table).shape == table.shape
      True
    """
    if not isinstance(grid, HashGrid):
        raise TypeError(
            f"[hash_encode] grid: expected a metal_ops.HashGrid, got {type(grid).__name__}."
        )
    op = "hash_encode"
    half = getattr(points, "dtype", None) in (tf.float16, tf.bfloat16)
    why = "Half precision cannot tell the cells of fine levels apart. " if half else ""
    with tf.name_scope(name or op):
        points = _arguments.as_floats(op, "points", points, (tf.float32,), why)
        points = _checks.check_last_dim(op, "points", points, grid.n_dims, "grid.n_dims")
        # As it is: a table in NumPy's float64 is no way to write numbers.
        table = _arguments.as_floats(op, "table", _arguments.convert(op, "table", table))
        table = _checks.check_shape(op, "table", table, grid.table_shape, "grid.table_shape")
        flat, restore = _arguments.flatten_points(op, "points", points, grid.n_dims)
        tensors = {"points": flat, "table": table, "offsets": tf.constant(grid.offsets)}
        return restore(_declared.call(op, tensors, None, **grid.op_attributes))


def _gradients(
    op: tf.Operation, *formulas: Callable[[], tf.Tensor] | None
) -> list[tf.Tensor | None]:
    """One formula an input, in order; None where the output does not depend on the input's values.

    The eager tape says which inputs need no gradient (it would compute them all otherwise); a graph prunes by itself.
    """
    skipped = getattr(op, "skip_input_indices", None) or ()
    return [
        formula() if formula is not None and index not in skipped else None
        for index, formula in enumerate(formulas)
    ]


@tf.RegisterGradient("HashEncode")
def _hash_encode_gradient(op: tf.Operation, g: tf.Tensor) -> list[tf.Tensor | None]:
    x, table, offsets = op.inputs
    attributes = _declared.attributes(op)
    return _gradients(
        op,
        lambda: raw_ops.hash_encode_point_grad(g, x, table, offsets, **attributes),
        lambda: raw_ops.hash_encode_grad(g, x, table, offsets, **attributes),
        None,
    )


@tf.RegisterGradient("HashEncodeGrad")
def _hash_encode_grad_gradient(op: tf.Operation, u: tf.Tensor) -> list[tf.Tensor | None]:
    g, x, _, offsets = op.inputs  # linear in g, independent of the table
    attributes = _declared.attributes(op)
    return _gradients(
        op,
        lambda: raw_ops.hash_encode(x, u, offsets, **attributes),
        lambda: raw_ops.hash_encode_point_grad(g, x, u, offsets, **attributes),
        None,
        None,
    )


@tf.RegisterGradient("HashEncodePointGrad")
def _hash_encode_point_grad_gradient(op: tf.Operation, v: tf.Tensor) -> list[tf.Tensor | None]:
    g, x, table, offsets = op.inputs
    attributes = _declared.attributes(op)
    return _gradients(
        op,
        lambda: raw_ops.hash_encode_jvp(v, x, table, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp_point_grad(v, g, x, table, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp_grad(v, g, x, table, offsets, **attributes),
        None,
    )


@tf.RegisterGradient("HashEncodeJvp")
def _hash_encode_jvp_gradient(op: tf.Operation, g: tf.Tensor) -> list[tf.Tensor | None]:
    v, x, table, offsets = op.inputs
    attributes = _declared.attributes(op)
    return _gradients(
        op,
        lambda: raw_ops.hash_encode_point_grad(g, x, table, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp_point_grad(v, g, x, table, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp_grad(v, g, x, table, offsets, **attributes),
        None,
    )


@tf.RegisterGradient("HashEncodeJvpGrad")
def _hash_encode_jvp_grad_gradient(op: tf.Operation, u: tf.Tensor) -> list[tf.Tensor | None]:
    v, g, x, _, offsets = op.inputs  # linear in v and g, independent of the table
    attributes = _declared.attributes(op)
    return _gradients(
        op,
        lambda: raw_ops.hash_encode_point_grad(g, x, u, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp(v, x, u, offsets, **attributes),
        lambda: raw_ops.hash_encode_jvp_point_grad(v, g, x, u, offsets, **attributes),
        None,
        None,
    )


@tf.RegisterGradient("HashEncodeJvpPointGrad")
def _hash_encode_jvp_point_grad_gradient(op: tf.Operation, *_: tf.Tensor) -> None:
    raise LookupError(
        "[hash_encode] third derivatives are not provided: HashEncodeJvpPointGrad has no gradient. Stop the gradient "
        "of the second derivative with tf.stop_gradient, or take it outside of the outer tape."
    )
