"""Every launch in kernels/ and every shader of the library is run here once.

Names, kinds and sizes of arguments are checked against a shader when it is first launched: shaders that never run
are never checked. Their results are tested elsewhere.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import metal_ops
import metal_ops.device
from metal_ops import raw_ops
from metal_ops.grid import N_DIMS, N_FEATURES
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer
from metal_ops.programs.exchange import Exchange
from metal_ops.programs.workers import Workers
from tests.device.test_loading import ON_GPU
from tests.processes import ROOT
from tools.reference import error_cases

DTYPES = error_cases.DTYPES
# Their cases are large; their launches and more are under run_what_is_left.
RUN_BELOW = ("fused_optimizers", "hash_grid")
OF_WIDE_VECTORS = re.compile(r"gemm_(middle|wide)_")
OF_PROCESSORS = re.compile(r"gemm_(middle|wide|cached)_")
# Blocks that want more threadgroup memory than the CPU device has; a GPU takes no others, and blocks for few rows.
OF_GPUS = re.compile(
    r"gemm_blocks_(large|middle|low|thin)_|gemm_conv_(large|middle)_|gemm_warpgroups_(wide|even)_|"
    r"conv_warpgroups_(even|tall)_|"
    r"attention_warpgroups_\w+_(64|128)$|attention_turns_"
)
# Halves that would be large blocks are products of warpgroups on GPUs that have these.
OF_OTHERS = re.compile(
    r"gemm_(blocks_(small|short)|warpgroups_small|few)_|conv_warpgroups_small_|attention_warpgroups_\w+_0$|"
    r"gemm_blocks_(large|middle)_(half|bfloat)$"
)
LAUNCH = re.compile(r"\bLaunch\(")
DEFINED = re.compile(r"\bStatus (Encoder::)?Launch\(")


def takes_wide_tiles() -> bool:
    """Whether the processor has vectors of 512 bits, for which there are tiles of their own."""
    asked = ctypes.CDLL(
        str(Path(metal_ops.__file__).parent / "libhostmetal.so")
    ).hostmetal_wide_vectors
    asked.restype = ctypes.c_bool
    return asked()


def launches_in_the_sources() -> dict[str, list[int]]:
    """The line of each call, by file."""
    found: dict[str, list[int]] = {}
    for path in sorted((ROOT / "kernels").rglob("*")):
        if path.suffix not in (".mm", ".h"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            # Not the functions themselves, nor the one that hands its caller's place on.
            if LAUNCH.search(code) and not DEFINED.search(code) and ", file, line)" not in code:
                found.setdefault(str(path.relative_to(ROOT)), []).append(number)
    return found


def lines_of(path: Path, function: str) -> set[str]:
    ask = getattr(ctypes.CDLL(str(path)), function)
    ask.restype = ctypes.c_char_p
    return set(ask().decode().splitlines())


def launches_left() -> set[str]:
    """Calls for which no place between their line and the next call's has been launched from."""
    seen: dict[str, set[int]] = {}
    # The device's own kernels share kernels/runtime/ and kernels/gemm/.
    for library in (metal_ops.device.KERNELS, metal_ops.device.PLUGIN):
        for line in lines_of(library, "metal_kernels_launches"):
            path, number = line.rsplit(":", 1)
            seen.setdefault(path, set()).add(int(number))
    return {
        f"{path}:{call}"
        for path, calls in launches_in_the_sources().items()
        for call, following in itertools.pairwise([*calls, 1 << 30])
        if not any(call <= place < following for place in seen.get(path, ()))
    }


def shaders_left() -> set[str]:
    return lines_of(metal_ops.device.KERNELS, "metal_kernels_idle_shaders")


# ---- what the cases of docs/errors.jsonl do not reach ----------------------------------------------------------------


def optimizers(dtype: str) -> None:
    for n_columns, skip in ((3, False), (3, True), (40, True)):
        shape = (2, n_columns)
        gradient = tf.ones(shape, dtype)
        m, v, v_hat = (tf.Variable(tf.zeros(shape)) for _ in range(3))
        x = tf.Variable(gradient)
        for hat in (None, v_hat):
            metal_ops.fused_adam(
                x, m, v, gradient, step=1, learning_rate=0.1, v_hat=hat, skip_zero_rows=skip
            )
        for options in ({}, {"m": m, "momentum": 0.9}, {"m": m, "momentum": 0.9, "nesterov": True}):
            metal_ops.fused_sgd(x, gradient, learning_rate=0.1, skip_zero_rows=skip, **options)


