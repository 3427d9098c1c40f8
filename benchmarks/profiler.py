"""The cost of `metal_ops.profiler.trace`: `python -m benchmarks.profiler [--processes N] [--rounds N] [--filter TEXT]`.

Rounds of 20 steps with and without it in turns: the table has medians of the rounds, and of their ratios, of the middle
one of the processes. The wall's clock includes other programs' use of the machine; CPU time, of all threads, does not.
The start and the end of `trace` count, as the 20 steps stand for a traced block.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STEPS = 20


def training() -> Callable[[], Any]:
    import keras
    import tensorflow as tf

    model = keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    images, labels = tf.random.uniform([32, 28, 28, 1]), tf.zeros([32], tf.int32)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_variables))

    return step


def chain(ops: int, floats: int, in_function: bool = True) -> Callable[[], Any]:
    """So many elementwise ops, each of the one before."""
    import tensorflow as tf

    def run(x: tf.Tensor) -> tf.Tensor:
        for _ in range(ops // 2):
            x = tf.tanh(tf.negative(x))
        return x

    step = tf.function(run) if in_function else run
    x = tf.random.uniform([floats])
    return lambda: step(x)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "a training step of two convolutions and a dense layer, 32 images of 28 x 28": training,
    "120 elementwise ops of 2^18 floats in a `tf.function`": lambda: chain(120, 2**18),
    "120 of 4096 floats in a `tf.function`": lambda: chain(120, 4096),
    "120 of 8 floats in a `tf.function`": lambda: chain(120, 8),
    "100 of 4096 floats outside of functions": lambda: chain(100, 4096, in_function=False),
}


def measure(step: Callable[[], Any], rounds: int) -> dict[str, tuple[float, float, float]]:
    """By clock: ms per step without and with `trace`, and the ratio; medians."""
    from metal_ops import device, profiler

    clocks = {"wall": time.perf_counter, "CPU": time.process_time}

    def steps() -> None:
        for _ in range(STEPS):
            step()
        device.synchronize()

    def traced() -> None:
        with profiler.trace():
            steps()

    taken: dict[str, list[list[float]]] = {name: [] for name in clocks}
    for turn in range(rounds + 2):
        pair: dict[str, list[float]] = {name: [0.0, 0.0] for name in clocks}
        for which in (0, 1) if turn % 2 else (1, 0):
            began = {name: clock() for name, clock in clocks.items()}
            (steps, traced)[which]()
            for name, clock in clocks.items():
                pair[name][which] = (clock() - began[name]) / STEPS * 1e3
        if turn > 1:  # the first trace, compile and allocate
            for name in clocks:
                taken[name].append(pair[name])
    result = {}
    for name, pairs in taken.items():
        without, with_trace = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        result[name] = (without, with_trace, ratio)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profiler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only rows that contain TEXT")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = {name: case for name, case in CASES.items() if options.filter in name}
    if not chosen:
        parser.error(f"no row contains {options.filter!r}; there are: {'; '.join(CASES)}")
    if options.worker:
        from metal_ops import device

        device.load()
        print(json.dumps({name: measure(case(), options.rounds) for name, case in chosen.items()}))
        return 0
    command = [sys.executable, "-m", "benchmarks.profiler", "--worker"]
    command += ["--rounds", str(options.rounds), "--filter", options.filter]
    found = []
    for _ in range(options.processes):
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(run.stdout.splitlines()[-1]))
    print("| | clock | without | with `trace` | ratio | of the processes |")
    print("|---|---|---|---|---|---|")
    for name in chosen:
        for clock in ("wall", "CPU"):
            runs = sorted((one[name][clock] for one in found), key=lambda row: row[2])
            without, with_trace, ratio = runs[len(runs) // 2]
            print(
                f"| {name} | {clock} | {without:.2f} ms | {with_trace:.2f} ms | {ratio:.3f} "
                f"| {runs[0][2]:.3f} to {runs[-1][2]:.3f} |"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
