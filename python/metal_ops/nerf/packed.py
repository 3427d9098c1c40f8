"""Samples and pictures on a GPU for which nothing waits: samples lie in slots whose number is known beforehand.

The general path (train.py, evaluate.py) asks the device how many samples there are before it can go on, several times
per step, and describes rays in some forty stock ops. Here and in packed_training.py the shaders of
kernels/nerf/packed_steps.metal draw rays, march them, drop hidden samples, render, and take the loss and its gradient;
samples without room are left out, and the host learns of that later. Encoding, networks and optimizer are the library's
ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import HashGrid, OccupancyGrid, hash_encode, raw_ops
from metal_ops import device as metal_device

from .launches import HOST, Graph, Launches, Sizes
from .model import RadianceField
from .space import Space

_WIDTHS = (16, 32, 64, 128)
_MOST_COLUMNS = 128
_DIRECTION = 16  # spherical harmonics of degree 4
_SCAN_THREADS = 1024
# A core has all of a threadgroup, and there are few rays: in small groups every core of a GPU has some.
RAYS_A_GROUP = 64
_MARCHERS = 8  # of a ray: PACKED_MARCHERS of packed_steps.metal
# Light that still reaches a sample of a picture: less does not show in 8 bits.
_INVISIBLE = 1e-4


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


class Samples(NamedTuple):
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
      field: The field whose variables they are; `can_pack` says which fields fit.
      dtype: Dtype of the networks, float16 or float32. Parameters and rendering are float32.
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

    def variables(self) -> list[tf.Variable]:
        """The variables that a step changes: the table, and the networks' matrices in their order."""
        return [self.field.table, *self.field.density_matrices, *self.field.colour_matrices]

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


# RayMarchParams of kernels/ray_march/ray_march_params.h; a test compares them.
MARCH_PARAMS = np.dtype(
    [
        ("aabb_min", np.float32, 3),
        ("per_extent", np.float32, 3),
        ("step", np.float32),
        ("cone_angle", np.float32),
        ("resolution", np.int32),
        ("n_levels", np.int32),
        ("bytes_per_level", np.uint32),
        ("max_samples", np.uint32),
        ("seed", np.uint32, 2),
        ("stratified", np.uint32),
        ("first_ray", np.uint32),
    ]
)


def set_seed(words: np.ndarray, seed: Sequence[int], first_ray: int = 0) -> None:
    """Jitters a ray's steps, as `words` of `march_words` say, by two numbers and its own, from `first_ray` on."""
    params = words.view(MARCH_PARAMS)
    params["seed"], params["stratified"] = np.asarray(seed, np.int64).astype(np.uint32), 1
    params["first_ray"] = first_ray


def march_words(
    space: Space, occupancy: OccupancyGrid, step: float, seed: Sequence[int] | None
) -> np.ndarray:
    """`MARCH_PARAMS` as int32 [16]; without a seed there is no jitter."""
    lower, upper = occupancy.aabb[:3], occupancy.aabb[3:]
    params = np.zeros([], MARCH_PARAMS)
    params["aabb_min"], params["per_extent"] = lower, np.float32(1) / (upper - lower)
    params["step"], params["cone_angle"] = step, space.cone_angle
    params["resolution"], params["n_levels"] = occupancy.resolution, occupancy.n_levels
    params["bytes_per_level"] = (occupancy.n_cells + 7) // 8
    params["max_samples"] = 1 << 15
    words = params.reshape(1).view(np.int32)
    if seed is not None:
        set_seed(words, seed)
    return words


