"""Pictures that programs draw: sheets of tiles with captions, curves, and a small one in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from PIL import Image, ImageDraw, ImageFont
from rich.text import Text

from .files import atomic

_GAP, _CAPTION = 6, 22
_INK, _PAPER = (40, 40, 48), (255, 255, 255)


def as_bytes(image: np.ndarray) -> np.ndarray:
    """uint8 of float pixels in [0, 1]; those beyond are cut off.

    Example:
      >>> as_bytes(np.array([-1.0, 0.5, 2.0])).tolist()
      [0, 128, 255]
    """
    return (np.clip(image, 0, 1) * 255).round().astype(np.uint8)


def save(path: Path, pixels: np.ndarray) -> None:
    """Writes uint8 [H, W, 3] as a PNG."""
    with atomic(path) as temporary:
        Image.fromarray(pixels).save(temporary)


def sheet(path: Path, tiles: Sequence[tuple[str, np.ndarray]], columns: int, edge: int) -> None:
    """Writes pictures beside each other, each with a caption below, as a PNG.

    Args:
      path: Where to.
      tiles: Captions and uint8 [H, W, 3].
      columns: Tiles in a row.
      edge: The longer edge of a tile; small pictures are enlarged without smoothing.
    """
    images = []
    for _, pixels in tiles:
        zoom = edge / max(pixels.shape[:2])
        size = [max(round(n * zoom), 1) for n in pixels.shape[1::-1]]
        how = Image.Resampling.NEAREST if zoom > 1 else Image.Resampling.LANCZOS
        images.append(Image.fromarray(pixels).resize((size[0], size[1]), how))
    lines = [images[i : i + columns] for i in range(0, len(images), columns)]
    wide = max(image.width for image in images)
    tall = [max(image.height for image in line) for line in lines]
    paper_size = (
        len(lines[0]) * (wide + _GAP) + _GAP,
        sum(tall) + len(lines) * (_CAPTION + _GAP) + _GAP,
    )
    paper = Image.new("RGB", paper_size, _PAPER)
    draw, font = ImageDraw.Draw(paper), ImageFont.load_default(13)
    captions, y = iter(tiles), _GAP
    for line, high in zip(lines, tall, strict=True):
        for place, image in enumerate(line):
            x = _GAP + place * (wide + _GAP)
            paper.paste(image, (x + (wide - image.width) // 2, y + (high - image.height) // 2))
            middle = (x + wide / 2, y + high + 3)
            draw.text(middle, next(captions)[0], _INK, font, anchor="ma")
        y += high + _CAPTION + _GAP
    with atomic(path) as temporary:
        paper.save(temporary, optimize=True)


def turn(path: Path, frames: Sequence[np.ndarray], seconds: float) -> None:
    """Writes uint8 [H, W, 3] one after the other as a GIF that begins anew at its end."""
    first, *others = [Image.fromarray(frame) for frame in frames]
    with atomic(path) as temporary:
        first.save(
            temporary,
            save_all=True,
            append_images=others,
            duration=max(round(1000 * seconds / len(frames)), 20),
            loop=0,
        )


def curve(
    path: Path,
    history: list[dict[str, float]],
    name: str,
    label: str,
    title: str,
    log: bool = False,
) -> None:
    """Plots a measure over training time, as a PNG.

    Args:
      path: Where to.
      history: Points with "seconds" and `name`.
      name: Name of the plotted figure.
      label: Label of its axis.
      title: Above the plot.
      log: Whether its axis is logarithmic.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        [point["seconds"] for point in history], [point[name] for point in history], "o-", ms=3.5
    )
    axes.set(xlabel="training time, s (measuring does not count)", ylabel=label)
    if log:
        axes.set_yscale("log")
        plain_powers(axes.yaxis)
    axes.set_title(title, parse_math=False)  # names of files may hold a $
    axes.grid(alpha=0.3)
    axes.set_xlim(left=0)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110)


def plain_powers(axis: Axis) -> None:
    """Labels like 1e-02 on a logarithmic axis of matplotlib's.

    Those that are set as formulas look for a dozen fonts, and warn of each that is not there.
    """
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))


def half_blocks(pixels: np.ndarray, columns: int, lines: int) -> Text:
    """A picture for a terminal: a character shows two pixels, one above the other, by its colour and its background.

    Args:
      pixels: uint8 [H, W, 3].
      columns: The most characters in a line.
      lines: The most lines.

    Example:
      >>> half_blocks(np.zeros([4, 8, 3], np.uint8), 4, 10).plain.count("\\u2580")
      4
    """
    height, width = pixels.shape[:2]
    zoom = min(columns / width, 2 * lines / height)
    size = max(round(width * zoom), 1), 2 * max(round(height * zoom / 2), 1)
    small = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
    text = Text()
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        for a, b in zip(upper.tolist(), lower.tolist(), strict=True):
            text.append("\u2580", f"rgb({a[0]},{a[1]},{a[2]}) on rgb({b[0]},{b[1]},{b[2]})")
        text.append("\n")
    return text
