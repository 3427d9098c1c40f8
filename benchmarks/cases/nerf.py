"""The NeRF program on the library's ops against the same program from stock TensorFlow ops: a step, and a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks.registry import Case, Contender, Context, Results, register, timed
from metal_ops.nerf.config import BACKENDS, ModelConfig, TrainConfig
from metal_ops.nerf.evaluate import Renderer
from metal_ops.nerf.model import RadianceField, backend
from metal_ops.nerf.rays import march, middles
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.space import Space
from metal_ops.nerf.train import Trainer
from metal_ops.ops.ray_march import RaySamples

RAYS, SAMPLES = 1024, 64
NAMES = {"fused": "metal_ops", "composite": "TensorFlow, stock ops"}
# instant-ngp's table of 2^19 rows, and the program's default, which is quicker to learn at 100 pixels.
TABLES = {"2^19 rows": 19, "2^16 rows": 16}
UNIT_CUBE = np.array([[0.0] * 3, [1.0] * 3], np.float32)


def rays() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Rays that cross the unit cube from face to face, 64 steps each, and the colours they should see."""
    random = np.random.default_rng(0)
    origins = random.random((RAYS, 3), np.float32)
    directions = np.zeros_like(origins)
    axes = random.integers(0, 3, RAYS)
    origins[np.arange(RAYS), axes] = -1.0
    directions[np.arange(RAYS), axes] = 1.0
    return (
        tf.constant(origins),
        tf.constant(directions),
        tf.constant(random.random((RAYS, 3), np.float32)),
    )


def step_of(
    name: str, log2_hashmap_size: int, xla: bool = False
) -> tuple[Callable[[], Any], Callable[[], Results]]:
    """A training step from rays to updated weights, and its first gradients.

    With `xla`, all behind the marching is compiled: how many samples come out of it, XLA has to be told.
    """
    config = ModelConfig(backend=name, log2_hashmap_size=log2_hashmap_size, finest_resolution=512)
    field = RadianceField(config)
    # As after some training: with the initial table all densities are 1, and all colours grey.
    field.table.assign(field.table * 1e3)
    ops, space = backend(name), Space(UNIT_CUBE)
    grid = metal_ops.OccupancyGrid(UNIT_CUBE, 64)
    variables = list(field.trainable_variables)
    optimizer = ops.Adam(learning_rate=1e-3, beta_1=0.9, beta_2=0.99, epsilon=1e-15)
    optimizer.build(variables)
    origins, directions, target = rays()

    def behind(samples: RaySamples) -> tuple[tf.Tensor, list[tf.Tensor]]:
        points = space.along(origins, directions, samples.ray_indices, middles(samples))
        encoded = tf.gather(field.encode_directions(directions), samples.ray_indices)
        with tf.GradientTape() as tape:
            density, features = field.geometry(points)
            colour = field.colour(features, encoded)
            rendering = ops.volume_render(density, colour, samples, tf.ones([3]))
            loss = tf.reduce_mean(tf.square(rendering.rgb - target))
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    def update(samples: RaySamples) -> tf.Tensor:
        loss, found = behind(samples)
        optimizer.apply(found, variables)
        return loss

    compiled = partial(tf.function, autograph=False, jit_compile=True) if xla else lambda f: f
    behind_it, update_it = compiled(behind), compiled(update)

    def marched() -> RaySamples:
        samples = march(ops, origins, directions, space, grid, 1.0 / SAMPLES)
        # Fails where it is another number.
        count = RAYS * SAMPLES
        shapes = RaySamples([count], [count], [count], [RAYS, 2])
        return RaySamples(*map(tf.ensure_shape, samples, shapes))

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        return update_it(marched())

    loss, first = tf.function(lambda: behind_it(marched()), autograph=False)()
    results = {"loss": loss.numpy().reshape(1)}
    results |= {v.name: g.numpy() for v, g in zip(variables, first, strict=True)}
    return (lambda: step().numpy()), (lambda: results)


def steps(log2_hashmap_size: int, context: Context) -> list[Contender]:
    del context
    made = {NAMES[name]: step_of(name, log2_hashmap_size) for name in BACKENDS}
    made["TensorFlow, stock ops, XLA"] = step_of("composite", log2_hashmap_size, xla=True)
    return [Contender(name, timed(run), results) for name, (run, results) in made.items()]


def views(context: Context) -> list[Contender]:
    """A held-out view of the built-in scene, 100x100 pixels, after 1000 steps of training."""
    del context
    scene = procedural_scene(size=100, train_views=32, test_views=3, supersample=1)
    trainer = Trainer(scene, ModelConfig(), TrainConfig(seconds=None, steps=1000))
    while not trainer.done:
        trainer.train_step()

    def contender(name: str) -> Contender:
        field = trainer.field.with_backend(name)
        renderer = Renderer(field, trainer.occupancy, trainer.scene.space, trainer.march_step)

        def render() -> np.ndarray:
            return renderer(scene.test.cameras, 0).colour

        return Contender(NAMES[name], timed(render), lambda: {"colour": render()})

    return [contender(name) for name in BACKENDS]


for _label, _log2 in TABLES.items():
    register(
        Case(
            group="nerf",
            name=f"nerf-step-2e{_log2}",
            title=f"NeRF: a training step of {RAYS} rays x {SAMPLES} samples, hash table of {_label}",
            contenders=partial(steps, _log2),
            units=RAYS * SAMPLES,
            unit="samples",
            in_quick=_log2 == 19,
            # Sums of 65536 float32 gradients, in another order.
            tolerance=2e-3,
        )
    )
register(
    Case(
        group="nerf",
        name="nerf-view",
        title="NeRF: rendering a view of 100x100 pixels, after 1000 steps of training",
        contenders=views,
        units=100 * 100,
        unit="pixels",
        # A sample on a cell's face may be in one picture only.
        tolerance=5e-3,
    )
)
