"""A training run from start to pictures, and text in a terminal."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from metal_ops.programs.command import CHECKPOINT_EVERY
from metal_ops.programs.files import atomic, write_json
from metal_ops.programs.interrupts import stop_on_interrupt
from metal_ops.programs.telling import Whole, looks_left, phase

from . import pictures
from .generate import Sampling, Writer
from .train import Trainer

_SAMPLE = 400
_LOOKED_AT = 32


class Bar:
    """Progress in the terminal; plain lines where it is a file."""

    def __init__(self, console: Console, trainer: Trainer) -> None:
        self._console, self._trainer = console, trainer
        self._progress = Progress(
            TextColumn("lm"),
            BarColumn(),
            TextColumn("step {task.fields[step]}"),
            TextColumn("{task.fields[loss]:.3f} bits per byte"),
            TextColumn("held back {task.fields[held]}"),
            TextColumn("{task.fields[rate]} bytes/s"),
            TextColumn("{task.fields[left]} left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(
            "lm", total=1.0, step=0, loss=0.0, held="-", rate="-", left="-"
        )
        self._since = (trainer.seconds, trainer.bytes_seen)
        self._shown = 0.0

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, loss: float) -> None:
        trainer, now = self._trainer, time.monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        seconds = max(trainer.seconds - self._since[0], 1e-6)
        rate = (trainer.bytes_seen - self._since[1]) / seconds
        self._progress.update(
            self._task, completed=trainer.progress, step=trainer.step, loss=loss, rate=f"{rate:,.0f}",
            left=self._left(),
        )  # fmt: skip

    def measured(self, point: dict[str, float]) -> None:
        self._progress.update(self._task, held=f"{point['held_out']:.3f}")
        if not self._console.is_terminal:
            self._console.print(
                f"{point['seconds']:6.1f} s  step {int(point['step']):6d}  {point['loss']:.3f} bits per byte, "
                f"{point['held_out']:.3f} held back  {self._left()} left"
            )

    def _left(self) -> str:
        done = self._trainer.progress
        return f"{self._trainer.seconds * (1 / done - 1):.0f} s" if done > 0 else "-"


def train_run(
    trainer: Trainer,
    folder: Path,
    data: str | None,
    console: Console,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> int:
    """Trains to the end of the budget, or to Ctrl-C, and leaves everything in the folder.

    Args:
      trainer: New or loaded.
      folder: Folder of the run; made on the first write.
      data: Where the text is, for the checkpoint.
      console: Where progress goes.
      checkpoint_every: Seconds of training between checkpoints.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.
    """
    workers = trainer.workers
    if workers is not None and not workers.chief:
        return workers.follow(trainer)
    recent: list[float] = []
    due, saved_at = max(2.0, 1.5 * trainer.seconds), trainer.seconds
    since, whole = trainer.seconds, Whole(console, trainer.seconds)
    whole.begin(trainer.config.seconds)

    def measure() -> dict[str, float]:
        point = {
            "step": trainer.step,
            "seconds": trainer.seconds,
            "loss": float(np.mean(recent)) if recent else float("nan"),
            "held_out": trainer.held_out(),
        }
        trainer.history.append(point)
        recent.clear()
        return point

    with stop_on_interrupt() as asked, Bar(console, trainer) as bar:
        stop = asked if workers is None else workers.stop_with(asked)
        while not trainer.done and not stop():
            recent.append(trainer.train_step())
            bar.step(float(np.mean(recent[-20:])))
            if trainer.seconds >= due and not trainer.done:
                begun = time.monotonic()
                bar.measured(measure())
                due = 1.5 * trainer.seconds
                # The end takes as long again: a text is written, and pictures.
                times = looks_left(trainer.seconds, trainer.seconds / trainer.progress, 1.5) + 2
                looks = times * (time.monotonic() - begun)
                whole.expect(trainer.progress, trainer.seconds - since, looks)
            if trainer.seconds - saved_at > checkpoint_every:
                trainer.save(folder / trainer.file_name, data)
                saved_at = trainer.seconds
    if stop():
        console.print("Stopped; writing the checkpoint and the pictures so far.")
    # From here on a Ctrl-C ends the program at once: each file is whole or not there.
    with phase(console, "measuring"):
        last = measure()
    trainer.save(folder / trainer.file_name, data)
    with phase(console, "writing a text, and pictures"):
        sample = leave(trainer, folder, last, data, stop())
    if workers is not None:
        console.print(workers.words(), highlight=False, soft_wrap=True)
        workers.finish()
    console.print(
        f"{trainer.step} steps in {whole.words(trainer.seconds)}: {last['held_out']:.3f} bits per byte of the "
        "text that was held back. It writes:",
        highlight=False,
        soft_wrap=True,
    )
    console.print(sample.strip(), style="italic", highlight=False, soft_wrap=True)
    pictured = "loss.png, attention.png" if trainer.tokenizer is None else "loss.png"
    console.print(
        f"Pictures: {folder}/{pictured}. More text: python -m metal_ops lm generate {trainer.to_write(folder)}",
        highlight=False,
        soft_wrap=True,
    )
    return 130 if stop() else 0


def leave(
    trainer: Trainer, folder: Path, last: dict[str, float], data: str | None, interrupted: bool
) -> str:
    """Writes metrics.json, loss.png, sample.txt and, where tokens are characters, attention.png; the sample."""
    writer = Writer(trainer.model, Sampling(seed=trainer.config.seed), trainer.tokenizer)
    sample = b"".join(writer.write(_SAMPLE)).decode(errors="replace")
    with atomic(folder / "sample.txt") as temporary:
        temporary.write_text(sample, encoding="utf-8")
    write_json(
        folder / "metrics.json",
        {
            "bits_a_byte": last["held_out"],
            "training_bits_a_byte": last["loss"],
            "steps": trainer.step,
            "training_seconds": trainer.seconds,
            "bytes_seen": trainer.bytes_seen,
            "bytes_per_second": trainer.bytes_seen / max(trainer.seconds, 1e-9),
            "parameters": sum(int(np.prod(v.shape)) for v in trainer.variables),
            "interrupted": interrupted,
            "data": data,
            "device": tf.DeviceSpec.from_string(trainer.model.last_norm.device).device_type,
            "history": trainer.history,
            **trainer.about(),
        },
    )
    pictures.losses(
        folder / "loss.png", trainer.history, f"{last['held_out']:.3f} bits per byte held back"
    )
    if trainer.tokenizer is not None:
        return sample
    text = sample.encode()[:_LOOKED_AT].decode("latin-1")
    tokens = tf.constant(np.frombuffer(text.encode("latin-1"), np.uint8).astype(np.int32))
    weights = trainer.model.attention_weights(tokens).numpy()
    pictures.attention(folder / "attention.png", text, weights)
    return sample


def stream(text: Iterable[bytes], out: Any) -> None:
    """Prints text as it comes, a character when all of its bytes are there."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    encoding = getattr(out, "encoding", None) or "utf-8"

    def write(characters: str) -> None:
        # Terminals that know fewer characters show question marks.
        out.write(characters.encode(encoding, errors="replace").decode(encoding))
        out.flush()

    for byte in text:
        write(decoder.decode(byte))
    write(decoder.decode(b"", final=True))
