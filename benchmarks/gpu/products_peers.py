"""The same measurements as products.mm's, by PyTorch: calls captured in a graph, weights in turns, medians of
events."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F

SIZES = [(4096, 4096), (4096, 14336), (14336, 4096)]


def timed(calls: list[Callable], n: int) -> tuple[float, float, float]:
    """Milliseconds a call: median, least, most."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            calls[i % len(calls)]()
    times = []
    for i in range(11):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) / n)
    return statistics.median(times), min(times), max(times)


def sets_of(n_bytes: int) -> int:
    """So many weights that caches have forgotten the first when the last was used."""
    return max(1, min(64, (200 << 20) // n_bytes))


def product(rows: int, terms: int, columns: int, dtype: torch.dtype, turned: bool) -> float:
    sets = sets_of(terms * columns * dtype.itemsize)
    shape = (columns, terms) if turned else (terms, columns)
    weights = [torch.rand(shape, device="cuda", dtype=dtype) * 2 - 1 for _ in range(sets)]
    x = torch.rand((rows, terms), device="cuda", dtype=dtype) * 2 - 1
    calls = [(lambda w=w: F.linear(x, w)) if turned else (lambda w=w: x @ w) for w in weights]
    return timed(calls, max(sets, 16) if rows <= 512 else 4)[0]


def int4(rows: int, terms: int, columns: int) -> float:
    """PyTorch's own kernel for int4 in blocks of 64, bfloat16."""
    sets = sets_of(terms * columns // 2)
    x = torch.rand((rows, terms), device="cuda", dtype=torch.bfloat16)
    weights = [
        torch._convert_weight_to_int4pack(
            torch.randint(0, 256, (columns, terms // 2), device="cuda", dtype=torch.uint8), 8
        )
        for _ in range(sets)
    ]
    scales = torch.rand((terms // 64, columns, 2), device="cuda", dtype=torch.bfloat16)
    calls = [lambda w=w: torch._weight_int4pack_mm(x, w, 64, scales) for w in weights]
    return timed(calls, max(sets, 16))[0]


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.__version__, torch.cuda.get_device_name())
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for rows in (1, 2, 4, 8, 16, 32, 64, 512, 2048):
            for terms, columns in SIZES:
                for turned in (False, True):
                    ms = product(rows, terms, columns, dtype, turned)
                    size = f"{rows} x {terms} x {columns} {'T' if turned else '-'}"
                    print(f"torch {dtype} {size}: {ms:.4f} ms", flush=True)
    for rows in (1, 2, 4, 8, 512):
        for terms, columns in SIZES:
            ms = int4(rows, terms, columns)
            print(f"torch int4 {rows} x {terms} x {columns}: {ms:.4f} ms", flush=True)


if __name__ == "__main__":
    main()
