"""The calls that convolution.mm measures, by PyTorch (cuDNN, channels last): captured in a graph, medians of events."""

from __future__ import annotations

import sys

import torch
from products_peers import timed  # beside this file


def case_of(line: str) -> tuple[str, str, tuple[int, ...]]:
    """A line without its shader: kind, type and sizes."""
    words = line.split()
    return words[0], words[2], tuple(map(int, words[3:9]))


def of_case(kind: str, dtype: str, sizes: tuple[int, ...]) -> tuple[float, float, float]:
    """Milliseconds, which are printed: median, least, most."""
    n, size, channels, filters, window, stride = sizes
    like = dict(device="cuda", dtype={"half": torch.float16, "bfloat": torch.bfloat16}[dtype])
    last = torch.channels_last
    out = -(-size // stride)
    x = torch.rand((n, channels, size, size), **like).to(memory_format=last) * 2 - 1
    w = torch.rand((filters, channels, window, window), **like).to(memory_format=last) * 2 - 1
    d = torch.rand((n, filters, out, out), **like).to(memory_format=last) * 2 - 1
    # PyTorch pads both sides alike; the sums are as long.
    given = ([stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], 1)

    def forward():
        return torch.ops.aten.convolution(x, w, None, *given)

    def backward():
        mask = [kind == "input", kind == "filter", False]
        return torch.ops.aten.convolution_backward(d, x, w, None, *given, mask)

    torch.backends.cudnn.benchmark = True
    times = timed([forward if kind == "forward" else backward], 16)
    ms, least, most = times
    print(f"torch {kind} {dtype} {sizes}: {ms:.4f} ms ({least:.4f} to {most:.4f})", flush=True)
    return times


def main() -> None:
    print(torch.__version__, torch.backends.cudnn.version(), torch.cuda.get_device_name())
    cases = [case_of(line) for line in open(sys.argv[1]) if line.strip()]
    for case in dict.fromkeys(cases):
        of_case(*case)


if __name__ == "__main__":
    main()
