"""metal_ops in PyTorch beside PyTorch's own: the hash encoding of 65,536 points, and a call of an op that does nothing.

    PYTHONPATH=python .venv-torch/bin/python -m benchmarks.torch_calls

A process of its own, as PyTorch is in another environment. Rounds take turns, and medians of them are printed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peer_worker import torch_variants
from metal_ops.torch import HashEncoding, HashGrid, ops

POINTS, ROUNDS, CALLS = 65_536, 9, 2_000
GRID = HashGrid(n_dims=3, n_levels=16, finest_resolution=512)
PRIMES = (1, 2654435761, 805459861)


def levels() -> list[dict[str, Any]]:
    """The grid as the worker of peers reads it."""
    described = []
    for level in range(GRID.n_levels):
        size, resolution = int(GRID.level_sizes[level]), int(GRID.resolutions[level])
        hashed = resolution**GRID.n_dims > size
        described.append(
            {
                "scale": float(GRID.scales[level]),
                "size": size,
                "hashed": hashed,
                "factors": PRIMES if hashed else [resolution**d for d in range(GRID.n_dims)],
            }
        )
    return described


def medians(contenders: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Seconds of a call of each, the first of which is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            begin = time.perf_counter()
            for _ in range(calls):
                work()
            if turn > 0:
                times[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(found) for name, found in times.items()}


def hash_encodings() -> None:
    random = np.random.default_rng(0)
    inputs = {
        "points": random.random((POINTS, GRID.n_dims)).astype(np.float32),
        "table": random.normal(size=GRID.table_shape).astype(np.float32),
        "incoming": random.normal(size=(POINTS, GRID.output_dim)).astype(np.float32),
    }
    encoding = HashEncoding(GRID)
    encoding.table.data = torch.from_numpy(inputs["table"])
    incoming = torch.from_numpy(inputs["incoming"])
    for mode in ("forward", "points"):
        points = torch.from_numpy(inputs["points"]).requires_grad_(mode == "points")

        def work(points: torch.Tensor = points, backward: bool = mode == "points") -> Any:
            if not backward:
                with torch.no_grad():
                    return (encoding(points),)
            outputs = encoding(points)
            return outputs, *torch.autograd.grad(outputs, [encoding.table, points], incoming)

        _, theirs = torch_variants(inputs, {"mode": mode, "levels": levels()})
        for ours, other in zip(work(), theirs["compile"](), strict=True):
            # The compiler's cells differ by a rounding at their edges.
            wrong = ((ours - other).abs() > 1e-3 * (1 + other.abs())).float().mean()
            assert wrong < 1e-3, f"{mode}: {float(wrong):.2%} of the values differ"
        found = medians({"metal_ops": work, "torch.compile": theirs["compile"]}, ROUNDS, 1)
        label = "forward" if mode == "forward" else "forward, gradients of table and points"
        ratio = found["torch.compile"] / found["metal_ops"]
        print(
            f"hash encoding, {label}: {1e3 * found['metal_ops']:.1f} ms, torch.compile "
            f"{1e3 * found['torch.compile']:.1f} ms, {ratio:.2f}x"
        )


def empty_calls() -> None:
    x = torch.zeros(4)
    found = medians(
        {"ours": lambda: ops.null_op(x), "clone": lambda: torch.ops.aten.clone.default(x)},
        ROUNDS,
        CALLS,
    )
    print(
        f"a call of null_op: {1e6 * found['ours']:.1f} us; torch.ops.aten.clone: "
        f"{1e6 * found['clone']:.1f} us"
    )


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    empty_calls()
    hash_encodings()
