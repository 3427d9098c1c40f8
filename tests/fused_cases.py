"""Tests of fused convolutions and products share these: every legal sequence, arguments for it, and the tolerance."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tests.cases import ROUNDING, SMALLEST
from tests.oracles import fused

DTYPES = ("float32", "float16", "bfloat16")
ACTIVATIONS = (
    "Relu", "Relu6", "Elu", "LeakyRelu", "Sigmoid", "Tanh", "Swish", "GeluExact", "GeluApproximate",
    "Mish",
)  # fmt: skip
# Inputs of the first stage: its name and how many; BatchNorm's pair may be float32 or the op's type.
STAGES = {
    "": (), "BiasAdd": ("T",), "BatchNorm of 4": ("float32",) * 4, "BatchNorm of 2": ("T",) * 2,
    "BatchNorm of 2 float32": ("float32",) * 2,
}  # fmt: skip

# float32 sums of n random terms wander by about sqrt(n) half units of their size; each of the handful of steps after
# them adds one. No activation is steeper than 1.13. A float16 result below its smallest normal has a fixed step.
STEPS, STEEPEST = 8, 1.13
UNIT = 2.0**-24


@dataclass(frozen=True)
class Chain:
    """One legal value of fused_ops with one form of its args."""

    stage: str = ""
    add: bool = False
    activation: str = ""
    alpha: float = 0.2
    epsilon: float = 1e-4

    def __str__(self) -> str:
        return "+".join(filter(None, [self.stage, "Add" * self.add, self.activation]))

    @property
    def fused_ops(self) -> list[str]:
        stage = self.stage.split(" ")[0]
        return [name for name in (stage, "Add" * self.add, self.activation) if name]

    def args(self, channels: int, output: Sequence[int], dtype: str, seed: int) -> list[np.ndarray]:
        """Random args; variances are above 0, scales away from it."""
        random = np.random.default_rng(seed)
        types = [dtype if t == "T" else t for t in STAGES[self.stage]]
        args = [random.uniform(-1, 1, channels).astype(numpy_type(t)) for t in types]
        if args and self.stage.startswith("BatchNorm"):
            args[0] = (random.uniform(0.5, 1.5, channels)).astype(args[0].dtype)
        if len(args) == 4:
            args[3] = random.uniform(0.3, 2, channels).astype(np.float32)
        if self.add:
            args.append(random.normal(size=tuple(output)).astype(numpy_type(dtype)))
        return args

    def attributes(self) -> dict[str, Any]:
        return dict(fused_ops=self.fused_ops, leakyrelu_alpha=self.alpha, epsilon=self.epsilon)

    def expected(
        self, product: fused.Bounded, args: Sequence[np.ndarray], channel_axis: int = -1
    ) -> fused.Bounded:
        return fused.finish(product, self.fused_ops, args, self.epsilon, self.alpha, channel_axis)


CHAINS = [
    Chain(stage, add, activation)
    for stage, add, activation in itertools.product(STAGES, (False, True), ("", *ACTIVATIONS))
    if stage or add or activation
]
# A few that between them have every stage, for tables over everything else.
SOME = [
    Chain("BiasAdd", True, "Relu"),
    Chain("BatchNorm of 4", True, "Swish", epsilon=1e-3),
    Chain("BatchNorm of 2", False, "LeakyRelu", alpha=0.3),
    Chain("BatchNorm of 2 float32", True, ""),
    Chain("", True, "GeluExact"),
    Chain("", False, "Relu6"),
]


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(tf.as_dtype(dtype).as_numpy_dtype)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """As the op sees it."""
    return np.asarray(array).astype(numpy_type(dtype))


def assert_close(
    actual: Any, expected: fused.Bounded, terms: int, dtype: str, context: str = ""
) -> None:
    """Fails unless a result lies within the float32 sum's error and one rounding to `dtype` of the oracle."""
    value, bound = expected
    assert actual.dtype == dtype, context
    actual = np.asarray(actual).astype(np.float64)
    assert actual.shape == value.shape, f"{context}: shape {actual.shape}, expected {value.shape}"
    allowed = (STEPS + 2 * np.sqrt(terms)) * UNIT * STEEPEST * np.maximum(bound, np.abs(value))
    allowed = (
        (allowed + STEPS * UNIT) + ROUNDING[dtype] * (np.abs(value) + allowed) + SMALLEST[dtype]
    )
    error = np.abs(actual - value)
    wrong = ~(error <= allowed)
    if np.any(wrong):
        worst = np.unravel_index(np.argmax(np.where(wrong, error - allowed, -np.inf)), error.shape)
        raise AssertionError(
            f"{context}: {np.count_nonzero(wrong)} of {wrong.size} values off; worst at {tuple(map(int, worst))}: "
            f"got {actual[worst]!r}, expected {value[worst]!r} +- {allowed[worst]:.3g}"
        )
