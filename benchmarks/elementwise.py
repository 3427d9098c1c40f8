"""One computation in metal_ops, in stock TensorFlow, in JAX and PyTorch, beside the machine's memory: shared by the
cases of losses, activations and encodings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import formulas, peers
from benchmarks.registry import Case, Contender, Context, Results, register, timed

MEMORY_PASS = Path(__file__).parents[1] / "build" / "benchmarks" / "memory_pass"

TENSORFLOW = formulas.Library(
    tf.where, tf.abs, tf.sign, tf.maximum, tf.exp, tf.math.log1p, tf.math.expm1, tf.sin, tf.cos,
    tf.sigmoid, tf.nn.softplus, tf.nn.log_softmax, tf.reduce_mean, partial(tf.reduce_sum, axis=-1),
    partial(tf.stack, axis=-1), partial(tf.concat, axis=-1), tf.pow, partial(tf.reduce_sum, axis=1),
    partial(tf.cumsum, axis=1), partial(tf.math.cumprod, axis=1), tf.gather, tf.floor,
    partial(tf.cast, dtype=tf.int32), tf.minimum, partial(tf.cast, dtype=tf.float64),
    partial(tf.cast, dtype=tf.float32), partial(tf.cumsum, axis=0), tf.math.unsorted_segment_sum,
    tf.nn.relu,
    lambda q, k, v: tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * q.shape[-1] ** -0.5) @ v,
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A computation: ours, the formulas that stand for it elsewhere, and the bytes that it reads and writes."""

    ours: Callable[..., tf.Tensor]
    stock: dict[str, str]  # name of the row: name of the formula
    arrays: Callable[[], list[np.ndarray]]
    gradients: tuple[int, ...]  # which arguments are differentiated
    # Floats that must be read and written, forwards, and forwards and backwards.
    forward_traffic: tuple[int, int]
    gradient_traffic: tuple[int, int]
    # In a row: work that fits the caches is done in less time than a sleeping thread takes to wake.
    calls: int = 1
    # Whether XLA, JAX and PyTorch compute every formula of `stock`, and not the first one alone.
    all_everywhere: bool = False
    # "benchmarks.cases.x:name": where a worker with the Metal device finds this again, in x.WORKS.
    on_device: str = ""
    # Long computations are compared by the processor's time, of all threads, which others on the machine disturb less
    # than the wall's; beside it memory has no row.
    processor_time: bool = False
    note: str = ""


def calls_of(elements: int) -> int:
    """How many calls make one measurement of arrays of so many floats."""
    return 1 if elements > 1 << 20 else 10


def times(calls: int) -> str:
    """The words of a title about them."""
    return f", {calls} calls in a row" if calls > 1 else ""


def register_cases(
    group: str,
    kind: str,
    title: str,
    make: Callable[[int], Work],
    sizes: tuple[int, ...],
    unit: str,
    tolerance: float = 1e-4,
) -> None:
    """Forwards, and forwards and backwards, in every size. `title` has a place for the size."""
    for size in sizes:
        work = make(size)
        for backward, what in ((False, "forward"), (True, "forward + gradient")):
            register(
                Case(
                    group=group,
                    name=f"{kind}-{size}-{'gradient' if backward else 'forward'}",
                    title=f"{title.format(size)}{times(work.calls)}: {what}"
                    + ", processor time" * work.processor_time,
                    contenders=partial(contenders, work, backward),
                    units=size * work.calls,
                    unit=unit,
                    in_quick=backward and size == sizes[0],
                    tolerance=tolerance,
                )
            )


