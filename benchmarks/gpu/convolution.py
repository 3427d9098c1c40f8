"""Convolutions and their gradients beside PyTorch's (cuDNN), in turns, as a table: the kernels alone.

python3 benchmarks/gpu/convolution.py CONVOLUTION LIBRARY   # that program, and the shaders for this GPU
"""

from __future__ import annotations

import statistics
import subprocess
import sys

import convolution_peers as peers  # beside this file
import convolution_spec
import torch
from attention_gradient import ours

ROUNDS = 3


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = list(convolution_spec.lines())
    rounds = []
    for _ in range(ROUNDS):
        own = ours(*sys.argv[1:], lines)
        rounds.append((own, [peers.of_case(*peers.case_of(line))[0] for line in lines]))
    card = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    print(subprocess.run(card, capture_output=True, text=True).stdout.strip())
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    print("| milliseconds | ours | PyTorch | times as long |\n|---|--:|--:|--:|")
    for i, line in enumerate(lines):
        sides = [[x[i] for x in side] for side in zip(*rounds, strict=True)]
        own, theirs = map(statistics.median, sides)
        spread = [f"{statistics.median(x):.4f} ({min(x):.4f} to {max(x):.4f})" for x in sides]
        kind, dtype, (n, size, channels, filters, window, stride) = peers.case_of(line)
        name = f"{kind} {dtype} {n} x {size} x {channels} to {filters}, {window}, stride {stride}"
        print(f"| {name} | {' | '.join(spread)} | {own / theirs:.2f} |")


if __name__ == "__main__":
    main()
