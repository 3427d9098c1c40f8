"""`nerf compare`: several ways to learn one scene, side by side, in one process and on one clock."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from metal_ops.programs.errors import ProgramError
from metal_ops.programs.files import write_json
from metal_ops.programs.interrupts import stop_on_interrupt
from metal_ops.programs.telling import Whole, phase

from . import pictures
from .config import ModelConfig, TrainConfig, to_json
from .evaluate import Renderer, evaluate
from .run import TIME_NOTE, Evaluations, machine
from .scenes import Scene
from .train import Trainer

# Contenders take turns of this much training, so that a noisy machine is noisy to all of them.
_TURN = 1.0
_FIRST_EVALUATION, _EVALUATION_GROWTH = 1.0, 1.25


class Contender:
    """One of those that are compared.

    Args:
      label: In the legend.
      trainer: Its training.
    """

    def __init__(self, label: str, trainer: Trainer) -> None:
        self.label = label
        self.trainer = trainer
        self.due = Evaluations(0.0, _FIRST_EVALUATION, _EVALUATION_GROWTH)
        self.render = _fused_renderer(trainer)
        self.reached = False

    @property
    def finished(self) -> bool:
        """Whether its budget is used up or the level reached."""
        return self.trainer.done or self.reached

    def last_psnr(self) -> float:
        """The PSNR of its last evaluation, or NaN."""
        return self.trainer.history[-1]["psnr"] if self.trainer.history else math.nan


def _fused_renderer(trainer: Trainer) -> Renderer:
    """Renders with the fused op whatever trains: the same numbers, and evaluations are fast."""
    field = trainer.field
    if trainer.model_config.backend == "composite":
        field = field.with_backend("fused")
    return Renderer(field, trainer.occupancy, trainer.scene.space, trainer.march_step)


def compare_run(
    scene: Scene,
    models: dict[str, ModelConfig],
    config: TrainConfig,
    folder: Path,
    origin: dict[str, Any],
    console: Console,
    until_psnr: float | None = None,
) -> int:
    """Trains every model for the same time, in turns, and writes psnr.png and metrics.json.

    Args:
      scene: The scene to learn.
      models: By label; the first one is the others' reference.
      config: The budget of each.
      folder: Where the results go.
      origin: Where the scene came from, for the record.
      console: Where progress goes.
      until_psnr: A contender is through as soon as it reaches this; the times are compared.

    Returns:
      The exit code: 0, 130 after Ctrl-C, and 1 if a contender did not reach `until_psnr`.
    """
    if len(models) < 2:
        raise ProgramError("compare needs at least two different contenders.")
    contenders = [
        Contender(label, Trainer(scene, model, config)) for label, model in models.items()
    ]
    whole = Whole(console, 0.0)
    whole.begin(config.seconds and config.seconds * len(contenders))
    with stop_on_interrupt() as stop:
        while not stop() and not all(contender.finished for contender in contenders):
            for contender in contenders:
                if not contender.finished and not stop():
                    _turn(contender, config, until_psnr, console)
    with phase(console, "drawing the pictures"):
        _write(scene, contenders, config, folder, origin, until_psnr)
    _report(contenders, until_psnr, console)
    console.print(
        f"{whole.seconds():.0f} s in all. Pictures: {folder}/psnr.png, comparison-*.png",
        highlight=False,
        soft_wrap=True,
    )
    if stop():
        return 130
    missed = until_psnr is not None and not all(contender.reached for contender in contenders)
    return 1 if missed else 0


def _turn(
    contender: Contender, config: TrainConfig, until_psnr: float | None, console: Console
) -> None:
    trainer = contender.trainer
    end = trainer.seconds + _TURN
    loss = math.nan
    while trainer.seconds < end and not trainer.done:
        loss = trainer.train_step().loss
        if not contender.due.due(trainer.seconds) and not trainer.done:
            continue
        contender.due.passed(trainer.seconds)
        score = evaluate(
            contender.render,
            trainer.scene.test,
            trainer.scene.background,
            config.max_eval_views,
            False,
        )
        assert score is not None
        trainer.history.append(
            {
                "step": trainer.step,
                "seconds": trainer.seconds,
                "loss": loss,
                "psnr": score.mean_psnr,
            }
        )
        console.print(
            f"{contender.label:>10}  {trainer.seconds:6.1f} s  step {trainer.step:6d}  PSNR {score.mean_psnr:.2f} dB",
            highlight=False,
        )
        if until_psnr is not None and score.mean_psnr >= until_psnr:
            contender.reached = True
            return


def _write(
    scene: Scene,
    contenders: list[Contender],
    config: TrainConfig,
    folder: Path,
    origin: dict[str, Any],
    until_psnr: float | None,
) -> None:
    histories = {contender.label: contender.trainer.history for contender in contenders}
    results = {}
    for contender in contenders:
        trainer = contender.trainer
        results[contender.label] = {
            "psnr": contender.last_psnr(),
            "seconds_to_psnr": pictures.time_to(trainer.history, until_psnr),
            "training_seconds": trainer.seconds,
            "steps": trainer.step,
            "rays": trainer.rays_seen,
            "samples": trainer.samples_seen,
            "history": trainer.history,
            "model": to_json(trainer.model_config),
        }
    content: dict[str, Any] = {
        "scene": scene.name,
        **origin,
        "training_seconds_are": TIME_NOTE,
        "until_psnr": until_psnr,
        "contenders": results,
        "train": to_json(config),
        "test_views": min(len(scene.test), config.max_eval_views),
        "machine": machine(),
    }
    if until_psnr is not None:
        content["times_sooner"] = _times_sooner(contenders, until_psnr)
    write_json(folder / "metrics.json", content)
    title = f"{scene.name}: {' / '.join(histories)}"
    pictures.curves(folder / "psnr.png", histories, title, until_psnr)
    for contender in contenders:
        pictures.comparison(
            folder / f"comparison-{contender.label}.png",
            contender.render,
            contender.trainer.scene,
            rows=1,
            title=f"{contender.label}, {contender.trainer.seconds:.0f} s of training",
        )


def _times_sooner(contenders: list[Contender], level: float) -> dict[str, float | None]:
    """For each but the first: its time to the level over the first one's."""
    times = [pictures.time_to(contender.trainer.history, level) for contender in contenders]
    return {
        contender.label: time / times[0] if time and times[0] else None
        for contender, time in zip(contenders[1:], times[1:], strict=True)
    }


