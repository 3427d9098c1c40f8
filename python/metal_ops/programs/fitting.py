"""Fitting something within a budget: counters, learning rate, checkpoints, and the loop with pictures and Ctrl-C."""

from __future__ import annotations

import abc
import dataclasses
import math
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn

from . import checkpoint, pictures
from .checkpoint import FILE_NAME
from .cluster import cores
from .command import CHECKPOINT_EVERY
from .errors import ProgramError
from .interrupts import stop_on_interrupt
from .records import history_from, number_from, take_state
from .telling import Whole, looks_left

PICTURE = "picture.png"
_FIRST_LOOK, _GROWTH = 0.5, 1.5  # training seconds: dense where much changes
_MOST_TILES = 8
_TILE = 200


class Budget(Protocol):
    """A configuration's time to train, and its learning rate."""

    @property
    def seconds(self) -> float | None: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def final_learning_rate(self) -> float: ...


class Fit(abc.ABC):
    """An object that learns step by step; a program defines its loss, its measure, and its picture.

    Two with the same configuration and number of steps hold the same bits, also when one of them was saved and loaded
    in between; that needs `steps` as the budget, as the learning rate follows the progress.

    Args:
      model: Its configuration, a dataclass.
      config: How it learns, a dataclass.
      state: The learnt variables, by name.
      optimizer: Keras', built for these.

    Attributes:
      program: The command that makes such runs.
      measure_name: The name of `measure`'s result.
      step, seconds: How many were made, and how long they took, tracing included.
      history: The measurements, each with step, seconds and loss.
    """

    program = measure_name = ""

    def __init__(
        self, model: Any, config: Any, state: dict[str, tf.Variable], optimizer: Any
    ) -> None:
        self.model_config, self.config = model, config
        self.optimizer = optimizer
        self.variables, self._learnt = list(state.values()), state
        self.step, self.seconds = 0, 0.0
        self.history: list[dict[str, float]] = []

    @abc.abstractmethod
    def learn(self) -> tf.Tensor:
        """One step, number `self.step`; its loss."""

    @abc.abstractmethod
    def measure(self) -> float:
        """How good it is, by few looks."""

    @abc.abstractmethod
    def picture(self) -> np.ndarray:
        """Its picture, uint8 [H, W, 3]."""

    @abc.abstractmethod
    def words(self, value: float) -> str:
        """The measurement, in words."""

    @property
    def progress(self) -> float:
        """How much of the budget is used up, 0 to 1."""
        budget: Budget = self.config
        parts = [0.0]
        if budget.seconds is not None:
            parts.append(self.seconds / max(budget.seconds, 1e-9))
        if budget.steps is not None:
            parts.append(self.step / max(budget.steps, 1))
        return min(max(parts), 1.0)

    @property
    def done(self) -> bool:
        return self.progress >= 1

    def learning_rate(self) -> float:
        """Constant for 40 % of the budget, then falling exponentially."""
        budget: Budget = self.config
        late = max(self.progress - 0.4, 0.0) / 0.6
        return budget.learning_rate * budget.final_learning_rate**late

    def train_step(self) -> float:
        """One step; its loss.

        Raises:
          ProgramError: The loss is not finite.
        """
        begin = time.perf_counter()
        self.optimizer.learning_rate = self.learning_rate()
        loss = float(self.learn())
        self.step += 1
        self.seconds += time.perf_counter() - begin
        if not math.isfinite(loss):
            raise ProgramError(
                f"the loss of step {self.step} is {loss}: training diverged; lower --learning-rate."
            )
        return loss

    def n_parameters(self) -> int:
        return sum(int(np.prod(variable.shape)) for variable in self.variables)

    def _state(self) -> dict[str, tf.Variable]:
        moments = {f"optimizer/{i:02d}": v.value for i, v in enumerate(self.optimizer.variables)}
        # Keras' float32 rate and counter follow from the step.
        return self._learnt | {name: v for name, v in moments.items() if v.shape.rank}

    def save(self, path: Path, origin: dict[str, Any]) -> None:
        """Writes a checkpoint with all that `load` needs to go on bit by bit."""
        header = {
            "model": dataclasses.asdict(self.model_config),
            "train": dataclasses.asdict(self.config),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            **origin,
        }
        arrays = {name: v.numpy() for name, v in self._state().items()}
        checkpoint.save(path, self.program, header, arrays)

    def load(self, header: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> None:
        """Takes over a state that `save` wrote.

        Raises:
          CheckpointError: It belongs to another model.
        """
        step = number_from(header, "step", where, 0, (1 << 31) - 1)
        seconds = float(number_from(header, "seconds", where, 0, 1e9))
        history = history_from(header, where, self.measure_name)
        take_state(self._state(), arrays, where)
        self.optimizer.iterations.assign(step)
        self.step, self.seconds, self.history = step, seconds, history


class Screen:
    """Progress in the terminal, with the picture below it; plain lines where it is a file."""

    def __init__(self, console: Console, label: str, fit: Fit) -> None:
        self._console, self._fit = console, fit
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("step {task.fields[step]}"),
            TextColumn("loss {task.fields[loss]:.5f}"),
            TextColumn("{task.fields[measured]}"),
            TextColumn("{task.fields[left]} left"),
            console=console,
        )
        self._task = self._progress.add_task(
            label, total=1.0, step=0, loss=0.0, measured="", left="-"
        )
        self._live = Live(self._progress, console=console, refresh_per_second=8)
        self._shown = self._loss = 0.0

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.update(self._progress)
            self._live.stop()

    def step(self, loss: float) -> None:
        self._loss = loss if self._loss == 0 else 0.95 * self._loss + 0.05 * loss
        now = time.monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        self._progress.update(
            self._task,
            completed=self._fit.progress,
            step=self._fit.step,
            loss=self._loss,
            left=self._left(),
        )

    def measured(self, value: float, pixels: np.ndarray) -> None:
        fit, words = self._fit, self._fit.words(value)
        self._progress.update(self._task, measured=words)
        if self._console.is_terminal:
            size = self._console.size
            picture = pictures.half_blocks(pixels, min(size.width - 1, 100), size.height - 4)
            self._live.update(Group(self._progress, picture))
        else:
            self._console.print(
                f"{fit.seconds:6.1f} s  step {fit.step:6d}  loss {self._loss:.5f}  {words}  {self._left()} left"
            )

    def _left(self) -> str:
        done = self._fit.progress
        return f"{self._fit.seconds * (1 / done - 1):.0f} s" if done > 0 else "-"