def hash_grids(dtype: str) -> None:
    """Every number of dimensions and features; a table with rows behind the last level."""
    for n_dims, n_features in itertools.product(N_DIMS, N_FEATURES):
        points = tf.fill([2, n_dims], 0.3)
        table = tf.ones([6, n_features], dtype)
        g, offsets = tf.ones([2, n_features], dtype), tf.constant([0, 4])
        of_grid = {
            "log2_per_level_scale": 1.0,
            "resolution_coarsest": 2,
            "interpolation": "linear",
            "grid_kind": "hash",
        }
        for op, inputs in (
            (raw_ops.hash_encode, (points, table)),
            (raw_ops.hash_encode_grad, (g, points, table)),
            (raw_ops.hash_encode_point_grad, (g, points, table)),
            (raw_ops.hash_encode_jvp, (points, points, table)),
            (raw_ops.hash_encode_jvp_grad, (points, g, points, table)),
            (raw_ops.hash_encode_jvp_point_grad, (points, g, points, table)),
        ):
            op(*inputs, offsets, **of_grid)


def products(dtype: str) -> None:
    tf.matmul(tf.ones([3, 4], dtype), tf.ones([4, 5], dtype))
    metal_ops.fused_matmul(
        tf.ones([64, 8], dtype), tf.ones([8, 64], dtype), bias=tf.ones([64], dtype)
    )


def networks(dtype: str) -> None:
    """One of each width, with biases and without."""
    for width, use_bias in itertools.product((16, 32, 64, 128), (True, False)):
        x = tf.ones([2, 3], dtype)
        weights = tf.ones([5 * width + 1 if use_bias else 4 * width], dtype)
        sizes = {"n_outputs": 1, "n_neurons": width, "n_hidden_layers": 1, "use_bias": use_bias}
        raw_ops.fused_mlp_grad(tf.ones([2, 1], dtype), x, weights, **sizes)
        raw_ops.fused_mlp(x, weights, **sizes)


# So many that a GPU sums up queries' gradients in turns.
MANY_HEADS = [(3, 32, 1030), (100, 32, 1030)] if ON_GPU else []


def attention(dtype: str) -> None:
    for size, heads, keys in ((3, 1, 300), (100, 1, 300), (200, 1, 300), *MANY_HEADS):
        # So many keys that simdgroups share them out.
        q, k = tf.ones([1, heads, 2, size], dtype), tf.ones([1, heads, keys, size], dtype)
        with tf.GradientTape() as tape:
            bias = tf.ones([2, keys], dtype)
            tape.watch([q, bias])
            y = metal_ops.scaled_dot_product_attention(q, k, k, bias=bias)
        tape.gradient(y, [q, bias])


def losses(dtype: str) -> None:
    x, parameter = tf.ones([2, 3], dtype), tf.constant(1.5)
    with tf.GradientTape() as tape:
        tape.watch(parameter)
        loss = metal_ops.robust_loss(x, parameter)
    tape.gradient(loss, parameter)
    metal_ops.robust_loss(tf.ones([2, 600], dtype), reduce_last=True)  # in two passes
    for n_classes, sparse in itertools.product((3, 200), (False, True)):
        logits = tf.ones([2, n_classes], dtype)
        targets = tf.constant([0, 1]) if sparse else tf.ones([2, n_classes])
        metal_ops.focal_loss(logits, targets, "softmax")


def rays(dtype: str) -> None:
    # An odd number of halves, some of them of no ray.
    metal_ops.inclusive_sum(tf.ones([3], dtype), [[0, 1]])
    sigmas, times = tf.ones([2, 3], dtype), tf.ones([2, 3])
    for shape in ((3,), (2, 3)):
        background = tf.ones(shape)
        with tf.GradientTape() as tape:
            tape.watch(background)
            rendered = metal_ops.volume_render(
                sigmas, tf.ones([2, 3, 3], dtype), times, times + 1, background=background
            )
        tape.gradient(rendered.rgb, background)
    for index in (tf.int32, tf.int64):
        metal_ops.ray_march(
            [[0.0, 0.0, -2.0]],
            [[0.0, 0.0, 1.0]],
            tf.fill([1, 8], tf.constant(255, tf.uint8)),
            [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0],
            step=0.5,
            resolution=4,
            index_dtype=index,
        )


