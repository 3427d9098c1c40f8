"""Every choice of a fit, with its limits."""

from __future__ import annotations

from dataclasses import dataclass

from metal_ops.programs.hash_field import CHOICES, LIMITS, FieldConfig
from metal_ops.programs.records import check_fields


@dataclass(frozen=True)
class ModelConfig(FieldConfig):
    """The field over a picture; resolutions are those along its longer edge."""

    n_levels: int = 16
    n_features_per_level: int = 2
    log2_hashmap_size: int = 18
    base_resolution: int = 16
    finest_resolution: int = 512
    n_neurons: int = 64
    n_hidden_layers: int = 2


@dataclass(frozen=True)
class TrainConfig:
    """How it is fitted.

    Attributes:
      seconds: Training time to stop after, or None.
      steps: Steps to stop after, or None.
      seed: Seed of the initial values and of the pixels that are drawn.
      batch: Pixels a step.
      learning_rate: Adam's, at first.
      final_learning_rate: The fraction of it that is left at the end of the budget.

    Raises:
      ValueError: A value is of another type, or out of `LIMITS`.
    """

    seconds: float | None = 30.0
    steps: int | None = None
    seed: int = 0
    batch: int = 1 << 15
    learning_rate: float = 1e-2
    final_learning_rate: float = 0.02

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)
