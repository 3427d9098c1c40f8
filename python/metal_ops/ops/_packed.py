"""Sequences packed one behind the other, as a RaggedTensor has them, and with padding, as ops of whole sequences do."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Packed:
    """Where the steps of a RaggedTensor [batch, (time), features] are among [batch, time]."""

    def __init__(self, op: str, x: tf.RaggedTensor, mask: Any, lengths: Any) -> None:
        if x.ragged_rank != 1 or x.shape.rank != 3:
            raise ValueError(
                f"[{op}] x: expected [batch, (time), features], of which steps alone are ragged, got a RaggedTensor of "
                f"shape {x.shape.as_list() if x.shape.rank is not None else None} and ragged_rank {x.ragged_rank}."
            )
        if mask is not None or lengths is not None:
            raise ValueError(
                f"[{op}] {'lengths' if mask is None else 'mask'}: expected None, as x is a RaggedTensor, which has its "
                "own lengths, got one."
            )
        self._x = x
        # The sizes in a shape have to be known to the host, whatever device computes.
        with tf.device("CPU:0"):
            rows = tf.cast(x.value_rowids(), tf.int32)
            starts = tf.gather(tf.cast(x.row_starts(), tf.int32), rows)
            self._places = tf.stack([rows, tf.range(tf.size(rows)) - starts], 1)
            self.batch = x.shape[0]
            if self.batch is None:
                self.batch = tf.cast(x.nrows(), tf.int32)
            self.steps = tf.cast(x.bounding_shape(axis=1), tf.int32)
            self.mask = tf.sequence_mask(x.row_lengths(), self.steps)

    def padded(self, values: tf.Tensor) -> tf.Tensor:
        """Values of all steps, one behind the other, as [batch, time, size]; zeros where there is no step."""
        size = tf.shape(values)[1] if values.shape[1] is None else values.shape[1]
        padded = tf.scatter_nd(self._places, values, [self.batch, self.steps, size])
        return tf.ensure_shape(padded, [self._x.shape[0], None, values.shape[1]])

    def packed(self, padded: tf.Tensor) -> tf.RaggedTensor:
        """The way back."""
        return self._x.with_flat_values(tf.gather_nd(padded, self._places))
