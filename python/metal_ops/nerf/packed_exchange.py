"""The messages between the workers of a run in a packed step: gradients, and the slots it needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops.programs.windows import Window, open_window
from metal_ops.programs.workers import Workers

from .launches import HOST, Launches, always
from .packed import PackedField, has_own_memory

_A_THREAD = 4  # values of packed_exchange.metal
_ALIGNED = 256  # bytes
_SAID = 512  # bytes of PackedSaid, at least
# Among the numbers that workers add up, those whose mean is wanted: loss, and slots marched and kept.
N_MEANS = 5
# By whether the device has memory of its own: of other GPUs a poll takes a microsecond or two, of a core 54 ns. Either
# way it is minutes, as the chief may evaluate meanwhile; workers that lost another are ended long before.
_POLLS = {True: 1 << 28, False: 1 << 34}


class PackedGradients(NamedTuple):
    """The gradients of a step.

    Attributes:
      table: Float32, the mean over its rays.
      networks: Gradients of the density network and of the colour network, all matrices in one vector each: sums over
          rays.
      share: The factor that makes a mean of a sum, float32 on the host.
    """

    table: tf.Tensor
    networks: tuple[tf.Tensor, tf.Tensor]
    share: tf.Tensor


class PackedExchange:
    """The exchange of a step; all workers make theirs at once.

    Where devices can, each reads the others' gradients out of their memory, and waits for them by itself while hosts go
    ahead. Otherwise they go as those of all programs.

    Args:
      workers: All of this run.
      packed: The field whose gradients they are.
      device: Where they are.

    Attributes:
      sent: Bytes that a worker sends in a step by windows; no output of a graph, as such ones go by way of the device.
    """

    def __init__(self, workers: Workers, packed: PackedField, device: str) -> None:
        self.workers = workers
        self._shapes = [[int(n) for n in v.shape] for v in packed.variables()]
        self._n_density = len(packed.field.density_matrices)
        table, *rest = (int(np.prod(shape)) for shape in self._shapes)
        # The networks' lie behind the table's, as whole vectors.
        first = -(-4 * table // _ALIGNED) * _ALIGNED // 4
        self._begins = [0, *(first + int(n) for n in np.cumsum([0, *rest]))]
        half = -(-4 * self._begins[-1] // _ALIGNED) * _ALIGNED
        window = open_window(workers, device, 2 * half + _SAID)
        self._windows = None
        if window is not None:
            workers.through = "memory of their devices"
            self._windows = _addresses(window, half, workers, device)
        self._polls = np.uint64(_POLLS[has_own_memory(device)])
        self.sent = (workers.count - 1.0) * 4 * (table + sum(rest))

    def __call__(
        self,
        run: Launches,
        gradients: PackedGradients,
        matrices: Callable[[], list[tf.Tensor]],
        found: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        number: tf.Tensor,
        own: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor, *tuple[tf.Tensor, ...]]:
        """The means of all workers' gradients.

        Args:
          run: The step's launches.
          gradients: Gradients of this worker's rays.
          matrices: Makes those of the variables, in their order.
          found: Loss [], slots marched [2] and kept [2], as in `StepTotals`.
          number: int32 on the host, of the step, 1 for the first.
          own: float32 [2] on the host, as `Workers.step` has it.

        Returns:
          The gradients of the variables; means of the loss and slots, and sums of `own`, float32 [7]; and the cost
          beside `sent`, where it is known.
        """
        if self._windows is not None:
            return self._by_windows(run, self._windows, gradients, found, number, own)
        loss, *slots = found
        own_gradients = matrices()
        with tf.device(HOST):
            numbers = [loss, *(tf.cast(tf.identity(s)[i], tf.float32) for s in slots for i in (0, 1))]  # fmt: skip
            means, sums, cost = self.workers.mean(own_gradients, [*numbers, own[0], own[1]], 0)
            share = 1 / self.workers.count
            return means, sums * tf.constant([share] * N_MEANS + [1.0, 1.0]), cost

    def _by_windows(
        self,
        run: Launches,
        addresses: tf.Tensor,
        gradients: PackedGradients,
        found: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        number: tf.Tensor,
        own: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        windows = {"windows": addresses}

        def part(begin: int, size: int) -> dict[str, Any]:
            return {"step": number, "begin": np.uint32(begin), "n": np.uint32(size)}

        def put(values: tf.Tensor, begin: int, end: int, by: Any) -> tf.Tensor:
            kind = "half" if values.dtype == tf.float16 else "float"
            return run(
                f"packed_exchange_put_{kind}",
                lambda _: [-(-(end - begin) // _A_THREAD)],
                {**windows, "values": values},
                {**part(begin, end - begin), "by": by},
                [("done", always([1]), tf.uint32)],
            )

        def mean(waited: tf.Tensor, begin: int, dims: list[int]) -> tf.Tensor:
            size = int(np.prod(dims))
            return run(
                "packed_exchange_mean",
                lambda _: [-(-size // _A_THREAD)],
                {**windows, "waited": waited},
                part(begin, size),
                [("mean", always(dims), tf.float32)],
            )

        begins = self._begins
        density, colour = gradients.networks
        between = begins[1 + self._n_density]
        loss, marched, kept = found
        said = run(
            "packed_exchange_say",
            lambda _: [1],
            {
                **windows,
                "loss": loss,
                "marched": marched,
                "kept": kept,
                "table": put(gradients.table, 0, int(np.prod(self._shapes[0])), np.float32(1)),
                "density": put(density, begins[1], between, gradients.share),
                "colour": put(colour, between, begins[-1], gradients.share),
            },
            {"step": number, "own": own},
            [("said", always([1]), tf.uint32)],
        )
        sums = run(
            "packed_exchange_wait",
            lambda _: [N_MEANS + 2],
            {**windows, "said": said},
            {"step": number, "polls": self._polls},
            [("sums", always([N_MEANS + 2]), tf.float32)],
        )
        means = [mean(sums, *where) for where in zip(begins, self._shapes, strict=False)]
        return means, sums


def _addresses(window: Window, half: int, workers: Workers, device: str) -> tf.Tensor:
    """PackedWindows of packed_exchange.metal."""
    words = [half, workers.count, workers.rank, *window.begins]
    with tf.device(device):
        return tf.identity(tf.constant(words, tf.int64))