def _report(contenders: list[Contender], until_psnr: float | None, console: Console) -> None:
    table = Table()
    for column in ("", "PSNR, dB", "training, s", "steps", "rays/s"):
        table.add_column(column, justify="right")
    if until_psnr is not None:
        table.add_column(f"s to {until_psnr:g} dB", justify="right")
    for contender in contenders:
        trainer = contender.trainer
        row = [
            contender.label,
            f"{contender.last_psnr():.2f}",
            f"{trainer.seconds:.1f}",
            str(trainer.step),
            f"{trainer.rays_seen / max(trainer.seconds, 1e-9):.0f}",
        ]
        if until_psnr is not None:
            time = pictures.time_to(trainer.history, until_psnr)
            row.append("not reached" if time is None else f"{time:.1f}")
        table.add_row(*row)
    console.print(table)
    if until_psnr is not None:
        for label, ratio in _times_sooner(contenders, until_psnr).items():
            if ratio is not None:
                console.print(
                    f"{contenders[0].label} reaches {until_psnr:g} dB {ratio:.1f} times sooner than {label}.",
                    highlight=False,
                )


def contenders_from(
    model: ModelConfig, encodings: list[str] | None, backends: list[str] | None
) -> dict[str, ModelConfig]:
    """The models that `--encodings` and `--backends` ask for, by label."""
    if backends:
        return {
            name: dataclasses.replace(model, encoding="hash", backend=name) for name in backends
        }
    names = encodings or ["hash", "frequency"]
    return {name: dataclasses.replace(model, encoding=name) for name in names}
