"""Adam (Kingma and Ba 2015) and AdamW whose update of a variable is one pass over memory."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops.fused_optimizer import fused_adam
from metal_ops.optimizers._fused import FusedOptimizer

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class Adam(FusedOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, faster on big variables: one fused, threaded op updates variable and moments.

    The arguments, their meaning and the saved state are those of `keras.optimizers.Adam`, and so are the results:
    within 1e-6 after 100 steps. Schedules, clipping, EMA, gradient accumulation and loss scaling are Keras' own; weight
    decay and AMSGrad are part of the op. Like there, `epsilon` is the "epsilon hat" of Kingma and Ba 2015, section
    2: it is added after the second moment's square root and not scaled by the bias correction. The differences:

    - Variables of float16 or bfloat16 have float32 moments and are updated in float32, then rounded. (In bfloat16,
      beta_2 = 0.999 would be 1, and the moments would never move.) Steps below half a unit in the last place are
      lost to rounding; a mixed policy, whose variables are float32, avoids that.
    - Sparse gradients (tf.IndexedSlices) are summed into dense ones, so moments of rows that are absent decay,
      as the paper's formulas have it.
    - Inside a function that XLA compiles, the update is Keras' own, which XLA fuses.

    Args:
      *args: As for `keras.optimizers.Adam`.
      skip_zero_rows: Leaves rows of a variable (slices of its first dimension) whose gradient is all zero as they are,
        moments and weight decay included, as instant-ngp does with its hash table: rows that no sample touched do not
        drift, and need no memory traffic but the gradient's. Applies to all variables of the optimizer.
      **kwargs: As for `keras.optimizers.Adam`.

    Example:
      >>> x = tf.Variable([3.0, -2.0])
      >>> adam = metal_ops.optimizers.Adam(learning_rate=0.5)
      >>> adam.apply([tf.constant([1.0, -1.0])], [x])
      >>> x.numpy().round(4).tolist()
      [2.5, -1.5]
    """

    def __init__(self, *args: Any, skip_zero_rows: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.skip_zero_rows = skip_zero_rows

    def fused_update(
        self,
        gradient: tf.Tensor,
        variable: tf.Variable,
        learning_rate: Any,
        weight_decay: float,
        step: tf.Tensor | None = None,
    ) -> None:
        """`step`: the update's number, where the caller counts; else the optimizer's own."""
        index = self._get_variable_index(variable)
        if step is None:
            with tf.device("CPU:0"):
                step = self.iterations + 1
        fused_adam(
            variable,
            self._momentums[index].value,
            self._velocities[index].value,
            gradient,
            step=step,
            learning_rate=learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay=weight_decay,
            v_hat=self._velocity_hats[index].value if self.amsgrad else None,
            skip_zero_rows=self.skip_zero_rows,
            float32_powers=True,
        )


@keras.saving.register_keras_serializable(package="metal_ops")
class AdamW(Adam):
    """`keras.optimizers.AdamW`: Adam with decoupled weight decay (Loshchilov and Hutter 2019), in the same pass.

    Args:
      learning_rate: As for `keras.optimizers.AdamW`.
      weight_decay: Times the learning rate: the part by which variables shrink at each step. Variables that
        `exclude_from_weight_decay` names are left out.
      **kwargs: As for `metal_ops.optimizers.Adam`.

    Raises:
      ValueError: weight_decay is None.

    Example:
      >>> x = tf.Variable([4.0])
      >>> adam = metal_ops.optimizers.AdamW(learning_rate=0.5, weight_decay=0.5)
      >>> adam.apply([tf.constant([1.0])], [x])
      >>> x.numpy().round(4).tolist()
      [2.5]
    """

    def __init__(
        self, learning_rate: Any = 0.001, weight_decay: Any = 0.004, **kwargs: Any
    ) -> None:
        if weight_decay is None:
            raise ValueError(
                "[AdamW] weight_decay: expected a number, got None. Use Adam for no weight decay."
            )
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, **kwargs)
