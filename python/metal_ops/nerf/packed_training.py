"""The training step on a GPU in which nothing waits, and looks at the occupancy grid, with the parts of packed.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import OccupancyGrid, raw_ops

from .launches import HOST, Graph, Launches, Numbers, Sizes, always
from .packed import RAYS_A_GROUP, PackedField, Sampler, march_words, set_seed
from .packed_exchange import PackedExchange, PackedGradients
from .space import Space

_SUM_THREADS = 256  # PACKED_SUM_THREADS of packed_steps.metal
_SUMS = 256  # of cells, by as many threadgroups


class StepTotals(NamedTuple):
    """The numbers that a step left on the device; reading them waits.

    Attributes:
      loss: float32 [], mean squared error.
      marched: uint32 [2], slots that were taken, and that would have been.
      kept: uint32 [2], the same for the samples that light reaches.
    """

    loss: tf.Tensor
    marched: tf.Tensor
    kept: tf.Tensor


class PackedTraining:
    """The training step.

    Args:
      packed: The field that is trained.
      occupancy: The grid of empty cells.
      space: Where it is.
      step: Length of a marching step, world units.
      hidden: Less light than this reaches a sample that is left out.
      pixels: uint8 [N, 4], all training pixels.
      useful: int64 [U], the pixels that are drawn; None for all.
      poses: float32 [V, 3, 4].
      intrinsics: float32 [V, 4].
      size: Width and height of a picture.
      background: The colour behind the pixels; None for random colours.
      apply: Takes gradients, the variables that they are of, the step's number, 1 for the first, and the learning rate.
      exchange: Between the workers of a run, if there are several.
    """

    def __init__(
        self,
        packed: PackedField,
        occupancy: OccupancyGrid,
        space: Space,
        step: float,
        hidden: float,
        pixels: tf.Tensor,
        useful: tf.Tensor | None,
        poses: tf.Tensor,
        intrinsics: tf.Tensor,
        size: tuple[int, int],
        background: Sequence[float] | None,
        apply: Callable[[list[tf.Tensor], list[tf.Variable], tf.Tensor, tf.Tensor], None],
        exchange: PackedExchange | None = None,
    ) -> None:
        self._exchange = exchange
        self._rank = 0 if exchange is None else exchange.workers.rank
        self._march = march_words(space, occupancy, step, (0, 0))
        draw = np.zeros([12], np.int32)
        n_pixels = int(pixels.shape[0]) if useful is None else int(useful.shape[0])
        draw[2:7] = *size, n_pixels, useful is not None, background is None
        draw.view(np.float32)[8:11] = background or (0.0, 0.0, 0.0)
        self._draw = draw
        scene = {
            "pixels": pixels,
            "useful": tf.zeros([0], tf.int64) if useful is None else useful,
            "poses": poses,
            "intrinsics": intrinsics,
        }

        def step_of(
            run: Launches, words: tf.Tensor, floats: tf.Tensor, own: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            sampler = Sampler(packed, occupancy, run, hidden)
            gradients, found = _step(sampler, scene, words, floats)
            with tf.device(HOST):
                number, rate = words[31], floats[1]

            def matrices() -> list[tf.Tensor]:
                return _matrices(run, packed, gradients)

            if exchange is None:
                apply(matrices(), packed.variables(), number, rate)
                return found
            means, *numbers = exchange(run, gradients, matrices, found, number, own)
            apply(means, packed.variables(), number, rate)
            return tuple(numbers)

        of_two = tf.TensorSpec([2], tf.float32)
        self._graph = Graph(step_of, tf.TensorSpec([32], tf.int32), of_two, of_two)

    def __call__(self, sizes: Sizes, seed: int, step: int, learning_rate: float) -> StepTotals:
        """Step number `step`, from 0; it is under way when this returns."""
        with tf.device(HOST):
            own = tf.zeros([2])
        return StepTotals(*self._run(sizes, seed, step, learning_rate, own))

    def together(
        self,
        sizes: Sizes,
        seed: int,
        step: int,
        learning_rate: float,
        own: tf.Tensor,
        read: bool,
    ) -> tuple[tf.Tensor, Any]:
        """A step of all workers, for `Workers.step`: its numbers are those of `PackedExchange`."""
        assert self._exchange is not None
        numbers, *cost = self._run(sizes, seed, step, learning_rate, own)
        if cost:
            return numbers, cost[0]
        if read:
            self._exchange.workers.barrier()  # hears at once of a death; a device would wait long
        return numbers, [self._exchange.sent]

    def _run(
        self, sizes: Sizes, seed: int, step: int, learning_rate: float, own: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        # Rays have the numbers that they would have in one process with those of all workers.
        first_ray = self._rank * sizes.rays
        self._draw[0:2], self._draw[7] = (seed, step), first_ray
        # Another stream of numbers than the pixels'.
        set_seed(self._march, (seed ^ 0x55555555, step), first_ray)
        words = np.concatenate([self._draw, self._march, np.asarray([*sizes, step + 1], np.int32)])
        with tf.device(HOST):
            floats = tf.constant(np.asarray([1 / sizes.rays, learning_rate], np.float32))
            arguments = tf.constant(words), floats
        return self._graph(sizes, *arguments, own)


def _step(
    sampler: Sampler, scene: Mapping[str, tf.Tensor], words: tf.Tensor, floats: tf.Tensor
) -> tuple[PackedGradients, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """The gradients of a step, and the numbers of `StepTotals`."""
    run, packed = sampler.run, sampler.packed
    with tf.device(HOST):
        draw, march = words[:12], words[12:28]
        n_rays, slots, kept = words[28], words[29], words[30]
        share = floats[0]
    origins, directions, target, background = run(
        "packed_draw",
        lambda s: [s.rays],
        scene,
        {"params": draw},
        [
            (name, lambda s: [s.rays, 3], tf.float32)
            for name in ("origins", "directions", "target", "background")
        ],
        threadgroup=RAYS_A_GROUP,
    )
    weights, colour_weights = packed.density_weights(), packed.colour_weights()
    samples, marched = sampler.samples(origins, directions, march, n_rays, slots, kept, weights)
    inputs = sampler.colour_inputs(samples, directions)
    colours = packed.colour(inputs, colour_weights)
    # Float16 holds gradients of a sum over rays; of their mean it would lose the small ones. The mean over rays and
    # channels is taken where they are float32.
    losses, d_raw, d_colours = run(
        f"packed_loss_{packed.type}",
        lambda s: [max(s.rays, s.kept)],
        {
            "features": samples.features,
            "colours": colours,
            "places": samples.places,
            "spans": samples.spans,
            "totals": samples.totals,
            "target": target,
            "background": background,
        },
        {
            "line": np.uint32(packed.n_features),
            "scale": np.float32(1 / 3),
            "n_rays": n_rays,
            "capacity": kept,
        },
        [
            ("losses", lambda s: [s.rays], tf.float32),
            ("d_raw", lambda s: [s.kept], tf.float32),
            ("d_colours", lambda s: [s.kept, 3], packed.dtype),
        ],
        threadgroup=RAYS_A_GROUP,
    )
    d_inputs, d_colour_weights = packed.colour_gradient(d_colours, inputs, colour_weights)
    d_features = run(
        f"packed_feature_gradient_{packed.type}",
        lambda s: [packed.n_features, s.kept],
        {"d_inputs": d_inputs, "d_raw": d_raw},
        {"n_features": np.uint32(packed.n_features)},
        [("d_features", lambda s: [s.kept, packed.n_features], packed.dtype)],
    )
    d_encoded, d_weights = packed.density_gradient(d_features, samples.encoded, weights)
    d_encoded = _scaled(run, packed, d_encoded, share, lambda s: [s.kept, packed.n_encoded])
    gradients = PackedGradients(
        packed.table_gradient(d_encoded, samples.points), (d_weights, d_colour_weights), share
    )
    return gradients, (tf.reduce_mean(losses) / 3.0, marched, samples.totals)


def _scaled(
    run: Launches,
    packed: PackedField,
    values: tf.Tensor,
    by: tf.Tensor,
    shape: Numbers,
    first: int = 0,
) -> tf.Tensor:
    return run(
        f"packed_scaled_{packed.type}",
        lambda s: [int(np.prod(shape(s)))],
        {"values": values},
        {"by": by, "first": np.uint32(first)},
        [("scaled", shape, tf.float32)],
    )


def _matrices(run: Launches, packed: PackedField, gradients: PackedGradients) -> list[tf.Tensor]:
    """Those of the field's variables, in their order."""
    found = [gradients.table]
    for flat, matrices in zip(
        gradients.networks,
        (packed.field.density_matrices, packed.field.colour_matrices),
        strict=True,
    ):
        first = 0
        for matrix in matrices:
            dims = [int(size) for size in matrix.shape]
            found.append(_scaled(run, packed, flat, gradients.share, always(dims), first))
            first += dims[0] * dims[1]
    return found


