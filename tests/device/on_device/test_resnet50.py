"""ResNet-50 at a usual rate: as far from float64 as the CPU's float32 is.

Batch norm over few numbers, and masks of ReLU, make large differences of small ones: pictures that are rounded
otherwise change gradients by per cents, and the loss after a step in its second digit. The effect of rounding is
measured
beside: on the CPU with the pictures as they are, and with some of their numbers changed by a unit in the last place.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.processes import VALIDATION

SIDE, BATCH, RATE, STEPS = 64, 16, 0.01, 3
# So many times the spread that three roundings show: of a variable's gradient, of the median of all, of losses.
EACH, MEDIAN, LOSSES = 4.0, 2.0, 4.0


def pictures(seed: int) -> np.ndarray:
    """The same for every seed but 0, up to a unit in the last place."""
    x = np.random.default_rng(0).uniform(size=(BATCH, SIDE, SIDE, 3)).astype("float32")
    if seed:
        x *= 1 + np.random.default_rng(seed).choice([-1, 0, 1], x.shape).astype("f") * 2.0**-23
    return x


class Training:
    """The first steps from the same weights, as often as asked; gradients are those of the first step."""

    def __init__(self, device: str, dtype: str, weights: list[np.ndarray] | None = None) -> None:
        self.device, self.dtype = device, dtype
        keras.config.set_dtype_policy(dtype)
        try:
            with tf.device(device):
                shape = (SIDE, SIDE, 3)
                self.model = keras.applications.ResNet50(
                    weights=None, input_shape=shape, classes=10
                )
                self.optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
                self.optimizer.build(self.model.trainable_variables)
                self.loss = keras.losses.SparseCategoricalCrossentropy(dtype=dtype)
        finally:
            keras.config.set_dtype_policy("float32")
        self.weights = self.model.get_weights() if weights is None else weights
        self.slots = [variable.numpy() for variable in self.optimizer.variables]
        self.step = tf.function(self._step)

    def _step(self, x, y):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.loss(y, self.model(x, training=True))
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, gradients

    def run(self, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        self.model.set_weights(self.weights)
        for variable, slot in zip(self.optimizer.variables, self.slots, strict=True):
            variable.assign(slot)
        with tf.device(self.device):
            x = tf.constant(pictures(seed).astype(self.dtype))
            y = tf.constant(np.random.default_rng(1).integers(0, 10, BATCH))
            steps = [self.step(x, y) for _ in range(STEPS)]
            assert all(loss.device.endswith(self.device) for loss, _ in steps)
        names = [variable.path for variable in self.model.trainable_variables]
        first = [np.asarray(gradient).astype("float64") for gradient in steps[0][1]]
        return np.array([float(loss) for loss, _ in steps]), dict(zip(names, first, strict=True))


@pytest.mark.full(
    "six trainings take more than a minute; test_training.py has short ones of its layers"
)
@pytest.mark.skipif(
    VALIDATION, reason="takes minutes where each access is checked; shorter tests have its shaders"
)
def test_first_steps():
    keras.utils.set_random_seed(2)
    on_cpu = Training("CPU:0", "float32")
    cpu_runs = [on_cpu.run(seed) for seed in range(3)]
    losses, gradients = Training("GPU:0", "float32", on_cpu.weights).run()
    true_losses, true_gradients = Training("CPU:0", "float64", on_cpu.weights).run()

    # A bias before batch norm changes nothing: its gradient is rounding error.
    largest = max(np.linalg.norm(gradient) for gradient in true_gradients.values())
    names = [n for n, g in true_gradients.items() if np.linalg.norm(g) > 1e-10 * largest]
    without = {*true_gradients} - {*names}
    assert len(names) == 161 and all(name.endswith("_conv/bias") for name in without)
    for name in without:
        rounding = [np.linalg.norm(found[name]) for _, found in cpu_runs]
        assert np.linalg.norm(gradients[name]) <= EACH * max(rounding)

    def off(found: dict[str, np.ndarray]) -> np.ndarray:
        return np.array([np.linalg.norm(found[n] - true_gradients[n]) / np.linalg.norm(true_gradients[n])
                         for n in names])  # fmt: skip

    spread = np.array([off(found) for _, found in cpu_runs])

    def wrong(found: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
        pairs = zip(names, zip(off(found), spread.max(0), strict=True), strict=True)
        return {name: (ours, cpu) for name, (ours, cpu) in pairs if ours > EACH * cpu}

    assert not wrong(gradients)
    assert np.median(off(gradients)) <= MEDIAN * np.median(spread, 1).max() < 0.1
    for name in ("predictions/kernel", "conv3_block2_2_conv/kernel", "conv1_bn/gamma"):
        assert {*wrong(gradients | {name: 1.5 * gradients[name]})} == {name}, "the control"

    of_losses = np.max([np.abs(found - true_losses) for found, _ in cpu_runs], 0)
    assert of_losses[0] < 1e-4
    assert (np.abs(losses - true_losses) <= LOSSES * of_losses).all(), (losses, true_losses)
