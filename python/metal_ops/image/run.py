"""A fit from start to pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console

from metal_ops.programs import fitting, pictures
from metal_ops.programs.command import CHECKPOINT_EVERY
from metal_ops.programs.files import write_json
from metal_ops.programs.telling import Whole, phase

from .train import ImageFit, every_pixel

_MOST_SCORED = 1 << 22
_PART = 64  # pixels along the edge of the part that comparison.png enlarges
_SHOWN = 384


def origin_of(data: str | None, fit: ImageFit) -> dict[str, Any]:
    """A checkpoint's description of the picture."""
    return {"data": data, "width": fit.picture_of.width, "height": fit.picture_of.height}


def fit_run(
    fit: ImageFit,
    folder: Path,
    data: str | None,
    console: Console,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> int:
    """Fits to the end of the budget, or to Ctrl-C, and leaves everything in the folder.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.
    """
    name = fit.picture_of.name
    whole, origin = Whole(console, fit.seconds), origin_of(data, fit)
    interrupted = fitting.run(fit, folder, origin, console, name, checkpoint_every, whole)
    with phase(console, "measuring"):
        psnr, pixels = every_pixel(fit, _MOST_SCORED)
    picture = fit.picture_of
    write_json(
        folder / "metrics.json",
        {
            "picture": name,
            **origin,
            "psnr": psnr,
            "psnr_pixels": pixels,
            "steps": fit.step,
            "training_seconds": fit.seconds,
            "pixels_per_second": fit.step * fit.config.batch / max(fit.seconds, 1e-9),
            "parameters": fit.n_parameters(),
            "interrupted": interrupted,
            "device": tf.DeviceSpec.from_string(fit.field.table.device).device_type,
            "history": fit.history,
            "machine": fitting.machine(),
        },
    )
    title = f"{name}: {psnr:.2f} dB after {fit.seconds:.0f} s of training"
    pictures.curve(folder / "psnr.png", fit.history, "psnr", "PSNR, dB", title)
    compare(folder / "comparison.png", fit)
    console.print(
        f"{fit.step} steps in {whole.words(fit.seconds)}: {psnr:.2f} dB, {fit.n_parameters():,} parameters for "
        f"{3 * picture.width * picture.height:,} values.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"Pictures: {folder}/{fitting.PICTURE}, comparison.png, progress.png, psnr.png",
        highlight=False,
        soft_wrap=True,
    )
    return 130 if interrupted else 0


def compare(path: Path, fit: ImageFit) -> None:
    """The picture, the fit, and where they differ; below, the part of most contrast, pixel by pixel."""
    picture = fit.picture_of
    found = fit.picture()
    height, width = found.shape[:2]
    # Single pixels of the truth where it is larger: no smoothing of a file that may be mapped.
    rows = (np.arange(height) * picture.height) // height
    columns = (np.arange(width) * picture.width) // width
    truth = np.asarray(picture.pixels[rows[:, None], columns[None, :]])
    left, top = _busiest(truth)
    left = min(left * picture.width // width, max(picture.width - _PART, 0))
    top = min(top * picture.height // height, max(picture.height - _PART, 0))
    y, x = np.mgrid[top : min(top + _PART, picture.height), left : min(left + _PART, picture.width)]
    part = np.asarray(picture.pixels[y, x])
    fitted = pictures.as_bytes(fit.colours(picture.points(x.ravel(), y.ravel()))).reshape(
        part.shape
    )
    pictures.sheet(
        path,
        [
            ("picture", truth),
            (f"fit, {fit.words(fit.history[-1]['psnr'])}", found),
            ("difference, 8 times", _difference(truth, found)),
            ("picture, a part", part),
            ("fit, a part", fitted),
            ("difference, 8 times", _difference(part, fitted)),
        ],
        3,
        _SHOWN,
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip(8 * np.abs(a.astype(np.int32) - b), 0, 255).astype(np.uint8)


def _busiest(pixels: np.ndarray) -> tuple[int, int]:
    """Left and top of the square in a grid of them whose pixels differ most from their neighbours."""
    n = min(_PART, *pixels.shape[:2])
    steps = np.abs(np.diff(pixels.astype(np.int16), axis=0, append=pixels[-1:])).sum(-1)
    places = [
        (int(steps[top : top + n, left : left + n].sum()), left, top)
        for top in range(0, pixels.shape[0] - n + 1, n)
        for left in range(0, pixels.shape[1] - n + 1, n)
    ]
    return max(places)[1:]