class Sampler:
    """Shared by training and pictures: from rays to samples and their colours."""

    def __init__(
        self, packed: PackedField, occupancy: OccupancyGrid, run: Launches, hidden: float
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
    ) -> tuple[Samples, tf.Tensor]:
        """The samples that light reaches, and the totals before those that are hidden were dropped."""
        run, packed = self.run, self.packed
        rays = {"origins": origins, "directions": directions, "occupancy": self.occupancy.bits}
        counts, of_parts = run(
            "packed_count",
            lambda s: [_MARCHERS * s.rays],
            rays,
            {"params": march},
            [
                ("counts", lambda s: [s.rays], tf.uint32),
                ("of_parts", lambda s: [_MARCHERS * s.rays], tf.uint32),
            ],
            threadgroup=RAYS_A_GROUP,
        )
        spans, totals = self.spans(counts, n_rays, slots)
        places, of_rays = run(
            "packed_write",
            lambda s: [max(_MARCHERS * s.rays, s.slots)],
            {**rays, "of_parts": of_parts, "spans": spans, "totals": totals},
            {"params": march, "n_rays": n_rays, "capacity": slots},
            [
                ("places", lambda s: [s.slots, 2], tf.float32),
                ("rays", lambda s: [s.slots], tf.int32),
            ],
            threadgroup=RAYS_A_GROUP,
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
            threadgroup=RAYS_A_GROUP,
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
            threadgroup=RAYS_A_GROUP,
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
        return Samples(
            kept_spans, kept_totals, places, points, kept_rays, encoded, features
        ), totals

    def colour_inputs(self, samples: Samples, directions: tf.Tensor) -> tf.Tensor:
        """Features and encoded directions [M, G + 16]."""
        packed = self.packed
        return self.run(
            f"packed_colour_inputs_{packed.type}",
            lambda s: [s.kept],
            {"features": samples.features, "directions": directions, "rays": samples.rays},
            {"n_features": np.uint32(packed.n_features)},
            [("inputs", lambda s: [s.kept, packed.n_features + _DIRECTION], packed.dtype)],
        )


class PackedPictures:
    """Colour, opacity and distance of many rays at once.

    Args:
      packed: The field that is shown.
      occupancy: The grid of empty cells.
      space: Where it is.
      step: Length of a marching step, world units.
    """

    def __init__(
        self, packed: PackedField, occupancy: OccupancyGrid, space: Space, step: float
    ) -> None:
        self._march = march_words(space, occupancy, step, None)
        self._per_ray = np.asarray([16.0, 6.0])  # slots, at first

        def show(
            run: Launches, words: tf.Tensor, origins: tf.Tensor, directions: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            return _show(Sampler(packed, occupancy, run, _INVISIBLE), words, origins, directions)

        rays = tf.TensorSpec([None, 3], tf.float32)
        self._graph = Graph(show, tf.TensorSpec([19], tf.int32), rays, rays)

    def __call__(
        self, origins: tf.Tensor, directions: tf.Tensor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Colour on black [R, 3], opacity [R] and mean distance [R] of rays [R, 3]."""
        n_rays = int(origins.shape[0])
        while True:
            wanted = 4096 * np.ceil(1.08 * self._per_ray * n_rays / 4096 + 1)
            sizes = Sizes(n_rays, *(int(n) for n in wanted))
            words = np.concatenate([self._march, np.asarray(sizes, np.int32)])
            with tf.device(HOST):
                words = tf.constant(words)
            *parts, marched, kept = self._graph(sizes, words, origins, directions)
            counts = np.stack([marched.numpy(), kept.numpy()]).astype(np.float64)
            fitted = min(1.0, sizes.slots / max(counts[0, 1], 1))
            # Some pictures, and parts of them, need more than others.
            found = np.maximum(counts[:, 1] / [1, fitted] / n_rays, 0.25)
            self._per_ray = np.maximum(found, 0.98 * self._per_ray)
            # Samples without room have not been looked at.
            if counts[0, 1] <= sizes.slots and counts[1, 1] <= sizes.kept:
                return tuple(part.numpy() for part in parts)


def _show(
    sampler: Sampler, words: tf.Tensor, origins: tf.Tensor, directions: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    run, packed = sampler.run, sampler.packed
    with tf.device(HOST):
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
        threadgroup=RAYS_A_GROUP,
    )
    return rgb, opacity, depth, marched, samples.totals
