"""Writes a shader library as inference engines have them: many entry points, out of templates over types and sizes.

`python -m benchmarks.shader_library [--entries 650] > library.metal`. Its kernels: rows of quantized matrices times
vectors, products with simdgroup matrices of weights unpacked to threadgroup memory, attention, norms and softmax over
rows with barriers and simdgroup reductions, bitonic sorting, copies between formats, and elementwise kernels.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

TEMPLATES = Path(__file__).with_suffix(".metal")
TYPES = ("float", "half", "bfloat")
STORED = ("Unpack4", "Unpack4m", "Unpack5", "Unpack8", "Unpack4k", "Plain<float>", "Plain<half>")
FORMULAS = (
    "Add", "Multiply", "Divide", "Power", "Silu", "Gelu", "Relu", "Softplus", "Sine", "Hardswish",
    "Elu", "Logistic", "Cosine", "Root", "Logarithm", "Erf",
)  # fmt: skip
# The templates, and their arguments: in turns, so that a small library has all of them.
FAMILIES: tuple[tuple[str, tuple[tuple[object, ...], ...]], ...] = (
    ("row_product", (STORED, TYPES, (1, 2, 4, 8))),
    ("tile_product", (STORED, TYPES, TYPES)),
    ("attend", (STORED[:4] + STORED[5:], (64, 80, 96, 112, 128, 192, 256, 576))),
    ("attend_tiles", (STORED, ("float", "half"), (64, 80, 96, 112, 128, 192, 256, 576))),
    ("softmax_rows", (TYPES, TYPES, (2, 4))),
    ("root_mean_square", (TYPES, TYPES, (1, 2, 4))),
    ("normalize_rows", (TYPES, TYPES, (1, 2, 4))),
    ("sort_rows", (TYPES, ("true", "false"), (1, 2, 4))),
    ("gather_rows", (STORED, TYPES, (1, 2, 4))),
    ("copy_strided", (TYPES, TYPES, (1, 2, 4, 8))),
    ("quantize", (TYPES, TYPES, (4, 8))),
    ("elementwise", (FORMULAS, TYPES, (1, 2, 4, 8, 16))),
)


def _instances(family: str, over: tuple[tuple[object, ...], ...]) -> Iterator[str]:
    # The last parameters change slowest: small libraries have each type once.
    for chosen in itertools.product(*reversed(over)):
        words = [str(word) for word in reversed(chosen)]
        name = "_".join([family, *words]).replace("<", "_").replace(">", "")
        arguments = ", ".join(words)
        yield (
            f'template [[host_name("{name}")]] kernel decltype({family}<{arguments}>) '
            f"{family}<{arguments}>;\n"
        )


def instances(entries: int) -> list[str]:
    """The declarations of `entries` kernels, of every family in turn.

    Raises:
      ValueError: there are not as many.
    """
    turns = itertools.zip_longest(*(_instances(*family) for family in FAMILIES))
    lines = [line for turn in turns for line in turn if line]
    if not 1 <= entries <= len(lines):
        raise ValueError(
            f"[shader_library] entries is {entries}; expected 1 to {len(lines)}, which is all there are."
        )
    return lines[:entries]


def library(entries: int = 650) -> str:
    """The library's text."""
    return TEMPLATES.read_text() + "\n" + "".join(instances(entries))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=650, help="kernels in it (650)")
    print(library(parser.parse_args().entries), end="")
