"""metal_ops on the Metal device, run by benchmarks/peers.py in a process of its own: a loaded device stays in it, and
would take the ops of the other rows.

settings: work ("module:name", the entry of the module's WORKS), gradients and calls, as for peer_formulas.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peer_worker import serve  # noqa: E402


def metal_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import tensorflow as tf

    from metal_ops import device

    device.load()
    module, _, name = settings["work"].partition(":")
    ours = importlib.import_module(module).WORKS[name].ours
    which = settings["gradients"]
    arrays = [inputs[f"a{i}"] for i in range(len(inputs)) if f"a{i}" in inputs]

    @tf.function
    def run(weights: tf.Tensor, *tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        if not which:
            return (ours(*tensors),)
        sources = [tensors[i] for i in which]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            output = ours(*tensors)
        return output, *tape.gradient(output, sources, output_gradients=weights)

    with tf.device("GPU:0"):
        tensors = [tf.constant(array) for array in arrays]
        weights = tf.constant(inputs.get("incoming", np.float32(1)))

    def work() -> tuple[np.ndarray, ...]:
        # Copied to the host: the device's answer is made only on request.
        for _ in range(settings["calls"]):
            results = tuple(value.numpy() for value in run(weights, *tensors))
        return results

    return (
        "the same op through Objective-C and its shader, on hostmetal's CPU driver, with the copy of the results",
        {"metal": work},
    )


if __name__ == "__main__":
    serve({"metal": metal_variants}, ("output", *(f"gradient{i}" for i in range(8))))
