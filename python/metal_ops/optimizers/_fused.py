"""Shared by the fused optimizers: dense gradients, float32 state of half-precision variables, fused weight decay."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops.ops import _checks

STATE_NAMES = ("momentum", "velocity", "velocity_hat")


class _Counter(keras.Variable):
    """Counts on the host: in a step on a device Keras would add there, and the sum's way back waits for all work."""

    def assign_add(self, value: Any) -> Any:
        with tf.device("CPU:0"):
            return super().assign_add(value)


class FusedOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers whose `fused_update` is one op a variable. Everything around the update is Keras'."""

    skip_zero_rows: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The ops take the step and the learning rate from the host: on a device, every update would fetch them.
        with tf.device("CPU:0"):
            super().__init__(*args, **kwargs)
        self._iterations.__class__ = _Counter

    def _get_current_learning_rate(self) -> Any:
        with tf.device("CPU:0"):  # a schedule calculates
            return super()._get_current_learning_rate()

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        variables = list(
            self._trainable_variables if trainable_variables is None else trainable_variables
        )
        if len(grads) == len(variables):  # else Keras names the error
            grads = [
                _dense(gradient, variable)
                for gradient, variable in zip(grads, variables, strict=True)
            ]
            trainable_variables = None if trainable_variables is None else variables
        super().apply(grads, trainable_variables)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        if name in STATE_NAMES and _is_half(reference_variable):
            path = getattr(reference_variable, "path", reference_variable.name)
            return self.add_variable(
                shape=reference_variable.shape,
                initializer=initializer,
                dtype="float32",
                name=f"{path.replace('/', '_').replace(':', '_')}_{name}",
            )
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any) -> None:
        if _inside_xla():
            # XLA fuses Keras' own update, and cannot compile the op.
            _refuse_what_only_the_op_does(self, variable)
            super().update_step(gradient, variable, learning_rate)
            return
        decays = self.weight_decay is not None and self._use_weight_decay(variable)
        self.fused_update(
            tf.cast(gradient, variable.dtype),
            variable,
            learning_rate=learning_rate,
            weight_decay=self.weight_decay if decays else 0.0,
        )

    def fused_update(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any, weight_decay: float
    ) -> None:
        """Updates one variable."""
        raise NotImplementedError

    def _apply_weight_decay(self, variables: Any) -> None:
        if _inside_xla():
            super()._apply_weight_decay(variables)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "skip_zero_rows": self.skip_zero_rows}


def _inside_xla() -> bool:
    try:
        _checks.refuse_xla("optimizer")
    except tf.errors.UnimplementedError:
        return True
    return False


def _refuse_what_only_the_op_does(optimizer: Any, variable: Any) -> None:
    name = type(optimizer).__name__
    if optimizer.skip_zero_rows or _is_half(variable):
        what = "skip_zero_rows=True" if optimizer.skip_zero_rows else f"{variable.dtype} variables"
        raise tf.errors.UnimplementedError(
            None,
            None,
            f"[{name}] {what} cannot be compiled by XLA. Use tf.function without jit_compile=True for the "
            "training step; in Keras, model.compile(..., jit_compile=False).",
        )


def _is_half(variable: Any) -> bool:
    return keras.backend.standardize_dtype(variable.dtype) in ("float16", "bfloat16")


def _dense(gradient: Any, variable: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
    return gradient