def run(
    fit: Fit,
    folder: Path,
    origin: dict[str, Any],
    console: Console,
    label: str,
    checkpoint_every: float = CHECKPOINT_EVERY,
    whole: Whole | None = None,
) -> bool:
    """Trains to the end of the budget, or to Ctrl-C; leaves picture.png, progress.png and the checkpoint.

    `picture.png` is replaced whenever it is looked at, so that a viewer shows how it gets better.

    Args:
      fit: New or loaded.
      folder: Folder of the run; made on the first write.
      origin: The data's origin, for the checkpoint.
      console: Where progress goes.
      label: A name.
      checkpoint_every: Seconds of training between checkpoints.
      whole: Tells how long it takes in all, if it is to be told.

    Returns:
      Whether it was stopped by Ctrl-C.
    """
    due, saved_at, loss = max(_FIRST_LOOK, _GROWTH * fit.seconds), fit.seconds, math.nan
    tiles: list[tuple[str, np.ndarray]] = []

    def look() -> tuple[float, np.ndarray]:
        value, pixels = fit.measure(), fit.picture()
        point = {"step": fit.step, "seconds": fit.seconds, "loss": loss, fit.measure_name: value}
        fit.history.append(point)
        tiles.append((f"{fit.seconds:.1f} s, {fit.words(value)}", pixels))
        pictures.save(folder / PICTURE, pixels)
        return value, pixels

    since = fit.seconds
    whole = Whole(console, since) if whole is None else whole
    whole.begin(fit.config.seconds)
    with stop_on_interrupt() as stop, Screen(console, label, fit) as screen:
        while not fit.done and not stop():
            loss = fit.train_step()
            screen.step(loss)
            if fit.seconds >= due and not fit.done:
                begun = time.monotonic()
                screen.measured(*look())
                # The last one more often: its pictures are more, and measured by more looks.
                times = looks_left(fit.seconds, fit.seconds / fit.progress, _GROWTH) + 2
                looks = times * (time.monotonic() - begun)
                whole.expect(fit.progress, fit.seconds - since, looks)
                due = _GROWTH * fit.seconds
            if fit.seconds - saved_at > checkpoint_every:
                fit.save(folder / FILE_NAME, origin)
                saved_at = fit.seconds
    if stop():
        console.print("Stopped; writing the checkpoint and the pictures so far.")
    # From here on a Ctrl-C ends the program at once: each file is whole or not there.
    look()
    fit.save(folder / FILE_NAME, origin)
    chosen = np.unique(np.linspace(0, len(tiles) - 1, _MOST_TILES).round().astype(int))
    pictures.sheet(folder / "progress.png", [tiles[i] for i in chosen], _MOST_TILES // 2, _TILE)
    return stop()


def machine() -> dict[str, Any]:
    """Where numbers come from."""
    return {"cpus": cores(), "tensorflow": tf.__version__}
