"""The pictures of a run: how the loss fell, and the attention of each head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from metal_ops.programs.files import atomic


def losses(path: Path, history: list[dict[str, float]], title: str) -> None:
    """Bits a byte over training time, of the text that is learnt and of the text that is held back, as a PNG."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    seconds = [point["seconds"] for point in history]
    for name, label in (("loss", "training"), ("held_out", "held back")):
        axes.plot(seconds, [point[name] for point in history], "o-", ms=3.5, label=label)
    axes.set(xlabel="training time, s", ylabel="bits per byte", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110)


def attention(path: Path, text: str, weights: np.ndarray) -> None:
    """The attention of each character of a text, a square for each head, as a PNG.

    Args:
      path: Where to.
      text: One character a row and column; their names stand at the left and below.
      weights: [layers, heads, len(text), len(text)].
    """
    layers, heads = weights.shape[:2]
    figure = Figure(figsize=(2.1 * heads + 0.6, 2.2 * layers + 0.8), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    names = [repr(character)[1:-1] for character in text]
    for layer in range(layers):
        for head in range(heads):
            axes = grid[layer][head]
            # Roots: most weights are small.
            axes.imshow(np.sqrt(weights[layer, head]), cmap="magma", vmin=0, vmax=1)
            # Names at the edges of the sheet alone: beside each square, laying them out takes longer than all else.
            for set_ticks, edge in (
                (axes.set_xticks, layer == layers - 1),
                (axes.set_yticks, head == 0),
            ):
                if edge:
                    set_ticks(range(len(names)), names, fontsize=4, family="monospace")
                else:
                    set_ticks([])
            axes.tick_params(length=0, pad=1)
            axes.set_title(f"layer {layer}, head {head}", fontsize=7)
    figure.suptitle(
        "what a character (row) looks at; brightness is the root of the weight", fontsize=9
    )
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110)
