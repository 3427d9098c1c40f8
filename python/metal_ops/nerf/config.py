"""Every choice of a run in one frozen record, with the defaults that `make nerf` uses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from metal_ops.programs.records import check_fields

ENCODINGS = ("hash", "frequency")
BACKENDS = ("fused", "composite")
DENSITIES = ("exp", "softplus", "relu")
BACKGROUNDS = ("auto", "white", "black", "random")
LOSSES = ("mse", "robust")

# The limits of each field: a range, or names. Wider than useful values; beyond it lie overflows and memory that no
# machine has, and checkpoints may come from untrusted sources.
LIMITS: dict[str, tuple[float, float]] = {
    "n_levels": (1, 32),
    "log2_hashmap_size": (1, 24),
    "base_resolution": (1, 1 << 14),
    "finest_resolution": (1, 1 << 20),
    "density_width": (1, 1024),
    "geometry_features": (1, 1024),
    "colour_width": (1, 1024),
    "octaves": (1, 32),
    "frequency_width": (2, 1024),
    "frequency_depth": (2, 32),
    "seconds": (0, 1e9),
    "steps": (0, (1 << 31) - 1),
    "seed": (0, (1 << 30)),
    "learning_rate": (0, 1e6),
    "final_learning_rate": (0, 1),
    "epsilon": (0, 1),
    "gradient_scale": (1e-30, 1e30),
    "target_samples": (64, 1 << 22),
    "samples_per_diagonal": (1, 4096),
    "occupancy_resolution": (1, 128),
    "occupancy_every": (0, (1 << 31) - 1),
    "robust_alpha": (-1e6, 1e6),
    "robust_scale": (1e-30, 1e30),
    "distortion": (0, 1e30),
    "max_eval_views": (1, 1 << 30),
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "encoding": ENCODINGS,
    "backend": BACKENDS,
    "n_features_per_level": (1, 2, 4, 8),
    "density": DENSITIES,
    "background": BACKGROUNDS,
    "loss": LOSSES,
}


@dataclass(frozen=True)
class ModelConfig:
    """The radiance field.

    Attributes:
      encoding: "hash" (Mueller et al. 2022) or "frequency" (Mildenhall et al. 2020).
      backend: The implementation of everything but the networks' layers: "fused" is the library's ops, "composite" the
        same formulas from stock TensorFlow ops.
      n_levels: Levels of the hash grid.
      n_features_per_level: Values per table row.
      log2_hashmap_size: Rows of the largest levels, as a power of two.
      base_resolution: Cells along an edge on the coarsest level.
      finest_resolution: Cells along an edge on the finest level; None is 2.5 for each pixel along the longer
        edge of the pictures, which is about two per pixel where the object is.
      density_width: Width of the hidden layer of the density network.
      geometry_features: Values that the density network hands on to the colour network.
      colour_width: Width of the two hidden layers of the colour network.
      octaves: Octaves of the frequency encoding.
      frequency_width: Width of the frequency network. The paper's 256 and 8 layers learn less in a minute on a CPU.
      frequency_depth: Its number of hidden layers; the input joins in again half way.
      density: The function that turns the network's first output into a density: "exp" as in instant-ngp, "softplus" as
        in Mip-NeRF, "relu" as in NeRF.
      mixed_precision: Run the networks in bfloat16 (parameters and rendering stay float32); in float16 where steps are
        packed (`TrainConfig.packed`).

    Raises:
      ValueError: A value is of another type, or out of `LIMITS`; so does `TrainConfig`.
    """

    encoding: str = "hash"
    backend: str = "fused"
    n_levels: int = 16
    n_features_per_level: int = 2
    log2_hashmap_size: int = 16
    base_resolution: int = 16
    finest_resolution: int | None = None
    density_width: int = 64
    geometry_features: int = 16
    colour_width: int = 64
    octaves: int = 10
    frequency_width: int = 128
    frequency_depth: int = 4
    density: str = "exp"
    mixed_precision: bool = False

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)


@dataclass(frozen=True)
class TrainConfig:
    """How a radiance field is trained and judged.

    Attributes:
      seconds: Training time to stop after (evaluation and pictures do not count), or None.
      steps: Number of steps to stop after, or None.
      seed: Seed of the initial values, the rays and the samples.
      learning_rate: Learning rate of Adam, at its highest; None is 1e-2 for hash tables and 3e-3 for frequencies.
      final_learning_rate: The fraction of it that is left at the end of the budget.
      epsilon: Epsilon of Adam; instant-ngp's, so small that table rows that are seldom hit move as far as the others.
      gradient_scale: The loss is multiplied by it before its gradient is taken, and the gradient divided by it, as
        training in float16 needs.
      target_samples: Packed samples per step that the number of rays is adapted to; None chooses by encoding.
      samples_per_diagonal: Steps of the ray marcher along the diagonal of the scene's box.
      occupancy_resolution: Cells along an edge of the occupancy grid.
      occupancy_every: Steps between updates of the occupancy grid; 0 for none, so that it stays the same.
      background: "white", "black" or "random" behind the training pixels; "auto" is random where the
        images have alpha.
      loss: "mse", or "robust" for Barron's robust loss (CVPR 2019).
      robust_alpha: Its shape; 1 is the pseudo-Huber loss.
      robust_scale: Its size of an error from which on it is no longer quadratic.
      distortion: Weight of the distortion loss of mip-NeRF 360, distances in units of the box's diagonal.
      max_eval_views: Held-out views that are rendered for a score, evenly spread over the split.
      packed: Whether steps and pictures wait for nothing on the device (`packed.py`), with networks in one pass each,
        in float16 with mixed precision. None: where the device has memory of its own, and the configuration allows
        it.
    """

    seconds: float | None = 60.0
    steps: int | None = None
    seed: int = 0
    learning_rate: float | None = None
    final_learning_rate: float = 0.03
    epsilon: float = 1e-15
    gradient_scale: float = 1.0
    target_samples: int | None = None
    samples_per_diagonal: int = 128
    occupancy_resolution: int = 64
    occupancy_every: int = 16
    background: str = "auto"
    loss: str = "mse"
    robust_alpha: float = 1.0
    robust_scale: float = 0.1
    distortion: float = 0.0
    max_eval_views: int = 25
    packed: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, LIMITS, CHOICES)


def to_json(config: ModelConfig | TrainConfig) -> dict[str, Any]:
    """The record as plain values for a JSON file."""
    return dataclasses.asdict(config)
