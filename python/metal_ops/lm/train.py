"""Training: one compiled step, and the contents of a checkpoint."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import optimizers
from metal_ops.programs import checkpoint
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.records import history_from, number_from, take_state
from metal_ops.programs.workers import Workers

from .config import ModelConfig, TrainConfig
from .model import Transformer
from .tokenizers import Tokenizer

# Pieces of the held-out text that are measured on, evenly spread.
_PIECES = 32


class Trainer:
    """A model, its optimizer and its text.

    Two trainers with the same text, configuration and number of steps hold the same bits, also when one of them was
    saved and loaded in between; that needs `steps` as the budget, as the learning rate follows the progress.

    Args:
      text: Bytes to train on and bytes to measure on, uint8.
      model: The model.
      config: How to learn.
      workers: With whom: each draws its share of as many batches, and all hold the same bits.

    Attributes:
      file_name: The name of the file that `save` writes.
      variables: The learnt variables.
      tokenizer: The model's; None for bytes.
    """

    file_name = checkpoint.FILE_NAME
    tokenizer: Tokenizer | None = None

    def __init__(
        self,
        text: tuple[np.ndarray, np.ndarray],
        model: ModelConfig,
        config: TrainConfig,
        workers: Workers | None = None,
    ) -> None:
        self.model_config, self.config, self.workers = model, config, workers
        # The clock of this worker's steps; `seconds` is the chief's, which all follow.
        self._clock = 0.0
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, float]] = []
        self.model, self.variables = self._made()
        self.optimizer = optimizers.AdamW(
            config.learning_rate, weight_decay=config.weight_decay, beta_1=0.9, beta_2=0.95
        )
        self.optimizer.exclude_from_weight_decay(var_names=["norm", "embedding"])
        self.optimizer.build(self.variables)
        length = model.context + 1
        with tf.device("CPU:0"):
            self._text = tf.constant(text[0])
        starts = np.linspace(0, len(text[1]) - length, _PIECES).astype(np.int64)
        held = np.stack([text[1][start : start + length] for start in np.unique(starts)])
        self._held_out = tf.constant(held.astype(np.int32))
        self._text_sum = zlib.crc32(text[0].tobytes()) | text[0].size << 32
        # Workers tell the others something with each step.
        signature = [tf.TensorSpec([], tf.int32)] + [tf.TensorSpec([2])] * (workers is not None)
        self._train = tf.function(self._train_on, input_signature=signature, autograph=False)
        self._measure = tf.function(self._loss, autograph=False)

    def _made(self) -> tuple[Transformer, list[tf.Variable]]:
        """The model, and the variables of it that are learnt."""
        model = Transformer(self.model_config, self.config.seed)
        return model, list(model.trainable_variables)

    @property
    def progress(self) -> float:
        """How much of the budget is used up, 0 to 1."""
        parts = [0.0]
        if self.config.seconds is not None:
            parts.append(self.seconds / max(self.config.seconds, 1e-9))
        if self.config.steps is not None:
            parts.append(self.step / max(self.config.steps, 1))
        return min(max(parts), 1.0)

    @property
    def done(self) -> bool:
        return self.progress >= 1

    @property
    def bytes_seen(self) -> int:
        pieces = self.config.batch * (1 if self.workers is None else self.workers.count)
        return self.step * pieces * self.model_config.context

    def learning_rate(self) -> float:
        """Up in a straight line, and then down along a cosine."""
        config, at = self.config, self.progress
        if at < config.warmup:
            # Not from 0: the first step would change nothing.
            return config.learning_rate * max(at / config.warmup, 0.01)
        falling = (at - config.warmup) / max(1 - config.warmup, 1e-9)
        low = config.final_learning_rate
        return config.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * falling)) / 2)

    def train_step(self) -> float:
        """One step; its loss in bits per byte.

        Raises:
          ProgramError: The loss is not finite.
        """
        begin = time.perf_counter()
        self.optimizer.learning_rate = self.learning_rate()
        loss = self._train_once()
        self.step += 1
        self._clock += time.perf_counter() - begin
        if self.workers is None:
            self.seconds = self._clock
        if not math.isfinite(loss):
            raise ProgramError(
                f"the loss of step {self.step} is {loss}: training diverged; lower --learning-rate."
            )
        return loss

    def _train_once(self) -> float:
        workers, step = self.workers, tf.constant(self.step)
        if workers is None:
            return float(self._train(step))
        loss, self.seconds = workers.step(self._train, step, seconds=self._clock)
        return loss / workers.count

    def agree(self) -> None:
        """Takes over the chief's state, who may have loaded it; all workers call it before their first step."""
        workers = self.workers
        if workers is None:
            return
        workers.agree_on("the text", self._text_sum)
        workers.share_state(self._state())
        said = workers.share([self.step, self.seconds, self.history])
        self.step, self.seconds, self.history = said
        self.optimizer.iterations.assign(self.step)
        self._clock = self.seconds

    def held_out(self) -> float:
        """Bits a byte of the text that is held back."""
        return float(self._measure(self._held_out))

    def _loss(self, pieces: tf.Tensor) -> tf.Tensor:
        logits = self.model(pieces[:, :-1])
        nats = tf.nn.sparse_softmax_cross_entropy_with_logits(pieces[:, 1:], logits)
        return tf.reduce_mean(nats) / math.log(2)

    def _train_on(self, step: tf.Tensor, own: tf.Tensor | None = None) -> Any:
        workers = self.workers
        config, length = self.config, self.model_config.context + 1
        with tf.device("CPU:0"):  # where the text is
            most = self._text.shape[0] - length + 1
            n_pieces = config.batch * (1 if workers is None else workers.count)
            starts = tf.random.stateless_uniform(
                [n_pieces, 1], [config.seed, step], 0, most, tf.int64
            )
            if workers is not None:
                starts = workers.slice(starts)
            pieces = tf.cast(
                tf.gather(self._text, starts + tf.range(length, dtype=tf.int64)), tf.int32
            )
        with tf.GradientTape() as tape:
            loss = self._loss(pieces)
        gradients = tape.gradient(loss, self.variables)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        found = loss
        if workers is not None and own is not None:
            dense, *found = workers.mean(dense, [loss, own[0], own[1]])
        clipped, _ = tf.clip_by_global_norm(dense, config.clip)
        self.optimizer.apply(clipped, self.variables)
        return found

    def about(self) -> dict[str, Any]:
        """The entries of metrics.json beside those of all runs."""
        return {} if self.workers is None else {"workers": self.workers.report()}

    def to_write(self, folder: Path) -> str:
        """The arguments of `lm generate` for the result."""
        return str(folder)

    def _state(self) -> dict[str, Any]:
        own = {f"optimizer{i}": v.value for i, v in enumerate(self.optimizer.variables)}
        # Keras' float32 rate and counter follow from the step.
        kept = {name: v for name, v in own.items() if v.shape.rank}
        return self.model.state() | kept

    def save(self, path: Path, data: str | None) -> None:
        """Writes a checkpoint with all that `load` needs to go on bit by bit."""
        header = {
            "model": dataclasses.asdict(self.model_config),
            "train": dataclasses.asdict(self.config),
            "data": data,
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
        }
        checkpoint.save(path, "lm", header, {name: v.numpy() for name, v in self._state().items()})

    def load(self, header: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> None:
        """Takes over a state that `save` wrote.

        Raises:
          CheckpointError: It belongs to another model.
        """
        step = number_from(header, "step", where, 0, (1 << 31) - 1)
        seconds = float(number_from(header, "seconds", where, 0, 1e9))
        history = history_from(header, where, "held_out")
        take_state(self._state(), arrays, where)
        self.optimizer.iterations.assign(step)
        self.step, self.seconds, self.history = step, seconds, history
        self._clock = seconds
