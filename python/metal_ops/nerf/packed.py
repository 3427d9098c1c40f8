"""Training steps and pictures on a GPU in which nothing waits: samples lie in slots whose number is known beforehand.

The general path (train.py, evaluate.py) asks the device how many samples there are before it can go on, several times a
step, and describes rays in some forty stock ops. Here the shaders of kernels/nerf/packed_steps.metal draw rays, march
them, drop what is hidden, render, and take the loss and its gradient; what finds no room is left out, and the host
learns of that later. Encoding, networks and optimizer are the library's ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import HashGrid, OccupancyGrid, hash_encode, raw_ops
from metal_ops import device as metal_device

from .model import RadianceField
from .space import Space

_HOST = "/device:CPU:0"
_WIDTHS = (16, 32, 64, 128)
_MOST_COLUMNS = 128
_DIRECTION = 16  # spherical harmonics of degree 4
_SCAN_THREADS = 1024
# A core has all of a threadgroup, and there are few rays: in small groups every core of a GPU has some.
_RAYS_A_GROUP = 64
# Light that still reaches a sample of a picture: less does not show in 8 bits.
_INVISIBLE = 1e-4


class Sizes(NamedTuple):
    """What launches depend on.

    Attributes:
      rays: Of a step or a picture.
      slots: For samples as they are marched.
      kept: For those that light reaches.
    """

    rays: int
    slots: int
    kept: int


_Numbers = Callable[[Sizes], Sequence[int]]
_Output = tuple[str, _Numbers, tf.DType]


def can_pack(field: RadianceField, space: Space) -> bool:
    """Whether a field of this configuration can be trained and shown here; the general path can do all."""
    config = field.config
    return (
        config.encoding == "hash"
        and config.backend == "fused"
        and config.density == "exp"
        and config.density_width in _WIDTHS
        and config.colour_width in _WIDTHS
        and config.geometry_features % 4 == 0
        and config.geometry_features + _DIRECTION <= _MOST_COLUMNS
        and config.n_levels * config.n_features_per_level <= _MOST_COLUMNS
        and config.n_levels * config.n_features_per_level % 2 == 0
        and not space.contracted
    )


def has_own_memory(device: str) -> bool:
    """Whether TensorFlow's device of that name is a Metal device with memory of its own: a GPU on Linux."""
    if tf.DeviceSpec.from_string(device).device_type != "GPU":
        return False
    return any(found.has_own_memory for found in metal_device.list())


def _always(dims: list[int]) -> _Numbers:
    return lambda _: dims


class _Launches:
    """The launches of a graph. Their sizes change from call to call: they come as one vector in host memory."""

    def __init__(self, numbers: tf.Tensor) -> None:
        self._numbers = numbers
        self._parts: list[_Numbers] = []
        self._length = 0

    def __call__(
        self,
        function: str,
        grid: _Numbers,
        inputs: Mapping[str, tf.Tensor],
        params: Mapping[str, Any],
        outputs: Sequence[_Output],
        threadgroup: int = 0,
        begins_as: int = -1,
    ) -> Any:
        """Runs a shader of this library, in threadgroups as large as it allows if 0; returns its outputs.

        The only output of a shader that adds to what is there begins as input number `begins_as`, which comes last.
        """
        group = [threadgroup, 1, 1] if threadgroup else [0, 0, 0]

        def part(sizes: Sizes) -> list[int]:
            sides = list(grid(sizes))
            numbers = sides + [1] * (3 - len(sides)) + group
            for _, shape, _ in outputs:
                dims = list(shape(sizes))
                numbers += [len(dims), *dims]
            return numbers

        begin = self._length
        self._length += len(part(Sizes(1, 1, 1)))
        self._parts.append(part)
        with tf.device(_HOST):
            launch = self._numbers[begin : self._length]
            values = [tf.convert_to_tensor(value) for value in params.values()]
        arguments = [f"{name}=input:{i}" for i, name in enumerate(inputs) if i != begins_as]
        arguments += [f"{name}=output:{i}" for i, (name, _, _) in enumerate(outputs)]
        arguments += [f"{name}=param:{i}" for i, name in enumerate(params)]
        results = raw_ops.metal_kernel(
            launch,
            list(inputs.values()),
            values,
            Tout=[dtype for _, _, dtype in outputs],
            source="",
            function=function,
            arguments=arguments,
            copied=[] if begins_as < 0 else [begins_as],
            name=function,
        )
        for result, (_, shape, _) in zip(results, outputs, strict=True):
            small, large = shape(Sizes(1, 1, 1)), shape(Sizes(2, 2, 2))
            result.set_shape([a if a == b else None for a, b in zip(small, large, strict=True)])
        return results[0] if len(results) == 1 else tuple(results)

    def numbers(self, sizes: Sizes) -> tf.Tensor:
        """The vector for a call."""
        with tf.device(_HOST):
            return tf.constant(
                np.asarray([n for part in self._parts for n in part(sizes)], np.int64)
            )


