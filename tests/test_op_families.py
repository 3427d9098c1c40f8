"""What all ops along rays, encodings, losses and activations promise alike: shapes known in graphs, and the same bits
for every number of threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.oracles import rays
from tests.processes import Process


@dataclass(frozen=True)
class Call:
    """A public function's arguments, and which of them are differentiated; the outputs come first."""

    run: Callable[..., Any]
    arrays: Callable[[], dict[str, np.ndarray]]
    sources: tuple[str, ...]
    # Outputs whose size depends on values, which a graph cannot know.
    open_ended: bool = False

    def results(self, **tensors: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            sources = [tensors[name] for name in self.sources]
            tape.watch(sources)
            outputs = tf.nest.flatten(self.run(**tensors))
        floats = [output for output in outputs if output.dtype.is_floating]
        return outputs + (tape.gradient(floats, sources) if sources else [])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def samples(dense: bool = False) -> dict[str, np.ndarray]:
    """Rays of 0 to 199 samples, or of 64."""
    random = np.random.default_rng(1)
    counts = np.full(700, 64) if dense else random.integers(0, 200, 700)
    n = int(counts.sum())
    shape = (len(counts), 64) if dense else (n,)
    starts = np.concatenate([np.arange(c) for c in counts]).astype(np.float32).reshape(shape) / 8
    given = {
        "sigmas": random.exponential(0.3, shape).astype(np.float32),
        "t_starts": starts,
        "t_ends": starts + np.float32(0.1),
    }
    return given if dense else given | {"packed_info": rays.pack(counts).astype(np.int32)}


def with_colours(dense: bool = False) -> dict[str, np.ndarray]:
    given = samples(dense)
    return given | {"rgbs": normal(*given["sigmas"].shape, 3), "background": normal(3)}


def as_weights(dense: bool = False) -> dict[str, np.ndarray]:
    given = samples(dense)
    return given | {"weights": given.pop("sigmas")}


def as_inputs() -> dict[str, np.ndarray]:
    given = samples()
    return {"inputs": np.exp(-given["sigmas"]), "packed_info": given["packed_info"]}


def marched() -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        "origins": normal(900, 3) * np.float32(0.2),
        "directions": normal(900, 3, seed=1),
        "occupancy": random.integers(0, 256, (2, 16**3 // 8)).astype(np.uint8),
    }


def in_rows() -> dict[str, np.ndarray]:
    return {
        "residuals": normal(5000, 7),
        "targets": normal(5000, 7, seed=1),
        "alpha": np.linspace(-3, 3, 7).astype(np.float32),
        "scale": np.linspace(0.1, 2, 7).astype(np.float32),
    }


def logits(classes: int) -> dict[str, np.ndarray]:
    labels = np.random.default_rng(3).integers(0, classes, 3000)
    return {"logits": normal(3000, classes), "targets": np.eye(classes, dtype=np.float32)[labels]}


RENDERED = ("sigmas", "rgbs", "t_starts", "t_ends", "background")
CALLS: dict[str, Call] = {
    "volume_render": Call(
        lambda **a: metal_ops.volume_render(**a, early_stop_eps=1e-3, t_gradients=True),
        with_colours,
        RENDERED,
    ),
    "volume_render, dense": Call(
        metal_ops.volume_render, lambda: with_colours(True), ("sigmas", "rgbs", "background")
    ),
    "render_weights": Call(metal_ops.render_weights, samples, ("sigmas",)),
    "inclusive_sum": Call(metal_ops.inclusive_sum, as_inputs, ("inputs",)),
    "exclusive_prod": Call(metal_ops.exclusive_prod, as_inputs, ("inputs",)),
    "distortion_loss": Call(
        lambda **a: metal_ops.distortion_loss(**a, t_gradients=True),
        as_weights,
        ("weights", "t_starts", "t_ends"),
    ),
    "distortion_loss, dense": Call(
        metal_ops.distortion_loss, lambda: as_weights(True), ("weights",)
    ),
    "ray_march": Call(
        lambda **a: metal_ops.ray_march(
            **a, aabb=[-1, -1, -1, 1, 1, 1], resolution=16, step=0.05, seed=[1, 2]
        ),
        marched,
        (),
        open_ended=True,
    ),
    "sh_encode": Call(lambda x: metal_ops.sh_encode(x, 5), lambda: {"x": normal(4001, 3)}, ("x",)),
    "frequency_encode": Call(
        lambda x: metal_ops.frequency_encode(x, 6), lambda: {"x": normal(4001, 3)}, ("x",)
    ),
    "softshrink": Call(metal_ops.softshrink, lambda: {"x": normal(301, 103)}, ("x",)),
    "robust_loss": Call(
        lambda residuals, **a: metal_ops.robust_loss(residuals, **a, reduce_last=True),
        in_rows,
        ("residuals", "targets", "alpha", "scale"),
    ),
    "focal_loss": Call(
        lambda **a: metal_ops.focal_loss(**a, reduce_last=True), lambda: logits(11), ("logits",)
    ),
    "focal_loss, softmax": Call(
        lambda **a: metal_ops.focal_loss(**a, kind="softmax"), lambda: logits(33), ("logits",)
    ),
}


# ---- shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_shapes_are_known_in_graphs(name: str) -> None:
    """Of arguments with known shapes, those of outputs and gradients are; of unknown sizes, their ranks are."""
    call = CALLS[name]
    arrays = call.arrays()
    actual = [x.shape for x in call.results(**{k: tf.constant(v) for k, v in arrays.items()})]

    def traced(shape_of: Callable[[np.ndarray], list[int | None]]) -> list[tf.TensorShape]:
        specs = {k: tf.TensorSpec(shape_of(v), v.dtype, name=k) for k, v in arrays.items()}
        function = tf.function(lambda **tensors: call.results(**tensors))
        return [x.shape for x in function.get_concrete_function(**specs).structured_outputs]

    known = traced(lambda array: list(array.shape))
    # Numbers of rays and samples are open, those of axes, channels and parameters are not.
    partly = traced(lambda array: [None, *array.shape[1:]] if array.ndim > 1 else list(array.shape))
    for exact, static, half in zip(actual, known, partly, strict=True):
        assert static.rank == half.rank == exact.rank
        assert static.is_compatible_with(exact) and half.is_compatible_with(exact)
        if not call.open_ended:
            assert static == exact


# ---- threads -------------------------------------------------------------------------------------

DIGESTS = """
import hashlib, json, sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
if sys.argv[2] == "deterministic":
    tf.config.experimental.enable_op_determinism()
from tests.test_op_families import CALLS
digests = {}
for name, call in CALLS.items():
    arrays = {key: tf.constant(value) for key, value in call.arrays().items()}
    first, second = ([x.numpy().tobytes() for x in call.results(**arrays)] for _ in range(2))
    assert first == second, f"{name}: another result the second time"
    digests[name] = [hashlib.sha256(result).hexdigest() for result in first]
print(json.dumps(digests))
"""
RUNS = {"1 thread": ("1", "default"), "5 threads": ("5", "deterministic")}


def test_same_bits_for_every_number_of_threads() -> None:
    processes = [Process("-c", DIGESTS, *arguments) for arguments in RUNS.values()]
    one, five = (process.result() for process in processes)
    assert set(one) == set(CALLS)
    assert one == five


def test_each_argument_of_an_op_is_described_beside_its_name():
    """The generated function's docstring has TensorFlow's words on the type, then the declaration's own."""
    said = metal_ops.raw_ops.hash_encode.__doc__
    arguments = dict(re.findall(r"^    (\w+): (.*(?:\n      .*)*)", said, re.MULTILINE))
    described = {
        "inputs": "float32 [N, D], D = 2, 3 or 4",
        "embeddings": "The table E of all levels",
        "hashmap_offsets": "First row of each level",
        "log2_per_level_scale": "steps an edge",
        "resolution_coarsest": "Resolution of level 0",
        "interpolation": "for a continuous gradient",
        "grid_kind": "levels that are never hashed",
    }
    for name, words in described.items():
        assert words in arguments[name]
    assert "Interpolated features" in said.partition("Returns:")[2]
