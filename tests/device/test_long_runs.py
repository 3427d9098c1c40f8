"""Training on the device for long: memory, file handles and threads stay the same once it is warm."""

from __future__ import annotations

import json
import sys

import pytest

from tests.device.test_loading import run

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="on macOS the device is Apple's")

PROGRAM = """
    import gc, json, os, sys, threading
    import numpy as np
    import tensorflow as tf
    import metal_ops
    from metal_ops import device
    STEPS, LEAK = {steps}, {leak}
    device.load()
    tf.config.set_soft_device_placement(True)
    grid = metal_ops.HashGrid(n_levels=4, log2_hashmap_size=8, base_resolution=4, finest_resolution=16)
    with tf.device("GPU:0"):
        table = tf.Variable(grid.init_table(seed=1))
        weights = tf.Variable(tf.ones([grid.output_dim, 1]) * 0.1)
    optimizer = metal_ops.optimizers.Adam(learning_rate=0.01)
    optimizer.build([table, weights])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(points):
        with tf.GradientTape() as tape:
            features = metal_ops.hash_encode(points, table, grid)
            error = tf.matmul(features, weights)[:, 0] - points[:, 0]
            loss = tf.reduce_mean(tf.square(error))
        optimizer.apply(tape.gradient(loss, [table, weights]), [table, weights])
        return loss

    def now():
        gc.collect()
        device.synchronize()
        status = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith(("VmRSS", "Threads")))
        return {{
            "rss": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
            "files": len(os.listdir("/proc/self/fd")), "device": device.memory()["in_use"],
        }}

    random = np.random.default_rng(0)
    kept, points = [], []
    with tf.device("GPU:0"):
        for number in range(STEPS):
            # Sizes that change, as rays and samples do, and a result that is read.
            batch = random.random((64 + number % 64, 3), np.float32)
            loss = float(step(batch))
            if LEAK:
                kept.append((tf.ones([1000]) + 1.0, open("/dev/null")))
                if number % 100 == 0:
                    threading.Thread(target=threading.Event().wait, daemon=True).start()
            if number in (0, STEPS // 4, STEPS // 2, STEPS - 1):
                points.append({{**now(), "step": number, "loss": loss}})
    print(json.dumps(points))
"""


def measure(steps: int, leak: bool = False) -> list[dict[str, float]]:
    return json.loads(run(PROGRAM.format(steps=steps, leak=leak)).splitlines()[-1])


def grew(points: list[dict[str, float]], steps: int) -> set[str]:
    """Figures that had not settled after a quarter of the steps."""
    _, warm, *_, last = points
    rss = last["rss"] - warm["rss"]  # KiB; allocators keep a little more now and then
    return {
        name
        for name, grown in {
            "rss": rss > 4096 + steps // 4,
            "files": last["files"] > warm["files"],
            # Dispatch queues share a pool that starts one more when a burst finds all busy, and ends idle ones.
            "threads": last["threads"] > warm["threads"] + 4,
            "device": last["device"] > warm["device"],
        }.items()
        if grown
    }


def test_two_thousand_steps():
    points = measure(2000)
    assert grew(points, 2000) == set(), points
    assert points[-1]["loss"] < 0.01 * points[0]["loss"]  # it was training


@pytest.mark.slow("ten thousand steps")
def test_ten_thousand_steps():
    points = measure(10_000)
    print(points)
    assert grew(points, 10_000) == set(), points


def test_control_a_leak_is_seen():
    assert grew(measure(1500, leak=True), 1500) == {"rss", "files", "threads", "device"}
