"""ray_march against looking up every step of every ray with stock ops."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise, formulas, peers, ray_formulas
from benchmarks.registry import Case, Contender, Context, Results, register, timed

RAYS = 4096
# As many as the longest ray through the box has.
STEPS = 1024


def inputs() -> list[np.ndarray]:
    """Origins on a sphere around the box, directions to points in it, a shell of occupied cells, step numbers."""
    random = np.random.default_rng(0)
    origins = random.normal(size=(RAYS, 3))
    origins *= 3 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = random.uniform(-0.7, 0.7, (RAYS, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    axis = (np.arange(ray_formulas.RESOLUTION) + 0.5) / ray_formulas.RESOLUTION * 2 - 1
    radius = np.sqrt(sum(x * x for x in np.meshgrid(axis, axis, axis, indexing="ij")))
    occupied = (np.abs(radius - 0.6) < 0.05).reshape(-1)
    return [
        origins.astype(np.float32),
        directions.astype(np.float32),
        occupied.astype(np.int32),
        np.arange(STEPS, dtype=np.float32),
    ]


def every_step(origins: tf.Tensor, directions: tf.Tensor, occupied: tf.Tensor, steps: tf.Tensor):
    starts = ray_formulas.march(elementwise.TENSORFLOW, origins, directions, occupied, steps)
    return starts, tf.boolean_mask(starts, starts >= 0), tf.where(starts >= 0)


def contenders(context: Context) -> list[Contender]:
    arrays = inputs()
    origins, directions, occupied, steps = (tf.constant(array) for array in arrays)
    bits = tf.constant(np.packbits(arrays[2].astype(bool), bitorder="little")[None])

    @tf.function
    def march() -> metal_ops.RaySamples:
        return metal_ops.ray_march(
            origins,
            directions,
            bits,
            ray_formulas.AABB,
            resolution=ray_formulas.RESOLUTION,
            step=ray_formulas.STEP,
        )

    def on_a_grid() -> Results:
        samples = march()
        counts, starts = samples.packed_info.numpy()[:, 1], samples.t_starts.numpy()
        low, high = ((side - arrays[0]) / arrays[1] for side in (-1.0, 1.0))
        near = np.maximum(np.max(np.minimum(low, high), axis=1), 0)
        ray = np.repeat(np.arange(RAYS), counts)
        output = np.full((RAYS, STEPS), -1, np.float32)
        output[ray, np.round((starts - near[ray]) / ray_formulas.STEP).astype(int)] = starts
        return {"output": output}

    n_samples = len(march().t_starts)
    rows = [
        Contender(
            "metal_ops",
            timed(march),
            on_a_grid,
            f"{n_samples} samples come out; empty cells are skipped as a whole. Looking cells up, one after the other "
            "along a ray, is the limit, not memory.",
        )
    ]
    rows.append(elementwise.memory(context.stack, 6 * RAYS, 3 * n_samples + 2 * RAYS))
    composite = tf.function(every_step)
    rows.append(
        Contender(
            "TensorFlow, every step, then a mask",
            timed(lambda: composite(origins, directions, occupied, steps)),
            lambda: {"output": composite(origins, directions, occupied, steps)[0].numpy()},
        )
    )
    dense = partial(formulas.FORMULAS["march"], elementwise.TENSORFLOW)
    xla = elementwise.tensorflow(
        "TensorFlow, XLA", dense, arrays, (), incoming=None, jit_compile=True
    )
    unfinished = "every step and whether it counts, without packing those that do"
    xla.note = unfinished
    rows.append(xla)
    if context.peers:
        named = {f"a{i}": array for i, array in enumerate(arrays)}
        settings = {"formula": "march", "gradients": [], "calls": 1}
        jax = peers.start(context.stack, "jax", named, settings, "peer_formulas.py")
        rows.append(jax.contender("JAX, jit", "jit", f"{jax.version}: {unfinished}"))
        torch = peers.start(context.stack, "torch", named, settings, "peer_formulas.py")
        rows.append(torch.contender("PyTorch, eager", "eager", f"{torch.version}: {unfinished}"))
        rows.append(
            torch.contender("PyTorch, torch.compile", "compile", f"{torch.version}: {unfinished}")
        )
    return rows


register(
    Case(
        group="rays",
        name="rays-march",
        title=f"Marching {RAYS} rays through a grid of 128^3 cells, a shell of them occupied",
        contenders=contenders,
        units=RAYS,
        unit="rays",
        # A step on a face falls to either side of it.
        tolerance=1e-4,
        outliers=2e-3,
    )
)
