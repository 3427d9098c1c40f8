"""Every choice of a run, with its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metal_ops.programs import hash_field
from metal_ops.programs.hash_field import FieldConfig
from metal_ops.programs.records import check_fields

LIMITS: dict[str, tuple[float, float]] = {
    **hash_field.LIMITS,
    "samples": (64, 1 << 24),
    "eikonal": (0, 1e3),
}
CHOICES: dict[str, tuple[Any, ...]] = {**hash_field.CHOICES, "loss": ("l1", "mape")}


@dataclass(frozen=True)
class ModelConfig(FieldConfig):
    """The field over the unit cube."""

    n_levels: int = 8
    n_features_per_level: int = 2
    log2_hashmap_size: int = 16
    base_resolution: int = 8
    finest_resolution: int = 96
    n_neurons: int = 32
    n_hidden_layers: int = 2


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained.

    Attributes:
      seconds: Training time to stop after, or None.
      steps: Steps to stop after, or None.
      seed: Seed of the initial values and of the points that are drawn.
      batch: Points a step: half of them on the surface, a quarter from the pool, a quarter anywhere for the Eikonal
        loss alone.
      samples: Points of the pool, whose distances are computed before.
      loss: "l1", |f - d|; or "mape", |f - d| / (|d| + 0.01), as instant-ngp has it.
      eikonal: Weight of (|grad f| - 1)^2.
      learning_rate: Learning rate of Adam, at first.
      final_learning_rate: The fraction of it that is left at the end of the budget.

    Raises:
      ValueError: A value is of another type, or out of `LIMITS`.
    """

    seconds: float | None = 40.0
    steps: int | None = None
    seed: int = 0
    batch: int = 1 << 13
    samples: int = 1 << 16
    loss: str = "l1"
    eikonal: float = 0.01
    learning_rate: float = 5e-3
    final_learning_rate: float = 0.02

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)
