"""A function with the graph pass on and off, for workers: see benchmarks/peers.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Repeated:
    """Work that is timed several calls in a row, and whose results are copied only for a comparison."""

    def __init__(self, work: Callable[[int], Any], calls: int) -> None:
        self._work, self._calls = work, calls

    def __call__(self) -> None:
        self._work(self._calls)

    def results(self) -> list[np.ndarray]:
        return [self._work(1).numpy()]


def on_and_off(
    body: Callable[..., Any], place: str, arrays: list[np.ndarray], calls: int, nodes: int
) -> tuple[Repeated, Repeated]:
    """The function at "CPU:0", or at "GPU:0", where the Metal device is loaded for it.

    Args:
      body: A function of the arrays' tensors.
      place: Where tensors and ops are.
      arrays: Its arguments.
      calls: How many are timed in a row.
      nodes: How many of its nodes the pass makes when it is on.
    """
    import tensorflow as tf

    import metal_ops
    from metal_ops import device

    on_device = place == "GPU:0"
    if on_device:
        device.load()
        # An op without a kernel on the device must not run elsewhere.
        tf.config.set_soft_device_placement(False)
    with tf.device(place):
        tensors = [tf.identity(tf.constant(array)) for array in arrays]

    def placed(*values: tf.Tensor) -> tf.Tensor:
        with tf.device(place):
            return body(*values)

    def variant(context: Any, expected: int) -> Repeated:
        function = tf.function(placed)
        with context:
            before = metal_ops.fusion.status().fused
            function(*tensors)
            fused = metal_ops.fusion.status().fused - before
        if fused != expected:
            raise RuntimeError(f"{fused} nodes were fused, expected {expected}")

        def work(count: int) -> tf.Tensor:
            for _ in range(count):
                y = function(*tensors)
            if on_device:
                device.synchronize()
            return y

        return Repeated(work, calls)

    on = metal_ops.fusion.enabled(cpu=not on_device)
    return variant(on, nodes), variant(metal_ops.fusion.disabled(), 0)
