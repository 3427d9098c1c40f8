"""Writes small files in every format that users keep, for the tests of later versions to load.

    python -m tests.saved.make        # into tests/saved/<version>/, which must not exist

A folder is made once, by the version that it is called after, and never again: it proves that files written with
that version still load. A change that needs them made anew breaks those files for everybody.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer

HERE = Path(__file__).resolve().parent
GRID = dict(
    n_dims=3, n_levels=2, n_features_per_level=2, log2_hashmap_size=6, base_resolution=2
)  # 64 + 64 rows
SAMPLES = 12


def inputs() -> dict[str, np.ndarray]:
    """The arguments of the SavedModel's functions: twelve samples on three rays."""
    generator = np.random.default_rng(7)
    starts = np.tile(np.arange(4, dtype=np.float32) / 4, 3)
    directions = generator.normal(size=[SAMPLES, 3])
    return {
        "points": generator.random([SAMPLES, 3], np.float32),
        "directions": (directions / np.linalg.norm(directions, axis=1, keepdims=True)).astype(
            np.float32
        ),
        "t_starts": starts,
        "t_ends": starts + np.float32(0.25),
        "packed_info": np.array([[0, 4], [4, 4], [8, 4]], np.int32),
        "target": generator.random([3, 3], np.float32),
    }


class Field(tf.Module):
    """A tiny radiance field whose functions hold ops, their gradients and an optimizer's update."""

    def __init__(self) -> None:
        super().__init__()
        generator = np.random.default_rng(3)
        self.grid = metal_ops.HashGrid(**GRID)
        self.table = tf.Variable(generator.normal(size=self.grid.table_shape).astype(np.float32))
        self.weights = tf.Variable(generator.normal(size=[4 + 9 + 9, 4]).astype(np.float32))
        self.m, self.v = (tf.Variable(tf.zeros_like(self.table)) for _ in "mv")

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 3])])
    def encode(self, points: tf.Tensor, directions: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "hash": metal_ops.hash_encode(points, self.table, self.grid),
            "harmonics": metal_ops.sh_encode(directions, 3),
            "frequencies": metal_ops.frequency_encode(points, 1),
        }

    def _loss(self, points, directions, t_starts, t_ends, packed_info, target):
        encoded = self.encode(points, directions)
        # Widths 4, 9 and 9.
        features = tf.concat(
            [encoded["hash"], encoded["harmonics"], encoded["frequencies"]], axis=1
        )
        out = metal_ops.fused_matmul(features, self.weights, bias=tf.ones([4]))
        rendered = metal_ops.volume_render(
            tf.nn.softplus(out[:, 0]),
            tf.sigmoid(out[:, 1:]),
            t_starts,
            t_ends,
            packed_info=packed_info,
            background=tf.ones([3]),
        )
        spread = metal_ops.distortion_loss(
            tf.nn.softplus(out[:, 0]), t_starts, t_ends, packed_info=packed_info
        )
        errors = metal_ops.robust_loss(rendered[0], targets=target)
        return tf.reduce_mean(errors) + 0.01 * tf.reduce_mean(spread), rendered

    @tf.function(
        input_signature=[
            *[tf.TensorSpec([None, 3])] * 2,
            *[tf.TensorSpec([None])] * 2,
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec([None, 3]),
        ]
    )
    def train(self, points, directions, t_starts, t_ends, packed_info, target):
        with tf.GradientTape() as tape:
            loss, rendered = self._loss(points, directions, t_starts, t_ends, packed_info, target)
        gradient = tape.gradient(loss, self.table)
        metal_ops.fused_adam(
            self.table, self.m, self.v, gradient, step=tf.constant(1), learning_rate=0.1
        )
        return {"loss": loss, "rgb": rendered[0], "table": self.table.read_value()}


def keras_model() -> keras.Model:
    """Layer, losses and optimizer of the library, after two steps of training."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input([3]),
            metal_ops.layers.HashEncoding(**GRID, seed=1, name="encoding"),
            keras.layers.Dense(3, name="dense"),
        ]
    )
    model.compile(
        optimizer=metal_ops.optimizers.Adam(learning_rate=0.01, skip_zero_rows=True),
        loss=metal_ops.losses.RobustLoss(),
    )
    data = inputs()
    colours = np.repeat(data["target"], 4, axis=0)
    model.fit(data["points"], colours, batch_size=6, epochs=1, shuffle=False, verbose=0)
    return model


def checkpointed() -> tuple[tf.train.Checkpoint, tf.Variable, Any]:
    """A variable, an optimizer with a step behind it, and an occupancy grid."""
    variable = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    optimizer = metal_ops.optimizers.Adam(learning_rate=0.5)
    optimizer.build([variable])
    occupancy = metal_ops.OccupancyGrid(
        np.array([[0, 0, 0], [1, 1, 1]], np.float32), resolution=4, threshold=0.5
    )
    return tf.train.Checkpoint(x=variable, optimizer=optimizer, grid=occupancy), variable, optimizer


def nerf_trainer() -> Trainer:
    """The smallest run of the NeRF program."""
    scene = procedural_scene(size=16, train_views=3, test_views=1, supersample=1)
    model = ModelConfig(
        n_levels=1, log2_hashmap_size=4, base_resolution=2, finest_resolution=2, density_width=4,
        geometry_features=2, colour_width=4,
    )  # fmt: skip
    train = TrainConfig(
        seconds=None, steps=4, target_samples=256, occupancy_resolution=4, samples_per_diagonal=16
    )
    return Trainer(scene, model, train)


def main() -> int:
    folder = HERE / metal_ops.__version__
    if folder.exists():
        print(f"{folder} exists; files of a version are made once.", file=sys.stderr)
        return 1
    folder.mkdir()
    field, data = Field(), inputs()
    options = tf.saved_model.SaveOptions(save_debug_info=False)
    tf.saved_model.save(field, str(folder / "saved_model"), options=options)
    expected = {
        f"encode/{k}": v for k, v in field.encode(data["points"], data["directions"]).items()
    }
    expected |= {f"train/{k}": v for k, v in field.train(**data).items()}

    model = keras_model()
    model.save(folder / "model.keras")
    expected["keras"] = model(data["points"])
    expected["keras/momentum"] = model.optimizer.variables[2]

    checkpoint, variable, optimizer = checkpointed()
    optimizer.apply([tf.ones_like(variable)], [variable])
    checkpoint.grid.update(lambda points: points[:, 0], seed=[1, 2], every_cell=True)
    checkpoint.write(str(folder / "checkpoint"))
    expected["checkpoint"] = variable.numpy()
    expected["checkpoint/bits"] = checkpoint.grid.bits.numpy()
    optimizer.apply([tf.ones_like(variable)], [variable])
    expected["checkpoint/next step"] = variable.numpy()

    trainer = nerf_trainer()
    while not trainer.done:
        trainer.train_step()
    trainer.save(folder / "nerf.npz", {"data": None, "downscale": 1, "size": 16})
    expected["nerf"] = trainer.renderer()(trainer.scene.test.cameras, 0).colour
    np.savez_compressed(folder / "expected.npz", **{k: np.asarray(v) for k, v in expected.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
