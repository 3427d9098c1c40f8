"""Fused Adam and SGD against Keras', TensorFlow's own fused op, JAX, PyTorch and the machine's memory bandwidth."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import metal_ops
from benchmarks import elementwise, peers
from benchmarks.registry import Case, Contender, Context, Results, register, timed

MEMORY_STREAM = Path(__file__).parents[2] / "build" / "benchmarks" / "memory_stream"

# The table of an instant-ngp hash grid, and the layers around it.
SETS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "table": ("a variable of 10M elements", [(5_000_000, 2)]),
    "layers": (
        "eight variables of small dense layers",
        [(32, 64), (64,), (64, 16), (16,), (32, 64), (64,), (64, 3), (3,)],
    ),
}
# Arrays of the variable's size that a step cannot do without reading; all but the gradient are written back.
ARRAYS = {"adam": 4, "sgd": 3}
HYPERPARAMETERS = {"lr": 0.01, "beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7, "momentum": 0.9}
# Steps that make one measurement: those of small layers take less time than a sleeping thread to wake.
STEPS = {"table": 1, "layers": 10}
# The part of a table's rows that no sample of a step touches.
UNUSED_ROWS = 0.6
CHECK_STEPS = 3


def inputs(shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {}
    for i, shape in enumerate(shapes):
        arrays[f"x{i}"] = random.standard_normal(shape, np.float32)
        arrays[f"g{i}"] = random.standard_normal(shape, np.float32)
        if len(shapes) == 1:
            arrays[f"g{i}"][random.random(shape[0]) < UNUSED_ROWS] = 0
    return arrays


def keras_optimizer(kind: str, library: Any, **options: Any) -> Any:
    """`keras.optimizers` and `metal_ops.optimizers` have the same names."""
    h = HYPERPARAMETERS
    if kind == "sgd":
        return library.SGD(h["lr"], momentum=h["momentum"], **options)
    return library.Adam(h["lr"], h["beta_1"], h["beta_2"], h["epsilon"], **options)


def run_of_keras(arrays: dict[str, np.ndarray], make: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """A step, inside tf.function, and the variables that it updates."""
    count = len(arrays) // 2
    variables = [keras.Variable(arrays[f"x{i}"]) for i in range(count)]
    gradients = [tf.constant(arrays[f"g{i}"]) for i in range(count)]
    optimizer = make()
    optimizer.build(variables)
    function = tf.function(lambda *g: optimizer.apply(list(g), variables))
    return partial(function, *gradients), variables


def run_of_raw_adam(arrays: dict[str, np.ndarray]) -> tuple[Any, list[Any]]:
    """TensorFlow's fused op, which Keras 3 does not use."""
    h, count = HYPERPARAMETERS, len(arrays) // 2
    variables = [tf.Variable(arrays[f"x{i}"]) for i in range(count)]
    moments = [[tf.Variable(tf.zeros_like(x)) for x in variables] for _ in range(2)]
    gradients = [tf.constant(arrays[f"g{i}"]) for i in range(count)]
    iterations = tf.Variable(0.0)

    @tf.function
    def step(*gradients: tf.Tensor) -> None:
        number = iterations.assign_add(1.0)
        powers = [tf.pow(h["beta_1"], number), tf.pow(h["beta_2"], number)]
        for x, m, v, g in zip(variables, *moments, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=x.handle, m=m.handle, v=v.handle, beta1_power=powers[0],
                beta2_power=powers[1], lr=h["lr"], beta1=h["beta_1"], beta2=h["beta_2"],
                epsilon=h["epsilon"], grad=g,
            )  # fmt: skip

    return partial(step, *gradients), variables


def tensorflow(
    name: str,
    start: Callable[[], tuple[Any, list[Any]]],
    note: str = "",
    check: bool = True,
    steps: int = 1,
) -> Contender:
    """Timed so many steps at a time; results are those of a run of its own."""
    step, _ = start()

    def work() -> None:
        for _ in range(steps):
            step()

    def results() -> Results:
        fresh, variables = start()
        for _ in range(CHECK_STEPS):
            fresh()
        return {f"x{i}": variable.numpy() for i, variable in enumerate(variables)}

    return Contender(name, timed(work), results if check else None, note)


def memory_stream(stack: ExitStack, elements: int, kind: str) -> Contender:
    """The machine's limit, measured in turns with the rest."""
    if not MEMORY_STREAM.exists():
        raise FileNotFoundError(
            f"[benchmarks] {MEMORY_STREAM} is missing. Run 'make bench', which builds it."
        )
    arguments = (elements, ARRAYS[kind], os.cpu_count() or 1)
    process = subprocess.Popen(
        [str(MEMORY_STREAM), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    assert process.stdin is not None and process.stdout is not None

    def time_ms() -> float:
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    traffic = (2 * ARRAYS[kind] - 1) * elements * 4 / 1e6
    return Contender(
        "the machine's memory",
        time_ms,
        note=f"reading {ARRAYS[kind]} arrays and writing all but one back, {traffic:.0f} MB, nothing else.",
    )


def contenders(which: str, kind: str, context: Context) -> list[Contender]:
    shapes = SETS[which][1]
    arrays = inputs(shapes)
    elements = sum(int(np.prod(shape)) for shape in shapes)
    own = metal_ops.optimizers

    def run(library: Any, **options: Any) -> Callable[[], tuple[Any, list[Any]]]:
        return partial(run_of_keras, arrays, partial(keras_optimizer, kind, library, **options))

    steps = STEPS[which]
    rows = [tensorflow("metal_ops", run(own), steps=steps)]
    gradients = [arrays[f"g{i}"] for i in range(len(shapes))]
    rows.append(elementwise.empty_function(gradients, steps))
    if which == "table":
        rows.append(
            tensorflow(
                "metal_ops, skip_zero_rows",
                run(own, skip_zero_rows=True),
                f"instant-ngp's rule, which leaves {UNUSED_ROWS:.0%} of the rows as they are: another result.",
                check=False,
            )
        )
        rows.append(memory_stream(context.stack, elements, kind))
    rows.append(tensorflow("Keras", run(keras.optimizers), steps=steps))
    if kind == "adam":
        rows.append(
            tensorflow(
                "TensorFlow, raw ResourceApplyAdam", partial(run_of_raw_adam, arrays), steps=steps
            )
        )
    if context.peers:
        settings = {**HYPERPARAMETERS, "kind": kind, "check_steps": CHECK_STEPS, "steps": steps}
        worker = "peer_optimizers.py"
        jax = peers.start(context.stack, "jax", arrays, settings, worker)
        rows.append(jax.contender("JAX, jit", "jit", jax.version))
        torch = peers.start(context.stack, "torch", arrays, settings, worker)
        for way in ("fused", "foreach", "loop"):
            rows.append(torch.contender(f"PyTorch, {way}", way, torch.version))
    return rows


for _which, (_what, _shapes) in SETS.items():
    for _kind, _name in (("adam", "Adam"), ("sgd", "SGD with momentum")):
        register(
            Case(
                group="optimizers",
                name=f"optimizers-{_which}-{_kind}",
                title=f"{_name}: {'a step' if STEPS[_which] == 1 else f'{STEPS[_which]} steps'} of {_what}",
                contenders=partial(contenders, _which, _kind),
                units=sum(int(np.prod(shape)) for shape in _shapes) * STEPS[_which],
                unit="elements",
                # Keras takes the powers of its bias correction in float32, and so do we.
                tolerance=1e-5,
                # PyTorch's epsilon is not the paper's "epsilon hat": another step where a gradient is next to 0.
                outliers=1e-2,
            )
        )
