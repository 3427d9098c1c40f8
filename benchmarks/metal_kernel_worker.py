"""Metal kernels in Python strings on the Metal device, run by benchmarks/peers.py in a process of its own.

"call": a kernel against the built op whose shader does the same, called outside of graphs. "swiglu": the two kernels of
examples/fused_swiglu.py against the stock ops, in a graph.

settings: calls, how many of them are timed in a row; gradients, for swiglu.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_worker import serve  # noqa: E402

VERSION = "through Objective-C and MSL, on hostmetal's CPU driver"


class Variant:
    """Calls in a row, until the device is done; the results are copied for a comparison."""

    def __init__(self, work: Callable[[], Any], calls: int) -> None:
        self._work, self._calls = work, calls

    def __call__(self) -> None:
        from metal_ops import device

        for _ in range(self._calls):
            kept = self._work()
        device.synchronize()
        del kept

    def results(self) -> list[np.ndarray]:
        import tensorflow as tf

        return [value.numpy() for value in tf.nest.flatten(self._work())]


def start() -> Any:
    """TensorFlow with the device, on which ops without a kernel fail."""
    import tensorflow as tf

    from metal_ops import device

    device.load()
    tf.config.set_soft_device_placement(False)
    return tf


def call_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    tf = start()
    import metal_ops

    scaled = metal_ops.metal_kernel(
        "scaled", ["x"], ["y"], "y[i] = scale * x[i];", params={"scale": "float"}
    )
    with tf.device("GPU:0"):
        x = tf.identity(tf.constant(inputs["a0"]))
    works = {
        "metal_kernel": lambda: scaled(x, scale=2.0),
        "built op": lambda: metal_ops.null_op(x, scale=2.0),
    }
    return VERSION, {name: Variant(work, settings["calls"]) for name, work in works.items()}


def swiglu_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    tf = start()
    from examples import fused_swiglu

    with tf.device("GPU:0"):
        tensors = [tf.identity(tf.constant(inputs[f"a{i}"])) for i in range(3)]

    def variant(function: Callable[..., Any]) -> Variant:
        @tf.function
        def run(gate: Any, up: Any, incoming: Any) -> Any:
            with tf.device("GPU:0"):
                if settings["gradients"]:
                    return fused_swiglu.with_gradients(function, gate, up, incoming)
                return function(gate, up)

        return Variant(lambda: run(*tensors), settings["calls"])

    return VERSION, {
        "fused": variant(fused_swiglu.swiglu),
        "stock": variant(fused_swiglu.stock),
    }


if __name__ == "__main__":
    serve(
        {"call": call_variants, "swiglu": swiglu_variants},
        ("output", "gate_gradient", "up_gradient"),
    )
