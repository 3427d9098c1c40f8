"""Small networks on a GPU in PyTorch, JAX and CuPy: four hidden layers, as many inputs and outputs as neurons.

Forward, and forward with the gradients of inputs and weights: medians of times between CUDA events (JAX: of calls that
are waited for). Run where the libraries are: `python3 fused_mlp_peers.py [WIDTH...]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

ROWS, LAYERS, RUNS = 1 << 20, 5, 31


def report(name: str, width: int, forward: float, both: float) -> None:
    flop = 2.0 * ROWS * LAYERS * width * width
    print(
        f"{name:24s} width {width:3d}: forward {forward:.4f} ms, {flop / forward * 1e-9:.1f} TFLOP/s; "
        f"forward and gradients {both:.4f} ms, {3 * flop / both * 1e-9:.1f} TFLOP/s",
        flush=True,
    )


def pytorch(width: int) -> None:
    import torch

    def median(function: Callable[[], Any]) -> float:
        times = []
        for run in range(-5, RUNS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            end.synchronize()
            if run >= 0:
                times.append(begin.elapsed_time(end))
        return statistics.median(times)

    x = torch.randn(ROWS, width, device="cuda", dtype=torch.float16).requires_grad_()
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(LAYERS)]
    stack = [part for layer in layers for part in (layer, torch.nn.ReLU())][:-1]
    model = torch.nn.Sequential(*stack).cuda().half()
    gradient = torch.randn_like(x)

    def both(network: Callable[[Any], Any]) -> None:
        model.zero_grad(set_to_none=True)
        x.grad = None
        network(x).backward(gradient)

    for name, network in (("PyTorch", model), ("PyTorch, torch.compile", torch.compile(model))):
        with torch.no_grad():
            forward = median(lambda network=network: network(x))
        report(name, width, forward, median(lambda network=network: both(network)))


def jax(width: int) -> None:
    import jax
    from jax import numpy as jnp

    keys = jax.random.split(jax.random.key(0), LAYERS + 2)
    x, gradient = (jax.random.normal(key, (ROWS, width), jnp.float16) for key in keys[:2])
    kernels = [jax.random.normal(key, (width, width), jnp.float16) * 0.1 for key in keys[2:]]

    def network(x: Any, kernels: Any) -> Any:
        for kernel in kernels[:-1]:
            x = jax.nn.relu(x @ kernel)
        return x @ kernels[-1]

    def both(x: Any, kernels: Any) -> Any:
        y, pull = jax.vjp(network, x, kernels)
        return y, pull(gradient)

    def median(function: Any) -> float:
        compiled = jax.jit(function)
        times = []
        for run in range(-5, RUNS):
            begin = time.perf_counter()
            jax.block_until_ready(compiled(x, kernels))
            if run >= 0:
                times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)

    report("JAX, jit", width, median(network), median(both))


def cupy(width: int) -> None:
    import cupy
    from cupyx.profiler import benchmark

    x = cupy.random.standard_normal((ROWS, width), cupy.float32).astype(cupy.float16)
    kernels = [
        (cupy.random.standard_normal((width, width), cupy.float32) * 0.1).astype(cupy.float16)
        for _ in range(LAYERS)
    ]

    def forward() -> list[Any]:
        values = [x]
        for kernel in kernels[:-1]:
            values.append(cupy.maximum(values[-1] @ kernel, 0))
        return [*values, values[-1] @ kernels[-1]]

    def both() -> None:
        values, d = forward(), x
        for layer in reversed(range(LAYERS)):
            values[layer].T @ d
            d = d @ kernels[layer].T
            if layer:
                d = cupy.where(values[layer] > 0, d, cupy.float16(0))

    times = [
        1e3 * float(statistics.median(benchmark(f, n_repeat=RUNS, n_warmup=5).gpu_times[0]))
        for f in (forward, both)
    ]
    report("CuPy", width, *times)


if __name__ == "__main__":
    for width in [int(argument) for argument in sys.argv[1:]] or [64]:
        for library in (pytorch, jax, cupy):
            try:
                library(width)
            except Exception as error:  # the other libraries' rows are worth having
                print(f"{library.__name__} width {width}: {type(error).__name__}: {error}"[:500])
