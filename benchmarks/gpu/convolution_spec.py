"""Lines for `convolution`: the shaders with the sizes that the host gives them (kernels/gemm/conv_warpgroups.mm and
device/kernels/nn/conv_grad_warpgroups.mm)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# As the host has them.
MULTIPROCESSORS, LEAST_POINTS, STEP = 132, 256, 64
KINDS = {
    "forward": "conv_warpgroups",
    "input": "conv_warpgroups_input",
    "filter": "conv_warpgroups_filter",
}
# ResNet-50: height and width, channels, filters, window, stride.
LAYERS = [
    *((56, 64, 64, 3, 1), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1)),
    *((56, 128, 128, 3, 2), (28, 256, 256, 3, 2), (14, 512, 512, 3, 2)),
    *((56, 256, 512, 1, 2), (28, 512, 1024, 1, 2), (14, 1024, 2048, 1, 2)),
    *((56, 64, 256, 1, 1), (28, 512, 128, 1, 1), (14, 256, 1024, 1, 1), (7, 2048, 512, 1, 1)),
]


def pieces(n: int, piece: int) -> int:
    return -(-n // piece)


def blocks() -> dict[str, tuple[int, int, int]]:
    """Rows, columns and stages."""
    text = (ROOT / "kernels/gemm/conv_warpgroups_params.h").read_text()
    found = re.findall(r"#define CONV_(\w+)_WARPGROUPS (\d+), (\d+), (\d+), \d", text)
    return {name.lower(): tuple(map(int, numbers)) for name, *numbers in found}


def line(kind: str, dtype: str, n: int, layer: tuple[int, ...], name: str = "") -> str:
    """By the block of that name, or the host's."""
    size, channels, filters, window, stride = layer
    points, part, products = n * pieces(size, stride) ** 2, 0, 1
    rows, columns = points, filters
    if kind == "input":
        products, rows, columns = stride**2, n * pieces(size, stride) ** 2, channels
    elif kind == "filter":
        products, rows = 2 * MULTIPROCESSORS, window**2 * channels
    known = blocks()

    def groups(name: str) -> int:
        return pieces(rows, known[name][0]) * pieces(columns, known[name][1])

    even, tall = (pieces(groups(name) * products, MULTIPROCESSORS) for name in ("even", "tall"))
    name = name or ("even" if 4 * even <= 3 * tall else "tall")
    if kind == "filter":
        count = max(1, min(2 * MULTIPROCESSORS // groups(name), points // LEAST_POINTS))
        part = pieces(pieces(points, count), STEP) * STEP
    words = (kind, f"{KINDS[kind]}_{name}_{dtype}", dtype, n, *layer, *known[name], part)
    return " ".join(map(str, words))


def lines() -> Iterator[str]:
    """A convolution of single points with stride 1 is a plain product; its gradients are not."""
    for dtype in ("half", "bfloat"):
        for n in (32, 64):
            for layer in LAYERS:
                for kind in KINDS:
                    if kind != "forward" or layer[3:] != (1, 1):
                        yield line(kind, dtype, n, layer)


def main() -> None:
    """All lines; with `blocks`, those of each block for 32 images in float16; with `small`, a few for a processor."""
    if sys.argv[1:] == ["small"]:
        for layer in ((6, 16, 24, 3, 1), (7, 8, 16, 3, 2), (6, 24, 8, 1, 2)):
            for dtype in ("half", "bfloat"):
                print(*(line(kind, dtype, 2, layer, "small") for kind in KINDS), sep="\n")
    elif sys.argv[1:] == ["blocks"]:
        for layer in LAYERS:
            for kind in KINDS:
                print(*(line(kind, "half", 32, layer, name) for name in ("even", "tall")), sep="\n")
    else:
        print(*lines(), sep="\n")


if __name__ == "__main__":
    main()
