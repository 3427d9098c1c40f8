"""Every choice of a run, with its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metal_ops.programs.records import check_fields

LIMITS: dict[str, tuple[float, float]] = {
    "width": (8, 8192),
    "layers": (1, 128),
    "heads": (1, 256),
    "kv_heads": (1, 256),
    "hidden": (8, 1 << 16),
    "context": (8, 1 << 16),
    "rope_base": (1, 1e9),
    "seconds": (0, 1e9),
    "steps": (0, (1 << 31) - 1),
    "seed": (0, 1 << 30),
    "batch": (1, 1 << 16),
    "learning_rate": (1e-9, 1e3),
    "final_learning_rate": (0, 1),
    "warmup": (0, 1),
    "weight_decay": (0, 1e3),
    "clip": (1e-9, 1e9),
}
CHOICES: dict[str, tuple[Any, ...]] = {}
VOCABULARY = 256


@dataclass(frozen=True)
class ModelConfig:
    """The transformer: RMS norms before each part, rotary positions, grouped attention, SwiGLU, no biases.

    Attributes:
      width: Width of the stream from layer to layer.
      layers: How many.
      heads: Number of query heads; a head is width / heads wide, an even number of at most 256.
      kv_heads: Number of heads of keys and values, which neighbouring heads share.
      hidden: Width of the feed-forward part.
      context: Bytes that it sees at once.
      rope_base: Base of the rotary positions.

    Raises:
      ValueError: A value is of another type, out of `LIMITS`, or does not fit another.
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 352
    context: int = 128
    rope_base: float = 10000.0

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)
        if self.width % (2 * self.heads) or self.width // self.heads > 256:
            raise ValueError(
                f"field 'width' must be an even multiple of the {self.heads} heads, at most 256 for each, got "
                f"{self.width}"
            )
        if self.heads % self.kv_heads:
            raise ValueError(
                f"field 'kv_heads' must divide the {self.heads} heads, got {self.kv_heads}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained.

    Attributes:
      seconds: Training time to stop after, or None.
      steps: Steps to stop after, or None.
      seed: Seed of the initial values and of the pieces of text.
      batch: Pieces of `context` bytes per step.
      learning_rate: Learning rate of AdamW, at its highest.
      final_learning_rate: The fraction of it that is left at the end of the budget (a cosine).
      warmup: The fraction of the budget in which it rises.
      weight_decay: Weight decay of the matrices.
      clip: The most that the norm of all gradients may be.

    Raises:
      ValueError: A value is of another type, or out of `LIMITS`.
    """

    seconds: float | None = 60.0
    steps: int | None = None
    seed: int = 0
    batch: int = 8
    learning_rate: float = 4e-3
    final_learning_rate: float = 0.1
    warmup: float = 0.03
    weight_decay: float = 0.1
    clip: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)
