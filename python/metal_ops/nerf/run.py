"""A training run from start to pictures: the loop, its progress bar, Ctrl-C, and the run's folder."""

from __future__ import annotations

import math
import platform
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from metal_ops.programs.checkpoint import FILE_NAME
from metal_ops.programs.cluster import cores
from metal_ops.programs.command import CHECKPOINT_EVERY
from metal_ops.programs.files import write_json
from metal_ops.programs.interrupts import stop_on_interrupt
from metal_ops.programs.telling import Whole, looks_left, phase, told

from . import pictures
from .config import to_json
from .evaluate import Score, evaluate
from .scenes import Scene
from .train import StepReport, Trainer

_FIRST_EVALUATION, _EVALUATION_GROWTH = 2.0, 1.5  # training seconds: dense where the curve is steep
_COMPARED = 4  # views of comparison.png
TIME_NOTE = "training steps and occupancy updates, tracing included; evaluation, pictures and checkpoints not"


class Evaluations:
    """When to evaluate: at training seconds that grow geometrically, so that early curves are fine."""

    def __init__(
        self,
        seconds: float,
        first: float = _FIRST_EVALUATION,
        growth: float = _EVALUATION_GROWTH,
    ) -> None:
        self._next = first
        self._growth = growth
        self.passed(seconds)

    def due(self, seconds: float) -> bool:
        """Whether it is time."""
        return seconds >= self._next

    def passed(self, seconds: float) -> None:
        """Moves on to the first time after `seconds`."""
        while self._next <= seconds:
            self._next *= self._growth


class Bar:
    """Progress in the terminal: step, loss, PSNR, rays/s, time left; plain lines where it is a file."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("step {task.fields[step]}"),
            TextColumn("loss {task.fields[loss]:.5f}"),
            TextColumn("PSNR {task.fields[psnr]}"),
            TextColumn("{task.fields[rate]} rays/s"),
            TextColumn("{task.fields[left]} left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(
            label, total=1.0, step=0, loss=0.0, psnr="-", rate="-", left="-"
        )
        self._loss = 0.0
        self._shown = 0.0

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, trainer: Trainer, report: StepReport, since: tuple[float, int]) -> None:
        """Shows a step; `since` are the seconds and rays at the start of this session."""
        self._loss = report.loss if self._loss == 0 else 0.95 * self._loss + 0.05 * report.loss
        now = time.monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        seconds = trainer.seconds - since[0]
        self._progress.update(
            self._task,
            completed=trainer.progress,
            step=trainer.step,
            loss=self._loss,
            rate=_thousands((trainer.rays_seen - since[1]) / max(seconds, 1e-6)),
            left=_left(trainer),
        )

    def score(self, trainer: Trainer, value: float) -> None:
        """Shows an evaluation."""
        self._progress.update(self._task, psnr=f"{value:.2f} dB")
        if not self._console.is_terminal:
            self._console.print(
                f"{trainer.seconds:6.1f} s  step {trainer.step:6d}  loss {self._loss:.5f}  PSNR {value:.2f} dB  "
                f"{_left(trainer)} left"
            )


def _thousands(value: float) -> str:
    return f"{value / 1000:.0f}k" if value >= 1000 else f"{value:.0f}"


def _left(trainer: Trainer) -> str:
    if trainer.progress <= 0:
        return "-"
    return f"{trainer.seconds * (1 / trainer.progress - 1):.0f} s"


def train_run(
    trainer: Trainer,
    folder: Path,
    origin: dict[str, Any],
    console: Console,
    frames: int = pictures.TURNTABLE_FRAMES,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> int:
    """Trains to the end of the budget, or to Ctrl-C, and leaves everything in the folder.

    Args:
      trainer: New or loaded.
      folder: Folder of the run; made on the first write.
      origin: How to load the scene again, for the checkpoint.
      console: Where progress goes.
      frames: Frames of the turntable.
      checkpoint_every: Seconds of training between checkpoints.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.
    """
    workers = trainer.workers
    if workers is not None and not workers.chief:
        return workers.follow(trainer)
    render = trainer.renderer()
    due = Evaluations(trainer.seconds)
    since = (trainer.seconds, trainer.rays_seen)
    saved_at = trainer.seconds
    loss = math.nan
    whole = Whole(console, trainer.seconds)
    whole.begin(trainer.config.seconds)
    with stop_on_interrupt() as asked, Bar(console, trainer.scene.name) as bar:
        stop = asked if workers is None else workers.stop_with(asked)
        while not trainer.done and not stop():
            report = trainer.train_step()
            loss = report.loss
            bar.step(trainer, report, since)
            if due.due(trainer.seconds) and not trainer.done:
                due.passed(trainer.seconds)
                begun = time.monotonic()
                score = evaluate(
                    render,
                    trainer.scene.test,
                    trainer.scene.background,
                    trainer.config.max_eval_views,
                    with_ssim=False,
                    stop=asked,
                )
                if score:
                    note(trainer, loss, score)
                    bar.score(trainer, score.mean_psnr)
                    view = (time.monotonic() - begun) / len(score.psnr)
                    rest = _views_left(trainer, len(score.psnr), frames)
                    whole.expect(trainer.progress, trainer.seconds - since[0], view * rest)
            if trainer.seconds - saved_at > checkpoint_every:
                trainer.save(folder / FILE_NAME, origin)
                saved_at = trainer.seconds
    interrupted = stop()
    if interrupted:
        console.print("Stopped; writing the checkpoint and the pictures so far.")
    # From here on a Ctrl-C ends the program at once: each file is whole or not there.
    trainer.save(folder / FILE_NAME, origin)
    test = trainer.scene.test
    most = min(trainer.config.max_eval_views, len(test))
    with told(console, "evaluation", most, "views") as step:
        score = evaluate(render, test, trainer.scene.background, most, step=step)
    assert score is not None
    note(trainer, loss, score)
    trainer.save(folder / FILE_NAME, origin)
    write_pictures(trainer, folder, score, origin, interrupted, frames, console)
    if workers is not None:
        console.print(workers.words(), highlight=False, soft_wrap=True)
        workers.finish()
    return finish(trainer, folder, score, console, interrupted, whole)


def _views_left(trainer: Trainer, n_views: int, frames: int) -> float:
    """How many views are still to be rendered, those of the turntable as parts of one."""
    cameras = trainer.scene.test.cameras
    frame = (200 / max(cameras.width, cameras.height)) ** 2
    total = trainer.seconds / trainer.progress
    evaluations = looks_left(trainer.seconds, total, _EVALUATION_GROWTH) + 1
    return evaluations * n_views + min(_COMPARED, n_views) + frames * frame


def note(trainer: Trainer, loss: float, score: Score) -> None:
    """Adds a point to the trainer's history."""
    trainer.history.append(
        {
            "step": trainer.step,
            "seconds": trainer.seconds,
            "loss": loss,
            "psnr": score.mean_psnr,
        }
    )


