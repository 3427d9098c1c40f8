"""The messages between the workers of a run, by an `Exchange`.

Variables are plain ones, and each worker's hold the same bits, as all have the same sums of gradients. Messages go
through host memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .cluster import horovod_rank
from .command import find_device, hold, refuse_used_up
from .errors import ProgramError
from .exchange import HOST, Exchange, LostWorker, exchange_from
from .files import run_folder
from .interrupts import stop_on_interrupt
from .launch import AGAIN, RUN, WAITING, use_own_share

# Rows of a sparse gradient go in so many sizes: a collective has one shape for each of its keys.
_SIZES = 64


class Workers:
    """All workers of a run, seen by one of them.

    Every worker makes the same calls in the same order.

    Args:
      exchange: The way to the others.

    Attributes:
      count: How many there are.
      rank: Rank of this one; 0 is the chief, who writes the files.
      asking: Whether this one was asked to stop.
      stopped: Whether any was, as all know since their last step.
      returned: Whether they were started again, as one was lost.
      through: How gradients go, in words.
      steps: That were taken together.
      bytes_sent: In these, by this worker.
      seconds: Seconds of these in which this worker waited for others and sent; None where they are unknown, as devices
          do it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.count, self.rank = exchange, exchange.count, exchange.rank
        self.asking: Callable[[], bool] = lambda: False
        self.stopped = self.returned = False
        self.steps, self.bytes_sent = 0, 0.0
        self.seconds: float | None = 0.0
        self.through = exchange.name
        self._unread: tf.Tensor | None = None
        self._key = 0
        self.barrier()

    @property
    def chief(self) -> bool:
        return self.rank == 0

    def stop_with(self, asked: Callable[[], bool]) -> Callable[[], bool]:
        """Whether to stop, which all answer alike, where `asked` is this one's own answer."""
        self.asking = asked
        return lambda: self.stopped

    @property
    def seed(self) -> int:
        """The number that a seed of this worker alone is XORed with; 0 for the chief. An int32."""
        return (self.rank * 0x9E3779B1 + 2**31) % 2**32 - 2**31 if self.rank else 0

    def _keys(self, number: int = 1) -> int:
        first, self._key = self._key, self._key + number
        return first

    def sum(self, values: tf.Tensor) -> tf.Tensor:
        """The sum of all workers' values, which have one shape; the same bits for all."""
        with tf.device(HOST):
            return self.exchange.sum(values, self._keys())

    def gather(self, values: tf.Tensor, key: Any = None) -> tf.Tensor:
        """All workers' values, which have one shape, one after the other along the first dimension."""
        with tf.device(HOST):
            return self.exchange.gather(values, self._keys() if key is None else key)

    def barrier(self) -> None:
        """Returns once all are here."""
        with self.noticing():
            self.sum(tf.zeros([1])).numpy()

    def finish(self) -> None:
        """Ends together: to others an end before theirs looks like a death."""
        with suppress(LostWorker):  # who is through first may be gone before its last word is
            self.settle()  # devices read the others' memory
            self.barrier()
        self.exchange.close()

    def share(self, content: Any) -> Any:
        """The chief's content, plain values, for all."""
        text = json.dumps(content).encode() if self.chief else b""
        with self.noticing(), tf.device(HOST):
            length = int(self.sum(tf.constant([len(text)]))[0])
            bytes_ = np.zeros([length], np.int32)
            if self.chief:
                bytes_[:] = np.frombuffer(text, np.uint8)
            shared = self.sum(tf.constant(bytes_)).numpy()
        return json.loads(shared.astype(np.uint8).tobytes())

    def share_state(self, state: Mapping[str, tf.Variable]) -> None:
        """Gives the variables the chief's values."""
        with self.noticing(), tf.device(HOST):
            for variable in state.values():
                value = tf.identity(variable)
                wide = value if value.dtype in (tf.float32, tf.float64) else tf.cast(value, tf.int64)  # fmt: skip
                shared = self.sum(wide if self.chief else tf.zeros_like(wide))
                if not self.chief:
                    variable.assign(tf.cast(shared, value.dtype))

    def agree_on(self, what: str, number: int) -> None:
        """Raises ProgramError unless all workers have the same number, of 63 bits."""
        with self.noticing(), tf.device(HOST):
            found = self.gather(tf.constant([number], tf.int64)).numpy()
        for rank, other in enumerate(found):
            if other != found[0]:
                raise ProgramError(
                    f"{what} of worker {rank} differs from that of worker 0; give all workers the same files."
                )

    def all(self, yes: bool) -> bool:
        """Whether all workers say yes."""
        with self.noticing():
            return int(self.sum(tf.constant(float(yes))[None])[0]) == self.count

    def slice(self, values: tf.Tensor) -> tf.Tensor:
        """This worker's part of the values that all drew."""
        size = tf.shape(values)[0] // self.count
        return values[self.rank * size : (self.rank + 1) * size]

    def shared(
        self, function: Callable[[tf.Tensor], tf.Tensor], points: tf.Tensor, most: int
    ) -> tf.Tensor:
        """`function` of all points, of which each worker does a part.

        Args:
          function: [n, d] -> [n] float32.
          points: [n, d], the same for all workers.
          most: No less than n, fixed.
        """
        n, room = tf.shape(points)[0], -(-most // self.count)
        size = -(-n // self.count)
        begin = tf.minimum(self.rank * size, n)
        own = tf.reshape(function(points[begin : tf.minimum(begin + size, n)]), [-1])
        padded = tf.pad(own, [[0, room - tf.shape(own)[0]]])
        every = tf.reshape(self.gather(padded), [self.count, room])
        return tf.reshape(every[:, :size], [-1])[:n]

    def mean(
        self, gradients: Sequence[tf.Tensor], numbers: Sequence[tf.Tensor], table: int | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """The exchange of a step.

        Args:
          gradients: float32, of this worker's share.
          numbers: float32 scalars.
          table: The gradient of a table whose rows are mostly zero: it goes as rows or whole, whichever is fewer bytes;
            whole where the exchange has nothing from rows.

        Returns:
          The means of the gradients, the sums of the numbers [n], and float64 [2]: bytes that this worker sent, and
          seconds that it waited and sent.
        """
        small = [g for i, g in enumerate(gradients) if i != table]
        with tf.device(HOST):
            flat = [tf.reshape(tf.identity(g), [-1]) for g in small]
            packet = [*flat, tf.stack([tf.cast(n, tf.float32) for n in numbers])]
            whole = touched = None
            if table is not None:
                whole = tf.identity(gradients[table])
            if whole is not None and self.exchange.by_rows:
                touched = tf.where(tf.reduce_any(tf.not_equal(whole, 0.0), axis=1))[:, 0]
                block = -(-whole.shape[0] // _SIZES)
                blocks = -(-tf.size(touched) // block)
                packet.append(tf.one_hot(self.rank, self.count) * tf.cast(blocks, tf.float32))
            vector = tf.concat(packet, 0)
            with tf.control_dependencies([vector]):
                begin = tf.timestamp()
            total = self.sum(vector)
            parts = tf.split(total, [part.shape.num_elements() for part in packet])
            sums = [tf.reshape(p, g.shape) for p, g in zip(parts, small, strict=False)]
            sent = tf.cast(self.exchange.sum_bytes(4 * tf.size(vector)), tf.float64)
            if whole is not None and table is not None:
                if touched is None:
                    with tf.control_dependencies([total]):  # all make their calls in one order
                        table_sum = self.sum(whole)
                    more = tf.constant(
                        self.exchange.sum_bytes(4 * whole.shape.num_elements()), tf.float64
                    )
                else:
                    most = tf.cast(tf.reduce_max(parts[-1]), tf.int32)
                    table_sum, more = self._table(whole, touched, most, block)
                sums.insert(table, table_sum)
                sent += more
            with tf.control_dependencies([*sums, total]):
                seconds = tf.timestamp() - begin
            means = [value / self.count for value in sums]
        return means, parts[len(small)], tf.stack([sent, seconds])

    def _table(
        self, whole: tf.Tensor, touched: tf.Tensor, blocks: tf.Tensor, block: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The sum of the tables of all workers, by rows where that is fewer bytes than the whole; and the bytes."""
        rows, width = whole.shape
        key, capacity = self._keys(_SIZES + 1), tf.maximum(blocks, 1) * block
        as_rows = self.exchange.gather_bytes(tf.cast(capacity, tf.float64) * (4 * (width + 1)))
        as_whole = tf.constant(self.exchange.sum_bytes(4 * rows * width), tf.float64)

        def by_rows() -> tuple[tf.Tensor, tf.Tensor]:
            values = tf.gather(whole, touched)
            # Row numbers travel among the values, as their bits; the remaining ones add nothing to row 0.
            numbers = tf.bitcast(tf.cast(touched, tf.int32), tf.float32)[:, None]
            own = tf.pad(
                tf.concat([numbers, values], 1), [[0, capacity - tf.size(touched)], [0, 0]]
            )
            every = self.gather(own, key + capacity // block)
            total = tf.math.unsorted_segment_sum(
                every[:, 1:], tf.bitcast(every[:, 0], tf.int32), rows
            )
            return total, as_rows

        # The bytes sent are counted by the function that sent them.
        total, sent = tf.cond(as_rows < as_whole, by_rows, lambda: (self.sum(whole), as_whole))
        return tf.ensure_shape(total, whole.shape), sent

    def follow(self, trainer: Any) -> int:
        """Trains with the chief, who does everything else; the exit code."""
        with stop_on_interrupt() as asked:
            stop = self.stop_with(asked)
            while not trainer.done and not stop():
                trainer.train_step()
        self.finish()
        return 130 if self.stopped else 0

    def step(
        self, train: Callable[..., Any], *inputs: tf.Tensor, seconds: float, read: bool = True
    ) -> list[float]:
        """A step of all.

        Args:
          train: A function of the inputs and float32 [2], which are the last numbers that it gives to `mean`; returns
            numbers, so ending, and the cost that `mean` reports. Numbers of a device that gave up waiting for others
            are NaN.
          inputs: The other arguments of `train`.
          seconds: That this worker's steps took so far.
          read: Whether to wait for the numbers. All workers say the same.

        Returns:
          The numbers, at their end the chief's seconds; none if they are not read.
        """
        with tf.device(HOST):
            own = tf.constant([seconds if self.chief else 0.0, float(self.asking())])
        with self.noticing():
            self._unread, cost = train(*inputs, own)
            sent, *waited = np.asarray(cost).tolist()
            self.steps += 1
            self.bytes_sent += sent
            self.seconds = self.seconds + waited[0] if waited and self.seconds is not None else None
            numbers = self.settle() if read else []
        if read:  # else not all know
            self.stopped = numbers.pop() > 0
        return numbers

    def settle(self) -> list[float]:
        """The last step's numbers, if they have not been read; once they are here, the step is over.

        Raises:
          LostWorker: A device gave up waiting for others.
        """
        found, self._unread = self._unread, None
        numbers = [] if found is None else found.numpy().tolist()
        if numbers and math.isnan(numbers[-1]):
            raise LostWorker("its gradients have not come")
        return numbers

    def begin(self, trainer: Any, arguments: argparse.Namespace, name: str) -> Path:
        """Gives all trainers one state. The run's folder, by --resume or `name`; who is no chief writes to none."""
        trainer.agree()
        if trainer.step and not self.returned:
            refuse_used_up(trainer, arguments.resume)
        if not self.chief:
            return Path()
        # Where the process that started this one finds the run's checkpoint, and who comes after this one its folder.
        own = os.environ.get("METAL_OPS_WORKER")
        note = None if own is None else Path(own).with_name(RUN)
        if arguments.resume is not None:
            folder: Path = arguments.resume
        elif note is not None and note.exists():
            folder = Path(note.read_text())
        else:
            folder = run_folder(arguments.runs, arguments.name, name, arguments.overwrite)
        hold(arguments, folder)
        if note is not None:
            note.write_text(str(folder.resolve()))
        return folder

    def report(self) -> dict[str, Any]:
        """The costs of the steps, for metrics.json."""
        steps = max(self.steps, 1)
        return {
            "count": self.count,
            "through": self.through,
            "steps": self.steps,
            "bytes_sent_a_step": self.bytes_sent / steps,
            "seconds_between_a_step": None if self.seconds is None else self.seconds / steps,
        }

    def words(self) -> str:
        """The report as a sentence."""
        found = self.report()
        sent, seconds = found["bytes_sent_a_step"] / 1e6, found["seconds_between_a_step"]
        words = f"{self.count} workers through {self.through}: each sent {sent:.2f} MB a step"
        if seconds is None:
            return f"{words}; devices waited for each other by themselves."
        return f"{words}; sending and waiting took {seconds * 1e3:.1f} ms of it."

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Turns TensorFlow's errors about workers that are gone into a `LostWorker`."""
        try:
            yield
        except tf.errors.OpError as error:
            if (loss := self.exchange.loss(error)) is None:
                raise
            raise loss from None


def join(arguments: argparse.Namespace) -> Workers:
    """The workers that this process is one of, by `launch.run` or `horovodrun`; once all are there."""
    if horovod_rank(os.environ) is not None:
        use_own_share(os.environ)
        find_device(arguments)
        workers = Workers(exchange_from(os.environ))
        if not workers.chief:  # one of them speaks
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process runs
        return workers
    end_with_parent()
    find_device(arguments)  # the collectives make TensorFlow's devices
    waiting = Path(os.environ["METAL_OPS_WORKER"] + WAITING)
    waiting.touch()
    workers = Workers(exchange_from(os.environ))
    waiting.unlink()
    workers.returned = AGAIN in os.environ
    return workers


def end_with_parent() -> None:
    """Lets this process stop when the one that started it is gone."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        # A wait for workers that are gone hears no signals.
        threading.Event().wait(30)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
