"""Every choice of a run in one frozen record, with the defaults that `make nerf` uses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

ENCODINGS = ("hash", "frequency")
BACKENDS = ("fused", "composite")
BACKGROUNDS = ("auto", "white", "black", "random")


@dataclass(frozen=True)
class ModelConfig:
    """The radiance field.

    Attributes:
        encoding: "hash" (Mueller et al. 2022) or "frequency" (Mildenhall et al. 2020).
        backend: What computes the hash encoding: "fused" is `metal_ops.hash_encode`, "composite" the
            same formula from stock TensorFlow ops.
        n_levels: Levels of the hash grid.
        n_features_per_level: Values per table row.
        log2_hashmap_size: Rows of the largest levels, as a power of two.
        base_resolution: Cells along an edge on the coarsest level.
        finest_resolution: Cells along an edge on the finest level; None is 2.5 for each pixel along the longer
            edge of the pictures, which is about two a pixel where the object is.
        density_width: Width of the hidden layer of the density network.
        geometry_features: Values that the density network hands on to the colour network.
        colour_width: Width of the two hidden layers of the colour network.
        octaves: Octaves of the frequency encoding.
        frequency_width: Width of the frequency network. The paper's 256 and 8 layers learn less in a minute on a CPU.
        frequency_depth: Its number of hidden layers; the input joins in again half way.
        mixed_precision: Run the networks in bfloat16 (parameters and rendering stay float32).
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
    mixed_precision: bool = False


@dataclass(frozen=True)
class TrainConfig:
    """How a radiance field is trained and judged.

    Attributes:
        seconds: Training time to stop after (evaluation and pictures do not count), or None.
        steps: Number of steps to stop after, or None.
        seed: Of the initial values, the rays and the samples.
        learning_rate: Of Adam, at its highest; None is 1e-2 for hash tables and 3e-3 for frequencies.
        final_learning_rate: The fraction of it that is left at the end of the budget.
        target_samples: Packed samples per step that the number of rays is adapted to; None chooses by encoding.
        samples_per_diagonal: Steps of the ray marcher along the diagonal of the scene's box.
        occupancy_resolution: Cells along an edge of the occupancy grid.
        background: "white", "black" or "random" behind the training pixels; "auto" is random where the
            images have alpha.
        max_eval_views: Held-out views that are rendered for a score, evenly spread over the split.
    """

    seconds: float | None = 60.0
    steps: int | None = None
    seed: int = 0
    learning_rate: float | None = None
    final_learning_rate: float = 0.03
    target_samples: int | None = None
    samples_per_diagonal: int = 128
    occupancy_resolution: int = 64
    background: str = "auto"
    max_eval_views: int = 25


def to_json(config: ModelConfig | TrainConfig) -> dict[str, Any]:
    """The record as plain values for a JSON file."""
    return dataclasses.asdict(config)