def occupied_bits(run: Launches, occupancy: OccupancyGrid) -> tf.Tensor:
    """The bits that `OccupancyGrid.set_bits` sets, by shaders that hand nothing to the host."""
    sums = run(
        "packed_cell_sums",
        lambda _: [_SUM_THREADS * _SUMS],
        {"densities": tf.reshape(occupancy.density, [-1])},
        {"n_cells": np.uint32(occupancy.n_cells)},
        [("sums", lambda _: [_SUMS, 2], tf.float32)],
        threadgroup=_SUM_THREADS,
    )
    threshold = run(
        "packed_threshold",
        lambda _: [32],
        {"sums": sums},
        {"n_sums": np.uint32(_SUMS), "most": np.float32(occupancy.threshold)},
        [("threshold", lambda _: [1], tf.float32)],
        threadgroup=32,
    )
    return raw_ops.pack_occupancy(occupancy.density, tf.reshape(threshold, []))


class PackedOccupancy:
    """Looks at the cells of an occupancy grid, as `OccupancyGrid.update` does where a wait does no harm.

    Args:
      packed: The field that is looked at.
      occupancy: The grid whose densities and bits change; of one level.
      n_looks: Cells that are looked at, half of them occupied ones.
    """

    def __init__(self, packed: PackedField, occupancy: OccupancyGrid, n_looks: int) -> None:
        def look(run: Launches, seed: tf.Tensor) -> None:
            old = tf.reshape(occupancy.density, [-1])
            cells, points = run(
                "packed_cells",
                lambda _: [n_looks],
                {"densities": old, "occupancy": occupancy.bits},
                {"seed": seed, "resolution": np.uint32(occupancy.resolution)},
                [
                    ("cells", lambda _: [n_looks], tf.int32),
                    ("points", lambda _: [n_looks, 3], tf.float32),
                ],
            )
            _, features = packed.geometry(points, packed.density_weights())
            faded = run(
                "packed_faded",
                lambda _: [occupancy.n_cells],
                {"densities": old},
                {"decay": np.float32(occupancy.decay)},
                [("faded", lambda _: [occupancy.n_cells], tf.float32)],
            )
            seen = run(
                f"packed_seen_{packed.type}",
                lambda _: [n_looks],
                {"features": features, "cells": cells, "faded": faded},
                {"line": np.uint32(packed.n_features)},
                [("densities", lambda _: [occupancy.n_cells], tf.float32)],
                begins_as=2,
            )
            occupancy.density.assign(tf.reshape(seen, occupancy.density.shape))
            occupancy.bits.assign(occupied_bits(run, occupancy))

        self._graph = Graph(look, tf.TensorSpec([2], tf.int32))

    def __call__(self, seed: int, step: int) -> None:
        """A look; it is under way when this returns."""
        with tf.device(HOST):
            words = tf.constant(np.asarray([seed, step], np.int32))
        self._graph(Sizes(1, 1, 1), words)