class _Graph:
    """A graph of launches, which is made at its first call.

    Args:
      body: Takes the launches and the tensors of a call.
      *signature: Of these tensors.
    """

    def __init__(self, body: Callable[..., Any], *signature: tf.TensorSpec) -> None:
        def traced(numbers: tf.Tensor, *tensors: tf.Tensor) -> Any:
            self._run = _Launches(numbers)
            return body(self._run, *tensors)

        self._function = tf.function(
            traced,
            input_signature=[tf.TensorSpec([None], tf.int64), *signature],
            autograph=False,
        )
        self._concrete: Any = None

    def __call__(self, sizes: Sizes, *tensors: tf.Tensor) -> Any:
        """Its work is under way when this returns."""
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function()
        return self._concrete(self._run.numbers(sizes), *tensors)


class _Samples(NamedTuple):
    """Samples in slots.

    Attributes:
      spans: int32 [R, 2], (first, count) of each ray; first is -1 for a ray that is left out.
      totals: uint32 [2], slots that are taken, and how many would have to be there.
      places: float32 [M, 2], middle and length along the ray.
      points: float32 [M, 3] in the unit cube.
      rays: int32 [M].
      encoded: [M, L * F], in the networks' dtype.
      features: [M, G].
    """

    spans: tf.Tensor
    totals: tf.Tensor
    places: tf.Tensor
    points: tf.Tensor
    rays: tf.Tensor
    encoded: tf.Tensor
    features: tf.Tensor


