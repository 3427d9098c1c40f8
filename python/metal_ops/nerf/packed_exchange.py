"""What the workers of a run say to each other in a packed step: gradients, and what it needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from metal_ops.programs.windows import Window, open_window
from metal_ops.programs.workers import Workers

from .launches import HOST, Launches, always

_A_THREAD = 4  # values of packed_exchange.metal
# Of the numbers that workers add up, those of which the mean is wanted: loss, and slots marched and kept.
N_MEANS = 5


class PackedExchange:
    """The exchange of a step; all workers make theirs at once.

    Where devices can, each reads the others' gradients out of their memory; otherwise they go as those of all programs.

    Args:
      workers: All of this run.
      variables: Whose gradients they are, that of a table first.
      device: Where they are.
    """

    def __init__(self, workers: Workers, variables: Sequence[tf.Variable], device: str) -> None:
        self.workers = workers
        self._table, *rest = (int(np.prod(v.shape)) for v in variables)
        self._networks = sum(rest)
        # The networks' lie behind the table's, as whole vectors.
        self._begin = -(-4 * self._table // 256) * 256
        size = self._begin + 4 * self._networks
        self._window = open_window(workers, device, size)
        if self._window is not None:
            workers.through = "memory of their devices"
        self._sent = (workers.count - 1.0) * 4 * (self._table + self._networks)

    def __call__(
        self,
        run: Launches,
        gradients: list[tf.Tensor],
        found: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        number: tf.Tensor,
        own: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """The means of all workers' gradients.

        Args:
          run: The step's launches.
          gradients: Of this worker's rays, in the order of the variables.
          found: Loss [], slots marched [2] and kept [2], as in `StepTotals`.
          number: int32 on the host, of the step.
          own: float32 [2] on the host, as `Workers.step` has it.

        Returns:
          The gradients; means of the loss and slots, and sums of `own`, float32 [7] on the host; and what it cost.
        """
        if self._window is not None:
            means, sums, cost = self._by_window(run, self._window, gradients, found, number, own)
        else:
            loss, *slots = found
            with tf.device(HOST):
                numbers = [loss, *(tf.cast(tf.identity(s)[i], tf.float32) for s in slots for i in (0, 1))]  # fmt: skip
                means, sums, cost = self.workers.mean(gradients, [*numbers, own[0], own[1]], 0)
        with tf.device(HOST):
            share = 1 / self.workers.count
            return means, sums * tf.constant([share] * N_MEANS + [1.0, 1.0]), cost

    def _by_window(
        self,
        run: Launches,
        window: Window,
        gradients: list[tf.Tensor],
        found: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
        number: tf.Tensor,
        own: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        workers = self.workers
        table, *networks = gradients
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in networks], 0)
        with tf.device(HOST):
            begins = tf.gather(tf.constant(window.halves, tf.int64), number % 2)

        def put(values: tf.Tensor, size: int, offset: int) -> tf.Tensor:
            with tf.device(HOST):
                to = begins[workers.rank] + offset
            return run(
                "packed_exchange_put",
                lambda _: [-(-size // _A_THREAD)],
                {"values": values},
                {"to": to, "n": np.uint32(size)},
                [("done", always([1]), tf.uint32)],
            )

        def mean(begins: tf.Tensor, dims: list[int], offset: int) -> tf.Tensor:
            size = int(np.prod(dims))
            with tf.device(HOST):
                begins = begins + offset
            return run(
                "packed_exchange_mean",
                lambda _: [-(-size // _A_THREAD)],
                {},
                {"from": begins, "n_workers": np.uint32(workers.count), "n": np.uint32(size)},
                [("mean", always(dims), tf.float32)],
            )

        loss, marched, kept = found
        numbers = run(
            "packed_exchange_numbers",
            lambda _: [1],
            {
                "loss": loss,
                "marched": marched,
                "kept": kept,
                "table": put(table, self._table, 0),
                "networks": put(flat, self._networks, self._begin),
            },
            {},
            [("numbers", always([N_MEANS + 1]), tf.float32)],
        )
        with tf.device(HOST):
            numbers = tf.identity(numbers)  # once it is here, all that this worker puts is there
            with tf.control_dependencies([numbers]):
                begin = tf.timestamp()
            sums = workers.sum(tf.concat([numbers[:N_MEANS], own], 0))
            with tf.control_dependencies([sums]):  # and now all that all put
                begins = tf.identity(begins)
                cost = tf.stack([tf.constant(self._sent, tf.float64), tf.timestamp() - begin])
        flat = mean(begins, [self._networks], self._begin)
        sizes = [int(np.prod(gradient.shape)) for gradient in networks]
        parts = [
            tf.reshape(part, gradient.shape)
            for part, gradient in zip(tf.split(flat, sizes), networks, strict=True)
        ]
        return [mean(begins, [int(n) for n in table.shape], 0), *parts], sums, cost
