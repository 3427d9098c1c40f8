"""Adam (Kingma and Ba 2015) whose update of a variable is one pass over memory."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam`, faster on big variables: one fused, threaded op updates variable and moments.

    The arguments, their meaning and the saved state are those of `keras.optimizers.Adam`, and so are the results: within
    1e-6 after 100 steps. Schedules, weight decay, clipping, EMA, gradient accumulation and loss scaling are Keras' own.
    Like there, `epsilon` is the "epsilon hat" of Kingma and Ba 2015, section 2: it is added after the second moment's
    square root and not scaled by the bias correction. What differs:

    - Variables of float16 or bfloat16 have float32 moments and are updated in float32, then rounded. (In bfloat16,
      beta_2 = 0.999 would be 1, and the moments would never move.) Steps below half a unit in the last place are
      lost to rounding; a mixed policy, whose variables are float32, avoids that.
    - Sparse gradients (tf.IndexedSlices) are summed into dense ones, so moments of rows that are absent decay,
      as the paper's formulas have it.
    - `amsgrad=True` takes Keras' own update, which is not fused.

    Example:
      >>> x = tf.Variable([3.0, -2.0])
      >>> adam = metal_ops.optimizers.Adam(learning_rate=0.5)
      >>> adam.apply([tf.constant([1.0, -1.0])], [x])
      >>> x.numpy().round(4).tolist()
      [2.5, -1.5]
    """

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        variables = list(
            self._trainable_variables if trainable_variables is None else trainable_variables
        )
        if len(grads) == len(variables):  # else Keras says what is wrong
            grads = [
                _dense(gradient, variable)
                for gradient, variable in zip(grads, variables, strict=True)
            ]
            trainable_variables = None if trainable_variables is None else variables
        super().apply(grads, trainable_variables)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        if name in ("momentum", "velocity") and not self.amsgrad and _is_half(reference_variable):
            path = getattr(reference_variable, "path", reference_variable.name)
            return self.add_variable(
                shape=reference_variable.shape,
                initializer=initializer,
                dtype="float32",
                name=f"{path.replace('/', '_').replace(':', '_')}_{name}",
            )
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any) -> None:
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        m, v = self._momentums[index].value, self._velocities[index].value
        dtype = m.dtype
        gradient = tf.cast(gradient, dtype)
        step = tf.cast(self.iterations + 1, dtype)
        # Not tf.cast, which turns Python's floats into float32 first.
        beta_1, beta_2, epsilon = (
            keras.ops.convert_to_tensor(value, dtype.name)
            for value in (self.beta_1, self.beta_2, self.epsilon)
        )
        gain_1, gain_2 = _lost_in_gain(self.beta_1, dtype), _lost_in_gain(self.beta_2, dtype)
        scalars = {
            "beta1_power": tf.pow(beta_1, step),
            "beta2_power": tf.pow(beta_2, step),
            "lr": tf.cast(learning_rate, dtype) * (math.sqrt(gain_2) / gain_1),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": epsilon * math.sqrt(gain_2),
        }
        if variable.dtype == dtype:
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle, m=m.handle, v=v.handle, grad=gradient, **scalars
            )
        else:
            self._update_half(gradient, variable, m, v, scalars)

    def _update_half(
        self,
        gradient: tf.Tensor,
        variable: tf.Variable,
        m: Any,
        v: Any,
        scalars: dict[str, tf.Tensor],
    ) -> None:
        # The fused op wants one dtype for variable and moments, so its formulas are spelled out here.
        alpha = scalars["lr"] * tf.sqrt(1 - scalars["beta2_power"]) / (1 - scalars["beta1_power"])
        new_m = m + (gradient - m) * (1 - scalars["beta1"])
        new_v = v + (tf.square(gradient) - v) * (1 - scalars["beta2"])
        m.assign(new_m)
        v.assign(new_v)
        step = alpha * new_m / (tf.sqrt(new_v) + scalars["epsilon"])
        variable.assign(tf.cast(tf.cast(variable, m.dtype) - step, variable.dtype))


def _lost_in_gain(beta: Any, dtype: tf.DType) -> float:
    """(1 - beta) in the dtype over 1 - beta in float64, the factor by which a moment differs from Keras'.

    In float32 1 - 0.999 keeps 8 of its 24 bits, and the fused op subtracts in float32. Keras subtracts in float64.
    The step is homogeneous in both moments and epsilon, so scaling those scalars undoes it.
    """
    rounded = dtype.as_numpy_dtype(beta)
    exact = 1 - float(beta)
    return float(dtype.as_numpy_dtype(1) - rounded) / exact if exact else 1.0


def _is_half(variable: Any) -> bool:
    return keras.backend.standardize_dtype(variable.dtype) in ("float16", "bfloat16")


def _dense(gradient: Any, variable: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
    return gradient
