"""Gradient descent with momentum or without, whose update of a variable is one pass over memory."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops.fused_optimizer import fused_sgd
from metal_ops.optimizers._fused import FusedOptimizer

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class SGD(FusedOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD`, with momentum, Nesterov's momentum and weight decay in one fused, threaded op.

    The arguments, their meaning, the saved state and the results are those of `keras.optimizers.SGD`. The differences
    are those of `metal_ops.optimizers.Adam`: half-precision variables have float32 momentum, sparse gradients are
    summed into dense ones, and inside XLA the update is Keras' own.

    Args:
      *args: As for `keras.optimizers.SGD`.
      skip_zero_rows: Leaves rows of a variable whose gradient is all zero as they are, momentum included.
      **kwargs: As for `keras.optimizers.SGD`.

    Example:
      >>> x = tf.Variable([3.0, -2.0])
      >>> sgd = metal_ops.optimizers.SGD(learning_rate=0.5, momentum=0.9)
      >>> sgd.apply([tf.constant([1.0, -1.0])], [x])
      >>> x.numpy().tolist()
      [2.5, -1.5]
    """

    def __init__(self, *args: Any, skip_zero_rows: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skip_zero_rows = skip_zero_rows

    def fused_update(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any, weight_decay: float
    ) -> None:
        with_momentum = self.momentum != 0
        fused_sgd(
            variable,
            gradient,
            learning_rate=learning_rate,
            m=self.momentums[self._get_variable_index(variable)].value if with_momentum else None,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=weight_decay,
            skip_zero_rows=self.skip_zero_rows,
        )