def sequences(dtype: str) -> None:
    """Projected LSTMs, whose products have few columns, more and many, and rows for tiles."""
    for units in (2, 6, 40):
        sizes = ([16, 2, 3], [3, 4 * units], [1, 4 * units], [units, 1])
        x, kernel, recurrent, projection = (tf.ones(size, dtype) for size in sizes)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = metal_ops.lstm(x, kernel, recurrent, projection=projection)[0]
        tape.gradient(y, x)


def normed_sequences(dtype: str) -> None:
    x, gamma = tf.ones([2, 2, 3], dtype), tf.ones([8], dtype)
    norms = dict(kernel_gamma=gamma, recurrent_gamma=gamma, cell_gamma=gamma[:2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = metal_ops.lstm(x, tf.ones([3, 8], dtype), tf.ones([2, 8], dtype), **norms)[0]
    tape.gradient(y, x)


class Alone(Exchange):
    """A way to no other worker."""

    name, count, rank, one_machine = "nothing", 1, 0, True

    def sum(self, values: tf.Tensor, key: int) -> tf.Tensor:
        return values

    def gather(self, values: tf.Tensor, key: Any) -> tf.Tensor:
        return values

    def loss(self, error: tf.errors.OpError) -> None:
        return None


def radiance_fields() -> None:
    """Steps, looks at the occupancy grid and pictures of the NeRF program in which nothing waits."""
    scene = procedural_scene(size=16, train_views=2, test_views=1, supersample=1)
    for mixed, workers in itertools.product((False, True), (None, Workers(Alone()))):
        config = TrainConfig(
            seconds=None, steps=1, target_samples=512, occupancy_resolution=16, packed=True
        )
        model = ModelConfig(n_levels=2, log2_hashmap_size=8, mixed_precision=mixed)
        trainer = Trainer(scene, model, config, workers)
        trainer.train_step()
        trainer._packed_look(0, 1)
        trainer.renderer()(scene.test.cameras, 0)


def run_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in DTYPES:
        for case in (optimizers, products, losses, rays, sequences):
            case(dtype)
    of_processors = [] if ON_GPU else ["cached"]
    for shaders in (*of_processors, "tiles", "threads", "warpgroups", "groups"):
        monkeypatch.setenv("METAL_OPS_GEMM", shaders)
        for dtype in DTYPES:
            products(dtype)
            sequences(dtype)
        if shaders == "warpgroups":  # tall and even blocks of a GPU
            sizes = ((4, 8), (68, 128)) if ON_GPU else ((4, 8),)
            for dtype, (height, filters) in itertools.product(DTYPES, sizes):
                images = tf.ones([1, height, 128, 8], dtype)
                filter = tf.ones([3, 3, 8, filters], dtype)
                raw_ops.metal_fused_conv2d(
                    images, filter, [], fused_ops=["Relu"], strides=[1] * 4, padding="SAME"
                )
    with tf.device("GPU:0"):
        for dtype, rows, turned in itertools.product(DTYPES, (1, 2, 4, 8, 12, 20), (False, True)):
            a, b = tf.ones([rows, 40], dtype), tf.ones([40, 40], dtype)
            raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["Relu"], transpose_b=turned)
        for dtype in DTYPES:  # by blocks, in parts
            tf.matmul(tf.ones([70, 600], dtype), tf.ones([600, 40], dtype))
            for height in (
                (4, 160) if ON_GPU else (4,)
            ):  # large blocks, of which there are enough, too
                images, filters = tf.ones([1, height, 128, 8], dtype), tf.ones([3, 3, 8, 4], dtype)
                raw_ops.metal_fused_conv2d(
                    images, filters, [], fused_ops=["Relu"], strides=[1] * 4, padding="SAME"
                )
        if ON_GPU:  # large blocks, and even and wide ones of warpgroups
            for dtype, (rows, columns) in itertools.product(DTYPES, ((1024, 1024), (1536, 2816))):
                a, b = tf.ones([rows, 40], dtype), tf.ones([40, columns], dtype)
                raw_ops.metal_fused_mat_mul(a, b, [], fused_ops=["Relu"])
    metal_ops.metal_kernel("with_an_initializer", ["x"], ["z"], "", init_value=1)(tf.ones([3]))
    for way in ("groups", "threads"):
        monkeypatch.setenv("METAL_OPS_MLP", way)
        for dtype in DTYPES:
            networks(dtype)
    for way in ("one", "vector", "groups", "warpgroups"):
        monkeypatch.setenv("METAL_OPS_ATTENTION", way)
        for dtype in DTYPES:
            attention(dtype)
    monkeypatch.setenv("METAL_OPS_ATTENTION_JOIN", "launch")
    for dtype in DTYPES:
        attention(dtype)
    for way in ("groups", "threads"):
        monkeypatch.setenv("METAL_OPS_ROW_NORM", way)
        for dtype in DTYPES:
            x = tf.ones([2, 3], dtype)
            y, mean, factor = raw_ops.row_norm(x, x[0], x[0])
            raw_ops.row_norm_grad(y, x, x[0], mean, factor)
            normed_sequences(dtype)
            channels = tf.ones([3])
            raw_ops.metal_fused_bias_grad(x, x, data_format="NCHW")
            raw_ops.metal_fused_batch_norm_grad(
                x, x, x, channels, channels, channels, data_format="NCHW"
            )
    for way in ("threads", "columns"):
        monkeypatch.setenv("METAL_OPS_BIAS_GRAD", way)
        monkeypatch.setenv("METAL_OPS_NORM_GRAD", way)
        for dtype in DTYPES:
            x, channels = tf.ones([2, 3], dtype), tf.ones([3])
            raw_ops.metal_fused_bias_grad(x, x)
            raw_ops.metal_fused_batch_norm_grad(x, x, x, channels, channels, channels)
    for dtype in DTYPES:
        x = tf.ones([1, 2, 3, 8], dtype)
        raw_ops.swiglu_grad(metal_ops.swiglu(x, x), x, x)
        metal_ops.swiglu(x)
        metal_ops.rope(x)
        for interleaved in (False, True):
            raw_ops.metal_rope_tables(x, x, x, interleaved=interleaved)
    metal_ops.hamming_distance(tf.zeros([2, 3], tf.uint8), tf.zeros([2, 3], tf.uint8))
    for way in ("groups", "threads"):
        monkeypatch.setenv("METAL_OPS_QUANTIZED", way)
        for bits, scales, dtype in itertools.product((4, 8), ("float32", "float16"), DTYPES):
            weights = metal_ops.quantize(tf.ones([40, 20]), bits, scales=scales)
            for rows in (1, 2, 4, 8, 20):
                metal_ops.quantized_matmul(tf.ones([rows, 40], dtype), weights)
            for rows in (1, 4):
                metal_ops.quantized_matmul(tf.ones([rows, 40], dtype), weights, dynamic=True)
            metal_ops.dequantize(weights, dtype)
        for bits, scales, dtype in itertools.product(
            (2, 3, 4, 6, 8), ("float32", "float16"), DTYPES
        ):
            tables = metal_ops.quantize(tf.ones([40, 20]), bits, scales=scales, lookup=4)
            for rows in (1, 4, 20):
                metal_ops.quantized_matmul(tf.ones([rows, 40], dtype), tables)
            metal_ops.dequantize(tables, dtype)
    radiance_fields()
    for size in ("int8", "int16", "int32", "int64"):
        metal_ops.zero_out(tf.ones([3], size))
    for deterministic in (False, True):
        if deterministic:
            tf.config.experimental.enable_op_determinism()
        for dtype in DTYPES:
            hash_grids(dtype)


def test_every_launch_and_every_shader_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.device("GPU:0"):
        metal_ops.null_op([1.0])
        # The control: a launch that has not been run is missing.
        all_launches = sum(map(len, launches_in_the_sources().values()))
        assert all_launches > 30 and len(launches_left()) >= all_launches - 2
        assert len(shaders_left()) > 100 and "hash_encode_zero_half" in shaders_left()
        for area in pkgutil.iter_modules(error_cases.__path__):
            if area.name in RUN_BELOW:
                continue
            for _, _, call, _ in importlib.import_module(
                f"{error_cases.__name__}.{area.name}"
            ).cases():
                call()
        run_what_is_left(monkeypatch)
    assert launches_left() == set()
    # GPUs do not take the tiles of a processor's vectors, and fused ones have no code for them.
    elsewhere = [OF_OTHERS if ON_GPU else OF_GPUS]
    if ON_GPU:
        elsewhere.append(OF_PROCESSORS)
    elif not takes_wide_tiles():
        elsewhere.append(OF_WIDE_VECTORS)
    assert {n for n in shaders_left() if not any(each.match(n) for each in elsewhere)} == set()
