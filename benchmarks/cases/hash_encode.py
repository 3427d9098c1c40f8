"""HashEncode and its gradients against TensorFlow composites, JAX, PyTorch and the machine's random-access limit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import composites, peers
from benchmarks.registry import Case, Contender, Context, Results, register, timed

GRID = metal_ops.HashGrid(n_dims=3, n_levels=16, log2_hashmap_size=19, finest_resolution=512)
# The computation, and the passes of random reads and adds that it cannot do without.
MODES = {
    "forward": ("forward", 1, 0),
    "table": ("forward + table gradient", 1, 1),
    "points": ("forward + table gradient + point gradient", 2, 1),
}
RANDOM_ACCESS = Path(__file__).parents[2] / "build" / "benchmarks" / "random_access"

Encode = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def inputs(n_points: int, dtype: tf.DType = tf.float32) -> dict[str, np.ndarray]:
    """Uniform points, an initial table, normal incoming gradients."""
    random = np.random.default_rng(n_points)
    numpy_dtype = dtype.as_numpy_dtype
    return {
        "points": random.random((n_points, GRID.n_dims), np.float32),
        "table": random.uniform(-1e-4, 1e-4, GRID.table_shape).astype(numpy_dtype),
        "incoming": random.standard_normal((n_points, GRID.output_dim), np.float32).astype(
            numpy_dtype
        ),
    }


def tensorflow(
    name: str,
    encode: Encode,
    arrays: dict[str, np.ndarray],
    mode: str,
    note: str = "",
    **options: Any,
) -> Contender:
    """A contender inside tf.function, or eager with `graph=False`."""
    points, table, incoming = (tf.constant(arrays[key]) for key in ("points", "table", "incoming"))
    graph = options.pop("graph", True)

    def work(points: tf.Tensor, table: tf.Tensor, incoming: tf.Tensor) -> tuple[tf.Tensor, ...]:
        if mode == "forward":
            return (encode(points, table),)
        sources = [table, points] if mode == "points" else [table]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = encode(points, table)
        gradients = tape.gradient(outputs, sources, output_gradients=incoming)
        return outputs, *(tf.convert_to_tensor(gradient) for gradient in gradients)

    function = partial(tf.function(work, **options) if graph else work, points, table, incoming)

    def results() -> Results:
        names = ("outputs", "table_gradient", "point_gradient")
        return {key: value.numpy() for key, value in zip(names, function(), strict=False)}

    return Contender(name, timed(function), results, note)


def random_access(stack: ExitStack, n_points: int, reads: int, adds: int) -> Contender:
    """The machine's limit, measured in turns with the rest."""
    if not RANDOM_ACCESS.exists():
        raise FileNotFoundError(
            f"[benchmarks] {RANDOM_ACCESS} is missing. Run 'make bench', which builds it."
        )
    corners, threads = 1 << GRID.n_dims, os.cpu_count() or 1
    process = subprocess.Popen(
        [str(RANDOM_ACCESS), *map(str, (n_points, corners, GRID.n_features_per_level, threads))]
        + [str(size) for size in GRID.level_sizes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    assert process.stdin is not None and process.stdout is not None

    def time_ms() -> float:
        process.stdin.write(f"{reads} {adds}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    passes = [f"{n} x {what}" for n, what in ((reads, "reading"), (adds, "adding to")) if n]
    return Contender(
        "the machine's random access",
        time_ms,
        note=f"{' and '.join(passes)} as many rows in random pairs, nothing else. The encoding touches "
        "a few more cache lines than that.",
    )


def levels() -> list[dict[str, Any]]:
    """The grid for workers that know nothing of metal_ops."""
    described = []
    for level in range(GRID.n_levels):
        size, resolution = int(GRID.level_sizes[level]), int(GRID.resolutions[level])
        hashed = resolution**GRID.n_dims > size
        strides = [resolution**d for d in range(GRID.n_dims)]
        described.append(
            {
                "scale": float(GRID.scales[level]),
                "offset": int(GRID.offsets[level]),
                "size": size,
                "hashed": hashed,
                "factors": list(composites.PRIMES[: GRID.n_dims]) if hashed else strides,
            }
        )
    return described


def contenders(n_points: int, mode: str, context: Context) -> list[Contender]:
    arrays = inputs(n_points)
    _, reads, adds = MODES[mode]
    rows = [
        tensorflow("metal_ops", lambda p, t: metal_ops.hash_encode(p, t, GRID), arrays, mode),
        random_access(context.stack, n_points, reads, adds),
    ]
    for name, encode, options in (
        ("TensorFlow, a gather a level", composites.gather_per_level, {}),
        ("TensorFlow, a gather a corner", composites.gather_per_corner, {}),
        ("TensorFlow, one gather", composites.gather_at_once, {}),
        ("TensorFlow, a gather a level, eager", composites.gather_per_level, {"graph": False}),
        ("TensorFlow, a gather a level, XLA", composites.gather_per_level, {"jit_compile": True}),
    ):
        rows.append(tensorflow(name, partial(encode, grid=GRID), arrays, mode, **options))
    if context.peers:
        settings = {"mode": mode, "levels": levels()}
        jax = peers.start(context.stack, "jax", arrays, settings)
        rows.append(jax.contender("JAX, jit", "jit", jax.version))
        torch = peers.start(context.stack, "torch", arrays, settings)
        rows.append(torch.contender("PyTorch, eager", "eager", torch.version))
        rows.append(torch.contender("PyTorch, torch.compile", "compile", torch.version))
    return rows


def types(context: Context) -> list[Contender]:
    """The effect of the table's type."""
    del context
    return [
        Contender(f"metal_ops, {dtype.name}", row.time_ms)
        for dtype in (tf.float32, tf.float16, tf.bfloat16)
        for row in [
            tensorflow(
                "", lambda p, t: metal_ops.hash_encode(p, t, GRID), inputs(65536, dtype), "points"
            )
        ]
    ]


for _n_points in (65536, 262144, 1024):
    for _mode, (_what, _, _) in MODES.items():
        register(
            Case(
                group="hash_encode",
                name=f"hash_encode-{_n_points}-{_mode}",
                title=f"Hash encoding of {_n_points} points, L=16, F=2, T=2^19, 16..512: {_what}",
                contenders=partial(contenders, _n_points, _mode),
                units=_n_points,
                in_quick=_n_points == 65536,
            )
        )
register(
    Case(
        group="hash_encode",
        name="hash_encode-types",
        title="Hash encoding of 65536 points: forward + table gradient + point gradient, by type of the table",
        contenders=types,
        units=65536,
    )
)