def contenders(work: Work, backward: bool, context: Context) -> list[Contender]:
    """The rows of one case."""
    arrays = work.arrays()
    which = work.gradients if backward else ()
    output = work.ours(*(tf.constant(a) for a in arrays))
    incoming = None
    if output.shape.rank > 0:
        incoming = np.random.default_rng(7).standard_normal(output.shape, np.float32)
    clock = time.process_time if work.processor_time else time.perf_counter
    row = partial(
        tensorflow, arrays=arrays, which=which, incoming=incoming, calls=work.calls, clock=clock
    )
    rows = [row("metal_ops", work.ours)]
    rows[0].note = work.note
    rows.append(row("metal_ops, without tf.function", work.ours, compiled=False))
    if not work.processor_time:
        rows.append(empty_function(arrays, work.calls))
        read, written = work.gradient_traffic if backward else work.forward_traffic
        rows.append(memory(context.stack, read, written, work.calls))
    for name, formula in work.stock.items():
        function = partial(formulas.FORMULAS[formula], TENSORFLOW)
        rows.append(row(f"TensorFlow, {name}", function))
    # (the rows' names after their library, formula): the first one is the library's plain row.
    everywhere = [
        (f", {name}" if i else "", formula)
        for i, (name, formula) in enumerate(work.stock.items())
        if i == 0 or work.all_everywhere
    ]
    for suffix, formula in everywhere:
        function = partial(formulas.FORMULAS[formula], TENSORFLOW)
        rows.append(row(f"TensorFlow, XLA{suffix}", function, jit_compile=True))
    inputs = {f"a{i}": np.asarray(array) for i, array in enumerate(arrays)}
    if incoming is not None:
        inputs["incoming"] = incoming
    if work.on_device:
        settings: dict[str, Any] = {
            "work": work.on_device,
            "gradients": list(which),
            "calls": work.calls,
        }
        device = peers.start(
            context.stack, "metal", inputs, settings, "device_worker.py", Path(sys.executable)
        )
        rows.append(device.contender("metal_ops, Metal device", "metal", device.version))
    for suffix, formula in everywhere if context.peers else []:
        settings = {
            "formula": formula,
            "gradients": list(which),
            "calls": work.calls,
            "processor_time": work.processor_time,
        }
        # Threads that wait for others' parts would count as work.
        idle = {"OMP_WAIT_POLICY": "PASSIVE"} if work.processor_time else {}
        start = partial(peers.start, context.stack, worker="peer_formulas.py", **idle)
        jax = start("jax", inputs, settings)
        rows.append(jax.contender(f"JAX, jit{suffix}", "jit", jax.version))
        torch = start("torch", inputs, settings)
        for name, variant in (("eager", "eager"), ("torch.compile", "compile")):
            rows.append(torch.contender(f"PyTorch, {name}{suffix}", variant, torch.version))
    return rows


def tensorflow(
    name: str,
    function: Callable[..., tf.Tensor],
    arrays: list[np.ndarray],
    which: tuple[int, ...],
    incoming: np.ndarray | None,
    calls: int = 1,
    compiled: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    **options: Any,
) -> Contender:
    tensors = [tf.constant(array) for array in arrays]
    weights = tf.constant(1.0 if incoming is None else incoming)

    def run(weights: tf.Tensor, *tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        if not which:
            return (function(*tensors),)
        sources = [tensors[i] for i in which]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            output = function(*tensors)
        gradients = tape.gradient(output, sources, output_gradients=weights)
        # That of tf.gather is sparse; a caller that wants to go on with it sums it.
        return output, *map(tf.convert_to_tensor, gradients)

    call = tf.function(run, **options) if compiled else run

    def results() -> Results:
        names = ("output", *(f"gradient{i}" for i in range(8)))
        values = call(weights, *tensors)
        return {key: np.asarray(value) for key, value in zip(names, values, strict=False)}

    def work() -> None:
        for _ in range(calls):
            call(weights, *tensors)

    return Contender(name, timed(work, clock), results)


EMPTY = "an empty tf.function"


def empty_function(arrays: list[Any], calls: int = 1) -> Contender:
    """TensorFlow's time to call a graph, whatever is in it."""
    tensors = [tf.constant(array) for array in arrays]
    empty = tf.function(lambda first, *rest: first)

    def work() -> None:
        for _ in range(calls):
            empty(*tensors)

    return Contender(
        EMPTY,
        timed(work),
        note="takes the same arguments and does nothing: the part of rows with a tf.function that is the call.",
    )


def memory(
    stack: ExitStack, read: int, written: int, calls: int = 1, processor_time: bool = False
) -> Contender:
    """The machine's limit, measured in turns with the rest."""
    if not MEMORY_PASS.exists():
        raise FileNotFoundError(
            f"[benchmarks] {MEMORY_PASS} is missing. Run 'make bench', which builds it."
        )
    process = subprocess.Popen(
        [
            *(str(MEMORY_PASS), str(read), str(written), str(os.cpu_count() or 1)),
            *["processor"] * processor_time,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    assert process.stdin is not None and process.stdout is not None

    def time_ms() -> float:
        process.stdin.write("\n" * calls)
        process.stdin.flush()
        return sum(float(process.stdout.readline()) for _ in range(calls))

    return Contender(
        "the machine's memory",
        time_ms,
        note=f"reading {read * 4e-6:.1f} MB and writing {written * 4e-6:.1f} MB, nothing else: the inputs and results "
        "that the op cannot do without. Small ones stay in the caches.",
    )
