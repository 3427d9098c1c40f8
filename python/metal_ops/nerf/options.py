"""The options of `nerf`'s commands, and the configuration that they spell."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from metal_ops.programs import command
from metal_ops.programs.command import positive, train_config, whole

from .config import BACKGROUNDS, ModelConfig, TrainConfig

if TYPE_CHECKING:
    pass

MODEL, TRAIN = ModelConfig(), TrainConfig()
# The settings that a GPU with memory of its own has time for: a larger table and batches, finer steps through finer
# cells; and as more steps fit into a budget, the learning rate does not have to fall as far.
GPU_MODEL = {"log2_hashmap_size": 19, "mixed_precision": True}
GPU_TRAIN = {
    "target_samples": 1 << 17,
    "samples_per_diagonal": 1024,
    "occupancy_resolution": 128,
    "final_learning_rate": 0.1,
}
# Cells of the finest level for each pixel along the longer edge: with more, long runs learn training views by heart.
GPU_CELLS_A_PIXEL = 0.8
DATA_HELP = (
    "scene: a NeRF-synthetic folder (transforms_train.json), an instant-ngp or nerfstudio folder or transforms.json, a "
    "folder of photos with a COLMAP model, or an .npz like tiny_nerf_data.npz; the built-in still life if left out"
)


def add_scene(parser: argparse.ArgumentParser) -> None:
    """The scene to train on."""
    group = parser.add_argument_group("scene")
    group.add_argument("--data", metavar="PATH", help=DATA_HELP)
    group.add_argument(
        "--downscale",
        type=whole(1, 64),
        default=1,
        metavar="K",
        help="shrink images by this whole factor (%(default)s)",
    )
    group.add_argument(
        "--size",
        type=whole(16, 1024),
        default=None,
        help="pixels along an edge of the built-in scene's pictures (160)",
    )
    group.add_argument(
        "--background",
        choices=BACKGROUNDS,
        default=TRAIN.background,
        help="behind the training pictures; auto is random where there is alpha (%(default)s)",
    )
    group.add_argument(
        "--eval-views",
        type=whole(1),
        default=TRAIN.max_eval_views,
        metavar="N",
        help="held-out views to score at most, evenly spread (%(default)s)",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """For how long, and the seed."""
    group = parser.add_argument_group("budget")
    group.add_argument(
        "--seconds",
        type=positive,
        default=None,
        help=f"training time; evaluation and pictures do not count ({TRAIN.seconds:g} unless --steps is given)",
    )
    group.add_argument(
        "--steps",
        type=whole(1),
        default=None,
        help="training steps; reproducible bit by bit with the same --seed",
    )
    group.add_argument("--seed", type=whole(0), default=TRAIN.seed, help="%(default)s if left out")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The network and its optimizer."""
    group = parser.add_argument_group("model and optimizer")
    group.add_argument(
        "--levels",
        type=whole(1, 32),
        default=MODEL.n_levels,
        help="of the hash grid (%(default)s)",
    )
    group.add_argument(
        "--log2-hashmap-size",
        type=whole(4, 24),
        default=None,
        help=f"rows of its largest levels, as a power of two ({MODEL.log2_hashmap_size}; on a GPU "
        f"{GPU_MODEL['log2_hashmap_size']})",
    )
    group.add_argument(
        "--finest-resolution",
        type=whole(16, 1 << 20),
        default=MODEL.finest_resolution,
        help="cells along an edge of its finest level (2.5 a pixel of the pictures)",
    )
    group.add_argument(
        "--frequency-width",
        type=whole(8, 1024),
        default=MODEL.frequency_width,
        help="of the frequency-encoded network; the classic NeRF's is 256 (%(default)s)",
    )
    group.add_argument(
        "--frequency-depth",
        type=whole(2, 32),
        default=MODEL.frequency_depth,
        help="its hidden layers; the classic NeRF has 8 (%(default)s)",
    )
    group.add_argument(
        "--learning-rate",
        type=positive,
        default=None,
        help="of Adam, at its highest (0.01; 0.003 for frequencies)",
    )
    group.add_argument(
        "--samples",
        type=whole(256, 1 << 22),
        default=None,
        help=f"packed samples per step (6144; 4096 for frequencies; {GPU_TRAIN['target_samples']} on a GPU)",
    )
    group.add_argument(
        "--mixed-precision",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run the networks in bfloat16; on a GPU in float16, which is the default there",
    )


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Where the results go."""
    group = command.add_output(parser, "from the scene")
    group.add_argument(
        "--frames",
        type=whole(1, 10000),
        default=48,
        help="of the turntable (%(default)s)",
    )
    return group


def configs(arguments: argparse.Namespace) -> tuple[ModelConfig, TrainConfig]:
    """The configuration that the arguments spell."""
    model = ModelConfig(
        encoding=getattr(arguments, "encoding", MODEL.encoding),
        backend=getattr(arguments, "backend", MODEL.backend),
        n_levels=arguments.levels,
        log2_hashmap_size=arguments.log2_hashmap_size or MODEL.log2_hashmap_size,
        finest_resolution=arguments.finest_resolution,
        frequency_width=arguments.frequency_width,
        frequency_depth=arguments.frequency_depth,
        mixed_precision=bool(arguments.mixed_precision),
    )
    train = train_config(
        TrainConfig,
        arguments,
        "learning_rate",
        target_samples=arguments.samples,
        background=arguments.background,
        max_eval_views=arguments.eval_views,
    )
    return model, train


def for_gpu(
    arguments: argparse.Namespace, model: ModelConfig, train: TrainConfig, pixels: int
) -> tuple[ModelConfig, TrainConfig]:
    """The configuration with the defaults of a GPU that has memory of its own, where the arguments say nothing.

    Args:
      arguments: Arguments of the command line.
      model: The model that they spell on any device.
      train: The same.
      pixels: Along the longer edge of the scene's pictures (`Scene.pixels_across`).
    """
    if model.encoding != "hash" or model.backend != "fused":
        return model, train
    chosen: dict[str, Any] = {
        name: value for name, value in GPU_MODEL.items() if vars(arguments)[name] is None
    }
    if model.finest_resolution is None:
        cells = int(GPU_CELLS_A_PIXEL * pixels)
        chosen["finest_resolution"] = min(max(cells, 2 * model.base_resolution), 4096)
    of_training: dict[str, Any] = dict(GPU_TRAIN)
    if arguments.samples is not None:
        del of_training["target_samples"]
    return dataclasses.replace(model, **chosen), dataclasses.replace(train, **of_training)