def write_pictures(
    trainer: Trainer,
    folder: Path,
    score: Score,
    origin: dict[str, Any],
    interrupted: bool,
    frames: int,
    console: Console,
) -> None:
    """Writes metrics.json, comparison.png, psnr.png and turntable.gif."""
    write_json(folder / "metrics.json", metrics(trainer, score, origin, interrupted))
    title = (
        f"{trainer.scene.name}: {score.mean_psnr:.2f} dB after {trainer.seconds:.0f} s of training"
    )
    pictures.curves(folder / "psnr.png", {trainer.scene.name: trainer.history}, title)
    render = trainer.renderer()
    with phase(console, "drawing comparison.png"):
        pictures.comparison(folder / "comparison.png", render, trainer.scene)
    with told(console, "turntable.gif", frames, "frames") as step:
        pictures.turntable(folder / "turntable.gif", render, trainer.scene, frames, step=step)


def metrics(
    trainer: Trainer, score: Score, origin: dict[str, Any], interrupted: bool = False
) -> dict[str, Any]:
    """The entries of metrics.json for a run."""
    seconds = max(trainer.seconds, 1e-9)
    return {
        "scene": trainer.scene.name,
        **origin,
        "psnr": score.mean_psnr,
        "ssim": score.mean_ssim,
        "background": trainer.scene.background,
        "training_seconds": trainer.seconds,
        "training_seconds_are": TIME_NOTE,
        "interrupted": interrupted,
        "steps": trainer.step,
        "device": tf.DeviceSpec.from_string(trainer.occupancy.bits.device).device_type,
        "rays": trainer.rays_seen,
        "samples": trainer.samples_seen,
        "rays_per_second": trainer.rays_seen / seconds,
        "occupied_fraction": trainer.occupancy.occupied_fraction(),
        "train_views": len(trainer.scene.train),
        "test_views": len(trainer.scene.test),
        "views": [
            {"name": name, "psnr": p, "ssim": s}
            for name, p, s in zip(score.names, score.psnr, score.ssim, strict=True)
        ],
        "history": trainer.history,
        **({} if trainer.workers is None else {"workers": trainer.workers.report()}),
        "model": to_json(trainer.model_config),
        "train": to_json(trainer.config),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "cpus": cores(),
        "platform": platform.platform(),
        "tensorflow": tf.__version__,
    }


def finish(
    trainer: Trainer,
    folder: Path,
    score: Score,
    console: Console,
    interrupted: bool,
    whole: Whole,
) -> int:
    """Says how it went; the last line says where the pictures are."""
    console.print(
        f"{trainer.step} steps in {whole.words(trainer.seconds)}: PSNR {score.mean_psnr:.2f} dB, SSIM "
        f"{score.mean_ssim:.4f}, mean of {len(score.psnr)} held-out views.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"Pictures: {folder}/comparison.png, turntable.gif, psnr.png",
        highlight=False,
        soft_wrap=True,
    )
    return 130 if interrupted else 0


def describe(scene: Scene, console: Console) -> None:
    """Prints the loaded files and the assumptions."""
    size = f"{scene.train.cameras.width}x{scene.train.cameras.height}"
    console.print(
        f"Scene {scene.name}: {len(scene.train)} training and {len(scene.test)} held-out views of {size} pixels.",
        highlight=False,
    )
    for sentence in scene.notes:
        console.print(f"Note: {sentence}", highlight=False, soft_wrap=True, markup=False)