class PackedField:
    """A radiance field as fused networks.

    Args:
      field: Whose variables they are; `can_pack` says which fields fit.
      dtype: Of the networks, float16 or float32. Parameters and rendering are float32.
    """

    def __init__(self, field: RadianceField, dtype: tf.DType) -> None:
        assert field.grid is not None
        self.field, self.dtype = field, dtype
        self.grid: HashGrid = field.grid
        config = field.config
        self.type = "half" if dtype == tf.float16 else "float"
        self.n_encoded = self.grid.output_dim
        self.n_features = config.geometry_features
        self._density: dict[str, Any] = {
            "n_outputs": self.n_features,
            "n_neurons": config.density_width,
            "n_hidden_layers": 1,
        }
        self._colour: dict[str, Any] = {
            "n_outputs": 3,
            "n_neurons": config.colour_width,
            "n_hidden_layers": 2,
            "output_activation": "sigmoid",
        }

    def _weights(self, matrices: Sequence[tf.Variable]) -> tf.Tensor:
        flat = tf.concat([tf.reshape(matrix, [-1]) for matrix in matrices], 0)
        return tf.cast(flat, self.dtype)

    def density_weights(self) -> tf.Tensor:
        """All matrices of the density network, one after the other."""
        return self._weights(self.field.density_matrices)

    def colour_weights(self) -> tf.Tensor:
        """All matrices of the colour network, one after the other."""
        return self._weights(self.field.colour_matrices)

    def geometry(self, points: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoding [M, L * F] of points of the unit cube, and the features [M, G]."""
        encoded = hash_encode(points, tf.cast(self.field.table, self.dtype), self.grid)
        return encoded, raw_ops.fused_mlp(encoded, weights, **self._density)

    def density(self, points: tf.Tensor) -> tf.Tensor:
        """Density float32 [M] at points float32 [M, 3] of the unit cube."""
        _, features = self.geometry(points, self.density_weights())
        return tf.exp(tf.clip_by_value(tf.cast(features[:, 0], tf.float32), -15.0, 11.0))

    def colour(self, inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Colours [M, 3] from the colour network's inputs."""
        return raw_ops.fused_mlp(inputs, weights, **self._colour)

    def colour_gradient(
        self, d_colours: tf.Tensor, inputs: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gradients of the colour network's inputs and weights."""
        return raw_ops.fused_mlp_grad(d_colours, inputs, weights, **self._colour)

    def density_gradient(
        self, d_features: tf.Tensor, encoded: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gradients of the encoding and of the density network's weights."""
        return raw_ops.fused_mlp_grad(d_features, encoded, weights, **self._density)

    def table_gradient(self, d_encoded: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
        """Gradient of the table, float32."""
        return raw_ops.hash_encode_grad(
            d_encoded,
            points,
            self.field.table,
            tf.constant(self.grid.offsets),
            **self.grid.op_attributes,
        )


def march_words(
    space: Space, occupancy: OccupancyGrid, step: float, seed: Sequence[int] | None
) -> np.ndarray:
    """RayMarchParams of kernels/ray_march/ray_march_params.h: [16] int32."""
    lower, upper = occupancy.aabb[:3], occupancy.aabb[3:]
    words = np.zeros([16], np.int32)
    floats = words.view(np.float32)
    floats[0:3] = lower
    floats[3:6] = np.float32(1) / (upper - lower)
    floats[6], floats[7] = step, space.cone_angle
    words[8], words[9] = occupancy.resolution, occupancy.n_levels
    words[10] = (occupancy.n_cells + 7) // 8
    words[11] = 1 << 15  # samples of a ray at most
    if seed is not None:
        words[12:14] = np.asarray(seed, np.int64).astype(np.int32)
        words[14] = 1
    return words


class _Sampler:
    """What training and pictures have in common: from rays to samples and their colours."""

    def __init__(
        self, packed: PackedField, occupancy: OccupancyGrid, run: _Launches, hidden: float
    ) -> None:
        self.packed, self.occupancy, self.run, self.hidden = packed, occupancy, run, hidden

    def spans(
        self, counts: tf.Tensor, n_rays: tf.Tensor, capacity: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Rays' spans in so many slots, and the totals."""
        return self.run(
            "packed_spans",
            lambda _: [_SCAN_THREADS],
            {"counts": counts},
            {"n_rays": n_rays, "capacity": capacity},
            [
                ("spans", lambda s: [s.rays, 2], tf.int32),
                ("totals", lambda _: [2], tf.uint32),
            ],
            threadgroup=_SCAN_THREADS,
        )

    def samples(
        self,
        origins: tf.Tensor,
        directions: tf.Tensor,
        march: tf.Tensor,
        n_rays: tf.Tensor,
        slots: tf.Tensor,
        kept: tf.Tensor,
        weights: tf.Tensor,
    ) -> tuple[_Samples, tf.Tensor]:
        """The samples that light reaches, and the totals before those that are hidden were dropped."""
        run, packed = self.run, self.packed
        rays = {"origins": origins, "directions": directions, "occupancy": self.occupancy.bits}
        counts = run(
            "packed_count",
            lambda s: [s.rays],
            rays,
            {"params": march},
            [("counts", lambda s: [s.rays], tf.uint32)],
            threadgroup=_RAYS_A_GROUP,
        )
        spans, totals = self.spans(counts, n_rays, slots)
        places, of_rays = run(
            "packed_write",
            lambda s: [max(s.rays, s.slots)],
            {**rays, "spans": spans, "totals": totals},
            {"params": march, "n_rays": n_rays, "capacity": slots},
            [
                ("places", lambda s: [s.slots, 2], tf.float32),
                ("rays", lambda s: [s.slots], tf.int32),
            ],
            threadgroup=_RAYS_A_GROUP,
        )
        points = run(
            "packed_points",
            lambda s: [s.slots],
            {"origins": origins, "directions": directions, "rays": of_rays, "places": places},
            {"params": march},
            [("points", lambda s: [s.slots, 3], tf.float32)],
        )
        encoded, features = packed.geometry(points, weights)
        counts = run(
            f"packed_reached_{packed.type}",
            lambda s: [s.rays],
            {"features": features, "places": places, "spans": spans},
            {"line": np.uint32(packed.n_features), "hidden": np.float32(self.hidden)},
            [("counts", lambda s: [s.rays], tf.uint32)],
            threadgroup=_RAYS_A_GROUP,
        )
        kept_spans, kept_totals = self.spans(counts, n_rays, kept)
        sources, kept_rays = run(
            "packed_keep",
            lambda s: [max(s.rays, s.kept)],
            {"from": spans, "spans": kept_spans, "totals": kept_totals},
            {"n_rays": n_rays, "capacity": kept},
            [
                ("sources", lambda s: [s.kept], tf.int32),
                ("rays", lambda s: [s.kept], tf.int32),
            ],
            threadgroup=_RAYS_A_GROUP,
        )
        n_encoded, n_features = packed.n_encoded, packed.n_features
        words = n_encoded // 2 + n_features // 2 + 4
        encoded, features, places, points = run(
            f"packed_gather_{packed.type}",
            lambda s: [words, s.kept],
            {
                "sources": sources,
                "encoded": encoded,
                "features": features,
                "places": places,
                "points": points,
            },
            {"n_encoded": np.uint32(n_encoded // 2), "n_features": np.uint32(n_features // 2)},
            [
                ("kept_encoded", lambda s: [s.kept, n_encoded], packed.dtype),
                ("kept_features", lambda s: [s.kept, n_features], packed.dtype),
                ("kept_places", lambda s: [s.kept, 2], tf.float32),
                ("kept_points", lambda s: [s.kept, 3], tf.float32),
            ],
        )
        return _Samples(
            kept_spans, kept_totals, places, points, kept_rays, encoded, features
        ), totals

    def colour_inputs(self, samples: _Samples, directions: tf.Tensor) -> tf.Tensor:
        """Features and encoded directions [M, G + 16]."""
        packed = self.packed
        return self.run(
            f"packed_colour_inputs_{packed.type}",
            lambda s: [s.kept],
            {"features": samples.features, "directions": directions, "rays": samples.rays},
            {"n_features": np.uint32(packed.n_features)},
            [("inputs", lambda s: [s.kept, packed.n_features + _DIRECTION], packed.dtype)],
        )


class StepTotals(NamedTuple):
    """What a step left on the device; reading it waits.

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
      packed: What is trained.
      occupancy: What is empty.
      space: Where it is.
      step: Length of a marching step, world units.
      hidden: Less light than this reaches a sample that is left out.
      pixels: uint8 [N, 4], all training pixels.
      useful: int64 [U], the pixels that are drawn; None for all.
      poses: float32 [V, 3, 4].
      intrinsics: float32 [V, 4].
      size: Width and height of a picture.
      background: What is behind the pixels; None for random colours.
      apply: Takes gradients, the variables that they are of, the step's number, 1 for the first, and the learning rate.
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
    ) -> None:
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
            run: _Launches, words: tf.Tensor, floats: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return _step(_Sampler(packed, occupancy, run, hidden), scene, words, floats, apply)

        self._graph = _Graph(step_of, tf.TensorSpec([32], tf.int32), tf.TensorSpec([2], tf.float32))

    def __call__(self, sizes: Sizes, seed: int, step: int, learning_rate: float) -> StepTotals:
        """Step number `step`, from 0; it is under way when this returns."""
        self._draw[0:2] = seed, step
        # Another stream of numbers than the pixels'.
        self._march[12:14] = seed ^ 0x55555555, step
        words = np.concatenate([self._draw, self._march, np.asarray([*sizes, step + 1], np.int32)])
        with tf.device(_HOST):
            floats = tf.constant(np.asarray([1 / sizes.rays, learning_rate], np.float32))
            arguments = tf.constant(words), floats
        return StepTotals(*self._graph(sizes, *arguments))


def _step(
    sampler: _Sampler,
    scene: Mapping[str, tf.Tensor],
    words: tf.Tensor,
    floats: tf.Tensor,
    apply: Callable[[list[tf.Tensor], list[tf.Variable], tf.Tensor, tf.Tensor], None],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    run, packed = sampler.run, sampler.packed
    with tf.device(_HOST):
        draw, march = words[:12], words[12:28]
        n_rays, slots, kept = words[28], words[29], words[30]
        number, share, rate = words[31], floats[0], floats[1]
    origins, directions, target, background = run(
        "packed_draw",
        lambda s: [s.rays],
        scene,
        {"params": draw},
        [
            (name, lambda s: [s.rays, 3], tf.float32)
            for name in ("origins", "directions", "target", "background")
        ],
        threadgroup=_RAYS_A_GROUP,
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
        threadgroup=_RAYS_A_GROUP,
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

    def mean(values: tf.Tensor, shape: _Numbers, first: int = 0) -> tf.Tensor:
        return run(
            f"packed_scaled_{packed.type}",
            lambda s: [int(np.prod(shape(s)))],
            {"values": values},
            {"by": share, "first": np.uint32(first)},
            [("scaled", shape, tf.float32)],
        )

    d_table = packed.table_gradient(
        mean(d_encoded, lambda s: [s.kept, packed.n_encoded]), samples.points
    )
    gradients, variables = [d_table], [packed.field.table]
    for flat, matrices in (
        (d_weights, packed.field.density_matrices),
        (d_colour_weights, packed.field.colour_matrices),
    ):
        first = 0
        for matrix in matrices:
            dims = [int(size) for size in matrix.shape]
            gradients.append(mean(flat, _always(dims), first))
            variables.append(matrix)
            first += dims[0] * dims[1]
    apply(gradients, variables, number, rate)
    return tf.reduce_mean(losses) / 3.0, marched, samples.totals


class PackedOccupancy:
    """Looks at the cells of an occupancy grid, as `OccupancyGrid.update` does where nobody minds a wait.

    Args:
      packed: What is looked at.
      occupancy: Whose densities and bits change; of one level.
      n_looks: Cells that are looked at, half of them occupied ones.
    """

    def __init__(self, packed: PackedField, occupancy: OccupancyGrid, n_looks: int) -> None:
        def look(run: _Launches, seed: tf.Tensor) -> None:
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
            occupancy.set_bits()

        self._graph = _Graph(look, tf.TensorSpec([2], tf.int32))

    def __call__(self, seed: int, step: int) -> None:
        """A look; it is under way when this returns."""
        with tf.device(_HOST):
            words = tf.constant(np.asarray([seed, step], np.int32))
        self._graph(Sizes(1, 1, 1), words)


class PackedPictures:
    """Colour, opacity and distance of many rays at once.

    Args:
      packed: What is shown.
      occupancy: What is empty.
      space: Where it is.
      step: Length of a marching step, world units.
    """

    def __init__(
        self, packed: PackedField, occupancy: OccupancyGrid, space: Space, step: float
    ) -> None:
        self._march = march_words(space, occupancy, step, None)
        self._per_ray = np.asarray([16.0, 6.0])  # slots; what is there decides

        def show(
            run: _Launches, words: tf.Tensor, origins: tf.Tensor, directions: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            return _show(_Sampler(packed, occupancy, run, _INVISIBLE), words, origins, directions)

        rays = tf.TensorSpec([None, 3], tf.float32)
        self._graph = _Graph(show, tf.TensorSpec([19], tf.int32), rays, rays)

    def __call__(
        self, origins: tf.Tensor, directions: tf.Tensor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Colour on black [R, 3], opacity [R] and mean distance [R] of rays [R, 3]."""
        n_rays = int(origins.shape[0])
        while True:
            wanted = 4096 * np.ceil(1.08 * self._per_ray * n_rays / 4096 + 1)
            sizes = Sizes(n_rays, *(int(n) for n in wanted))
            words = np.concatenate([self._march, np.asarray(sizes, np.int32)])
            with tf.device(_HOST):
                words = tf.constant(words)
            *parts, marched, kept = self._graph(sizes, words, origins, directions)
            counts = np.stack([marched.numpy(), kept.numpy()]).astype(np.float64)
            fitted = min(1.0, sizes.slots / max(counts[0, 1], 1))
            # Some pictures, and parts of them, need more than others.
            found = np.maximum(counts[:, 1] / [1, fitted] / n_rays, 0.25)
            self._per_ray = np.maximum(found, 0.98 * self._per_ray)
            # What found no room has not been looked at.
            if counts[0, 1] <= sizes.slots and counts[1, 1] <= sizes.kept:
                return tuple(part.numpy() for part in parts)


def _show(
    sampler: _Sampler, words: tf.Tensor, origins: tf.Tensor, directions: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    run, packed = sampler.run, sampler.packed
    with tf.device(_HOST):
        march, n_rays, slots, kept = words[:16], words[16], words[17], words[18]
    samples, marched = sampler.samples(
        origins, directions, march, n_rays, slots, kept, packed.density_weights()
    )
    colours = packed.colour(sampler.colour_inputs(samples, directions), packed.colour_weights())
    rgb, opacity, depth = run(
        f"packed_composite_{packed.type}",
        lambda s: [s.rays],
        {
            "features": samples.features,
            "colours": colours,
            "places": samples.places,
            "spans": samples.spans,
        },
        {"line": np.uint32(packed.n_features)},
        [
            ("rgb", lambda s: [s.rays, 3], tf.float32),
            ("opacity", lambda s: [s.rays], tf.float32),
            ("depth", lambda s: [s.rays], tf.float32),
        ],
        threadgroup=_RAYS_A_GROUP,
    )
    return rgb, opacity, depth, marched, samples.totals
